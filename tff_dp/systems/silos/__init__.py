# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""ISRL-DP and secure sums: silos protect each of their records."""

from tff_dp import _lazy
from tff_dp.systems.system import At
from tff_dp.systems.system import Command
from tff_dp.systems.system import Offered
from tff_dp.systems.system import System

_FLAGS = At(f'{__name__}.flags')
# Module -> its public names.
_ON_TFF = {
    'accelerated': (
        'build_accelerated_mb_sgd_erm',
        'build_localized_mb_sgd',
        'build_one_pass_accelerated_mb_sgd',
    ),
    'metrics': ('PrivateMetric',),
    'moreau': ('build_linear_model',),
    'secure_sums': ('build_secure_sum_sgd',),
    'sgd': ('build_isrl_local_sgd', 'build_noisy_mb_sgd'),
    'terms': ('silo_data',),
}
_WITHOUT_TFF = {
    'plan': ('SiloPlan',),
    'secure_sum_plan': ('SecureSumPlan',),
    'silo_budget': ('SiloBudget',),
    'silo_calibration': ('calibrate_noise',),
    'silo_sampling': (
        'DisjointBlocks',
        'FixedSize',
        'PoissonSampling',
        'account_noise',
    ),
}
SYSTEMS = (
    System(
        kind='secure_sums',
        page='docs/isrl.md',
        plan=At(f'{__name__}.secure_sum_plan', 'SecureSumPlan'),
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
        plan=At(f'{__name__}.plan', 'SiloPlan'),
        training=At(f'{__name__}.training', 'SILOS'),
        points={
            'mechanism': 'noise_multiplier l2_norm_clip',
            'accounting': 'discretisation',
            'guarantee': 'worst_silo groups per_person',
            'implementation': 'coins',
        },
        commands={
            'isrl': Command(
                'messages of one silo that protects each of its records itself',
                _FLAGS,
                At(f'{__name__}.examples', 'EXAMPLES'),
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
__getattr__, __dir__, __all__ = _lazy.names(
    __name__,
    {
        **{
            name: f'{__name__}.{module}'
            for module, names in (_ON_TFF | _WITHOUT_TFF).items()
            for name in names
        },
    },
    on_tff=[name for names in _ON_TFF.values() for name in names],
)
