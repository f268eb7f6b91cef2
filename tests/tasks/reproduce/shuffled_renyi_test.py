# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The Renyi reference of shuffled check-in, against laws of every outcome."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import mpmath
import numpy as np
import pytest

from tasks.reproduce.published import shuffled_renyi
from tests.accounting import protocol_laws as laws
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.systems.check_ins import shuffled_check_in

pytestmark = pytest.mark.once


def _exact(e0, num_clients, rate, order):
  """Returns the worst divergence of randomized response, both directions."""
  matrix = laws.randomized_response(e0)
  worst = 0.0
  for pair in laws.neighbours(num_clients, 2):
    one, other = laws.aligned(
        *(laws.shuffled(matrix, inputs, rate) for inputs in pair)
    )
    worst = max(
        worst,
        laws.renyi_moment(one, other, order),
        laws.renyi_moment(other, one, order),
    )
  return math.log(worst) / (order - 1)


def _literal_excess(e0, num_clients, k, rate, order):
  """Returns lemma 4's bound on m_k - 1, term by term."""
  with mpmath.workdps(50):
    e0, rate = mpmath.mpf(e0), mpmath.mpf(rate)
    crowd = mpmath.floor((k - 1) / (2 * mpmath.exp(e0))) + 1
    total = 4 * mpmath.binomial(order, 2) * rate**2
    total *= (mpmath.exp(e0) - 1) ** 2 / (crowd * mpmath.exp(e0))
    base = 2 * (mpmath.exp(2 * e0) - 1) ** 2 / (crowd * mpmath.exp(2 * e0))
    for j in range(3, order + 1):
      total += (
          mpmath.binomial(order, j)
          * rate**j
          * j
          * mpmath.gamma(mpmath.mpf(j) / 2)
          * base ** (mpmath.mpf(j) / 2)
      )
    x = rate * (mpmath.exp(2 * e0) - 1) / mpmath.exp(e0)
    total += ((1 + x) ** order - 1 - order * x) * mpmath.exp(
        -mpmath.mpf(k - 1) / (8 * mpmath.exp(e0))
    )
    return total


