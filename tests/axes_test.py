# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of axes, lines and files of plots."""

import re

from absl.testing import absltest
from absl.testing import parameterized
import matplotlib
from matplotlib import figure as figure_lib
from matplotlib.backends import backend_agg

from tff_dp import _axes


def _boxes(figure, axes):
  """Returns the boxes of the labels that the horizontal axis shows."""
  renderer = backend_agg.FigureCanvasAgg(figure).get_renderer()
  figure.draw(renderer)
  low, high = axes.get_xlim()
  return [
      label.get_window_extent(renderer)
      for place, label in zip(axes.get_xticks(), axes.get_xticklabels())
      if low <= place <= high
  ]


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
    boxes = _boxes(figure, axes)
    self.assertNotEmpty(boxes)
    low, high = axes.get_xlim()
    for place in axes.get_xticks():
      if low <= place <= high:
        self.assertEqual(place, round(place))
    for left, right in zip(boxes, boxes[1:]):
      self.assertLess(left.x1, right.x0)

  @parameterized.parameters((250, '200'), (6800, '6k'), (10_000_000, '10M'))
  def test_labels_are_short(self, last, label):
    axes = figure_lib.Figure().subplots()
    axes.plot([1, last], [0, 1])
    _axes.count(axes.xaxis)
    axes.figure.canvas.draw()
    self.assertIn(label, [text.get_text() for text in axes.get_xticklabels()])


class LogTest(parameterized.TestCase):

  @parameterized.parameters(
      (1e-8, 1e-5), (1e-7, 1e-5), (2e-7, 3e-6), (1e-12, 1e-3), (0.5, 20.0)
  )
  def test_labels_are_apart_from_each_other(self, low, high):
    figure = figure_lib.Figure(figsize=(3.6, 2.4), layout='constrained')
    axes = figure.subplots()
    axes.plot([low, high], [0, 1])
    axes.set_xscale('log')
    _axes.log(axes.xaxis)
    boxes = _boxes(figure, axes)
    self.assertGreater(len(boxes), 2)
    for left, right in zip(boxes, boxes[1:]):
      self.assertLess(left.x1, right.x0)

  @parameterized.parameters((1.0, ['1']), (20.0, ['20']), (0.05, ['0.05']))
  def test_a_single_value_has_its_own_tick(self, value, labels):
    axes = figure_lib.Figure().subplots()
    axes.plot([value], [1.0])
    axes.set_xscale('log')
    _axes.log(axes.xaxis)
    axes.figure.canvas.draw()
    low, high = axes.get_xlim()
    shown = [
        label.get_text()
        for place, label in zip(axes.get_xticks(), axes.get_xticklabels())
        if low <= place <= high
    ]
    self.assertEqual(shown, labels)


class StyleTest(absltest.TestCase):

  def test_lines_on_each_other_are_told_apart(self):
    styles = [_axes.style(index) for index in range(8)]
    widths = [style['linewidth'] for style in styles[:4]]
    self.assertEqual(widths, sorted(set(widths), reverse=True))
    self.assertLen({style['color'] for style in styles}, 8)


class SvgTest(absltest.TestCase):

  def _svg(self, name):
    def draw():
      figure, (axes,) = _axes.figure(4.0, 3.0)
      for index in range(4):
        axes.plot([1, 2], [1, 2], label='a & b', **_axes.style(index))
      axes.legend()
      return figure

    return _axes.svg(draw, name=name, description='a line')

  def test_takes_the_colours_of_the_page(self):
    found = self._svg('one')
    self.assertStartsWith(found, '<svg ')
    self.assertIn('aria-label="a line"', found)
    for number in range(1, 5):
      self.assertIn(f'var(--line-{number})', found)
    self.assertIn('currentColor', found)
    colours = set(re.findall(r'#[0-9a-f]{6}', found))
    self.assertContainsSubset(colours, {'#b0b0b0', '#ffffff', '#cccccc'})
    self.assertNotIn('<?xml', found)
    self.assertNotIn('metadata', found)

  def test_is_the_same_each_time_and_ids_are_its_own(self):
    one, two = self._svg('one'), self._svg('two')
    self.assertEqual(one, self._svg('one'))
    ids = [set(re.findall(r' id="([^"]*)"', each)) for each in (one, two)]
    self.assertEmpty(ids[0] & ids[1])
    referred = re.findall(r'(?:href="#|url\(#)([^")]*)', one)
    self.assertNotEmpty(referred)
    self.assertContainsSubset(referred, ids[0])

  def test_leaves_the_settings_of_matplotlib_alone(self):
    before = dict(matplotlib.rcParams)
    self._svg('one')
    self.assertEqual(dict(matplotlib.rcParams), before)


if __name__ == '__main__':
  absltest.main()
