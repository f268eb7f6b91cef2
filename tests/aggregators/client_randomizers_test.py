# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the operations of local randomizers, on what they send.

Statistics have a fixed key and a false alarm rate of 1e-6 each.
"""

import functools
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import stats
import tensorflow as tf

from tests import used_keys
from tff_dp import _checks
from tff_dp import streams
from tff_dp.aggregators import client_randomizers
from tff_dp.mechanisms import randomizers

pytestmark = pytest.mark.once

_FALSE_ALARM = 1e-6
_Z = stats.norm.isf(_FALSE_ALARM / 2)
_GAUSSIAN = randomizers.Gaussian(2.0, 0.5)
_SPHERE = randomizers.Sphere(2.0, 0.5)
_LAPLACE = randomizers.Laplace(2.0, 0.5)
_ALL = (_GAUSSIAN, _SPHERE, _LAPLACE)
_KEY = (5, -7)


def _key(*words) -> tf.Tensor:
  return tf.constant(words or _KEY, tf.int64)


def _report(spec, update, *, key=_KEY, round_index=0) -> np.ndarray:
  update = np.asarray(update, np.float32)
  return client_randomizers.build(spec, len(update)).randomize(
      tf.constant(update), _key(*key), round_index
  ).numpy()


def _plain(operations, report):
  del operations
  return report


def _estimate(operations, report):
  return operations.estimate(report)


@functools.cache
def _sampler(spec, num_params, function):
  """Returns a function that draws for many clients; see `_many`."""
  operations = client_randomizers.build(spec, num_params)

  def draw(update, index, seed):
    return function(
        operations, operations.randomize(update, tf.stack([index, seed]))
    )

  @tf.function(autograph=False)
  def draw_all(update, num_reports, seed):
    probe = draw(update, tf.constant(0, tf.int64), seed)
    return tf.map_fn(
        lambda index: draw(update, index, seed),
        tf.range(num_reports),
        fn_output_signature=tf.TensorSpec.from_tensor(probe),
    )

  # Not 0: with index 0 that would be a key of zeros, which is refused.
  def sample(update, num_reports, seed=1):
    return draw_all(
        tf.constant(np.asarray(update, np.float32)),
        tf.constant(num_reports, tf.int64),
        tf.constant(seed, tf.int64),
    ).numpy()

  return sample


def _many(spec, update, num_reports, *, function=_plain) -> np.ndarray:
  """Returns `function(operations, report)` of as many clients, stacked."""
  return _sampler(spec, len(update), function)(update, num_reports)


def _unit(num_params: int, seed: int = 1) -> np.ndarray:
  vector = np.random.default_rng(seed).standard_normal(num_params)
  return vector / np.linalg.norm(vector)


class SphereTest(parameterized.TestCase):

  # With epsilon 8 the std of <estimate, u> is sqrt(pi/2) C, so the mean of n is
  # within 6.2 C/sqrt(n), 0.18 C at most, of |x|. A scale without the factor
  # sqrt(2/pi), or off by a power of d, is 0.2 C or more off at |x| = C.
  @parameterized.parameters(
      (1, 0.4, 1500), (10, 1.0, 2000), (10, 0.4, 2000), (10_000, 1.0, 1200)
  )
  def test_estimate_is_unbiased(self, num_params, share, num_reports):
    spec = randomizers.Sphere(8.0, 0.5)
    direction = _unit(num_params)
    across = _unit(num_params, seed=2)
    across -= (across @ direction) * direction
    probes = tf.constant(
        np.stack([direction, across], axis=1).astype(np.float32)
    )
    projected = _many(
        spec,
        share * 0.5 * direction,
        num_reports,
        function=lambda operations, report: tf.linalg.matvec(
            probes, operations.estimate(report), transpose_a=True
        ),
    ).astype(np.float64)
    for column, expected in ((0, share * 0.5), (1, 0.0)):
      samples = projected[:, column]
      # In one dimension a wrong sign is so rare that none may occur; with C = 1/2
      # it adds up to this.
      least = math.exp(-4.0) if num_params == 1 else 0.0
      error = max(np.std(samples), least) / math.sqrt(num_reports)
      self.assertLess(
          abs(np.mean(samples) - expected), _Z * error + 2e-5, column
      )

  @parameterized.parameters(2, 50)
  def test_length_of_the_estimate_and_its_variance(self, num_params):
    update = 0.3 * _unit(num_params)
    estimates = _many(_SPHERE, update, 1500, function=_estimate)
    np.testing.assert_allclose(
        np.linalg.norm(estimates, axis=1),
        _SPHERE.scale(num_params),
        rtol=1e-5,
    )
    # The length is constant, so |estimate - x|^2 varies with <estimate, x>.
    squared = np.sum((estimates - update) ** 2, axis=1)
    error = np.std(squared) / math.sqrt(len(squared))
    self.assertLess(
        abs(np.mean(squared) - (_SPHERE.variance(num_params) - 0.09)),
        _Z * error,
    )

  @parameterized.parameters((1, 1.0), (3, 2.0), (5, 1.0))
  def test_sign_is_kept_with_the_probability_of_the_coin(
      self, num_params, epsilon
  ):
    # A vector of the full norm is its own rounding, but for the clip margin.
    direction = _unit(num_params)
    spec = randomizers.Sphere(epsilon, 1.0)
    estimates = _many(spec, 5.0 * direction, 3000, function=_estimate)
    positive = estimates @ direction > 0
    expected = math.exp(epsilon) / (1 + math.exp(epsilon))
    test = stats.binomtest(int(positive.sum()), len(positive), expected)
    self.assertGreater(test.pvalue, _FALSE_ALARM)

  @parameterized.parameters(1, 5)
  def test_likelihood_ratios_stay_within_epsilon(self, num_params):
    # Events: the sign of the estimate's first coordinate, and in which sixth of
    # a turn its first two lie. A ratio above exp(epsilon) in any of them, for
    # any two inputs and in either direction, is an alarm.
    epsilon, num_reports = 1.0, 1500
    spec = randomizers.Sphere(epsilon, 1.0)
    first = np.eye(num_params)[0]
    inputs = [
        9 * first, -9 * first, 0.5 * first, 0 * first, 3 * _unit(num_params),
        np.full(num_params, np.nan),
    ]
    counts = []
    sample = _sampler(spec, num_params, _estimate)
    for seed, update in enumerate(inputs, 1):
      estimates = sample(update, num_reports, seed)
      events = [estimates[:, 0] > 0, estimates[:, 0] < 0]
      if num_params > 1:
        turn = np.arctan2(estimates[:, 1], estimates[:, 0]) / (2 * np.pi)
        events += [np.floor(turn % 1 * 6) == sixth for sixth in range(6)]
      counts.append([np.sum(event) for event in events])
    shares = np.array(counts) / num_reports
    limit = math.exp(epsilon)
    for share in shares:
      for other in shares:
        variance = share * (1 - share) + limit**2 * other * (1 - other)
        excess = (share - limit * other) / np.sqrt(variance / num_reports)
        num_tests = shares.size * len(shares)
        self.assertLess(
            excess.max(), stats.norm.isf(_FALSE_ALARM / num_tests)
        )
    # The test has power: the worst pair all but reaches the limit.
    self.assertGreater(shares[0, 0] / shares[1, 0], 0.8 * limit)

  def test_direction_does_not_depend_on_the_client(self):
    # Uniform: all coordinates of v alike, and none correlated with the input.
    plain = _many(
        _SPHERE,
        [0.5, 0.0, 0.0],
        2000,
        function=lambda operations, report: operations.estimate(
            tf.concat([report[:2], [1]], axis=0)
        ),
    ) / _SPHERE.scale(3)
    # In three dimensions every coordinate of a unit vector is uniform.
    for coordinate in plain.T:
      self.assertGreater(
          stats.kstest(coordinate, stats.uniform(-1, 2).cdf).pvalue,
          _FALSE_ALARM,
      )

  def test_report_is_a_seed_and_a_sign(self):
    reports = _many(_SPHERE, [0.1, 0.2], 200)
    self.assertEqual(reports.dtype, np.int64)
    self.assertEqual(set(reports[:, 2]), {-1, 1})
    self.assertLen(np.unique(reports[:, :2]), 400)


class AdditiveTest(parameterized.TestCase):

  def test_gaussian_has_the_stated_standard_deviation(self):
    size = 200_000
    update = np.zeros(size)
    update[0] = 3.0
    noise = _report(_GAUSSIAN, update).astype(np.float64)
    noise[0] -= 0.5 * (1 - 1e-5)
    # The relative error of a std from 200,000 samples is 0.16 %.
    statistic = np.sum((noise / _GAUSSIAN.stddev) ** 2)
    self.assertBetween(
        statistic,
        stats.chi2.isf(1 - _FALSE_ALARM / 2, size),
        stats.chi2.isf(_FALSE_ALARM / 2, size),
    )
    self.assertGreater(
        stats.kstest(noise / _GAUSSIAN.stddev, stats.norm.cdf).pvalue,
        _FALSE_ALARM,
    )

  def test_laplace_has_the_stated_law(self):
    noise = _report(_LAPLACE, np.zeros(200_000)).astype(np.float64)
    self.assertGreater(
        stats.kstest(noise, stats.laplace(scale=0.5).cdf).pvalue, _FALSE_ALARM
    )
    squares = noise**2
    error = np.std(squares) / math.sqrt(len(squares))
    self.assertLess(
        abs(np.mean(squares) - _LAPLACE.variance(1)), _Z * error
    )

  @parameterized.parameters(
      (0, 1), (-(2**63), -1), (2**63 - 1, 0), (-1, 0)
  )
  def test_laplace_reaches_far_into_both_tails(self, bits, sign):
    # Where all bits are 0, the tail ends: with 24 of them at 17 b.
    with absltest.mock.patch.object(
        streams,
        'bits',
        lambda shape, key: tf.fill(shape, tf.constant(bits, tf.int64)),
    ):
      noise = _report(_LAPLACE, [0.0])[0]
    self.assertAlmostEqual(noise, sign * 0.5 * 1009 * math.log(2), places=4)

  @parameterized.parameters(1e-20, 0.4, 0.5, 0.500001, 3.0, 1e30)
  def test_laplace_clips_the_l1_norm(self, norm):
    vector = np.random.default_rng(0).laplace(size=50_000)
    vector = (vector / np.abs(vector).sum() * norm).astype(np.float32)
    clipped = client_randomizers.build(_LAPLACE, len(vector)).clip(
        tf.constant(vector)
    ).numpy().astype(np.float64)
    self.assertLessEqual(np.abs(clipped).sum(), 0.5)
    if norm < 0.5 * (1 - 1e-5):
      np.testing.assert_array_equal(clipped, vector)
    else:
      self.assertAlmostEqual(np.abs(clipped).sum(), 0.5, delta=1e-4)

  def test_gaussian_clips_the_l2_norm(self):
    clipped = client_randomizers.build(_GAUSSIAN, 2).clip(
        tf.constant([3.0, 4.0])
    )
    np.testing.assert_allclose(clipped, [0.3, 0.4], rtol=1e-4)


class BadUpdatesTest(parameterized.TestCase):

  @parameterized.product(
      spec=_ALL, entry=(np.nan, np.inf, -np.inf, 3.4e38)
  )
  def test_update_that_is_not_finite_is_randomized_as_zero(self, spec, entry):
    update = np.full(4, entry, np.float32)
    update[1] = 0.25
    np.testing.assert_array_equal(
        _report(spec, update), _report(spec, np.zeros(4))
    )

  @parameterized.parameters(*_ALL)
  def test_zero_is_still_randomized(self, spec):
    estimates = _many(spec, [0.0], 1000, function=_estimate)
    positive = int(np.sum(estimates > 0))
    self.assertEqual(np.sum(estimates == 0), 0)
    self.assertGreater(
        stats.binomtest(positive, 1000).pvalue, _FALSE_ALARM
    )


  @parameterized.parameters(0.0, 0.5)
  def test_sign_of_a_short_update_is_flipped_by_a_coin_of_its_own(self, share):
    # The rounding of the norm draws, too. If both took one coin, a short update
    # would be flipped more often than a long one.
    direction = _unit(3)
    spec = randomizers.Sphere(2.0, 1.0)
    estimates = _many(spec, share * direction, 4000, function=_estimate)
    positive = estimates @ direction > 0
    kept = math.exp(2.0) / (1 + math.exp(2.0))
    rounded = 0.5 + 0.5 * share
    expected = rounded * kept + (1 - rounded) * (1 - kept)
    test = stats.binomtest(int(positive.sum()), len(positive), expected)
    self.assertGreater(test.pvalue, _FALSE_ALARM)


class KeysTest(parameterized.TestCase):

  @parameterized.parameters(*_ALL)
  def test_same_client_round_and_update_repeat_the_report(self, spec):
    update = _unit(50)
    np.testing.assert_array_equal(_report(spec, update), _report(spec, update))

  def _noise(self, spec, update, **changes):
    operations = client_randomizers.build(spec, len(update))
    clipped = operations.clip(tf.constant(update)).numpy()
    return _report(spec, update, **changes) - clipped

  @parameterized.parameters(_GAUSSIAN, _LAPLACE)
  def test_noise_is_never_shared(self, spec):
    size = 20_000
    update = (0.01 * _unit(size)).astype(np.float32)
    nearly = update.copy()
    nearly[3] = np.nextafter(nearly[3], np.float32(1))
    noises = [
        self._noise(spec, update),
        self._noise(spec, update, key=(5, -6)),
        self._noise(spec, update, key=(6, -7)),
        self._noise(spec, update, key=(-7, 5)),
        self._noise(spec, update, round_index=1),
        self._noise(spec, update, round_index=2**40),
        # A round that is run again with one coordinate in its last digit
        # changed: the server must not be able to subtract two reports.
        self._noise(spec, nearly),
        # The same key in a run with other noise: x + s1 z and x + s2 z would
        # give x away.
        self._noise(type(spec)(3.0, 0.5), update),
        self._noise(type(spec)(2.0, 0.6), update),
    ]
    correlations = np.corrcoef(np.stack(noises))
    np.fill_diagonal(correlations, 0.0)
    self.assertLess(np.abs(correlations).max(), 7 / math.sqrt(size))

  def test_directions_are_never_shared(self):
    update = (0.1 * _unit(3)).astype(np.float32)
    reports = [
        _report(_SPHERE, update),
        _report(_SPHERE, update, key=(5, -6)),
        _report(_SPHERE, update, round_index=1),
        _report(_SPHERE, np.nextafter(update, np.float32(2))),
        _report(randomizers.Sphere(2.5, 0.5), update),
    ]
    self.assertLen(np.unique(np.stack(reports)[:, :2]), 10)

  @parameterized.parameters(*_ALL)
  def test_no_key_is_for_two_draws(self, spec):
    with used_keys.used() as keys:
      _report(spec, 0.1 * _unit(4), round_index=1)
    self.assertGreater(len(keys), 4)
    self.assertLen(set(keys), len(keys))

  def test_other_directions_need_keys_of_another_version(self):
    # Else two reports of one update would share their coins.
    operations = client_randomizers.build(_SPHERE, 5)
    self.assertEndsWith(operations._domain, '|5|directions 2')
    seed = streams.insecure_root_key(3)
    found = streams.directions(5, seed)
    np.testing.assert_allclose(
        found, (-0.95402259, 0.09079077, 0.07907169, -0.15309323, 0.66456348),
        atol=2e-6,
    )
    estimate = operations.estimate(tf.concat([seed, [1]], 0)).numpy()
    np.testing.assert_allclose(
        estimate / np.linalg.norm(estimate),
        found / np.linalg.norm(found),
        atol=2e-6,
    )

  def test_coin_does_not_follow_from_the_public_direction(self):
    # Same direction, other key: both signs occur, though a vector of the full
    # norm needs no rounding.
    operations = client_randomizers.build(_SPHERE, 2)
    seed = streams.fold_in(_key(), 0)
    fold_in = streams.fold_in

    def same_direction(key, part):
      if isinstance(part, int) and part == client_randomizers._DIRECTION:
        return seed
      return fold_in(key, part)

    signs = set()
    with absltest.mock.patch.object(streams, 'fold_in', same_direction):
      for word in range(60):
        report = operations.draw_report(tf.constant([0.5, 0.0]), _key(word, 1))
        np.testing.assert_array_equal(report[:2], seed)
        signs.add(int(report[2]))
    self.assertEqual(signs, {-1, 1})


class CategoriesTest(parameterized.TestCase):

  @parameterized.parameters(-1, 0, 3)
  def test_no_key_is_for_two_draws(self, category):
    with used_keys.used() as keys:
      client_randomizers.randomize_category(
          randomizers.RandomizedResponse(1.0, 3), tf.constant(category), _key()
      )
    self.assertGreater(len(keys), 5)
    self.assertLen(set(keys), len(keys))

  def _reports(self, spec, category, num_reports):
    @tf.function(autograph=False)
    def draw_all(indices):
      return tf.map_fn(
          lambda index: client_randomizers.randomize_category(
              spec, tf.constant(category), tf.stack([index, 3])
          ),
          indices,
          fn_output_signature=tf.int64,
      )

    return draw_all(tf.range(num_reports, dtype=tf.int64)).numpy()

  @parameterized.parameters((0.5, 2, 0), (1.0, 2, 1), (2.0, 5, 2), (1.0, 7, 6))
  def test_law_of_the_report(self, epsilon, num_categories, category):
    spec = randomizers.RandomizedResponse(epsilon, num_categories)
    counts = np.bincount(
        self._reports(spec, category, 2500), minlength=num_categories
    )
    odds = np.ones(num_categories)
    odds[category] = math.exp(epsilon)
    expected = 2500 * odds / odds.sum()
    self.assertGreater(
        stats.chisquare(counts, expected).pvalue, _FALSE_ALARM
    )

  @parameterized.parameters(-1, 4, 2**31 - 1)
  def test_invalid_category_says_nothing(self, category):
    spec = randomizers.RandomizedResponse(3.0, 4)
    counts = np.bincount(self._reports(spec, category, 1500), minlength=4)
    self.assertLen(counts, 4)
    self.assertGreater(stats.chisquare(counts).pvalue, _FALSE_ALARM)


class BuildTest(absltest.TestCase):

  def test_randomized_response_is_no_randomizer_of_vectors(self):
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'Gaussian, Laplace, Sphere.*HistogramFactory'
    ):
      client_randomizers.build(randomizers.RandomizedResponse(1.0), 3)

  def test_other_lengths_are_refused(self):
    operations = client_randomizers.build(_SPHERE, 3)
    with self.assertRaises((ValueError, tf.errors.InvalidArgumentError)):
      operations.randomize(tf.zeros([4]), _key())
    with self.assertRaisesRegex(_checks.ArgumentError, 'num_params=0'):
      client_randomizers.build(_SPHERE, 0)


if __name__ == '__main__':
  absltest.main()
