# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sampling: a trusted server draws each cohort by secret coins, and adds noise.

This is DP-FedAvg if the coins are for clients, and DP-SGD if they are for the
examples of one holder.
"""

from tff_dp import _lazy
from tff_dp.systems.system import At
from tff_dp.systems.system import Command
from tff_dp.systems.system import Offered
from tff_dp.systems.system import System

_EXAMPLES = At(f'{__name__}.examples', 'EXAMPLES')
SYSTEMS = (
    System(
        kind='sampling',
        page='docs/sampling.md',
        plan=At(f'{__name__}.plan', 'SamplingPlan'),
        training=At(f'{__name__}.training', 'SAMPLING'),
        points={
            'mechanism': (
                'noise_multiplier l2_norm_clip clients_per_round sampling_rate'
            ),
            'accounting': 'rounds_accounted discretisation',
            'implementation': 'coins realised_cohorts',
        },
        commands={
            'dp-fedavg': Command(
                'clients drawn by secret coins of a server that adds noise',
                At(f'{__name__}.flags', 'DP_FEDAVG'),
                _EXAMPLES,
            ),
            'dp-sgd': Command(
                'examples of one holder, drawn by its secret coins',
                At(f'{__name__}.flags', 'DP_SGD'),
            ),
        },
        offers={
            'dp-fedavg': Offered(
                'server',
                'a server draws clients by secret coins, and adds noise to'
                ' every sum',
                At(f'{__name__}.offer', 'dp_fedavg'),
            ),
        },
        server_cohorts=At(f'{__name__}.server_cohorts', 'CoinCohorts'),
        rows=At(f'{__name__}.offer', 'rows'),
    ),
)
__getattr__, __dir__, __all__ = _lazy.names(
    __name__,
    {
        'SamplingPlan': f'{__name__}.plan',
        'build_dp_fedavg': f'{__name__}.builders',
        'build_dp_sgd': f'{__name__}.builders',
        'Examples': f'{__name__}.holder',
    },
    on_tff=('build_dp_fedavg', 'build_dp_sgd', 'Examples'),
)
