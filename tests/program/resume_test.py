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

from absl.testing import absltest

from tests.program import kills
from tests.program import real_run
from tff_dp import execution
from tff_dp.program import checkpoints
from tff_dp.program import event_loop
from tff_dp.program import run as run_lib

# The end of waiting, on however busy a machine.
_DEADLINE_SECONDS = 600


class ResumeTest(kills.KilledRunTestCase):

  def test_killed_twice_equals_uninterrupted(self):
    root = self.parent / 'run'
    saved = root / 'secret' / 'checkpoints'
    record = root / 'secret' / 'write_ahead.jsonl'
    start = lambda: self.start('tests.program.real_run', root)
    self.kill_when(start(), (saved / 'round_0').exists)
    uninterrupted = self.parent / 'uninterrupted'
    shutil.copytree(root, uninterrupted)
    # A kill may hit after the first rounds; their noise is in the copy's key.
    self.kill_when(start(), lambda: kills.num_begun(root) >= 8)
    self.assertFalse((saved / f'round_{real_run.NUM_ROUNDS}').exists())
    resumed = start()

    async def notebook_cell():
      return real_run.run(uninterrupted)

    # TFF's own loop and ours both have to work beside a running one.
    expected = asyncio.run(notebook_cell())
    self.assertEqual(resumed.wait(timeout=_DEADLINE_SECONDS), 0)

    self.assertEqual(expected.rounds_done, real_run.NUM_ROUNDS)
    self.check_same_files(root, uninterrupted)
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
