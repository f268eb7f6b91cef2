# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests that certificates are sound, the least that holds, and say why."""

import json
import math

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting
import numpy as np
import pytest

from tests.accounting import protocol_laws
from tff_dp import _checks
from tff_dp.accounting import accountants
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import best_bound
from tff_dp.accounting.protocols import bounds as bounds_lib
from tff_dp.systems.allocation import allocation_events
from tff_dp.systems.check_ins import check_in_events
from tff_dp.systems.check_ins import random_check_ins

pytestmark = pytest.mark.once

_REPLACE_ONE = run_events.NeighboringRelation.REPLACE_ONE
_ZERO_OUT = run_events.NeighboringRelation.ZERO_OUT

_Times = dp_accounting.SelfComposedDpEvent
_Composed = dp_accounting.ComposedDpEvent
_Gaussian = dp_accounting.GaussianDpEvent

_Local = run_events.LocalDpEvent
_Sphere = run_events.SphereLocalDpEvent
_Response = run_events.RandomizedResponseLocalDpEvent
_LocalGaussian = run_events.GaussianLocalDpEvent
_Fixed = check_in_events.FixedWindowCheckInDpEvent
_Sliding = check_in_events.SlidingWindowCheckInDpEvent
_Averaged = check_in_events.AveragedCheckInDpEvent
_Shuffled = check_in_events.ShuffledDpEvent
_CheckIn = check_in_events.ShuffledCheckInDpEvent
_Allocation = allocation_events.RandomAllocationDpEvent

_N = 60_000
_MNIST = _Times(_CheckIn(_Local(2.0), _N, 0.1), 6800)
_EVENTS = (
    _Local(1.0, 1e-9),
    _Fixed(_Local(0.5), 200, 0.3),
    _Fixed(_LocalGaussian(3.0), 200, 0.3),
    _Sliding(_Sphere(0.5), 200),
    _Averaged(_Local(0.2, 1e-14), 200, 10_000),
    _Shuffled(_Local(1.0), 5000),
    _CheckIn(_Local(1.0), 900, 0.2),
    _CheckIn(_Response(1.0, 5), 900, 0.2),
    _Times(_CheckIn(_Sphere(1.0), 900, 0.2), 10),
    _Times(_Fixed(_Local(0.5), 200, 0.3), 4),
    _Times(_Averaged(_Local(0.2), 200, 10_000), 3),
    _Allocation(_Gaussian(1.0), 50),
    _Allocation(_Gaussian(2.0), 50, 2, 0.5),
    _Composed([_CheckIn(_Local(1.0), 900, 0.2), _Gaussian(20.0)]),
    _Composed([_Shuffled(_Local(1.0), 900), _Fixed(_Local(0.5), 200)]),
    _Composed([_Allocation(_Gaussian(2.0), 50), _Gaussian(20.0)]),
    _Composed([]),
)
_named = [(f'event{i}', event) for i, event in enumerate(_EVENTS)]
# These search for the best pair on the curve of the noise.
_SEARCHED = (
    ('shuffled', _Shuffled(_LocalGaussian(3.0), 900)),
    ('check_in', _CheckIn(_LocalGaussian(3.0), 900, 0.2)),
)


_certificates = {}


def _amplify(event, **options):
  """Returns the certificate of `amplify`; each call is computed once."""
  call = repr((event, sorted(options.items())))
  if call not in _certificates:
    _certificates[call] = best_bound.amplify(event, **options)
  return _certificates[call]


def _epsilon(event, delta=1e-6, **options):
  return _amplify(event, delta=delta, **options).epsilon


def _by_bound(event, delta=1e-6, **options):
  certificate = _amplify(event, delta=delta, **options)
  return {found.bound: found for found in certificate.candidates}


