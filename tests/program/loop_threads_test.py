# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loops in the hands of two threads, or interrupted within a round."""

import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tests import threads
from tests.program import kills
from tests.program import toy
from tff_dp import _checks
from tff_dp.files import write_ahead
from tff_dp.program import releases
from tff_dp.program import run as run_lib
from tff_dp.program.display import documents
from tff_dp.program.files import checkpoints
from tff_dp.program.files import history

_A, _B = (
    [f'client {i}' for i in group] for group in ((1, 2, 3), (4, 5, 6))
)


class _Case(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    folder = self.enterContext(tempfile.TemporaryDirectory())
    self.root = pathlib.Path(folder) / 'run'
    # Its charts take longer than all else.
    self.enterContext(mock.patch.object(documents, 'write'))
    self.process = toy.Process()
    self.made = self.loop()

  def loop(self):
    made = toy.loop(self.root, self.process)
    self.addCleanup(made.close)
    return made

  def files(self) -> dict[str, bytes]:
    return {
        str(path.relative_to(self.root)): path.read_bytes()
        for path in self.root.rglob('*')
        if path.is_file()
    }


class ThreadsTest(_Case):

  def test_second_thread_is_refused_while_a_round_runs(self):
    loop, refused = self.made, []

    def on_round(_):
      before = self.files()
      for intrude in (
          lambda: loop.next(_B),
          loop.statement,
          loop.write_model,
          loop.close,
          # A loop for the same directory closes the one before.
          self.loop,
      ):
        with self.assertRaisesRegex(
            _checks.PrivacyRefusedError, 'a round of this loop is running'
        ):
          threads.Call(loop, intrude).result()
        self.assertEqual(self.files(), before)
        refused.append(intrude)

    self.process.next.on_round = on_round
    loop.next(_A)
    self.assertLen(refused, 5)
    # The refused call has not taken the cohort out of the ledger.
    self.assertNoCommonElements(_A, loop.eligible())
    self.process.next.on_round = lambda _: None
    loop.next(_B)
    self.assertEqual(loop.rounds_done, 2)

  def test_end_of_a_with_block_waits_for_a_round(self):
    loop, calls = self.made, []

    def leave():
      with loop:
        raise KeyError('of the block')

    self.process.next.on_round = lambda _: calls.append(
        threads.Call(loop, leave)
    )
    loop.next(_A)
    with self.assertRaisesRegex(KeyError, 'of the block'):
      calls[0].result()
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'it was closed'):
      loop.next(_B)
    self.assertEqual(self.loop().rounds_done, 1)

  def test_no_thread_sees_a_round_that_is_not_saved(self):
    loop, seen = self.made, []
    save = checkpoints.CheckpointStore.save
    saved = [0]

    def look(*_):
      try:
        seen.append((int(loop.state.round_index), saved[0]))
      except _checks.PrivacyRefusedError:
        seen.append(None)

    def set_and_look(run, name, value):
      object.__setattr__(run, name, value)
      look()

    def save_and_look(store, checkpoint):
      look()
      save(store, checkpoint)
      saved[0] = checkpoint.round_index
      look()

    with mock.patch.object(
        run_lib.Run, '__setattr__', set_and_look
    ), mock.patch.object(checkpoints.CheckpointStore, 'save', save_and_look):
      loop.next(_A)
      loop.next(_B)
    shown = [each for each in seen if each is not None]
    self.assertContainsSubset({(1, 1), (2, 2)}, shown)
    self.assertIn(None, seen)
    for round_index, rounds_saved in shown:
      self.assertLessEqual(round_index, rounds_saved)

  def test_state_was_saved_even_if_a_round_ends_while_it_is_read(self):
    loop = self.made
    loop.next(_A)
    run = loop._run

    class Meanwhile:

      def __getattr__(self, name):
        value = getattr(run, name)
        if name.startswith('rounds'):
          run.state = 'of a round that is not saved'
        return value

    with mock.patch.object(loop, '_run', Meanwhile()):
      self.assertEqual(int(loop.state.round_index), 1)


class InterruptedTest(_Case):
  """What an interrupt leaves, at each step behind the work of the clients."""

  @parameterized.parameters(
      (history.History, 'append', 1),
      (run_lib.Run, 'run_round', 1),
      (checkpoints.CheckpointStore, 'save', 2),
      (write_ahead.WriteAheadRecord, 'release', 2),
      (releases.Releases, 'release', 2),
      (run_lib.Run, 'write_statement', 2),
  )
  def test_loop_is_closed_and_the_next_one_resumes(self, owner, name, saved):
    loop = self.made
    loop.next(_A)
    stand_in = kills.at_call(getattr(owner, name), 1, is_after=True)
    with mock.patch.object(owner, name, stand_in):
      with self.assertRaises(kills.Killed):
        loop.next(_B)
    for call in (loop.next, loop.eligible, loop.statement):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'last round was interrupted'
      ):
        call()
    again = self.loop()
    self.assertEqual(again.rounds_done, saved)
    while again.rounds_done < 3:
      again.next(again.eligible()[:3])
    lines = (self.root / 'release' / 'metrics.csv').read_text().splitlines()
    rounds = [line.partition(',')[0] for line in lines[1:]]
    self.assertEqual(rounds, ['1', '2', '3'])
    self.assertEqual(again.statement().points['mechanism']['rounds_done'], 3)


if __name__ == '__main__':
  absltest.main()
