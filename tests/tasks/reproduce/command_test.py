# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of `python -m tasks reproduce`: rows, runs, and the page."""

import dataclasses
import itertools
import json
import math
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from tasks import __main__ as tasks_main
from tasks.reproduce import check_ins
from tasks.reproduce import command as reproduce
from tasks.reproduce import dp_ftrl
from tasks.reproduce import draw_and_discard
from tasks.reproduce import isrl
from tasks.reproduce import isrl_variants
from tasks.reproduce import mnist_training
from tasks.reproduce import page
from tasks.reproduce import rows
from tasks.reproduce import table
from tests.cli import command
from tests.tasks.silos import silo_tables
from tff_dp.accounting.curves import gaussian

# A minute each; what they are made of is tested elsewhere.
_SLOW = ('dp_ftrl_central', 'check_ins_fig_2')
_QUICK = [
    row.name
    for row in table.ROWS
    if row.kind == rows.ACCOUNTING and row.run and row.name not in _SLOW
]


def _main(*argv):
  return command.run(tasks_main.main, 'reproduce', *argv)


def _run(folder, **fields):
  return rows.Run(
      **dict(scale=1.0, seeds=1, output_dir=pathlib.Path(folder)) | fields
  )


class LineTest(parameterized.TestCase):

  @parameterized.parameters(
      ('19', 18.71, True),
      ('19', 18.4, False),
      ('0.80', 0.798, True),
      ('0.80', 0.79, False),
  )
  def test_is_same_to_the_digits_of_the_paper(self, paper, ours, expected):
    self.assertEqual(rows.Line('x', ours, paper).is_same, expected)

  @parameterized.parameters(
      ((), rows.NO_NUMBER),
      ((1.0, 1.0), rows.HOLDS),
      ((1.0, 2.0), rows.IN_PART),
      ((2.0, 2.0), rows.FAILS),
  )
  def test_verdict(self, found, verdict):
    lines = [rows.Line('x', ours, '1') for ours in found]
    self.assertEqual(rows.verdict_of(lines + [rows.Line('y', 3.0)]), verdict)

  @parameterized.parameters(
      (0.1, 0.25, True), (0.09, 1.0, False), (1.0, 0.24, False)
  )
  def test_setting_of_the_paper(self, rounds, population, expected):
    result = rows.Result(
        lines=[],
        verdict=rows.HOLDS,
        why='.',
        rounds_share=rounds,
        population_share=population,
    )
    self.assertEqual(result.is_setting_of_paper, expected)
    content = result.to_json() | dict(
        command='c', date='d', seeds=1, scale=1.0, hours=0.0
    )
    shown = page.section(table.ROWS[0], content)
    self.assertEqual("Not the paper's setting" not in shown, expected)
    self.assertIn('**Holds.**' if expected else '**Not run.**', shown)


class CommandTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir()) / 'run'

  def test_lists_every_row(self):
    code, out, err = _main()
    self.assertEqual(code, 0, err)
    lines = out.splitlines()
    self.assertEqual(
        [line.split()[0] for line in lines[1:]],
        [row.name for row in table.ROWS],
    )

  def test_runs_a_row_and_draws_it(self):
    code, out, err = _main(
        'dp_ftrl_stack_overflow', '--output-dir', self._folder
    )
    self.assertEqual(code, 0, err)
    self.assertIn('| noise multiplier 1.13, epsilon by RDP | 19 | 18.71 |', out)
    content = json.loads((self._folder / 'result.json').read_text())
    self.assertEqual(
        content['command'], 'python -m tasks reproduce dp_ftrl_stack_overflow'
    )
    self.assertGreater((self._folder / 'figure.png').stat().st_size, 5000)

  def test_keep_replaces_the_result_and_the_page(self):
    results = pathlib.Path(self.create_tempdir())
    self.enterContext(
        mock.patch.object(page, 'path_of', lambda name: results / f'{name}.json')
    )
    self.enterContext(mock.patch.object(page, 'PATH', results / 'page.md'))
    code, _, err = _main(
        'draw_and_discard_fig_1', '--scale=0.01', '--seeds=2', '--keep',
        '--output-dir', self._folder,
    )
    self.assertEqual(code, 0, err)
    text = (results / 'page.md').read_text()
    self.assertIn(
        '`python -m tasks reproduce draw_and_discard_fig_1 --scale 0.01'
        ' --seeds 2`',
        text,
    )
    self.assertIn("**Not the paper's setting**: 0.01 of the rounds", text)
    self.assertIn('](figures/draw_and_discard_fig_1.png)', text)
    figure = results / 'figures/draw_and_discard_fig_1.png'
    self.assertGreater(figure.stat().st_size, 5000)

  def test_a_row_that_cannot_be_run_says_why(self):
    code, out, _ = _main('dp_ftrl_fig_2a')
    self.assertEqual(code, 0)
    self.assertIn('not testable here', out)
    self.assertIn('--data-dir', out)

  @parameterized.parameters(
      ('none', '--seeds=1'),
      ('isrl_noise', '--scale=0'),
      ('isrl_noise', '--seeds=0'),
  )
  def test_a_bad_value_is_refused(self, *argv):
    code, out, err = _main(*argv, '--output-dir', self._folder)
    self.assertEqual((code, out), (2, ''))
    self.assertIn(argv[0] if argv[0] == 'none' else argv[1].split('=')[0], err)
    self.assertFalse(self._folder.exists())


class StoredTest(parameterized.TestCase):

  def test_the_page_is_what_the_results_give(self):
    self.assertEqual(page.PATH.read_text(encoding='utf-8'), page.text())

  def test_every_result_is_of_a_row(self):
    names = [path.stem for path in page.path_of('x').parent.glob('*.json')]
    self.assertContainsSubset(names, table.BY_NAME)
    for name in names:
      self.assertEqual(page.stored(name)['name'], name)
      self.assertIsNotNone(table.BY_NAME[name].run)

  def test_a_row_runs_or_says_what_is_missing(self):
    for row in table.ROWS:
      self.assertEqual(row.run is None, bool(row.why_not), row.name)
      if not row.is_testable:
        self.assertIsNone(page.stored(row.name))

  def test_a_row_that_was_not_run_says_what_it_takes(self):
    with mock.patch.object(page, 'stored', return_value=None):
      text = page.text()
    costs = [row.cost for row in table.ROWS if row.cost]
    self.assertNotEmpty(costs)
    for cost in costs:
      self.assertIn('estimated', cost)
      self.assertIn(f' runs it. {cost}\n', text)

  @parameterized.parameters(*_QUICK)
  def test_accounting_is_as_stored(self, name):
    stored = rows.Result.from_json(page.stored(name))
    found = reproduce.run_row(table.BY_NAME[name], _run('.'))
    self.assertEqual(found.verdict, stored.verdict)
    self.assertEqual(found.why, stored.why)
    for line, other in zip(found.lines, stored.lines, strict=True):
      self.assertEqual((line.what, line.paper), (other.what, other.paper))
      self.assertAlmostEqual(line.ours / other.ours, 1, delta=1e-4)


