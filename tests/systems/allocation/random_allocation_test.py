# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for random_allocation, against quadrature, enumeration and Poisson."""

import functools
import math
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting
from dp_accounting import pld
import numpy as np
import pytest
from scipy import integrate
from scipy import special

from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.events import run_events
from tff_dp.systems.allocation import random_allocation

pytestmark = pytest.mark.once

_REPLACE_ONE = run_events.NeighboringRelation.REPLACE_ONE
_EPSILONS = np.array([0.0, 1e-3, 0.01, 0.1, 0.5, 1.0, 2.0, 3.0, 4.0])


def _call(strike, sigma):
  """Returns Ex[(X - k)_+] of one lognormal of mean 1 (Black and Scholes)."""
  strike = np.asarray(strike, np.float64)
  with np.errstate(divide='ignore', invalid='ignore'):
    z = -sigma * np.log(np.maximum(strike, 0))
    value = special.ndtr(z + 0.5 / sigma) - strike * special.ndtr(
        z - 0.5 / sigma
    )
  return np.where(strike <= 0, 1 - strike, value)


def _put(strike, sigma):
  """Returns Ex[(k - X)_+] of one lognormal of mean 1."""
  strike = np.asarray(strike, np.float64)
  with np.errstate(divide='ignore', invalid='ignore'):
    z = -sigma * np.log(np.maximum(strike, 0))
    value = strike * special.ndtr(0.5 / sigma - z) - special.ndtr(
        -z - 0.5 / sigma
    )
  return np.where(strike <= 0, 0.0, value)


def _exact(epsilon, sigma, num_steps):
  """Returns (remove, add) of one of 2 or 3 steps, by quadrature."""
  factor, t = math.exp(epsilon), num_steps
  x = lambda g: np.exp(g / sigma - 0.5 / sigma**2)
  weights = lambda g: np.exp(-0.5 * g**2) / math.sqrt(2 * math.pi)
  if t == 2:
    def mean(inner, strike):
      return integrate.quad(
          lambda g: float(inner(strike - x(g), sigma) * weights(g)),
          -12, 12, epsabs=1e-13, limit=500,
      )[0]
  else:
    # A product rule: two of the three on a fine grid, the third exact.
    g = np.linspace(-9.5, 9.5, 1901)
    w = weights(g) * (g[1] - g[0])
    def mean(inner, strike):
      total = 0.0
      for gi, wi in zip(g, w):
        total += wi * float(w @ inner(strike - x(gi) - x(g), sigma))
      return total
  return mean(_call, t * factor) / t, factor * mean(_put, t / factor) / t


def _poisson_epsilon(sigma, num_steps, delta):
  accountant = pld.PLDAccountant(
      dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4
  )
  accountant.compose(
      dp_accounting.PoissonSampledDpEvent(
          1 / num_steps, dp_accounting.GaussianDpEvent(sigma)
      ),
      num_steps,
  )
  return accountant.get_epsilon(delta)


class OneStepOfFewTest(parameterized.TestCase):

  @parameterized.product(
      sigma=(0.4, 1.0, 3.0), epsilon=(0.0, 0.05, 0.5, 1.5, 4.0)
  )
  def test_two_steps_by_quadrature(self, sigma, epsilon):
    found = random_allocation.profiles(noise_multiplier=sigma, num_steps=2)
    for profile, exact in zip(found, _exact(epsilon, sigma, 2)):
      bound = float(profile(np.array([epsilon]))[0])
      self.assertGreaterEqual(bound, exact - 1e-12)
      # Tight, where the rounding of the computation is resolved.
      self.assertLessEqual(bound, 1.02 * exact + 1e-6)

  @parameterized.product(sigma=(2.0, 4.0), epsilon=(0.2, 0.5, 0.8))
  def test_what_is_cut_off_is_added(self, sigma, epsilon):
    # A grid that ends below t E, with much left out.
    found = random_allocation.profiles(
        noise_multiplier=sigma, num_steps=2, tail=9e-4
    )
    for profile, exact in zip(found, _exact(epsilon, sigma, 2)):
      bound = float(profile(np.array([epsilon]))[0])
      self.assertGreaterEqual(bound, exact - 1e-12)
      self.assertLessEqual(bound, exact + 1.1e-3)

  @parameterized.product(sigma=(0.6, 1.5), epsilon=(0.1, 1.0))
  @pytest.mark.slow(but=['1'])
  def test_three_steps_by_quadrature(self, sigma, epsilon):
    found = random_allocation.profiles(noise_multiplier=sigma, num_steps=3)
    for profile, exact in zip(found, _exact(epsilon, sigma, 3)):
      bound = float(profile(np.array([epsilon]))[0])
      # The product rule is good to about 1e-9.
      self.assertGreaterEqual(bound, exact - 1e-8)
      self.assertLessEqual(bound, 1.01 * exact + 1e-6)

  @parameterized.parameters(0.3, 1.0, 5.0)
  def test_one_of_one_is_the_gaussian(self, sigma):
    remove, add = random_allocation.profiles(
        noise_multiplier=sigma, num_steps=1
    )
    for profile in (remove, add):
      for epsilon in _EPSILONS:
        exact = gaussian.exact_delta(sigma=sigma, epsilon=epsilon)
        self.assertAlmostEqual(
            float(profile(np.array([epsilon]))[0]), exact, delta=1e-12
        )
    self.assertAlmostEqual(
        random_allocation.epsilon(
            noise_multiplier=sigma, num_steps=1, delta=1e-6
        ),
        gaussian.exact_epsilon(sigma=sigma, delta=1e-6),
        delta=1e-8,
    )


