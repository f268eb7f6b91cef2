# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Budgets, ledgers, metrics and guarantees of the silos' processes."""

import dataclasses
import functools
import math

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting
import numpy as np
import pytest
from scipy import stats
import tensorflow as tf

from tests.aggregators import flows
from tests.systems.silos import toy
from tff_dp import _checks
from tff_dp import execution
from tff_dp import silos
from tff_dp.accounting import accountants
from tff_dp.systems.silos import metrics as metrics_lib
from tff_dp.systems.silos import silo_calibration
from tff_dp.systems.silos import silo_sampling

_SIZE = 4
_UNEQUAL = {
    'small': toy.SiloBudget(40, 1.0, 1e-3),
    'large': toy.SiloBudget(300, 4.0, 1e-5),
    'default': toy.SiloBudget(60, 2.0),
}
_BATCHES = {'small': 10.0, 'large': 30.0, 'default': 15.0}


_GENERATOR = tf.random.Generator.from_seed(1)
_MEAN = tf.Variable(1.0)
_LABELS = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(
        tf.constant([0, 1], tf.int64), tf.constant([0.0, 1.0])
    ),
    0.0,
)


def setUpModule():
  execution.set_default_context()


def _poisson(**changes):
  return toy.build_sgd(
      toy.build_model(_SIZE),
      **dict(
          silos=_UNEQUAL,
          num_rounds=3,
          sampling={
              name: silo_sampling.PoissonSampling(batch)
              for name, batch in _BATCHES.items()
          },
      )
      | changes,
  )


def _one_pass(**changes):
  return silos.build_one_pass_accelerated_mb_sgd(
      toy.build_model(_SIZE),
      **dict(silos=_UNEQUAL, num_rounds=4, l2_norm_clip=1.0, gamma=2.0)
      | changes,
  )


@functools.cache
def _void():
  """Returns a process with all that is for tests only."""
  return _poisson(
      allow_unprotected_metrics=True,
      insecure_seed=3,
      num_rounds=2,
      noise_stddev=1.0,
      sampling=silo_sampling.FixedSize(10),
  )


_poisson_process = functools.cache(_poisson)
_one_pass_process = functools.cache(_one_pass)


def _data(names=tuple(_UNEQUAL)):
  return {
      name: toy.examples(np.ones([_UNEQUAL[name].num_records, _SIZE]), batch=64)
      for name in names
  }


