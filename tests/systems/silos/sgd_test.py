# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plain SGD over silos: averages, local SGD, and what is refused."""

import collections
import functools

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import stats
import tensorflow as tf

from tests.systems.silos import quadratic
from tests.systems.silos import toy
from tff_dp import _checks
from tff_dp import execution
from tff_dp import learning
from tff_dp import silos
from tff_dp.systems.silos import minibatch_schedules
from tff_dp.systems.silos import silo_sampling

pytestmark = pytest.mark.once


def setUpModule():
  execution.set_default_context()


_BALL = learning.L2Ball(1.25)
_REGULARIZED_IN_A_BALL = dict(
    averaging='exponential',
    strong_convexity=0.1,
    regularization=0.3,
    constraint=_BALL,
)


@functools.cache
def _regularized_in_a_ball():
  """Returns a process whose batches have names."""
  return silos.build_noisy_mb_sgd(
      quadratic.named_model('y', 'x'),
      **_arguments(**_REGULARIZED_IN_A_BALL),
  )


def _arguments(**changes):
  return quadratic.arguments(
      sampling=silo_sampling.DisjointBlocks(quadratic.BLOCK),
      learning_rate=0.5,
  ) | changes


def _named_data():
  return {
      name: [collections.OrderedDict(y=y, x=x) for x, y in batches]
      for name, batches in quadratic.data().items()
  }


class SgdTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('uniform', dict(averaging='uniform'), np.ones(7)),
      (
          'exponential',
          dict(averaging='exponential', strong_convexity=0.15),
          (1 - 0.15 * 0.5) ** -np.arange(1.0, 8.0),
      ),
      (
          'regularized',
          dict(averaging='exponential', strong_convexity=0.1,
               regularization=0.3),
          (1 - 0.4 * 0.5) ** -np.arange(1.0, 8.0),
      ),
      (
          'regularized_in_a_ball',
          _REGULARIZED_IN_A_BALL,
          (1 - 0.4 * 0.5) ** -np.arange(1.0, 8.0),
      ),
      (
          'suffix',
          dict(averaging=learning.SuffixAverage(2 / 7)),
          np.float64([0, 0, 0, 0, 0, 1, 1]),
      ),
      ('last_8_of_7', dict(averaging='last_8'), np.ones(7)),
      (
          'ball',
          dict(averaging='uniform', constraint=_BALL),
          np.ones(7),
      ),
      (
          'rates',
          dict(averaging='uniform', learning_rate=np.linspace(0.1, 0.9, 7)),
          np.ones(7),
      ),
  )
  @pytest.mark.slow(but=['regularized_in_a_ball'])
  def test_average_is_over_the_points_where_gradients_were_taken(
      self, changes, weights
  ):
    if changes is _REGULARIZED_IN_A_BALL:
      process, data = _regularized_in_a_ball(), _named_data()
    else:
      process = silos.build_noisy_mb_sgd(
          quadratic.model(), **_arguments(**changes)
      )
      data = quadratic.data()
    runner = toy.Runner(process)
    radius = 1.25 if 'constraint' in changes else np.inf
    clip = lambda w: w * min(1.0, radius / np.linalg.norm(w))
    rates = np.broadcast_to(
        changes.get('learning_rate', 0.5), [quadratic.ROUNDS]
    )
    point = start = clip(quadratic.START)
    np.testing.assert_allclose(runner.result, start, rtol=1e-6)
    points = []
    for r in range(quadratic.ROUNDS):
      points.append(point)
      gradient = quadratic.gradient(quadratic.records(), r, point)
      gradient += changes.get('regularization', 0.0) * (point - start)
      point = clip(point - rates[r] * gradient)
      runner.round(data)
      np.testing.assert_allclose(runner.sent_out, point, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        runner.result,
        weights @ np.stack(points) / weights.sum(),
        rtol=1e-4,
        atol=1e-5,
    )

  def test_exponential_average_of_many_rounds_does_not_overflow(self):
    shares = learning.ExponentialAverage(1 - 0.5).shares(5000)
    self.assertTrue(np.all(np.isfinite(shares)))
    running, weights = 0.0, []
    for share in shares[:30]:
      running = 0.5 * running + 1.0
      weights.append(1 / running)
      self.assertAlmostEqual(share, 1 / running, places=12)

  @pytest.mark.slow
  def test_last_returns_the_model_itself(self):
    runner = toy.Runner(
        silos.build_noisy_mb_sgd(
            quadratic.model(),
            **quadratic.arguments(
                sampling=silo_sampling.FixedSize(2),
                learning_rate=0.5,
                averaging='last',
            ),
        )
    )
    runner.round(quadratic.data())
    np.testing.assert_array_equal(runner.result, runner.sent_out)

  def test_regularizer_is_outside_of_the_clip_and_last_8_are_averaged(self):
    rates = np.array([100.0, 0.9] + [2.5] * 10)
    rounds = len(rates)
    process = toy.build_sgd(
        toy.build_model(2),
        silos={'only': toy.free(4)},
        num_rounds=rounds,
        sampling=silo_sampling.FixedSize(4),
        l2_norm_clip=0.1,
        learning_rate=rates,
        averaging='last_8',
        regularization=1.0,
        noise_stddev=0.0,
    )
    runner = toy.Runner(process)
    data = {'only': toy.examples(np.tile([1.0, 0.0], [4, 1]))}
    # w - rate * (0.1 + w): a pull beyond the clip norm arrives whole.
    points = 0.1 * np.cumprod([1.0, *(1 - rates)]) - 0.1
    for point in points[1:]:
      runner.round(data)
      np.testing.assert_allclose(runner.sent_out, [point, 0.0], rtol=1e-4)
    np.testing.assert_allclose(
        runner.result, [np.mean(points[rounds - 8 : rounds]), 0.0], rtol=1e-4
    )

  def test_batches_may_have_names(self):
    # As in TFF, 'x' and 'y' are read by name, in any order.
    runner = toy.Runner(_regularized_in_a_ball())
    start = runner.sent_out
    sent = runner.round(_named_data())
    np.testing.assert_allclose(
        np.mean(sent, axis=0),
        quadratic.gradient(quadratic.records(), 0, start),
        rtol=1e-4,
        atol=1e-5,
    )


