# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Check-ins: clients decide alone when to take part."""

from tff_dp.systems.system import At
from tff_dp.systems.system import Command
from tff_dp.systems.system import Offered
from tff_dp.systems.system import System

_FLAGS = At('tff_dp.cli.flags.check_ins')
_OFFERS = 'tff_dp.advice.check_ins'
SYSTEMS = (
    System(
        kind='check_ins',
        page='docs/check_ins.md',
        plan=At('tff_dp.plans.check_ins', 'CheckInPlan'),
        training=At(f'{__name__}.training', 'CHECK_INS'),
        points={
            'mechanism': 'randomizer local_guarantee check_in_rate',
            'accounting': 'bound candidates discretisation',
            'implementation': 'coins',
        },
        commands={
            'shuffle': Command(
                'every client sends one report through a shuffler', _FLAGS
            ),
            'shuffled-check-in': Command(
                'each client flips a coin every round, reports are shuffled',
                _FLAGS,
            ),
            'random-check-in': Command(
                'each client draws its own slot, at a trusted server', _FLAGS
            ),
            'random-allocation': Command(
                'check-ins at a server that is trusted to add the noise', _FLAGS
            ),
            'cyclic-allocation': Command(
                'check-ins at a server whose noise is correlated over rounds',
                At('tff_dp.cli.flags.cyclic_allocation'),
            ),
        },
        offers={
            'random-allocation': Offered(
                'server',
                'clients draw their own rounds, and a server adds noise to'
                ' every sum',
                At(_OFFERS, 'random_allocation'),
            ),
            'cyclic-allocation': Offered(
                'server',
                'as random-allocation, in strides, with noise that cancels over'
                ' rounds',
                At('tff_dp.advice.cyclic_allocation', 'cyclic_allocation'),
            ),
            'fixed-window': Offered(
                'server',
                'clients noise their reports and draw a slot, which uses one of'
                ' them',
                At(_OFFERS, 'fixed_window'),
            ),
            'sliding-window': Offered(
                'server',
                'as fixed-window, with slots that begin when a client wakes',
                At(_OFFERS, 'sliding_window'),
            ),
            'shuffled-check-in': Offered(
                'shuffler',
                'clients noise their reports, flip a coin a round, and are'
                ' shuffled',
                At(_OFFERS, 'shuffled_check_in'),
            ),
            'local-reports': Offered(
                'nobody',
                'clients noise their reports, and nothing else is counted on',
                At(_OFFERS, 'local_reports'),
            ),
        },
    ),
)
__all__ = ()