class BudgetTest(parameterized.TestCase):

  def test_noise_of_a_silo_follows_from_its_own_numbers_alone(self):
    process = _poisson_process()
    for name, budget in _UNEQUAL.items():
      sampling = silo_sampling.PoissonSampling(_BATCHES[name])
      (phase,) = process.plan.terms[name].phases
      self.assertEqual(
          phase.noise_stddev,
          silo_calibration.calibrate_noise(
              sampling,
              num_records=budget.num_records,
              num_rounds=3,
              l2_norm_clip=1.0,
              epsilon=budget.epsilon,
              delta=budget.delta,
          ),
      )
    alone = toy.plan_of(
        lambda: _poisson(
            silos={'small': _UNEQUAL['small']},
            sampling=silo_sampling.PoissonSampling(10.0),
        )
    )
    self.assertEqual(alone.terms['small'], process.plan.terms['small'])

  def test_guarantee_keeps_every_budget_and_names_the_worst(self):
    for process in (_poisson_process(), _one_pass_process()):
      plan = process.plan
      for name, row in plan.by_silo().items():
        budget = _UNEQUAL[name]
        self.assertEqual(row['epsilon'], plan.epsilon(member=name))
        self.assertLessEqual(row['epsilon'], budget.epsilon)
        self.assertGreater(row['epsilon'], 0.99 * budget.epsilon)
        self.assertEqual(row['delta'], budget.delta)
      self.assertEqual(plan.epsilon(), plan.epsilon(member='large'))
    self.assertEqual(_UNEQUAL['default'].delta, 1 / 60**2)

  def test_blocks_of_one_pass_are_as_large_as_each_silo_allows(self):
    batches = {
        name: terms.phases[0].sampling.batch
        for name, terms in _one_pass_process().plan.terms.items()
    }
    self.assertEqual(batches, {'small': 10, 'large': 75, 'default': 15})

  def test_phases_of_localization_each_have_the_whole_budget(self):
    plan = toy.plan_of(
        lambda: silos.build_localized_mb_sgd(
            toy.build_model(_SIZE),
            silos=_UNEQUAL,
            lipschitz=1.0,
            regularization=0.1,
            rounds_per_phase=[3, 2],
            smoothness=1.0,
            batch_share=0.5,
        )
    )
    for name, budget in _UNEQUAL.items():
      for phase, rounds in zip(plan.terms[name].phases, (3, 2)):
        epsilon = silo_sampling.account_noise(
            silo_sampling.PoissonSampling(phase.num_records / 2),
            num_records=phase.num_records,
            num_rounds=rounds,
            l2_norm_clip=1.0,
            sigma=phase.noise_stddev,
            delta=budget.delta,
        )
        self.assertBetween(epsilon, 0.99 * budget.epsilon, budget.epsilon)

  def test_local_sgd_pays_for_every_step_on_one_record(self):
    budget = _UNEQUAL['small']
    plan = toy.plan_of(
        lambda: silos.build_isrl_local_sgd(
            toy.build_model(_SIZE),
            silos={'small': budget},
            num_rounds=2,
            num_local_steps=2,
            l2_norm_clip=1.0,
            learning_rate=0.1,
        )
    )
    self.assertEqual(
        plan.terms['small'].phases[0].noise_stddev,
        silo_calibration.calibrate_noise(
            silo_sampling.FixedSize(1),
            num_records=budget.num_records,
            num_rounds=4,
            l2_norm_clip=1.0,
            epsilon=budget.epsilon,
            delta=budget.delta,
        ),
    )
    ledger = plan.ledger(delta=1e-3)
    for round_index in (1, 2):
      ledger.record(round_index, members=['small'])
    self.assertLen(ledger.plan.messages('small'), 4)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'beyond the plan of 2 rounds'
    ):
      ledger.record(3, members=['small'])
    self.assertLessEqual(ledger.plan.epsilon(), budget.epsilon)
    # A budget with room for one step but not for both of a round.
    allowed = plan.terms['small'].epsilon(budget.delta, num_messages=(3,))
    other = dataclasses.replace(
        plan, silos={'small': dataclasses.replace(budget, epsilon=allowed)}
    )
    ledger = other.ledger(delta=1e-3)
    ledger.record(1, members=['small'])
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'above its budget'
    ):
      ledger.record(2, members=['small'])
    self.assertEqual(ledger.rounds_recorded, 1)

  def test_weights_leave_epsilon_alone(self):
    weighted = {
        name: toy.SiloBudget(
            budget.num_records, budget.epsilon, budget.delta, weight
        )
        for (name, budget), weight in zip(_UNEQUAL.items(), (0.5, 0.3, 0.2))
    }
    plan = toy.plan_of(lambda: _one_pass(silos=weighted))
    for name, row in _one_pass_process().plan.by_silo().items():
      self.assertEqual(plan.by_silo()[name], row)
    self.assertAlmostEqual(plan.terms['small'].scale, 1.5)


def _without_order():
  options = tf.data.Options()
  options.deterministic = False
  return options


def _flat(data, inner):
  return data.flat_map(lambda _: inner)


def _parts(x, y):
  """Returns a batch whose rows a random operation has ordered anew."""
  order = tf.argsort(tf.random.uniform(tf.shape(y), seed=1))
  return tf.gather(x, order), tf.gather(y, order)