class NumbersTest(parameterized.TestCase):

  def test_shuffled_check_in_of_the_paper(self):
    for local, at_most in ((_Local(2.0), 1.69), (_Sphere(2.0), 1.24)):
      found = _epsilon(
          _Times(_CheckIn(local, _N, 0.1), 6800), delta=1 / _N
      )
      self.assertBetween(found, 0.9 * at_most, at_most)

  def test_random_allocation(self):
    found = _epsilon(_Allocation(_Gaussian(1.0), 2000))
    self.assertBetween(found, 0.1125, 0.113 * 1.03)

  def test_no_amplification_by_hand(self):
    for rounds in (1, 6800):
      for relation, moves_by in ((_ZERO_OUT, 1), (_REPLACE_ONE, 2)):
        found = _amplify(
            _Times(_Allocation(_Gaussian(9.0), 20, 5), rounds),
            delta=1e-6,
            bound='none',
            neighboring_relation=relation,
        ).epsilon_no_amplification
        expected = gaussian.exact_epsilon(
            sigma=9.0 / math.sqrt(5 * rounds) / moves_by, delta=1e-6
        )
        self.assertAlmostEqual(found / expected, 1.0)
      found = _amplify(
          _Times(_CheckIn(_LocalGaussian(9.0), 100, 0.5), rounds),
          delta=1e-6,
          bound='none',
      ).epsilon_no_amplification
      expected = gaussian.exact_epsilon(
          sigma=4.5 / math.sqrt(rounds), delta=1e-6
      )
      self.assertAlmostEqual(found / expected, 1.0)
    # Randomized response of which nothing is hidden.
    found = _amplify(_Local(1.0), delta=1e-6)
    self.assertAlmostEqual(
        found.epsilon, math.log(math.e - 1e-6 * (1 + math.e)), places=8
    )
    self.assertEqual(found.bound, 'none')

  def test_thinning_by_hand(self):
    e0, share, delta = 0.7, 0.3, 1e-3
    odds = math.exp(e0)
    self.assertAlmostEqual(
        _epsilon(_Fixed(_Local(e0), 9, share), delta, bound='thinning'),
        math.log(1 + share * (odds - 1) - delta * (1 + odds)),
        places=7,
    )

  def test_theorems_by_hand(self):
    log = math.log(1e6)
    a, odds = math.expm1(0.3), math.exp(0.3)
    self.assertAlmostEqual(
        _epsilon(_Fixed(_Local(0.3), 2000, 0.4), bound='rci'),
        0.4 * a * math.sqrt(2 * odds * log / 2000)
        + 0.16 * odds * a**2 / 4000,
        places=9,
    )
    self.assertAlmostEqual(
        _epsilon(_Sliding(_Local(0.3), 2000), bound='rci'),
        a * math.sqrt(2 * odds * log / 2000) + odds * a**2 / 4000,
        places=9,
    )
    self.assertAlmostEqual(
        _epsilon(_Shuffled(_Local(0.3), 2000), bound='rci'),
        odds**3 * a**2 / 4000
        + odds**1.5 * a * math.sqrt(2 * log / 2000),
        places=9,
    )

  def test_steps_are_those_of_the_protocol(self):
    for event, num_slots, probability in (
        (_Fixed(_Local(0.5), 200, 0.3), 200, 0.3),
        (_Sliding(_Local(0.5), 200), 200, 1.0),
    ):
      profile = random_check_ins.theorem_3_2_profile(
          local_epsilon=0.5,
          num_slots=num_slots,
          check_in_probability=probability,
      )
      for count in (1, 3):
        self.assertAlmostEqual(
            _epsilon(_Times(event, count), bound='rci_numeric'),
            privacy_profiles.composed_epsilon(profile, 1e-6, count=count)
            if count > 1
            else privacy_profiles.epsilon_of(profile, 1e-6),
            places=6,
        )

  def test_theorems_repeated_pay_their_delta(self):
    for event in (
        _Fixed(_Local(0.1), 2000), _Sliding(_Local(0.1), 2000),
        _Averaged(_Local(0.1), 2000, 10**6), _Shuffled(_Local(0.1), 2000),
    ):
      bounds = bounds_lib.of(
          event, count=3, delta=1e-6, relation=_REPLACE_ONE
      )
      (bound,) = [found for found in bounds if found.name == 'rci']
      part = bound.part()
      share = 1e-6 / 6
      once = _epsilon(event, delta=share, bound='rci')
      self.assertGreaterEqual(
          float(part.profile(np.array([once]))[0]), share * (1 - 1e-9)
      )
      thrice = _amplify(
          _Times(event, 3), delta=1e-6, bound='rci'
      )
      self.assertTrue(thrice.is_amplified)
      self.assertBetween(thrice.epsilon, once, 3.1 * once)

  @parameterized.product(
      num_clients=(2, 5, 8), rate=(0.3, 1.0), rounds=(1, 2)
  )
  def test_never_below_the_exact_law(self, num_clients, rate, rounds):
    matrix = protocol_laws.randomized_response(1.0)
    pairs = []
    for first, second in protocol_laws.neighbours(num_clients, 2):
      laws = protocol_laws.aligned(
          protocol_laws.shuffled(matrix, first, rate),
          protocol_laws.shuffled(matrix, second, rate),
      )
      pairs.append(protocol_laws.composed(*laws, rounds))
    self.assertNotEmpty(pairs)
    for strength in (_Local(1.0), _Response(1.0)):
      event = _Times(_CheckIn(strength, num_clients, rate), rounds)
      for delta in (0.3, 0.03, 1e-3):
        for bound in ('best', 'subsampling', 'clones_by_cohort'):
          epsilon = _epsilon(event, delta=delta, bound=bound)
          for laws in pairs:
            self.assertLessEqual(
                protocol_laws.delta(*laws, epsilon), delta + 1e-12
            )

  @parameterized.parameters(
      (lambda x: _CheckIn(_Local(x), 900, 0.2), (0.3, 0.6, 1.2)),
      (lambda x: _CheckIn(_Local(1.0), 3000, x), (0.05, 0.2, 0.9)),
      (lambda x: _CheckIn(_Local(1.0), int(x), 0.2), (9000, 3000, 50)),
      (lambda x: _Times(_CheckIn(_Local(1.0), 900, 0.2), x), (1, 3, 9)),
      (lambda x: _CheckIn(_LocalGaussian(x), 100, 0.2), (9.0, 1.0)),
      (lambda x: _Shuffled(_Local(1.0), x), (9000, 3000, 50)),
      (lambda x: _Fixed(_Local(0.5), 100, x), (0.1, 0.5, 1.0)),
      (lambda x: _Fixed(_Local(0.5), x, 0.5), (1000, 100, 10)),
      (lambda x: _Sliding(_Local(x), 1000), (0.1, 0.2, 0.4)),
      (lambda x: _Averaged(_Local(0.2), 1000, x), (9000, 4000, 2000)),
      (lambda x: _Allocation(_Gaussian(x), 50), (3.0, 2.0, 1.0)),
      (lambda x: _Allocation(_Gaussian(2.0), x), (99, 20, 3)),
      (lambda x: _Allocation(_Gaussian(2.0), 60, x), (1, 2, 4)),
      (lambda x: _Allocation(_Gaussian(2.0), 60, 1, x), (0.1, 0.5, 1.0)),
  )
  def test_monotone(self, make, values):
    found = [_epsilon(make(value)) for value in values]
    self.assertEqual(found, sorted(found))
    self.assertLess(found[0], found[-1])

  @parameterized.named_parameters(_named)
  def test_less_delta_costs_epsilon(self, event):
    found = [_epsilon(event, delta=delta) for delta in (1e-4, 1e-6)]
    self.assertEqual(found, sorted(found))


