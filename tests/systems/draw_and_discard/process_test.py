# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the federated process."""

import dataclasses
import functools
import itertools
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import stats
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import DrawAndDiscardPlan
from tff_dp import execution
from tff_dp.learning import linear_models
from tff_dp.systems.draw_and_discard.client_steps import ClientStep
from tff_dp.systems import draw_and_discard
from tff_dp.systems.draw_and_discard import computations
from tff_dp.systems.draw_and_discard import strategies

_FALSE_ALARM = 1e-6
_SIZE = 3  # Two features and the bias.


def setUpModule():
  execution.set_default_context()


@functools.cache
def _model():
  return linear_models.build_generalized_linear_model(
      'logistic', num_features=_SIZE - 1
  )


_STEP_FIELDS = {field.name for field in dataclasses.fields(ClientStep)}
_PLAN_FIELDS = {field.name for field in dataclasses.fields(DrawAndDiscardPlan)}


def _build(**changes):
  """Builds a process from fields of step and plan, and arguments."""
  given = dict(
      learning_rate=0.5,
      epsilon=2.0,
      privacy_unit='coordinate',
      num_params=_SIZE,
      num_instances=3,
      max_participations=4,
      num_rounds=100,
      server_seed=7,
  ) | changes

  def take(names):
    return {name: given.pop(name) for name in names & set(given)}

  step = ClientStep(**take(_STEP_FIELDS))
  return draw_and_discard.build_draw_and_discard(
      given.pop('model', None) or _model(),
      DrawAndDiscardPlan(step=step, **take(_PLAN_FIELDS)),
      **given,
  )


def _noiseless(**changes):
  return _build(
      **dict(mechanism=None, epsilon=None, privacy_unit='model') | changes
  )


def _client(label=1.0, num_examples=2):
  x = np.full([num_examples, _SIZE - 1], 0.5, np.float32)
  return [(x, np.full([num_examples], label, np.float32))]


def _flat(weights) -> np.ndarray:
  return np.concatenate([np.ravel(part) for part in weights.trainable])


# Built once: a process does not change, its state is a value.
_private = functools.cache(_build)
_plain = functools.cache(_noiseless)


@functools.cache
def _same():
  """Returns a process whose clients' reports stay with what they drew."""
  # Of a worker, some reports are put together twice, and some are left.
  with mock.patch.object(computations, '_LATEST', 3):
    return _noiseless(
        strategy=strategies.SAME,
        num_instances=40,
        predict='mean_predictions',
        allow_unprotected_metrics=True,
    )


class TypesTest(absltest.TestCase):

  def test_types(self):
    process = _private()
    state = process.initialize.type_signature.result.member
    self.assertEqual(
        state.instances, tff.TensorType(np.float32, [3, _SIZE])
    )
    self.assertEqual(
        process.get_model_weights.type_signature.result,
        process.set_model_weights.type_signature.parameter[1],
    )
    (_, data), result = (
        process.next.type_signature.parameter,
        process.next.type_signature.result,
    )
    self.assertIsInstance(data.member, tff.SequenceType)
    # Nothing of a client is in the metrics but what was noised.
    self.assertEmpty(result.metrics.member.client_work)


class ArgumentsTest(parameterized.TestCase):

  @parameterized.parameters(
      (dict(num_params=4), 'plan.num_params=4.*of the model, 3'),
      (dict(initial_variance='other'), 'initial_variance='),
      (dict(predict='other'), 'predict='),
      (dict(server_seed=-1), 'server_seed=-1'),
  )
  def test_bad_values_name_themselves(self, changes, message):
    with self.assertRaisesRegex(ValueError, message):
      _build(**changes)

  def test_something_else_than_a_plan(self):
    with self.assertRaisesRegex(ValueError, 'plan=None.*DrawAndDiscardPlan'):
      draw_and_discard.build_draw_and_discard(_model(), None)

  def test_models_that_cannot_be_one_vector_are_refused(self):
    def with_statistics():
      network = tf.keras.Sequential([
          tf.keras.layers.Input([2]), tf.keras.layers.BatchNormalization(),
      ])
      return tff.learning.models.from_keras_model(
          network,
          loss=tf.keras.losses.MeanSquaredError(),
          input_spec=(
              tf.TensorSpec([None, 2]), tf.TensorSpec([None, 2])
          ),
      )

    with self.assertRaisesRegex(ValueError, 'non-trainable'):
      _build(model=with_statistics)
    with self.assertRaisesRegex(ValueError, 'model='):
      _build(model=3)


