# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the lines that sweeps print while they run."""

import contextlib
import io
from unittest import mock

from absl.testing import absltest

from tasks.common import flags
from tasks.common import sweep_progress
from tasks.draw_and_discard import spam_screen


class ReporterTest(absltest.TestCase):

  def _shown(self, works, **options) -> list[str]:
    """Returns what is said of runs that take a second per unit of work."""
    now = [0.0]
    err = io.StringIO()
    with (
        mock.patch.object(
            sweep_progress.time, 'monotonic', lambda: now[0]
        ),
        contextlib.redirect_stderr(err),
    ):
      reporter = sweep_progress.Reporter(len(works), **options)
      for index, work in enumerate(works):
        now[0] += work
        reporter.show(f'r{index}', was_done=False, work=work)
    return err.getvalue().splitlines()

  def test_runs_of_different_length(self):
    self.assertEqual(
        self._shown((10, 10, 180), is_quiet=False, work=200),
        [
            'run 1 of 3: r0, about 3 min left',
            'run 2 of 3: r1, about 3 min left',
            'run 3 of 3: r2, about 0 s left',
        ],
    )

  def test_equal_runs(self):
    self.assertEqual(
        self._shown((1, 1), is_quiet=False),
        ['run 1 of 2: r0, about 1 s left', 'run 2 of 2: r1, about 0 s left'],
    )

  def test_quiet(self):
    self.assertEmpty(self._shown((1, 1), is_quiet=True))

  def test_what_was_done_before_has_no_pace(self):
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
      reporter = sweep_progress.Reporter(2, is_quiet=False)
      reporter.show('it', was_done=True, name='all')
    self.assertEqual(err.getvalue(), 'all, run 1 of 2: it (done before)\n')

  def test_screens_of_spam_say_what_they_are_at(self):
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
      spam_screen.run(
          spam_screen.Settings(num_params=(3, 5), samples=200),
          progress='plain',
      )
    lines = err.getvalue().splitlines()
    self.assertLen(lines, 8)
    self.assertStartsWith(lines[0], 'run 1 of 8: 3 weights, calibration of any')
    self.assertRegex(lines[-1], r'^run 8 of 8: 5 weights, trial, about 0 s left$')


class CountedTest(absltest.TestCase):

  def test_plural(self):
    self.assertEqual(flags.counted(1, 'seed'), '1 seed')
    self.assertEqual(flags.counted(0, 'seed'), '0 seeds')
    self.assertEqual(flags.counted(3, 'seed'), '3 seeds')


if __name__ == '__main__':
  absltest.main()
