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
"""Draw and Discard: k models, of which one is drawn and one overwritten."""

# pylint: disable=g-importing-member
from tff_dp.learning.draw_and_discard.participations import ParticipationLedger
from tff_dp.learning.draw_and_discard.pool import Pool
from tff_dp.learning.draw_and_discard.process import build_draw_and_discard
from tff_dp.learning.draw_and_discard.process import DrawAndDiscardProcess
from tff_dp.learning.draw_and_discard.strategies import NAMES as STRATEGIES
