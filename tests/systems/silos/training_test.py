# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of `program.train` with silos, alone or in sums; some are absent."""

import collections
import csv
import dataclasses
import functools
import itertools
import json
import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import small_model
from tests.program import kills
from tests.systems.silos import secure_sum_run
from tests.systems.silos import silo_run
from tests.systems.silos import toy
import tff_dp
from tff_dp import _checks
from tff_dp import _failures
from tff_dp import execution
from tff_dp import program
from tff_dp import silos
from tff_dp.aggregators import release_marks
from tff_dp.cli import main
from tff_dp.files import write_ahead
from tff_dp.mechanisms import randomizers
from tff_dp.plans import events
from tff_dp.program import certification
from tff_dp.program import computation_digests
from tff_dp.program import cohorts as cohorts_lib
from tff_dp.program import data_flow
from tff_dp.program import random_operations
from tff_dp.program import results
from tff_dp.systems.silos import minibatch_schedules
from tff_dp.systems.silos import silo_sampling
from tff_dp.systems.silos import sum_factory
from tff_dp.systems.silos import terms as terms_lib
from tff_dp.systems.silos import training as silos_training

_NUM_ROUNDS = silo_run.NUM_ROUNDS
_KINDS = (('silos', silo_run), ('secure_sums', secure_sum_run))


def setUpModule():
  execution.set_default_context()


def _model():
  return toy.build_model(silo_run.SIZE, curvature=np.ones(silo_run.SIZE))


# Small ones, beside Poisson sampling in `silo_run`.
_BUILDERS = {
    'fixed': lambda: silos.build_accelerated_mb_sgd_erm(
        _model(),
        num_rounds=3,
        sampling=silo_sampling.FixedSize(4),
        gamma=4.0,
        **silo_run.arguments(),
    ),
    'one_pass': lambda: silos.build_one_pass_accelerated_mb_sgd(
        _model(),
        num_rounds=4,
        stages=[minibatch_schedules.Stage(2, 3.0), minibatch_schedules.Stage(2, 4.0)],
        **silo_run.arguments(),
    ),
    'localized': lambda: silos.build_localized_mb_sgd(
        _model(),
        lipschitz=1.0,
        regularization=1.0,
        rounds_per_phase=[2, 2],
        smoothness=1.0,
        silos=silo_run.BUDGETS,
    ),
    'local': lambda: silos.build_isrl_local_sgd(
        _model(),
        num_rounds=3,
        num_local_steps=2,
        learning_rate=0.1,
        **silo_run.arguments(),
    ),
}


def _begun(root: pathlib.Path) -> list[dict[str, object]]:
  record = root / 'secret' / 'write_ahead.jsonl'
  entries = map(json.loads, record.read_text().splitlines())
  return [entry for entry in entries if 'cohort' in entry]


def _rows(path: pathlib.Path) -> list[dict[str, str]]:
  return list(csv.DictReader(path.read_text().splitlines()))


def _with(state, client_work) -> tff.learning.templates.LearningAlgorithmState:
  """Returns the state of a process with another one of its client work."""
  return tff.learning.templates.LearningAlgorithmState(
      state.global_model_weights,
      state.distributor,
      client_work,
      state.aggregator,
      state.finalizer,
  )


class _Rows:
  """Silos whose record i is a row of i, in orders that may be given."""

  client_ids = list(silo_run.BUDGETS)

  def __init__(self, orders, change=lambda data: data):
    self._orders, self._change = orders, change

  def create_tf_dataset_for_client(self, name):
    order = self._orders.get(name, np.arange(silo_run.RECORDS[name]))
    x = np.repeat(np.float32(order)[:, None], silo_run.SIZE, axis=1)
    records = tf.data.Dataset.from_tensor_slices((x, x[:, 0]))
    return self._change(records.batch(8))


def _shuffled(data):
  def shuffle(x, y):
    order = tf.random.shuffle(tf.range(tf.shape(y)[0]))
    return tf.gather(x, order), tf.gather(y, order)

  return data.map(shuffle)


