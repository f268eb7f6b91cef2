# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the progress display."""

import contextlib
import io
import os
import pty
import sys
import types
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tff_dp.program.display import progress as progress_lib


class _Terminal(io.StringIO):

  def isatty(self) -> bool:
    return True


class ProgressTest(parameterized.TestCase):

  def _run(
      self,
      mode,
      stream,
      *,
      num_rounds=200,
      epsilon=0.01,
      budget=2.0,
      num_workers=None,
  ):
    """Shows rounds of one second each."""
    now = [0.0]
    display = progress_lib.Progress(
        mode,
        delta=1e-5,
        epsilon_budget=budget,
        rounds_done=0,
        rounds_planned=num_rounds,
        stream=stream,
        clock=lambda: now[0],
    )
    for round_index in range(1, num_rounds + 1):
      now[0] += 1
      display.round_done(
          round_index,
          seconds=1.0,
          epsilon=round_index * epsilon,
          num_workers=num_workers,
      )
      display.released(
          {'aggregator/snr': 0.25, 'test_accuracy': 0.5, 'other': 1},
          ['test_accuracy'],
      )
    display.close()
    display.close()
    return stream.getvalue()

  def test_workers_of_a_cluster(self):
    text = self._run('plain', io.StringIO(), num_workers=3)
    self.assertEqual(text.count(' workers=3\n'), 5)

  def test_plain_lines_come_at_the_ends_and_once_per_minute(self):
    lines = self._run('auto', io.StringIO()).splitlines()
    self.assertEqual(
        [line.split()[0] for line in lines],
        [f'round={t}/200' for t in (1, 61, 121, 181, 200)],
    )
    self.assertEqual(
        lines[1],
        'round=61/200 epsilon=0.6100/2 delta=1e-05 snr=0.25 test_accuracy=0.5'
        ' seconds_per_round=1 eta_seconds=139',
    )

  def test_time_left_is_not_that_of_the_first_round(self):
    stream, now = io.StringIO(), [0.0]
    display = self._plain(stream, rounds_planned=101, clock=lambda: now[0])
    for round_index in range(1, 102):
      # A slow round, and time between the rounds.
      now[0] += 50.0 if round_index == 1 else 2.0
      display.round_done(round_index, seconds=1.0, epsilon=0.1)
    self.assertEqual(
        [line.split()[-2:] for line in stream.getvalue().splitlines()],
        [
            ['seconds_per_round=50', 'eta_seconds_at_most=5000'],
            ['seconds_per_round=2', 'eta_seconds=140'],
            ['seconds_per_round=2', 'eta_seconds=80'],
            ['seconds_per_round=2', 'eta_seconds=20'],
            ['seconds_per_round=2', 'eta_seconds=0'],
        ],
    )

  def test_bar_on_a_terminal(self):
    text = self._run('auto', _Terminal(), num_rounds=5, budget=None)
    self.assertIn(
        '| 5/5 [00:00<00:00, epsilon 0.05000, test_accuracy 0.5, snr 0.25]', text
    )
    self.assertIn('\r', text)

  @parameterized.product(columns=(60, 80, 120), num_rounds=(250, 6800))
  def test_bar_says_first_what_matters_most(self, columns, num_rounds):
    now = [0.0]
    with mock.patch.object(progress_lib, '_width', lambda stream: columns):
      display = progress_lib.Progress(
          'bar',
          delta=1e-5,
          epsilon_budget=4.0,
          rounds_done=num_rounds - 2,
          rounds_planned=num_rounds,
          stream=_Terminal(),
          clock=lambda: now[0],
      )
      display.released(
          {
              'aggregator/snr': 0.0,
              'test_accuracy': 0.90513,
              'averaged_test_accuracy': 0.91,
          },
          ['test_accuracy', 'averaged_test_accuracy'],
      )
      display.round_done(num_rounds - 1, seconds=0.25, epsilon=3.9971)
    bar = display._bar
    line = bar.format_meter(**bar.format_dict | {'ncols': columns,
                                                 'elapsed': 5000.0})
    display.close()
    # Not cut off at the end, and a bar in front of it.
    self.assertEndsWith(line.replace('\x1b[0m', ''), ']')
    found = bar.postfix.split(', ')
    said = ['epsilon 3.998/4', 'test_accuracy 0.9051',
            'averaged_test_accuracy 0.91', 'snr 0', '0.25 s/round']
    kept = {60: said[:1], 80: said[:2], 120: said[:4]}[columns]
    self.assertEqual(found[: len(kept)], kept)
    self.assertContainsSubset(found, said)

  def _plain(self, stream, **settings) -> progress_lib.Progress:
    return progress_lib.Progress(
        'plain',
        delta=1e-5,
        epsilon_budget=None,
        rounds_done=0,
        stream=stream,
        **{'rounds_planned': 1, **settings},
    )

  def test_plain_line_of_a_round_below_its_noise(self):
    stream = io.StringIO()
    display = self._plain(stream)
    display.released({'aggregator/snr': 0.0}, [])
    display.round_done(1, seconds=1.0, epsilon=0.5)
    self.assertIn(' snr=0 ', stream.getvalue())
    self.assertEqual(stream.getvalue().count('cannot be told from noise'), 1)

  @parameterized.parameters((18, 1.0), (4810, 0.247))
  def test_ratio_that_noise_alone_reaches_is_explained(self, num_params, limit):
    # 3 standard deviations of the estimate, here measured without a signal.
    squares = np.random.default_rng(7).chisquare(num_params, 100_000)
    ratios = np.sqrt(np.maximum(squares / num_params - 1, 0))
    self.assertBetween(np.mean(ratios > limit), 1e-4, 1e-2)
    for ratio, is_explained in ((0.99 * limit, True), (1.01 * limit, False)):
      stream = io.StringIO()
      display = self._plain(stream, num_params=num_params)
      display.released({'aggregator/snr': ratio}, [])
      display.close()
      self.assertEqual(
          f'Noise alone gives 0 to about {limit:.2g}:' in stream.getvalue(),
          is_explained,
      )

  def test_bar_in_a_notebook_is_one_line_of_the_output(self):
    shown = []

    class Handle:

      def update(self, data, raw):
        shown.append(data['text/plain'])

    ipython = types.ModuleType('IPython')
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel='any')
    ipython.display = types.ModuleType('IPython.display')
    ipython.display.display = lambda data, raw, display_id: Handle()
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(sys.modules, {'IPython': ipython}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
      display = progress_lib.Progress(
          'auto',
          delta=1e-5,
          epsilon_budget=None,
          rounds_done=0,
          rounds_planned=2,
      )
      display.say('hello')
      for round_index in (1, 2):
        display.round_done(round_index, seconds=1.0, epsilon=0.5)
      display.close()
    self.assertEqual((out.getvalue(), err.getvalue()), ('hello\n', ''))
    self.assertStartsWith(shown[0], '0%|')
    self.assertRegex(shown[-1], r'100%\|█+\| 2/2 \[.*epsilon 0.5000')

  def test_shell_without_a_kernel_is_no_notebook(self):
    ipython = types.ModuleType('IPython')
    for shell in (None, types.SimpleNamespace()):
      ipython.get_ipython = lambda: shell  # pylint: disable=cell-var-from-loop
      with mock.patch.dict(sys.modules, {'IPython': ipython}):
        self.assertFalse(progress_lib._is_notebook())

  def test_bar_on_a_terminal_that_does_not_know_its_size(self):
    leader, follower = pty.openpty()
    with os.fdopen(follower, 'w') as stream:
      self.assertEqual(os.get_terminal_size(follower).columns, 0)
      display = progress_lib.Progress(
          'auto',
          delta=1e-5,
          epsilon_budget=None,
          rounds_done=4,
          rounds_planned=5,
          stream=stream,
      )
      display.round_done(5, seconds=1.0, epsilon=0.5)
      display.close()
    # What was written arrives in pieces; an error says that it was the last.
    text = b''
    with contextlib.suppress(OSError):
      while piece := os.read(leader, 1 << 16):
        text += piece
    os.close(leader)
    self.assertIn('| 5/5 [', text.decode())

  def test_bar_without_colour(self):
    with mock.patch.dict(os.environ, {'NO_COLOR': '1'}):
      self.assertNotIn('\x1b[3', self._run('auto', _Terminal(), num_rounds=5))

  def test_quiet(self):
    self.assertEmpty(self._run('quiet', _Terminal(), num_rounds=5))

  def test_without_noise_it_says_so(self):
    for stream, text in (
        (io.StringIO(), 'epsilon=inf(NO_PRIVACY)'),
        (_Terminal(), 'NO PRIVACY'),
    ):
      shown = self._run('auto', stream, num_rounds=2, epsilon=float('inf'))
      self.assertIn(text, shown)
      self.assertNotIn('snr', shown)

  def test_unknown_mode(self):
    with self.assertRaisesRegex(ValueError, "progress='loud'"):
      self._run('loud', io.StringIO())


class RebuildProgressTest(absltest.TestCase):

  def _run(self, mode, stream, *, num_rounds):
    """Shows rounds of one second each."""
    now = [0.0]
    display = progress_lib.RebuildProgress(
        mode, stream=stream, clock=lambda: now[0]
    )
    for done in range(1, num_rounds + 1):
      now[0] += 1
      display.report(done, num_rounds)
    display.close()
    display.close()
    return stream.getvalue()

  def test_plain_lines_come_once_per_minute(self):
    self.assertEqual(
        self._run('auto', io.StringIO(), num_rounds=130).splitlines(),
        [
            'rebuilding_noise=3/130 eta_seconds=127',
            'rebuilding_noise=63/130 eta_seconds=67',
            'rebuilding_noise=123/130 eta_seconds=7',
        ],
    )

  def test_a_terminal_shows_one_line_that_changes(self):
    text = self._run('auto', _Terminal(), num_rounds=4)
    self.assertEqual(
        text,
        '\rrebuilding the noise: round 3/4, 1 s left '
        '\rrebuilding the noise: round 4/4, 0 s left \n',
    )

  def test_what_is_quick_or_quiet_shows_nothing(self):
    self.assertEqual(self._run('bar', io.StringIO(), num_rounds=2), '')
    self.assertEqual(self._run('plain', io.StringIO(), num_rounds=2), '')
    self.assertEqual(self._run('quiet', io.StringIO(), num_rounds=100), '')


if __name__ == '__main__':
  absltest.main()
