# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Who takes part: frozen schedules and protocols, with their guarantees.

In a `Schedule` the server chooses the clients. In a `Protocol` the
clients decide.
"""

from tff_dp import _lazy
from tff_dp.participation.sampling import MinSeparation
from tff_dp.participation.sampling import OncePerTree
from tff_dp.participation.sampling import Schedule
from tff_dp.participation.sampling import ShuffledEpochs
from tff_dp.participation.sampling import UniformSampling

__getattr__ = _lazy.moved(
    __name__,
    {
        'CentralGaussian': 'the noise_multiplier and l2_norm_clip of a'
        ' tff_dp.AllocationPlan',
        **{
            name: f'tff_dp.check_ins.{name}'
            for name in (
                'AveragedCheckIn',
                'FixedWindowCheckIn',
                'ShuffledCheckIn',
                'ShuffledReports',
                'SlidingWindowCheckIn',
            )
        },
        **{
            name: f'tff_dp.allocation.{name}'
            for name in ('CyclicAllocation', 'RandomAllocation')
        },
    },
)