class RoundsTest(parameterized.TestCase):

  def test_clients_draw_uniformly_each_for_itself(self):
    # With `same` and a gradient that is known, an instance says how many
    # clients had it: only its last report stays, so look at who moved.
    process = _same()
    state = process.initialize()
    after = process.next(state, [_client()] * 40).state
    moved = np.any(state.instances != after.instances, axis=1)
    # 40 draws out of 40 leave about 40/e untouched; all the same draw leaves
    # 39. The standard deviation is below 3.
    self.assertBetween(int(moved.sum()), 40 * (1 - np.exp(-1)) - 14, 39)

  def test_what_is_drawn_and_what_is_overwritten_are_independent(self):
    process = _plain()
    state = process.initialize()
    rows = np.float32([[10, 0, 0], [20, 0, 0], [30, 0, 0]])
    table = np.zeros([3, 3])
    for round_index in range(90):
      before = state._replace(instances=rows, round=round_index)
      # A gradient of at most 1 does not hide which instance it was.
      after = process.next(before, [_client()]).state.instances
      (j,) = np.flatnonzero(np.any(after != rows, axis=1))
      i = int(np.rint(after[j, 0] / 10)) - 1
      table[i, j] += 1
    statistic = np.sum((table - 10) ** 2 / 10)
    self.assertGreater(stats.chi2.sf(statistic, 8), _FALSE_ALARM)

  def test_one_client_at_a_time_is_a_plain_loop(self):
    process = _plain()
    state = process.initialize()
    # Closer together, where no sigmoid is so flat that nothing changes.
    state = state._replace(instances=np.float32(0.1) * state.instances)
    for label in (0.0, 1.0, 1.0):
      before = np.array(state.instances)
      state = process.next(state, [_client(label)]).state
      x = np.float32([0.5, 0.5, 1.0])
      candidates = [
          b - 0.5 * (1 / (1 + np.exp(-b @ x)) - label) * x for b in before
      ]
      # One row is another; the same step may have been written there before.
      errors = []
      for j, candidate in itertools.product(range(3), candidates):
        after = before.copy()
        after[j] = candidate
        errors.append(np.abs(state.instances - after).max())
      self.assertLess(min(errors), 1e-6)
    self.assertEqual(int(state.round), 3)

  def test_released_noise_through_the_process(self):
    # All instances are 0: one of them becomes a step and exactly one draw.
    process = _private()
    state = process.initialize()
    state = state._replace(instances=np.zeros_like(state.instances))
    noise = []
    for round_index in range(60):
      before = state._replace(round=round_index)
      after = process.next(before, [_client()]).state.instances
      (new,) = after[np.any(after != 0, axis=1)]
      # The gradient is (1/2 - 1) x.
      noise.append(new - 0.25 * np.float32([0.5, 0.5, 1.0]))
    scale = process.plan.step.noise_scale(_SIZE)
    self.assertAlmostEqual(scale, 2 * 0.5 / 2.0)
    pvalue = stats.kstest(
        np.ravel(noise), stats.laplace(scale=scale).cdf
    ).pvalue
    self.assertGreater(pvalue, _FALSE_ALARM)
    # 180 draws; mean size within 5.5 of its standard errors.
    self.assertLess(abs(np.abs(noise).mean() / scale - 1), 0.41)

  def test_empty_round_and_client_without_examples(self):
    process = _plain()
    state = process.initialize()
    output = process.next(state, [])
    np.testing.assert_array_equal(output.state.instances, state.instances)
    self.assertEqual(output.metrics['aggregator']['num_reports'], 0)
    output = process.next(state, [[]])
    self.assertEqual(output.metrics['aggregator']['num_stored'], 1)
    # Without noise it returns what it was given.
    for row in output.state.instances:
      self.assertIn(row.tolist(), np.asarray(state.instances).tolist())

  def test_refused_labels_do_not_move_a_model(self):
    process = _plain()
    state = process.initialize()
    state = state._replace(instances=np.ones_like(state.instances))
    output = process.next(state, [_client(7.0), _client(np.nan)])
    np.testing.assert_array_equal(output.state.instances, state.instances)

  def test_metrics_that_are_not_protected_are_under_their_name(self):
    process = _same()
    output = process.next(process.initialize(), [_client(), _client(7.0, 3)])
    train = output.metrics['client_work']['not_covered']['train']
    self.assertEqual(train['num_examples'], 5)
    self.assertEqual(train['num_refused'], 3)

  def test_many_reports_stay_with_what_their_clients_drew(self):
    process = _same()
    state = process.initialize()
    output = process.next(state, [[]] * 28)
    self.assertEqual(output.metrics['aggregator']['num_stored'], 28)
    # Who has no examples returns what it was given, to the same place.
    np.testing.assert_array_equal(output.state.instances, state.instances)

  # Two that differ in what the server is told, and batches; reports of the
  # others go the same way.
  @parameterized.parameters(*strategies.NAMES)
  @pytest.mark.slow(but=['0', '1', '5'])
  def test_every_strategy_writes_what_its_clients_returned(self, name):
    # The laws of the coins are in pool_test and law_test; here, that what a
    # client drew stays with what it returned, on the way to the server.
    has_batches = name == strategies.SERVER_BATCH
    if name == strategies.DRAW_AND_DISCARD:
      process = _plain()
    elif name == strategies.SAME:
      process = _same()
    else:
      process = _noiseless(
          strategy=name, num_instances=1 if has_batches else 3,
          server_batch=2 if has_batches else None,
      )
    num_models = process.plan.server.num_models
    rows = np.float32([[2, 0, 0], [0, -1, 0], [0, 0, 1]])[:num_models]
    if name == strategies.SAME:
      rows = np.random.default_rng(5).normal(size=[num_models, _SIZE])
      rows = rows.astype(np.float32)
    x = np.float32([[0.5, 0.25, 1], [0, 1, 1], [1, 0.5, 1]])
    y = np.float32([1, 0, 1])
    clients = [[(x[c : c + 1, :-1], y[c : c + 1])] for c in range(3)]
    # What client c makes of row i.
    step = np.float32([
        [b - 0.5 * (1 / (1 + np.exp(-b @ x[c])) - y[c]) * x[c] for b in rows]
        for c in range(3)
    ])
    # Sequences of clients whose reports were written over one another.
    orders = [
        order for size in range(1, 4)
        for order in itertools.permutations(range(3), size)
    ]
    num_changed = 0
    state = process.initialize()._replace(instances=rows)
    for round_index in range(4):
      after = process.next(state._replace(round=round_index), clients).state
      for j, (old, new) in enumerate(zip(rows, np.array(after.instances))):
        if np.array_equal(old, new):
          continue
        num_changed += 1
        if has_batches:
          pairs = itertools.combinations(range(3), 2)
          allowed = [step[list(pair), 0].mean(axis=0) for pair in pairs]
        elif name.startswith('average'):
          same = name == strategies.AVERAGE_SAME
          allowed = []
          for order in orders:
            for given in itertools.product(range(3), repeat=len(order)):
              if same and set(given) != {j}:
                continue
              value = old
              for c, i in zip(order, given):
                value = (value + step[c, i]) / 2
              allowed.append(value)
        elif name == strategies.SAME:
          allowed = step[:, j]
        else:
          allowed = step.reshape(-1, _SIZE)
        errors = np.abs(np.array(allowed) - new).max(axis=1)
        self.assertLess(errors.min(), 1e-6)
    # The coins are fixed by `server_seed`; draws of clients do not matter here.
    self.assertGreaterEqual(num_changed, 1)


