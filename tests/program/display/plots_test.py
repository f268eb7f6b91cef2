# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the picture of a run."""

import pathlib
import sys
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tests.statement import occasions
from tff_dp import _axes
from tff_dp.program.display import plots
from tff_dp.statement import charts
from tff_dp.statement import report

_ROUNDS = charts.Series([1, 2], [0.5, 1.0])


def _statement(name: str):
  return occasions.PLANS[name]().statement(delta=occasions.DELTA)


class WriteCurvesTest(parameterized.TestCase):

  @parameterized.parameters(
      ('honaker', {}, _ROUNDS, 2.0, ['epsilon']),
      ('honaker', {'test_accuracy': _ROUNDS}, _ROUNDS, 2.0, ['accuracy', 'epsilon']),
      ('honaker', {'test_loss': _ROUNDS}, _ROUNDS, None, ['test loss', 'epsilon']),
      (
          'non_private',
          {'test_accuracy': _ROUNDS, 'averaged_test_accuracy': _ROUNDS},
          charts.Series([], []),
          None,
          ['accuracy'],
      ),
      ('non_private', {}, charts.Series([], []), None, None),
  )
  def test_has_no_empty_plot(self, name, metrics, epsilons, budget, labels):
    folder = self.enterContext(tempfile.TemporaryDirectory())
    path = pathlib.Path(folder) / 'curves.png'
    loaded = set(sys.modules)
    course = report.Course(
        metrics=metrics, epsilons=epsilons, epsilon_budget=budget
    )
    with mock.patch.object(_axes, 'png', wraps=_axes.png) as png:
      plots.write_curves(path, _statement(name), course)
    self.assertNotIn('matplotlib.pyplot', set(sys.modules) - loaded)
    if labels is None:
      self.assertFalse(path.exists())
      return
    self.assertStartsWith(path.read_bytes(), b'\x89PNG')
    ((figure,), _) = png.call_args
    self.assertLen(figure.axes, len(labels))
    for axes, label in zip(figure.axes, labels):
      self.assertStartsWith(axes.get_ylabel(), label)
      self.assertNotEmpty(axes.lines)
    self.assertEqual(figure.axes[-1].get_xlabel(), 'round')

  def test_no_epsilon_of_a_run_whose_key_is_known(self):
    plan = occasions.PLANS['honaker']()
    known = plan.statement_about(occasions.occasions(plan)['known'])
    course = report.Course(metrics={}, epsilons=_ROUNDS)
    with mock.patch.object(_axes, 'png') as png:
      plots.write_curves('curves.png', known, course)
    png.assert_not_called()

  @parameterized.parameters(
      ('honaker', 'per client, zero-out'), ('silos', 'of the group that pays most')
  )
  def test_says_whose_epsilon_it_is(self, name, whose):
    course = report.Course(metrics={}, epsilons=_ROUNDS)
    with mock.patch.object(plots.run_directory, 'write_atomically'):
      with mock.patch.object(_axes, 'png') as png:
        plots.write_curves('curves.png', _statement(name), course)
    ((figure,), _) = png.call_args
    self.assertIn(whose, figure.axes[0].get_ylabel())


if __name__ == '__main__':
  absltest.main()
