# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""DP-FTRL: a trusted server adds noise to sums, without sampling."""

from tff_dp.systems.system import At
from tff_dp.systems.system import Command
from tff_dp.systems.system import Offered
from tff_dp.systems.system import System

_FLAGS = At('tff_dp.cli.flags.dp_ftrl')
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
        plan=At('tff_dp.plans.dp_ftrl', 'DpFtrlPlan'),
        training=At(f'{__name__}.training', 'DP_FTRL'),
        points=_POINTS,
        commands={
            'dp-ftrl': Command(
                'correlated or independent noise on a stream of sums', _FLAGS
            ),
        },
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
        plan=At('tff_dp.plans.non_private', 'NonPrivatePlan'),
        training=At(f'{__name__}.training', 'NON_PRIVATE'),
        points=_POINTS,
    ),
)
__all__ = ()
