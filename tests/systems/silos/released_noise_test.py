# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The noise in what leaves a silo, measured through the TFF process."""

import functools
import math
import warnings

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import stats
import tensorflow as tf
import tensorflow_federated as tff

from tests.aggregators import flows
from tests.systems.silos import toy
from tff_dp import execution
from tff_dp import silos
from tff_dp.execution import errors
from tff_dp.systems.silos import minibatch_schedules
from tff_dp.systems.silos import silo_sampling

pytestmark = pytest.mark.once

# Coordinates of a message; a round gives that many draws of the noise.
_SIZE = 3000
_CLIP = 0.5
_RECORDS = {'small': 12, 'large': 30}
_STDDEVS = {'small': 2.0, 'large': 0.25}
_FALSE_ALARM = 1e-7
_LOCAL_STEPS = 5
_POISSON = silo_sampling.PoissonSampling(4.0)


def setUpModule():
  execution.set_default_context()


def _arguments(**changes):
  return dict(
      silos={name: toy.free(count) for name, count in _RECORDS.items()},
      noise_stddev=_STDDEVS,
      l2_norm_clip=_CLIP,
      model_aggregator=toy.Tap(),
  ) | changes


def _make(name, **changes):
  """Returns the process of one algorithm, with 4 rounds."""
  model = toy.build_model(_SIZE)
  arguments = _arguments(**changes)
  if name == 'poisson':
    return toy.build_sgd(model, num_rounds=4, sampling=_POISSON, **arguments)
  if name == 'fixed':
    fixed = silo_sampling.FixedSize(4)
    return toy.build_sgd(model, num_rounds=4, sampling=fixed, **arguments)
  if name == 'one_pass':
    blocks = {
        silo: silo_sampling.DisjointBlocks(count // 4)
        for silo, count in _RECORDS.items()
    }
    return toy.build_sgd(model, num_rounds=4, sampling=blocks, **arguments)
  if name == 'accelerated':
    return silos.build_one_pass_accelerated_mb_sgd(
        model, num_rounds=4, gamma=3.0, **arguments
    )
  if name == 'erm':
    stages = [minibatch_schedules.Stage(2, gamma) for gamma in (3.0, 4.0)]
    return silos.build_accelerated_mb_sgd_erm(
        model,
        num_rounds=4,
        sampling=_POISSON,
        stages=stages,
        regularization=0.1,
        **arguments,
    )
  if name == 'localized':
    return silos.build_localized_mb_sgd(
        model,
        lipschitz=1.0,
        regularization=0.1,
        rounds_per_phase=[2, 2],
        smoothness=1.0,
        **arguments,
    )
  if name == 'local':
    return silos.build_isrl_local_sgd(
        model,
        num_rounds=4,
        num_local_steps=_LOCAL_STEPS,
        learning_rate=0.5,
        **arguments,
    )
  raise ValueError(name)


_build = functools.cache(_make)


def _with(name, **changes):
  """Returns a process with other silos or noise, which come with the data."""
  plan = toy.plan_of(lambda: _make(name, **changes))
  return _build(name).with_plan(plan)


_ALGORITHMS = (
    'poisson', 'fixed', 'one_pass', 'accelerated', 'erm', 'localized'
)


def _three(*names):
  """Returns zeros for three silos: each other number is traced anew."""
  names = (names * 3)[:3]
  return [(name, _zeros(name)) for name in names]


def _zeros(silo):
  return toy.examples(np.zeros([_RECORDS[silo], _SIZE]), batch=7)


def _assert_normal(draws, stddev):
  """Fails unless the draws are N(0, stddev^2), by mean, variance and shape."""
  scaled = np.ravel(draws).astype(np.float64) / stddev
  count = scaled.size
  low, high = stats.chi2.interval(1 - _FALSE_ALARM, count)
  np.testing.assert_array_less(low, np.sum(scaled**2))
  np.testing.assert_array_less(np.sum(scaled**2), high)
  np.testing.assert_array_less(
      abs(np.mean(scaled)), stats.norm.isf(_FALSE_ALARM / 2) / count**0.5
  )
  np.testing.assert_array_less(
      _FALSE_ALARM, stats.kstest(scaled, 'norm').pvalue
  )


def _assert_uncorrelated(rows):
  """Fails if any two rows share draws, or are correlated."""
  correlations = np.corrcoef(np.asarray(rows, np.float64))
  off_diagonal = correlations[~np.eye(len(rows), dtype=bool)]
  np.testing.assert_array_less(
      np.abs(off_diagonal),
      stats.norm.isf(_FALSE_ALARM / 2) / np.shape(rows)[1] ** 0.5,
  )


class MessageTest(parameterized.TestCase):

  # Of the six algorithms: Poisson sampling, and the accelerated one on blocks in
  # phases.
  @parameterized.product(name=_ALGORITHMS, silo=tuple(_RECORDS))
  @pytest.mark.slow(but=['0', '1', '10', '11'])
  def test_zero_gradients_leave_as_normals_of_the_silos_own_std(
      self, name, silo
  ):
    # Power: with 18,000 draws, a std that is off by 4 % fails.
    runner = toy.Runner(_build(name))
    draws = np.concatenate([runner.round(_three(silo)) for _ in range(2)])
    _assert_normal(draws, _STDDEVS[silo])
    _assert_uncorrelated(draws)

  def test_local_sgd_noises_every_step(self):
    runner = toy.Runner(_build('local'))
    for silo, stddev in _STDDEVS.items():
      # The model moves by eta times the sum of the noises of 5 steps.
      before = runner.sent_out
      moved = runner.round(_three(silo)) - before
      _assert_normal(moved, 0.5 * math.sqrt(_LOCAL_STEPS) * stddev)

  def test_local_sgd_weighs_the_moves_of_its_silos(self):
    weights = {'small': 0.8, 'large': 0.2}
    runner = toy.Runner(
        _with(
            'local',
            silos={
                silo: toy.free(count, weights[silo])
                for silo, count in _RECORDS.items()
            },
        )
    )
    # From the same w, which is not scaled, all that moves is noise.
    for present in (_three('small'), _three('large'), _three('small', 'large')):
      before = runner.sent_out
      runner.round(present)
      squares = sum((2 * weights[s] * _STDDEVS[s]) ** 2 for s, _ in present)
      _assert_normal(
          runner.sent_out - before,
          0.5 * math.sqrt(_LOCAL_STEPS * squares) / 3,
      )

  @parameterized.parameters('poisson', 'accelerated', 'localized')
  @pytest.mark.slow(but=['0'])
  def test_weights_scale_the_noise_like_the_gradient(self, name):
    weights = {'small': 0.8, 'large': 0.2}
    process = _with(
        name,
        silos={
            silo: toy.free(count, weights[silo])
            for silo, count in _RECORDS.items()
        },
    )
    runner = toy.Runner(process)
    for silo, weight in weights.items():
      draws = runner.round(_three(silo))
      _assert_normal(draws, 2 * weight * _STDDEVS[silo])


class OwnKeyTest(parameterized.TestCase):
  """A silo with a key of its own, as `program.train` simulates it."""

  def _messages(
      self, process, *, weights=0.0, key=(3, 4), records=0.0, rounds_done=0
  ):
    """Returns a message of a silo whose records are all alike."""
    rows = np.full([_RECORDS['small'], _SIZE], records)
    return self._message(
        process, rows, weights=weights, key=key, rounds_done=rounds_done
    )

  def _message(self, process, rows, *, weights=0.0, key, rounds_done=0):
    """Returns the message of a round, whatever was before it."""
    data = silos.silo_data(
        process.plan.terms['small'], toy.examples(rows, batch=7), np.array(key)
    )
    state = process.initialize()
    changed = tf.nest.map_structure(
        lambda tensor: tensor + np.float32(weights),
        state.global_model_weights.trainable,
    )
    state = process.set_model_weights(
        state, tff.learning.models.ModelWeights(changed, ())
    )
    client_work = dict(state.client_work, round=np.int64(rounds_done))
    state = tff.learning.templates.LearningAlgorithmState(
        state.global_model_weights,
        state.distributor,
        client_work,
        state.aggregator,
        state.finalizer,
    )
    output = process.next(state, [data] * 3)
    message, *others = toy.messages(output)
    for other in others:
      np.testing.assert_array_equal(other, message)
    return message

  @parameterized.parameters('poisson', 'localized', 'local')
  def test_repeats_a_message_and_noises_every_other_anew(self, name):
    process = _build(name)
    first = self._messages(process)
    np.testing.assert_array_equal(self._messages(process), first)
    # Clipped to 1, these records move a coordinate by 1 / sqrt(size).
    tiny = 1e-9
    others = [
        # In the other word, which the number of a round is not mixed into.
        self._messages(process, key=(5, 4)),
        self._messages(process, records=tiny),
        self._messages(process, records=2 * tiny),
    ]
    _assert_uncorrelated([first, *others])
    # Of a model that has not moved since, too.
    others += [self._messages(process, rounds_done=r) for r in (1, 2)]
    moved = self._messages(process, weights=1.0) - (name == 'local')
    _assert_uncorrelated([first, *others, moved])

  @parameterized.parameters('fixed', 'poisson')
  @pytest.mark.slow(cases=['0'])
  def test_batches_are_of_the_key_the_model_and_the_round(self, name):
    process = _with(name, noise_stddev=0.0)
    rows = 0.1 * np.eye(_RECORDS['small'], _SIZE)

    def batch(**changes):
      # The gradient of a record is its own axis, below the clip norm.
      message = self._message(
          process, rows, **dict(key=(3, 4)) | changes
      )
      return tuple(np.flatnonzero(message))

    first = batch()
    self.assertEqual(batch(), first)
    # Of hundreds that there might be, and few of them twice.
    for name, values in (
        ('key', [(word, 4) for word in range(4)]),
        ('weights', range(4)),
        ('rounds_done', range(4)),
    ):
      found = {batch(**{name: value}) for value in values}
      self.assertGreater(len(found), 2, name)

  def test_noise_of_metrics_is_their_own_and_follows_them(self):
    # Of three metrics, each the labels of all records.
    number = 3
    process = toy.build_sgd(
        toy.build_model(_SIZE),
        **_arguments(
            silos={'small': toy.free(12)},
            noise_stddev=2.0,
            sampling=silo_sampling.FixedSize(12),
            num_rounds=1,
            private_metrics=[
                silos.PrivateMetric(
                    f'm{i}', 1.0, 0.05, lambda output, label: label
                )
                for i in range(number)
            ],
        ),
    )
    terms = process.plan.terms['small']

    def noise(label):
      """Returns the noise of message and metrics, each over its std."""
      examples = [
          (np.zeros([12, _SIZE], np.float32), np.full([12], label, np.float32))
      ]
      output = process.next(
          process.initialize(),
          [silos.silo_data(terms, examples, np.array([3, 4]))],
      )
      found = output.metrics['client_work']['private'].values()
      (metrics,) = (np.array(list(found)) - label) / terms.metric_stddevs
      return toy.messages(output)[0] / terms.phases[0].noise_stddev, metrics

    message, metrics = noise(0.5)
    np.testing.assert_array_equal(noise(0.5)[1], metrics)
    # Else one could be taken off the other.
    self.assertGreater(np.abs(metrics - message[:number]).max(), 1e-3)
    # Other labels, and the same gradients: the same noise would give it away.
    other_message, other_metrics = noise(0.75)
    _assert_uncorrelated([message, other_message])
    self.assertGreater(np.abs(metrics - other_metrics).max(), 1e-3)


class IndependenceTest(parameterized.TestCase):

  @parameterized.parameters(*_ALGORITHMS)
  @pytest.mark.slow(but=['0', '5'])
  def test_silos_rounds_and_calls_share_nothing_also_under_a_global_seed(
      self, name
  ):
    # Other tests of the process would find the seed.
    self.addCleanup(tf.random.set_seed, None)
    process = _build(name)
    state, rows = process.initialize(), []
    for _ in range(2):
      for _ in range(2):
        # Equal silos, equal state, and twice the same call.
        tf.random.set_seed(1)
        np.random.seed(1)
        output = process.next(
            state,
            [process.client_data(*pair) for pair in _three('small')],
        )
        rows.extend(toy.messages(output))
      state = output.state
    self.assertLen(rows, 12)
    _assert_uncorrelated(rows)

  @pytest.mark.slow
  def test_two_processes_share_nothing(self):
    self.addCleanup(tf.random.set_seed, None)
    rows = []
    for _ in range(2):
      tf.random.set_seed(7)
      runner = toy.Runner(_make('poisson'))
      rows.append(runner.round({'large': _zeros('large')})[0])
    _assert_uncorrelated(rows)

  def test_mean_of_silos_has_the_variance_of_a_mean_of_noises(self):
    process = _build('poisson')
    for present in (_three('small'), _three('small', 'large')):
      state = process.initialize()
      before = toy.flat(state.global_model_weights)
      output = process.next(
          state, [process.client_data(*pair) for pair in present]
      )
      moved = toy.flat(output.state.global_model_weights) - before
      squares = sum(_STDDEVS[name] ** 2 for name, _ in present)
      _assert_normal(moved, math.sqrt(squares) / 3)

  @parameterized.parameters(*_ALGORITHMS)
  @pytest.mark.slow(but=['0', '5'])
  def test_all_randomness_is_at_the_silos_and_none_has_a_seed(self, name):
    process = _build(name)
    for uri in (
        tff.framework.FEDERATED_APPLY.uri,
        tff.framework.FEDERATED_AGGREGATE.uri,
    ):
      self.assertEmpty(flows.random_operations(process.next, uri))
    at_silos = flows.random_operations(
        process.next, tff.framework.FEDERATED_MAP.uri
    )
    # Operations with a state take a seed; these take the silo's secret key.
    self.assertNotEmpty(at_silos)
    for operation in at_silos:
      self.assertStartsWith(operation, 'Stateless')
    with warnings.catch_warnings():
      warnings.simplefilter('error', errors.SeededClientOpWarning)
      toy.Runner(process).round(_three('small'))

  def test_messages_and_a_constant_are_all_that_leaves_a_silo(self):
    process = silos.build_noisy_mb_sgd(
        toy.build_model(5),
        **_arguments(
            sampling=_POISSON,
            num_rounds=2,
            learning_rate=1.0,
            model_aggregator=None,
        ),
    )
    trainable = process.initialize.type_signature.result.member
    trainable = trainable.global_model_weights.trainable
    sent = [type_spec for _, type_spec in flows.to_server(process.next)]
    for type_spec in sent:
      self.assertTrue(
          type_spec.is_equivalent_to(tff.TensorType(np.int32))
          or type_spec.is_equivalent_to(trainable),
          type_spec,
      )
    # The number of silos, which the network chose, and nothing else.
    metrics = process.next.type_signature.result.metrics.member
    (measured,) = tff.structure.flatten(metrics)
    self.assertEqual(measured, tff.TensorType(np.int32))


if __name__ == '__main__':
  absltest.main()