class CheckInsTest(parameterized.TestCase):

  @parameterized.parameters(0.25, 0.5, 0.8)
  def test_older_bound_holds_and_loses_four_times_the_exponential(self, e0):
    # sqrt(n) epsilon of many users is 2 exp(2 e0) a sqrt(2 L) in the older
    # bound and exp(3 e0 / 2) a sqrt(2 L) in the newer.
    settings = dict(local_epsilon=e0, delta=1e-6)
    older = check_ins.older_epsilon(num_reports=10**8, **settings)
    newer = check_ins.random_check_ins.theorem_5_1(
        num_reports=10**8, **settings
    )
    self.assertAlmostEqual((older / newer) ** 2 / (4 * math.exp(e0)), 1, 2)
    self.assertGreater(
        check_ins.older_epsilon(num_reports=10**4, **settings),
        check_ins.clones_epsilon(num_reports=10**4, **settings),
    )

  def test_never_above_the_report(self):
    for e0 in (0.1, 3.0, 50.0):
      found = check_ins.older_epsilon(
          local_epsilon=e0, num_reports=10, delta=1e-6
      )
      self.assertLessEqual(found, e0)

  @parameterized.parameters((0.1, rows.HOLDS), (1.0, rows.FAILS))
  def test_verdict_on_figure_2_looks_at_the_clones(self, share, verdict):
    def clones(*, is_strong=False, **settings):
      del is_strong
      return share * check_ins.random_check_ins.theorem_5_1(**settings)

    with mock.patch.object(check_ins, 'clones_epsilon', clones):
      self.assertEqual(check_ins.run_figure_2(_run('.')).verdict, verdict)

  def test_verdict_on_figure_2_looks_at_the_older_bound(self):
    theorem = check_ins.random_check_ins.theorem_5_1

    def clones(*, is_strong=False, **settings):
      del is_strong
      return 0.1 * theorem(**settings)

    with (
        mock.patch.object(check_ins, 'clones_epsilon', clones),
        mock.patch.object(check_ins, 'older_epsilon', theorem),
    ):
      self.assertEqual(check_ins.run_figure_2(_run('.')).verdict, rows.FAILS)

  @parameterized.parameters((1, 1.0, 1e-3), (4, 0.7, 0.02), (4, 2.0, 0.2))
  def test_a_lone_report_by_all_outputs(self, num_slots, e0, delta):
    found = check_ins.lone_report_epsilon(
        local_epsilon=e0, num_slots=num_slots, delta=delta
    )
    one = np.array([1, math.exp(e0)]) / (1 + math.exp(e0))
    laws = np.zeros([2, 2**num_slots])
    for number, bits in enumerate(itertools.product((0, 1), repeat=num_slots)):
      zeros = [one[1 - bit] for bit in bits]
      laws[0, number] = math.prod(zeros)
      for slot, bit in enumerate(bits):
        laws[1, number] += (
            math.prod(zeros) / zeros[slot] * one[bit] / num_slots
        )
    self.assertGreater(found, 0)
    at_epsilon = max(
        np.maximum(p - math.exp(found) * q, 0).sum()
        for p, q in (laws, laws[::-1])
    )
    self.assertAlmostEqual(at_epsilon, delta, delta=1e-7)

  @parameterized.parameters(
      (lambda found, e0: found, rows.HOLDS),
      (lambda found, e0: 0.4 * found, rows.FAILS),
      (lambda found, e0: e0, rows.FAILS),
  )
  def test_verdict_on_theorem_3_2_looks_at_a_run(self, change, verdict):
    theorem = check_ins.random_check_ins.theorem_3_2

    def changed(*, local_epsilon, **settings):
      found = theorem(local_epsilon=local_epsilon, **settings)
      return change(found, local_epsilon)

    with mock.patch.object(
        check_ins.random_check_ins, 'theorem_3_2', changed
    ):
      self.assertEqual(check_ins.run_windows(_run('.')).verdict, verdict)

  def test_users_needed(self):
    found = check_ins.users_needed(lambda num_reports: 10 / num_reports, 0.5)
    self.assertEqual(found, 20)


class DpFtrlTest(parameterized.TestCase):

  @parameterized.parameters((1e-3, 8), (1e3, 0))
  def test_overtaking_says_where_noise_crosses(self, epsilon, num_crossed):
    # Sampling that has much noise for its epsilon, or little.
    with mock.patch.object(
        dp_ftrl, 'poisson_epsilon', lambda multiplier, **_: epsilon
    ):
      found = dp_ftrl.run_overtaking(_run('.'))
    crossed = [line for line in found.lines if 'least epsilon' in line.what]
    # Four methods, two batches.
    self.assertLen(crossed, 8 - num_crossed)
    self.assertLessEqual({line.ours for line in crossed}, {epsilon})
    noise = {curve.label: curve.y for curve in found.curves}
    # Independent draws add up to the root of the steps, each example in 20.
    self.assertAlmostEqual(
        noise['unamplified'][0]
        / gaussian.sigma_for(epsilon=epsilon, delta=1e-5),
        math.sqrt(20 * 4801 / 2),
        places=3,
    )
    self.assertAlmostEqual(noise['amplified'][0], 0.45 * math.sqrt(4801 / 2))