class KilledTest(kills.RunsTestCase):
  """One run of each kind, which was killed in round 5 and went on."""

  @classmethod
  @functools.cache
  def _run(cls, kind):
    """Returns (folder, result, models of each round, record at the kill)."""
    root, sent = cls.parent / kind.__name__, []
    process = kind.build_process()
    run_next = process.next
    certificate = certification.certify(process, kind.absent_plan(process))
    digest = computation_digests.digest(run_next)
    drawn = random_operations.names(run_next)

    def note(state, data):
      output = run_next(state, data)
      weights = toy.flat(output.state.global_model_weights)
      sent.append((int(state.client_work['round']), weights))
      if len(sent) == 5:
        raise kills.Killed
      return output

    with mock.patch.object(
        tff.learning.templates.LearningProcess,
        'next',
        mock.Mock(side_effect=note, type_signature=run_next.type_signature),
    ), mock.patch.object(
        certification, 'certify', lambda process, plan: certificate
    ), mock.patch.object(
        computation_digests, 'digest', lambda _: digest
    ), mock.patch.object(random_operations, 'names', lambda _: drawn):
      try:
        kind.run(root)
      except kills.Killed:
        pass
      record = _begun(root)
      return root, kind.run(root), sent, record

  @parameterized.named_parameters(*_KINDS)
  def test_rounds_are_repeated_to_the_last_bit_and_charged_once(self, kind):
    root, _, sent, before = self._run(kind)
    self.assertLen(before, 5)
    # Rounds 4 and 5 were repeated, and sent the very same.
    self.assertEqual([r for r, _ in sent[:7]], [0, 1, 2, 3, 4, 3, 4])
    for first, again in ((3, 5), (4, 6)):
      np.testing.assert_array_equal(sent[first][1], sent[again][1])
    self.assertEqual(
        [entry['round'] for entry in _begun(root)],
        list(range(1, _NUM_ROUNDS + 1)),
    )

  @parameterized.named_parameters(
      (*_KINDS[0], [3, 2, 3, 3, 2, 0, 2, 3],
       'of 8 rounds: north in 5, south in 7, west in 6'),
      (*_KINDS[1], [3, 2, 3, 3, 2, 2, 2, 3],
       'of 8 rounds: north in 6, south in 7, west in 7'),
  )
  def test_absent_silos_are_not_asked_and_delay_nobody(self, kind, num, said):
    root, result, _, _ = self._run(kind)
    plan = kind.absent_plan(kind.build_process())
    self.assertEqual(result.rounds_done, _NUM_ROUNDS)
    self.assertEqual(result.epsilon, plan.epsilon(delta=kind.DELTA))
    self.assertEqual(result.statement.epsilon, result.epsilon)
    self.assertEqual([row['silos'] for row in result.metrics], num)
    points = result.statement.points['implementation']
    self.assertEqual(points['realised_participation'], said)
    run = events.read(root / 'release' / 'events.json')
    self.assertEqual(run.plan, plan)
    self.assertEqual(
        run.plan.epsilon(delta=run.delta, num_rounds=run.num_rounds),
        result.epsilon,
    )

  def test_absent_silos_pay_nothing_and_what_is_released_is_noised(self):
    root, result, _, _ = self._run(silo_run)
    plan = silo_run.absent_plan(silo_run.build_process())
    for name, rounds in silo_run.ABSENT.items():
      self.assertLen(plan.messages(name), _NUM_ROUNDS - len(rounds))
      # Less than it would pay for all rounds, which is what it allows.
      self.assertLess(plan.epsilon(member=name), 1.99)
    # What is noised or public is released, and there is nothing else.
    self.assertContainsSubset(
        {'client_work/private/loss', 'aggregator/num_silos', 'epsilon'},
        result.metrics[0],
    )
    secret = _rows(root / 'secret' / 'metrics.not_covered.csv')
    self.assertEqual(
        set(secret[0]),
        {'round', 'round_seconds.not_covered', 'rss_mb.not_covered'},
    )

  def test_records_are_in_one_sum(self):
    root, result, _, _ = self._run(secure_sum_run)
    self.assertBetween(result.epsilon, 1.9, 2.0)
    self.assertEqual(
        {row['epsilon'] for row in result.metrics}, {result.epsilon}
    )
    path = str(root / 'release' / 'events.json')
    with mock.patch('builtins.print') as printed:
      code = main.main(['account', '--events', path, '--format', 'json'])
    self.assertEqual(code, 0)
    self.assertIn(f'"epsilon": {result.epsilon}', printed.call_args.args[0])