class WeightsTest(parameterized.TestCase):

  def test_getter_is_the_mean_and_setter_restores_the_spread(self):
    process = _private()
    state = process.initialize()
    np.testing.assert_allclose(
        _flat(process.get_model_weights(state)),
        np.mean(state.instances, axis=0), atol=1e-5,
    )
    weights = process.get_model_weights(state)
    wanted = tff.learning.models.ModelWeights(
        tuple(np.ones_like(part) for part in weights.trainable), ()
    )
    # 3 sigma^2 / 2, with sigma^2 = 2 b^2 and b = 2 * 0.5 / 2.
    variance = 3 * 0.5 / 2
    total = 0.0
    for _ in range(100):
      # Every setting spreads anew.
      state = process.set_model_weights(state, wanted)
      total += np.sum((np.asarray(state.instances) - 1) ** 2) / variance
    # A variance that is wrong by a third is seen.
    self.assertBetween(
        stats.chi2.cdf(total, 100 * 3 * _SIZE), _FALSE_ALARM, 1 - _FALSE_ALARM
    )

  @pytest.mark.slow
  def test_without_noise_the_spread_is_that_of_epsilon_one(self):
    process = _noiseless(num_instances=400, learning_rate=0.1)
    variance = 400 / 2 * 8 * 0.1**2
    total = np.sum(np.asarray(process.initialize().instances) ** 2) / variance
    self.assertBetween(
        stats.chi2.cdf(total, 400 * _SIZE), _FALSE_ALARM, 1 - _FALSE_ALARM
    )

  def test_predictions(self):
    x = np.float32([[0.0, 1.0], [1.0, 1.0]])
    rows = np.float32([[4, 0, 0], [0, -4, 0], [0, 0, 2]])
    eta = rows[:, :2] @ x.T + rows[:, 2:]
    state = _plain().initialize()._replace(instances=rows)
    np.testing.assert_allclose(
        _plain().predict(state, x), 1 / (1 + np.exp(-eta.mean(axis=0))),
        rtol=1e-5,
    )
    # 40 rows of two kinds.
    state = _same().initialize()._replace(instances=np.repeat(rows[:2], 20, 0))
    np.testing.assert_allclose(
        _same().predict(state, x), (1 / (1 + np.exp(-eta[:2]))).mean(axis=0),
        rtol=1e-5,
    )

  @pytest.mark.slow
  def test_keras_model_takes_the_same_step(self):
    def model_fn():
      network = tf.keras.Sequential([
          tf.keras.layers.Input([2]),
          tf.keras.layers.Dense(
              1, kernel_initializer='zeros', bias_initializer='zeros'
          ),
          tf.keras.layers.Flatten(),
      ])
      return tff.learning.models.from_keras_model(
          network,
          loss=tf.keras.losses.BinaryCrossentropy(from_logits=True),
          input_spec=(
              tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])
          ),
      )

    process = _noiseless(model=model_fn, num_instances=1)
    data = [(np.full([2, 2], 0.5, np.float32), np.ones([2, 1], np.float32))]
    state = process.next(process.initialize(), [data]).state
    # Gradient (1/2 - 1) x, x = (1/2, 1/2, 1), at rate 1/2.
    np.testing.assert_allclose(
        state.instances, [[0.125, 0.125, 0.25]], rtol=1e-5
    )
    self.assertEqual(process.predict(state, data[0][0]).shape, (2, 1))


