# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Noise mechanisms: frozen descriptions and pure functions, no TensorFlow."""

from tff_dp import _lazy
from tff_dp.mechanisms import randomizers
from tff_dp.mechanisms.adaptive_clipping import AdaptiveClipping
from tff_dp.mechanisms.catalogue import build
from tff_dp.mechanisms.choice import best
from tff_dp.mechanisms.choice import compare
from tff_dp.mechanisms.matrix.banded_inverse import BandedInverse
from tff_dp.mechanisms.matrix.blt import Blt
from tff_dp.mechanisms.matrix.toeplitz import Banded
from tff_dp.mechanisms.matrix.toeplitz import Toeplitz
from tff_dp.mechanisms.mechanism import Independent
from tff_dp.mechanisms.tree import HonakerTree
from tff_dp.mechanisms.tree import Tree
from tff_dp.mechanisms.workloads import Cooldown
from tff_dp.mechanisms.workloads import Workload

__all__ = (
    'randomizers',
    'AdaptiveClipping',
    'build',
    'best',
    'compare',
    'BandedInverse',
    'Blt',
    'Banded',
    'Toeplitz',
    'Independent',
    'HonakerTree',
    'Tree',
    'Cooldown',
    'Workload',
)
__getattr__ = _lazy.moved(__name__)
