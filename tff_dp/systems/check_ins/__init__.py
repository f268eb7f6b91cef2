# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Check-ins: clients decide alone when to report, and add the noise."""

from tff_dp import _lazy
from tff_dp.systems.system import At
from tff_dp.systems.system import Command
from tff_dp.systems.system import Offered
from tff_dp.systems.system import System

_FLAGS = At(f'{__name__}.flags')
_OFFERS = f'{__name__}.offers'
SYSTEMS = (
    System(
        kind='check_ins',
        page='docs/check_ins.md',
        plan=At(f'{__name__}.plan', 'CheckInPlan'),
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
        },
        offers={
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
_ON_TFF = ('build_check_in_sgd', 'build_shuffled_check_in_sgd')
__getattr__, __dir__, __all__ = _lazy.names(
    __name__,
    {
        'AveragedCheckIn': f'{__name__}.windows',
        'CheckInPlan': f'{__name__}.plan',
        'FixedWindowCheckIn': f'{__name__}.windows',
        'ShuffledCheckIn': f'{__name__}.shuffled',
        'ShuffledReports': f'{__name__}.shuffled',
        'SlidingWindowCheckIn': f'{__name__}.windows',
        **dict.fromkeys(_ON_TFF, f'{__name__}.builders'),
    },
    on_tff=_ON_TFF,
)
