# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of sums of losses against exact sums, at deltas far below 1e-16."""

import math
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import mpmath
import numpy as np
import pytest

from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import loss_sums
from tff_dp.accounting.curves import privacy_profiles

pytestmark = pytest.mark.once

_INTERVAL = 0.125
_TINY = (1e-3, 1e-9, 1e-14, 1e-22, 1e-40)


def _law(points, weights, infinite=0.0) -> loss_sums.Law:
  weights = np.array(weights, np.float64)
  probs = weights / weights.sum() * (1 - infinite)
  return loss_sums.Law(np.array(points), probs, infinite)


_SHORT = _law([-2, -1, 0, 3], [3, 5, 8, 1])
_RARE = _law([-1, 0, 1, 40], [1.0, 2.0, 1.0, 1e-12])
_LOSSY = _law([-1, 1], [1.0, 2.0], infinite=1e-25)
_SUMS = {
    'one': [(_SHORT, 1)],
    'few': [(_SHORT, 30)],
    'rare_losses': [(_RARE, 40)],
    'one_beside_many': [(_SHORT, 9), (_RARE, 1)],
    'mixed': [(_SHORT, 7), (_RARE, 5), (_LOSSY, 3)],
}


def _exact(laws, epsilons, interval=_INTERVAL):
  """Returns delta at epsilons, by convolutions in 60 digits."""
  with mpmath.workdps(60):
    total, infinite = {0: mpmath.mpf(1)}, mpmath.mpf(1)
    for law, count in laws:
      infinite *= (1 - mpmath.mpf(law.infinite)) ** count
      for _ in range(count):
        longer = {}
        for at, mass in total.items():
          for point, prob in zip(law.points, law.probs):
            where = at + int(point)
            longer[where] = longer.get(where, 0) + mass * mpmath.mpf(prob)
        total = longer
    terms = [
        (interval * at, mass, mass * mpmath.exp(-interval * at))
        for at, mass in total.items()
    ]
    factors = [mpmath.exp(epsilon) for epsilon in epsilons]
    return [
        1 - infinite + sum(
            mass - factor * scaled
            for loss, mass, scaled in terms
            if loss > epsilon
        )
        for epsilon, factor in zip(epsilons, factors)
    ]


