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
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tests.program import kills
from tests.program import protocol_run
from tff_dp import execution
from tff_dp.program import checkpoints
from tff_dp.program import event_loop


def _last_checkpoint(root, kind: str) -> tuple[bytes, bytes]:
  """Returns process state and check-ins of a finished run."""
  plan = protocol_run.build_plan(kind)
  like = protocol_run.build_process(plan).initialize()
  with event_loop.PrivateEventLoop() as loop:
    store = checkpoints.CheckpointStore(root / 'secret' / 'checkpoints', loop)
    checkpoint = store.load(plan.num_rounds, like=like)
  return checkpoints.pack(checkpoint.process_state), checkpoint.ledger


class ResumeTest(kills.KilledRunTestCase):

  @parameterized.parameters(protocol_run.FIXED_WINDOW, protocol_run.SHUFFLED)
  def test_killed_equals_uninterrupted(self, kind):
    root = self.parent / 'run'
    # The copy begins with the same keys: those of model, coins and noise.
    save_and_end = kills.at_call(
        checkpoints.CheckpointStore.save, 1, is_after=True
    )
    with mock.patch.object(checkpoints.CheckpointStore, 'save', save_and_end):
      with self.assertRaises(kills.Killed):
        protocol_run.run(root, kind)
    uninterrupted = self.parent / 'uninterrupted'
    shutil.copytree(root, uninterrupted)
    self.kill_when(
        self.start('tests.program.protocol_run', root, kind),
        lambda: kills.num_begun(root) >= 5,
    )
    num_rounds = protocol_run.build_plan(kind).num_rounds
    self.assertLess(kills.num_begun(root), num_rounds)
    result = protocol_run.run(root, kind)
    expected = protocol_run.run(uninterrupted, kind)
    self.assertEqual(result.rounds_done, num_rounds)
    self.check_same_files(root, uninterrupted)
    self.assertEqual(result.metrics, expected.metrics)
    with execution.create_sync_in_process_context():
      self.assertEqual(
          _last_checkpoint(root, kind), _last_checkpoint(uninterrupted, kind)
      )


if __name__ == '__main__':
  absltest.main()
