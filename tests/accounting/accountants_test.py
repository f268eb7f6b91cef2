# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests that the three accountants agree, and that none is below the truth."""

import dataclasses
import fractions
import math
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting
from dp_accounting import pld
import numpy as np
from scipy import integrate
from scipy import special

from tff_dp import _checks
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.accounting import accountants
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events
from tff_dp.mechanisms import catalogue
from tff_dp.systems.dp_ftrl import plan as plan_lib

_ZERO_OUT = run_events.NeighboringRelation.ZERO_OUT
_REPLACE_ONE = run_events.NeighboringRelation.REPLACE_ONE

_Gaussian = dp_accounting.GaussianDpEvent
_Laplace = dp_accounting.LaplaceDpEvent
_Poisson = dp_accounting.PoissonSampledDpEvent
_Composed = dp_accounting.ComposedDpEvent
_Times = dp_accounting.SelfComposedDpEvent


def _gaussian_delta(sigma, epsilon):
  """Returns the hockey-stick divergence for any real epsilon, vectorised."""
  if sigma == math.inf:
    return np.maximum(0.0, -np.expm1(epsilon))
  first = special.ndtr(0.5 / sigma - epsilon * sigma)
  second = special.log_ndtr(-0.5 / sigma - epsilon * sigma)
  return first - np.exp(epsilon + second)


def _brute_delta(densities, epsilon, sigma, limit, points):
  """Returns delta of a composition, by integrating over one mechanism.

  The hockey-stick divergence of P x N(1, sigma^2) and Q x N(0, sigma^2) is the
  mean over x ~ P of that of the two Gaussians at epsilon - log(p(x) / q(x)).

  Args:
    densities: Returns (log p, log q) at x.
    epsilon: At least 0.
    sigma: Of the Gaussian; infinity for none.
    limit: x is integrated from -limit to limit.
    points: Where the densities have kinks.
  """

  def integrand(x):
    log_p, log_q = densities(x)
    return math.exp(log_p) * _gaussian_delta(sigma, epsilon - log_p + log_q)

  value, _ = integrate.quad(
      integrand, -limit, limit, points=points, epsabs=1e-13, epsrel=1e-10,
      limit=400,
  )
  return value


def _laplace_densities(parameter):
  constant = -math.log(2 * parameter)

  def densities(x):
    return constant - abs(x - 1) / parameter, constant - abs(x) / parameter

  return densities


def _sampled_densities(probability, sigma, *, is_removed):
  constant = -math.log(sigma * math.sqrt(2 * math.pi))

  def densities(x):
    without = constant - (x / sigma) ** 2 / 2
    mixture = np.logaddexp(
        math.log1p(-probability) + without,
        math.log(probability) + constant - ((x - 1) / sigma) ** 2 / 2,
    )
    return (mixture, without) if is_removed else (without, mixture)

  return densities


