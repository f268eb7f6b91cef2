# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the events of messages of silos and of opened sums."""

import collections
import math
import pickle

from absl.testing import absltest
from absl.testing import parameterized
import attr
import dp_accounting
import numpy as np
from scipy import stats

from tff_dp import _checks
from tff_dp.accounting import accountants
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import best_bound
from tff_dp.accounting.protocols import protocol_accountant
from tff_dp.execution import contexts
from tff_dp.systems.check_ins import check_in_events
from tff_dp.systems.silos import integer_plans
from tff_dp.systems.silos import integer_sums
from tff_dp.systems.silos import record_events
from tff_dp.systems.silos import silo_events
from tff_dp.systems.silos import silo_sampling

_Self = dp_accounting.SelfComposedDpEvent
_Composed = dp_accounting.ComposedDpEvent
_GAUSSIAN = record_events.GaussianRecordDpEvent(3.7)
_POISSON = record_events.PoissonRecordDpEvent(4.0, 0.1)
_FIXED = record_events.FixedSizeRecordDpEvent(4.0, 400, 40)
_DISJOINT = record_events.DisjointRecordsDpEvent(
    (_Self(_POISSON, 5), _Composed([_FIXED, _Self(_GAUSSIAN, 2)]))
)
_SUMS = (
    record_events.BinomialSumDpEvent(16, 900, 35, 4, 0.4),
    record_events.SkellamSumDpEvent(32, 9000.5, 7),
    record_events.DiscreteGaussianSumDpEvent(32, 40.3, 25, 7),
)
_EVENTS = (_GAUSSIAN, _POISSON, _FIXED, _DISJOINT, *_SUMS)
_named = [(type(event).__name__, event) for event in _EVENTS]
_N, _K, _DELTA = 400, 40, 1e-5


def _epsilon(event, delta=_DELTA, **changes):
  options = dict(method='pld', neighboring_relation='replace_one') | changes
  return accountants.epsilon(event, delta=delta, **options)


def _delta(event, epsilon, **changes):
  options = dict(method='pld', neighboring_relation='replace_one') | changes
  return accountants.delta(event, epsilon=epsilon, **options)


def _message(sampling, noise_multiplier=4.0, first=0, num_records=_N):
  return silo_events.SiloEvent(
      sampling,
      num_records=num_records,
      l2_norm_clip=2.0,
      sigma=noise_multiplier * 2.0 / sampling.batch_size,
      first_record=first,
  )


class RoundTripTest(parameterized.TestCase):

  @parameterized.named_parameters(_named)
  def test_named_tuple(self, event):
    for outer in (event, _Self(event, 6800), _Composed([_POISSON, event])):
      again = dp_accounting.DpEvent.from_named_tuple(outer.to_named_tuple())
      self.assertEqual(again, outer)
    again = dp_accounting.DpEvent.from_named_tuple(event.to_named_tuple())
    self.assertIs(type(again), type(event))
    self.assertEqual(hash(again), hash(event))
    self.assertEqual(repr(again), repr(event))
    self.assertEqual(pickle.loads(pickle.dumps(event)), event)

  def test_state_of_a_tff_process(self):
    # pylint: disable-next=g-import-not-at-top
    # pylint: disable-next=g-import-not-at-top
    import tensorflow_federated as tff

    contexts.set_sync_in_process_context()
    for event in _EVENTS:
      state = tff.tensorflow.computation(event.to_named_tuple)()
      again = dp_accounting.DpEvent.from_named_tuple(state)
      self.assertEqual(again, event)

  @parameterized.named_parameters(_named)
  def test_fields_are_numbers_or_events(self, event):
    for field in attr.fields(type(event)):
      value = getattr(event, field.name)
      self.assertIsInstance(value, (int, float, tuple))
      self.assertNotIsInstance(value, np.generic)

  @parameterized.parameters(
      (_GAUSSIAN, 'noise_multiplier', (0.0, -1.0, math.inf, math.nan, '4')),
      (_POISSON, 'noise_multiplier', (0.0, math.nan)),
      (_POISSON, 'sampling_probability', (0.0, 1.1, math.nan)),
      (_FIXED, 'noise_multiplier', (0.0, True)),
      (_FIXED, 'num_records', (0, 400.0)),
      (_FIXED, 'batch_size', (0, 401)),
      (_SUMS[0], 'grid', (0, 1.5)),
      (_SUMS[0], 'probability', (0.0, 0.6)),
      (_SUMS[0], 'trials', (0,)),
      (_SUMS[0], 'num_records', (0,)),
      (_SUMS[1], 'variance', (0.0, math.nan)),
      (_SUMS[1], 'dimension', (0,)),
      (_SUMS[2], 'stddev', (0.49, math.nan)),
      (_SUMS[2], 'num_shares', (0,)),
      (
          _DISJOINT,
          'events',
          ((), 5, (_SUMS[0],), (_DISJOINT,),
           (_POISSON, dp_accounting.GaussianDpEvent(1.0))),
      ),
  )
  def test_bad_values_name_the_field(self, event, field, values):
    for value in values:
      with self.assertRaisesRegex(_checks.ArgumentError, f'^{field}='):
        attr.evolve(event, **{field: value})