class LossSumTest(parameterized.TestCase):

  @parameterized.named_parameters(*_SUMS.items())
  def test_deltas_have_all_digits(self, laws):
    found = loss_sums.LossSum(_INTERVAL, laws)
    epsilons = np.append(
        np.linspace(0, found.epsilon(1e-23), 40), 1.1 * found.largest
    )
    deltas = found.deltas(epsilons)
    exact = np.array([float(d) for d in _exact(laws, epsilons)])
    np.testing.assert_array_less(exact, deltas * (1 + 1e-15) + 1e-300)
    np.testing.assert_allclose(deltas, exact, rtol=2e-3)

  @parameterized.parameters(*_SUMS)
  def test_epsilon_has_all_digits(self, name):
    laws = _SUMS[name]
    deltas = [each for each in _TINY if name != 'mixed' or each > 1e-24]
    found = [loss_sums.LossSum(_INTERVAL, laws).epsilon(d) for d in deltas]
    all_at = _exact(laws, found)
    all_before = _exact(laws, [epsilon * (1 - 1e-6) for epsilon in found])
    for delta, epsilon, at, before in zip(deltas, found, all_at, all_before):
      self.assertLessEqual(at, delta)
      self.assertTrue(epsilon == 0 or before > 0.999 * delta, (at, before))

  def test_epsilon_is_infinite_below_the_probability_of_infinite_losses(self):
    found = loss_sums.LossSum(_INTERVAL, _SUMS['mixed'])
    self.assertEqual(found.epsilon(1e-25), math.inf)

  def test_at_most_the_sum_of_the_largest_losses(self):
    law = _law([-16, 16], [1.0, math.exp(2)])
    found = loss_sums.LossSum(_INTERVAL, [(law, 1000)])
    self.assertAlmostEqual(found.epsilon(1e-300), 2000.0, places=6)
    self.assertLess(found.epsilon(1e-12), 1800.0)

  @parameterized.product(name=tuple(_SUMS), rate=(0.03, 1.0, 9.0))
  def test_renyi_bound_is_rounded_up(self, name, rate):
    # ln of the moments and of the peak of exp(-r x) (1 - exp(-x)).
    with mpmath.workdps(60):
      r = mpmath.mpf(rate)
      exact = -r * mpmath.log(1 + 1 / r) - mpmath.log(1 + r)
      for law, count in _SUMS[name]:
        exact += count * mpmath.log(
            sum(
                mpmath.mpf(prob) * mpmath.exp(r * _INTERVAL * int(point))
                for point, prob in zip(law.points, law.probs)
            )
        )
      # pylint: disable-next=protected-access
      (found,) = loss_sums.LossSum(_INTERVAL, _SUMS[name])._log_renyi(
          np.array([rate])
      )
      self.assertGreaterEqual(mpmath.mpf(found), exact)
      self.assertLess(found - exact, 1e-9)

  @parameterized.parameters(2.0**-20, 2.0**-30)
  def test_differences_of_almost_equal_sums_are_rounded_up(self, interval):
    # 1 - exp(epsilon - l) is tiny for every loss l.
    laws = [(_SHORT, 30)]
    epsilons = interval * np.linspace(0.0, 60.0, 31)
    found = loss_sums.LossSum(interval, laws).deltas(epsilons)
    for delta, exact in zip(found, _exact(laws, epsilons, interval)):
      self.assertGreaterEqual(mpmath.mpf(delta), exact)
      self.assertLess(delta, exact * (1 + 1e-3))

  @parameterized.parameters(0.5, 2.0, 5.0)
  def test_what_a_narrow_window_leaves_out_is_added(self, log_outside):
    # Up to exp(-log_outside) of the tilted mass, on either side.
    laws = [(_SHORT, 30)]
    epsilons = np.linspace(0.0, 6.0, 13)
    exact = np.array([float(d) for d in _exact(laws, epsilons)])
    with mock.patch.object(loss_sums, '_LOG_OUTSIDE', log_outside):
      found = loss_sums.LossSum(_INTERVAL, laws).deltas(epsilons)
    self.assertTrue((found >= exact).all(), found / exact)

  def test_renyi_stands_where_no_transform_fits(self):
    # 2^22 points do not hold this sum, nor any window of it.
    law = _law([-(10**9), 10**9], [1.0, math.exp(1e-3)])
    found = loss_sums.LossSum(1e-12, [(law, 10_000)])
    log_moment = lambda r: 10_000 * math.log(
        (math.exp(1e-3 * (r + 1)) + math.exp(-1e-3 * r)) / (1 + math.exp(1e-3))
    )
    least = min(
        (log_moment(r) - math.log(1e-12 * (r + 1)) - r * math.log1p(1 / r)) / r
        for r in np.geomspace(1, 1000, 400)
    )
    self.assertBetween(found.epsilon(1e-12), 0.9999 * least, 1.0001 * least)

  def test_what_is_infinite_stays(self):
    found = loss_sums.LossSum(_INTERVAL, [(_LOSSY, 1000)])
    self.assertEqual(found.epsilon(0.9e-22), math.inf)
    self.assertLess(found.epsilon(1.1e-22), 100.0)
    self.assertBetween(found.deltas(np.array([1e6]))[0], 1e-22, 1.001e-22)

  def test_nothing(self):
    nothing = _law([0], [1.0])
    for laws in ([], [(nothing, 100)], [(_SHORT, 0)]):
      found = loss_sums.LossSum(_INTERVAL, laws)
      self.assertEqual(found.epsilon(1e-200), 0.0)
      self.assertEqual(found.deltas(np.array([0.0]))[0], 0.0)