class ManyStepsTest(parameterized.TestCase):

  @parameterized.parameters(
      (0.5, 3.43), (0.6, 1.50), (0.8, 0.258), (1.0, 0.113)
  )
  @pytest.mark.slow(cases=['1', '2'])
  def test_table(self, sigma, expected):
    found = random_allocation.epsilon(
        noise_multiplier=sigma, num_steps=2000, delta=1e-6
    )
    self.assertBetween(found, 0.99 * expected, 1.01 * expected)
    self.assertLess(
        found, gaussian.exact_epsilon(sigma=sigma, delta=1e-6)
    )

  @parameterized.parameters((1.0, 300), (0.6, 300), (2.0, 50))
  @pytest.mark.slow(cases=['1'])
  def test_next_to_poisson_sampling(self, sigma, num_steps):
    found = random_allocation.epsilon(
        noise_multiplier=sigma, num_steps=num_steps, delta=1e-6
    )
    poisson = _poisson_epsilon(sigma, num_steps, 1e-6)
    self.assertBetween(found, 0.8 * poisson, 1.02 * poisson)

  @parameterized.product(sigma=(0.2, 1.0, 10.0), t=(2, 30, 5000))
  @pytest.mark.slow(cases=['2', '8'])
  def test_never_above_no_amplification(self, sigma, t):
    remove, add = random_allocation.profiles(
        noise_multiplier=sigma, num_steps=t
    )
    alone = gaussian.profile(sigma)(_EPSILONS)
    for profile in (remove, add):
      found = profile(_EPSILONS)
      self.assertTrue(np.all(found <= alone))
      self.assertTrue(np.all(np.diff(found) <= 0))

  @parameterized.parameters(
      (1e-3, 100), (0.05, 100), (1e3, 8), (1e3, 100), (1e4, 8), (1e300, 8)
  )
  @pytest.mark.slow(cases=['0', '1', '2', '3'])
  def test_large_and_small_noise_come_to_an_end(self, sigma, num_steps):
    found = random_allocation.epsilon(
        noise_multiplier=sigma, num_steps=num_steps, delta=1e-6
    )
    none = gaussian.exact_epsilon(sigma=sigma, delta=1e-6)
    # The sum of all steps contains the client, beside the noise of all.
    least = gaussian.exact_epsilon(
        sigma=sigma * math.sqrt(num_steps), delta=1e-6
    )
    self.assertBetween(found, least, none)

  @parameterized.parameters(0.0, 0.02, 0.05)
  def test_more_cut_off_is_never_less(self, epsilon):
    settings = dict(noise_multiplier=1.0, num_steps=500)
    little = random_allocation.profiles(**settings, tail=1e-10)
    much = random_allocation.profiles(**settings, tail=9e-4)
    for first, second in zip(little, much):
      low, high = (float(p(np.array([epsilon]))[0]) for p in (first, second))
      self.assertGreater(high, low)
      self.assertLess(high, low + 2e-3)

  @parameterized.parameters((1.0, 500, 1e-10), (0.6, 500, 1e-8))
  @pytest.mark.slow(cases=['1'])
  def test_small_deltas_by_weighted_draws(self, sigma, num_steps, delta):
    settings = dict(noise_multiplier=sigma, num_steps=num_steps)
    found = random_allocation.epsilon(**settings, delta=delta)
    mean, error = _drawn_delta(sigma, num_steps, found)
    self.assertBetween(mean, delta - 5 * error, delta + 5 * error)
    # Epsilon is within 5 % of what draws show to be needed.
    mean, error = _drawn_delta(sigma, num_steps, 0.95 * found)
    self.assertGreater(mean - 5 * error, delta)

  @pytest.mark.slow
  def test_small_deltas_are_amplified(self):
    for sigma, num_steps, delta, most in (
        (1.0, 1000, 1e-10, 0.535),
        (0.6, 5000, 1e-8, 1.945),
        (1.0, 100_000, 1e-8, 0.0178),
    ):
      found = random_allocation.epsilon(
          noise_multiplier=sigma, num_steps=num_steps, delta=delta
      )
      self.assertBetween(found, 0.99 * most, most)

  @parameterized.parameters(
      dict(num_epochs=10),
      dict(num_selected=5),
      dict(participation_probability=0.1),
      dict(num_selected=2, num_epochs=3, participation_probability=0.5),
      dict(neighboring_relation='replace_one'),
  )
  @pytest.mark.slow(cases=['1', '3'])
  def test_epsilon_grows_slowly_as_delta_shrinks(self, **options):
    settings = dict(noise_multiplier=1.0, num_steps=400) | options
    found = [
        random_allocation.epsilon(**settings, delta=delta)
        for delta in (1e-6, 1e-8, 1e-10)
    ]
    self.assertTrue(np.all(np.diff(found) > 0), found)
    # Without amplification, it is above 6.
    self.assertLess(found[-1], 3.0)

  def test_fewer_steps_bound_more_of_them(self):
    # Where there are too many for the transforms.
    settings = dict(noise_multiplier=0.7)
    few = random_allocation.profiles(**settings, num_steps=50)
    many = random_allocation.profiles(**settings, num_steps=200)
    with mock.patch.object(random_allocation, '_MANY_STEPS', 50):
      both = random_allocation.profiles(**settings, num_steps=200)
    for bounds in zip(few, many, both):
      found = [bound(_EPSILONS) for bound in bounds]
      np.testing.assert_array_equal(found[2], found[0])
      self.assertTrue(np.all(found[1] <= found[0] + 1e-8))

  @parameterized.parameters(
      ('noise_multiplier', (5.0, 2.0, 0.9, 0.5)),
      ('num_steps', (4000, 400, 40, 4, 1)),
      ('delta', (1e-3, 1e-5, 1e-7)),
      ('participation_probability', (0.001, 0.1, 0.7, 1.0)),
      ('num_selected', (1, 2, 8)),
      ('num_epochs', (1, 2, 8)),
  )
  def test_monotone(self, name, values):
    base = dict(noise_multiplier=0.9, num_steps=400, delta=1e-6)
    found = [
        random_allocation.epsilon(**{**base, name: value}) for value in values
    ]
    self.assertEqual(found, sorted(found))

  def test_monotone_under_replace_one(self):
    base = dict(num_steps=100, delta=1e-5, neighboring_relation=_REPLACE_ONE)
    found = [
        random_allocation.epsilon(noise_multiplier=sigma, **base)
        for sigma in (4.0, 1.0, 0.6)
    ]
    self.assertEqual(found, sorted(found))