class TrainTest(kills.RunsTestCase):

  def setUp(self):
    super().setUp()
    self.root = pathlib.Path(
        self.enterContext(tempfile.TemporaryDirectory())
    ) / 'run'
    self.cohorts = []
    select = silos_training.SiloCohorts.select

    def note(cohorts, round_index, chosen=None):
      selection = select(cohorts, round_index, chosen)
      self.cohorts.append(selection.ids)
      return selection

    self.enterContext(
        mock.patch.object(silos_training.SiloCohorts, 'select', note)
    )

  def test_budget_of_secure_sums(self):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'round 1 would'):
      secure_sum_run.run(self.root, epsilon_budget=1.0)
    self.assertFalse(self.root.exists())
    result = secure_sum_run.run(self.root, epsilon_budget=2.0, total_rounds=3)
    self.assertEqual((result.rounds_done, result.stop_reason),
                     (3, results.COMPLETED))

  @parameterized.parameters(*_BUILDERS)
  @pytest.mark.slow(but=['3'])
  def test_every_builder_runs_and_charges_what_the_plan_says(self, name):
    process = _BUILDERS[name]()
    plan = process.plan.with_availability(
        lambda r, silo: r != 2 and (silo, r) != ('west', 3)
    )
    result = silo_run.run(self.root, process, plan=plan)
    self.assertEqual(result.rounds_done, plan.num_rounds)
    for silo in plan.silos:
      rounds = sum(silo in cohort for cohort in self.cohorts)
      self.assertLen(
          plan.messages(silo), rounds * plan.releases_per_round
      )

  def test_stops_before_the_budget_of_a_silo_is_exceeded(self):
    # The noise is for 8 rounds, which are too many for the south now.
    process = silo_run.build_process()
    south = dataclasses.replace(silo_run.BUDGETS['south'], epsilon=1.7)
    process = process.with_plan(
        dataclasses.replace(
            process.plan, silos=silo_run.BUDGETS | {'south': south}
        )
    )
    result = silo_run.run(self.root, process, plan=process.plan)
    self.assertEqual(result.stop_reason, results.BUDGET)
    self.assertRegex(result.message, 'would take silo south to epsilon')
    self.assertBetween(result.rounds_done, 4, 6)
    rounds = result.rounds_done
    spent = lambda r: process.plan.epsilon(num_rounds=r, member='south')
    self.assertLessEqual(spent(rounds), 1.7)
    self.assertGreater(spent(rounds + 1), 1.7)
    self.assertLen(self.cohorts, rounds)

  def test_silo_that_fails_is_named_and_the_round_repeated_once_mended(self):
    process = silo_run.build_process()

    class Torn(silo_run.Clients):

      def create_tf_dataset_for_client(self, name):
        data = super().create_tf_dataset_for_client(name)
        # One batch less than its noise was calibrated for.
        return data.skip(1) if name == 'south' else data

    plan = process.plan.with_availability(
        lambda r, name: name != 'south' or r > 3
    )
    with self.assertRaisesRegex(
        _failures.ClientComputationError, "'south' failed: a silo has another"
    ):
      silo_run.run(self.root, plan=plan, clients=Torn())
    result = silo_run.run(self.root, plan=plan)
    self.assertEqual(result.rounds_done, _NUM_ROUNDS)
    self.assertEqual(
        [sum(name in c for c in self.cohorts) for name in plan.silos],
        # Round 4 was begun twice.
        [9, 6, 9],
    )

  def test_other_order_of_records_is_refused_where_it_counts(self):
    # Each process asks for the data once, and gets another order.
    class Permuted:
      client_ids = list(silo_run.BUDGETS)

      def create_tf_dataset_for_client(self, name):
        size = silo_run.BUDGETS[name].num_records
        order = np.random.default_rng(len(asked)).permutation(size)
        asked.append(name)
        x = np.ones([size, silo_run.SIZE], np.float32) * order[:, None]
        return [(x[:5], x[:5, 0]), (x[5:], x[5:, 0])]

    asked = []
    for name, is_refused in (
        ('one_pass', True), ('localized', True), ('fixed', False)
    ):
      process, clients = _BUILDERS[name](), Permuted()
      folder = self.root / name
      options = dict(plan=process.plan, clients=clients)
      silo_run.run(folder, process, total_rounds=1, **options)
      if is_refused:
        with self.assertRaisesRegex(
            _checks.PrivacyRefusedError, 'other records than before'
        ):
          silo_run.run(folder, process, **options)
      else:
        silo_run.run(folder, process, **options)

  def test_order_is_fixed_before_a_silo_sends_anything(self):
    # Round 1 fails because one silo brings a record too many. The messages of
    # the others may have been sent.
    process = _BUILDERS['one_pass']()
    plan = process.plan

    def open_loop(**rows):
      return program.Loop(
          process, _Rows(rows), plan=plan, output_dir=self.root, delta=1e-3
      )

    south = np.arange(31)
    with open_loop(south=south) as loop:
      with self.assertRaisesRegex(
          _failures.ClientComputationError, "'south' failed: a silo has another"
      ):
        loop.next()
    north = np.arange(21)[::-1]
    with open_loop(north=north) as loop:
      for _ in range(2):  # Also in the same process.
        with self.assertRaisesRegex(
            _checks.PrivacyRefusedError, "'north' has other records than before"
        ):
          loop.next()
    # The silo that failed has sent nothing, so it may correct its records.
    with open_loop() as loop:
      loop.next()
    with open_loop(south=south) as loop:
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, "'south' has other records than before"
      ):
        loop.next()

  def test_order_is_fixed_also_where_no_round_was_saved(self):
    process = _BUILDERS['one_pass']()

    def run(rows):
      return silo_run.run(
          self.root, process, plan=process.plan, clients=_Rows(rows)
      )

    # The next step is `process.next`.
    keep = kills.at_call(
        write_ahead.WriteAheadRecord.keep_data, 1, is_after=True
    )
    with mock.patch.object(write_ahead.WriteAheadRecord, 'keep_data', keep):
      with self.assertRaises(kills.Killed):
        run({})
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, "'west' has other records than before"
    ):
      run({'west': np.arange(24)[::-1]})
    self.assertEqual(run({}).rounds_done, 4)

  @parameterized.parameters('one_pass', 'localized', 'fixed')
  def test_records_that_a_map_shuffles_are_read_once(self, name):
    plan = toy.plan_of(_BUILDERS[name])
    cohorts = cohorts_lib.build(plan, _Rows({}, _shuffled), schedule_seed=0)
    cohorts.begin('run')
    found = collections.defaultdict(set)
    before = cohorts.to_bytes()
    for round_index in (1, 2, 2, 3):
      selection = cohorts.select(round_index)
      for silo, data in zip(selection.ids, selection.read(), strict=True):
        for _ in range(2):
          batches = [batch[0] for batch in data[terms_lib.EXAMPLES]]
          found[silo].add(np.concatenate(batches)[:, 0].tobytes())
      # As after a round that failed in the same process.
      cohorts.restore(before)
    self.assertEqual(
        {silo: len(orders) == 1 for silo, orders in found.items()},
        dict.fromkeys(silo_run.RECORDS, name != 'fixed'),
    )

  def test_run_with_records_that_a_map_shuffles(self):
    process = _BUILDERS['one_pass']()
    clients = _Rows({}, _shuffled)
    run = functools.partial(
        silo_run.run, self.root, process, plan=process.plan, clients=clients
    )
    self.assertEqual(run(total_rounds=2).rounds_done, 2)
    # Another process draws another order.
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'other records than before'
    ):
      run()

  def test_arrays_that_their_owner_changes_are_copied(self):
    plan = toy.plan_of(_BUILDERS['one_pass'])
    x = np.arange(21, dtype=np.float32)[:, None].repeat(silo_run.SIZE, axis=1)
    clients = _Rows({})
    clients.create_tf_dataset_for_client = lambda name: [(x, x[:, 0])]
    plan = plan.with_availability(lambda r, name: name == 'north')
    cohorts = cohorts_lib.build(plan, clients, schedule_seed=0)
    cohorts.begin('run')
    cohorts.select(1).read()
    x[:] = x[::-1].copy()
    (data,) = cohorts.select(2).read()
    self.assertEqual(data[terms_lib.EXAMPLES][0][0][0, 0], 0)

  def test_tensors_in_memory_are_not_read_into_a_list(self):
    records = tf.data.Dataset.from_tensor_slices(np.zeros([9, 2], np.float32))
    cut = records.skip(1).take(5)
    for data in (records.batch(4), cut.batch(2).prefetch(1)):
      self.assertIs(terms_lib.read_once(data), data)
    mapped = records.map(lambda x: x)
    for data in (mapped.batch(4), records.shard(2, 0).batch(4)):
      self.assertIsInstance(terms_lib.read_once(data), list)
    for data in (records.shuffle(9).batch(4), records.repeat(2).batch(4)):
      with self.assertRaises(_checks.ArgumentError):
        terms_lib.read_once(data)

  def test_records_are_counted_where_all_parts_agree(self):
    x, y = np.zeros([3, 2]), np.zeros(3)
    for batches, expected in (
        ([], 0),
        ([(x, y), (x[:1], y[:1])], 4),
        ([(x, y[:2])], None),
    ):
      _, found = terms_lib.digest_of_records(batches)
      self.assertEqual(found, expected)

  def test_other_absences_are_another_run(self):
    silo_run.run(self.root, total_rounds=1)
    with self.assertRaisesRegex(_checks.ArgumentError, 'absences'):
      silo_run.run(self.root, plan=silo_run.build_process().plan)


