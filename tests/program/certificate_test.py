# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Verdicts of `certification` on made flows, states and metrics, without TFF.

`certification_test` and `certification_plans_test` have real processes.
"""

import dataclasses
import math
import types
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.statement import occasions
from tff_dp import _checks
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp import plans
from tff_dp import systems
from tff_dp.aggregators import release_marks
from tff_dp.program import certification
from tff_dp.program import data_flow

_TRACE = data_flow.Trace('federated_sum of int32', 1)
_DATA, _NONE = frozenset([_TRACE]), frozenset()
_LEAVES = {
    ('state', 'model', 0): _NONE,
    ('metrics', 'aggregator', 'snr'): _NONE,
}
_AT_SERVER = ('honaker', 'adaptive', 'completed', 'cyclic')
_AT_CLIENTS = (
    'shuffled', 'windows', 'gaussian_steps', 'laplace_steps', 'silos'
)
_ALL = (*_AT_SERVER, *_AT_CLIENTS, 'secure_sums')


def _plan(name: str):
  return occasions.PLANS[name]()


def _release(plan) -> release_marks.Release:
  return systems.of(plan.kind).training().release(plan)


def _flow(plan, **changes) -> data_flow.Flow:
  """Returns the flow of a process of a plan, or of a spoilt one."""
  fields = dict(
      leaves=_LEAVES, sent=_NONE, asked=_NONE, releases=(_release(plan),)
  )
  fields['leaves'] = _LEAVES | changes.pop('more', {})
  return data_flow.Flow(**fields | changes)


class _Next:
  """Stands for the `next` of a process whose clients bring keys."""

  member = types.SimpleNamespace(key=None, examples=None)
  parameter = (None, types.SimpleNamespace(member=member))
  type_signature = types.SimpleNamespace(parameter=parameter)


def _certify(plan, flow) -> certification.Certificate:
  with mock.patch.object(data_flow, 'follow', return_value=flow):
    return certification.certify_computation(_Next, plan)


class FlowTest(parameterized.TestCase):

  def _refused(self, plan, message, **changes):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, message):
      _certify(plan, _flow(plan, **changes))

  @parameterized.parameters(*_ALL)
  def test_right_process(self, name):
    plan = _plan(name)
    found = _certify(plan, _flow(plan))
    self.assertIs(found.plan, plan)
    self.assertEqual(found.not_covered, frozenset())
    # Local randomizers keep no state that counts rounds.
    counts = plan.kind != 'check_ins'
    self.assertEqual(found.release, _release(plan) if counts else None)

  @parameterized.parameters(*_ALL)
  def test_noise_that_is_not_the_plans(self, name):
    plan = _plan(name)
    right = _release(plan)
    self._refused(plan, 'adds no noise', releases=())
    self._refused(
        plan, 'releases 2 noised sums', releases=(right, right)
    )
    other = dataclasses.replace(right, fingerprint='0' * 16)
    self._refused(plan, 'other noise', releases=(other,))
    self._refused(plan, 'other noise', releases=(right, other))
    elsewhere = dataclasses.replace(
        right, divisor=None if right.divisor else 4
    )
    self._refused(plan, 'other noise', releases=(elsewhere,))
    self._refused(
        plan,
        'other noise',
        releases=(dataclasses.replace(right, in_sum=not right.in_sum),),
    )
    self._refused(
        plan,
        'built from the plan 1111111111111111',
        releases=(dataclasses.replace(right, plan='1' * 16),),
    )
    for known in (None, plan.fingerprint):
      same = dataclasses.replace(right, plan=known)
      _certify(plan, _flow(plan, releases=(same,)))

  @parameterized.parameters(*_AT_SERVER)
  def test_divisor(self, name):
    plan = _plan(name)
    right = _release(plan)
    other = dataclasses.replace(right, divisor=right.divisor + 1)
    if plan.kind in ('allocation', 'check_ins'):
      _certify(plan, _flow(plan, releases=(other,)))
    else:
      self._refused(
          plan, f'by clients_per_round={other.divisor}, the plan by'
          f' {plan.clients_per_round}', releases=(other,)
      )

  @parameterized.parameters(*_ALL)
  def test_data_in_the_state_or_sent(self, name):
    plan = _plan(name)
    self._refused(
        plan, 'state.model.bias depends on federated_sum of int32',
        more={('state', 'model', 'bias', 0): _DATA},
    )
    self._refused(
        plan, 'clients are sent federated_sum of int32', sent=_DATA
    )

  @parameterized.parameters(*_ALL)
  def test_metrics_with_data(self, name):
    plan = _plan(name)
    more = {
        ('metrics', 'client_work', 'loss'): _DATA,
        ('metrics', 'client_work', 'rate'): _NONE,
    }
    if _release(plan).at_clients:
      self._refused(plan, 'clients report client_work/loss without', more=more)
    else:
      found = _certify(plan, _flow(plan, more=more))
      self.assertEqual(found.not_covered, {('client_work', 'loss')})

  @parameterized.parameters(*_ALL)
  def test_keys_that_clients_ask_for(self, name):
    plan = _plan(name)
    if _release(plan).at_clients:
      self._refused(plan, 'the part of the model', asked=_DATA)
    else:
      _certify(plan, _flow(plan, asked=_DATA))

  @parameterized.parameters(*_ALL)
  def test_who_is_there_is_public_of_silos_alone(self, name):
    plan = _plan(name)
    with mock.patch.object(
        data_flow, 'follow', return_value=_flow(plan)
    ) as follow:
      certification.certify_computation(_Next, plan)
    follow.assert_called_once_with(
        _Next, presence_is_public=plan.unit == 'record'
    )

  @parameterized.parameters('gaussian_steps', 'laplace_steps')
  def test_clients_without_keys(self, name):
    plan = _plan(name)
    member = types.SimpleNamespace(examples=None)
    parameter = (None, types.SimpleNamespace(member=member))
    next_ = types.SimpleNamespace(
        type_signature=types.SimpleNamespace(parameter=parameter)
    )
    with mock.patch.object(data_flow, 'follow', return_value=_flow(plan)):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'bring no key'):
        certification.certify_computation(next_, plan)

  def test_without_privacy_nothing_is_looked_at(self):
    plan = _plan('non_private')
    with mock.patch.object(data_flow, 'follow') as follow:
      found = certification.certify_computation(_Next, plan)
    follow.assert_not_called()
    self.assertEqual(found, certification.Certificate(plan, None, frozenset()))


class PlanTest(parameterized.TestCase):
  """The plan of a process, and the plan that somebody hands over."""

  def setUp(self):
    super().setUp()
    self.enterContext(
        mock.patch.object(certification, '_check_is_runnable')
    )

  def _certify(self, flow, handed=None, **process):
    process = types.SimpleNamespace(next=_Next, **process)
    with mock.patch.object(data_flow, 'follow', return_value=flow):
      return certification.certify(process, handed)

  @parameterized.parameters(*_ALL)
  def test_plan_in_the_process(self, name):
    plan = _plan(name)
    for handed in (None, plan, _plan(name)):
      found = self._certify(_flow(plan), handed, plan=plan)
      self.assertEqual(found.plan, plan)

  @parameterized.parameters(*_ALL)
  def test_process_of_another_plan(self, name):
    plan = _plan(name)
    for other in map(_plan, {*_ALL} - {name}):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError,
          f'built from the plan {other.fingerprint}.*under the plan'
          f' {plan.fingerprint}',
      ):
        self._certify(_flow(plan), plan, plan=other)

  @parameterized.parameters(*_ALL)
  def test_process_without_a_plan(self, name):
    plan = _plan(name)
    if plan.built_by is None:
      self.assertIs(self._certify(_flow(plan), plan).plan, plan)
    else:
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'was not built from a plan of the kind'
      ):
        self._certify(_flow(plan), plan)

  def test_plan_that_the_aggregator_names(self):
    plan, other = _plan('honaker'), _plan('completed')
    for each in (plan, other):
      release_marks.remember(each)
    named = dataclasses.replace(_release(plan), plan=plan.fingerprint)
    found = self._certify(_flow(plan, releases=(named,)))
    self.assertEqual(found.plan, plan)
    wrong = dataclasses.replace(named, plan=other.fingerprint)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'other noise'):
      self._certify(_flow(plan, releases=(wrong,)))
    unknown = dataclasses.replace(named, plan='1' * 16)
    for release in (unknown, dataclasses.replace(named, plan=None)):
      with self.assertRaisesRegex(_checks.ArgumentError, '^plan='):
        self._certify(_flow(plan, releases=(release,)))
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'adds no noise'):
      self._certify(_flow(plan, releases=()))

  @parameterized.parameters('a plan', 3, object())
  def test_what_is_no_plan(self, handed):
    with self.assertRaisesRegex(_checks.ArgumentError, '^plan='):
      self._certify(_flow(_plan('honaker')), handed)

  @parameterized.parameters(*_ALL)
  def test_without_privacy(self, name):
    free, plan = _plan('non_private'), _plan(name)
    if plan.unit == 'record':
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'cannot be trained under a NonPrivate'
      ):
        self._certify(None, free, plan=plan)
    else:
      found = self._certify(None, free, plan=plan)
      self.assertEqual(
          found, certification.Certificate(free, None, frozenset())
      )

  def test_type_of_the_process(self):
    of = lambda text: certification.type_fingerprint(
        types.SimpleNamespace(next=types.SimpleNamespace(type_signature=text))
    )
    self.assertLen(of('a'), 16)
    self.assertEqual(of('a'), of('a'))
    self.assertNotEqual(of('a'), of('b'))


def _scheduled(**changes) -> plans.DpFtrlPlan:
  arguments = dict(
      mechanism=mechanisms.HonakerTree(9, restart_every=4),
      participation=participation.UniformSampling(9, max_participations=2),
      l2_norm_clip=0.75,
      clients_per_round=5,
      noise_multiplier=3.0,
  )
  return plans.DpFtrlPlan(**arguments | changes)


_CHECKED = {
    'tree': _scheduled(),
    'independent': _scheduled(mechanism=mechanisms.Independent(9)),
    'adaptive': _scheduled(adaptive_clipping=mechanisms.AdaptiveClipping()),
    'cyclic': occasions.PLANS['cyclic'](),
}


class RoundsTest(parameterized.TestCase):
  """State and metrics of each round."""

  def _state(self, plan, rounds, number=None):
    if number is None:
      number = _release(plan).number
    return {'aggregator': {
        'release_id': np.int64(number), 'round': np.int64(rounds),
        'key': np.zeros(2, np.int64),
    }}

  def _stddev(self, plan, done, clip_norm) -> float:
    mechanism = plan.mechanism
    period = mechanism.restart_every or plan.num_rounds
    variance = mechanism.round_variances()[(done - 1) % period]
    multiplier = plan.noise_multiplier
    if getattr(plan, 'adaptive_clipping', None) is not None:
      multiplier = plan.noise_multiplier_by_domain['value']
      self.assertGreater(multiplier, plan.noise_multiplier)
    divisor = _release(plan).divisor
    return multiplier * math.sqrt(variance) * clip_norm / divisor

  def _metrics(self, clip_norm, stddev):
    return {'aggregator': {
        'clip_norm': np.float32(clip_norm),
        'noise_stddev': np.float32(stddev),
        'tree_id': np.int64(0),
    }, 'loss': np.float32(1)}

  @parameterized.parameters(*_CHECKED)
  def test_rounds(self, name):
    plan = _CHECKED[name]
    release = _release(plan)
    certificate = certification.Certificate(plan, release, frozenset())

    def refused(message, *arguments, rounds_done):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, message):
        certificate.check(*arguments, rounds_done=rounds_done)

    for done in range(plan.num_rounds + 1):
      state = self._state(plan, done)
      certificate.check(state, None, rounds_done=done)
      for wrong in (
          self._state(plan, done + 1),
          self._state(plan, done - 1),
          self._state(plan, done, release.number + 1),
          {},
          [state, state],
      ):
        refused('release_id, round', wrong, None, rounds_done=done)
      if not done:
        continue
      clip = plan.l2_norm_clip
      right = self._stddev(plan, done, clip)
      certificate.check(state, self._metrics(clip, right), rounds_done=done)
      certificate.check(state, {'loss': np.float32(1)}, rounds_done=done)
      for factor in (1.001, 0.999, 0.0, 2.0):
        refused(
            f'noise of round {done} has', state,
            self._metrics(clip, right * factor), rounds_done=done,
        )
      refused(
          f'noise of round {done} has', state,
          self._metrics(clip, math.nan), rounds_done=done,
      )
      # A clip norm that follows the clients' norms scales the noise.
      scaled = self._metrics(clip * 1.01, right * 1.01)
      if name == 'adaptive':
        certificate.check(state, scaled, rounds_done=done)
        refused(
            'noise of round', state, self._metrics(clip * 1.01, right),
            rounds_done=done,
        )
      else:
        refused(f'clip norm of round {done}', state, scaled, rounds_done=done)

  def test_rounds_without_any_silo_do_not_count(self):
    plan = dataclasses.replace(
        _plan('silos'), absences={'north': (2, 3), 'south': (3, 5)}
    )
    certificate = certification.Certificate(plan, _release(plan), frozenset())
    counted = [0, 1, 2, 2, 3, 4, 5, 6, 7]
    for done, trained in enumerate(counted):
      certificate.check(self._state(plan, trained), None, rounds_done=done)
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'release_id'):
        certificate.check(
            self._state(plan, trained + 1), None, rounds_done=done
        )

  def test_state_that_tracks_no_release(self):
    certificate = certification.Certificate(
        _plan('shuffled'), None, frozenset()
    )
    certificate.check({}, None, rounds_done=3)


if __name__ == '__main__':
  absltest.main()
