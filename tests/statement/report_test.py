# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The report says what the statement says, and loads nothing."""

import dataclasses
import functools
import html
import re
import subprocess
import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tests.statement import occasions
from tff_dp.accounting import rounding
from tff_dp.statement import charts
from tff_dp.statement import outline
from tff_dp.statement import plain_words
from tff_dp.statement import report

# Plans whose epsilon is computed in no time, of most systems.
_PLANS = (
    'honaker', 'non_private', 'windows', 'gaussian_steps', 'silos', 'secure_sums'
)
_COURSE = report.Course(
    metrics={
        'test_accuracy': charts.Series([1, 2], [0.5, 0.75]),
        'averaged_test_accuracy': charts.Series([1, 2], [0.5, 0.75]),
        'client_work/private/mean_loss': charts.Series([2], [1.25]),
    },
    epsilons=charts.Series([1, 2, 3], [0.5, 0.75, 1.0]),
    signal_to_noise=charts.Series([1, 2, 3], [0.5, 0.0, 1.0]),
    epsilon_budget=2.0,
    last_started='2026-11-26',
)


@functools.cache
def _statement(name: str, occasion: str = 'stopped', declared=None):
  plan = occasions.PLANS[name]()
  about = occasions.occasions(plan)[occasion]
  if declared is not None:
    about = dataclasses.replace(about, declarations=declared)
  return plan.statement_about(about)


@functools.cache
def _page(name: str, occasion: str = 'stopped', has_course: bool = True) -> str:
  return report.page(_statement(name, occasion), _COURSE if has_course else None)


def _text(page: str) -> str:
  """Returns the pieces of text of a page, a line each, without its drawings."""
  page = re.sub(r'<(svg|style).*?</\1>', '', page, flags=re.DOTALL)
  pieces = html.unescape(re.sub(r'<[^>]*>', '\n', page)).splitlines()
  return '\n'.join(filter(None, map(str.strip, pieces)))