class CostTest(parameterized.TestCase):

  @parameterized.product(
      sampling=(
          silo_sampling.PoissonSampling(_K),
          silo_sampling.PoissonSampling(_N),
          silo_sampling.FixedSize(_K),
          silo_sampling.FixedSize(1),
          silo_sampling.FixedSize(_N),
      ),
      rounds=(1, 12),
  )
  def test_messages_cost_what_the_silo_accountant_says(self, sampling, rounds):
    message = _message(sampling)
    event = silo_events.dp_event_of({message: rounds})
    exact = silo_sampling.epsilon(
        sampling,
        num_records=_N,
        num_rounds=rounds,
        noise_multiplier=message.noise_multiplier,
        delta=_DELTA,
    )
    self.assertEqual(_epsilon(event), exact)
    certificate = best_bound.amplify(event, delta=_DELTA)
    self.assertEqual(certificate.epsilon, exact)
    self.assertEqual(certificate.unit, 'record in a silo')
    self.assertEqual(certificate.to_json()['unit'], 'record in a silo')
    spent = _delta(event, exact)
    self.assertBetween(spent, 0.9999 * _DELTA, 1.0001 * _DELTA)

  def test_published_proofs_is_convexity(self):
    message = _message(silo_sampling.PoissonSampling(_K))
    published_proofs = silo_events.worst_epsilon({message: 12}, _DELTA, True)
    event = silo_events.dp_event_of({message: 12})
    for options in (dict(bound='convexity'), dict(published_proofs=True)):
      certificate = best_bound.amplify(event, delta=_DELTA, **options)
      self.assertEqual(certificate.epsilon, published_proofs)
      self.assertEqual(certificate.bound, 'convexity')
    self.assertGreater(published_proofs, _epsilon(event) * 1.01)

  def test_without_credit_for_coins_it_is_the_gaussian_at_twice_the_norm(self):
    for event in (_POISSON, _FIXED, record_events.GaussianRecordDpEvent(4.0)):
      certificate = best_bound.amplify(
          _Self(event, 9), delta=_DELTA, bound='none'
      )
      exact = gaussian.exact_epsilon(sigma=4.0 / 2 / 3, delta=_DELTA)
      self.assertAlmostEqual(certificate.epsilon, exact, delta=1e-12)

  def test_one_message_by_brute_force(self):
    # Three records of which two are drawn, all data in {-1, 1}.
    s, epsilon = 1.3, 0.7
    grid = np.linspace(-16, 16, 64_001)
    worst = 0.0
    density = lambda data: sum(
        stats.norm.pdf(grid, data[i] + data[j], s) / 3
        for i, j in ((0, 1), (0, 2), (1, 2))
    )
    for others in ((1, 1), (1, -1), (-1, -1)):
      p, q = density((1, *others)), density((-1, *others))
      for first, second in ((p, q), (q, p)):
        rest = np.maximum(first - math.exp(epsilon) * second, 0)
        worst = max(worst, rest.sum() * (grid[1] - grid[0]))
    event = record_events.FixedSizeRecordDpEvent(s, 3, 2)
    self.assertAlmostEqual(_delta(event, epsilon), worst, delta=1e-6)
    # And Poisson, where every batch occurs.
    p, q = (
        sum(
            0.5 * stats.norm.pdf(grid, mean, s) for mean in (0, own)
        ) for own in (1, -1)
    )
    worst = np.maximum(p - math.exp(epsilon) * q, 0).sum() * (grid[1] - grid[0])
    event = record_events.PoissonRecordDpEvent(s, 0.5)
    self.assertAlmostEqual(_delta(event, epsilon), worst, delta=1e-6)

  def test_unsampled_messages_exactly(self):
    event = _Composed([_Self(_GAUSSIAN, 3), record_events.GaussianRecordDpEvent(
        5.0)])
    sigma = 1 / math.sqrt(3 * (2 / 3.7) ** 2 + (2 / 5.0) ** 2)
    for method in ('exact', 'pld'):
      epsilon = _epsilon(event, method=method)
      self.assertAlmostEqual(
          epsilon, gaussian.exact_epsilon(sigma=sigma, delta=_DELTA)
      )
      self.assertAlmostEqual(
          _delta(event, epsilon, method=method), _DELTA, delta=1e-13
      )

  def test_another_gaussian_release_of_the_person(self):
    # Stated for zero-out, and so worth a message of the same multiplier.
    release = dp_accounting.GaussianDpEvent(5.0)
    for method in ('exact', 'pld'):
      self.assertEqual(
          _epsilon(_Composed([_GAUSSIAN, release]), method=method),
          _epsilon(
              _Composed([_GAUSSIAN, record_events.GaussianRecordDpEvent(5.0)]),
              method=method,
          ),
      )
    both = _Composed([_Self(_POISSON, 12), release])
    alone = _epsilon(_Self(_POISSON, 12))
    self.assertGreater(_epsilon(both), 1.01 * alone)
    nothing = _Composed([_Self(_POISSON, 12),
                         dp_accounting.GaussianDpEvent(1e7)])
    self.assertBetween(_epsilon(nothing), alone * 0.999, alone * 1.01)

  @parameterized.parameters(
      dp_accounting.LaplaceDpEvent(20.0),
      check_in_events.ShuffledDpEvent(
          run_events.SphereLocalDpEvent(1.0), 10_000
      ),
      _SUMS[1],
      run_events.GaussianLocalDpEvent(9.0),
  )
  def test_composes_with_what_is_stated_for_replace_one(self, other):
    messages = _Self(_POISSON, 12)
    found = _epsilon(_Composed([messages, other]))
    apart = _epsilon(messages, _DELTA / 2) + _epsilon(other, _DELTA / 2)
    self.assertGreater(found, _epsilon(messages) * 1.001)
    self.assertLess(found, apart)
    accountant = protocol_accountant.ProtocolAccountant(
        value_discretization_interval=1e-3
    )
    accountant.compose(other).compose(messages)
    self.assertAlmostEqual(
        accountant.get_epsilon(_DELTA), found, delta=0.02 * found
    )

  def test_disjoint_parts_cost_the_worst_at_each_delta(self):
    # Which of them is worse depends on delta.
    some = record_events.PoissonRecordDpEvent(0.8, 0.01)
    parts = (_Self(some, 2), record_events.GaussianRecordDpEvent(6.0))
    event = record_events.DisjointRecordsDpEvent(parts)
    winners = set()
    for delta in (1e-2, 1e-4, 1e-6, 1e-9):
      each = [_epsilon(part, delta) for part in parts]
      winners.add(int(np.argmax(each)))
      self.assertEqual(_epsilon(event, delta), max(each))
      self.assertEqual(
          best_bound.amplify(event, delta=delta).epsilon, max(each)
      )
    self.assertEqual(winners, {0, 1})
    release = dp_accounting.LaplaceDpEvent(50.0)
    each = [_epsilon(_Composed([part, release]), 1e-6) for part in parts]
    together = _epsilon(_Composed([event, release]), 1e-6)
    # Up to the grid of losses.
    self.assertBetween(together, 0.99 * max(each), 1.05 * max(each))

  def test_delta_of_disjoint_parts_is_that_of_the_worst(self):
    some = record_events.PoissonRecordDpEvent(0.8, 0.01)
    parts = (_Self(some, 2), record_events.GaussianRecordDpEvent(6.0))
    worst = set()
    for order in (parts, parts[::-1]):
      event = record_events.DisjointRecordsDpEvent(order)
      for epsilon in (0.1, 1.0, 3.0, 5.0):
        each = [_delta(part, epsilon) for part in parts]
        worst.add(int(np.argmax(each)))
        self.assertEqual(_delta(event, epsilon), max(each))
    self.assertEqual(worst, {0, 1})

  def test_a_record_may_be_in_any_part_of_each_disjoint_event(self):
    # The dear part comes first in one event and last in the other.
    dear, cheap = (record_events.GaussianRecordDpEvent(m) for m in (2.0, 50.0))
    event = _Composed([
        record_events.DisjointRecordsDpEvent((dear, cheap)),
        record_events.DisjointRecordsDpEvent((cheap, dear)),
    ])
    sigma = 2.0 / 2 / math.sqrt(2)
    exact = gaussian.exact_epsilon(sigma=sigma, delta=_DELTA)
    self.assertBetween(_epsilon(event), exact * (1 - 1e-12), 1.001 * exact)
    spent = _delta(event, exact)
    self.assertBetween(spent, _DELTA * (1 - 1e-9), 1.001 * _DELTA)

  def test_twice_disjoint_parts_covers_all_ways_to_meet_them(self):
    some = record_events.PoissonRecordDpEvent(0.8, 0.01)
    parts = (_Self(some, 2), record_events.GaussianRecordDpEvent(6.0))
    twice = _Self(record_events.DisjointRecordsDpEvent(parts), 2)
    for first in parts:
      for second in parts:
        self.assertGreaterEqual(
            _epsilon(twice, 1e-6),
            0.99 * _epsilon(_Composed([first, second]), 1e-6),
        )

  def test_the_second_part_may_follow_from_the_first_message(self):
    # First a Gaussian message, whose loss is normal. Then the record is in the
    # part that is worse for what is left of epsilon.
    sampled = _Self(record_events.PoissonRecordDpEvent(0.7, 0.05), 2)
    sent = record_events.GaussianRecordDpEvent(4.0)
    step, epsilon, delta = 0.05, 2.6, 1e-4
    grid = np.arange(161) * step
    worse = np.maximum(
        *([_delta(part, e) for e in grid] for part in (sampled, sent))
    )
    normals = np.linspace(-8, 8, 40001)
    left = epsilon - (0.5 * (2 / 4.0) ** 2 + 2 / 4.0 * normals)
    # Rounded up to the grid, where delta is smaller.
    index = np.minimum(np.ceil(np.abs(left) / step).astype(int), 160)
    second = np.where(
        left >= 0, worse[index], 1 - np.exp(left) * (1 - worse[index])
    )
    mass = stats.norm.pdf(normals) * (normals[1] - normals[0])
    self.assertGreater(mass @ second, 1.1 * delta)
    # Twice the same part hides more.
    for part in (sampled, sent):
      self.assertLess(_epsilon(_Self(part, 2), delta), epsilon - 0.05)
    event = _Self(record_events.DisjointRecordsDpEvent((sampled, sent)), 2)
    certificate = best_bound.amplify(event, delta=delta)
    for found in (_epsilon(event, delta), certificate.epsilon):
      self.assertBetween(found, epsilon, 1.2 * epsilon)


