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
"""SIGINT while a command starts: one line and status 130, at once.

Imports take seconds, some of them swallow KeyboardInterrupt, and nothing is
lost by then.
"""

import os
import signal
import sys

_STATUS = 128 + signal.SIGINT
# A copy of stderr, which is held back while TensorFlow is being loaded; `None`
# in a process that is not a command of ours.
_screen = None


def exit_on_interrupt() -> None:
  """Ends the process at the next SIGINT. For the entry point of a command."""
  global _screen
  if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    return  # As of a job in the background.
  if _screen is None:
    _screen = os.dup(sys.stderr.fileno())
  signal.signal(signal.SIGINT, _exit)


def raise_on_interrupt() -> None:
  """Goes back to KeyboardInterrupt, for what has to be cleaned up."""
  if signal.getsignal(signal.SIGINT) is _exit:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def is_command() -> bool:
  """Whether this process began with `exit_on_interrupt`."""
  return _screen is not None


def _exit(signal_number, frame) -> None:
  del signal_number, frame
  os.write(_screen, b'interrupted\n')
  os._exit(_STATUS)  # pylint: disable=protected-access
