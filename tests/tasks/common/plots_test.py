# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the plots by epsilon: what is drawn, and where."""

from absl.testing import absltest
import numpy as np

from tasks.common import plots

_LINES = {
    'much noise': {1.0: (0.5, 0.1), 4.0: (0.7, 0.1)},
    'little noise': {4.0: (0.8, 0.1), 1.0: (0.6, 0.1)},
}


class ByEpsilonTest(absltest.TestCase):

  def _draw(self, lines, without_privacy):
    return plots.by_epsilon(
        lines,
        without_privacy=without_privacy,
        title='Accuracy',
        epsilon_label='epsilon',
        value_label='accuracy',
    )

  def test_no_bar_hides_another(self):
    _, axes = self._draw(_LINES, {})
    places = [np.array(bars[0].get_xdata(), float) for bars in axes.containers]
    for drawn in places:  # In order of epsilon, and near the true one.
      np.testing.assert_allclose(drawn, [1.0, 4.0], rtol=0.05)
    self.assertTrue(np.all(places[0] < places[1]))
    np.testing.assert_array_equal(
        axes.containers[1][0].get_ydata(), [0.6, 0.8]
    )

  def test_ticks_are_the_epsilons(self):
    _, axes = self._draw(_LINES, {'no privacy': 0.9})
    ticks = [text.get_text() for text in axes.get_xticklabels()]
    self.assertEqual(ticks, ['1', '4'])

  def test_only_runs_without_privacy(self):
    _, axes = self._draw({}, {'no privacy': 0.9})
    self.assertEqual(axes.lines[0].get_label(), 'no privacy')
    self.assertEqual(list(axes.lines[0].get_ydata()), [0.9, 0.9])


if __name__ == '__main__':
  absltest.main()
