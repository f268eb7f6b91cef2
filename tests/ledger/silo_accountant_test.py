# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the ledger of silos: what adds up, and what is refused."""

import dataclasses
import json
import math

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _checks
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.silos import silo_calibration
from tff_dp.accounting.silos import silo_events
from tff_dp.accounting.silos import silo_guarantee
from tff_dp.accounting.silos import silo_sampling
from tff_dp.ledger import silo_accountant

_N = 400
_DELTA = 1 / _N**2


def _accountant(epsilon=None, **silos):
  silos = silos or {'a': silo_accountant.SiloBudget(_N, epsilon)}
  return silo_accountant.IsrlAccountant(silos)


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


class CompositionTest(parameterized.TestCase):

  def test_nothing_sent_costs_nothing(self):
    accountant = _accountant()
    self.assertEqual(accountant.epsilon('a'), 0.0)
    self.assertEqual(accountant.guarantee().worst, (0.0, _DELTA))

  def test_sampled_rounds_compose(self):
    accountant = _accountant()
    for index in range(12):
      accountant.charge({'a': _poisson()}, round_index=index)
    self.assertEqual(accountant.num_rounds('a'), 12)
    self.assertAlmostEqual(accountant.epsilon('a'), _poisson_epsilon(12))

  def test_steps_of_a_round_are_charged_at_once_or_not_at_all(self):
    accountant = _accountant(epsilon=_poisson_epsilon(10) * 1.001)
    accountant.charge({'a': _poisson()}, round_index=0, num_messages=6)
    self.assertAlmostEqual(accountant.epsilon('a'), _poisson_epsilon(6))
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'budget'):
      accountant.charge({'a': _poisson()}, round_index=1, num_messages=5)
    self.assertEqual(accountant.num_rounds('a'), 6)
    accountant.charge({'a': _poisson()}, round_index=1, num_messages=4)
    with self.assertRaisesRegex(_checks.ArgumentError, 'num_messages=2'):
      _accountant().charge({'a': _block(0)}, round_index=0, num_messages=2)

  def test_scale_costs_nothing_and_other_noise_does(self):
    accountant = _accountant()
    accountant.charge({'a': _poisson()}, round_index=0)
    accountant.charge({'a': _poisson(scale=5.0)}, round_index=1)
    self.assertAlmostEqual(accountant.epsilon('a'), _poisson_epsilon(2))
    accountant.charge({'a': _poisson(8.0)}, round_index=2)
    self.assertBetween(
        accountant.epsilon('a'), _poisson_epsilon(2), _poisson_epsilon(3)
    )

  def test_different_noise_composes_like_equal_noise(self):
    # Through the grid for several parts, which must agree with one part.
    accountant = _accountant()
    for index in range(10):
      noise = 4.0 if index % 2 else 4.0 + 1e-9
      accountant.charge({'a': _poisson(noise)}, round_index=index)
    exact = _poisson_epsilon(10)
    self.assertBetween(accountant.epsilon('a'), 0.999 * exact, 1.01 * exact)

  def test_blocks_of_a_pass_cost_one_release(self):
    accountant = _accountant()
    for index in range(10):
      accountant.charge({'a': _block(index)}, round_index=index)
    self.assertAlmostEqual(accountant.epsilon('a'), _gaussian_epsilon(4.0))

  def test_the_worst_block_counts(self):
    accountant = _accountant()
    for index, noise in enumerate((4.0, 2.0, 9.0)):
      accountant.charge({'a': _block(index, noise)}, round_index=index)
    self.assertAlmostEqual(accountant.epsilon('a'), _gaussian_epsilon(2.0))

  def test_a_block_used_twice_is_charged_twice(self):
    accountant = _accountant()
    for index in (0, 1):
      accountant.charge({'a': _block(index)}, round_index=index)
    accountant.charge(
        {'a': _block(1)}, round_index=2, charge_reused_records=True
    )
    self.assertAlmostEqual(accountant.epsilon('a'), _gaussian_epsilon(4.0, 4.0))

  def test_half_overlapping_blocks_cost_the_overlap(self):
    accountant = _accountant()
    accountant.charge({'a': _block(0, 4.0)}, round_index=0)
    accountant.charge(
        {'a': _block(0, 3.0, first=20)},
        round_index=1,
        charge_reused_records=True,
    )
    self.assertAlmostEqual(accountant.epsilon('a'), _gaussian_epsilon(4.0, 3.0))

  def test_one_pass_and_sampling_add_up(self):
    accountant = _accountant()
    accountant.charge({'a': _block(3)}, round_index=0, run='pass')
    for index in range(5):
      accountant.charge({'a': _poisson()}, round_index=index, run='erm')
    both = accountant.epsilon('a')
    self.assertGreater(both, _gaussian_epsilon(4.0) * 1.01)
    self.assertLess(both, _gaussian_epsilon(*[4.0] * 6))

  def test_phases_on_disjoint_records_cost_their_maximum(self):
    accountant = _accountant()
    first = _poisson(num_records=200)
    second = _poisson(num_records=100, first_record=200)
    for index in range(4):
      accountant.charge({'a': first}, round_index=index)
    self_alone = accountant.epsilon('a')
    accountant.charge({'a': second}, round_index=4)
    self.assertEqual(accountant.epsilon('a'), self_alone)
    for index in range(5, 9):
      accountant.charge({'a': second}, round_index=index)
    expected = silo_sampling.epsilon(
        silo_sampling.PoissonSampling(40), num_records=100, num_rounds=5,
        noise_multiplier=4.0, delta=_DELTA,
    )
    self.assertAlmostEqual(accountant.epsilon('a'), expected)

  def test_conservative(self):
    silos = {'a': silo_accountant.SiloBudget(_N, None)}
    plain = silo_accountant.IsrlAccountant(silos)
    careful = silo_accountant.IsrlAccountant(silos, conservative=True)
    for accountant in (plain, careful):
      for index in range(3):
        accountant.charge({'a': _poisson()}, round_index=index)
    self.assertGreater(careful.epsilon('a'), plain.epsilon('a'))
    self.assertIn('conservative', careful.guarantee().to_text())

  def test_several_means_over_one_batch_are_one_vector(self):
    joint = silo_events.joint_noise_multiplier([4.0, 3.0])
    self.assertAlmostEqual(joint, 1 / math.sqrt(1 / 16 + 1 / 9))
    self.assertEqual(silo_events.joint_noise_multiplier([4.0, 0.0]), 0.0)
    self.assertAlmostEqual(
        _gaussian_epsilon(joint), _gaussian_epsilon(4.0, 3.0)
    )


