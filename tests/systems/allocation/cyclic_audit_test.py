# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""An audit of cyclic allocation by canaries: what runs against what is claimed.

A canary's update is one known direction at the clip norm, in which nobody else
has anything, so an adversary reads one number a round. It knows the canary's
residue class, has learnt from other runs how often each slot is taken, and
takes the likelihood ratio. The slots are those of the sampler, the noise is
that of the mechanism's recursion.
"""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from tests import audit
from tests.mechanisms import contract
from tff_dp import allocation
from tff_dp import mechanisms
from tff_dp import plans
from tff_dp.participation import samplers

pytestmark = pytest.mark.once

_DELTA = 0.02
# Two windows of three slots in each of four classes.
_STRIDE = 4
_PLAN = plans.AllocationPlan(
    allocation.CyclicAllocation(24, num_windows=2, stride=_STRIDE),
    noise_multiplier=1.4,
    l2_norm_clip=1.0,
    mechanism=mechanisms.Banded.square_root(24, _STRIDE),
)
# Of the canaries' class, counted from 0.
_WINDOWS = [[step - 1 for step in _PLAN.protocol.steps(0, w)] for w in (0, 1)]
# Chosen on runs of their own, as a share of those without a canary.
_FALSE_ALARMS = np.geomspace(0.01, 0.5, 12)


def _contributions() -> np.ndarray:
  """Returns 1 where a canary of class 0 comes; shape [rounds, canaries]."""
  num_clients = 240_000
  sampler = samplers.build(
      _PLAN.protocol, root_key=bytes(range(16)), num_clients=num_clients
  )
  came = np.zeros((_PLAN.num_rounds, num_clients))
  for t in range(_PLAN.num_rounds):
    came[t, sampler.cohort(0, t + 1).clients] = 1.0
  return came[:, came[::_STRIDE].any(axis=0)]


def _lower_bound(contributions, *, noise_multiplier=None):
  """Returns what epsilon is at least; too large with probability 0.4 %.

  One half of the runs chooses the attack, the other half is attacked.

  Args:
    contributions: Of canaries that are there; [rounds, canaries].
    noise_multiplier: Of what runs, `None` for that of the plan.
  """
  sigma = noise_multiplier or _PLAN.noise_multiplier
  rng = np.random.default_rng(0)
  num_runs = contributions.shape[1]
  half = num_runs // 2
  shares = contributions[:, :half].mean(axis=1)
  encoder = np.linalg.inv(contract.noise_matrix(_PLAN.mechanism)[0])
  squared_norms = np.sum(encoder**2, axis=0)[:, np.newaxis]

  def scores(contribution):
    """Returns log P/Q of what is released."""
    noise = contract.run(
        _PLAN.mechanism, lambda *_: rng.standard_normal(num_runs), num_runs
    )
    released = encoder @ (contribution + sigma * np.stack(noise))
    exponents = (encoder.T @ released - 0.5 * squared_norms) / sigma**2
    losses = 0.0
    for window in _WINDOWS:
      # The last is for coming in none of them.
      weights = np.append(shares[window], 1 - shares[window].sum())
      of_slots = np.vstack([exponents[window], np.zeros(num_runs)])
      losses += np.log(np.maximum(weights, 0.0) @ np.exp(of_slots))
    return losses

  present, absent = scores(contributions), scores(0.0)
  found = []
  # With a canary against without one, and the other way around.
  for p, q in ((present, absent), (-absent, -present)):
    threshold = max(
        np.quantile(q[:half], 1 - _FALSE_ALARMS),
        key=lambda threshold: audit.epsilon_lower_bound(
            p[:half], q[:half], threshold=threshold, delta=_DELTA
        ),
    )
    found.append(
        audit.epsilon_lower_bound(
            p[half:], q[half:], threshold=threshold, delta=_DELTA
        )
    )
  return max(found)


class AuditTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls._drawn = _contributions()
    cls._claim = _PLAN.epsilon(delta=_DELTA)

  def test_what_runs_stays_below_the_claim_and_close_to_it(self):
    found = _lower_bound(self._drawn)
    self.assertLess(found, self._claim)
    self.assertGreater(found, 0.8 * self._claim)

  def test_who_cannot_come_drops_out_and_costs_less(self):
    came = np.zeros_like(self._drawn)
    for window in _WINDOWS:
      came[window[-1]] = self._drawn[window[-1]]
    found = _lower_bound(came)
    self.assertLess(found, 0.8 * self._claim)

  def test_who_is_moved_on_is_found_out(self):
    came = np.zeros_like(self._drawn)
    for window in _WINDOWS:
      came[window[-1]] = self._drawn[window].sum(axis=0)
    found = _lower_bound(came)
    self.assertGreater(found, self._claim)
    # As nothing is hidden any more, only what needs no draws holds.
    self.assertLess(found, _PLAN.epsilon_no_amplification(delta=_DELTA))

  def test_noise_that_forgets_the_column_norm_is_found_out(self):
    norm = np.linalg.norm(_PLAN.mechanism.column(_STRIDE))
    found = _lower_bound(
        self._drawn, noise_multiplier=_PLAN.noise_multiplier / norm
    )
    self.assertGreater(found, self._claim)


if __name__ == '__main__':
  absltest.main()