class ReportTest(parameterized.TestCase):

  @parameterized.product(
      name=_PLANS, occasion=('planned', 'stopped')
  )
  def test_says_all_that_the_statement_says(self, name, occasion):
    statement = _statement(name, occasion)
    text = _text(_page(name, occasion, False))
    content = statement.to_json()
    for point in outline.points(content):
      self.assertIn(f'{point.number}. {point.title}', text)
      for item in point.items:
        self.assertIn(item.label, text)
        lines = item.value
        if isinstance(lines, outline.Table):
          lines = [cell for row in (lines.heads, *lines.rows) for cell in row]
        for line in [lines] if isinstance(lines, str) else lines:
          self.assertIn(line, text)
    for sentence in (
        *content['warnings'],
        *content['assumptions'],
        *plain_words.sentences(content),
    ):
      self.assertIn(sentence, text)
    # The numbers above the points are of the statement, too.
    summary = text.partition('The statement in twelve points')[0]
    if plain_words.is_void(content):
      self.assertNotIn('epsilon by delta', summary.lower())
      self.assertIn('No protection', summary)
      self.assertIn('protects\nnobody', summary)
      for claim in ('protects from', 'protects\neach', 'The guarantee counts'):
        self.assertNotIn(claim, summary)
    else:
      epsilon = rounding.rounded_up(statement.epsilon)
      self.assertIn(epsilon, summary)
      level = plain_words.name_of(
          content['points']['guarantee']['right_guesses']
      ).capitalize()
      condition = ', if a process follows this plan'
      if plain_words.is_verified(content):
        condition = ''
      self.assertIn(f'{level} protection{condition}', summary.splitlines())

  @parameterized.parameters('honaker', 'non_private', 'silos')
  def test_loads_and_runs_nothing(self, name):
    page = _page(name)
    self.assertStartsWith(page, '<!doctype html>')
    self.assertIn("default-src 'none'", page)
    for reference in re.findall(r'(?:src|href|action)="([^"]*)"', page):
      self.assertStartsWith(reference, '#')
    self.assertNotIn('<script', page)
    self.assertNotIn('@import', page)
    addresses = set(re.findall(r'https?://[^"\s]*', page))
    self.assertContainsSubset(
        addresses,
        {'http://www.w3.org/2000/svg', 'http://www.w3.org/1999/xlink'},
    )
    ids = re.findall(r' id="([^"]*)"', page)
    self.assertLen(set(ids), len(ids))

  def test_what_somebody_declares_is_text(self):
    declared = dataclasses.replace(
        occasions.DECLARED,
        model_name='<script>alert(1)</script>',
        audit='" onload="alert(2)',
    )
    page = report.page(_statement('honaker', declared=declared))
    self.assertNotIn('<script>', page)
    self.assertNotIn('" onload', page)
    self.assertIn('Privacy report: <script>alert(1)</script>', _text(page))

  def test_names_and_day(self):
    text = _text(_page('honaker'))
    for word in (
        'Privacy report: a classifier of letters',
        'letters of 2025',
        'the head of research',
        'started or last resumed on 2026-11-26',
        '5 of 8 planned are done',
    ):
      self.assertIn(word, text)
    planned = _text(_page('honaker', 'planned', False))
    self.assertIn('name of the model\nnot declared', planned)
    self.assertIn('none of 8 planned are done', planned)
    self.assertNotIn('The course of the run', planned)

  def test_attendance_is_not_shown_where_it_is_secret(self):
    plan = occasions.PLANS['windows']()
    self.assertTrue(plan.protocol.occupancy_is_secret)
    text = _text(_page('windows'))
    self.assertIn('Participation, as planned', text)
    self.assertIn('is secret, and is not recorded', text)
    # Where it is public, the statement tells, and the report with it.
    honaker = _text(_page('honaker'))
    self.assertIn('31 clients in 5 rounds', honaker)

  def test_a_row_for_each_silo_at_its_own_delta(self):
    statement = _statement('silos')
    summary = _text(_page('silos')).partition('The course')[0]
    rows = statement.points['guarantee']['groups']
    self.assertLen({row['delta'] for row in rows}, 2)
    for row in rows:
      epsilon = rounding.rounded_up(row['epsilon'])
      start = summary.index(f'\n{row["name"]}\n')
      self.assertIn(epsilon, ' '.join(summary[start:].split()[:8]))
      self.assertIn(f'{row["delta"]:g}', summary[start:].split()[:8])
    # No headline at the delta of no silo.
    self.assertNotIn(f'{statement.delta:g})-differential', summary)

  def test_charts_and_last_values(self):
    page = _page('honaker')
    self.assertEqual(page.count('<svg '), 5)
    text = _text(page)
    # Numbers at the axes are no TeX.
    self.assertNotIn('mathdefault', page)
    for title in (
        'Epsilon by delta',
        'Accuracy over rounds',
        'Mean loss over rounds',
        'Budget spent over rounds',
        'Signal against noise',
    ):
      self.assertIn(title, text)
    self.assertIn('mean loss\n1.25\n2', text)
    quiet = dataclasses.replace(_COURSE, signal_to_noise=None)
    self.assertNotIn(
        'Signal against', _text(report.page(_statement('honaker'), quiet))
    )

  def test_no_epsilon_of_a_run_whose_key_is_known(self):
    # Its released metrics have an epsilon, as if the key were secret.
    self.assertNotEmpty(_COURSE.epsilons.values)
    text = _text(_page('honaker', 'known'))
    self.assertIn('Accuracy over rounds', text)
    for title in ('Epsilon by', 'Budget spent', 'Signal against'):
      self.assertNotIn(title, text)

  @parameterized.parameters('honaker', 'silos')
  def test_charts_of_epsilon_are_at_the_delta_of_the_statement(self, name):
    statement = _statement(name)
    with mock.patch.object(charts, 'draw_curve') as curve, mock.patch.object(
        charts, 'draw_spent'
    ) as spent:
      report.page(statement, _COURSE)
    content = statement.to_json()
    # No point of the curve is at the delta of no silo.
    marked = 0.0 if name == 'silos' else statement.delta
    self.assertEqual(curve.call_args.kwargs, {'delta': marked})
    self.assertEqual(
        curve.call_args.args[1], charts.curve_points(content)
    )
    self.assertEqual(
        spent.call_args.kwargs,
        {
            'epsilons': _COURSE.epsilons,
            'delta': statement.delta,
            'budget': 2.0,
            'whose': report.whose(content),
        },
    )

  @parameterized.parameters('test_x" onload="alert(1)', 'a$^$b', 'p$\\foo$')
  def test_name_of_a_metric_is_text(self, name):
    course = dataclasses.replace(
        _COURSE, metrics={name: charts.Series([1, 2], [0.5, 0.75])}
    )
    page = report.page(_statement('honaker'), course)
    self.assertNotRegex(page, '<[^>]*"\\s*onload')
    words = name.replace('_', ' ').lower()
    self.assertIn(words, html.unescape(page).lower())

  @parameterized.parameters('windows', 'honaker')
  def test_says_whether_the_guarantee_counts_on_chance(self, name):
    said, text = _statement(name), _text(_page(name))
    amplification = said.points['amplification']
    if amplification['claimed'] == 'none':
      self.assertIn('counts the worst case', text)
    else:
      self.assertNotIn('counts the worst case', text)
      without = rounding.from_json_number(amplification['epsilon_without'])
      self.assertGreater(without, said.epsilon)
      self.assertIn(
          f'If not, epsilon is {rounding.rounded_up(without)}.', text
      )

  def test_columns_keep_what_tells_them_apart(self):
    columns = ('test/accuracy', 'train/accuracy', 'averaged_test/accuracy')
    metrics = {name: charts.Series([1], [0.5]) for name in columns}
    page = report.page(
        _statement('honaker'), dataclasses.replace(_COURSE, metrics=metrics)
    )
    for name in columns:
      self.assertIn(f'<td>{name.replace("_", " ")}</td>', page)

  def test_no_more_charts_than_a_reader_looks_at(self):
    metrics = {f'm{i}': charts.Series([1], [float(i)]) for i in range(12)}
    page = report.page(
        _statement('honaker'), dataclasses.replace(_COURSE, metrics=metrics)
    )
    self.assertEqual(page.count('<svg '), 1 + 8)
    self.assertIn('Budget spent', page)
    self.assertIn('<td>m11</td>', page)

  def test_notebooks_show_a_fragment(self):
    statement = _statement('honaker')
    shown = statement._repr_html_()
    self.assertStartsWith(shown.strip(), '<article')
    self.assertNotIn('<body', shown)
    self.assertIn('<table>', shown)
    self.assertNotIn('|---|', shown)
    self.assertIn(shown.split('<h1>')[1][:500], statement.to_html())

  def test_missing_jinja_is_named(self):
    report._template.cache_clear()
    with mock.patch.dict(sys.modules, {'jinja2': None}):
      with self.assertRaisesRegex(ImportError, 'jinja2, .* --install'):
        report.page(_statement('honaker'))

  def test_statement_alone_loads_neither_jinja_nor_matplotlib(self):
    program = (
        'import sys\n'
        'from tff_dp.statement import builder, statement\n'
        "print([m for m in sys.modules if m in ('jinja2', 'matplotlib')])\n"
    )
    done = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True
    )
    self.assertEqual(done.stdout, '[]\n', done.stderr)


