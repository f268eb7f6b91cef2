# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Cyclic allocation: the lemma, the plan's numbers, and what is refused.

The divergences of whole runs are compared with the accountant: two rounds of
the law by quadrature, twelve rounds of a real matrix by Monte Carlo.
"""

import dataclasses
import json
import math

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting
import numpy as np
import pytest
from scipy import special

import tff_dp
from tff_dp import _checks
from tff_dp import allocation
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp import plans
from tff_dp.systems.allocation import random_allocation
from tff_dp.systems.allocation import strides

pytestmark = pytest.mark.once

_DELTA = 1e-6
_SAMPLES = 400_000


def _plan(rounds, windows, stride, *, noise=2.0, bands=None, **options):
  mechanism = None
  if bands is not None:
    mechanism = mechanisms.Banded.square_root(rounds, bands)
  return tff_dp.AllocationPlan(
      allocation.CyclicAllocation(rounds, windows, stride, **options),
      noise_multiplier=noise,
      l2_norm_clip=1.0,
      mechanism=mechanism,
  )


def _norm(mechanism):
  return float(np.linalg.norm(mechanism.column(mechanism.num_bands)))


def _matrix(mechanism):
  rounds = mechanism.num_rounds
  column = mechanism.column(rounds)
  found = np.zeros((rounds, rounds))
  for s in range(rounds):
    found[s:, s] = column[: rounds - s]
  return found


class _Run:
  """Draws and densities of what a run releases, as C x + sigma z."""

  def __init__(self, plan, contributions):
    """Makes the pair of laws with and without one client.

    Args:
      plan: Of the run.
      contributions: Equally likely vectors x of the client, [count, rounds].
    """
    self._means = contributions @ _matrix(plan.mechanism).T
    self._sigma = plan.noise_multiplier
    self._rng = np.random.default_rng(0)

  def _log_ratio(self, released):
    """Returns log dP/dQ, where P is with the client; shape [samples]."""
    scaled = self._means / self._sigma**2
    exponents = released @ scaled.T - 0.5 * np.sum(
        self._means * scaled, axis=1
    )
    return special.logsumexp(exponents, axis=1) - math.log(len(self._means))

  def divergences(self, epsilon):
    """Returns (remove, add), each (estimate, standard error)."""
    noise = self._sigma * self._rng.standard_normal(
        (_SAMPLES, self._means.shape[1])
    )
    present = self._means[self._rng.integers(len(self._means), size=_SAMPLES)]
    # H_E(P || Q) = Ex_P[(1 - E / ratio)_+], and the other way around.
    remove = -self._log_ratio(noise + present)
    add = self._log_ratio(noise)
    found = []
    for loss in (remove, add):
      values = np.maximum(0.0, -np.expm1(epsilon + loss))
      found.append((values.mean(), values.std() / math.sqrt(_SAMPLES)))
    return found


def _vectors(protocol, residue, moved_from=()):
  """Returns x for every choice of slots, one of each window."""
  found = [np.zeros(protocol.num_rounds)]
  for window in range(protocol.num_windows):
    steps = list(protocol.steps(residue, window))
    several = []
    for vector in found:
      for step in steps:
        while step in moved_from:
          step += protocol.stride
        one = vector.copy()
        one[step - 1] += 1.0
        several.append(one)
    found = several
  return np.array(found)


class LemmaTest(parameterized.TestCase):

  def test_two_slots_by_quadrature(self):
    """T = 4, p = 2, one window of two slots: the law is that of two numbers."""
    plan = _plan(4, 1, 2, noise=0.9, bands=2)
    shift = _norm(plan.mechanism) / 0.9
    nodes, weights = np.polynomial.hermite_e.hermegauss(180)
    weights = np.outer(weights, weights) / (2 * math.pi)
    x, y = np.meshgrid(nodes, nodes, indexing='ij')
    ratio = 0.5 * (
        np.exp(shift * x - shift**2 / 2) + np.exp(shift * y - shift**2 / 2)
    )
    for delta in (1e-2, 1e-3):
      epsilon = plan.epsilon(delta=delta)
      bound = math.exp(epsilon)
      remove = np.sum(weights * np.maximum(0.0, ratio - bound))
      add = np.sum(weights * np.maximum(0.0, 1 - bound * ratio))
      with self.subTest(delta):
        self.assertLessEqual(max(remove, add), delta * 1.01)
        self.assertGreaterEqual(max(remove, add), delta * 0.97)

  @parameterized.parameters(0, 1)
  def test_a_real_matrix_attains_the_claim(self, residue):
    plan = _plan(12, 2, 2, noise=1.2, bands=2)
    run = _Run(plan, _vectors(plan.protocol, residue))
    delta = 0.02
    found = run.divergences(plan.epsilon(delta=delta))
    for direction, (estimate, error) in zip(('remove', 'add'), found):
      with self.subTest(direction):
        self.assertLessEqual(estimate, delta + 6 * error)
    if residue == 0:
      worst, error = max(found)
      self.assertGreaterEqual(worst, 0.93 * delta - 6 * error)

  def test_signs_in_the_matrix_do_not_matter(self):
    plan = _plan(12, 2, 2, noise=1.2)
    signed = dataclasses.replace(
        plan, mechanism=mechanisms.Banded(12, (1.0, -0.5))
    )
    unsigned = dataclasses.replace(
        plan, mechanism=mechanisms.Banded(12, (1.0, 0.5))
    )
    self.assertEqual(
        signed.epsilon(delta=_DELTA), unsigned.epsilon(delta=_DELTA)
    )
    delta = 0.02
    run = _Run(signed, _vectors(signed.protocol, 0))
    for estimate, error in run.divergences(signed.epsilon(delta=delta)):
      self.assertLessEqual(estimate, delta + 6 * error)

  def test_who_cannot_come_costs_less_and_who_is_moved_more(self):
    plan = _plan(12, 2, 2, noise=1.2, bands=2)
    delta = 0.02
    epsilon = plan.epsilon(delta=delta)
    missing = (1, 3, 7)
    masked = _vectors(plan.protocol, 0)
    masked[:, [step - 1 for step in missing]] = 0.0
    for estimate, error in _Run(plan, masked).divergences(epsilon):
      self.assertLess(estimate, 0.8 * delta - 6 * error)
    moved = _vectors(plan.protocol, 0, moved_from=missing)
    found = _Run(plan, moved).divergences(epsilon)
    self.assertGreater(max(found)[0], 1.5 * delta)


class EpsilonTest(parameterized.TestCase):

  def test_of_the_lemma(self):
    plan = _plan(240, 3, 8, noise=2.5, bands=6)
    expected = random_allocation.epsilon(
        noise_multiplier=2.5 / _norm(plan.mechanism),
        num_steps=10,
        num_epochs=3,
        delta=_DELTA,
    )
    self.assertAlmostEqual(plan.epsilon(delta=_DELTA), expected, delta=1e-6)

  def test_stride_one_is_several_passes(self):
    passes = tff_dp.AllocationPlan(
        allocation.RandomAllocation(40),
        noise_multiplier=1.5,
        l2_norm_clip=1.0,
        num_passes=3,
    )
    cyclic = _plan(120, 3, 1, noise=1.5)
    for rounds in (None, 7, 40, 100):
      self.assertEqual(
          cyclic.epsilon(delta=_DELTA, num_rounds=rounds),
          passes.epsilon(delta=_DELTA, num_rounds=rounds),
      )

  @parameterized.parameters(None, 5)
  def test_one_slot_a_window_is_dp_ftrl(self, bands):
    cyclic = _plan(60, 12, 5, noise=3.0, bands=bands)
    plain = plans.DpFtrlPlan(
        cyclic.mechanism,
        participation.MinSeparation(
            60, min_index_gap=5, max_participations=12
        ),
        l2_norm_clip=1.0,
        clients_per_round=1,
        noise_multiplier=3.0,
    )
    self.assertEqual(cyclic.protocol.slots_per_window, 1)
    self.assertAlmostEqual(
        cyclic.epsilon(delta=_DELTA), plain.epsilon(delta=_DELTA), places=6
    )

  def test_falls_with_slots_and_noise_and_is_never_above_unamplified(self):
    last = math.inf
    for rounds in (48, 96, 192, 384):
      plan = _plan(rounds, 2, 4, noise=2.0, bands=4)
      spent = plan.epsilon(delta=_DELTA)
      self.assertLess(spent, last)
      self.assertLessEqual(
          spent, plan.epsilon_no_amplification(delta=_DELTA)
      )
      last = spent
    last = math.inf
    for noise in (0.5, 1.0, 2.0, 4.0):
      spent = _plan(96, 2, 4, noise=noise, bands=4).epsilon(delta=_DELTA)
      self.assertLess(spent, last)
      last = spent

  def test_rounds_that_do_not_divide(self):
    # 101 rounds: windows of at least floor(floor(101 / 4) / 3) = 8 slots.
    plan = _plan(101, 3, 4, noise=2.0, bands=3)
    self.assertEqual(plan.protocol.slots_per_window, 8)
    self.assertEqual(
        plan.epsilon(delta=_DELTA),
        _plan(96, 3, 4, noise=2.0, bands=3).epsilon(delta=_DELTA),
    )
    spent = [
        plan.epsilon(delta=_DELTA, num_rounds=rounds)
        for rounds in (1, 4, 5, 32, 33, 64, 65, 96, 101)
    ]
    self.assertEqual(sorted(spent), spent)
    self.assertEqual(spent[0], spent[1])
    self.assertLess(spent[1], spent[2])
    self.assertEqual(spent[-1], plan.epsilon(delta=_DELTA))

  def test_golden_of_2048_rounds(self):
    pattern = participation.MinSeparation(
        2048, min_index_gap=24, max_participations=6
    )
    noise = mechanisms.Banded.optimized(pattern, 24, error='mean')
    plan = tff_dp.AllocationPlan(
        allocation.CyclicAllocation(2048, 6, 24),
        noise_multiplier=1.0,
        l2_norm_clip=1.0,
        mechanism=noise,
    ).calibrated(epsilon=2.0, delta=_DELTA)
    ratio = plan.noise_multiplier / _norm(noise)
    self.assertAlmostEqual(ratio, 1.634, delta=0.005 * 1.634)
    error = plan.noise_multiplier * math.sqrt(
        np.mean(noise.run_prefix_variances())
    )
    self.assertAlmostEqual(error, 11.95, delta=0.005 * 11.95)
    self.assertLessEqual(plan.epsilon(delta=_DELTA), 2.0)


class PlanTest(parameterized.TestCase):

  def test_event_is_what_epsilon_is_of(self):
    plan = _plan(240, 3, 8, noise=2.5, bands=6)
    event = plan.event()
    self.assertIsInstance(event, dp_accounting.SelfComposedDpEvent)
    self.assertEqual(event.count, 3)
    self.assertEqual(event.event.num_steps, 10)
    # Rounded down: less noise than there is.
    ratio = event.event.event.noise_multiplier * _norm(plan.mechanism) / 2.5
    self.assertLess(ratio, 1.0)
    self.assertGreater(ratio, 1 - 1e-11)

  def test_description_makes_the_plan_again(self):
    plan = _plan(240, 3, 8, bands=6, check_in_probability=0.5)
    described = json.loads(json.dumps(plan.describe()))
    again = plans.from_description(described)
    self.assertEqual(again, plan)
    self.assertEqual(again.fingerprint, plan.fingerprint)

  @parameterized.named_parameters(
      ('more_bands', mechanisms.Banded.square_root(240, 9)),
      ('tree', mechanisms.HonakerTree(240)),
      ('blt', mechanisms.Blt(240, (0.25, 0.125), (1.0, 0.5))),
      ('other_rounds', mechanisms.Banded.square_root(120, 4)),
  )
  def test_noise_that_no_proof_covers_is_refused(self, mechanism):
    plan = _plan(240, 3, 8)
    with self.assertRaisesRegex(_checks.ArgumentError, 'at most stride=8'):
      dataclasses.replace(plan, mechanism=mechanism)

  def test_other_protocols_take_independent_noise_only(self):
    noise = mechanisms.Banded.square_root(40, 2)
    with self.assertRaisesRegex(_checks.ArgumentError, 'mechanism='):
      tff_dp.AllocationPlan(
          allocation.RandomAllocation(40),
          noise_multiplier=1.0,
          l2_norm_clip=1.0,
          mechanism=noise,
      )

  def test_several_passes_and_local_noise_are_refused(self):
    protocol = allocation.CyclicAllocation(240, 3, 8)
    with self.assertRaisesRegex(_checks.ArgumentError, 'num_passes'):
      plans.AllocationPlan(
          protocol, noise_multiplier=1.0, l2_norm_clip=1.0, num_passes=2
      )
    with self.assertRaises(_checks.PrivacyRefusedError):
      plans.CheckInPlan(
          protocol, tff_dp.mechanisms.randomizers.Sphere(1.0, l2_norm_clip=1.0)
      )

  @parameterized.parameters(
      (dict(stride=0), 'stride'),
      (dict(stride=13), 'stride'),
      (dict(num_windows=0), 'num_windows'),
      (dict(num_windows=7), 'num_windows'),
      (dict(check_in_probability=1.5), 'check_in_probability'),
  )
  def test_bad_argument_is_named(self, bad, name):
    good = dict(num_rounds=12, num_windows=2, stride=2)
    with self.assertRaisesRegex(_checks.ArgumentError, name):
      allocation.CyclicAllocation(**good | bad)


class BestTest(parameterized.TestCase):

  @parameterized.parameters(
      (2048, 6, 0.5, 6, 36.6),
      (2048, 6, 1.0, 12, 20.4),
      (2048, 6, 2.0, 24, 11.95),
      (2048, 6, 4.0, 48, 7.48),
      (2048, 6, 8.0, 64, 4.94),
      (2000, 1, 0.5, 48, 8.54),
      (2000, 1, 2.0, 171, 4.51),
      (250, 2, 1.0, 8, 7.84),
      (250, 2, 4.0, 24, 3.44),
  )
  def test_error_of_a_stride(self, rounds, windows, epsilon, stride, rmse):
    found = strides.candidate(
        rounds, windows, stride, epsilon=epsilon, delta=_DELTA
    )
    self.assertAlmostEqual(found.rmse, rmse, delta=0.01 * rmse)
    self.assertLessEqual(found.plan.epsilon(delta=_DELTA), epsilon)

  def test_search_finds_the_best_stride(self):
    options = dict(epsilon=2.0, delta=_DELTA)
    found = strides.best(24, 2, **options)
    errors = [each.rmse for each in found]
    self.assertEqual(errors, sorted(errors))
    everything = min(
        strides.candidate(24, 2, stride, **options).rmse
        for stride in range(1, 13)
    )
    self.assertLess(found[0].rmse, 1.01 * everything)
    # Both of the older ways are ends of the range, and worse.
    by_stride = {each.stride: each.rmse for each in found}
    self.assertGreater(by_stride[1], found[0].rmse)
    self.assertGreater(by_stride[12], found[0].rmse)

  def test_holds_under_the_relation_that_is_asked_for(self):
    # Nothing to hide in: twice the contribution, hence twice the noise.
    options = dict(epsilon=2.0, delta=_DELTA)
    zero_out = strides.candidate(8, 1, 8, **options)
    found = strides.candidate(
        8, 1, 8, neighboring_relation='replace_one', **options
    )
    self.assertAlmostEqual(found.rmse / zero_out.rmse, 2, places=3)
    spent = found.plan.epsilon(
        delta=_DELTA, neighboring_relation='replace_one'
    )
    self.assertBetween(spent, 1.99, 2.0)

  @parameterized.parameters((2048, 6), (2000, 1), (100, 5), (3, 2), (1, 1))
  def test_strides_are_the_longest_of_their_slots(self, rounds, windows):
    longest = rounds // windows
    ladder = strides._ladder(rounds, windows, longest)
    self.assertEqual((ladder[0], ladder[-1]), (1, longest))
    for stride in ladder:
      slots = rounds // (windows * stride)
      self.assertLess(rounds // (windows * (stride + 1)), slots)
    for low, high in zip(ladder, ladder[1:]):
      # Or there is nothing between them but shorter ones.
      slots = rounds // (windows * high)
      self.assertTrue(
          high < 1.8 * low or rounds // (windows * (low + 1)) == slots
      )

  @parameterized.product(best=(1, 6, 41, 300, 900), guess=(0.1, 30.0, 1e6))
  def test_goes_downhill_from_anywhere(self, best, guess):
    ladder = strides._ladder(2048, 2, 1024)
    error = lambda stride: abs(math.log(stride / best))
    tried = strides._downhill(error, ladder, guess)
    self.assertIn(min(ladder, key=error), tried)
    self.assertLess(len(tried), 20)

  def test_longest_stride_is_kept(self):
    found = strides.best(
        60, 2, epsilon=2.0, delta=_DELTA, max_stride=4
    )
    self.assertLessEqual(max(each.stride for each in found), 4)


if __name__ == '__main__':
  absltest.main()