class AgreementTest(parameterized.TestCase):

  @parameterized.product(
      sigma=(0.2, 0.7, 1.0, 2.5, 8.0, 60.0),
      delta=(1e-2, 1e-5, 1e-8, 1e-11),
      relation=tuple(run_events.NeighboringRelation),
  )
  def test_exact_is_least_and_pld_close_to_it(self, sigma, delta, relation):
    event = _Composed([_Gaussian(3 * sigma), _Times(_Gaussian(2 * sigma), 3)])
    exact, by_pld, by_rdp = (
        accountants.epsilon(
            event, delta=delta, method=method, neighboring_relation=relation
        )
        for method in ('exact', 'pld', 'rdp')
    )
    together = 1 / math.sqrt(1 / 9 + 3 / 4) * sigma
    together /= {_ZERO_OUT: 1, _REPLACE_ONE: 2}[relation]
    self.assertAlmostEqual(
        exact / (gaussian.exact_epsilon(sigma=together, delta=delta) or 1.0),
        1.0 if exact else 0.0,
    )
    self.assertBetween(by_pld, exact, exact * (1 + 1e-4))
    self.assertGreaterEqual(by_rdp, exact)
    self.assertAlmostEqual(
        by_rdp,
        gaussian.rdp_epsilon(sigma=together, delta=delta),
        delta=1e-5 * by_rdp + 1e-11,
    )

  @parameterized.product(
      sigma=(0.5, 1.0, 4.0), epsilon=(0.0, 0.1, 1.0, 5.0)
  )
  def test_deltas_agree_and_invert_the_epsilons(self, sigma, epsilon):
    event = _Gaussian(sigma)
    exact = accountants.delta(event, epsilon=epsilon)
    self.assertEqual(
        exact, gaussian.exact_delta(sigma=sigma, epsilon=epsilon)
    )
    by_pld = accountants.delta(event, epsilon=epsilon, method='pld')
    self.assertBetween(by_pld, exact, exact * (1 + 1e-3) + 1e-13)
    by_rdp = accountants.delta(event, epsilon=epsilon, method='rdp')
    self.assertGreaterEqual(by_rdp, exact)
    for method, delta in (('exact', exact), ('pld', by_pld), ('rdp', by_rdp)):
      if 1e-12 < delta < 1:
        self.assertAlmostEqual(
            accountants.epsilon(event, delta=delta, method=method),
            epsilon,
            delta=1e-3,
        )

  @parameterized.product(name=sorted(catalogue.BY_NAME))
  def test_three_accountants_of_every_mechanism(self, name):
    schedule = participation.MinSeparation(24, min_index_gap=8)
    plan = plan_lib.DpFtrlPlan(
        mechanism=mechanisms.build(name, schedule),
        participation=schedule,
        l2_norm_clip=1.0,
        clients_per_round=10,
        noise_multiplier=3.0,
    )
    for relation in run_events.NeighboringRelation:
      exact = plan.epsilon(delta=1e-6, neighboring_relation=relation)
      self.assertAlmostEqual(
          exact,
          gaussian.exact_epsilon(
              sigma=3.0
              / math.sqrt(
                  plan.squared_sensitivity
                  * {_ZERO_OUT: 1, _REPLACE_ONE: 4}[relation]
              ),
              delta=1e-6,
          ),
      )
      by_pld, by_rdp = (
          plan.epsilon(
              delta=1e-6, neighboring_relation=relation, method=method
          )
          for method in ('pld', 'rdp')
      )
      self.assertBetween(by_pld, exact, exact * (1 + 1e-4))
      self.assertBetween(by_rdp, exact, exact * 1.2)


