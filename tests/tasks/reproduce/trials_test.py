# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of stored trials: which are taken, by every row that has trials."""

import contextlib
import dataclasses
import io
import json
import math
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from tasks import __main__ as tasks_main
from tasks.common import digits_data
from tasks.draw_and_discard import mnist_instances
from tasks.mnist import calibration
from tasks.mnist import mnist_data
from tasks.mnist import mnist_guarantees
from tasks.reproduce import check_ins
from tasks.reproduce import dp_ftrl_mnist
from tasks.reproduce import draw_and_discard
from tasks.reproduce import mnist_training
from tasks.reproduce import page
from tasks.reproduce import rows
from tasks.reproduce import table
from tasks.reproduce import trials
from tasks.silos import silo_cells
from tasks.silos import silo_study
from tests.cli import command
from tests.tasks.silos import silo_tables

_FACTS = {
    'steps': 480,
    'seed': 0,
    'data': 'digits',
    'rate': 0.25,
    'plan': {'noise_multiplier': 1.23456789, 'restarts': [1, None]},
}


class _Computed:
  """A computation that counts its calls, and takes `hours` for each."""

  def __init__(self, case, *, hours=1.0):
    self.calls, self._now, self._hours = 0, 0.0, hours
    case.enterContext(
        mock.patch.object(trials.time, 'monotonic', lambda: self._now)
    )

  def __call__(self):
    self.calls += 1
    self._now += 3600 * self._hours
    return {'accuracy': self.calls / 10}


class TrialsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir())
    self._store = self._folder / 'trials' / 'row.json'

  def _trials(self, own='own', **fields):
    return trials.Trials(
        self._folder / own, **{'stored': self._store} | fields
    )

  def _stored(self):
    return json.loads(self._store.read_text()) if self._store.exists() else {}

  def test_a_stored_trial_is_taken_with_its_hours(self):
    compute = _Computed(self, hours=1.5)
    first = self._trials().trial('a_seed_0', _FACTS, compute)
    self.assertEqual(first, {'accuracy': 0.1})
    ((name, content),) = self._stored().items()
    self.assertStartsWith(name, 'a_seed_0_')
    self.assertEqual(content['numbers'], first)
    self.assertEqual(content['hours'], 1.5)
    self.assertEqual(content['facts']['plan']['noise_multiplier'], 1.23457)
    later = self._trials('other', is_quiet=False)
    err = io.StringIO()
    self.assertIsNone(later.hours)
    with contextlib.redirect_stderr(err):
      self.assertEqual(later.trial('a_seed_0', _FACTS, compute), first)
    self.assertEqual(err.getvalue(), 'a_seed_0: a trial that ended before\n')
    self.assertEqual(later.hours, 1.5)
    later.trial('a_seed_1', _FACTS | {'seed': 1}, lambda: {'accuracy': 0})
    self.assertEqual(later.hours, 1.5)
    self.assertEqual(compute.calls, 1)

  @parameterized.parameters(
      {'steps': 479},
      {'seed': 1},
      {'data': 'others'},
      {'rate': 0.2501},
      {'plan': {'noise_multiplier': 1.2346, 'restarts': [1, None]}},
      {'plan': {'noise_multiplier': 1.23456789, 'restarts': [1]}},
      {'more': None},
  )
  def test_one_with_any_other_fact_is_not_taken_and_stays(self, **change):
    compute = _Computed(self)
    first = self._trials().trial('a', _FACTS, compute)
    other = self._trials().trial('a', _FACTS | change, compute)
    self.assertEqual(compute.calls, 2)
    self.assertNotEqual(other, first)
    self.assertLen(self._stored(), 2)
    self.assertEqual(self._trials().trial('a', _FACTS, compute), first)
    # Whatever a name promises.
    text = self._store.read_text().replace('digits', 'letters')
    self._store.write_text(text)
    self._trials('new').trial('a', _FACTS, compute)
    self.assertEqual(compute.calls, 3)

  def test_the_last_digits_of_a_calibrated_number_do_not_count(self):
    compute = _Computed(self)
    self._trials().trial('a', _FACTS, compute)
    self._trials().trial('a', _FACTS | {'rate': 0.25 * (1 + 1e-9)}, compute)
    self.assertEqual(compute.calls, 1)

  def test_what_ended_before_is_stored_later(self):
    compute = _Computed(self)
    self._trials(stored=None).trial('a', _FACTS, compute)
    self.assertEmpty(self._stored())
    self._trials().trial('a', _FACTS, compute)
    (own,) = (self._folder / 'own').iterdir()
    self.assertEqual(self._stored(), {own.stem: json.loads(own.read_text())})
    self.assertEqual(compute.calls, 1)
    # A line of the file is a trial.
    self._trials().trial('b', _FACTS | {'seed': 1}, compute)
    self.assertLen(self._store.read_text().splitlines(), 1 + 2 + 1)

  def test_two_runs_store_side_by_side(self):
    compute = _Computed(self)

    def while_another_ends():
      self._trials('other').trial('b', _FACTS | {'seed': 1}, compute)
      return compute()

    self._trials().trial('a', _FACTS, while_another_ends)
    self.assertLen(self._stored(), 2)

  def test_hours_count_those_of_an_attempt_that_was_stopped(self):
    compute = _Computed(self, hours=2.0)

    def stopped():
      compute()
      raise KeyboardInterrupt

    with self.assertRaises(KeyboardInterrupt):
      self._trials().trial('a', _FACTS, stopped)
    self.assertEmpty(self._stored())
    again = self._trials()
    again.trial('a', _FACTS, compute)
    again.trial('b', _FACTS | {'seed': 1}, compute)
    # The same trial once more is the same hours.
    again.trial('a', _FACTS, compute)
    self.assertEqual(again.hours, 2.0 + 2.0 + 2.0)
    self.assertEqual(compute.calls, 3)


  def test_another_machine_goes_on_where_one_was_killed(self):
    compute, given = _Computed(self, hours=2.0), []

    def steps(before, save):
      given.append(before)
      for step in range(before['step'] if before else 0, 3):
        compute()
        if step < 2:
          save({'step': step + 1})
        if len(given) == 1 and step == 1:
          raise KeyboardInterrupt
      return {'accuracy': 0.5}

    with self.assertRaises(KeyboardInterrupt):
      self._trials().trial('a', _FACTS, steps, goes_on=True)
    ((name, content),) = self._stored().items()
    self.assertEqual(content['unfinished'], {'step': 2})
    self.assertNotIn('numbers', content)
    self.assertEqual(content['hours'], 4.0)
    # Another fact begins anew.
    change = _FACTS | {'seed': 1}
    self._trials('b').trial('a', change, steps, goes_on=True)
    other = self._trials('b')
    self.assertEqual(
        other.trial('a', _FACTS, steps, goes_on=True), {'accuracy': 0.5}
    )
    self.assertEqual(given, [None, None, {'step': 2}])
    self.assertEqual(compute.calls, 2 + 3 + 1)
    self.assertEqual(other.hours, 6.0)
    self.assertEqual(
        self._stored()[name],
        {
            'facts': content['facts'],
            'numbers': {'accuracy': 0.5},
            'hours': 6.0,
        },
    )

  def test_what_another_run_ended_stays(self):
    compute = _Computed(self)

    def slower(before, save):
      del before
      self._trials('b').trial('a', _FACTS, compute)
      save({'step': 1})
      (content,) = self._stored().values()
      self.assertEqual(content['numbers'], {'accuracy': 0.1})
      return {'accuracy': 0.2}

    self._trials().trial('a', _FACTS, slower, goes_on=True)
    self.assertEqual(compute.calls, 1)

  def test_without_stored_trials_the_folder_of_the_run_goes_on(self):
    given = []

    def compute(*found):
      given.append(found)
      return {}

    self._trials(stored=None).trial('a', _FACTS, compute, goes_on=True)
    self.assertEqual(given, [(None, None)])


class CommandTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    folder = pathlib.Path(self.create_tempdir())
    self._results, self._runs = folder / 'results', folder / 'runs'
    self._results.mkdir()
    for name, value in dict(
        path_of=lambda name: self._results / f'{name}.json',
        PATH=self._results / 'page.md',
    ).items():
      self.enterContext(mock.patch.object(page, name, value))
    self._trained, self._killed_at = [], None
    now = [0.0]
    self.enterContext(
        mock.patch.object(trials.time, 'monotonic', lambda: now[0])
    )

    def train(seed):
      if seed == self._killed_at:
        raise KeyboardInterrupt
      self._trained.append(seed)
      now[0] += 3600.0
      return {'accuracy': 0.5 + seed / 10}

    def run(run):
      found = [
          run.trial(
              f'seed_{seed}',
              {'seed': seed, 'steps': run.scaled(100)},
              lambda: train(seed),  # pylint: disable=cell-var-from-loop
          )['accuracy']
          for seed in range(run.seeds)
      ]
      return rows.Result(
          lines=[rows.Line('accuracy', float(np.mean(found)))],
          verdict=rows.NO_NUMBER,
          why='.',
      )

    row = table.BY_NAME['dp_ftrl_fig_1a']
    self.enterContext(
        mock.patch.dict(
            table.BY_NAME, {row.name: dataclasses.replace(row, run=run)}
        )
    )
    self._name = row.name

  def _main(self, run, *argv):
    folder = self._runs / run
    code, _, err = command.run(
        tasks_main.main, 'reproduce', self._name, '--output-dir', folder, *argv
    )
    self.assertEqual(code, 0, err)
    return json.loads((folder / 'result.json').read_text())

  def _stored(self):
    path = self._results / 'trials' / f'{self._name}.json'
    return json.loads(path.read_text())

  def test_three_seeds_after_one_are_two_more(self):
    one = self._main('a', '--seeds=1', '--keep')
    self.assertEqual((one['hours'], one['lines'][0]['ours']), (1.0, 0.5))
    self.assertLen(self._stored(), 1)
    three = self._main('b', '--seeds=3', '--keep')
    self.assertEqual(self._trained, [0, 1, 2])
    self.assertEqual((three['hours'], three['lines'][0]['ours']), (3.0, 0.6))
    self.assertLen(self._stored(), 3)
    # Without --keep they are repeated, once in a folder.
    for _ in range(2):
      self.assertEqual(self._main('c', '--seeds=3')['hours'], 3.0)
      self.assertEqual(self._trained, [0, 1, 2, 0, 1, 2])

  def test_a_killed_run_keeps_what_ended(self):
    self._killed_at = 2
    folder = self._runs / 'a'
    code, _, _ = command.run(
        tasks_main.main,
        'reproduce', self._name, '--seeds=3', '--keep', '--output-dir', folder,
    )  # pyformat: disable
    self.assertNotEqual(code, 0)
    self.assertLen(self._stored(), 2)
    self.assertFalse((folder / 'result.json').exists())
    self._killed_at = None
    found = self._main('b', '--seeds=3', '--keep')
    self.assertEqual(self._trained, [0, 1, 2])
    self.assertEqual(found['hours'], 3.0)

  def test_another_scale_takes_nothing(self):
    self._main('a', '--seeds=1', '--keep')
    self._main('b', '--seeds=1', '--scale=0.5')
    self.assertEqual(self._trained, [0, 0])
    self.assertLen(self._stored(), 1)