def _augmented(x, y):
  """Returns a record with noise that is the same in every round."""
  noise = tf.random.stateless_normal(tf.shape(x), [3, tf.cast(y, tf.int32)])
  tf.debugging.assert_less(y, 2.0)
  tf.print('read', output_stream='file:///dev/null')
  mean = tf.while_loop(lambda i: i < 1.0, lambda i: i + _MEAN, [0.0])[0]
  return tf.cond(y > 5, lambda: x, lambda: x + noise - mean), _LABELS.lookup(
      tf.cast(y, tf.int64)
  )


def _drawn(*_):
  return tf.random.uniform([], 0, 2, tf.int64)


class OrderTest(parameterized.TestCase):
  """Where positions say which block a record belongs to."""

  @parameterized.named_parameters(
      ('shuffled', lambda data: data.shuffle(60)),
      (
          'shuffled_inside',
          lambda data: data.batch(4).flat_map(
              lambda *batch: tf.data.Dataset.from_tensor_slices(batch).shuffle(
                  4
              )
          ),
      ),
      (
          'mapped_without_order',
          lambda data: data.map(
              lambda x, y: (x, y), num_parallel_calls=2, deterministic=False
          ),
      ),
      (
          'interleaved_without_order',
          lambda data: data.batch(4).interleave(
              lambda *batch: tf.data.Dataset.from_tensor_slices(batch),
              num_parallel_calls=2,
              deterministic=False,
          ),
      ),
      (
          'from_python',
          lambda data: tf.data.Dataset.from_generator(
              lambda: iter(data), output_signature=data.element_spec
          ),
      ),
      ('order_given_up', lambda data: data.with_options(_without_order())),
      (
          'order_given_up_inside',
          lambda data: data.batch(4).flat_map(
              lambda *batch: tf.data.Dataset.from_tensor_slices(
                  batch
              ).with_options(_without_order())
          ),
      ),
      (
          'shuffled_outside_of_the_function',
          lambda data: _flat(tf.data.Dataset.range(1), data.shuffle(60)),
      ),
      (
          'drawn_from_two',
          lambda data: tf.data.Dataset.sample_from_datasets(
              [data.take(30), data.skip(30)]
          ),
      ),
      (
          'chosen_by_draws',
          lambda data: tf.data.Dataset.choose_from_datasets(
              [data.take(30), data.skip(30)],
              tf.data.Dataset.random().map(lambda r: tf.abs(r) % 2).take(60),
          ),
      ),
      ('ordered_in_a_map', lambda data: data.batch(60).map(_parts).unbatch()),
      (
          'ordered_in_a_function_of_a_map',
          lambda data: data.batch(60).map(
              lambda x, y: tf.function(_parts)(x, y)
          ).unbatch(),
      ),
      (
          'ordered_in_a_map_inside',
          lambda data: data.batch(60).flat_map(
              lambda *batch: tf.data.Dataset.from_tensors(batch).map(_parts)
          ).unbatch(),
      ),
      (
          'ordered_in_a_scan',
          lambda data: data.batch(60).scan(
              0, lambda count, batch: (count + 1, _parts(*batch))
          ).unbatch(),
      ),
      (
          'ordered_by_a_generator',
          lambda data: data.batch(60).map(
              lambda x, y: (x, y + _GENERATOR.normal(tf.shape(y)))
          ).unbatch(),
      ),
      (
          'grouped_by_draws',
          lambda data: data.group_by_window(
              _drawn, lambda _, group: group.batch(4), window_size=4
          ).unbatch(),
      ),
      (
          'bucketed_by_draws',
          lambda data: data.bucket_by_sequence_length(
              lambda *part: tf.cast(_drawn(*part), tf.int32), [1], [4, 4]
          ).unbatch(),
      ),
  )
  def test_records_in_no_fixed_order_are_refused(self, change):
    records = tf.data.Dataset.from_tensor_slices(
        tuple(np.zeros([60, *shape], np.float32) for shape in ([_SIZE], []))
    )
    process = _one_pass_process()
    ordered = (
        records.batch(7),
        records.batch(7).prefetch(1).cache(),
        records.map(lambda x, y: (x, y), num_parallel_calls=2).batch(7),
        records.batch(7).interleave(
            lambda *batch: tf.data.Dataset.from_tensor_slices(batch)
        ).batch(7),
        # Functions of their arguments, of constants, and of what they read.
        records.map(_augmented).batch(7),
        records.batch(7).flat_map(
            lambda *batch: tf.data.Dataset.from_tensor_slices(batch).cache()
        ).batch(7),
        tf.data.experimental.from_variant(
            tf.data.experimental.to_variant(records.map(_augmented).batch(7)),
            records.batch(7).element_spec,
        ),
    )
    for data in ordered:
      process.client_data('default', data)
    for data in (change(records).batch(7), change(records).batch(7).cache()):
      with self.assertRaisesRegex(
          _checks.ArgumentError, 'examples=.*(Dataset|Options)'
      ):
        process.client_data('default', data)
      # Every record pays in every round, whatever its position.
      _poisson_process().client_data('default', data)

  def test_records_that_come_again_are_refused(self):
    once = tf.data.Dataset.from_tensor_slices(
        tuple(np.zeros([30, *shape], np.float32) for shape in ([_SIZE], []))
    )
    for process in (_one_pass_process(), _poisson_process()):
      process.client_data('default', once.repeat(1).batch(7))
      with self.assertRaisesRegex(_checks.ArgumentError, 'each record once'):
        process.client_data('default', once.repeat(2).batch(7))