class IsrlTest(parameterized.TestCase):

  def _cells(self, *, behind=(), seeds=2):
    cells = []
    for epsilon in (1.0, 2.0, 3.0):
      for seed in range(seeds):
        better = -0.1 if epsilon not in behind else 0.1
        for name, error in (
            ('noisy_mb_sgd', 0.5 + better), ('isrl_local_sgd', 0.5)
        ):
          cells.append({
              'algorithm': name,
              'epsilon': epsilon,
              'test_error': error + 0.01 * (seed % 2),
          })
    cells.append({'algorithm': 'mb_sgd', 'epsilon': 'inf', 'test_error': 0.1})
    return cells

  def test_verdict_of_a_comparison(self):
    found = isrl.compared({'': self._cells()}, error='error')
    self.assertEqual(found.verdict, rows.HOLDS)
    self.assertEqual(found.lines[0].what, 'noisy MB-SGD, epsilon 1: error')
    self.assertAlmostEqual(found.lines[0].ours, 0.405)
    self.assertAlmostEqual(found.lines[0].spread, 0.01 / math.sqrt(2))
    self.assertIsNone(found.lines[-1].spread)
    found = isrl.compared(
        {'a': self._cells(behind=(2.0,))}, error='error'
    )
    self.assertEqual(found.verdict, rows.IN_PART)
    self.assertIn('not lower at a, epsilon 2.', found.why)
    self.assertNotIn('mean label', found.why)
    self.assertNotIn('chance', found.why)
    self.assertNotIn('Without noise', found.why)
    found = isrl.compared(
        {'': self._cells(behind=(1.0, 2.0, 3.0))}, error='error'
    )
    self.assertEqual(found.verdict, rows.FAILS)

  def test_what_may_be_chance_is_no_proof(self):
    # Means are 0.01 apart, and trials too: p is 0.29 with two trials of each,
    # and 3e-7 with twenty.
    for seeds, verdict in ((2, rows.IN_PART), (20, rows.HOLDS)):
      cells = self._cells(seeds=seeds)
      for cell in cells:
        if cell['epsilon'] == 2.0 and cell['algorithm'] == 'noisy_mb_sgd':
          cell['test_error'] += 0.09
      found = isrl.compared({'': cells}, error='error')
      self.assertEqual(found.verdict, verdict)
      self.assertEqual(
          "may be chance (Welch's t-test, 5 %) at epsilon 2." in found.why,
          seeds == 2,
      )

  def test_equal_trials_may_be_chance(self):
    cells = [cell | {'test_error': 0.5} for cell in self._cells()]
    found = isrl.compared({'': cells}, error='error')
    self.assertIn('chance', found.why)

  def test_says_where_both_are_useless_and_how_far_apart_without_noise(self):
    cells = self._cells()
    for cell in cells:
      if cell['epsilon'] == 2.0:
        cell['test_error'] += 0.7
    cells.append({'algorithm': 'local_sgd', 'epsilon': 'inf', 'test_error': 0.2})
    found = isrl.compared({'': cells}, error='relative RMSE')
    self.assertIn('no better than the mean label at epsilon 2.', found.why)
    self.assertIn('Without noise the two are apart by 0.1.', found.why)

  @parameterized.parameters('isrl_fig_4', 'isrl_fig_5', 'isrl_fig_6')
  def test_settings_of_the_paper(self, name):
    row = table.BY_NAME[name]
    found = row.run.settings(_run('x', scale=0.1, seeds=20))
    self.assertEqual(found.seeds, 20)
    self.assertEqual(found.rounds, max(1, round(0.1 * row.run.rounds)))
    # As many steps as minibatch SGD takes records in so many rounds.
    self.assertEqual(
        found.local_steps,
        {'isrl_fig_4': 1238, 'isrl_fig_5': 154, 'isrl_fig_6': 102}[name],
    )
    full = row.run.settings(_run('x', seeds=20))
    self.assertEqual(
        full.local_steps,
        {'isrl_fig_4': 443, 'isrl_fig_5': 52, 'isrl_fig_6': 32}[name],
    )

  @pytest.mark.slow  # As `tasks/silos/silo_study_test.py`, at other sizes.
  def test_a_small_run_resumes(self):
    folder = pathlib.Path(self.create_tempdir())
    data = folder / 'obesity.csv'
    silo_tables.write(silo_tables.obesity_table((30,) * 7), data)
    row = table.BY_NAME['isrl_fig_6']
    row = dataclasses.replace(
        row,
        run=dataclasses.replace(
            row.run,
            epsilons=(3.0,),
            num_records=20,
            fields=row.run.fields | {'step_scales': (0.5,)},
        ),
    )
    self.enterContext(mock.patch.dict(table.BY_NAME, {row.name: row}))
    argv = (
        row.name, '--scale=0.06', '--seeds=1', '--data', data,
        '--output-dir', folder / 'run', '--progress=plain',
    )
    code, out, err = _main(*argv)
    self.assertEqual(code, 0, err)
    self.assertIn("**Not the paper's setting**: 0.06 of the rounds", out)
    self.assertIn('| noisy MB-SGD, epsilon 3: test error |', out)
    self.assertNotIn('(done before)', err)
    code, again, err = _main(*argv)
    self.assertEqual(code, 0, err)
    self.assertEqual(err.count('(done before)'), 4)
    lines = lambda text: [x for x in text.splitlines() if x.startswith('| ')]
    self.assertEqual(lines(again), lines(out))


