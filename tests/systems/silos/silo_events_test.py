# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for what messages of a silo cost together: what adds up, what not."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting
import mpmath
import numpy as np

from tff_dp.accounting import accountants
from tff_dp.accounting.curves import gaussian
from tff_dp.systems.silos import silo_calibration
from tff_dp.systems.silos import silo_events
from tff_dp.systems.silos import silo_guarantee
from tff_dp.systems.silos import silo_sampling

_N = 400
_DELTA = 1 / _N**2


def _poisson(noise_multiplier=4.0, batch=40, **changes):
  settings = dict(num_records=_N, l2_norm_clip=2.0) | changes
  return silo_events.SiloEvent(
      silo_sampling.PoissonSampling(batch),
      sigma=noise_multiplier * settings['l2_norm_clip'] / batch,
      **settings,
  )


def _block(index, noise_multiplier=4.0, batch=40, first=None):
  return silo_events.SiloEvent(
      silo_sampling.DisjointBlocks(batch),
      num_records=_N,
      l2_norm_clip=2.0,
      sigma=noise_multiplier * 2.0 / batch,
      first_record=index * batch if first is None else first,
  )


def _poisson_epsilon(rounds, noise_multiplier=4.0, delta=_DELTA):
  return silo_sampling.epsilon(
      silo_sampling.PoissonSampling(40),
      num_records=_N,
      num_rounds=rounds,
      noise_multiplier=noise_multiplier,
      delta=delta,
  )


def _gaussian_epsilon(*multipliers, delta=_DELTA):
  sigma = 1 / math.sqrt(sum((2 / m) ** 2 for m in multipliers))
  return gaussian.exact_epsilon(sigma=sigma, delta=delta)


def _spent(counts, delta=_DELTA, published_proofs=False):
  return silo_events.worst_epsilon(counts, delta, published_proofs)


class CompositionTest(parameterized.TestCase):

  def test_nothing_sent_costs_nothing(self):
    self.assertEqual(_spent({}), 0.0)

  def test_sampled_rounds_compose(self):
    self.assertAlmostEqual(_spent({_poisson(): 12}), _poisson_epsilon(12))

  def test_scale_costs_nothing_and_other_noise_does(self):
    sent = {_poisson(): 1, _poisson(scale=5.0): 1}
    self.assertAlmostEqual(_spent(sent), _poisson_epsilon(2))
    self.assertBetween(
        _spent(sent | {_poisson(8.0): 1}),
        _poisson_epsilon(2),
        _poisson_epsilon(3),
    )

  def test_different_noise_composes_like_equal_noise(self):
    # Through the grid for several parts, which must agree with one part.
    exact = _poisson_epsilon(10)
    found = _spent({_poisson(4.0): 5, _poisson(4.0 + 1e-9): 5})
    self.assertBetween(found, 0.999 * exact, 1.01 * exact)

  def test_blocks_of_a_pass_cost_one_release(self):
    sent = {_block(index): 1 for index in range(10)}
    self.assertAlmostEqual(_spent(sent), _gaussian_epsilon(4.0))

  def test_the_worst_block_counts(self):
    sent = {
        _block(index, noise): 1 for index, noise in enumerate((4.0, 2.0, 9.0))
    }
    self.assertAlmostEqual(_spent(sent), _gaussian_epsilon(2.0))

  def test_a_block_used_twice_is_charged_twice(self):
    self.assertAlmostEqual(
        _spent({_block(0): 1, _block(1): 2}), _gaussian_epsilon(4.0, 4.0)
    )

  def test_half_overlapping_blocks_cost_the_overlap(self):
    self.assertAlmostEqual(
        _spent({_block(0, 4.0): 1, _block(0, 3.0, first=20): 1}),
        _gaussian_epsilon(4.0, 3.0),
    )

  def test_one_pass_and_sampling_add_up(self):
    both = _spent({_block(3): 1, _poisson(): 5})
    self.assertGreater(both, _gaussian_epsilon(4.0) * 1.01)
    self.assertLess(both, _gaussian_epsilon(*[4.0] * 6))

  def test_phases_on_disjoint_records_cost_their_maximum(self):
    first = _poisson(num_records=200)
    second = _poisson(num_records=100, first_record=200)
    alone = _spent({first: 4})
    self.assertEqual(_spent({first: 4, second: 1}), alone)
    expected = silo_sampling.epsilon(
        silo_sampling.PoissonSampling(40), num_records=100, num_rounds=5,
        noise_multiplier=4.0, delta=_DELTA,
    )
    self.assertAlmostEqual(_spent({first: 4, second: 5}), expected)

  def test_published_proofs(self):
    sent = {_poisson(): 3}
    self.assertGreater(_spent(sent, published_proofs=True), _spent(sent))

  def test_several_means_over_one_batch_are_one_vector(self):
    joint = silo_events.joint_noise_multiplier([4.0, 3.0])
    self.assertAlmostEqual(joint, 1 / math.sqrt(1 / 16 + 1 / 9))
    self.assertEqual(silo_events.joint_noise_multiplier([4.0, 0.0]), 0.0)
    self.assertAlmostEqual(
        _gaussian_epsilon(joint), _gaussian_epsilon(4.0, 3.0)
    )