def _ledger(process):
  return process.plan.ledger(delta=1e-3)


def _messages(ledger):
  """Returns how many messages each silo has paid for."""
  rounds = ledger.rounds_recorded
  return [
      ledger.plan.messages(name, num_rounds=rounds).size
      for name in ledger.plan.silos
  ]


class LedgerTest(parameterized.TestCase):

  def test_absent_silos_pay_nothing_and_cost_the_others_nothing(self):
    process = _one_pass_process()
    ledger, state = _ledger(process), process.initialize()
    for names in (tuple(_UNEQUAL), ('small', 'default'), (), ('small',)):
      state = process.next_round(state, _data(names), ledger=ledger).state
    self.assertEqual(state.client_work['round'], 3)
    self.assertEqual(_messages(ledger), [3, 1, 2])
    # Nobody was there in round 3: it has used no block.
    self.assertEqual(
        ledger.plan.messages('small', num_rounds=4).tolist(), [0, 1, 2]
    )
    for name, budget in _UNEQUAL.items():
      self.assertLessEqual(ledger.plan.epsilon(member=name), budget.epsilon)

  def test_silo_that_fails_mid_run_costs_the_others_one_round(self):
    process = _one_pass_process()
    ledger, state = _ledger(process), process.initialize()
    state = process.next_round(state, _data(), ledger=ledger).state
    # It has lost a record; and a round that began has been sent by the others.
    bad = _data() | {'small': toy.examples(np.ones([39, _SIZE]))}
    with self.assertRaisesRegex(Exception, 'another number of records'):
      process.next_round(state, bad, ledger=ledger)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'an earlier state'):
      process.next_round(state, _data(('large',)), ledger=ledger)
    state = process.skip_round(state)
    rest = ('large', 'default')
    for _ in range(2):
      state = process.next_round(state, _data(rest), ledger=ledger).state
    self.assertEqual(state.client_work['round'], 4)
    self.assertEqual(state.finalizer['step'], 3)
    self.assertEqual(_messages(ledger), [2, 4, 4])
    for name, budget in _UNEQUAL.items():
      self.assertLessEqual(ledger.plan.epsilon(member=name), budget.epsilon)

  def test_rewinding_is_refused_and_nothing_is_sent(self):
    process = _one_pass_process()
    ledger, start = _ledger(process), process.initialize()
    state = process.next_round(start, _data(), ledger=ledger).state
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'an earlier state'):
      process.next_round(start, _data(), ledger=ledger)
    self.assertEqual(_messages(ledger), [1, 1, 1])
    # Setting a model is no way round it: blocks go on.
    state = process.set_model_weights(state, process.get_model_weights(start))
    process.next_round(state, _data(), ledger=ledger)
    self.assertEqual(_messages(ledger), [2, 2, 2])

  def test_second_multi_pass_run_needs_books_of_its_own(self):
    process = _poisson_process()
    ledger, state = _ledger(process), process.initialize()
    for _ in range(3):
      state = process.next_round(state, _data(), ledger=ledger).state
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'an earlier state'):
      process.next_round(process.initialize(), _data(), ledger=ledger)
    # Two runs are two releases.
    event = process.plan.event(member='large')
    twice = accountants.epsilon(
        dp_accounting.ComposedDpEvent([event, event]),
        delta=_UNEQUAL['large'].delta,
        neighboring_relation='replace_one',
        method='pld',
    )
    self.assertGreater(twice, 1.2 * process.plan.epsilon(member='large'))

  def test_silo_beyond_its_budget_is_refused_and_the_others_go_on(self):
    process = _poisson_process()
    plan = process.plan
    allowed = plan.terms['small'].epsilon(
        _UNEQUAL['small'].delta, num_messages=(1,)
    )
    silos_now = dict(plan.silos) | {
        'small': dataclasses.replace(plan.silos['small'], epsilon=allowed)
    }
    process = process.with_plan(dataclasses.replace(plan, silos=silos_now))
    ledger, state = _ledger(process), process.initialize()
    state = process.next_round(state, _data(), ledger=ledger).state
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'silo small .* above its budget'
    ):
      process.next_round(state, _data(), ledger=ledger)
    self.assertEqual(_messages(ledger), [1, 1, 1])
    process.next_round(state, _data(('large', 'default')), ledger=ledger)
    self.assertEqual(_messages(ledger), [1, 2, 2])

  def test_ledger_of_another_plan_and_unknown_silo(self):
    process = _one_pass_process()
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'of the plan'):
      process.next_round(
          process.initialize(), _data(), ledger=_ledger(_poisson_process())
      )
    with self.assertRaisesRegex(_checks.ArgumentError, "silo='other'"):
      process.next_round(
          process.initialize(), {'other': []}, ledger=_ledger(process)
      )