class CohortsTest(parameterized.TestCase):
  """The keys that silos bring, from `SiloCohorts`."""

  def _cohorts(self, kind):
    found = cohorts_lib.build(
        kind.absent_plan(kind.build_process()),
        silo_run.Clients(kind.RECORDS),
        schedule_seed=0,
    )
    self.assertIsInstance(found, silos_training.SiloCohorts)
    found.begin('run')
    return found

  def _keys(self, selection):
    return {
        name: tuple(data[terms_lib.TERMS][0][terms_lib.KEY].tolist())
        for name, data in zip(selection.ids, selection.read(), strict=True)
    }

  @parameterized.named_parameters(*_KINDS)
  def test_keys_are_of_the_silo_and_of_the_run(self, kind):
    first, second = self._cohorts(kind), self._cohorts(kind)
    by_silo = collections.defaultdict(set)
    for round_index in range(1, _NUM_ROUNDS + 1):
      for name, key in self._keys(first.select(round_index)).items():
        by_silo[name].add(key)
    self.assertLen(by_silo, 3)
    self.assertEqual({len(keys) for keys in by_silo.values()}, {1})
    keys = set().union(*by_silo.values())
    self.assertLen(keys, 3)
    # Zeros would stand for no key at all.
    self.assertNotIn((0, 0), keys)
    self.assertNoCommonElements(
        keys, self._keys(second.select(1)).values()
    )

  @parameterized.named_parameters(*_KINDS)
  def test_restored_goes_on_with_the_same_keys(self, kind):
    found, again = self._cohorts(kind), self._cohorts(kind)
    found.select(1)
    expected = [self._keys(found.select(t)) for t in (2, 3)]
    # Not those that it had of its own.
    again.select(1).read()
    again.restore(found.to_bytes())
    for round_index, keys in zip((2, 3), expected):
      self.assertEqual(self._keys(again.select(round_index)), keys)
    self.assertEqual(again.to_bytes(), found.to_bytes())

  def test_rounds_that_have_begun_are_told_to_the_plan(self):
    found = self._cohorts(silo_run)
    self.assertEqual(found.observed(5).num_rounds, 5)


