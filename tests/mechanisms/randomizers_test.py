# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the public descriptions of local randomizers."""

import dataclasses
import fractions
import json
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import integrate
from scipy import special

from tff_dp import _checks
from tff_dp.accounting.events import run_events
from tff_dp.mechanisms import randomizers

_VALUES = 2**64
_EPSILONS = (1e-9, 1e-3, 0.1, 0.7, 1.0, 2.0, 8.0, 20.0, 40.0, 44.0)


def _exponential(epsilon: float) -> fractions.Fraction:
  """Returns exp(epsilon) with a relative error below 1e-60, by its series."""
  exact = fractions.Fraction(epsilon)
  halvings = 8
  small = exact / 2**halvings
  total = term = fractions.Fraction(1)
  for power in range(1, 80):
    term = term * small / power
    # Denominators would double with every factor.
    term = fractions.Fraction(int(term * 2**400), 2**400)
    total += term
  for _ in range(halvings):
    total = fractions.Fraction(int(total**2 * 2**400), 2**400)
  return total


def _worst_ratio(threshold: int, num_categories: int) -> fractions.Fraction:
  """Returns the largest likelihood ratio of one report, from its exact law.

  A coin of 2^64 values changes the category for `threshold` of them, and a
  second 64-bit integer modulo k - 1 names the other one.
  """
  change = fractions.Fraction(threshold, _VALUES)
  least, rest = divmod(_VALUES, num_categories - 1)
  shares = [fractions.Fraction(least + (j < rest), _VALUES) for j in (0, rest)]
  others = [change * share for share in shares]
  probabilities = [1 - change, *others]
  return max(probabilities) / min(probabilities)


class CoinsTest(parameterized.TestCase):

  @parameterized.parameters(*_EPSILONS)
  def test_sphere_never_exceeds_epsilon_and_is_tight(self, epsilon):
    flips = randomizers.Sphere(epsilon, 1.0).flip_threshold
    limit = _exponential(epsilon)
    self.assertLessEqual(fractions.Fraction(_VALUES - flips, flips), limit)
    # One value fewer would exceed it: no epsilon is given away.
    if flips > 1:
      self.assertGreater(
          fractions.Fraction(_VALUES - flips + 1, flips - 1), limit
      )

  @parameterized.product(
      epsilon=_EPSILONS, num_categories=(2, 3, 4, 10, 1000, 2**20 + 7)
  )
  def test_randomized_response_never_exceeds_epsilon_and_is_tight(
      self, epsilon, num_categories
  ):
    spec = randomizers.RandomizedResponse(epsilon, num_categories)
    limit = _exponential(epsilon)
    threshold = spec.change_threshold
    self.assertLessEqual(_worst_ratio(threshold, num_categories), limit)
    if threshold > 1:
      self.assertGreater(_worst_ratio(threshold - 1, num_categories), limit)
    expected = 1.0 / (1.0 + (num_categories - 1) * math.exp(-epsilon))
    self.assertAlmostEqual(spec.keep_probability, expected, delta=1e-12)
    self.assertAlmostEqual(
        spec.kept_minus_other,
        expected * -math.expm1(-epsilon),
        delta=1e-12 * expected,
    )

  def test_huge_epsilon_still_flips(self):
    self.assertEqual(randomizers.Sphere(1e4, 1.0).flip_threshold, 1)

  def test_upstream_parametrisation(self):
    # Kept w.p. 1 - q, else uniform among all k: epsilon = ln(1 + k (1 - q)/q).
    share, num_categories = 0.3, 7
    epsilon = math.log(1 + num_categories * (1 - share) / share)
    self.assertAlmostEqual(
        randomizers.RandomizedResponse(
            epsilon, num_categories
        ).keep_probability,
        1 - share + share / num_categories,
    )