_RECORDS, _STEPS, _RATE, _CLIP = 5, 2, 0.3, 10.0
_CURVATURE = np.array([1.0, 0.5, 0.25, 1.0, 0.5])


@functools.cache
def _local(averaging):
  """Returns 11 rounds of two steps, each on one of 5 records."""
  return silos.build_isrl_local_sgd(
      toy.build_model(_RECORDS, curvature=_CURVATURE),
      silos={name: toy.free(_RECORDS) for name in quadratic.SILOS},
      num_rounds=11,
      num_local_steps=_STEPS,
      l2_norm_clip=_CLIP,
      learning_rate=_RATE,
      averaging=averaging,
      noise_stddev=0.0,
      model_aggregator=toy.Tap(),
  )


class LocalSgdTest(parameterized.TestCase):

  @parameterized.parameters(
      ('last', [11]),
      ('last_8', range(4, 12)),
      ('uniform', range(1, 12)),
      (learning.SuffixAverage(3 / 11), range(9, 12)),
  )
  @pytest.mark.slow(but=['1'])
  def test_rounds_are_gradient_descent_and_the_average_is_over_their_ends(
      self, averaging, counted
  ):
    runner = toy.Runner(_local(averaging))
    np.testing.assert_array_equal(runner.result, runner.sent_out)
    # All records of a silo are equal. The gradients are clipped at first.
    targets = dict(
        zip(quadratic.SILOS, ([0, 10, 20, 0, 0], [-30, 20, 0, 9, 0]))
    )
    data = {
        name: toy.examples(np.tile(target, [_RECORDS, 1]))
        for name, target in targets.items()
    }
    points = [runner.sent_out]
    for _ in range(11):
      ends = []
      for target in targets.values():
        local = points[-1]
        for _ in range(_STEPS):
          gradient = _CURVATURE * (local - target)
          gradient *= min(1.0, _CLIP / np.linalg.norm(gradient))
          local = local - _RATE * gradient
        ends.append(local)
      points.append(np.mean(ends, axis=0))
      runner.round(data)
      np.testing.assert_allclose(runner.sent_out, points[-1], rtol=1e-4)
    np.testing.assert_allclose(
        runner.result, np.mean([points[r] for r in counted], axis=0), rtol=1e-4
    )

  def test_every_record_is_equally_likely_in_every_step(self):
    runner, counts = toy.Runner(_local('last_8')), []
    # A step on a record is one of this length along its own axis.
    length = _RATE * _CLIP
    data = toy.examples(1e6 * np.eye(_RECORDS), batch=_RECORDS)
    for _ in range(10):
      before = runner.sent_out
      messages = runner.round([(quadratic.SILOS[0], data)] * 40)
      counts.extend((messages - before) / length)
    np.testing.assert_allclose(counts, np.round(counts), atol=0.05)
    counts = np.round(counts)
    self.assertLen(counts, 400)
    np.testing.assert_array_equal(counts.sum(axis=1), _STEPS)
    expected = counts.sum() / _RECORDS
    squares = (counts.sum(axis=0) - expected) ** 2
    self.assertLess(np.sum(squares) / expected, 36.0)
    # One step says nothing about the other: in a fifth, it is the same record.
    twice = int(np.sum(counts == 2))
    self.assertGreater(stats.binomtest(twice, 400, 0.2).pvalue, 1e-7)


class BadArgumentsTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('rate', dict(learning_rate=0.0), 'learning_rate=0.0'),
      ('rates', dict(learning_rate=[0.1, 0.2]), r'shape \(2,\).*7 finite'),
      ('averaging', dict(averaging='best'), "averaging='best'"),
      (
          'exponential_needs_mu',
          dict(averaging='exponential'),
          'strong_convexity .* eta < 1',
      ),
      ('clip', dict(l2_norm_clip=0.0), 'l2_norm_clip=0.0'),
      ('rounds', dict(num_rounds=0), 'num_rounds=0'),
      ('noise', dict(noise_stddev=-1.0), 'noise_stddev=-1.0'),
      ('silos', dict(silos={}), 'at least one silo'),
      (
          'list_of_silos',
          dict(silos=[toy.free(9)]),
          'silos=.*SiloBudget.*a dict from .* to its silos.SiloBudget',
      ),
      (
          'numbers_of_records',
          dict(silos={'a': 9}),
          "silos=.'a': 9. .*a dict from .* to its silos.SiloBudget",
      ),
      (
          'weights',
          dict(silos={'a': toy.free(9, 0.5), 'b': toy.free(9)}),
          'one for each silo',
      ),
      (
          'sum_of_weights',
          dict(silos={'a': toy.free(9, 0.5), 'b': toy.free(9, 0.6)}),
          'with the sum 1',
      ),
      ('names', dict(noise_stddev={'a': 1.0}), 'the names of the silos'),
      (
          'kinds',
          dict(
              sampling={
                  'a': silo_sampling.FixedSize(2),
                  'b': silo_sampling.PoissonSampling(2.0),
              }
          ),
          'kind of sampling',
      ),
      ('sampling', dict(sampling=2), 'sampling=2'),
      ('constraint', dict(constraint=3.0), 'constraint=3.0'),
      (
          'model',
          dict(model='linear'),
          "model='str'.*functional_model_from_keras",
      ),
      (
          'names_in_a_batch',
          dict(model=quadratic.named_model('features', 'label')),
          "input_spec.*'features', 'label'.*'x' and 'y'",
      ),
      (
          'neither_budget_nor_noise',
          dict(noise_stddev=None),
          r"epsilon of silo 'a'=None.*\n(.*\n)*try: noise_stddev=",
      ),
  )
  def test_bad_arguments_are_named(self, changes, message):
    arguments = quadratic.arguments(
        model=quadratic.model(),
        sampling=silo_sampling.FixedSize(2),
        learning_rate=0.5,
    ) | changes
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      silos.build_noisy_mb_sgd(arguments.pop('model'), **arguments)

  def test_another_name_leads_to_an_option_of_the_builder(self):
    with self.assertRaisesRegex(
        TypeError, '^the builder got .*\ntry: noise_stddev, .* on the mean'
    ):
      silos.build_noisy_mb_sgd(
          quadratic.model(),
          sampling=silo_sampling.FixedSize(2),
          learning_rate=0.5,
          noise_multiplier=1.0,
          **quadratic.arguments(),
      )

  @parameterized.named_parameters(
      ('neither', dict(), 'exactly one of gamma and stages'),
      ('gamma', dict(gamma=0.0), 'gamma=0.0'),
      (
          'stages',
          dict(stages=[minibatch_schedules.Stage(2, 1.0)]),
          'add up to num_rounds=7, not 2',
      ),
      (
          'too_many_rounds',
          dict(gamma=1.0, num_rounds=22),
          "at most 21, the records of silo 'a'",
      ),
  )
  def test_bad_arguments_of_accelerated_sgd(self, changes, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      silos.build_one_pass_accelerated_mb_sgd(
          quadratic.model(), **quadratic.arguments(**changes)
      )

  def test_models_that_mix_records_are_refused(self):
    model = quadratic.model()
    mixing = type(model)(
        initial_weights=(model.initial_weights[0], (np.float32([0.0]),)),
        predict_on_batch_fn=tf.function(lambda weights, x, training: x),
        loss_fn=model.loss,
        input_spec=model.input_spec,
    )
    with self.assertRaisesRegex(_checks.ArgumentError, 'batch normalisation'):
      toy.build_sgd(
          mixing,
          silos={'a': toy.free(4)},
          num_rounds=1,
          sampling=silo_sampling.FixedSize(1),
          noise_stddev=0.0,
      )


if __name__ == '__main__':
  absltest.main()