class CalibratedTest(absltest.TestCase):

  def test_calibrated_plan_is_what_the_builder_would_make(self):
    process = _poisson_process()
    plan = process.plan.calibrated(epsilon=0.5, delta=1e-3)
    again = process.with_plan(plan)
    self.assertIs(again.next, process.next)
    for name, budget in _UNEQUAL.items():
      (phase,) = plan.terms[name].phases
      self.assertGreaterEqual(
          phase.noise_stddev,
          silo_calibration.calibrate_noise(
              phase.sampling,
              num_records=budget.num_records,
              num_rounds=3,
              l2_norm_clip=1.0,
              epsilon=0.5,
              delta=1e-3,
          ),
      )
    (terms,) = again.client_data('small', [])['terms']
    (phase,) = plan.terms['small'].phases
    np.testing.assert_array_equal(terms['noise_stddev'], [phase.noise_stddev])

  def test_other_graph_is_refused(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'the facts of the pro'):
      _poisson_process().with_plan(_one_pass_process().plan)


class VoidTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('metrics', dict(allow_unprotected_metrics=True), 'without noise'),
      ('seed', dict(insecure_seed=0), 'insecure_seed'),
      ('no_noise', dict(noise_stddev=0.0), 'add no noise'),
      (
          'one_silo_without_noise',
          dict(noise_stddev={'small': 1.0, 'large': 0.0, 'default': 1.0}),
          r"silos \['large'\] add no noise",
      ),
  )
  def test_guarantee_is_refused(self, changes, reason):
    plan = toy.plan_of(lambda: _poisson(**changes))
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, f'no ISRL-DP guarantee: .*{reason}'
    ):
      plan.refuse_if_void()
    self.assertEqual(plan.epsilon(), math.inf)

  def test_debug_seed_repeats_and_differs_between_silos_and_rounds(self):
    process = _void()
    rows = []
    for _ in range(2):
      runner = toy.Runner(process)
      for _ in range(2):
        rows.append(runner.round(_data(('small', 'default'))))
    np.testing.assert_array_equal(rows[0], rows[2])
    np.testing.assert_array_equal(rows[1], rows[3])
    self.assertGreater(np.abs(rows[0] - rows[1]).min(), 0)
    noise = rows[0] / [
        [process.plan.terms[name].phases[0].noise_stddev]
        for name in ('small', 'default')
    ]
    self.assertGreater(np.abs(noise[0] - noise[1]).max(), 0.1)


