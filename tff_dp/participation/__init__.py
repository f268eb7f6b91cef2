# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Who takes part: frozen schedules and protocols, with their guarantees.

In a `Schedule` the server chooses the clients. In a `CheckInProtocol` the
clients decide.
"""

from tff_dp.participation.check_ins import AveragedCheckIn
from tff_dp.participation.check_ins import FixedWindowCheckIn
from tff_dp.participation.check_ins import RandomAllocation
from tff_dp.participation.check_ins import SlidingWindowCheckIn
from tff_dp.participation.cyclic_allocation import CyclicAllocation
from tff_dp.participation.protocol import CentralGaussian
from tff_dp.participation.protocol import CheckInProtocol
from tff_dp.participation.sampling import MinSeparation
from tff_dp.participation.sampling import OncePerTree
from tff_dp.participation.sampling import Schedule
from tff_dp.participation.sampling import ShuffledEpochs
from tff_dp.participation.sampling import UniformSampling
from tff_dp.participation.shuffled_check_in import ShuffledCheckIn
from tff_dp.participation.shuffled_check_in import ShuffledReports
