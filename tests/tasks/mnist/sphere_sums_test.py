# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of sums of sphere reports against reports that are drawn one by one.

Chance fails a test with probability 1e-6 or less if the laws are equal; keys are
fixed, so a test that passes once passes always.
"""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import special
from scipy import stats

from tasks.mnist import mnist_gradients
from tasks.mnist import sphere_sums
from tff_dp import _checks

_FALSE_ALARM = 1e-7
_DIMENSION = 8


def _vectors(num_clients, *, dependent=False, dimension=_DIMENSION, seed=0):
  """Returns vectors around one direction, of different lengths."""
  rng = np.random.default_rng(seed)
  vectors = rng.normal(size=(num_clients, dimension))
  vectors[:, 0] += 4.0
  if dependent:
    vectors[1:] = vectors[0] + 1e-3 * vectors[1:]
  return (vectors * rng.uniform(0.1, 5, (num_clients, 1))).astype(np.float32)


def _statistics(sums, vectors):
  """Returns samples of what would show a wrong law."""
  directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
  mean = directions.mean(axis=0)
  across = np.linalg.svd(directions)[2][-1]
  # A single unit vector has no other length; what is left is rounding.
  lengths = np.sum(sums**2, axis=1).round(5)
  return {
      'length': lengths,
      'first': sums @ directions[0],
      'last': sums @ directions[-1],
      'mean': sums @ mean,
      'across': sums @ across,
      'product': (sums @ directions[0]) * (sums @ directions[-1]),
      'joint': lengths + 3 * (sums @ mean),
  }


class HalvesTest(parameterized.TestCase):

  def _assert_same_law(self, found, expected, vectors):
    expected = _statistics(expected, vectors)
    for name, sample in _statistics(found, vectors).items():
      p = stats.ks_2samp(sample, expected[name]).pvalue
      self.assertGreater(p, _FALSE_ALARM, name)

  @parameterized.named_parameters(
      ('one', 1, (1,), False),
      ('alone', 3, (1,), False),
      ('pair', 2, (2, 1), False),
      ('groups_and_a_rest', 5, (2, 1), False),
      ('default', 7, None, False),
      ('dependent', 4, (2, 1), True),
  )
  @pytest.mark.long_grid
  def test_law_is_that_of_single_reports(self, num_clients, sizes, dependent):
    vectors = _vectors(num_clients, dependent=dependent)
    rng = np.random.default_rng(num_clients)
    options = {} if sizes is None else {'group_sizes': sizes}
    gradients = mnist_gradients.Gradients.of_vectors(vectors)
    everybody = np.ones(num_clients, bool)
    found = np.array([
        sphere_sums.sum_on_halves(gradients, everybody, rng, **options)
        for _ in range(5000)
    ])
    # Probability 1: always on the client's half.
    expected = np.array([
        sphere_sums.literal_sum(vectors, np.ones(num_clients), rng)
        for _ in range(12_000)
    ])
    self._assert_same_law(found, expected, vectors)

  def test_only_those_included_count(self):
    vectors = _vectors(6)
    vectors[4] = 0  # Nobody's half; may be there if it is not included.
    included = np.array([True, False, True, True, False, True])
    rng = np.random.default_rng(1)
    gradients = mnist_gradients.Gradients.of_vectors(vectors)
    found = np.array([
        sphere_sums.sum_on_halves(gradients, included, rng) for _ in range(4000)
    ])
    expected = np.array([
        sphere_sums.literal_sum(vectors[included], np.ones(4), rng)
        for _ in range(12_000)
    ])
    self._assert_same_law(found, expected, vectors[included])
    nobody = sphere_sums.sum_on_halves(gradients, np.zeros(6, bool), rng)
    np.testing.assert_array_equal(nobody, np.zeros(_DIMENSION))

  @parameterized.parameters(False, True)
  @pytest.mark.long_grid
  def test_mean_and_spread_in_many_dimensions(self, dependent):
    dimension, num_clients = 3000, 70
    vectors = _vectors(
        num_clients, dimension=dimension, dependent=dependent, seed=2
    )
    rng = np.random.default_rng(3)
    gradients = mnist_gradients.Gradients.of_vectors(vectors)
    sums = np.array([
        sphere_sums.sum_on_halves(gradients, np.ones(num_clients, bool), rng)
        for _ in range(40)
    ])
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    # E|<u, v>| of a uniform unit vector.
    cosine = np.exp(
        special.gammaln(dimension / 2) - special.gammaln((dimension + 1) / 2)
    ) / np.sqrt(np.pi)
    mean = cosine * directions.sum(axis=0)
    error = np.linalg.norm(sums.mean(axis=0) - mean) ** 2 * 40
    # The sum of 70 unit vectors around their means, over 40 repetitions.
    expected = num_clients * (1 - cosine**2)
    deviation = expected * np.sqrt(2 / dimension)
    self.assertLess(abs(error - expected), 6 * deviation)
    # What is released along one client's direction: its own report, and the
    # others' share of it.
    along = (sums - mean) @ directions[0] * np.sqrt(dimension / num_clients)
    self.assertBetween(np.var(along), 0.2, 2.5)

  def test_groups_without_one_are_refused(self):
    vectors = _vectors(4, dependent=True)
    with self.assertRaisesRegex(_checks.ArgumentError, '1 as the last one'):
      sphere_sums.sum_on_halves(
          mnist_gradients.Gradients.of_vectors(vectors),
          np.ones(4, bool),
          np.random.default_rng(0),
          group_sizes=(2,),
      )

  def test_few_dimensions_are_refused(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'num_params=7'):
      sphere_sums.sum_on_halves(
          mnist_gradients.Gradients.of_vectors(np.ones((1, 7))),
          np.ones(1, bool),
          np.random.default_rng(0),
      )


class SphereTest(parameterized.TestCase):

  @parameterized.parameters(1, 2, 7)
  @pytest.mark.long_grid
  def test_law_is_that_of_unit_vectors(self, count):
    rng = np.random.default_rng(count)
    found = np.array(
        [sphere_sums.sum_on_sphere(count, 3, rng) for _ in range(5000)]
    )
    expected = rng.normal(size=(20_000, count, 3))
    expected /= np.linalg.norm(expected, axis=2, keepdims=True)
    expected = expected.sum(axis=1)
    for axis in range(3):
      p = stats.ks_2samp(found[:, axis], expected[:, axis]).pvalue
      self.assertGreater(p, _FALSE_ALARM)
    lengths = [np.sum(s**2, axis=1).round(6) for s in (found, expected)]
    self.assertGreater(stats.ks_2samp(*lengths).pvalue, _FALSE_ALARM)

  def test_none_is_zero(self):
    found = sphere_sums.sum_on_sphere(0, 5, np.random.default_rng(0))
    np.testing.assert_array_equal(found, np.zeros(5))

  def test_mixture_is_the_randomizer(self):
    """Identity 1: a half with probability p, else the whole sphere."""
    epsilon0, clip = 1.2, 1.0
    vectors = _vectors(2)
    lengths = np.array([0.3, 1.0])
    rng = np.random.default_rng(5)
    alpha = np.exp(epsilon0) / (1 + np.exp(epsilon0))
    gradients = mnist_gradients.Gradients.of_vectors(vectors)

    def mixed():
      is_half = rng.random(2) < (2 * alpha - 1) * lengths / clip
      return sphere_sums.sum_on_halves(
          gradients, is_half, rng
      ) + sphere_sums.sum_on_sphere(2 - is_half.sum(), _DIMENSION, rng)

    found = np.array([mixed() for _ in range(6000)])
    towards = 0.5 + lengths / (2 * clip)
    kept = towards * alpha + (1 - towards) * (1 - alpha)
    expected = np.array([
        sphere_sums.literal_sum(vectors, kept, rng) for _ in range(12_000)
    ])
    expected = _statistics(expected, vectors)
    for name, sample in _statistics(found, vectors).items():
      p = stats.ks_2samp(sample, expected[name]).pvalue
      self.assertGreater(p, _FALSE_ALARM, name)


if __name__ == '__main__':
  absltest.main()