class SphereScaleTest(parameterized.TestCase):

  @parameterized.parameters(1, 2, 3, 10, 50, 100_000)
  def test_scale_is_that_of_an_unbiased_estimate(self, num_params):
    # E|v_1| of a uniform unit vector, from its density (1 - t^2)^((d - 3)/2).
    if num_params == 1:
      mean = 1.0
    else:
      def density(angle):  # t = sin(angle), which smooths the ends.
        return math.cos(angle) ** (num_params - 2)

      # Beyond, nothing is left: cos^(d - 2) is about exp(-d t^2/2).
      end = min(math.pi / 2, 12 / math.sqrt(num_params))
      mean = integrate.quad(
          lambda angle: math.sin(angle) * density(angle), 0, end, epsabs=0
      )[0]
      mean /= integrate.quad(density, 0, end, epsabs=0)[0]
    scale = randomizers.Sphere(2.0, 0.5).scale(num_params)
    # E[B s <v, u>] = B (2 p - 1) (E|v_1| |x|/C) = |x|.
    self.assertAlmostEqual(scale * math.tanh(1.0) * mean, 0.5, places=7)

  @parameterized.parameters(2, 3, 50, 100_000)
  def test_scale_is_the_form_of_the_literature(self, num_params):
    log_ratio = special.gammaln((num_params - 1) / 2 + 1) - special.gammaln(
        num_params / 2 + 1
    )
    expected = (
        0.5 * math.sqrt(math.pi) * num_params * math.exp(log_ratio)
        / math.tanh(0.5)
    )
    self.assertAlmostEqual(
        randomizers.Sphere(1.0, 1.0).scale(num_params) / expected,
        1.0,
        places=8,
    )

  def test_scale_in_one_dimension_is_that_of_randomized_response(self):
    self.assertAlmostEqual(
        randomizers.Sphere(1.5, 2.0).scale(1), 2.0 / math.tanh(0.75), places=12
    )

  def test_scale_uses_the_probability_of_the_coin(self):
    # At 43 the coin has the coarse 2 of 2^64 values; exp(-43) is 1.86 of them.
    spec = randomizers.Sphere(43.0, 1.0)
    self.assertNotEqual(
        spec.flip_threshold / _VALUES, 1 / (1 + math.exp(43.0))
    )
    kept = 1 - 2 * fractions.Fraction(spec.flip_threshold, _VALUES)
    self.assertEqual(spec.scale(1), 1 / float(kept))