class RareLossesTest(parameterized.TestCase):
  """Losses whose probability falls more slowly than any exponential.

  What is tilted towards a delta is then tilted towards the largest of them.
  """

  def setUp(self):
    super().setUp()
    self._interval = 1 / 64
    points = np.concatenate([[-1, 0, 1], 2 ** np.arange(3, 10)])
    tail = 1e-6 * 10.0 ** -np.arange(7)
    self._law = _law(points, np.concatenate([[1e-4, 1.0, 1e-4], tail]))

  def _exact(self, count, epsilons):
    """Returns delta by sums of products: all digits, as none is negative."""
    size = 4 * 512
    base = np.zeros(2 * size + 1)
    base[size + self._law.points] = self._law.probs
    total = np.zeros_like(base)
    total[size] = 1.0
    while count:
      if count & 1:
        total = np.convolve(total, base)[size : 3 * size + 1]
      base = np.convolve(base, base)[size : 3 * size + 1]
      count >>= 1
    losses = self._interval * np.arange(-size, size + 1)
    shares = [-np.expm1(np.minimum(e - losses, 0.0)) for e in epsilons]
    return np.array([total @ share for share in shares])

  @parameterized.parameters(10, 1000)
  def test_epsilon(self, count):
    total = loss_sums.LossSum(self._interval, [(self._law, count)])
    for delta in (1e-6, 1e-9, 1e-12):
      found = total.epsilon(delta)
      (at,) = self._exact(count, [found])
      self.assertBetween(at, 0.998 * delta, delta)

  def test_deltas(self):
    total = loss_sums.LossSum(self._interval, [(self._law, 1000)])
    epsilons = np.linspace(0.0, 9.0, 46)
    found = total.deltas(epsilons)
    exact = self._exact(1000, epsilons)
    np.testing.assert_array_less(exact, found * (1 + 1e-9))
    np.testing.assert_allclose(found, exact, rtol=1e-3)

  def test_a_coarser_grid_dominates(self):
    law = _law([-3, -1, 0, 2, 5, 7], [1, 2, 9, 4, 2, 1e-3])
    fine = loss_sums.LossSum(self._interval, [(law, 1)])
    # pylint: disable=protected-access
    coarse = fine._coarser()
    ((wide, _),) = coarse._laws
    self.assertEqual(coarse._interval, 2 * self._interval)
    losses = self._interval * law.points
    wide_losses = 2 * self._interval * wide.points
    # Neither law of the pair has less mass.
    for sign in (0, -1):
      self.assertAlmostEqual(
          wide.probs @ np.exp(sign * wide_losses),
          law.probs @ np.exp(sign * losses),
      )
    for epsilon in np.linspace(-0.1, 0.2, 31):
      self.assertGreaterEqual(
          wide.probs @ -np.expm1(np.minimum(epsilon - wide_losses, 0)),
          law.probs @ -np.expm1(np.minimum(epsilon - losses, 0)),
      )


class ComposedEpsilonTest(parameterized.TestCase):

  @parameterized.product(delta=(*_TINY, 1e-100), count=(10, 1000))
  def test_gaussians_are_one_gaussian(self, delta, count):
    profile = local_profiles.gaussian(100.0)
    found = privacy_profiles.composed_epsilon(profile, delta, count=count)
    exact = gaussian.exact_epsilon(sigma=50 / math.sqrt(count), delta=delta)
    self.assertBetween(found, exact, 1.01 * exact)

  def test_tilted_and_plain_transforms_agree(self):
    profile = local_profiles.pure(0.1)
    interval = privacy_profiles.suitable_interval(profile)
    (law,) = privacy_profiles.laws(profile, interval=interval)
    tilted = loss_sums.LossSum(interval, [(law, 500)])
    for delta in (0.1, 1e-3, 1e-6):
      plain = privacy_profiles.composed_epsilon(profile, delta, count=500)
      self.assertAlmostEqual(tilted.epsilon(delta) / plain, 1.0, places=5)

  def test_randomized_response_by_the_binomial_law(self):
    count, epsilon = 1000, 2.0
    profile = local_profiles.pure(epsilon)
    for delta in (1e-12, 1e-30):
      found = privacy_profiles.composed_epsilon(profile, delta, count=count)
      with mpmath.workdps(40):
        keep = 1 / (1 + mpmath.exp(-epsilon))
        exact = sum(
            mpmath.binomial(count, k) * keep**k * (1 - keep) ** (count - k)
            * (1 - mpmath.exp(found - (2 * k - count) * epsilon))
            for k in range(count // 2, count + 1)
            if (2 * k - count) * epsilon > found
        )
      self.assertBetween(exact, 0.98 * delta, delta)

  def test_decreases_in_delta_across_the_switch(self):
    profile = local_profiles.gaussian(200.0)
    deltas = np.geomspace(1e-4, 1e-20, 65)
    found = [
        privacy_profiles.composed_epsilon(profile, delta, count=1000)
        for delta in deltas
    ]
    self.assertTrue(np.all(np.diff(found) > 0), found)


if __name__ == '__main__':
  absltest.main()
