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
"""A real run, on TFF's worker, that is killed by SIGKILL."""

import asyncio
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from absl.testing import absltest

from tests.program import real_run
from tff_dp import execution
from tff_dp.program import checkpoints
from tff_dp.program import event_loop
from tff_dp.program import run as run_lib

_MUST_AGREE = (
    'release/model.npz',
    'release/metrics.csv',
    'release/privacy_statement.json',
    'release/privacy_statement.md',
    'release/events.json',
    'release/config.json',
    'secret/write_ahead.jsonl',
)
_REPOSITORY = pathlib.Path(__file__).parents[2]
_DEADLINE_SECONDS = 120


def _count_lines(path: pathlib.Path) -> int:
  return path.read_bytes().count(b'\n') if path.exists() else 0


class ResumeTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.parent = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self.log = self.enterContext(open(self.parent / 'log', 'w+b'))

  def _start(self, root: pathlib.Path) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, '-m', 'tests.program.real_run', str(root)],
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

  def test_killed_twice_equals_uninterrupted(self):
    root = self.parent / 'run'
    saved = root / 'secret' / 'checkpoints'
    record = root / 'secret' / 'write_ahead.jsonl'
    self._kill_when(self._start(root), (saved / 'round_0').exists)
    uninterrupted = self.parent / 'uninterrupted'
    shutil.copytree(root, uninterrupted)
    # A kill may hit after the first rounds; their noise is in the copy's key.
    self._kill_when(self._start(root), lambda: _count_lines(record) >= 8)
    self.assertFalse((saved / f'round_{real_run.NUM_ROUNDS}').exists())
    resumed = self._start(root)

    async def notebook_cell():
      return real_run.run(uninterrupted)

    # TFF's own loop and ours both have to work beside a running one.
    expected = asyncio.run(notebook_cell())
    self.assertEqual(resumed.wait(timeout=_DEADLINE_SECONDS), 0)

    self.assertEqual(expected.rounds_done, real_run.NUM_ROUNDS)
    for name in _MUST_AGREE:
      self.assertEqual(
          (root / name).read_bytes(), (uninterrupted / name).read_bytes(), name
      )
    begun = [json.loads(line) for line in record.read_text().splitlines()]
    self.assertEqual([entry['round'] for entry in begun], list(range(1, 13)))
    self.assertEqual(begun[-1]['epsilon'], expected.epsilon)
    self.assertEqual(
        [entry['epsilon'] for entry in begun],
        [row['epsilon'] for row in expected.metrics],
    )
    with execution.create_sync_in_process_context():
      self.assertEqual(self._load(root), self._load(uninterrupted))

  def _load(self, root: pathlib.Path) -> tuple[bytes, bytes]:
    """Returns the process state and the ledger of the last checkpoint."""
    like = real_run.build_process().initialize()
    with event_loop.PrivateEventLoop() as loop:
      store = checkpoints.CheckpointStore(root / 'secret' / 'checkpoints', loop)
      checkpoint = store.load(real_run.NUM_ROUNDS, like=like)
    return checkpoints.pack(checkpoint.process_state), checkpoint.ledger

  def test_insecure_key_is_found_in_the_state(self):
    with execution.create_sync_in_process_context(max_concurrent_clients=1):
      for seed, is_insecure in ((None, False), (3, True)):
        state = real_run.build_process(insecure_seed=seed).initialize()
        self.assertEqual(run_lib.is_key_insecure(state), is_insecure)


if __name__ == '__main__':
  absltest.main()
