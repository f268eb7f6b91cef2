# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the averages, against explicit means of the models sent out."""

import functools

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from tests.learning import small_model
from tff_dp import _checks
from tff_dp import execution
from tff_dp import learning
from tff_dp import mechanisms

_NUM_ROUNDS = 10

pytestmark = pytest.mark.once


def setUpModule():
  execution.set_default_context()


def _explicit_weights(average, rounds, horizon=_NUM_ROUNDS):
  """Returns the weights of theta_1..theta_rounds, from the definition."""
  t = np.arange(1, rounds + 1)
  if isinstance(average, learning.UniformAverage):
    weights = np.ones(rounds)
  elif isinstance(average, learning.SuffixAverage):
    weights = (t > horizon - np.ceil(average.share * horizon)).astype(float)
    if not weights.any():
      weights[-1] = 1.0
  else:
    weights = average.decay ** (rounds - t)
  return weights / weights.sum()


_AVERAGES = (
    learning.UniformAverage(),
    learning.SuffixAverage(0.25),
    learning.SuffixAverage(1.0),
    learning.ExponentialAverage(0.7),
)


class SharesTest(parameterized.TestCase):

  @parameterized.product(average=_AVERAGES, rounds=(1, 2, 7, 8, 9, 10))
  def test_running_shares_give_the_explicit_mean(self, average, rounds):
    weights = np.zeros(0)
    for share in average.shares(_NUM_ROUNDS)[:rounds]:
      weights = np.append((1 - share) * weights, share)
    np.testing.assert_allclose(
        weights, _explicit_weights(average, rounds), atol=1e-12
    )

  @parameterized.named_parameters(
      ('no_suffix', learning.SuffixAverage, 'share', 0.0),
      ('long_suffix', learning.SuffixAverage, 'share', 1.5),
      ('nan', learning.SuffixAverage, 'share', float('nan')),
      ('last_only', learning.ExponentialAverage, 'decay', 0.0),
      ('first_only', learning.ExponentialAverage, 'decay', 1.0),
  )
  def test_bad_arguments_are_named(self, cls, name, value):
    with self.assertRaisesRegex(_checks.ArgumentError, f'{name}={value}'):
      cls(value)


@functools.cache
def _process(averaging, **server):
  # With restarts, through which the average has to go on.
  plan = small_model.build_plan(
      mechanisms.HonakerTree(_NUM_ROUNDS, restart_every=4)
  )
  return small_model.build_process(
      plan, averaging=averaging, momentum=0.5, **server
  )


class AveragingTest(parameterized.TestCase):

  @parameterized.parameters(
      (learning.UniformAverage(), dict()),
      (learning.UniformAverage(), dict(l1=0.05)),
      (learning.SuffixAverage(0.25), dict()),
      (learning.ExponentialAverage(0.7), dict(l1=0.05)),
  )
  @pytest.mark.slow(but=['2'])
  def test_equals_the_mean_of_the_models_before_each_update(
      self, average, server
  ):
    process = _process(average, **server)
    self.assertEqual(process.averaging, average)
    state, sent = process.initialize(), []
    np.testing.assert_array_equal(
        small_model.flat(process.get_averaged_model_weights(state)),
        small_model.flat(process.get_model_weights(state)),
    )
    for t in range(1, _NUM_ROUNDS + 1):
      sent.append(small_model.flat(process.get_model_weights(state)))
      state = process.next(state, [small_model.client(t)]).state
      np.testing.assert_allclose(
          small_model.flat(process.get_averaged_model_weights(state)),
          _explicit_weights(average, t) @ np.stack(sent),
          rtol=1e-5,
          atol=1e-6,
      )

  def test_models_are_those_without_averaging_and_state_has_one_more(self):
    models, sizes = [], []
    for averaging in (None, learning.SuffixAverage(0.25)):
      process = _process(averaging)
      state = process.initialize()
      for t in range(5):
        state = process.next(state, [small_model.client(t)]).state
      models.append(small_model.flat(process.get_model_weights(state)))
      sizes.append(
          sum(np.size(leaf) for leaf in tf.nest.flatten(state.finalizer))
      )
    np.testing.assert_array_equal(*models)
    # The model, and the number of rounds.
    self.assertEqual(sizes[1] - sizes[0], small_model.NUM_PARAMS + 1)

  def test_wraps_the_finalizers_of_tff_and_keeps_their_hyperparameters(self):
    process = _process(learning.SuffixAverage(0.25))
    state = process.initialize()
    hparams = process.get_hparams(state)
    self.assertEqual(hparams['finalizer']['learning_rate'], 0.5)
    hparams['finalizer']['learning_rate'] = 0.125
    state = process.set_hparams(state, hparams)
    self.assertEqual(
        process.get_hparams(state)['finalizer']['learning_rate'], 0.125
    )

  def test_process_without_an_average_says_so(self):
    process = _process(None)
    self.assertIsNone(process.averaging)
    with self.assertRaisesRegex(_checks.ArgumentError, 'averaging=None'):
      process.get_averaged_model_weights(process.initialize())

  def test_what_is_not_an_average_is_refused(self):
    with self.assertRaisesRegex(_checks.ArgumentError, "averaging='uniform'"):
      small_model.build_process(
          small_model.build_plan(mechanisms.HonakerTree(3)),
          averaging='uniform',
      )


if __name__ == '__main__':
  absltest.main()