class SoundnessTest(parameterized.TestCase):

  @parameterized.named_parameters(*_named, *_SEARCHED)
  def test_best_is_the_least_and_none_is_always_there(self, event):
    certificate = _amplify(event, delta=1e-6)
    self.assertEqual(certificate.candidates[0].bound, 'none')
    self.assertEqual(
        certificate.epsilon,
        min(found.epsilon for found in certificate.candidates),
    )
    self.assertLessEqual(
        certificate.epsilon, certificate.epsilon_no_amplification
    )
    self.assertEqual(
        certificate.epsilon_no_amplification, _epsilon(event, bound='none')
    )

  @parameterized.named_parameters(_named)
  def test_one_bound_at_a_time(self, event):
    candidates = _by_bound(event)
    best = _epsilon(event)
    names = bounds_lib.names_of(event)
    self.assertEqual(names[:2], ('best', 'none'))
    self.assertContainsSubset({*candidates} - {best_bound.COMBINED}, names)
    with self.assertRaisesRegex(ValueError, "bound='elsewhere'.*'none'"):
      _amplify(event, delta=1e-6, bound='elsewhere')
    for name in names[1:]:
      if name in candidates and candidates[name].reason == best_bound.SKIPPED:
        continue
      certificate = _amplify(event, delta=1e-6, bound=name)
      self.assertGreaterEqual(certificate.epsilon, best)
      self.assertIn(certificate.bound, ('none', name))
      if name in candidates and not candidates[name].reason:
        self.assertEqual(certificate.epsilon, candidates[name].epsilon)
        self.assertEqual(certificate.bound, name)
      if certificate.bound != name:
        self.assertTrue(
            any(name in said for said in certificate.warnings),
            certificate.warnings,
        )

  @parameterized.named_parameters(_named)
  def test_published_proofs_is_valid_and_no_less(self, event):
    plain = _amplify(event, delta=1e-6, published_proofs=True)
    # Rounding of the two grids differs.
    self.assertGreaterEqual(plain.epsilon * (1 + 1e-3), _epsilon(event))
    self.assertLess(plain.epsilon, math.inf)
    self.assertLessEqual(plain.epsilon, plain.epsilon_no_amplification)
    for sentence in plain.assumptions:
      self.assertNotIn('not peer', sentence)
    for found in plain.candidates:
      if 'turned off' in found.reason:
        self.assertEqual(found.epsilon, math.inf)

  def test_published_proofs_still_amplifies_where_a_paper_does(self):
    for event, bound in (
        (_CheckIn(_Local(1.0), 900, 0.2), 'clones_by_cohort'),
        (_Fixed(_Local(0.5), 2000), 'rci'),
        (_Shuffled(_Local(1.0), 5000), 'clones'),
    ):
      certificate = _amplify(
          event, delta=1e-6, published_proofs=True
      )
      self.assertEqual(certificate.bound, bound)
      self.assertTrue(certificate.is_amplified)

  def test_the_charge_for_delta0_is_derived(self):
    local = _Local(1.0, 1e-12)
    for event, bound in (
        (_Shuffled(local, 500), 'clones'),
        (_CheckIn(local, 500, 0.3), 'clones'),
        (_CheckIn(local, 500, 0.3), 'clones_by_cohort'),
    ):
      with self.subTest(event=event, bound=bound):
        for published in (True, False):
          certificate = _amplify(
              event, delta=1e-6, bound=bound, published_proofs=published
          )
          self.assertEqual(certificate.bound == bound, not published)
          self.assertEqual(
              any('not peer' in said for said in certificate.assumptions),
              not published,
          )

  def test_strong_clones_by_type_only(self):
    strong = [_Sphere(1.0), _Response(1.0), _Response(1.0, 9)]
    weak = [
        _Local(1.0), run_events.LaplaceLocalDpEvent(1.0),
        _LocalGaussian(5.0), _Local(1.0, 1e-12),
    ]
    for local in strong + weak:
      for event in (_Shuffled(local, 500), _CheckIn(local, 500, 0.3)):
        found = _by_bound(event, bound='strong_clones')['strong_clones']
        self.assertEqual(found.epsilon < math.inf, local in strong)
        self.assertEqual(bool(found.reason), local in weak)

  def test_steps_are_composed_for_pure_reports_only(self):
    for made in (
        lambda local: _Fixed(local, 200, 0.3),
        lambda local: _Sliding(local, 200),
    ):
      for local in (_Local(0.5), _Sphere(0.5), _Response(0.5, 5)):
        found = _by_bound(made(local), bound='rci_numeric')['rci_numeric']
        self.assertLess(found.epsilon, math.inf)
      for local in (_Local(0.5, 1e-12), _LocalGaussian(5.0)):
        found = _by_bound(made(local), bound='rci_numeric')['rci_numeric']
        self.assertEqual(found.epsilon, math.inf)
        self.assertIn('delta above 0', found.reason)

  @parameterized.parameters(
      (_Times(_CheckIn(_Local(2.0, 1e-5), _N, 0.1), 6800),),
      (_Fixed(_Local(2.0, 1e-4), 2000),),
      (_Shuffled(_Local(2.0, 1e-4), 2000),),
      (_Averaged(_Local(2.0, 1e-4), 10, 2000),),
  )
  def test_vacuous_is_said_plainly(self, event):
    certificate = _amplify(event, delta=1e-6)
    self.assertTrue(certificate.is_vacuous)
    self.assertEqual(certificate.epsilon, math.inf)
    self.assertIn('vacuous', certificate.warnings[0])
    self.assertIn('delta of', certificate.warnings[1])
    self.assertEqual(certificate.to_json()['epsilon'], 'inf')

  def test_out_of_range_falls_back_and_says_so(self):
    certificate = _amplify(
        _Averaged(_Local(5.0), 100, 50), delta=1e-6
    )
    self.assertEqual(certificate.bound, 'none')
    self.assertFalse(certificate.is_amplified)
    self.assertIn('No amplification', certificate.warnings[0])
    self.assertAlmostEqual(certificate.epsilon, 5.0, places=3)
    # A delta0 for which no delta1 of the theorem is left.
    found = _by_bound(_Averaged(_Local(3.0, 1e-8), 100, 50), delta=1e-6)['rci']
    self.assertEqual(found.epsilon, math.inf)
    self.assertIn('needs a delta', found.reason)

  def test_nobody_takes_part(self):
    for event in (
        _Times(_CheckIn(_Local(2.0), 100, 0.0), 9),
        _Fixed(_Local(2.0), 100, 0.0),
        _Allocation(_Gaussian(1.0), 10, 1, 0.0),
    ):
      self.assertEqual(_epsilon(event), 0.0)

  def test_noise_of_all_and_of_nothing(self):
    self.assertEqual(_epsilon(_Allocation(_Gaussian(math.inf), 10)), 0.0)
    self.assertEqual(_epsilon(_Allocation(_Gaussian(0.0), 10)), math.inf)
    self.assertEqual(_epsilon(_Composed([])), 0.0)