class ParticipationTest(parameterized.TestCase):

  @parameterized.product(p0=(0.05, 0.6), sigma=(0.7, 2.0))
  def test_one_step_is_the_sampled_gaussian(self, p0, sigma):
    # (1 - p0) N(0) + p0 N(1) against N(0), by quadrature.
    found = random_allocation.profiles(
        noise_multiplier=sigma, num_steps=1, participation_probability=p0
    )
    noise = lambda v, shift: math.exp(
        -0.5 * ((v - shift) / sigma) ** 2
    ) / (sigma * math.sqrt(2 * math.pi))
    mixed = lambda v: (1 - p0) * noise(v, 0) + p0 * noise(v, 1)
    zero = lambda v: noise(v, 0)
    for epsilon in (0.0, 0.02, 0.2, 1.0, 2.0):
      for profile, p, q in ((found[0], mixed, zero), (found[1], zero, mixed)):
        exact = integrate.quad(
            lambda v: max(p(v) - math.exp(epsilon) * q(v), 0),
            -12 * sigma, 12 * sigma + 1, limit=1000, epsabs=1e-12,
        )[0]
        bound = float(profile(np.array([epsilon]))[0])
        self.assertAlmostEqual(bound, exact, delta=1e-9)

  def test_two_steps_by_quadrature(self):
    sigma, p0, epsilon = 0.8, 0.3, 0.15
    found = random_allocation.profiles(
        noise_multiplier=sigma, num_steps=2, participation_probability=p0
    )
    factor = math.exp(epsilon)
    remove, _ = _exact(math.log(1 + (factor - 1) / p0), sigma, 2)
    rest = 1 - factor * (1 - p0)
    _, add = _exact(math.log(factor * p0 / rest), sigma, 2)
    for profile, exact in zip(found, (p0 * remove, rest * add)):
      bound = float(profile(np.array([epsilon]))[0])
      self.assertGreaterEqual(bound, exact - 1e-12)
      self.assertLessEqual(bound, 1.02 * exact + 1e-7)

  def test_add_is_zero_where_staying_away_explains_everything(self):
    _, add = random_allocation.profiles(
        noise_multiplier=1.0, num_steps=10, participation_probability=0.5
    )
    self.assertEqual(add(np.array([math.log(2) + 1e-9]))[0], 0)
    self.assertGreater(add(np.array([math.log(2) - 0.3]))[0], 0)

  def test_nobody(self):
    self.assertEqual(
        random_allocation.epsilon(
            noise_multiplier=1.0,
            num_steps=10,
            participation_probability=0.0,
            delta=1e-6,
        ),
        0,
    )