class SumsTest(parameterized.TestCase):

  @parameterized.product(noise=integer_plans.NOISES, dimension=(1, 6))
  def test_costs_what_the_plan_says(self, noise, dimension):
    plan = integer_plans.calibrate(
        noise, epsilon=1.0, delta=1e-6, dimension=dimension, grid=16,
        records_per_silo=5, min_silos=4,
    )
    event = plan.dp_event(dimension=dimension)
    for count in (1, 3):
      some = event if count == 1 else _Self(event, count)
      exact = integer_sums.epsilon(event, 1e-6, num_rounds=count)
      # The plan also counts what the tables of its draws miss.
      self.assertBetween(
          plan.epsilon(1e-6, dimension=dimension, num_rounds=count),
          exact, exact * (1 + 1e-6),
      )
      self.assertEqual(_epsilon(some, 1e-6), exact)
      self.assertEqual(
          best_bound.amplify(some, delta=1e-6).epsilon, exact
      )
      # The profile that composes is the curve of these epsilons.
      spent = _delta(some, exact)
      self.assertBetween(spent, 0.97e-6, 1.06e-6)

  def test_a_silo_alone_has_its_own_share_only(self):
    plan = integer_plans.SkellamPlan(
        grid=16, records_per_silo=5, min_silos=4, variance=900.0
    )
    alone = integer_plans.SkellamPlan(
        grid=16, records_per_silo=5, min_silos=1, variance=900.0
    )
    self.assertAlmostEqual(plan.dp_event(dimension=3).variance, 3600.0)
    self.assertAlmostEqual(alone.dp_event(dimension=3).variance, 900.0)
    of_law = _epsilon(alone.dp_event(dimension=3))
    self.assertBetween(
        plan.silo_epsilon(_DELTA, dimension=3), of_law, of_law * (1 + 1e-6)
    )

  @parameterized.parameters(1, 2)
  def test_profile_is_above_the_sum_of_skellams(self, dimension):
    # Brute force: a grid of one step, and one coordinate that moves by it.
    variance, epsilon = 20.0, 0.5
    values = np.arange(-120, 121)
    law = stats.skellam.pmf(values, variance / 2, variance / 2)
    moved = stats.skellam.pmf(values - 1, variance / 2, variance / 2)
    exact = np.maximum(law - math.exp(epsilon) * moved, 0).sum()
    event = record_events.SkellamSumDpEvent(1, variance, dimension)
    found = _delta(event, epsilon)
    self.assertGreater(found, exact * (1 - 1e-9))
    if dimension == 1:
      self.assertLess(found, exact * 1.02)

  def test_renyi_profile_inverts_epsilon(self):
    event = record_events.DiscreteGaussianSumDpEvent(16, 9.0, 25, 4)
    ((bound,),) = [
        [found] for found in best_bound.bounds.of(
            event, count=2, delta=1e-6, relation=None
        )
    ]
    for delta in (1e-3, 1e-6, 1e-9):
      exact = bound.epsilon(delta)
      found = privacy_profiles.epsilon_of(bound.part().profile, delta)
      self.assertBetween(found, exact * (1 - 1e-6), exact * (1 + 1e-6))


class SentTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('nothing', [], dp_accounting.NoOpDpEvent),
      (
          'blocks',
          [_message(silo_sampling.DisjointBlocks(_K), first=_K * i)
           for i in range(5)],
          record_events.GaussianRecordDpEvent,
      ),
      (
          'worse_block',
          [_message(silo_sampling.DisjointBlocks(_K), 2.0 + i, first=_K * i)
           for i in range(5)],
          record_events.GaussianRecordDpEvent,
      ),
      (
          'block_again',
          [_message(silo_sampling.DisjointBlocks(_K), first=20 * i)
           for i in range(3)],
          _Self,
      ),
      (
          'block_and_sampling',
          [_message(silo_sampling.DisjointBlocks(_K), first=80),
           *[_message(silo_sampling.PoissonSampling(_K))] * 4],
          _Composed,
      ),
      (
          'phases',
          [*[_message(silo_sampling.PoissonSampling(20), num_records=200)] * 3,
           *[_message(silo_sampling.PoissonSampling(20), 5.0, 200, 100)] * 6],
          record_events.DisjointRecordsDpEvent,
      ),
  )
  def test_event_of_what_was_sent(self, charges, kind):
    sent = collections.Counter(charges)
    event = silo_events.dp_event_of(sent)
    self.assertIsInstance(event, kind)
    self.assertEqual(
        _epsilon(event) if charges else 0.0,
        silo_events.worst_epsilon(sent, _DELTA, False),
    )

  def test_without_noise(self):
    message = silo_events.SiloEvent(
        silo_sampling.FixedSize(_K), _N, l2_norm_clip=1.0, sigma=0.0
    )
    event = silo_events.dp_event_of(
        {message: 1, _message(silo_sampling.FixedSize(_K)): 1}
    )
    self.assertIsInstance(event, dp_accounting.NonPrivateDpEvent)
    self.assertEqual(_epsilon(event), math.inf)