class RelationTest(parameterized.TestCase):

  def test_default_is_what_is_native(self):
    for event, relation in (
        (_CheckIn(_Local(1.0), 100, 0.5), _REPLACE_ONE),
        (_Local(1.0), _REPLACE_ONE),
        (_Allocation(_Gaussian(2.0), 50), _ZERO_OUT),
        (_Gaussian(3.0), _ZERO_OUT),
        (_Composed([_Local(1.0), _Gaussian(3.0)]), _REPLACE_ONE),
    ):
      certificate = _amplify(event, delta=1e-6)
      self.assertIs(certificate.neighboring_relation, relation)

  def test_gaussian_is_doubled_under_replace_one_once(self):
    self.assertAlmostEqual(_epsilon(_Gaussian(1.0), 1e-5), 4.377, places=2)
    self.assertAlmostEqual(
        _epsilon(_Gaussian(1.0), 1e-5, neighboring_relation='replace_one'),
        9.997,
        places=2,
    )

  def test_random_allocation_by_two_hops(self):
    event = _Allocation(_Gaussian(1.0), 500)
    zeroed = _epsilon(event)
    replaced = _epsilon(event, neighboring_relation='replace_one')
    self.assertBetween(replaced, 1.5 * zeroed, 2.2 * zeroed)
    # Next to something else the curve composes.
    both = _epsilon(
        _Composed([event, _Gaussian(1e6)]), neighboring_relation='replace_one'
    )
    self.assertBetween(both, 0.999 * replaced, 1.1 * replaced)

  @parameterized.parameters(_Local(1.0), _CheckIn(_Local(1.0), 100, 0.5))
  def test_no_zero_out_for_shuffles(self, event):
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'under zero_out'
    ):
      _amplify(event, delta=1e-6, neighboring_relation='zero_out')

  def test_poisson_sampling_does_not_mix(self):
    sampled = dp_accounting.PoissonSampledDpEvent(0.1, _Gaussian(1.0))
    event = _Composed([_CheckIn(_Local(1.0), 100, 0.5), sampled])
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'PoissonSampled.*ShuffledCheckIn'
    ):
      _amplify(event, delta=1e-6)