class RenyiTest(parameterized.TestCase):

  @parameterized.product(e0=(0.2, 2.0, 5.0), order=(2, 3, 7, 30))
  def test_pure_is_randomized_response(self, e0, order):
    matrix = laws.randomized_response(e0)
    exact = math.log(laws.renyi_moment(*matrix, order)) / (order - 1)
    self.assertAlmostEqual(shuffled_renyi.pure(e0, order), exact, delta=1e-12)

  @parameterized.product(
      num_clients=(1, 2, 3, 6, 10), rate=(0.1, 0.5, 1.0), order=(2, 3, 5, 12)
  )
  def test_between_floor_and_bound(self, num_clients, rate, order):
    for e0 in (0.3, 1.0, 3.0):
      arguments = {
          'local_epsilon': e0,
          'num_clients': num_clients,
          'check_in_rate': rate,
          'order': order,
      }
      exact = _exact(e0, num_clients, rate, order)
      self.assertLessEqual(
          exact, shuffled_renyi.round_divergence(**arguments) + 1e-12
      )
      floor = shuffled_renyi.randomized_response_floor(**arguments)
      self.assertLessEqual(floor, exact + 1e-12)

  @parameterized.parameters(1, 2)
  def test_the_rate_is_not_g(self, num_clients):
    # Who is alone is seen to check in: at a fixed rate g the moment would be
    # below the truth.
    e0, rate, order = 1.0, 0.1, 12
    exact = _exact(e0, num_clients, rate, order)
    logs = shuffled_renyi._log_excess(  # pylint: disable=protected-access
        e0, np.array([1]), np.array([rate]), order
    )
    wrong = math.log1p(math.exp(float(logs[0]))) / (order - 1)
    self.assertLess(wrong, exact)

  @parameterized.product(
      e0=(0.1, 1.0, 4.0), k=(1, 7, 1000), order=(2, 3, 6, 40)
  )
  def test_lemma_4_term_by_term(self, e0, k, order):
    for num_clients in (1000, 10**6):
      rate = k / num_clients
      found = math.exp(
          shuffled_renyi._log_excess(  # pylint: disable=protected-access
              e0, np.array([k]), np.array([rate]), order
          )[0]
      )
      exact = float(_literal_excess(e0, num_clients, k, rate, order))
      self.assertGreaterEqual(found, exact * (1 - 1e-12))
      self.assertAlmostEqual(found / exact, 1.0, delta=1e-3)

  @parameterized.parameters((60, 0.3), (1000, 0.02), (10**5, 0.1))
  def test_cohorts_cover_all(self, num_clients, rate):
    # pylint: disable=protected-access
    starts, ends, masses = shuffled_renyi._cohorts(num_clients, rate)
    self.assertEqual((starts[0], ends[-1]), (1, num_clients))
    np.testing.assert_array_equal(starts[1:], ends[:-1] + 1)
    exact = 1 - (1 - rate) ** num_clients
    self.assertAlmostEqual(masses.sum(), exact, delta=1e-6)
    self.assertGreaterEqual(masses.sum(), exact - 1e-15)

  @parameterized.parameters((0.5, 680), (2.0, 6800))
  def test_looser_than_the_numeric_profile(self, e0, num_rounds):
    n = 60_000
    arguments = {
        'local_epsilon': e0,
        'num_clients': n,
        'check_in_rate': 0.1,
    }
    renyi = shuffled_renyi.shuffled_check_in_epsilon(
        num_rounds=num_rounds, delta=1 / n, **arguments
    )
    numeric = privacy_profiles.composed_epsilon(
        shuffled_check_in.round_profile(**arguments), 1 / n, count=num_rounds
    )
    self.assertBetween(renyi, numeric, 10 * numeric)

  def test_never_above_no_amplification(self):
    found = shuffled_renyi.shuffled_check_in_epsilon(
        local_epsilon=0.1,
        num_clients=1,
        check_in_rate=1.0,
        num_rounds=2,
        delta=1e-9,
    )
    self.assertLessEqual(found, 0.2)

  @parameterized.parameters(2, 100, 8192)
  def test_one_client_is_not_amplified(self, order):
    # Moments of high orders exceed the largest float.
    found = shuffled_renyi.round_divergence(
        local_epsilon=1.0, num_clients=1, check_in_rate=1.0, order=order
    )
    exact = shuffled_renyi.pure(1.0, order)
    self.assertBetween(found / exact, 1.0, 1 + 1e-6)

  def test_monotone(self):
    base = {
        'local_epsilon': 1.0,
        'num_clients': 500,
        'check_in_rate': 0.1,
        'order': 6,
    }
    value = shuffled_renyi.round_divergence(**base)
    for changes in (
        {'local_epsilon': 1.2},
        {'num_clients': 300},
        {'check_in_rate': 0.2},
        {'order': 8},
    ):
      self.assertGreater(
          shuffled_renyi.round_divergence(**(base | changes)), value
      )

  def test_an_optimum_at_the_edge_is_reported(self):
    with self.assertRaisesRegex(
        privacy_profiles.NotApplicableError, 'the best order'
    ):
      shuffled_renyi.shuffled_check_in_epsilon(
          local_epsilon=1e-3,
          num_clients=10**6,
          check_in_rate=1e-3,
          num_rounds=10**4,
          delta=1e-12,
      )

  def test_bad_input(self):
    base = {
        'local_epsilon': 1.0,
        'num_clients': 500,
        'check_in_rate': 0.1,
        'order': 6,
    }
    for changes, message in (
        ({'order': 1}, 'order=1 '),
        ({'order': 2.5}, 'order=2.5'),
        ({'num_clients': 0}, 'num_clients=0'),
        ({'check_in_rate': 1.1}, 'check_in_rate=1.1'),
    ):
      with self.assertRaisesRegex(ValueError, message):
        shuffled_renyi.round_divergence(**(base | changes))


if __name__ == '__main__':
  absltest.main()
