# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the tails of a loss distribution, against dp_accounting."""

import math

from absl.testing import absltest
from absl.testing import parameterized
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution
import numpy as np

from tff_dp import _compat_losses
from tff_dp.accounting.curves import loss_tails

_EPSILONS = np.array([0.5, 0.0, 1e-9, 3.0, 0.25, 40.0, 600.0, math.inf])
_DELTAS = (1e-14, 1e-8, 1e-3, 0.03, 0.3, 0.9, 0.999)


def _sampled(count: int):
  """Returns a dense distribution whose directions differ."""
  return privacy_loss_distribution.from_gaussian_mechanism(
      1.0, value_discretization_interval=1e-2, sampling_prob=0.1
  ).self_compose(count)


def _responses(count: int):
  """Returns a distribution of a few losses, far apart on the grid."""
  return privacy_loss_distribution.from_randomized_response(
      0.5, 3, value_discretization_interval=1e-7
  ).self_compose(count)


def _pmf(lowest, probs, infinite, interval=0.5) -> pld_pmf.DensePLDPmf:
  return pld_pmf.DensePLDPmf(
      interval, lowest, np.array(probs, np.float64), infinite, True
  )


_PMFS = {
    'sampled': _sampled(1),
    'many_sampled': _sampled(500),
    'sparse': _responses(1),
    'three_sparse': _responses(3),
    'nothing': privacy_loss_distribution.identity(),
    'no_loss_above_0': _pmf(-3, [0.25, 0.5, 0.0, 0.25], 0.0),
    'infinite': _pmf(-1, [0.2, 0.3, 0.4], 0.1),
    # exp(-loss) is 0 for the largest two, and not for the others.
    'huge': _pmf(-1, [0.5, 0.2, 0.0, 0.2, 0.1], 1e-9, 400.0),
}


class LossTailsTest(parameterized.TestCase):

  @parameterized.parameters(*_PMFS)
  def test_results_are_those_of_dp_accounting(self, name):
    sides = [_PMFS[name]]
    if isinstance(
        sides[0], privacy_loss_distribution.PrivacyLossDistribution
    ):
      sides = _compat_losses.loss_directions(sides[0])
    for pmf in sides:
      tails = loss_tails.LossTails(pmf)
      order = np.argsort(_EPSILONS)
      expected = pmf.get_delta_for_epsilon(list(_EPSILONS[order]))
      found = tails.deltas(_EPSILONS.reshape(2, -1))
      np.testing.assert_allclose(
          found.ravel()[order], expected, rtol=1e-14, atol=0
      )
      for delta in _DELTAS:
        expected = max(0.0, pmf.get_epsilon_for_delta(delta))
        self.assertAlmostEqual(
            tails.epsilon(delta), expected, delta=1e-12 * (1 + expected)
        )

  def test_delta_at_the_epsilon_is_the_delta(self):
    tails = loss_tails.LossTails(_PMFS['many_sampled']._pmf_remove)
    for delta in _DELTAS[1:-2]:
      epsilon = tails.epsilon(delta)
      self.assertGreater(epsilon, 0)
      (found,) = tails.deltas([epsilon])
      self.assertAlmostEqual(found / delta, 1, delta=1e-6)

  def test_no_finite_loss(self):
    tails = loss_tails.LossTails(pld_pmf.SparsePLDPmf({}, 0.5, 1.0, True))
    self.assertEqual(tails.epsilon(0.5), math.inf)
    self.assertEqual(tails.deltas(np.array([0.0, 2.0])).tolist(), [1.0, 1.0])

  def test_infinite_loss_above_delta(self):
    tails = loss_tails.LossTails(_PMFS['infinite'])
    self.assertEqual(tails.epsilon(0.0999), math.inf)
    self.assertEqual(tails.deltas(0.5), 0.1)


if __name__ == '__main__':
  absltest.main()
