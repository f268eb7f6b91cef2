# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""ISRL-DP and its shuffle model: silos protect each of their records."""

from tff_dp.systems.system import At
from tff_dp.systems.system import Command
from tff_dp.systems.system import Offered
from tff_dp.systems.system import System

_FLAGS = At('tff_dp.cli.flags.silos')
SYSTEMS = (
    System(
        kind='secure_sums',
        page='docs/isrl.md',
        plan=At('tff_dp.plans.secure_sums', 'SecureSumPlan'),
        flags=_FLAGS,
        training=At(f'{__name__}.training', 'SECURE_SUMS'),
        points={
            'mechanism': 'noise_multiplier l2_norm_clip min_silos',
            'guarantee': 'epsilon_of_own_noise',
            'implementation': 'coins',
        },
        offers={
            'secure-sum': Offered(
                'shuffler',
                'silos share the noise of a sum that is opened only as a whole',
                At(f'{__name__}.offer', 'secure_sum'),
                unit='record',
            ),
        },
    ),
    System(
        kind='silos',
        page='docs/isrl.md',
        plan=At('tff_dp.plans.silos', 'SiloPlan'),
        flags=_FLAGS,
        training=At(f'{__name__}.training', 'SILOS'),
        points={
            'mechanism': 'noise_multiplier l2_norm_clip',
            'accounting': 'discretisation',
            'guarantee': 'worst_silo silos per_person',
            'implementation': 'coins',
        },
        commands={
            'isrl': Command(
                'messages of one silo that protects each of its records itself',
                _FLAGS,
            ),
        },
        offers={
            'isrl': Offered(
                'nobody',
                'every silo adds all the noise that its own records need',
                At(f'{__name__}.offer', 'isrl'),
                unit='record',
            ),
        },
    ),
)
__all__ = ()
