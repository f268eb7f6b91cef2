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
"""Axes of pictures that count rounds, updates or images."""


def count(axis) -> None:
  """Puts few ticks on a matplotlib axis, at round integers: 200, 5k, 10M."""
  from matplotlib import ticker  # pylint: disable=g-import-not-at-top

  # Without the step 2.5 that is among the default ones.
  axis.set_major_locator(
      ticker.MaxNLocator(
          nbins=6, integer=True, steps=(1, 2, 5, 10), min_n_ticks=1
      )
  )
  axis.set_major_formatter(ticker.EngFormatter(sep=''))
