# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The noise that arrives is what its budget asks for, by other means."""

import dataclasses
import functools
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import stats

from tests import audit
from tests.systems.silos import toy
from tff_dp import execution
from tff_dp import silos
from tff_dp.systems.silos import silo_calibration
from tff_dp.systems.silos import silo_sampling

pytestmark = pytest.mark.once

_SIZE = 3000
_CLIP = 0.5


def setUpModule():
  execution.set_default_context()


class CalibratedTest(parameterized.TestCase):
  @parameterized.parameters(
      # Records, batch, epsilon, delta.
      (24, 6, 1.0, 1e-4),
      (30, 10, 6.0, 1e-6),
  )
  @pytest.mark.slow(cases=['0'])
  def test_one_pass_noise_is_that_of_sensitivity_2c_over_k(
      self, records, batch, epsilon, delta
  ):
    process = silos.build_one_pass_accelerated_mb_sgd(
        toy.build_model(_SIZE),
        silos={'only': toy.SiloBudget(records, epsilon, delta)},
        num_rounds=records // batch,
        l2_norm_clip=_CLIP,
        gamma=1.0,
        model_aggregator=toy.Tap(),
    )
    zeros = toy.examples(np.zeros([records, _SIZE]))
    draws = toy.Runner(process).round({'only': zeros})[0]
    # Of N(0, s^2) and N(2C/K, s^2), at the released s and 8 % to either side.
    deltas = []
    for factor in (0.92, 1.0, 1.08):
      stddev = np.std(draws.astype(np.float64)) * factor
      shift = 2 * _CLIP / batch / stddev
      deltas.append(
          stats.norm.cdf(shift / 2 - epsilon / shift)
          - math.exp(epsilon) * stats.norm.cdf(-shift / 2 - epsilon / shift)
      )
    self.assertGreater(deltas[0], delta)
    self.assertLess(deltas[2], delta)


class AuditTest(parameterized.TestCase):
  """A likelihood-ratio attack on one silo's message, -C e_j against +C e_j.

  Record j has coordinate j to itself, so that an adversary who knows all other
  records sees all of it there and nothing elsewhere. The records of one message
  are so many repetitions of the attack.
  """

  _delta = 0.1
  _repetitions = 800

  @functools.cached_property
  def _process(self):
    return toy.build_sgd(
        toy.build_model(self._repetitions),
        silos={'only': toy.free(self._repetitions)},
        num_rounds=1,
        sampling=silo_sampling.DisjointBlocks(self._repetitions),
        l2_norm_clip=1.0,
        noise_stddev=1.0,
    )

  @functools.cache
  def _seen(self, stddev, sign):
    """Returns what the adversary sees of every record, over its share 1/K."""
    terms = self._process.plan.terms['only']
    (phase,) = terms.phases
    # The noise is the silo's own, whatever process it takes part in.
    terms = dataclasses.replace(
        terms, phases=(dataclasses.replace(phase, noise_stddev=stddev),)
    )
    records = sign * 7.0 * np.eye(self._repetitions)
    data = silos.silo_data(terms, toy.examples(records, batch=100))
    output = self._process.next(self._process.initialize(), [data])
    return toy.messages(output)[0] * self._repetitions

  def _lower_bound(self, stddev, threshold):
    """Returns what epsilon at delta is at least, with confidence 99.8 %."""
    return audit.epsilon_lower_bound(
        self._seen(stddev, 1.0),
        self._seen(stddev, -1.0),
        threshold=threshold,
        delta=self._delta,
    )

  def test_attack_stays_below_the_claim_and_catches_half_the_noise(self):
    epsilon = 1.5
    stddev = silo_calibration.calibrate_noise(
        silo_sampling.DisjointBlocks(self._repetitions),
        num_records=self._repetitions,
        num_rounds=1,
        l2_norm_clip=1.0,
        epsilon=epsilon,
        delta=self._delta,
    )
    # The bounds are 0.8 and 2.6 on average, with deviations of 0.1 and 0.2.
    thresholds = (0.0, 0.5, 1.0, 1.5)
    self.assertLess(
        max(self._lower_bound(stddev, value) for value in thresholds), epsilon
    )
    self.assertGreater(
        max(self._lower_bound(stddev / 2, value) for value in thresholds),
        epsilon,
    )


if __name__ == '__main__':
  absltest.main()
