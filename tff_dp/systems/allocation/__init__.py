# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Allocation: clients draw their own slots, and a trusted server adds noise."""

from tff_dp import _lazy
from tff_dp.systems.system import At
from tff_dp.systems.system import Command
from tff_dp.systems.system import Offered
from tff_dp.systems.system import System

_OFFERS = f'{__name__}.offers'
SYSTEMS = (
    System(
        kind='allocation',
        page='docs/check_ins.md',
        plan=At(f'{__name__}.plan', 'AllocationPlan'),
        training=At(f'{__name__}.training', 'ALLOCATION'),
        rows=At(f'{__name__}.strides', 'rows'),
        points={
            'mechanism': (
                'noise_multiplier l2_norm_clip local_guarantee check_in_rate'
            ),
            'accounting': 'bound candidates discretisation',
            'implementation': 'coins',
        },
        commands={
            'random-allocation': Command(
                'check-ins at a server that is trusted to add the noise',
                At(f'{__name__}.flags'),
                At(f'{__name__}.examples', 'EXAMPLES'),
            ),
            'cyclic-allocation': Command(
                'check-ins at a server whose noise is correlated over rounds',
                At(f'{__name__}.cyclic_flags'),
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
                At(_OFFERS, 'cyclic_allocation'),
            ),
        },
    ),
)
__getattr__, __dir__, __all__ = _lazy.names(
    __name__,
    {
        'AllocationPlan': f'{__name__}.plan',
        'CyclicAllocation': f'{__name__}.protocols',
        'RandomAllocation': f'{__name__}.protocols',
        'build_allocation_sgd': f'{__name__}.builders',
    },
    on_tff=('build_allocation_sgd',),
)