class ChartsTest(parameterized.TestCase):

  def test_steps_never_go_below_what_holds(self):
    points = [(1e-8, 3.0), (1e-6, 2.00001), (1e-5, 1.0)]
    axes = mock.MagicMock()
    axes.xaxis.get_data_interval.return_value = (1e-8, 1e-5)
    charts.draw_curve(axes, points, delta=1e-6)
    (deltas, epsilons), options = axes.plot.call_args_list[0]
    self.assertEqual(list(zip(deltas, epsilons)), points)
    # Between two deltas the line is at the epsilon of the smaller one.
    self.assertEqual(options['drawstyle'], 'steps-post')
    marked, options = axes.plot.call_args_list[1]
    self.assertEqual(marked, ([1e-6], [2.00001]))
    self.assertEqual(options['label'], 'epsilon 2.001 at delta 1e-06')

  @parameterized.parameters('honaker', 'silos', 'windows')
  def test_points_are_those_of_the_statement(self, name):
    content = _statement(name).to_json()
    points = charts.curve_points(content)
    rows = content['points']['guarantee']['curve']
    # Of the rounds so far, wherever the statement has them.
    column = 'epsilon' if 'epsilon' in rows[0] else 'epsilon_planned'
    self.assertCountEqual(
        points, [(row['delta'], row[column]) for row in rows]
    )
    deltas, epsilons = zip(*points)
    self.assertEqual(sorted(deltas), list(deltas))
    self.assertEqual(sorted(epsilons, reverse=True), list(epsilons))


if __name__ == '__main__':
  absltest.main()
