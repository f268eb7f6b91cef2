# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for calibration: the answer meets the target, and barely."""

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp.accounting import calibration
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events

_REPLACE_ONE = run_events.NeighboringRelation.REPLACE_ONE


class NoiseMultiplierTest(parameterized.TestCase):

  @parameterized.product(
      method=gaussian.METHODS,
      epsilon=(0.1, 2, 8, 17.67),
      squared_sensitivity=(1, 3, 11, 79, 2791984, 7.3),
      relation=tuple(run_events.NeighboringRelation),
  )
  def test_round_trip(self, method, epsilon, squared_sensitivity, relation):
    spend = {
        'exact': gaussian.exact_epsilon,
        'rdp': gaussian.rdp_epsilon,
    }[method]
    multiplier = calibration.noise_multiplier(
        epsilon=epsilon,
        delta=1e-6,
        squared_sensitivity=squared_sensitivity,
        method=method,
        neighboring_relation=relation,
    )
    for noise, is_private in ((multiplier, True), (multiplier * 0.999, False)):
      sigma = run_events.effective_sigma(
          noise_multiplier=noise,
          squared_sensitivity=squared_sensitivity,
          neighboring_relation=relation,
      )
      spent = spend(sigma=sigma, delta=1e-6)
      self.assertEqual(spent <= epsilon, is_private)

  def test_inverts_the_published_stackoverflow_setting(self):
    for epsilon, method in ((17.67, 'exact'), (18.71, 'rdp')):
      self.assertAlmostEqual(
          calibration.noise_multiplier(
              epsilon=epsilon,
              delta=1e-6,
              squared_sensitivity=11,
              method=method,
          ),
          1.13,
          delta=0.001,
      )

  def test_replace_one_doubles_the_noise(self):
    arguments = {'epsilon': 8, 'delta': 1e-6, 'squared_sensitivity': 11}
    self.assertAlmostEqual(
        calibration.noise_multiplier(
            **arguments, neighboring_relation=_REPLACE_ONE
        ),
        2 * calibration.noise_multiplier(**arguments),
    )

  @parameterized.parameters(
      ({'epsilon': 0}, '^epsilon=0'),
      ({'delta': 1}, '^delta=1'),
      ({'squared_sensitivity': -1}, '^squared_sensitivity=-1'),
      ({'method': 'pld'}, "^method='pld'"),
      ({'neighboring_relation': 'none'}, 'none'),
  )
  def test_names_the_argument(self, changed, message):
    arguments = {'epsilon': 8, 'delta': 1e-6, 'squared_sensitivity': 11}
    with self.assertRaisesRegex(ValueError, message):
      calibration.noise_multiplier(**{**arguments, **changed})


if __name__ == '__main__':
  absltest.main()