class KeyTest(parameterized.TestCase):
  """What the sum of a round follows from."""

  def _opened(self, process, rows, keys, state=None):
    """Returns the model after a round; it moves by the opened sum."""
    data = []
    for name, key in zip(secure_sum_run.RECORDS, keys):
      examples = (rows[name], np.zeros(len(rows[name]), np.float32))
      data.append(
          terms_lib.silo_data(process.plan.terms[name], [examples], key)
      )
    state = process.initialize() if state is None else state
    return toy.flat(
        process.get_model_weights(process.next(state, data).state)
    )

  def _rows(self):
    return {
        name: np.zeros([count, secure_sum_run.SIZE], np.float32)
        for name, count in secure_sum_run.RECORDS.items()
    }

  def test_same_key_and_data_repeat_and_nothing_else_does(self):
    process = secure_sum_run.build_process()
    rows = self._rows()
    keys = [
        randomizers.noise_key(bytes([index]) * 16) for index in range(3)
    ]
    first = self._opened(process, rows, keys)
    np.testing.assert_array_equal(first, self._opened(process, rows, keys))
    # Of a step far below the noise, in one record of block 0.
    other = self._rows()
    other['south'][1, 0] = 1e-6
    changed = self._opened(process, other, keys)
    # Not in the one coordinate alone: all noise of the silo is another.
    self.assertGreater(np.min(np.abs(changed - first)), 0)
    # A record of another block is not looked at in this round.
    other = self._rows()
    other['south'][5, 0] = 1e-6
    np.testing.assert_array_equal(first, self._opened(process, other, keys))
    # Another model has other noise, too.
    moved = process.set_model_weights(
        process.initialize(),
        tff.learning.models.ModelWeights(
            [
                np.full([secure_sum_run.SIZE - 1, 1], 1e-6, np.float32),
                np.full([1], 1e-6, np.float32),
            ],
            [],
        ),
    )
    again = self._opened(process, rows, keys, moved)
    self.assertGreater(np.min(np.abs(again - first)), 1e-4)

  def test_another_round_of_the_same_model_has_other_noise(self):
    process, rows = secure_sum_run.build_process(), self._rows()
    keys = [
        randomizers.noise_key(bytes([index]) * 16) for index in range(3)
    ]
    state = process.initialize()
    found = []
    for round_index in (0, 1, 2):
      changed = dict(state.client_work, round=np.int64(round_index))
      found.append(self._opened(process, rows, keys, _with(state, changed)))
    # Records of every block are zeros: all that moves the model is noise.
    for first, again in itertools.combinations(found, 2):
      self.assertGreater(np.min(np.abs(again - first)), 1e-4)

  def test_without_a_key_nothing_repeats(self):
    process = secure_sum_run.build_process()
    found = [
        self._opened(process, self._rows(), [None] * 3) for _ in range(2)
    ]
    # Noise of integers: a coordinate may be the same by chance.
    self.assertLess(np.mean(found[0] == found[1]), 0.5)

  def test_silos_with_other_keys_have_other_noise(self):
    process = secure_sum_run.build_process()
    sums = process.plan.sums
    # Were the noise of all three the same, it would add up to nine times the
    # variance of one, instead of three times.
    rows_type = tff.TensorType(np.float32, [sums.records_per_silo, 4000])
    factory = sum_factory.IntegerVectorSumFactory(
        sums, l2_norm_clip=1.0, max_silos=3
    )
    aggregation = factory.create(tff.to_type({
        sum_factory.ROWS: rows_type,
        sum_factory.KEY: tff.TensorType(np.int64, [2]),
    }))
    value = lambda index: {
        sum_factory.ROWS: np.zeros(rows_type.shape, np.float32),
        sum_factory.KEY: np.array([7, index], np.int64),
    }
    mean = lambda *indices: np.asarray(
        aggregation.next(
            aggregation.initialize(), [value(i) for i in indices]
        ).result,
        np.float64,
    )
    variance = np.mean(mean(0, 1, 2) ** 2)
    expected = sums.noise_variance(1.0, num_silos=3)
    # Noise and nothing else: zero is on the grid.
    self.assertBetween(variance, 0.85 * expected, 1.15 * expected)
    same = np.mean(mean(5, 5, 5) ** 2)
    self.assertGreater(same, 2 * expected)
    np.testing.assert_array_equal(mean(0, 1), mean(0, 1))