class RefusalTest(parameterized.TestCase):

  @parameterized.named_parameters(_named)
  def test_accountants_of_dp_accounting_claim_nothing(self, event):
    nr = dp_accounting.NeighboringRelation
    for relation in (nr.ADD_OR_REMOVE_ONE, nr.REPLACE_ONE, nr.REPLACE_SPECIAL):
      for accountant in (
          dp_accounting.pld.PLDAccountant(relation),
          dp_accounting.rdp.RdpAccountant(neighboring_relation=relation),
      ):
        for outer in (event, _Self(event, 2), _Composed([event])):
          self.assertFalse(accountant.supports(outer))
        with self.assertRaises(dp_accounting.UnsupportedEventError):
          accountant.compose(event)

  @parameterized.named_parameters(_named)
  def test_no_other_relation(self, event):
    for relation in ('zero_out',):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'number of records .* is public'
      ):
        _epsilon(event, neighboring_relation=relation)
      with self.assertRaises(_checks.PrivacyRefusedError):
        _delta(event, 1.0, neighboring_relation=relation)
    accountant = protocol_accountant.ProtocolAccountant(
        dp_accounting.NeighboringRelation.REPLACE_SPECIAL
    )
    self.assertFalse(accountant.supports(event))

  @parameterized.named_parameters(_named)
  def test_methods(self, event):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, "method='rdp'"):
      _epsilon(event, method='rdp')
    if event is _GAUSSIAN:
      return
    for call in (_epsilon, _delta):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, "method='exact'"
      ):
        call(event, 0.1, method='exact')

  def test_sampled_sums_at_a_server_are_refused(self):
    sampled = dp_accounting.PoissonSampledDpEvent(
        0.1, dp_accounting.GaussianDpEvent(1.0)
    )
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'the event inside of the sampled one'
    ):
      _epsilon(_Composed([_POISSON, sampled]))
    accountant = protocol_accountant.ProtocolAccountant()
    accountant.compose(_POISSON)
    with self.assertRaises(dp_accounting.UnsupportedEventError):
      accountant.compose(sampled)

  @parameterized.parameters(
      record_events.MessageDpEvent,
      record_events.PoissonRecordDpEvent,
      record_events.SumDpEvent,
      record_events.SkellamSumDpEvent,
  )
  def test_subclasses_from_elsewhere_are_not_known(self, base):

    @attr.s(frozen=True)
    class Strange(base):
      pass

    event = {
        record_events.PoissonRecordDpEvent: lambda: Strange(1.0, 0.5),
        record_events.SkellamSumDpEvent: lambda: Strange(4, 9.0, 1),
    }.get(base, Strange)()
    with self.assertRaisesRegex(TypeError, 'event=Strange.*bounds are known'):
      _epsilon(event)
    self.assertFalse(protocol_accountant.ProtocolAccountant().supports(event))
    with self.assertRaises(TypeError):
      best_bound.amplify(event, delta=1e-5)


if __name__ == '__main__':
  absltest.main()
