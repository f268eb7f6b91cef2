# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The participants of each round: frozen schedules and protocols.

In a `Schedule` the server chooses the clients. In a `Protocol` the
clients decide.
"""

from tff_dp import _lazy
from tff_dp.participation.sampling import MinSeparation
from tff_dp.participation.sampling import OncePerTree
from tff_dp.participation.sampling import ShuffledEpochs
from tff_dp.participation.sampling import UniformSampling

__all__ = ('MinSeparation', 'OncePerTree', 'ShuffledEpochs', 'UniformSampling')
__getattr__ = _lazy.moved(__name__)
