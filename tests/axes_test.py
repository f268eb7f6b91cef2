# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of axes that count."""

from absl.testing import absltest
from absl.testing import parameterized
from matplotlib import figure as figure_lib
from matplotlib.backends import backend_agg

from tff_dp import _axes


class CountTest(parameterized.TestCase):

  @parameterized.product(
      last=(1, 2, 5, 12, 30, 50, 51, 100, 250, 6800, 1_200_000, 10_000_000),
      width=(2.5, 6.4),
  )
  def test_ticks_are_integers_apart_from_each_other(self, last, width):
    figure = figure_lib.Figure(figsize=(width, 3.0), layout='constrained')
    axes = figure.subplots()
    axes.plot([1, last], [0, 1])
    _axes.count(axes.xaxis)
    renderer = backend_agg.FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    low, high = axes.get_xlim()
    boxes = []
    for place, label in zip(axes.get_xticks(), axes.get_xticklabels()):
      if low <= place <= high:
        self.assertEqual(place, round(place))
        boxes.append(label.get_window_extent(renderer))
    self.assertNotEmpty(boxes)
    for left, right in zip(boxes, boxes[1:]):
      self.assertLess(left.x1, right.x0)

  @parameterized.parameters((250, '200'), (6800, '6k'), (10_000_000, '10M'))
  def test_labels_are_short(self, last, label):
    axes = figure_lib.Figure().subplots()
    axes.plot([1, last], [0, 1])
    _axes.count(axes.xaxis)
    axes.figure.canvas.draw()
    self.assertIn(label, [text.get_text() for text in axes.get_xticklabels()])


if __name__ == '__main__':
  absltest.main()
