# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of a guarantee in plain words."""

import math
import re

from absl.testing import absltest
from absl.testing import parameterized
from scipy import stats

import tff_dp
from tff_dp import check_ins
from tff_dp import participation
from tff_dp.mechanisms import randomizers
from tff_dp.statement import builder
from tff_dp.statement import plain_words

_DELTA = 1e-5


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
    sigma = statement.points['guarantee']['sigma_eff']
    chance = stats.norm.cdf(0.5 / sigma)
    said = self._check(
        statement,
        instead='nothing at all',
        chance=f'{math.ceil(1e3 * chance) / 10:.1f}',
    )
    self.assertNotIn('amplification', said)
    self.assertIn(' moderate protection', said)

  @parameterized.parameters(*range(3, 13))
  def test_chance_is_never_rounded_down(self, noise_multiplier):
    statement = _plan(noise_multiplier).statement(delta=_DELTA)
    said = plain_words.paragraph(statement.to_json())
    (printed,) = re.findall(r'at most ([0-9.]+) % of all', said)
    chance = statement.points['guarantee']['right_guesses']
    self.assertBetween(float(printed) / 100, chance, chance + 1e-3)

  def test_check_ins_with_local_noise(self):
    plan = tff_dp.CheckInPlan(
        check_ins.FixedWindowCheckIn(400, 0.2),
        randomizers.Sphere(1.0, 0.5),
    )
    statement = plan.statement(delta=_DELTA)
    chance = statement.points['guarantee']['right_guesses']
    said = self._check(
        statement,
        instead='something else entirely',
        chance=f'{math.ceil(1e3 * chance) / 10:.1f}',
    )
    # Of one report: e / (1 + e), which is 73.106 %.
    self.assertIn('Without the amplification of point 8 it would be at most'
                  ' 73.2 %.', said)

  def test_large_epsilon_is_called_next_to_none(self):
    said = self._check(
        _plan(0.5).statement(delta=_DELTA),
        instead='nothing at all',
        chance='100.0',
    )
    self.assertIn('That is next to none', said)

  @parameterized.parameters((0.5, 'strong'), (1.0, 'moderate'), (3.0, 'weak'))
  def test_levels_end_at_gaussian_privacy(self, mu, name):
    limit = stats.norm.cdf(mu / 2)
    self.assertStartsWith(plain_words.level(limit - 1e-3), f'{name} (')
    self.assertNotStartsWith(plain_words.level(limit), f'{name} (')
    self.assertIn('the choice of tff_dp', plain_words.level(limit))

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