class WorstRecordTest(parameterized.TestCase):

  def _of_event(self, sent, delta=_DELTA):
    return accountants.epsilon(
        silo_events.dp_event_of(sent),
        delta=delta,
        method='pld',
        neighboring_relation='replace_one',
    )

  def test_blocks_record_by_record(self):
    rng = np.random.default_rng(0)
    for _ in range(20):
      sent, squares = {}, np.zeros(_N)
      for _ in range(6):
        first, noise = int(rng.integers(30)), float(rng.integers(2, 9))
        batch, count = int(rng.integers(1, 12)), int(rng.integers(1, 4))
        message = _block(0, noise, batch, first=first)
        sent[message] = sent.get(message, 0) + count
        squares[first : first + batch] += count * (2 / noise) ** 2
      exact = gaussian.exact_epsilon(
          sigma=1 / math.sqrt(squares.max()), delta=_DELTA
      )
      self.assertAlmostEqual(_spent(sent), exact)
      self.assertAlmostEqual(self._of_event(sent), exact)

  def test_no_record_is_left_out_that_may_cost_more(self):
    rest, winners = dict(num_records=_N - 40, first_record=40), set()
    for noise, sampled, count in (
        (1.0, 4.0, 3), (20.0, 4.0, 30), (6.0, 0.6, 1)
    ):
      # One block, and beside it sampled messages and a block with little shift.
      both = {_poisson(sampled, **rest): count, _block(2, 30.0): 1}
      sent = {_block(0, noise): 1, **both}
      for delta in (1e-2, 1e-5, 1e-9):
        each = _gaussian_epsilon(noise, delta=delta), _spent(both, delta)
        winners.add(int(np.argmax(each)))
        for found in (_spent(sent, delta), self._of_event(sent, delta)):
          self.assertBetween(found, max(each) * (1 - 1e-9), 1.01 * max(each))
    self.assertEqual(winners, {0, 1})

  def test_who_is_in_more_messages_of_a_kind_is_not_left_out(self):
    # Two phases of the same rate. In the shorter one is a block, too.
    half = dict(num_records=_N // 2)
    often, seldom = _poisson(**half), _poisson(first_record=_N // 2, **half)
    self.assertEqual(often.dp_event, seldom.dp_event)
    sent = {often: 30, seldom: 2, _block(5, 30.0): 1}
    exact = silo_sampling.epsilon(
        often.sampling, num_rounds=30, noise_multiplier=4.0, delta=_DELTA,
        **half,
    )
    for found in (_spent(sent), self._of_event(sent)):
      self.assertAlmostEqual(found, exact)


class BudgetTest(parameterized.TestCase):

  @parameterized.parameters(
      silo_sampling.PoissonSampling(40),
      silo_sampling.FixedSize(40),
      silo_sampling.DisjointBlocks(40),
      silo_sampling.PoissonSampling(_N),
      silo_sampling.FixedSize(1),
  )
  def test_never_above_the_budget_that_the_noise_is_calibrated_for(
      self, sampling
  ):
    for epsilon, rounds in ((0.3, 1), (4.0, 7)):
      sigma = silo_calibration.calibrate_noise(
          sampling, num_records=_N, num_rounds=rounds, l2_norm_clip=3.0,
          epsilon=epsilon, delta=_DELTA,
      )
      sent = {}
      for index in range(rounds):
        event = silo_events.SiloEvent(sampling, _N, 3.0, sigma)
        if event.is_block:
          event = silo_events.SiloEvent(
              sampling, _N, 3.0, sigma, first_record=40 * index
          )
        sent[event] = sent.get(event, 0) + 1
        # To the last bit, and so for the reports that people compare.
        self.assertLessEqual(_spent(sent), epsilon)
      self.assertGreater(_spent(sent), 0.999 * epsilon)

  def test_half_the_noise_does_not_fit(self):
    block = silo_sampling.DisjointBlocks(40)
    sigma = silo_calibration.calibrate_noise(
        block, num_records=_N, num_rounds=10, l2_norm_clip=2.0, epsilon=1.0,
        delta=_DELTA,
    )
    sent = {
        silo_events.SiloEvent(block, _N, 2.0, sigma): 1,
        silo_events.SiloEvent(block, _N, 2.0, sigma / 2, first_record=40): 1,
    }
    self.assertGreater(_spent(sent), 1.0)

  def test_messages_without_noise(self):
    self.assertEqual(_spent({_poisson(): 1, _poisson(0.0): 1}), math.inf)
    self.assertIsInstance(
        silo_events.dp_event_of({_poisson(): 1, _poisson(0.0): 1}),
        dp_accounting.NonPrivateDpEvent,
    )


class PersonTest(parameterized.TestCase):
  """People with several records in a silo."""

  def _person(self, sent, num_records):
    return silo_guarantee.person_epsilon(
        sent, num_records=num_records, delta=_DELTA
    )

  @parameterized.parameters(2, 5, 40)
  def test_at_the_same_delta(self, k):
    sent = {_block(0, 8.0): 1}
    found = self._person(sent, k)
    self.assertGreater(found, _spent(sent))
    # k records of one block move the sum by at most k times as much.
    self.assertAlmostEqual(found, _gaussian_epsilon(8.0 / k), places=6)
    self.assertEqual(self._person(sent, 1), _spent(sent))

  def test_of_sampled_rounds(self):
    sent = {_poisson(): 20}
    found = [self._person(sent, k) for k in (1, 2, 3, 4)]
    self.assertEqual(found, sorted(found))
    # At a smaller delta for one record, k records cost k times as much.
    delta = _DELTA / 2 / math.exp(found[1] / 2)
    self.assertLess(found[1], 2.02 * _spent(sent, delta))
    self.assertLess(found[1], _gaussian_epsilon(*[2.0] * 20))

  def test_the_worst_messages_of_a_person_count(self):
    sent = {
        _block(index, noise): 1 for index, noise in enumerate((8.0, 2.0, 9.0))
    }
    for some in (sent, dict(reversed(sent.items()))):
      self.assertAlmostEqual(
          self._person(some, 5), _gaussian_epsilon(2.0 / 5), places=6
      )

  @parameterized.product(sigma=(0.7, 2.0, 6.0), k=(2, 5))
  def test_steps_from_record_to_record_cover_all_at_once(self, sigma, k):
    # k records move a Gaussian release k times as far as one.
    for epsilon in (0.05, 0.5, 1.5):
      delta = gaussian.exact_delta(sigma=sigma, epsilon=epsilon)
      total, spent = silo_guarantee.group(epsilon, delta, k)
      self.assertEqual(total, k * epsilon)
      self.assertGreaterEqual(
          spent, gaussian.exact_delta(sigma=sigma / k, epsilon=total)
      )
    for delta in (1e-2, 1e-6):
      found = silo_guarantee.group_epsilon(
          lambda at: gaussian.exact_epsilon(sigma=sigma, delta=at), delta, k
      )
      exact = gaussian.exact_epsilon(sigma=sigma / k, delta=delta)
      self.assertBetween(found, exact, 3 * exact + 0.5)

  @parameterized.parameters(1, 2, 7, 40)
  def test_delta_of_several_records_is_rounded_up(self, k):
    with mpmath.workdps(40):
      for epsilon in (0.013, 0.7, 3.1):
        for delta in (3e-5, 1e-12, 7e-80, 1e-200):
          _, found = silo_guarantee.group(epsilon, delta, k)
          least = min(
              k * mpmath.exp((k - 1) * mpmath.mpf(epsilon)) * mpmath.mpf(delta),
              mpmath.mpf(1),
          )
          self.assertBetween(mpmath.mpf(found), least, least * (1 + 1e-11))

  def test_without_a_bound_or_a_record(self):
    self.assertEqual(silo_guarantee.group(math.inf, 0.1, 2), (math.inf, 1.0))
    self.assertEqual(silo_guarantee.group(1.0, 0.1, 0), (0.0, 0.0))
    with self.assertRaisesRegex(ValueError, 'num_records=0'):
      self._person({_poisson(): 1}, 0)


if __name__ == '__main__':
  absltest.main()
