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
"""Real runs of protocols with local noise, killed by SIGKILL."""

import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tests.program import protocol_run
from tff_dp import execution
from tff_dp.program import checkpoints
from tff_dp.program import event_loop

_MUST_AGREE = (
    'release/config.json',
    'release/events.json',
    'release/metrics.csv',
    'release/model.npz',
    'release/privacy_statement.json',
    'release/privacy_statement.md',
    'secret/write_ahead.jsonl',
)
_REPOSITORY = pathlib.Path(__file__).parents[2]
_DEADLINE_SECONDS = 120


class _Killed(BaseException):
  """Ends a run where the test wants it to be killed."""


def _last_checkpoint(root, kind: str) -> tuple[bytes, bytes]:
  """Returns process state and check-ins of a finished run."""
  plan = protocol_run.build_plan(kind)
  like = protocol_run.build_process(plan).initialize()
  with event_loop.PrivateEventLoop() as loop:
    store = checkpoints.CheckpointStore(root / 'secret' / 'checkpoints', loop)
    checkpoint = store.load(plan.num_rounds, like=like)
  return checkpoints.pack(checkpoint.process_state), checkpoint.ledger


class ResumeTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.parent = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self.log = self.enterContext(open(self.parent / 'log', 'w+b'))

  def _start(self, root: pathlib.Path, kind: str) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, '-m', 'tests.program.protocol_run', str(root), kind],
        cwd=_REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=self.log,
        stderr=self.log,
    )
    self.addCleanup(process.wait)
    self.addCleanup(process.kill)
    return process

  def _kill_when(self, process: subprocess.Popen, condition) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
      if process.poll() is not None or time.monotonic() > deadline:
        self.log.seek(0)
        self.fail(f'too late to kill it: {self.log.read().decode()[-4000:]}')
      time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    self.assertEqual(process.wait(), -signal.SIGKILL)

  @parameterized.parameters(protocol_run.FIXED_WINDOW, protocol_run.SHUFFLED)
  def test_killed_equals_uninterrupted(self, kind):
    root = self.parent / 'run'
    record = root / 'secret' / 'write_ahead.jsonl'

    def num_begun():
      return record.read_bytes().count(b'\n') if record.exists() else 0

    # The copy begins with the same keys: those of model, coins and noise.
    save = checkpoints.CheckpointStore.save
    
    def save_and_end(*args):
      save(*args)
      raise _Killed

    with mock.patch.object(checkpoints.CheckpointStore, 'save', save_and_end):
      with self.assertRaises(_Killed):
        protocol_run.run(root, kind)
    uninterrupted = self.parent / 'uninterrupted'
    shutil.copytree(root, uninterrupted)
    self._kill_when(self._start(root, kind), lambda: num_begun() >= 5)
    num_rounds = protocol_run.build_plan(kind).num_rounds
    self.assertLess(num_begun(), num_rounds)
    result = protocol_run.run(root, kind)
    expected = protocol_run.run(uninterrupted, kind)
    self.assertEqual(result.rounds_done, num_rounds)
    for name in _MUST_AGREE:
      self.assertEqual(
          (root / name).read_bytes(), (uninterrupted / name).read_bytes(), name
      )
    self.assertEqual(result.metrics, expected.metrics)
    with execution.create_sync_in_process_context():
      self.assertEqual(
          _last_checkpoint(root, kind), _last_checkpoint(uninterrupted, kind)
      )


if __name__ == '__main__':
  absltest.main()
