# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the rows that measure the excess risk of convex problems."""

import dataclasses
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tasks.reproduce import check_ins_rates
from tasks.reproduce import isrl_risk
from tasks.reproduce import rows

_RUN = rows.Run(scale=0.1, seeds=4, output_dir=pathlib.Path('.'))
_FIXED = check_ins_rates.Case('fixed', [])
_AVERAGED = check_ins_rates.Case('averaged', [], is_averaged=True)
_SMOOTH = check_ins_rates.Case(
    'smooth', [], is_averaged=True, is_smooth=True
)


class CheckInsRatesTest(parameterized.TestCase):

  @parameterized.named_parameters(
      # R (1 - 2 exp(-n / m)) / sqrt((d tau^2 + G^2) i), with R = 4, d = 10.
      ('fixed', _FIXED, 4 * 0.729329 / np.sqrt(11 * np.array([1, 2, 3]))),
      # R sqrt(n) / sqrt((m d tau^2 + n G^2) i).
      ('averaged', _AVERAGED, 4 * np.sqrt(6 / (36 * np.array([1, 2, 3])))),
      # R sqrt(n) / (beta R sqrt(n) + m sqrt(G^2 + d tau^2)), with G = 3.
      ('smooth', _SMOOTH, np.full(3, 9.797959 / (9.797959 + 3 * 19**0.5))),
  )
  def test_steps_are_those_of_the_theorem(self, case, expected):
    np.testing.assert_allclose(case.steps(3, 6), expected, rtol=1e-5)

  def test_rates_are_those_of_the_theorem(self):
    self.assertAlmostEqual(
        _FIXED.rate(100, 200), np.sqrt(0.11) * 4 / 0.729329, 5
    )
    self.assertAlmostEqual(_AVERAGED.rate(100, 200), 4 * np.sqrt(0.05 + 0.01))
    self.assertAlmostEqual(
        _SMOOTH.rate(100, 200), 4 * np.sqrt(19 / 200) + 16 / 100
    )

  @parameterized.parameters(_FIXED, _AVERAGED, _SMOOTH)
  def test_gradient_and_risk_are_of_one_loss(self, case):
    # The mean gradient of many clients is that of the risk.
    rng = np.random.default_rng(0)
    point = rng.uniform(-0.3, 0.3, size=[1, 10])
    found = case._gradient(point, np.array([10**7]), rng)
    for axis, step in enumerate(1e-4 * np.eye(10)):
      risen = case._excess(point + step) - case._excess(point - step)
      self.assertAlmostEqual(found[0, axis], risen[0] / 2e-4, delta=2e-3)

  def test_an_empty_slot_moves_only_the_fixed_window(self):
    rng = np.random.default_rng(0)
    for case, moves in ((_FIXED, True), (_AVERAGED, False)):
      with mock.patch.object(
          check_ins_rates.Case, '_reports', lambda self, m, n, rng: np.zeros(m, int)
      ):
        found = case.excess_risks(1, 2, rng, 3)
      start = case._excess(np.zeros([1, 10]))[0]
      self.assertEqual(bool(np.all(found != start)), moves)

  def test_verdict_sees_a_risk_that_stays(self):
    self.assertEqual(check_ins_rates.run(_RUN).verdict, rows.HOLDS)
    with mock.patch.object(
        check_ins_rates.Case, 'steps', lambda self, m, n: np.full(m, 1e-9)
    ):
      self.assertEqual(check_ins_rates.run(_RUN).verdict, rows.FAILS)


class IsrlRiskTest(absltest.TestCase):

  def test_risk_is_within_the_bound_and_beyond_it_with_more_noise(self):
    for case, num_records in isrl_risk.cases(8.0):
      risks = {
          factor: np.mean([
              dataclasses.replace(
                  case, stddevs=tuple(factor * s for s in case.stddevs)
              ).excess_risk(num_records, np.random.default_rng(seed))
              for seed in range(2)
          ])
          for factor in (1, 1000)
      }
      self.assertLess(risks[1], case.bound, case.name)
      self.assertGreater(risks[1000], case.bound, case.name)

  def test_bound_without_noise_and_sampling_is_of_the_steps_alone(self):
    # Every round sees the gradient of the risk itself.
    oracle = lambda r, point: isrl_risk._CURVATURE * point
    for rounds in (5, 40):
      for bound_of, optimizer_of in (
          (isrl_risk._plain_bound, isrl_risk._plain),
          (isrl_risk._one_stage_bound, isrl_risk._one_stage),
          (isrl_risk._stages_bound, isrl_risk._stages),
      ):
        model = optimizer_of(rounds, 0.0)(oracle)
        risk = 0.5 * np.sum(isrl_risk._CURVATURE * model**2)
        self.assertBetween(risk, 0, bound_of(rounds, 0.0))

  def test_one_pass_reads_no_record_twice(self):
    for case, num_records in isrl_risk.cases(1.0):
      if case.is_one_pass:
        calls = []
        case.optimize(lambda r, w: calls.append(r) or np.zeros(12))
        self.assertEqual(calls, list(range(len(calls))))
        for batch, count in zip(case.batches, num_records):
          self.assertLessEqual(batch * len(calls), count)


if __name__ == '__main__':
  absltest.main()