class CompositionTest(parameterized.TestCase):

  def _assert_bracket(self, event, brutes: dict[float, float]):
    """Checks deltas of 'pld' and 'rdp' against the true ones, by epsilon."""
    loss = accountants.loss(event)
    for epsilon, brute in brutes.items():
      self.assertBetween(
          loss.delta(epsilon), brute, brute * (1 + 1e-3) + 1e-12
      )
      self.assertGreaterEqual(
          accountants.delta(event, epsilon=epsilon, method='rdp'), brute
      )
    self.assertEqual(
        accountants.delta(event, epsilon=epsilon, method='pld'),
        loss.delta(epsilon),
    )

  @parameterized.parameters((1.0, 0.7), (3.0, 4.0), (math.inf, 0.7))
  def test_laplace_brackets_the_integral(self, sigma, parameter):
    brutes = {
        epsilon: _brute_delta(
            _laplace_densities(parameter),
            epsilon,
            sigma,
            1 + 40 * parameter,
            (0.0, 1.0),
        )
        for epsilon in (0.05, 0.5, 2.0)
    }
    self._assert_bracket(
        _Composed([_Gaussian(sigma), _Laplace(parameter)]), brutes
    )
    optimistic = pld.privacy_loss_distribution.from_laplace_mechanism(
        parameter, pessimistic_estimate=False, use_connect_dots=False
    )
    if sigma < math.inf:
      optimistic = optimistic.compose(
          pld.privacy_loss_distribution.from_gaussian_mechanism(
              sigma, pessimistic_estimate=False, use_connect_dots=False
          )
      )
    for epsilon, brute in brutes.items():
      self.assertLessEqual(
          optimistic.get_delta_for_epsilon(epsilon), brute + 1e-12
      )

  # Every pair of values of two arguments comes once.
  @parameterized.parameters(
      (1.5, 0.01, 0.6),
      (1.5, 0.3, 2.0),
      (math.inf, 0.01, 2.0),
      (math.inf, 0.3, 0.6),
  )
  def test_sampled_evaluation_brackets_the_integral(
      self, sigma, probability, sampled_sigma
  ):
    brutes = {
        epsilon: max(
            _brute_delta(
                _sampled_densities(
                    probability, sampled_sigma, is_removed=is_removed
                ),
                epsilon,
                sigma,
                1 + 12 * sampled_sigma,
                (0.0, 0.5, 1.0),
            )
            for is_removed in (False, True)
        )
        for epsilon in (0.05, 1.0)
    }
    self._assert_bracket(
        _Composed(
            [_Poisson(probability, _Gaussian(sampled_sigma)), _Gaussian(sigma)]
        ),
        brutes,
    )

  def test_many_sampled_rounds_are_tight(self):
    # 1,000 steps at rate 1 %: the grid has to be fine against one step's loss.
    event = _Times(_Poisson(0.01, _Gaussian(1.0)), 1000)
    found = accountants.epsilon(event, delta=1e-5, method='pld')
    fine = pld.PLDAccountant(value_discretization_interval=1e-4)
    fine.compose(event)
    self.assertAlmostEqual(found, fine.get_epsilon(1e-5), delta=1e-3 * found)
    by_rdp = accountants.epsilon(event, delta=1e-5, method='rdp')
    self.assertBetween(by_rdp, found, 1.2 * found)

  @parameterized.parameters('exact', 'pld', 'rdp')
  def test_order_and_nesting_do_not_matter(self, method):
    parts = [_Gaussian(4.0), _Gaussian(4.0), _Gaussian(7.0)]
    if method != 'exact':
      parts += [_Laplace(5.0), _Poisson(0.02, _Gaussian(1.1))]
    expected = accountants.epsilon(_Composed(parts), delta=1e-6, method=method)
    for other in (
        _Composed(parts[::-1]),
        _Composed([_Times(_Gaussian(4.0), 2), _Composed(parts[2:])]),
        _Composed([dp_accounting.NoOpDpEvent(), *parts[1:], parts[0]]),
        _Composed([*parts, _Times(dp_accounting.NonPrivateDpEvent(), 0)]),
    ):
      self.assertAlmostEqual(
          accountants.epsilon(other, delta=1e-6, method=method),
          expected,
          delta=1e-9 * expected,
      )

  @parameterized.product(
      method=('exact', 'pld', 'rdp'),
      event=(
          dp_accounting.NonPrivateDpEvent(),
          _Gaussian(0.0),
          _Composed([_Gaussian(2.0), _Gaussian(0.0)]),
          _Laplace(0.0),
      ),
  )
  def test_no_noise_is_infinity_and_the_same_type(self, method, event):
    found = accountants.epsilon(event, delta=1e-6, method=method)
    self.assertIsInstance(found, float)
    self.assertIsInstance(
        accountants.epsilon(_Gaussian(2.0), delta=1e-6, method=method), float
    )
    self.assertEqual(found, math.inf)
    self.assertEqual(
        accountants.delta(event, epsilon=1.0, method=method), 1.0
    )

  @parameterized.parameters('exact', 'pld', 'rdp')
  def test_nothing_costs_nothing(self, method):
    for event in (dp_accounting.NoOpDpEvent(), _Composed([])):
      self.assertEqual(
          accountants.epsilon(event, delta=1e-6, method=method), 0.0
      )
      self.assertEqual(
          accountants.delta(event, epsilon=0.0, method=method), 0.0
      )

  @parameterized.parameters(
      (_Poisson(0.1, _Gaussian(0.0)),),
      (_Poisson(0.1, _Laplace(0.0)),),
      (_Composed([_Gaussian(1.0), _Poisson(0.1, _Gaussian(0.0))]),),
  )
  def test_no_noise_in_a_sampled_sum_is_infinity(self, event):
    self.assertEqual(accountants.loss(event).epsilon(1e-6), math.inf)
    for relation in (_ZERO_OUT, _REPLACE_ONE):
      where = dict(method='pld', neighboring_relation=relation)
      self.assertEqual(
          accountants.epsilon(event, delta=1e-6, **where), math.inf
      )
      self.assertEqual(accountants.delta(event, epsilon=1.0, **where), 1.0)

  @parameterized.product(
      method=('pld', 'rdp'), sigma=(1e-320, 1e-5, 1.0, 1e8, 1e300),
      rate=(1e-320, 1e-16, 0.5, 1.0),
  )
  def test_extreme_noise_and_rates(self, method, sigma, rate):
    event = _Times(_Poisson(rate, _Gaussian(sigma)), 200)
    found = accountants.epsilon(event, delta=1e-6, method=method)
    if sigma < 1:
      self.assertEqual(found, math.inf)
    else:
      is_small = rate < 0.5 or sigma > 1
      self.assertBetween(found, 0.0, 1.0 if is_small else 250.0)
    plain = accountants.epsilon(_Gaussian(sigma), delta=1e-6, method=method)
    self.assertGreaterEqual(
        plain, gaussian.exact_epsilon(sigma=sigma, delta=1e-6)
    )

  def test_a_delta_without_digits_is_infinity(self):
    self.assertEqual(
        accountants.epsilon(_Gaussian(2.0), delta=1e-16, method='pld'), math.inf
    )