class FactsTest(parameterized.TestCase):

  def test_events(self):
    self.assertEqual(
        [
            randomizers.Gaussian(2.0, 0.5).event,
            randomizers.Sphere(2.0, 0.5).event,
            randomizers.Laplace(2.0, 0.5).event,
            randomizers.RandomizedResponse(2.0, 5).event,
        ],
        [
            run_events.GaussianLocalDpEvent(2.0),
            run_events.SphereLocalDpEvent(2.0),
            run_events.LaplaceLocalDpEvent(2.0),
            run_events.RandomizedResponseLocalDpEvent(2.0, 5),
        ],
    )

  def test_local_epsilon_of_gaussian_is_infinite(self):
    self.assertEqual(randomizers.Gaussian(9.0, 1.0).local_epsilon, math.inf)

  def test_variances(self):
    self.assertEqual(randomizers.Gaussian(3.0, 0.5).variance(4), 9.0)
    # Var of Laplace(b) is 2 b^2, b = 2 C/epsilon = 0.5.
    self.assertEqual(randomizers.Laplace(2.0, 0.5).variance(4), 2.0)
    self.assertEqual(
        randomizers.Sphere(2.0, 0.5).variance(4),
        randomizers.Sphere(2.0, 0.5).scale(4) ** 2,
    )

  @parameterized.parameters((1.0, 2), (0.3, 5), (4.0, 9))
  def test_variance_of_randomized_response_by_enumeration(self, epsilon, k):
    spec = randomizers.RandomizedResponse(epsilon, k)
    p, q = spec.keep_probability, spec.other_probability
    estimates = (np.eye(k) - q) / (p - q)
    law = np.where(np.arange(k) == 1, p, q)
    self.assertAlmostEqual(law.sum(), 1.0)
    np.testing.assert_allclose(law @ estimates, np.eye(k)[1], atol=1e-12)
    squared = np.sum((estimates - np.eye(k)[1]) ** 2, axis=1)
    self.assertAlmostEqual(spec.variance(k), law @ squared)
    with self.assertRaisesRegex(_checks.ArgumentError, f'num_params={k + 1}'):
      spec.variance(k + 1)

  def test_wire_sizes(self):
    self.assertEqual(randomizers.Gaussian(1.0, 1.0).wire_bytes(1000), 4000)
    self.assertEqual(randomizers.Laplace(1.0, 1.0).wire_bytes(1000), 4000)
    self.assertEqual(randomizers.Sphere(1.0, 1.0).wire_bytes(10**6), 17)
    for k, size in ((2, 1), (256, 1), (257, 2)):
      self.assertEqual(
          randomizers.RandomizedResponse(1.0, k).wire_bytes(k), size
      )

  @parameterized.parameters(
      randomizers.Gaussian(2.0, 0.5),
      randomizers.Sphere(2.0, 0.5),
      randomizers.Laplace(2.0, 0.5),
      randomizers.RandomizedResponse(2.0, 5),
      randomizers.Declared(2.0, 1e-9),
  )
  def test_descriptions_survive_json(self, spec):
    text = json.dumps(spec.describe())
    self.assertEqual(randomizers.from_description(json.loads(text)), spec)
    self.assertLen(dataclasses.fields(spec), 2)

  def test_declared_randomizer_is_its_epsilon_and_delta(self):
    self.assertEqual(
        randomizers.Declared(2.0, 1e-9).event,
        run_events.LocalDpEvent(2.0, 1e-9),
    )
    for ask in ('variance', 'wire_bytes'):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'declared'):
        getattr(randomizers.Declared(2.0), ask)(3)
    with self.assertRaisesRegex(_checks.ArgumentError, 'local_delta=1.0'):
      randomizers.Declared(2.0, 1.0)

  def test_unknown_name_is_refused(self):
    with self.assertRaisesRegex(_checks.ArgumentError, "name='privunit'"):
      randomizers.from_description({'name': 'privunit'})

  @parameterized.named_parameters(
      ('noise', randomizers.Gaussian, (0.0, 1.0), 'noise_multiplier=0.0'),
      ('clip', randomizers.Gaussian, (1.0, math.inf), 'l2_norm_clip=inf'),
      ('sphere', randomizers.Sphere, (-1.0, 1.0), 'local_epsilon=-1.0'),
      ('sphere_clip', randomizers.Sphere, (1.0, 0.0), 'l2_norm_clip=0.0'),
      ('nan', randomizers.Laplace, (math.nan, 1.0), 'local_epsilon=nan'),
      ('l1', randomizers.Laplace, (1.0, -2.0), 'l1_norm_clip=-2.0'),
      ('coarse', randomizers.Sphere, (1e-12, 1.0), 'local_epsilon=1e-12'),
      (
          'categories',
          randomizers.RandomizedResponse,
          (1.0, 1),
          'num_categories=1',
      ),
  )
  def test_bad_arguments_are_named(self, spec, arguments, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      spec(*arguments)

  def test_dimension_is_checked(self):
    for spec in (
        randomizers.Gaussian(1.0, 1.0),
        randomizers.Sphere(1.0, 1.0),
        randomizers.Laplace(1.0, 1.0),
    ):
      for method in (spec.variance, spec.wire_bytes):
        with self.assertRaisesRegex(_checks.ArgumentError, 'num_params=0'):
          method(0)


class NoiseKeyTest(absltest.TestCase):

  def test_key_is_a_function_of_the_secret(self):
    secrets = [bytes([i]) * 16 for i in range(50)]
    keys = np.stack([randomizers.noise_key(secret) for secret in secrets])
    self.assertEqual(keys.dtype, np.int64)
    self.assertEqual(keys.shape, (50, 2))
    self.assertLen(np.unique(keys), 100)
    np.testing.assert_array_equal(randomizers.noise_key(secrets[7]), keys[7])

  def test_error_does_not_show_the_secret(self):
    with self.assertRaises(_checks.ArgumentError) as caught:
      randomizers.noise_key(b'hush')
    self.assertNotIn('hush', str(caught.exception))


if __name__ == '__main__':
  absltest.main()
