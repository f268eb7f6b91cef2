# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for Poisson sampling: laws that other samplers break."""

import json

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats

from tff_dp import _checks
from tff_dp.participation import coins
from tff_dp.systems.sampling import sampler as sampler_lib

_FALSE_ALARM = 1e-6
_KEY = coins.insecure_root_key(7)
_POPULATION, _RATE, _ROUNDS = 40, 0.25, 4000


def _sampler(key=_KEY, population=_POPULATION, members=10):
  return sampler_lib.PoissonSampler(
      population=population, clients_per_round=members, root_key=key
  )


def _drawn(sampler, num_rounds=_ROUNDS) -> np.ndarray:
  """Returns who takes part, shape [rounds, population]."""
  found = np.zeros((num_rounds, _POPULATION), bool)
  for one in found:
    one[sampler.next()] = True
  return found


def _is_poisson(drawn) -> dict[str, bool]:
  """Returns law -> whether independent coins explain what was drawn."""
  sizes = drawn.sum(axis=1)
  # A sum of independent coins is binomial.
  law = stats.binom(_POPULATION, _RATE)
  cells = np.array([0, 6, 8, 9, 10, 11, 12, 14, _POPULATION + 1])
  expected = np.diff(law.cdf(cells - 1)) * len(drawn)
  seen, _ = np.histogram(sizes, cells)
  by_member = drawn.sum(axis=0)
  again = (drawn[1:] & drawn[:-1]).sum()
  pairs = drawn[1:].size
  return {
      'sizes': stats.chisquare(seen, expected * seen.sum() / expected.sum())
      .pvalue > _FALSE_ALARM,
      'members': stats.binomtest(
          int(abs(by_member - _RATE * len(drawn)).max() + _RATE * len(drawn)),
          len(drawn), _RATE,
      ).pvalue > _FALSE_ALARM / _POPULATION,
      'rounds': stats.binomtest(int(again), pairs, _RATE**2).pvalue
      > _FALSE_ALARM,
  }


class SamplerTest(parameterized.TestCase):

  def test_coins_are_independent(self):
    self.assertTrue(all(_is_poisson(_drawn(_sampler())).values()))

  def test_a_cohort_of_fixed_size_is_noticed(self):
    rng = np.random.default_rng(1)
    fixed = np.zeros((_ROUNDS, _POPULATION), bool)
    for one in fixed:
      one[rng.choice(_POPULATION, 10, replace=False)] = True
    self.assertFalse(_is_poisson(fixed)['sizes'])

  def test_coins_that_serve_two_rounds_are_noticed(self):
    reused = np.repeat(_drawn(_sampler(), _ROUNDS // 2), 2, axis=0)
    self.assertFalse(_is_poisson(reused)['rounds'])

  def test_rounds_are_empty_and_full(self):
    small = _sampler(population=2, members=1)
    sizes = {len(small.next()) for _ in range(60)}
    self.assertEqual(sizes, {0, 1, 2})
    everybody = _sampler(members=_POPULATION)
    self.assertLen(everybody.next(), _POPULATION)

  def test_keys_give_other_cohorts(self):
    first, second = (
        _drawn(_sampler(coins.random_root_key()), 50) for _ in range(2)
    )
    self.assertFalse(np.array_equal(first, second))

  def test_it_resumes_with_the_same_coins(self):
    sampler = _sampler()
    _drawn(sampler, 5)
    saved = sampler.to_bytes()
    again = _sampler(bytes(16)).restored(saved)
    self.assertEqual(again.position, 5)
    np.testing.assert_array_equal(_drawn(again, 5), _drawn(sampler, 5))

  @parameterized.parameters(
      ('population', 41), ('clients_per_round', 9), ('version', 0),
      ('position', -1), ('position', 1.5), ('root_key', 'ab'),
  )
  def test_damaged_bytes_are_refused(self, name, value):
    content = json.loads(_sampler().to_bytes()) | {name: value}
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'coins are damaged'):
      _sampler().restored(json.dumps(content).encode())


if __name__ == '__main__':
  absltest.main()