class CombinedTest(parameterized.TestCase):

  @parameterized.parameters(
      ([(1.0, 3)],),
      ([(0.1, 10**6)],),
      ([(1.0, 2), (0.3, 7), (2.5, 1000)],),
      ([(1e-160, 5), (1e160, 5)],),
      ([(1.1, 1), (1.3, 1)],),
  )
  def test_sigma_is_never_above_the_exact_one(self, gaussians):
    # 1 / sigma^2 add up: arXiv:1905.02383, corollary 3.3.
    exact = 1 / sum(
        count / fractions.Fraction(sigma) ** 2 for sigma, count in gaussians
    )
    # pylint: disable-next=protected-access
    found = fractions.Fraction(accountants._combined(gaussians)) ** 2
    self.assertLessEqual(found, exact)
    self.assertGreater(found, exact * (1 - fractions.Fraction(1, 10**13)))

  def test_without_noise_nothing_is_left(self):
    # pylint: disable=protected-access
    self.assertEqual(accountants._combined([(1.0, 2), (0.0, 1)]), 0.0)
    self.assertEqual(accountants._combined([]), math.inf)
    self.assertEqual(accountants._combined([(math.inf, 4)]), math.inf)


class RelationTest(parameterized.TestCase):

  @parameterized.parameters('exact', 'pld', 'rdp')
  def test_replacing_moves_by_two_norms_once(self, method):
    plan = plan_lib.DpFtrlPlan(
        mechanism=mechanisms.HonakerTree(24),
        participation=participation.MinSeparation(24, min_index_gap=8),
        l2_norm_clip=1.0,
        clients_per_round=10,
        noise_multiplier=6.0,
    )
    halved = dataclasses.replace(plan, noise_multiplier=3.0)
    self.assertEqual(
        plan.epsilon(
            delta=1e-6, method=method, neighboring_relation=_REPLACE_ONE
        ),
        halved.epsilon(delta=1e-6, method=method),
    )
    self.assertEqual(
        accountants.epsilon(
            plan.event(),
            delta=1e-6,
            method=method,
            neighboring_relation=_REPLACE_ONE,
        ),
        accountants.epsilon(halved.event(), delta=1e-6, method=method),
    )

  @parameterized.parameters('pld', 'rdp')
  def test_laplace_parameters_are_halved(self, method):
    self.assertEqual(
        accountants.epsilon(
            _Composed([_Gaussian(6.0), _Laplace(8.0)]),
            delta=1e-6,
            method=method,
            neighboring_relation=_REPLACE_ONE,
        ),
        accountants.epsilon(
            _Composed([_Gaussian(3.0), _Laplace(4.0)]),
            delta=1e-6,
            method=method,
        ),
    )

  def test_renyi_dp_refuses_sampled_sums_where_a_contribution_is_replaced(self):
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'Poisson.*replace_one'
    ):
      accountants.epsilon(
          _Composed([_Gaussian(2.0), _Poisson(0.1, _Gaussian(2.0))]),
          delta=1e-6,
          method='rdp',
          neighboring_relation=_REPLACE_ONE,
      )

  def test_replacing_in_a_sampled_sum_is_a_removal_and_an_addition(self):
    where = dict(method='pld', neighboring_relation=_REPLACE_ONE)
    sampled = _Times(_Poisson(0.1, _Gaussian(2.0)), 30)
    found = accountants.epsilon(sampled, delta=1e-6, **where)
    zeroed = accountants.epsilon(sampled, delta=1e-6, method='pld')
    # Two opposite contributions of norm 1 in a sample: a lower bound.
    least = _lower_bound(0.1, 2.0, delta=1e-6, rounds=30)
    self.assertBetween(found, least, 2.5 * zeroed)
    self.assertGreater(least, zeroed)
    # The profile says the same as the epsilon, up to its coarser splits.
    delta = accountants.delta(sampled, epsilon=found, **where)
    self.assertBetween(delta, 1e-7, 1e-5)
    silent = _Composed([sampled, _Gaussian(0.0)])
    self.assertEqual(
        accountants.epsilon(silent, delta=1e-6, **where), math.inf
    )


