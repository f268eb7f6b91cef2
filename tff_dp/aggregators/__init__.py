# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Aggregation factories that plug into any `tff.learning` algorithm."""

from tff_dp import _compat

_compat.require_tff()

# pylint: disable=g-import-not-at-top,g-importing-member,wrong-import-position
from tff_dp import _lazy
from tff_dp.aggregators.correlated_noise import CorrelatedNoiseFactory
from tff_dp.aggregators.local_randomizers import LocalRandomizerFactory

__all__ = ('CorrelatedNoiseFactory', 'LocalRandomizerFactory')
__getattr__ = _lazy.moved(__name__)