@pytest.mark.once
class IsrlVariantsTest(absltest.TestCase):

  def test_every_variant_and_epsilon_once_and_again_from_the_folder(self):
    data = pathlib.Path(self.create_tempdir()) / 'heart_disease_uci.csv'
    table_of_heart = silo_tables.heart_table(silo_tables.patients((20,) * 4))
    folder = pathlib.Path(self.create_tempdir())
    built = self.enterContext(mock.patch.object(isrl_variants, 'build'))
    self.enterContext(mock.patch.object(isrl_variants.engine, 'start'))
    self.enterContext(
        mock.patch.object(
            isrl_variants.heart.silo_data,
            'load',
            lambda source, path: table_of_heart,
        )
    )
    train = self.enterContext(
        mock.patch.object(
            isrl_variants.silo_cells,
            'rounds',
            side_effect=lambda process, split: np.zeros(
                split.test.features.shape[1]
            ),
        )
    )
    for seeds, trained in ((1, 9), (2, 18), (2, 18)):
      found = isrl_variants.run(_run(folder, seeds=seeds, data=str(data)))
      self.assertEqual(train.call_count, trained)
    self.assertLen({call.args[1:3] for call in built.call_args_list}, 9)
    errors = [line for line in found.lines if 'error' in line.what]
    # A score of 0 is wrong either way.
    self.assertEqual([line.ours for line in errors], [1.0] * 9)
    self.assertEqual([line.spread for line in errors], [0.0] * 9)
    shuffled = [line.ours for line in found.lines if 'shuffled' in line.what]
    self.assertEqual(shuffled, [1.0] * 3)