class RefusalTest(parameterized.TestCase):

  def test_a_round_is_charged_once(self):
    accountant = _accountant()
    accountant.charge({'a': _poisson()}, round_index=3)
    for index in (3, 2, 0):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'rewinding and running on'
      ):
        accountant.charge({'a': _poisson()}, round_index=index)
    accountant.charge({'a': _poisson()}, round_index=0, run='restart')
    self.assertAlmostEqual(accountant.epsilon('a'), _poisson_epsilon(2))

  @parameterized.parameters(40, 60, 79, 1)
  def test_no_record_is_in_two_blocks(self, first):
    accountant = _accountant()
    accountant.charge({'a': _block(1)}, round_index=0)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'were in the block 40 to 79'
    ):
      accountant.charge({'a': _block(0, first=first)}, round_index=1, run='b')
    accountant.charge({'a': _block(0, first=80)}, round_index=1)
    accountant.charge({'a': _block(0, first=0)}, round_index=2)

  def test_no_block_behind_the_last_record(self):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'position 401'):
      _accountant().charge({'a': _block(0, first=361)}, round_index=0)

  def test_a_budget_is_spent_to_the_end_and_no_further(self):
    sampling, rounds = silo_sampling.PoissonSampling(40), 9
    sigma = silo_calibration.calibrate_noise(
        sampling, num_records=_N, num_rounds=rounds, l2_norm_clip=2.0,
        epsilon=1.0, delta=_DELTA,
    )
    event = silo_events.SiloEvent(sampling, _N, 2.0, sigma)
    accountant = _accountant(epsilon=1.0)
    for index in range(rounds):
      accountant.charge({'a': event}, round_index=index)
    self.assertBetween(accountant.epsilon('a'), 0.99, 1.0)
    before = accountant.to_json()
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'silo a to epsilon .* budget of 1 '
    ):
      accountant.charge({'a': event}, round_index=rounds)
    self.assertEqual(accountant.to_json(), before)

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
      event = silo_events.SiloEvent(
          sampling, _N, 3.0,
          silo_calibration.calibrate_noise(
              sampling, num_records=_N, num_rounds=rounds, l2_norm_clip=3.0,
              epsilon=epsilon, delta=_DELTA,
          ),
      )
      accountant = _accountant(epsilon=epsilon)
      for index in range(rounds):
        first = 40 * index if event.is_block else 0
        accountant.charge(
            {'a': dataclasses.replace(event, first_record=first)},
            round_index=index,
        )
        # To the last bit, and so for the reports that people compare.
        self.assertLessEqual(accountant.epsilon('a'), epsilon)
      self.assertGreater(accountant.epsilon('a'), 0.999 * epsilon)

  def test_what_is_expected_is_composed_once(self):
    sampling = silo_sampling.PoissonSampling(37.5)
    expected, ledgers = {}, []
    budgets = {
        name: silo_accountant.SiloBudget(_N + index, 1.0)
        for index, name in enumerate('abc')
    }
    for name, budget in budgets.items():
      sigma = silo_calibration.calibrate_noise(
          sampling, num_records=budget.num_records, num_rounds=12,
          l2_norm_clip=1.0, epsilon=1.0, delta=budget.delta,
      )
      event = silo_events.SiloEvent(sampling, budget.num_records, 1.0, sigma)
      expected[name] = {event: 12}
    for hint in (expected, None):
      silo_events.epsilon_of.cache_clear()
      ledger = _accountant(**budgets)
      for index in range(12):
        ledger.charge(
            {name: next(iter(expected[name])) for name in budgets},
            round_index=index,
            expected=hint,
        )
      ledgers.append((ledger, silo_events.epsilon_of.cache_info().misses))
    (hinted, fewer), (plain, all_of_them) = ledgers
    self.assertEqual((fewer, all_of_them), (3, 36))
    self.assertEqual(hinted.to_json(), plain.to_json())
    self.assertEqual(
        hinted.guarantee().to_json(), plain.guarantee().to_json()
    )
    # A hint is no promise: one message more is refused by both.
    for ledger in (hinted, plain):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'budget'):
        ledger.charge(
            {'a': next(iter(expected['a']))}, round_index=12, expected=expected
        )

  def test_an_expectation_that_is_wrong_changes_nothing(self):
    accountant = _accountant(epsilon=_poisson_epsilon(3) * 1.001)
    for hint in (
        {'a': {_poisson(): 50}},  # More than the budget.
        {'a': {_poisson(): 1}},  # Less than what is sent.
        {'a': {_poisson(noise_multiplier=9.0): 9}},  # Something else.
    ):
      accountant.charge(
          {'a': _poisson()},
          round_index=accountant.num_rounds('a'),
          expected=hint,
      )
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'budget'):
        accountant.charge(
            {'a': _poisson(noise_multiplier=0.5)},
            round_index=9,
            expected=hint,
        )
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'budget'):
      accountant.charge({'a': _poisson()}, round_index=9)

  def test_half_the_noise_does_not_fit(self):
    sigma = silo_calibration.calibrate_noise(
        silo_sampling.DisjointBlocks(40), num_records=_N, num_rounds=10,
        l2_norm_clip=2.0, epsilon=1.0, delta=_DELTA,
    )
    accountant = _accountant(epsilon=1.0)
    block = silo_sampling.DisjointBlocks(40)
    accountant.charge(
        {'a': silo_events.SiloEvent(block, _N, 2.0, sigma)}, round_index=0
    )
    with self.assertRaises(_checks.PrivacyRefusedError):
      accountant.charge(
          {'a': silo_events.SiloEvent(block, _N, 2.0, sigma / 2,
                                      first_record=40)},
          round_index=1,
      )

  def test_one_silo_refused_leaves_all_uncharged_and_able_to_go_on(self):
    accountant = _accountant(
        poor=silo_accountant.SiloBudget(_N, 0.1),
        rich=silo_accountant.SiloBudget(_N, 10.0),
    )
    event = _poisson()
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'silo poor'):
      accountant.charge({'rich': event, 'poor': event}, round_index=0)
    self.assertEqual(accountant.num_rounds('rich'), 0)
    accountant.charge({'rich': event}, round_index=0)
    self.assertEqual(accountant.epsilon('poor'), 0.0)
    self.assertAlmostEqual(
        accountant.epsilon('rich'), _poisson_epsilon(1), delta=1e-3
    )

  def test_messages_without_noise(self):
    accountant = _accountant()
    accountant.charge({'a': _poisson(0.0)}, round_index=0)
    self.assertEqual(accountant.epsilon('a'), math.inf)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'no ISRL-DP'):
      accountant.guarantee()
    with self.assertRaises(_checks.PrivacyRefusedError):
      _accountant(epsilon=100.0).charge({'a': _poisson(0.0)}, round_index=0)

  def test_what_is_not_covered_voids_the_guarantee(self):
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'no ISRL-DP guarantee: loss, num_examples'
    ):
      _accountant().guarantee(not_covered=['loss', 'num_examples'])

  @parameterized.parameters(
      (dict(num_records=0, epsilon=1.0), 'num_records=0'),
      (dict(num_records=5, epsilon=0.0), 'epsilon=0.0'),
      (dict(num_records=5, epsilon=1.0, delta=1.0), 'delta=1.0'),
      (dict(num_records=1, epsilon=1.0, delta=0.5), 'delta=0.5.*at most 0.1'),
      (dict(num_records=100, epsilon=1.0, delta=0.01), '1 / num_records = 0.01'),
      (dict(num_records=1, epsilon=1.0), 'delta=None'),
      (dict(num_records=5, epsilon=1.0, weight=0.0), 'weight=0.0'),
  )
  def test_budgets(self, fields, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      silo_accountant.SiloBudget(**fields)

  def test_arguments(self):
    accountant = _accountant()
    with self.assertRaisesRegex(_checks.ArgumentError, "silo='b'"):
      accountant.charge({'b': _poisson()}, round_index=0)
    with self.assertRaisesRegex(_checks.ArgumentError, 'round_index=-1'):
      accountant.charge({'a': _poisson()}, round_index=-1)
    with self.assertRaisesRegex(_checks.ArgumentError, 'num_records=39'):
      _poisson(num_records=39)
    with self.assertRaisesRegex(_checks.ArgumentError, 'silos={}'):
      silo_accountant.IsrlAccountant({})
    budget = silo_accountant.SiloBudget(_N, 1.0)
    with self.assertRaisesRegex(_checks.ArgumentError, "silos='a' .* 2 times"):
      silo_accountant.IsrlAccountant({'a': budget, b'a': budget})
    with self.assertRaisesRegex(TypeError, 'SiloEvent'):
      accountant.charge({'a': 'message'}, round_index=0)


class SavedTest(absltest.TestCase):

  def test_round_trip_remembers_everything(self):
    accountant = _accountant(
        a=silo_accountant.SiloBudget(_N, 3.0),
        b=silo_accountant.SiloBudget(_N, None, 1e-7, 0.3),
    )
    accountant.charge({'a': _block(2), 'b': _poisson(1.7)}, round_index=0)
    accountant.charge({'b': _poisson(1.7)}, round_index=4)
    saved = json.loads(json.dumps(accountant.to_json()))
    restored = silo_accountant.IsrlAccountant.from_json(saved)
    self.assertEqual(restored.to_json(), accountant.to_json())
    self.assertEqual(restored.silos, accountant.silos)
    for silo in 'ab':
      self.assertEqual(restored.epsilon(silo), accountant.epsilon(silo))
    with self.assertRaises(_checks.PrivacyRefusedError):
      restored.charge({'a': _block(2)}, round_index=1)
    with self.assertRaises(_checks.PrivacyRefusedError):
      restored.charge({'b': _poisson()}, round_index=4)

  def test_unknown_version(self):
    saved = _accountant().to_json() | {'version': 2}
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'version 2'):
      silo_accountant.IsrlAccountant.from_json(saved)


class GuaranteeTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.accountant = _accountant(
        small=silo_accountant.SiloBudget(_N // 2, 4.0),
        large=silo_accountant.SiloBudget(_N, 1.0),
    )
    self.accountant.charge(
        {'small': _poisson(num_records=_N // 2), 'large': _poisson(20.0)},
        round_index=0,
    )
    self.accountant.charge({'large': _poisson(20.0)}, round_index=1)
    self.guarantee = self.accountant.guarantee(assumptions=['More.'])

  def test_lists_every_silo_and_the_worst(self):
    found = self.guarantee
    self.assertEqual(found.rounds, {'small': 1, 'large': 2})
    self.assertEqual(found.worst_silo, 'small')
    epsilon, delta = found.per_silo['small']
    self.assertEqual(found.worst, (epsilon, delta))
    self.assertEqual(delta, 1 / (_N // 2) ** 2)
    self.assertEqual(found.per_silo['large'][1], _DELTA)
    self.assertEqual(
        found.requested_vs_numeric['large'], (1.0, found.per_silo['large'][0])
    )
    self.assertEqual(found.adjacency, 'replace_one_record')
    self.assertEqual(found.covers, 'full transcript')
    self.assertIn('Poisson', found.sampling['small'])
    self.assertEqual(found.assumptions[-1], 'More.')

  def test_text_and_json(self):
    text = self.guarantee.to_text()
    for part in ('small', 'large', 'worst', 'replaced', 'Mironov', 'More.'):
      self.assertIn(part, text)
    described = json.loads(json.dumps(self.guarantee.to_json()))
    self.assertEqual(described['epsilon'], self.guarantee.worst[0])
    self.assertEqual(set(described['silos']), {'small', 'large'})

  def test_people_with_several_records(self):
    epsilon, delta = self.guarantee.per_silo['small']
    found = self.guarantee.user_level(3)['small']
    self.assertAlmostEqual(found[0], 3 * epsilon)
    self.assertAlmostEqual(
        found[1], min(1.0, 3 * math.exp(2 * epsilon) * delta)
    )
    large = self.guarantee.per_silo['large']
    both = self.guarantee.per_person({'small': 1, 'large': 1})
    self.assertAlmostEqual(both[0], epsilon + large[0])
    self.assertAlmostEqual(both[1], delta + large[1])
    self.assertEqual(self.guarantee.per_person({'small': 0}), (0.0, 0.0))
    with self.assertRaises(_checks.ArgumentError):
      self.guarantee.per_person({'other': 1})
    self.assertEqual(silo_guarantee.group(math.inf, 0.1, 2), (math.inf, 1.0))

  @parameterized.parameters(2, 5, 40)
  def test_user_level_at_the_same_delta(self, k):
    accountant = _accountant()
    accountant.charge({'a': _block(0, 8.0)}, round_index=0)
    single = accountant.epsilon('a')
    found = accountant.user_level_epsilon('a', num_records=k)
    self.assertGreater(found, single)
    # k records of one block move the sum by at most k times as much.
    self.assertAlmostEqual(found, _gaussian_epsilon(8.0 / k), places=6)
    self.assertEqual(accountant.user_level_epsilon('a', num_records=1), single)

  def test_user_level_of_sampled_rounds(self):
    accountant = _accountant()
    for index in range(20):
      accountant.charge({'a': _poisson()}, round_index=index)
    found = [
        accountant.user_level_epsilon('a', num_records=k) for k in (1, 2, 3, 4)
    ]
    self.assertEqual(found, sorted(found))
    # At a smaller delta for one record, k records cost k times as much.
    delta = _DELTA / 2 / math.exp(found[1] / 2)
    self.assertLess(found[1], 2.02 * accountant.epsilon('a', delta=delta))
    self.assertLess(found[1], _gaussian_epsilon(*[2.0] * 20))


if __name__ == '__main__':
  absltest.main()