class SeveralTest(parameterized.TestCase):

  @parameterized.parameters((1.0, 3), (4.0, 5))
  def test_all_steps_are_the_composition_of_gaussians(self, sigma, t):
    found = random_allocation.epsilon(
        noise_multiplier=sigma, num_steps=t, num_selected=t, delta=1e-6
    )
    exact = gaussian.exact_epsilon(sigma=sigma / math.sqrt(t), delta=1e-6)
    self.assertBetween(found, exact - 1e-9, exact * (1 + 1e-6))

  def test_k_of_t_against_k_passes(self):
    # 3 of 30 are 3 passes of 1 of 10, and 3 of 32 are no better here.
    selected = random_allocation.epsilon(
        noise_multiplier=1.0, num_steps=30, num_selected=3, delta=1e-5
    )
    passes = random_allocation.epsilon(
        noise_multiplier=1.0, num_steps=10, num_epochs=3, delta=1e-5
    )
    self.assertAlmostEqual(selected, passes, delta=0.01 * passes)
    remainder = random_allocation.epsilon(
        noise_multiplier=1.0, num_steps=32, num_selected=3, delta=1e-5
    )
    self.assertEqual(selected, remainder)

  def test_two_of_four_by_brute_force(self):
    # Uniform pairs out of four steps, integrated on a grid of noise values.
    sigma, epsilon = 1.0, 0.4
    g = np.linspace(-5.0, 5.0, 41)
    w = np.exp(-0.5 * g**2)
    w /= w.sum()
    x = np.exp(g / sigma - 0.5 / sigma**2)
    x /= w @ x
    a, b, c, d = np.ix_(x, x, x, x)
    ratio = (a * b + a * c + a * d + b * c + b * d + c * d) / 6
    weight = np.multiply.outer(np.multiply.outer(w, w), np.multiply.outer(w, w))
    factor = math.exp(epsilon)
    remove = float(np.sum(weight * np.maximum(ratio - factor, 0)))
    add = float(np.sum(weight * np.maximum(1 - factor * ratio, 0)))
    found = random_allocation.profiles(
        noise_multiplier=sigma, num_steps=4, num_selected=2
    )
    for profile, rough in zip(found, (remove, add)):
      self.assertGreater(float(profile(np.array([epsilon]))[0]), rough - 1e-4)

  def test_pld_composes_like_epochs(self):
    settings = dict(noise_multiplier=0.8, num_steps=100)
    remove, add = random_allocation.profiles(**settings)
    to_pld = functools.partial(
        privacy_profiles.to_pld, remove, reverse=add
    )
    found = to_pld().self_compose(5).get_epsilon_for_delta(1e-6)
    expected = random_allocation.epsilon(
        **settings, num_epochs=5, delta=1e-6
    )
    self.assertAlmostEqual(found, expected, delta=0.01 * expected)
    both = to_pld(interval=1e-3).compose(to_pld(interval=1e-3))
    self.assertAlmostEqual(
        both.get_epsilon_for_delta(1e-6),
        random_allocation.epsilon(**settings, num_epochs=2, delta=1e-6),
        delta=0.02,
    )

  def test_finer_grid_moves_epsilon_little(self):
    remove, add = random_allocation.profiles(
        noise_multiplier=1.0, num_steps=500
    )
    found = [
        privacy_profiles.to_pld(remove, reverse=add, interval=interval)
        .self_compose(4)
        .get_epsilon_for_delta(1e-6)
        for interval in (2e-4, 1e-4)
    ]
    self.assertAlmostEqual(*found, delta=0.01 * found[1])