@pytest.mark.once  # A training on each stack is in `tasks/digits`.
class SmallTrainingTest(parameterized.TestCase):
  """Rows through their task, on what is packaged."""

  def test_known_weights(self):
    folder = self.create_tempdir().full_path
    code, out, err = _main(
        'draw_and_discard_fig_5', '--scale=6e-8', '--seeds=2', '--output-dir',
        folder, '--progress=quiet',
    )
    self.assertEqual(code, 0, err)
    self.assertIn('| recall | 0.72 |', out)
    self.assertIn("**Not the paper's setting**: 6e-08 of the rounds", out)
    code, out, err = _main(
        'draw_and_discard_fig_5', '--scale=7e-8', '--seeds=2', '--output-dir',
        folder, '--progress=quiet',
    )
    self.assertEqual(code, 2)
    self.assertIn('updates=60', err)

  @pytest.mark.slow  # `tasks/mnist` has the same run.
  def test_mnist(self):
    row = table.BY_NAME['shuffled_fig_3a']
    small = dataclasses.replace(
        row.run, fields={'num_clients': 60, 'evaluations': 1}
    )
    folder = pathlib.Path(self.create_tempdir())
    found = small(
        _run(folder, scale=2 / 6800, data=mnist_training.mnist_data.PACKAGED)
    )
    # Two updates cannot contradict the paper.
    self.assertEqual(found.verdict, rows.TOO_SHORT)
    self.assertIn('0.000294118 of the updates', found.why)
    self.assertFalse(found.is_setting_of_paper)
    self.assertEqual(found.population_share, 0.001)
    self.assertEqual(found.lines[0].what, 'ldp_sgd: held-out accuracy')

  @parameterized.parameters(
      (1.0, 0.9, rows.HOLDS), (1.0, 0.5, rows.FAILS), (0.1, 0.5, rows.TOO_SHORT)
  )
  def test_verdict_on_mnist(self, scale, accuracy, verdict):
    folder = pathlib.Path(self.create_tempdir())

    def make(settings, **unused_where):
      self.assertEqual(settings.rows, ('ldp_sgd',))
      self.assertEqual((settings.scale, settings.seeds), (scale, 1))
      row = dict(
          name='ldp_sgd',
          test_accuracy=accuracy,
          standard_deviation=0.0,
          guarantees=[{'delta': 1e-5, 'epsilon': 0.3}],
          noise={'local_epsilon': 2.0},
          runs=[
              {'evaluations': [{'round': 5, 'test_accuracy': accuracy - 0.1}]},
              {'evaluations': [{'round': 5, 'test_accuracy': accuracy + 0.1}]},
          ],
      )
      (folder / 'results.json').write_text(json.dumps({'rows': [row]}))

    self.enterContext(mock.patch.object(mnist_training.mnist, 'run', make))
    row = mnist_training.MnistRun(
        papers={'ldp_sgd': '0.91'}, why='.', fields={'num_clients': 60}
    )
    found = row(_run(folder, scale=scale))
    self.assertEqual(found.verdict, verdict)
    self.assertEqual('0.1 of the updates' in found.why, scale < 1)
    self.assertEqual(found.population_share, 0.001)
    self.assertEqual(found.lines[0].what, 'ldp_sgd: held-out accuracy')
    self.assertEqual(
        [line.ours for line in found.lines], [accuracy, 0.3, 2.0]
    )
    self.assertEqual(found.curves[0].x, [5])
    self.assertAlmostEqual(found.curves[0].y[0], accuracy)


class DrawAndDiscardTest(absltest.TestCase):

  def test_epsilon_of_a_client_is_of_all_weights(self):
    self.assertAlmostEqual(
        draw_and_discard.client_epsilon(3.47, 33), 33 * 3.47
    )

  def test_instances_overlap_with_the_nearest_batch(self):
    for loss, verdict in (1.45, rows.IN_PART), (1.9, rows.FAILS):
      found = draw_and_discard._overlap({
          'server_batch_n10': 1.44,
          'server_batch_n100': 2.1,
          'draw_and_discard_k10': loss,
          'draw_and_discard_k20': 1.8,
      })
      self.assertEqual(found['verdict'], verdict)
    self.assertIn('100 clients, 1,000 images', found['why'])

  def test_curves_are_means_over_seeds(self):
    curve = draw_and_discard._loss_curve('epsilon', 'k10', [
        {'points': [[10, 2.0, 0.1], [20, 1.0, 0.5]]},
        {'points': [[10, 1.0, 0.3], [20, 0.0, 0.9]]},
    ])  # pyformat: disable
    self.assertEqual((curve.x, curve.y), ([10, 20], [1.5, 0.5]))

  def test_spread_without_a_second_draw_grows(self):
    found = draw_and_discard.run_spread(_run('.', scale=0.2, seeds=2))
    kept, grown = (line.ours for line in found.lines)
    self.assertBetween(kept, 7, 13)
    self.assertAlmostEqual(grown / float(found.lines[1].paper), 1, delta=0.2)
    self.assertTrue(np.all(np.isfinite(found.curves[0].y)))


if __name__ == '__main__':
  absltest.main()
