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
"""The training program: from a process and a plan to a finished run."""

from tff_dp import _compat

_compat.require_tff()

# pylint: disable=g-import-not-at-top,g-importing-member,wrong-import-position
from tff_dp.program.certification import certify
from tff_dp.program.check_in_source import CheckInDataSource
from tff_dp.program.outputs import read_model
from tff_dp.program.run import BUDGET
from tff_dp.program.run import COMPLETED
from tff_dp.program.run import TrainResult
from tff_dp.program.training import train