class ReplaceOneTest(parameterized.TestCase):

  @parameterized.parameters((0.7, 2), (2.0, 2), (1.0, 500))
  def test_at_most_two_equal_hops_and_at_most_twice_the_norm(self, sigma, t):
    settings = dict(noise_multiplier=sigma, num_steps=t)
    found = random_allocation.epsilon(
        **settings, delta=1e-6, neighboring_relation=_REPLACE_ONE
    )
    self.assertLessEqual(
        found, gaussian.exact_epsilon(sigma=sigma / 2, delta=1e-6)
    )
    # (e, d) to (2 e, (1 + exp(e)) d), with d so that it comes out at 1e-6.
    low, high = 1e-9, 1e-6
    for _ in range(12):
      middle = math.sqrt(low * high)
      one = random_allocation.epsilon(**settings, delta=middle)
      if (1 + math.exp(one)) * middle <= 1e-6:
        low = middle
      else:
        high = middle
    two_hops = 2 * random_allocation.epsilon(**settings, delta=low)
    self.assertLessEqual(found, two_hops * 1.02)

  @parameterized.product(sigma=(0.8, 2.0), epsilon=(0.1, 1.0, 2.0))
  def test_never_below_opposite_contributions(self, sigma, epsilon):
    # 1 of 2 steps with +1 against 1 of 2 with -1, by a product rule.
    v = np.linspace(-8 * sigma - 1, 8 * sigma + 1, 1201)
    h = v[1] - v[0]
    density = lambda shift: np.exp(-0.5 * ((v - shift) / sigma) ** 2) / (
        sigma * math.sqrt(2 * math.pi)
    )
    up, zero, down = density(1), density(0), density(-1)
    plus = 0.5 * (np.outer(up, zero) + np.outer(zero, up))
    minus = 0.5 * (np.outer(down, zero) + np.outer(zero, down))
    exact = np.maximum(plus - math.exp(epsilon) * minus, 0).sum() * h * h
    delta = float(exact) * (1 - 1e-3)
    found = random_allocation.epsilon(
        noise_multiplier=sigma,
        num_steps=2,
        delta=delta,
        neighboring_relation=_REPLACE_ONE,
    )
    self.assertGreater(found, epsilon * (1 - 1e-3))


class ErrorsTest(parameterized.TestCase):

  @parameterized.parameters(
      ('noise_multiplier', 0.0),
      ('noise_multiplier', math.nan),
      ('num_steps', 0),
      ('num_selected', 11),
      ('num_selected', 0),
      ('participation_probability', 1.01),
      ('num_epochs', 0),
      ('delta', 0.0),
  )
  def test_names_argument(self, name, value):
    settings = dict(noise_multiplier=1.0, num_steps=10, delta=1e-6)
    settings[name] = value
    with self.assertRaisesRegex(ValueError, f'^{name}='):
      random_allocation.epsilon(**settings)

  def test_relation(self):
    with self.assertRaisesRegex(ValueError, 'add_or_remove'):
      random_allocation.epsilon(
          noise_multiplier=1.0,
          num_steps=10,
          delta=1e-6,
          neighboring_relation='add_or_remove',
      )


def _drawn_delta(sigma, num_steps, epsilon, num_draws=8_000):
  """Returns (mean, standard error) of delta, remove, from weighted draws.

  One step is moved by one of several distances, of which 0 is one.
  """
  rng = np.random.default_rng(1)
  factor = math.exp(epsilon)
  least = sigma * math.log(num_steps * (factor - 1)) + 0.5 / sigma
  shifts = least * np.array([0.0, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2])
  draws = rng.standard_normal((num_draws, num_steps))
  draws[:, 0] += rng.choice(shifts, num_draws)
  density = np.mean(
      [np.exp(m * draws - m * m / 2).mean(axis=1) for m in shifts], axis=0
  )
  ratio = np.exp(draws / sigma - 0.5 / sigma**2).mean(axis=1)
  values = np.maximum(ratio - factor, 0.0) / density
  return values.mean(), values.std() / math.sqrt(num_draws)


if __name__ == '__main__':
  absltest.main()