class RefusalTest(parameterized.TestCase):

  def _refused(self, process, plan, reason, **kwargs):
    root = pathlib.Path(
        self.enterContext(tempfile.TemporaryDirectory())
    ) / 'run'
    with self.assertRaisesRegex(
        (_checks.PrivacyRefusedError, _checks.ArgumentError), reason
    ):
      silo_run.run(root, process, plan=plan, **kwargs)
    self.assertFalse(root.exists())

  def test_another_plan(self):
    process = silo_run.build_process()
    other = dataclasses.replace(process.plan, terms={
        name: dataclasses.replace(terms, scale=2.0)
        for name, terms in process.plan.terms.items()
    })
    self._refused(process, other, 'was built from the plan')
    self._refused(
        process, tff_dp.NonPrivatePlan(
            tff_dp.participation.MinSeparation(2, min_index_gap=1), 2
        ), 'silos cannot be trained under a NonPriv',
    )

  def test_process_without_a_plan_or_with_that_of_another_process(self):
    plan = silo_run.build_process().plan
    fed_avg = tff.learning.algorithms.build_unweighted_fed_avg(
        small_model.build(), tff.learning.optimizers.build_sgdm(0.1)
    )
    self._refused(fed_avg, plan, "not built from a plan.*'silos'\n(.*\n)*.*sil")
    fed_avg.plan = plan
    self._refused(fed_avg, plan, 'adds no noise of a plan(.*\n)*.*silos.build_')

  def test_process_whose_graph_is_of_another_plan(self):
    # The same number of rounds, but a batch of one record a step.
    plan = toy.plan_of(
        lambda: silos.build_isrl_local_sgd(
            _model(),
            num_rounds=_NUM_ROUNDS,
            num_local_steps=1,
            learning_rate=0.5,
            **silo_run.arguments(),
        )
    )
    process = silo_run.build_process()
    with mock.patch.object(process, 'plan', plan):
      self._refused(process, plan, 'adds other noise')

  def test_state_of_another_process(self):
    process = silo_run.build_process()
    certificate = certification.certify(process, process.plan)
    state = process.initialize()
    certificate.check(state, None, rounds_done=0)
    for name in ('round', 'release_id'):
      changed = dict(state.client_work)
      changed[name] = changed[name] + 1
      other = _with(state, changed)
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'after round 0'):
        certificate.check(other, None, rounds_done=0)

  def test_metrics_without_noise(self):
    process = silos.build_noisy_mb_sgd(
        _model(),
        num_rounds=2,
        sampling=silo_sampling.PoissonSampling(5),
        learning_rate=0.5,
        allow_unprotected_metrics=True,
        **silo_run.arguments(),
    )
    self._refused(process, process.plan, 'clients report .*without noise')

  def test_messages_whose_noise_is_not_marked(self):
    with mock.patch.object(
        release_marks.Release, 'mark', lambda self, noised: noised
    ):
      process = _BUILDERS['fixed']()
    self._refused(process, process.plan, 'adds no noise of a plan.*model_weigh')

  def test_who_is_there_is_all_that_is_known_without_noise(self):
    process = silo_run.build_process()
    for is_public in (True, False):
      flow = data_flow.follow(process.next, presence_is_public=is_public)
      traced = [path for path, traces in flow.leaves.items() if traces]
      self.assertEqual(not traced, is_public)

  @parameterized.parameters(
      (['north', 'south', 'west', 'east'], r"Missing: \[\]. Unknown: \['east'\]"),
      (['north', 'south'], r"Missing: \['west'\]. Unknown: \[\]"),
  )
  def test_names_of_silos(self, names, reason):
    clients = silo_run.Clients()
    clients.client_ids = names
    self._refused(
        silo_run.build_process(), silo_run.build_process().plan, reason,
        clients=clients,
    )

  def test_only_wrong_names_of_silos_are_named(self):
    process, clients = silo_run.build_process(), silo_run.Clients()
    plan = process.plan.with_availability(lambda r, silo: silo != 'west')
    clients.client_ids = ['south', 'west']
    self._refused(process, plan, r"Missing: \['north'\]", clients=clients)

  def test_seed_of_a_schedule(self):
    process = silo_run.build_process()
    self._refused(process, process.plan, 'schedule_seed=1', schedule_seed=1)

  def test_sums_with_more_noise_or_of_another_kind(self):
    process = secure_sum_run.build_process()
    other = process.plan.calibrated(epsilon=1.0, delta=1e-6)
    self._refused(process, other, 'was built from the plan')
    self._refused(process, silo_run.build_process().plan, 'was built from')
    with self.assertRaisesRegex(_checks.ArgumentError, 'the facts of the pro'):
      process.with_plan(other)

  def test_sums_whose_graph_has_other_noise(self):
    process = secure_sum_run.build_process()
    plan = toy.plan_of(lambda: secure_sum_run.build_process(epsilon=20.0))
    with mock.patch.object(process, 'plan', plan):
      self._refused(process, plan, 'adds other noise')

  def test_sums_whose_noise_is_not_marked(self):
    with mock.patch.object(
        release_marks.Release, 'mark', lambda self, noised: noised
    ):
      process = secure_sum_run.build_process(gamma=5.0)
    self._refused(process, process.plan, 'adds no noise of a plan')

  def test_sum_that_is_not_secure(self):
    # Then the server may see each message, with the share of noise in it.
    with mock.patch.object(
        tff,
        'federated_secure_sum_bitwidth',
        lambda value, bits: tff.federated_sum(value),
    ):
      process = secure_sum_run.build_process(gamma=6.0)
    self._refused(
        process, process.plan, 'without the noise of the plan.*federated_sum'
    )

  def test_fewer_silos_than_promised(self):
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'below the promised 2'
    ):
      secure_sum_run.build_process().plan.with_availability(
          lambda r, name: r != 3 or name == 'north'
      )


if __name__ == '__main__':
  absltest.main()
