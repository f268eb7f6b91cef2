# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Who takes part: frozen schedules and protocols, and what each one justifies.

A `Schedule` lets the server choose; in a `CheckInProtocol` clients decide.
"""

from tff_dp.participation.bernoulli import ShuffledCheckIn
from tff_dp.participation.check_ins import AveragedCheckIn
from tff_dp.participation.check_ins import FixedWindowCheckIn
from tff_dp.participation.check_ins import RandomAllocation
from tff_dp.participation.check_ins import SlidingWindowCheckIn
from tff_dp.participation.protocol import CheckInProtocol
from tff_dp.participation.sampling import MinSeparation
from tff_dp.participation.sampling import Schedule
from tff_dp.participation.sampling import ShuffledEpochs
from tff_dp.participation.sampling import UniformSampling