class CompositionTest(parameterized.TestCase):

  def test_how_a_run_is_written_down_changes_nothing(self):
    one = _CheckIn(_Local(1.0), 900, 0.2)
    other = _Fixed(_Local(0.5), 200)
    for first, second in (
        (_Times(one, 6), _Composed([_Times(one, 2), one, _Times(one, 3)])),
        (_Composed([one, other]), _Composed([other, one])),
        (_Times(_Composed([one, other]), 2),
         _Composed([_Times(other, 2), one, one])),
    ):
      self.assertAlmostEqual(_epsilon(first), _epsilon(second), places=9)

  @parameterized.parameters(
      (_Allocation(_Gaussian(1.0), 50),),
      (_Allocation(_Gaussian(2.0), 50, 2, 0.5),),
      (_Fixed(_Local(0.5), 200, 0.3),),
      (_Sliding(_Sphere(0.5), 200),),
      (_CheckIn(_Sphere(1.0), 900, 0.2),),
      (_LocalGaussian(9.0),),
  )
  @pytest.mark.slow(cases=['1'])
  def test_next_to_nothing_more_changes_next_to_nothing(self, event):
    both = _Composed([_Times(event, 3), _Gaussian(1e5)])
    alone, beside = _epsilon(_Times(event, 3)), _epsilon(both)
    self.assertBetween(beside, 0.98 * alone, 1.1 * alone)
    if isinstance(event, _Allocation):
      # Two hops: alone they share delta, next to others epsilon, less finely.
      options = dict(neighboring_relation=_REPLACE_ONE)
      replaced = _epsilon(_Times(event, 3), **options)
      self.assertGreater(replaced, 1.5 * beside)
      found = _epsilon(both, **options)
      self.assertBetween(found, 0.98 * replaced, 1.1 * replaced)

  def test_together_is_more_than_each_and_at_most_the_sum(self):
    one = _Times(_CheckIn(_Local(1.0), 900, 0.2), 5)
    other = _Shuffled(_Local(1.0), 5000)
    both = _epsilon(_Composed([one, other]), delta=2e-6)
    self.assertGreater(both, _epsilon(one, 2e-6))
    self.assertGreater(both, _epsilon(other, 2e-6))
    self.assertLessEqual(both, _epsilon(one) + _epsilon(other))

  @parameterized.named_parameters(_named)
  def test_agrees_with_the_pld_accountant(self, event):
    certificate = _amplify(event, delta=1e-6)
    found = accountants.epsilon(
        event,
        delta=1e-6,
        method='pld',
        neighboring_relation=certificate.neighboring_relation,
    )
    # Closed formulas that hold for one run do not compose, so it may be more.
    self.assertGreaterEqual(found, certificate.epsilon * (1 - 1e-2))
    if certificate.bound != 'rci':
      self.assertLessEqual(found, certificate.epsilon * 1.05 + 1e-9)