def _lower_bound(rate, sigma, *, delta, rounds) -> float:
  """Returns epsilon of (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1).

  The loss of a round is put on a grid, rounded down, and composed.
  """
  step = 1e-3
  x = np.linspace(-12 * sigma, 12 * sigma, 400_001)
  density = lambda centre: np.exp(-((x - centre) ** 2) / (2 * sigma**2))
  first = (1 - rate) * density(0) + rate * density(1)
  other = (1 - rate) * density(0) + rate * density(-1)
  losses = np.floor(np.log(first / other) / step).astype(int)
  masses = np.bincount(losses - losses.min(), weights=first / first.sum())
  size = 1 << int(np.ceil(np.log2(rounds * len(masses) + 1)))
  composed = np.fft.irfft(np.fft.rfft(masses, size) ** rounds, size)
  total = step * (np.arange(size) + rounds * losses.min())

  def exceeds(epsilon):
    above = total > epsilon
    return composed[above] @ -np.expm1(epsilon - total[above]) > delta

  return max(
      (epsilon for epsilon in np.arange(0.1, 10, 0.01) if exceeds(epsilon)),
      default=0.0,
  )


class PlanCompositionTest(parameterized.TestCase):

  def _plan(self):
    return plan_lib.DpFtrlPlan(
        mechanism=mechanisms.HonakerTree(24),
        participation=participation.MinSeparation(24, min_index_gap=8),
        l2_norm_clip=1.0,
        clients_per_round=10,
        noise_multiplier=6.0,
    )

  @parameterized.product(
      relation=tuple(run_events.NeighboringRelation), num_rounds=(None, 5)
  )
  def test_other_gaussians_add_their_precision(self, relation, num_rounds):
    plan = self._plan()
    where = dict(neighboring_relation=relation, num_rounds=num_rounds)
    moves = {_ZERO_OUT: 1, _REPLACE_ONE: 2}[relation]
    sigma = (plan.sigma(**where) ** -2 + 2 * (moves / 9.0) ** 2) ** -0.5
    found = plan.epsilon(delta=1e-6, also=[_Times(_Gaussian(9.0), 2)], **where)
    self.assertAlmostEqual(
        found, gaussian.exact_epsilon(sigma=sigma, delta=1e-6)
    )
    by_pld = plan.epsilon(
        delta=1e-6, method='pld', also=[_Times(_Gaussian(9.0), 2)], **where
    )
    self.assertBetween(by_pld, found, found * (1 + 1e-4))

  def test_evaluation_with_laplace_noise(self):
    plan = self._plan()
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, "method='pld'"):
      plan.epsilon(delta=1e-6, also=[_Laplace(10.0)])
    alone = plan.epsilon(delta=1e-6)
    found = plan.epsilon(delta=1e-6, also=[_Laplace(10.0)], method='pld')
    # Basic composition is the cruder bound: the Laplace event has epsilon 0.1.
    self.assertBetween(found, alone, alone + 0.1)


