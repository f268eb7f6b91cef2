# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""DP-FTRL: a trusted server adds noise to sums, without sampling."""

from tff_dp import _lazy
from tff_dp.systems.system import At
from tff_dp.systems.system import Command
from tff_dp.systems.system import Offered
from tff_dp.systems.system import System
from tff_dp.systems.system import Tool

_FLAGS = At(f'{__name__}.flags')
_POINTS = {
    'unit': 'min_index_gap min_rounds_between',
    'mechanism': 'noise_multiplier l2_norm_clip clients_per_round',
    'accounting': 'squared_sensitivity',
    'guarantee': 'epsilon_rdp zcdp_rho sigma_eff',
}
SYSTEMS = (
    System(
        kind='dp_ftrl',
        page='docs/dp_ftrl.md',
        plan=At(f'{__name__}.plan', 'DpFtrlPlan'),
        training=At(f'{__name__}.training', 'DP_FTRL'),
        points=_POINTS,
        commands={
            'dp-ftrl': Command(
                'correlated or independent noise on a stream of sums',
                _FLAGS,
                At(f'{__name__}.examples', 'EXAMPLES'),
            ),
        },
        tools={
            'compare': Tool(
                'the error of every mechanism at equal privacy',
                At(f'{__name__}.compare', 'add_arguments'),
            ),
        },
        server_cohorts=At(f'{__name__}.server_cohorts', 'ScheduledCohorts'),
        offers={
            'dp-ftrl': Offered(
                'server',
                'a server adds noise that cancels over rounds, and chooses who'
                ' comes',
                At(f'{__name__}.offer', 'dp_ftrl'),
            ),
        },
    ),
    System(
        kind='non_private',
        page='docs/training.md',
        plan=At(f'{__name__}.non_private', 'NonPrivatePlan'),
        training=At(f'{__name__}.training', 'NON_PRIVATE'),
        points=_POINTS,
    ),
)
__getattr__, __dir__, __all__ = _lazy.names(
    __name__,
    {
        'DpFtrlPlan': f'{__name__}.plan',
        'NonPrivatePlan': f'{__name__}.non_private',
        'build_dp_ftrl': f'{__name__}.builders',
        'build_least_squares': f'{__name__}.least_squares_process',
    },
    on_tff=('build_dp_ftrl', 'build_least_squares'),
)
