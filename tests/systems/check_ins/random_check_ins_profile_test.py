# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for random_check_ins: theorem 3.2 step by step, against exact laws."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import mpmath
import numpy as np
import pytest

from tests.accounting import check_in_laws
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.systems.check_ins import random_check_ins

pytestmark = pytest.mark.once

_EPSILONS = np.array([0.0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0])


def _epsilon(**settings) -> float:
  return privacy_profiles.epsilon_of(
      random_check_ins.theorem_3_2_profile(**settings), 1e-6
  )


class StepsTest(parameterized.TestCase):

  @parameterized.parameters((1.0, 7, 1.0), (0.3, 4, 0.2), (3.0, 5, 0.6))
  def test_formula(self, e0, m, p0):
    steps = random_check_ins.step_epsilons(
        local_epsilon=e0, num_slots=m, check_in_probability=p0
    )
    for i in range(1, m + 1):
      q = 1 / (m - (i - 1) * p0 * (1 - math.exp(-e0)))
      self.assertAlmostEqual(
          steps[i - 1], math.log(1 + p0 * math.expm1(e0) * q), delta=1e-12
      )

  @parameterized.product(
      e0=(0.3, 1.5), p0=(0.4, 1.0), others=((), (0, 0), (0, 1)), adapts=(0, 1)
  )
  def test_each_step_given_the_past_on_all_neighbours(
      self, e0, p0, others, adapts
  ):
    # The bound is on every conditional law, not only on their composition.
    m = 3
    steps = random_check_ins.step_epsilons(
        local_epsilon=e0, num_slots=m, check_in_probability=p0
    )
    laws = [
        check_in_laws.fixed_window(
            (bit,) + others,
            num_slots=m,
            check_in_probability=p0,
            local_epsilon=e0,
            dummy=0,
            adapts=adapts,
        )
        for bit in (0, 1)
    ]
    for i in range(m):
      for past in {outcome[:i] for outcome in laws[0]}:
        given = [
            [
                sum(p for o, p in law.items() if o[: i + 1] == past + (report,))
                for report in (0, 1)
            ]
            for law in laws
        ]
        first, second = [np.array(row) / sum(row) for row in given]
        ratio = np.abs(np.log(first / second)).max()
        self.assertLessEqual(ratio, steps[i] + 1e-12)

  @parameterized.product(e0=(1.0, 16.0, 36.0), p0=(0.3, 1.0))
  def test_steps_are_rounded_up(self, e0, p0):
    m = 10**6
    steps = random_check_ins.step_epsilons(
        local_epsilon=e0, num_slots=m, check_in_probability=p0
    )
    with mpmath.workdps(60):
      stay = p0 * (1 - mpmath.exp(-e0))
      for i in (0, m // 2, *range(m - 9, m)):
        exact = mpmath.log1p(p0 * mpmath.expm1(e0) / (m - i * stay))
        self.assertGreaterEqual(float(steps[i]), exact)
        self.assertLess(float(steps[i]), exact * (1 + 1e-11))

  def test_last_step_is_attained(self):
    # All reports before looked like somebody else's: with dummies of 0 and
    # reports of 0 so far, the client with a 1 is most likely still to come.
    e0, m = 1.0, 4
    laws = [
        check_in_laws.fixed_window(
            (bit,),
            num_slots=m,
            check_in_probability=1.0,
            local_epsilon=e0,
            dummy=0,
            adapts=False,
        )
        for bit in (0, 1)
    ]
    past = (0,) * (m - 1)
    ones = [
        law[past + (1,)] / (law[past + (0,)] + law[past + (1,)]) for law in laws
    ]
    step = random_check_ins.step_epsilons(local_epsilon=e0, num_slots=m)[-1]
    self.assertAlmostEqual(math.log(ones[1] / ones[0]), step, delta=1e-9)


class ProfileTest(parameterized.TestCase):

  @parameterized.product(
      e0=(0.3, 1.0, 2.5),
      p0=(0.3, 1.0),
      others=((), (0,), (1,), (0, 1), (0, 0, 0)),
      dummy=(0, 0.5),
      adapts=(False, True),
  )
  def test_never_below_the_exact_law(self, e0, p0, others, dummy, adapts):
    m = 3 if len(others) > 2 else 4
    laws = [
        check_in_laws.fixed_window(
            (bit,) + others,
            num_slots=m,
            check_in_probability=p0,
            local_epsilon=e0,
            dummy=dummy,
            adapts=adapts,
        )
        for bit in (0, 1)
    ]
    settings = dict(local_epsilon=e0, num_slots=m, check_in_probability=p0)
    bounds = random_check_ins.theorem_3_2_profile(**settings)(_EPSILONS)
    thinned = privacy_profiles.subsampled(local_profiles.pure(e0), p0)(
        _EPSILONS
    )
    for first, second in (laws, laws[::-1]):
      exact = check_in_laws.divergences(first, second, _EPSILONS)
      self.assertTrue(np.all(bounds >= exact - 1e-12), (bounds, exact))
      self.assertTrue(np.all(thinned >= exact - 1e-12), (thinned, exact))

  @parameterized.product(
      e0=(0.2, 1.0), m=(100, 2000), p0=(0.05, 1.0), dummy=(0, 0.5, 1)
  )
  def test_many_slots_of_dummies(self, e0, m, p0, dummy):
    epsilons = np.array([0.0, 1e-4, 1e-3, 0.003, 0.01, 0.03, 0.1, 0.3])
    laws = [
        check_in_laws.lonely_fixed_window(
            bit,
            num_slots=m,
            check_in_probability=p0,
            local_epsilon=e0,
            dummy=dummy,
        )
        for bit in (0, 1)
    ]
    bounds = random_check_ins.theorem_3_2_profile(
        local_epsilon=e0, num_slots=m, check_in_probability=p0
    )(epsilons)
    for first, second in (laws, laws[::-1]):
      exact = check_in_laws.divergences(first, second, epsilons)
      self.assertTrue(np.all(bounds >= exact - 1e-12), (bounds, exact))

  def test_the_bound_is_not_idle(self):
    # Next to the exact law where e0 is small; dummies alone are not the worst
    # that others can do.
    e0, m = 0.2, 2000
    laws = [
        check_in_laws.lonely_fixed_window(
            bit,
            num_slots=m,
            check_in_probability=1.0,
            local_epsilon=e0,
            dummy=0,
        )
        for bit in (0, 1)
    ]
    bound = _epsilon(local_epsilon=e0, num_slots=m)
    self.assertGreater(
        check_in_laws.divergences(laws[0], laws[1], [0.75 * bound])[0], 1e-6
    )

  @parameterized.product(
      e0=(0.1, 0.5, 1.0, 2.0), m=(10, 200, 2000), p0=(0.1, 1)
  )
  def test_at_most_the_closed_form_and_one_report(self, e0, m, p0):
    settings = dict(local_epsilon=e0, num_slots=m, check_in_probability=p0)
    numeric = _epsilon(**settings)
    self.assertLessEqual(
        numeric, random_check_ins.theorem_3_2(**settings, delta=1e-6) + 1e-12
    )
    self.assertLessEqual(numeric, e0 + 1e-12)

  def test_composition_of_two_by_hand(self):
    e0 = 0.4
    first, second = random_check_ins.step_epsilons(
        local_epsilon=e0, num_slots=2
    )
    for epsilon in (0.0, 0.1, 0.2, 0.3):
      exact = 0.0
      for a in (1, -1):
        for b in (1, -1):
          loss = a * first + b * second
          up = 1 / (1 + math.exp(-a * first)) / (1 + math.exp(-b * second))
          exact += max(0.0, up * (1 - math.exp(epsilon - loss)))
      bound = float(
          random_check_ins.theorem_3_2_profile(
              local_epsilon=e0, num_slots=2
          )(epsilon)
      )
      self.assertGreaterEqual(bound, min(
          exact, float(local_profiles.pure(e0)(np.array(epsilon)))
      ) - 1e-14)
      self.assertLessEqual(bound, exact * 1.02 + 1e-4)

  def test_monotone(self):
    base = dict(local_epsilon=1.0, num_slots=500, check_in_probability=0.5)

    def along(name, values):
      return [_epsilon(**{**base, name: value}) for value in values]

    for name, values in (
        ('local_epsilon', (0.1, 0.5, 1.0, 1.5)),
        ('check_in_probability', (0.05, 0.2, 0.5, 1.0)),
        ('num_slots', (4000, 1000, 500, 100)),
    ):
      found = along(name, values)
      self.assertEqual(found, sorted(found), name)

  def test_nobody_or_nothing(self):
    for settings in (
        dict(local_epsilon=0.0, num_slots=5),
        dict(local_epsilon=2.0, num_slots=5, check_in_probability=0.0),
    ):
      self.assertEqual(_epsilon(**settings), 0.0)

  def test_one_slot_is_randomized_response(self):
    profile = random_check_ins.theorem_3_2_profile(
        local_epsilon=0.7, num_slots=1
    )
    exact = local_profiles.pure(0.7)(_EPSILONS)
    np.testing.assert_allclose(profile(_EPSILONS), exact, rtol=1e-9, atol=1e-9)

  def test_too_many_slots(self):
    with self.assertRaisesRegex(
        privacy_profiles.NotApplicableError, 'too many'
    ):
      random_check_ins.theorem_3_2_profile(local_epsilon=1.0, num_slots=10**8)

  def test_errors(self):
    for name, value in (
        ('local_epsilon', -1.0),
        ('num_slots', 0),
        ('check_in_probability', 1.5),
        ('check_in_probability', math.nan),
    ):
      settings = dict(local_epsilon=1.0, num_slots=5)
      settings[name] = value
      with self.assertRaisesRegex(ValueError, f'^{name}='):
        random_check_ins.theorem_3_2_profile(**settings)


if __name__ == '__main__':
  absltest.main()
