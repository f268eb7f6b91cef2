# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of a guarantee in plain words."""

import math
import re

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats

import tff_dp
from tff_dp import check_ins
from tff_dp import participation
from tff_dp.accounting.curves import gaussian
from tff_dp.mechanisms import randomizers
from tff_dp.statement import builder
from tff_dp.statement import plain_words

_DELTA = 1e-5


def _right_guesses(p, q) -> float:
  """Returns how often the best guess between two distributions is right."""
  return 0.5 * float(np.maximum(p, q).sum())


class BestGuessTest(parameterized.TestCase):

  @parameterized.product(epsilon=(0.0, 0.3, 2.0, 9.0), delta=(0.0, 1e-3, 0.2))
  def test_worst_mechanism_attains_it(self, epsilon, delta):
    # It reveals all with probability delta, else randomized response.
    truth = (1 - delta) / (1 + math.exp(-epsilon))
    p = np.array([delta, 0.0, truth, 1 - delta - truth])
    q = p[[1, 0, 3, 2]]
    self.assertAlmostEqual(
        plain_words.best_guess(epsilon, delta), _right_guesses(p, q), places=12
    )

  @parameterized.product(sigma=(0.3, 1.0, 4.0), delta=(1e-9, 1e-5, 1e-2))
  def test_gaussian_noise_stays_below(self, sigma, delta):
    epsilon = gaussian.exact_epsilon(sigma=sigma, delta=delta)
    self.assertGreater(
        plain_words.best_guess(epsilon, delta), stats.norm.cdf(0.5 / sigma)
    )

  def test_no_privacy_is_certainty(self):
    self.assertEqual(plain_words.best_guess(math.inf, 0.0), 1.0)
    self.assertEqual(plain_words.best_guess(1e6, 1e-5), 1.0)


def _plan(noise_multiplier=5.0) -> tff_dp.DpFtrlPlan:
  schedule = participation.MinSeparation(100, min_index_gap=50)
  return tff_dp.DpFtrlPlan(
      mechanism=tff_dp.mechanisms.HonakerTree(100),
      participation=schedule,
      l2_norm_clip=1.0,
      clients_per_round=5,
      noise_multiplier=noise_multiplier,
  )


class ParagraphTest(parameterized.TestCase):

  def _check(self, statement, *, instead, chance):
    page = statement.to_markdown().splitlines()
    warning, first, *_ = (line for line in page[1:] if line)
    self.assertStartsWith(warning, '**NOT VERIFIED: ')
    self.assertEqual(first, plain_words.paragraph(statement.to_json()))
    self.assertStartsWith(
        first, 'In plain words, if a process follows this plan: '
    )
    self.assertIn(f'one particular client contributed what it did or {instead}',
                  first)
    self.assertIn(f'at most {chance} % of all cases', first)
    self.assertIn(f'from them: {statement.points["setting"]["trusted"]}.',
                  first)
    return first

  def test_schedule(self):
    statement = _plan().statement(delta=_DELTA)
    # S2 of 100 rounds with two participations, see the statement.
    chance = plain_words.best_guess(statement.epsilon, _DELTA)
    self.assertBetween(chance, 0.9, 0.99)
    said = self._check(
        statement,
        instead='nothing at all',
        chance=f'{math.ceil(1e4 * chance) / 100:.2f}',
    )
    self.assertNotIn('amplification', said)
    self.assertNotIn('certainty', said)

  @parameterized.parameters(*range(3, 13))
  def test_chance_is_never_rounded_down(self, noise_multiplier):
    statement = _plan(noise_multiplier).statement(delta=_DELTA)
    said = plain_words.paragraph(statement.to_json())
    (printed,) = re.findall(r'at most ([0-9.]+) % of all', said)
    chance = plain_words.best_guess(statement.epsilon, _DELTA)
    self.assertBetween(float(printed) / 100, chance, chance + 1e-4)

  def test_check_ins_with_local_noise(self):
    plan = tff_dp.CheckInPlan(
        check_ins.FixedWindowCheckIn(400, 0.2),
        randomizers.Sphere(1.0, 0.5),
    )
    statement = plan.statement(delta=_DELTA)
    chance = plain_words.best_guess(statement.epsilon, _DELTA)
    said = self._check(
        statement,
        instead='something else entirely',
        chance=f'{math.ceil(1e4 * chance) / 100:.2f}',
    )
    # Of one report: e / (1 + e), and delta.
    self.assertIn('Without the amplification of point 8 it would be at most'
                  ' 73.11 %.', said)

  def test_large_epsilon_is_called_close_to_certainty(self):
    said = self._check(
        _plan(0.5).statement(delta=_DELTA),
        instead='nothing at all',
        chance='100.00',
    )
    self.assertIn('That is close to certainty', said)

  def test_process_that_was_checked(self):
    statement = _plan().statement_about(
        builder.Occasion(delta=_DELTA, process=builder.CERTIFIED)
    )
    self.assertEmpty(statement.warnings)
    text = statement.to_markdown()
    self.assertStartsWith(text, '# Privacy statement\n\nIn plain words: ')
    self.assertNotIn('if a process', text)
    self.assertEqual(
        statement.points['implementation']['process'], builder.CERTIFIED
    )

  @parameterized.parameters(
      (lambda: _plan(0.0).statement(delta=_DELTA),),
      (lambda: _plan().statement(delta=_DELTA, insecure_seed=True),),
  )
  def test_void(self, build):
    page = build().to_markdown()
    self.assertIn('In plain words: this run protects no client. Treat', page)
    self.assertNotIn('coin flip', page)


if __name__ == '__main__':
  absltest.main()
