# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Learning processes with the noise and the event of a privacy plan."""

from tff_dp import _compat

_compat.require_tff()

# pylint: disable=g-import-not-at-top,g-importing-member,wrong-import-position
from tff_dp import _lazy
from tff_dp.learning.averaging import Average
from tff_dp.learning.averaging import ExponentialAverage
from tff_dp.learning.averaging import SuffixAverage
from tff_dp.learning.averaging import UniformAverage
from tff_dp.learning.constraints import Box
from tff_dp.learning.constraints import Constraint
from tff_dp.learning.constraints import L2Ball
from tff_dp.learning.constraints import NonNegative
from tff_dp.learning.constraints import Projection
from tff_dp.learning.constraints import Unconstrained
from tff_dp.learning.keyed_data import client_data
from tff_dp.learning.linear_models import build_generalized_linear_model
from tff_dp.learning.linear_models import GeneralizedLinearModel
from tff_dp.learning.optimizers import build_momentum
from tff_dp.learning.process import PrivateLearningProcess

__getattr__ = _lazy.moved(
    __name__,
    {
        **{
            name: f'tff_dp.dp_ftrl.{name}'
            for name in (
                'build_dp_ftrl', 'build_least_squares', 'moments_norm_bound'
            )
        },
        'build_allocation_sgd': 'tff_dp.allocation.build_allocation_sgd',
        **{
            name: f'tff_dp.check_ins.{name}'
            for name in ('build_check_in_sgd', 'build_shuffled_check_in_sgd')
        },
        'build_draw_and_discard': (
            'tff_dp.draw_and_discard.build_draw_and_discard'
        ),
        'draw_and_discard': 'tff_dp.draw_and_discard',
        'silos': 'tff_dp.silos',
    },
)