class CertificateTest(parameterized.TestCase):

  def _certificate(self, **changes):
    fields = dict(
        epsilon=1.0,
        delta=1e-6,
        bound='none',
        candidates=(),
        epsilon_no_amplification=2.0,
        neighboring_relation=_REPLACE_ONE,
    )
    return best_bound.Certificate(**(fields | changes))

  def test_only_numbers_are_values(self):
    for bad in ('1.0', True, None, np.array([1.0])):
      with self.assertRaises(TypeError):
        self._certificate(epsilon=bad)
    for bad in (math.nan, -1.0):
      with self.assertRaises(_checks.ArgumentError):
        self._certificate(epsilon=bad)

  def test_other_names_are_no_bounds(self):
    for name in ('published_sci_baseline', 'poisson', ''):
      with self.assertRaisesRegex(_checks.ArgumentError, '^bound='):
        _amplify(_MNIST, delta=1e-6, bound=name)

  def test_never_above_none(self):
    with self.assertRaises(_checks.ArgumentError):
      self._certificate(epsilon=3.0)

  @parameterized.named_parameters(_named)
  def test_json(self, event):
    certificate = _amplify(event, delta=1e-6)
    result = json.loads(json.dumps(certificate.to_json(), allow_nan=False))
    self.assertContainsSubset(
        {'epsilon', 'epsilon_no_amplification', 'assumptions',
         'neighboring_relation', 'delta', 'bound', 'candidates'},
        result,
    )
    self.assertEqual(result['epsilon'], certificate.epsilon)
    self.assertLen(result['candidates'], len(certificate.candidates))
    self.assertNotEmpty(result['assumptions'])

  def test_assumptions_say_who_is_trusted(self):
    said = lambda event, **options: ' '.join(
        _amplify(event, delta=1e-6, **options).assumptions
    )
    self.assertRegex(said(_MNIST), 'shuffler.*trusted.*aggregator is not')
    self.assertRegex(said(_MNIST), '60000 clients')
    self.assertRegex(said(_MNIST), 'proofs_shuffling')
    self.assertNotRegex(said(_MNIST, bound='none'), 'shuffler')
    self.assertRegex(said(_Fixed(_Local(0.5), 200)), 'server.*trusted')
    self.assertRegex(
        said(_Averaged(_Local(0.2), 200, 10_000)), 'do not collude'
    )
    self.assertRegex(
        said(_Allocation(_Gaussian(1.0), 50)), 'server is trusted.*empty steps'
    )
    self.assertNotRegex(said(_Allocation(_Gaussian(1.0), 50)), 'other steps')
    self.assertRegex(
        said(_Allocation(_Gaussian(2.0), 50, 2)),
        'does not depend on which of its other steps',
    )
    dummies = 'without a report gets the noised report of a zero update'
    self.assertRegex(said(_Fixed(_Local(0.5), 200)), dummies)
    self.assertRegex(said(_Sliding(_Local(0.5), 200)), dummies)
    # Of several events, each brings its own.
    both = said(_Composed([_CheckIn(_Local(1.0), 900, 0.2), _Gaussian(20.0)]))
    self.assertRegex(both, 'shuffler.*trusted')
    self.assertIn('The server adds the noise, and is trusted to.', both)

  @parameterized.parameters(0.0, 1.0, -0.1, math.nan)
  def test_bad_delta(self, delta):
    with self.assertRaisesRegex(_checks.ArgumentError, '^delta='):
      _amplify(_Local(1.0), delta=delta)

  def test_strangers(self):
    class Mine(run_events.SphereLocalDpEvent):
      pass

    with self.assertRaisesRegex(TypeError, 'Mine'):
      _amplify(_Shuffled(Mine(1.0), 100), delta=1e-6)
    with self.assertRaises(TypeError):
      _amplify(1.0, delta=1e-6)
    sampled = dp_accounting.PoissonSampledDpEvent(0.1, _Gaussian(1.0))
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, "method='pld'.*as often as it takes place"
    ):
      _amplify(_Composed([sampled]), delta=1e-6)


if __name__ == '__main__':
  absltest.main()
