# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Learning processes with the noise and the event of a privacy plan."""

from tff_dp import _compat

_compat.require_tff()

# pylint: disable=g-import-not-at-top,g-importing-member,wrong-import-position
from tff_dp import _lazy
from tff_dp.learning.averaging import ExponentialAverage
from tff_dp.learning.averaging import SuffixAverage
from tff_dp.learning.averaging import UniformAverage
from tff_dp.learning.constraints import Box
from tff_dp.learning.constraints import L2Ball
from tff_dp.learning.keras3 import assign_to_keras3
from tff_dp.learning.keras3 import functional_model_from_keras3
from tff_dp.learning.keyed_data import client_data
from tff_dp.learning.linear_models import build_generalized_linear_model
from tff_dp.learning.optimizers import build_momentum

__all__ = (
    'ExponentialAverage',
    'SuffixAverage',
    'UniformAverage',
    'Box',
    'L2Ball',
    'assign_to_keras3',
    'functional_model_from_keras3',
    'client_data',
    'build_generalized_linear_model',
    'build_momentum',
)
__getattr__ = _lazy.moved(__name__)