class LossTest(parameterized.TestCase):

  def test_nothing_released_is_nothing_lost(self):
    for event in (
        dp_accounting.NoOpDpEvent(),
        _Composed([]),
        _Gaussian(math.inf),
    ):
      found = accountants.loss(event)
      self.assertEqual(found.epsilon(1e-9), 0.0)
      self.assertEqual(found.delta(0.0), 0.0)


  @parameterized.parameters(
      (_Times(_Poisson(0.1, _Gaussian(2.0)), 10),), (_Gaussian(2.0),)
  )
  def test_what_sums_of_probabilities_lose_is_charged(self, event):
    # Some 1e-14 of the whole mass, wherever the losses end.
    lost = accountants.loss(event)
    self.assertGreaterEqual(lost.delta(500.0), 1e-14)
    self.assertGreaterEqual(float(lost.profile()(np.array([500.0]))[0]), 1e-14)
    self.assertEqual(lost.epsilon(0.9e-14), math.inf)
    for delta in (0.9e-14, 1e-16):
      self.assertEqual(
          accountants.epsilon(event, delta=delta, method='pld'), math.inf
      )
    self.assertGreaterEqual(
        accountants.delta(event, epsilon=500.0, method='pld'), 1e-14
    )


class RepeatedTest(parameterized.TestCase):

  @parameterized.parameters((10**4, 1.0, 1e-13), (10**6, 3.0, 1e-12))
  def test_what_powers_of_transforms_lose_is_charged(self, count, sigma, delta):
    # With sampling probability 1 the exact delta is known. The delta of
    # dp_accounting is below it: for a million mechanisms it is below zero.
    event = _Times(
        _Poisson(1.0, _Gaussian(sigma * math.sqrt(count))), count
    )
    epsilon = gaussian.exact_epsilon(sigma=sigma, delta=delta)
    with mock.patch.object(accountants, '_PLD_ERROR', 0.0), mock.patch.object(
        accountants, '_PLD_ERROR_OF_POWER', 0.0
    ):
      theirs = accountants.delta(event, epsilon=epsilon, method='pld')
    self.assertLess(theirs, delta)
    ours = accountants.delta(event, epsilon=epsilon, method='pld')
    self.assertBetween(ours, delta, delta + 6e-16 * count)

  @parameterized.parameters('pld', 'rdp')
  def test_each_repetition_counts(self, method):
    # Version 0.6 composes a randomized response once, whatever its count is.
    events = [_Laplace(2.0), _Poisson(0.1, _Gaussian(1.0))]
    for name, fields in (
        ('RandomizedResponseDpEvent', (0.5, 2)),
        ('ZCDpEvent', (0.1,)),
        ('MixtureOfGaussiansDpEvent', (2.0, (0.0, 1.0), (0.5, 0.5))),
    ):
      if hasattr(dp_accounting.dp_event, name):
        events.append(getattr(dp_accounting.dp_event, name)(*fields))
    maker = {'pld': pld.PLDAccountant, 'rdp': dp_accounting.rdp.RdpAccountant}
    accepted = []
    for event in events:
      try:
        found = accountants.epsilon(
            _Times(event, 8), delta=1e-6, method=method
        )
      except _checks.PrivacyRefusedError:
        continue
      theirs = dp_accounting.NeighboringRelation
      for relation in (theirs.REPLACE_SPECIAL, theirs.ADD_OR_REMOVE_ONE):
        accountant = maker[method](neighboring_relation=relation)
        if accountant.supports(event):
          for _ in range(8):
            accountant.compose(event)
          self.assertGreater(found, 0.99 * accountant.get_epsilon(1e-6), event)
          accepted.append(event)
          break
    self.assertContainsSubset(events[:2], accepted)

  def test_their_randomized_response_is_refused_by_pld(self):
    if not hasattr(dp_accounting.dp_event, 'RandomizedResponseDpEvent'):
      self.skipTest('this dp_accounting has none')
    event = dp_accounting.dp_event.RandomizedResponseDpEvent(0.5, 2)
    for call in (
        lambda: accountants.epsilon(event, delta=1e-6, method='pld'),
        lambda: accountants.delta(event, epsilon=1.0, method='pld'),
        lambda: accountants.loss(event),
    ):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'once'):
        call()


