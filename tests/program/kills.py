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
"""Runs that are killed: in this process by an exception, or for real."""

from collections.abc import Callable
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from absl.testing import parameterized

# Files of a run that do not depend on how often it was killed.
MUST_AGREE = (
    'release/config.json',
    'release/events.json',
    'release/metrics.csv',
    'release/model.npz',
    'release/privacy_statement.json',
    'release/privacy_statement.md',
    'secret/write_ahead.jsonl',
)
_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# The end of waiting, on however busy a machine.
_DEADLINE_SECONDS = 600.0


class Killed(BaseException):
  """Stands for the end of the process; no `except Exception` catches it."""


def at_call(target, number: int, *, is_after: bool):
  """Returns a stand-in for a method that is killed at its n-th call."""
  calls = []

  def stand_in(*args, **kwargs):
    calls.append(None)
    if len(calls) == number and not is_after:
      raise Killed
    result = target(*args, **kwargs)
    if len(calls) == number:
      raise Killed
    return result

  return stand_in


def num_begun(root: pathlib.Path) -> int:
  """Returns how many rounds a run has begun, those begun again included."""
  record = root / 'secret' / 'write_ahead.jsonl'
  return record.read_bytes().count(b'\n') if record.exists() else 0


class KilledRunTestCase(parameterized.TestCase):
  """Starts runs in processes of their own, and kills them.

  Attributes:
    parent: A folder for the runs.
  """

  def setUp(self):
    super().setUp()
    self.parent = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self._log = self.enterContext(open(self.parent / 'log', 'w+b'))

  def start(self, module: str, *arguments: object) -> subprocess.Popen:
    """Starts `python -m module arguments`."""
    process = subprocess.Popen(
        [sys.executable, '-m', module, *map(str, arguments)],
        cwd=_REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=self._log,
        stderr=self._log,
    )
    self.addCleanup(process.wait)
    self.addCleanup(process.kill)
    return process

  def kill_when(
      self, process: subprocess.Popen, condition: Callable[[], bool]
  ) -> None:
    """Kills a run as soon as a condition holds; fails if it ends before."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
      if process.poll() is not None or time.monotonic() > deadline:
        self.fail(f'too late to kill it: {self.printed()[-4000:]}')
      time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    self.assertEqual(process.wait(), -signal.SIGKILL)

  def check_same_files(self, root: pathlib.Path, other: pathlib.Path) -> None:
    """Fails unless two runs left the same files."""
    for name in MUST_AGREE:
      self.assertEqual(
          (root / name).read_bytes(), (other / name).read_bytes(), name
      )

  def printed(self) -> str:
    """Returns what all runs printed so far."""
    self._log.seek(0)
    return self._log.read().decode()
