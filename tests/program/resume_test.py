# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Real runs that are killed twice, by an exception and by SIGKILL."""

import asyncio
import json
import pathlib
import shutil
import signal
import subprocess
import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import pytest
import tensorflow as tf

from tests.program import killed_runs
from tests.program import kills
from tests.program import protocol_run
from tests.program import real_run
from tests.systems.draw_and_discard import instance_run
from tests.systems.sampling import sampled_run
from tests.systems.silos import secure_sum_run
from tests.systems.silos import silo_run
from tff_dp import execution
from tff_dp.program.files import checkpoints

_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# The end of waiting, on however busy a machine.
_DEADLINE_SECONDS = 600


def _build_process(name: str):
  if name == killed_runs.REAL:
    return real_run.build_process()
  if name == killed_runs.SILOS:
    return silo_run.build_process()
  if name == secure_sum_run.SUMS:
    return secure_sum_run.build_process()
  if name == instance_run.INSTANCES:
    return instance_run.build_process(instance_run.build_plan())
  if name == sampled_run.SAMPLED:
    return sampled_run.build_process()
  return protocol_run.build_process(protocol_run.build_plan(name))


def _num_rounds(name: str) -> int:
  if name == killed_runs.REAL:
    return real_run.NUM_ROUNDS
  if name in (killed_runs.SILOS, secure_sum_run.SUMS):
    return silo_run.NUM_ROUNDS
  if name == instance_run.INSTANCES:
    return instance_run.NUM_ROUNDS
  if name == sampled_run.SAMPLED:
    return sampled_run.NUM_ROUNDS
  return protocol_run.build_plan(name).num_rounds


def _begun(root: pathlib.Path) -> list[dict[str, object]]:
  record = root / 'secret' / 'write_ahead.jsonl'
  lines = record.read_text().splitlines()
  return [entry for entry in map(json.loads, lines) if 'round' in entry]


def _last_checkpoint(root: pathlib.Path, name: str) -> tuple[bytes, bytes]:
  """Returns the process state and the ledger of a finished run."""
  like = _build_process(name).initialize()
  store = checkpoints.CheckpointStore(root / 'secret' / 'checkpoints')
  checkpoint = store.load(_num_rounds(name), like=like)
  return checkpoints.pack(checkpoint.process_state), checkpoint.ledger


# Noise of the server, and noise and coins of the clients.
_SOME = (killed_runs.REAL, protocol_run.SHUFFLED)


class _ResumeTestCase(kills.RunsTestCase):
  """Runs of some systems, all killed at once."""

  names: tuple[str, ...] = ()

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    # With the seed of another test, clients that shuffle would have another
    # order here than in the child.
    tf.random.set_seed(None)
    # What is resumed comes from another process, and so from another context.
    cls.enterClassContext(
        execution.create_sync_in_process_context(max_concurrent_clients=1)
    )
    for name in cls.names:
      # The copy begins with the same keys: those of model, coins and noise.
      save = kills.at_call(checkpoints.CheckpointStore.save, 1, is_after=True)
      with mock.patch.object(checkpoints.CheckpointStore, 'save', save):
        try:
          killed_runs.run(name, cls.parent / name)
        except kills.Killed:
          pass
      shutil.copytree(cls.parent / name, cls.parent / 'uninterrupted' / name)
    log = cls.enterClassContext(open(cls.parent / 'log', 'w+b'))
    child = subprocess.Popen(
        [sys.executable, '-m', 'tests.program.killed_runs', cls.parent]
        + list(cls.names),
        cwd=_REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    cls.addClassCleanup(child.wait)
    cls.addClassCleanup(child.kill)

    async def notebook_cell():
      return {
          name: killed_runs.run(name, cls.parent / 'uninterrupted' / name)
          for name in cls.names
      }

    # TFF's own loop and ours both have to work beside a running one.
    cls.expected = asyncio.run(notebook_cell())
    if child.wait(timeout=_DEADLINE_SECONDS) != -signal.SIGKILL:
      log.seek(0)
      raise AssertionError(log.read().decode()[-4000:])

  def _check(self, name: str) -> None:
    """Fails unless a killed run ends as one that was never killed."""
    root, whole = self.parent / name, self.parent / 'uninterrupted' / name
    # After some checkpoints, in the midst of what the next one will hold.
    killed_in = killed_runs.KILLED_IN[name]
    self.assertBetween(len(_begun(root)), killed_in, _num_rounds(name) - 1)
    saved = root / 'secret' / 'checkpoints'
    self.assertTrue((saved / f'round_{(killed_in - 1) // 3 * 3}').exists())
    self.assertFalse((saved / f'round_{_num_rounds(name)}').exists())
    result, expected = killed_runs.run(name, root), self.expected[name]
    self.assertEqual(result.rounds_done, _num_rounds(name))
    self.assertEqual(expected.rounds_done, _num_rounds(name))
    kills.check_same_files(self, root, whole)
    self.assertEqual(result.metrics, expected.metrics)
    begun = _begun(root)
    self.assertEqual(
        [entry['round'] for entry in begun],
        list(range(1, _num_rounds(name) + 1)),
    )
    self.assertEqual(
        [entry['epsilon'] for entry in begun],
        [row['epsilon'] for row in expected.metrics],
    )
    self.assertEqual(begun[-1]['epsilon'], expected.epsilon)
    self.assertEqual(
        _last_checkpoint(root, name), _last_checkpoint(whole, name)
    )


# On another stack, the run of `keras3_run_test.py` resumes.
@pytest.mark.once
class ResumeTest(_ResumeTestCase):

  names = _SOME

  @parameterized.parameters(*names)
  def test_killed_twice_equals_uninterrupted(self, name):
    self._check(name)


# Each of them resumes in the tests of its system, too.
@pytest.mark.slow
class OtherSystemsTest(_ResumeTestCase):

  names = tuple(name for name in killed_runs.NAMES if name not in _SOME)

  @parameterized.parameters(*names)
  def test_killed_twice_equals_uninterrupted(self, name):
    self._check(name)


if __name__ == '__main__':
  absltest.main()