_NUM_LOSSES = 6


def _build_with_metrics(*, num_records, batch, noise_stddev):
  return silos.build_noisy_mb_sgd(
      toy.build_model(2, initial=np.ones(2)),
      silos={'only': toy.free(num_records)},
      num_rounds=1,
      sampling=silo_sampling.PoissonSampling(batch),
      l2_norm_clip=1.0,
      learning_rate=1.0,
      noise_stddev=noise_stddev,
      private_metrics=[
          silos.PrivateMetric(f'loss_{i}', 4.0, 0.1) for i in range(_NUM_LOSSES)
      ] + [
          silos.PrivateMetric(
              'zero', 2.0, 0.1, function=lambda output, label: tf.zeros([])
          )
      ],
  )


@functools.cache
def _with_metrics():
  return _build_with_metrics(num_records=8, batch=8.0, noise_stddev=1.0)


def _measured(*, rows, **terms):
  """Yields the metrics of a silo with other terms, in 20 first rounds."""
  plan = toy.plan_of(lambda: _build_with_metrics(**terms))
  process = _with_metrics().with_plan(plan)
  state = process.initialize()
  data = process.client_data('only', toy.examples(rows))
  for _ in range(20):
    yield process.next(state, [data]).metrics['client_work']['private']


class MetricsTest(parameterized.TestCase):

  def test_nothing_is_measured_by_default(self):
    runner = toy.Runner(_poisson_process())
    runner.round(_data())
    self.assertEmpty(runner.metrics['client_work'])
    self.assertEmpty(runner.metrics['finalizer'])

  def test_unprotected_metrics_are_marked(self):
    runner = toy.Runner(_void())
    runner.round(_data())
    train = runner.metrics['client_work']['not_covered']['train']
    self.assertEqual(train['num_examples'], 30)
    self.assertEqual(train['loss'], 0.0)

  def _metrics(self):
    return [
        silos.PrivateMetric('loss', upper_bound=4.0, share=0.05),
        silos.PrivateMetric(
            'positive',
            upper_bound=1.0,
            share=0.1,
            function=lambda output, label: tf.cast(label > 0, tf.float32),
        ),
    ]

  @pytest.mark.slow
  def test_private_metrics_are_means_within_their_noise(self):
    labels = np.where(np.arange(300) < 75, 1.0, -1.0).astype(np.float32)
    rows = np.zeros([300, _SIZE], np.float32)
    rows[:, 0] = 2.0  # The loss is 2 where the weights are 1.
    process = toy.build_sgd(
        toy.build_model(_SIZE, initial=np.ones(_SIZE)),
        silos={'only': toy.free(300)},
        num_rounds=1,
        sampling=silo_sampling.DisjointBlocks(300),
        noise_stddev=1e-6,
        private_metrics=self._metrics(),
    )
    runner = toy.Runner(process)
    runner.round({'only': [(rows, labels)]})
    private = runner.metrics['client_work']['private']
    self.assertAlmostEqual(private['loss'], 2.0, places=3)
    self.assertAlmostEqual(private['positive'], 0.25, places=3)

  def test_metrics_of_any_batch_are_divided_by_the_expected_size(self):
    batch = 4.0
    sizes = []
    for values in _measured(
        num_records=16, batch=batch, noise_stddev=1e-6, rows=np.zeros([16, 2])
    ):
      # Every record counts as -1, from the middle of the range.
      sizes.append((1.0 - values['zero']) * batch)
    np.testing.assert_allclose(sizes, np.round(sizes), atol=1e-3)
    self.assertGreater(np.ptp(sizes), 0.5)
    self.assertBetween(np.mean(sizes), 0.5 * batch, 1.5 * batch)

  def test_gradient_and_metrics_together_cost_what_the_gradient_alone_did(self):
    alone = _poisson_process()
    plan = toy.plan_of(lambda: _poisson(private_metrics=self._metrics()))
    self.assertEqual(plan.by_silo(), alone.plan.by_silo())
    for name, terms in plan.terms.items():
      (phase,), ((loss, positive),) = terms.phases, terms.metric_stddevs
      (before,) = alone.plan.terms[name].phases
      # |difference / noise|^2 of the worst pair, in units of the batch.
      together = (
          (2 * 1.0 / phase.noise_stddev) ** 2
          + (4.0 / loss) ** 2
          + (1.0 / positive) ** 2
      )
      self.assertAlmostEqual(
          together * (before.noise_stddev / 2) ** 2, 1.0, places=9
      )

  def test_metric_leaves_with_its_noise_clipped_and_without_nans(self):
    stddev = 0.05
    # Losses of -inf..1e9 count as 0 or 4, a NaN as 0: the mean is 2.
    first = np.array([1e9, 5.0, 4.0, -1e9, np.nan, 0.0, -3.0, 1e3])
    rows = np.stack([first, 0 * np.ones(8)], axis=1)
    values = [
        [found[f'loss_{i}'] for i in range(_NUM_LOSSES)]
        for found in _measured(
            num_records=8, batch=8.0, noise_stddev=stddev, rows=rows
        )
    ]
    expected = 4.0 * stddev / (2 * 1.0 * np.sqrt(0.1))
    squares = np.sum((np.array(values) - 2.0) ** 2) / expected**2
    self.assertBetween(squares, *stats.chi2.interval(1 - 1e-7, np.size(values)))

  def test_only_noised_values_flow_to_the_server(self):
    sent = flows.to_server(_with_metrics().next)
    self.assertEqual(
        {str(type_spec) for _, type_spec in sent},
        {
            'int32',
            f'float32[{_NUM_LOSSES + 1}]',
            '<float32[1,1],float32[1]>',
        },
    )

  @parameterized.named_parameters(
      ('shares', [(1.0, 0.6), (1.0, 0.5)], 'add up to less than 1'),
      ('names', [(1.0, 0.1), (1.0, 0.1)], 'different names'),
  )
  def test_metrics_that_do_not_fit_together(self, metrics, message):
    built = [
        silos.PrivateMetric(f'm{i}' if 'add' in message else 'm', bound, share)
        for i, (bound, share) in enumerate(metrics)
    ]
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      metrics_lib.split_noise(1.0, l2_norm_clip=1.0, metrics=built)

  @parameterized.parameters(
      (dict(name=''), 'name='),
      (dict(upper_bound=0.0), 'upper_bound=0.0'),
      (dict(share=1.0), 'share=1.0'),
  )
  def test_bad_metrics_are_named(self, changes, message):
    arguments = dict(name='loss', upper_bound=1.0, share=0.1) | changes
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      silos.PrivateMetric(**arguments)


if __name__ == '__main__':
  absltest.main()
