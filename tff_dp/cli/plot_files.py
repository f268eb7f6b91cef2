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
"""Whether a picture can be written, found out before the work for it."""

import importlib.util
import os

from tff_dp import _checks


def check(path: str) -> None:
  """Raises if `--plot PATH` could not be written."""
  if importlib.util.find_spec('matplotlib') is None:
    raise ImportError('--plot needs matplotlib, which is not installed')
  folder = os.path.dirname(os.path.abspath(path))
  is_writable = os.access(path if os.path.exists(path) else folder, os.W_OK)
  if os.path.isdir(path) or not os.path.isdir(folder) or not is_writable:
    raise _checks.ArgumentError(
        'plot', path, 'a file that can be written, in a folder that exists'
    )