@pytest.mark.once
class RowsTest(parameterized.TestCase):
  """Every row with trials takes its own from another machine, and no others."""

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir())
    self._store = self._folder / 'row.json'
    self._number = 0

  def _run(self, **fields):
    """Returns a run in a folder of its own, and of the same repository."""
    self._number += 1
    folder = self._folder / str(self._number)
    folder.mkdir()
    return rows.Run(
        **dict(
            scale=0.02,
            seeds=1,
            output_dir=folder,
            data=mnist_data.PACKAGED,
            trials=trials.Trials(folder / 'trials', stored=self._store),
        )
        | fields
    )

  def _check(self, row, computed, of_a_seed):
    """Checks calls of `computed` for one seed, three, and another scale."""
    row(self._run())
    self.assertEqual(computed.call_count, of_a_seed)
    three = row(self._run(seeds=3))
    self.assertEqual(computed.call_count, 3 * of_a_seed)
    again = row(self._run(seeds=3))
    self.assertEqual(computed.call_count, 3 * of_a_seed)
    self.assertEqual(again, three)
    row(self._run(scale=0.03))
    self.assertEqual(computed.call_count, 4 * of_a_seed)
    self.assertNotIn(str(self._folder), self._store.read_text())

  def test_dp_ftrl(self):
    for name, value in dict(
        METHODS=(dp_ftrl_mnist.TREE,),
        EPSILONS=(8.0,),
        compared=lambda found, cells: rows.Result(
            lines=[rows.Line('x', sum(found[dp_ftrl_mnist.TREE, 8.0]))],
            verdict=rows.NO_NUMBER,
            why='',
        ),
        _fewer_passes=lambda *_: '',
    ).items():
      self.enterContext(mock.patch.object(dp_ftrl_mnist, name, value))
    self.enterContext(mock.patch.object(dp_ftrl_mnist.engine, 'start'))
    trained = self.enterContext(
        mock.patch.object(
            dp_ftrl_mnist,
            '_trained',
            return_value=mock.Mock(metrics=[{'test_accuracy': 0.5}]),
        )
    )
    self._check(dp_ftrl_mnist.run, trained, 1)
    # As would another plan of the same noise.
    with mock.patch.object(dp_ftrl_mnist, 'CLIP', 2.0):
      dp_ftrl_mnist.run(self._run())
    self.assertEqual(trained.call_count, 5)

  def _trained_on_mnist(self):
    """Returns the mock that trains in place of the task."""
    from tasks.mnist import mnist_report  # pylint: disable=g-import-not-at-top
    from tasks.mnist import mnist_run  # pylint: disable=g-import-not-at-top

    self.enterContext(mock.patch.object(mnist_training.mnist.engine, 'start'))
    for name in '_plot_accuracy', '_plot_epsilon':
      self.enterContext(mock.patch.object(mnist_report, name))
    return self.enterContext(
        mock.patch.object(
            mnist_run,
            'train',
            side_effect=lambda row, *_, seed, **unused: mnist_run.Result(
                seed,
                tuple(
                    {'round': each, 'test_accuracy': each / 3, 'test_loss': 1.0}
                    for each in (1, 2)
                ),
                (mnist_guarantees.nothing(row.delta),),
            ),
        )
    )

  def test_mnist(self):
    trained = self._trained_on_mnist()
    row = table.BY_NAME['shuffled_fig_3a'].run
    self._check(row, trained, 1)
    found = row(self._run())
    self.assertEqual(trained.call_count, 4)
    self.assertEqual(found.lines[0].ours, 0.666667)
    self.assertEqual(found.lines[1].ours, math.inf)
    self.assertEqual(list(found.curves[0].x), [1, 2])
    for fields in {'evaluations': 7}, {'server_learning_rate': 3.0}:
      dataclasses.replace(row, fields=fields)(self._run())
    self.assertEqual(trained.call_count, 6)

  def test_a_killed_training_goes_on_in_its_folder_or_elsewhere(self):
    from tasks.mnist import mnist_run  # pylint: disable=g-import-not-at-top

    state = mnist_run.Start(
        round=3,
        until=4,
        first_round=0,
        num_repeated=0,
        weights=np.arange(4, dtype=np.float32),
        evaluations=((3, 0.5),),
    )

    def killed(row, output_dir, *, save, **unused):
      del row, unused
      output_dir.mkdir(parents=True)
      save(state)
      raise KeyboardInterrupt

    row, here = table.BY_NAME['shuffled_fig_3a'].run, self._run()
    trained = self._trained_on_mnist()
    ends, trained.side_effect = trained.side_effect, killed
    with self.assertRaises(KeyboardInterrupt):
      row(here)
    given = []
    trained.side_effect = lambda *args, start, **options: (
        given.append(start) or ends(*args, **options)
    )
    text = self._store.read_text()
    row(self._run())
    self._store.write_text(text)
    row(here)
    # After a run that was stopped elsewhere, the folder lacks its rounds.
    self._store.write_text(
        text.replace('"num_repeated": 0', '"num_repeated": 2')
    )
    no_trials = trials.Trials(self._folder / 'none', stored=self._store)
    row(dataclasses.replace(here, trials=no_trials))
    self.assertEqual(given.pop().num_repeated, 2)
    # With a seed for tests, nothing goes on elsewhere.
    seeded = dataclasses.replace(row, fields={'insecure_seed': 1})
    seeded(self._run())
    elsewhere, *others = given
    self.assertEqual(elsewhere.digest, state.digest)
    self.assertEqual((elsewhere.round, elsewhere.evaluations), (3, ((3, 0.5),)))
    self.assertEqual(others, [None, None])
    self.assertIsNone(trained.call_args.kwargs['save'])

  def test_populations(self):
    self.enterContext(
        mock.patch.object(
            calibration.Calibrations, 'find', lambda *_: 1.0
        )
    )
    self._check(check_ins.run_mnist, self._trained_on_mnist(), 2 + 2 + 3)
    found = check_ins.run_mnist(self._run())
    self.assertContainsSubset(
        {
            'averaged, 1,000,000 clients: held-out accuracy',
            'sliding_window, 100,000 clients: held-out accuracy',
            'uniform_local, 300,000 clients: epsilon of one report',
        },
        {line.what for line in found.lines},
    )
    self.assertLen(found.lines, 3 * 7)
    over_clients = {
        curve.label: tuple(curve.x)
        for curve in found.curves
        if curve.panel.endswith('clients')
    }
    self.assertEqual(
        over_clients,
        {
            'averaged': (1_000_000,),
            'sliding_window': (100_000, 300_000, 1_000_000),
            'uniform_local': (100_000, 300_000, 1_000_000),
        },
    )

  def test_silos(self):
    data = self._folder / 'obesity.csv'
    silo_tables.write(silo_tables.obesity_table((30,) * 7), data)
    self.enterContext(mock.patch.object(silo_study.engine, 'start'))

    def make(runner, epsilon, scale, seed):
      name = runner._algorithm.name
      return silo_cells.Cell(name, epsilon, scale, seed, seed / 7, scale, {})

    made = self.enterContext(
        mock.patch.object(silo_cells.Runner, '_made', autospec=True)
    )
    made.side_effect = make
    row = dataclasses.replace(
        table.BY_NAME['isrl_fig_6'].run,
        epsilons=(3.0, 9.0),
        num_records=20,
        fields={'step_scales': (0.5, 2.0)},
    )
    run = lambda run: row(dataclasses.replace(run, data=str(data)))
    run(self._run(scale=0.06))
    # Two of the four algorithms at two epsilons; two seeds for each of two
    # steps to choose from, and one more.
    self.assertEqual(made.call_count, 6 * (4 + 1))
    three = run(self._run(scale=0.06, seeds=3))
    self.assertEqual(made.call_count, 6 * (4 + 3))
    self.assertEqual(run(self._run(scale=0.06, seeds=3)), three)
    self.assertEqual(made.call_count, 6 * (4 + 3))
    self.assertLen(json.loads(self._store.read_text()), 6 * (4 + 3))
    silo_tables.write(silo_tables.obesity_table((31,) * 7), data)
    run(self._run(scale=0.06))
    self.assertEqual(made.call_count, 6 * (4 + 3) + 6 * (4 + 1))

  def test_instances(self):
    digits = digits_data.Digits(
        np.zeros([10, 28, 28], np.uint8), np.arange(10, dtype=np.int32)
    )
    data = mnist_data.Mnist(digits, digits, name='made')
    self.enterContext(
        mock.patch.object(mnist_data, 'load', lambda source, is_full_size: data)
    )
    self.enterContext(mock.patch.object(mnist_instances.engine, 'start'))
    made = self.enterContext(
        mock.patch.object(
            mnist_instances.mnist_instances_rows,
            'run_row',
            side_effect=lambda settings, *_, **unused: {
                'accuracy': 0.5,
                'loss': 1.0,
                'points': [[10, 1 / 3, 0.5]],
                'passes': settings.passes,
            },
        )
    )
    draw_and_discard.run_instances(self._run(scale=0.1))
    of_a_seed = made.call_count
    names = {call.args[1].name for call in made.call_args_list}
    self.assertLen(names, of_a_seed)
    made.reset_mock()
    draw_and_discard.run_instances(self._run(scale=0.1, seeds=3))
    self.assertEqual(made.call_count, 2 * of_a_seed)
    draw_and_discard.run_instances(self._run(scale=0.1, seeds=3))
    self.assertEqual(made.call_count, 2 * of_a_seed)
    draw_and_discard.run_instances(self._run(scale=0.2))
    self.assertEqual(made.call_count, 3 * of_a_seed)

  def test_known_weights(self):
    run = mock.Mock(wraps=draw_and_discard.one_by_one.run)
    self.enterContext(
        mock.patch.object(draw_and_discard.one_by_one, 'run', run)
    )
    first = draw_and_discard.run_known_weights(self._run(scale=6e-8, seeds=2))
    again = draw_and_discard.run_known_weights(self._run(scale=6e-8, seeds=2))
    self.assertEqual(run.call_count, 2)
    self.assertEqual(again, first)


if __name__ == '__main__':
  absltest.main()