class BadArgumentsTest(parameterized.TestCase):

  @parameterized.product(
      method=('exact', 'pld', 'rdp'), wrapper=('none', 'repeated', 'sampled')
  )
  def test_events_of_an_iterator_are_refused(self, method, wrapper):
    # Read twice, an iterator of events would cost nothing.
    for lazy in (iter, lambda parts: map(lambda part: part, parts)):
      event = _Composed(lazy([_Gaussian(1.0)] * 2))
      if wrapper == 'repeated':
        event = _Times(event, 2)
      elif wrapper == 'sampled':
        event = _Poisson(0.1, event)
      with self.assertRaisesRegex(TypeError, r'(?s)events=.*a list.*\ntry: '):
        accountants.epsilon(event, delta=1e-5, method=method)
      with self.assertRaisesRegex(TypeError, r'events=.*a list'):
        accountants.delta(event, epsilon=1.0)

  @parameterized.named_parameters(
      ('delta', dict(delta=1.0), ValueError, 'delta=1.0'),
      ('method', dict(method='moments'), ValueError, "method='moments'"),
      ('relation', dict(neighboring_relation='add'), ValueError, 'add'),
      ('event', dict(event=3), TypeError, 'event=3'),
      (
          'noise',
          dict(event=_Gaussian(-1.0)),
          ValueError,
          'noise_multiplier=-1.0',
      ),
      (
          'nan',
          dict(event=_Times(_Gaussian(math.nan), 2)),
          ValueError,
          'noise_multiplier=nan',
      ),
      (
          'unsupported',
          dict(event=dp_accounting.UnsupportedDpEvent(), method='rdp'),
          _checks.PrivacyRefusedError,
          'UnsupportedDpEvent',
      ),
      (
          'exact_of_laplace',
          dict(event=_Laplace(1.0)),
          _checks.PrivacyRefusedError,
          'LaplaceDpEvent',
      ),
  )
  def test_names_the_argument(self, changed, kind, message):
    arguments = dict(event=_Gaussian(1.0), delta=1e-6, method='exact')
    arguments.update(changed)
    with self.assertRaisesRegex(kind, message):
      accountants.epsilon(arguments.pop('event'), **arguments)


if __name__ == '__main__':
  absltest.main()