class PlanTest(parameterized.TestCase):

  def test_process_and_state_carry_the_plan(self):
    process, other = _private(), _plain()
    self.assertEqual(process.plan.num_params, _SIZE)
    state = process.initialize()
    number = int(process.plan.fingerprint, 16)
    self.assertEqual(int(state.release_id) % 2**64, number)
    self.assertNotEqual(
        int(other.initialize().release_id), int(state.release_id)
    )
    after = process.next(state, [_client()]).state
    self.assertEqual(int(after.release_id), int(state.release_id))

  def test_ledger_refuses_beyond_the_cap_and_charges_nobody_then(self):
    process = _private()
    ledger = process.plan.participation_ledger('a loop')
    for round_index in range(1, 4):
      ledger.commit(['a'], round_index)
    state = process.next_round(
        process.initialize(), {'a': _client(), 'b': _client()}, ledger=ledger
    ).state
    self.assertEqual(int(state.round), 1)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, '1 of 2 selected'):
      process.next_round(
          state, {'b': _client(), b'a': _client()}, ledger=ledger
      )
    self.assertEqual(ledger.num_participations(['a', 'b']), [4, 1])
    self.assertEqual(ledger.observed().max_participations, 4)

  def test_clients_pay_before_they_send(self):
    process = _private()
    ledger = process.plan.participation_ledger('a loop')
    state = process.initialize()
    broken = mock.Mock(side_effect=RuntimeError('lost'))
    with mock.patch.object(type(process), 'next', broken):
      with self.assertRaisesRegex(RuntimeError, 'lost'):
        process.next_round(state, {'a': _client()}, ledger=ledger)
      # The reports of the lost round may have arrived.
      self.assertEqual(ledger.num_participations(['a']), [1])
      for round_index in range(2, 5):
        ledger.commit(['a'], round_index)
      broken.reset_mock()
      with self.assertRaises(_checks.PrivacyRefusedError):
        process.next_round(state, {'a': _client()}, ledger=ledger)
      broken.assert_not_called()

  def test_ledger_must_have_seen_all_rounds_and_be_the_plans(self):
    process = _private()
    ledger = process.plan.participation_ledger('a loop')
    state = process.next_round(
        process.initialize(), {'a': _client()}, ledger=ledger
    ).state
    fresh = process.plan.participation_ledger('a loop')
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'after round 0'):
      process.next_round(state, {'a': _client()}, ledger=fresh)
    self.assertEqual(fresh.num_participations(['a']), [0])
    other = dataclasses.replace(process.plan, max_participations=50)
    with self.assertRaisesRegex(_checks.ArgumentError, 'ledger.pattern='):
      process.next_round(
          state, {'a': _client()}, ledger=other.participation_ledger('a loop')
      )


if __name__ == '__main__':
  absltest.main()
