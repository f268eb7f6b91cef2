# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Verifies that a process implements its plan.

A plan's epsilon is true of a process that adds the plan's noise, once in a
round, to everything that depends on clients' data. `certify` verifies this
before the first round, from the building blocks of the process (`data_flow`).
If it refuses a process, the error names the fault and the way out. After each
round, `Certificate.check` compares its state and metrics with the plan.
"""

from collections.abc import Iterable
import dataclasses
import functools
import hashlib
import math
from typing import Any

import numpy as np
import tensorflow_federated as tff
import tree

from tff_dp import _checks
from tff_dp import plans
from tff_dp import systems
from tff_dp.aggregators import release_marks
from tff_dp.plans import base
from tff_dp.program import data_flow
from tff_dp.systems import system

_STATE, _METRICS = 'state', 'metrics'
_RELEASE_ID, _ROUND = 'release_id', 'round'
_MOST_NAMED = 3
# Relative tolerance for float32 numbers from different operations.
_TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class Certificate:
  """Facts about a process that are verified before its first round.

  Attributes:
    plan: Plan whose noise the process adds.
    release: The noise that the process adds. `None` if the plan has no privacy,
      or if the process state does not count rounds. `check` then checks
      nothing.
    not_covered: Paths of the metrics that depend on clients' data without
      noise. A trusted server sees these metrics, and keeps them secret. Empty
      if the plan has no privacy, because nothing is searched then.
    noise_at_clients: Whether clients add the noise, each to its own report.
  """

  plan: base.Plan
  release: release_marks.Release | None
  not_covered: frozenset[data_flow.Path]
  noise_at_clients: bool = False

  def check(self, state: Any, metrics: Any, *, rounds_done: int) -> None:
    """Raises if the state or the metrics after a round contradict the plan.

    The state must name the noise of the plan and count the rounds done. Where
    the metrics have a clip norm and the standard deviation of the noise, these
    must be as in the plan. An adaptive clip norm may have any value.

    Args:
      state: State of the process.
      metrics: Metrics of the round. `None` for an initial or loaded state.
      rounds_done: Number of rounds that led to the state.

    Raises:
      PrivacyRefusedError: If a value contradicts the plan. The message has the
        found and the expected value.
    """
    if self.release is None:
      return
    rounds_done = self.plan.rounds_trained(rounds_done)
    found = [
        (int(group[_RELEASE_ID]), int(group[_ROUND]))
        for group in _groups(state, _RELEASE_ID, _ROUND)
    ]
    self._refuse_unless(
        found == [(self.release.number, rounds_done)],
        f'after round {rounds_done} the noise in the state has (release_id,'
        f' round) {found}, and not {[(self.release.number, rounds_done)]}',
    )
    for measured in _groups(metrics, 'clip_norm', 'noise_stddev', 'tree_id'):
      clip_norm = float(measured['clip_norm'])
      stddev = self._noise_stddev(rounds_done, clip_norm)
      self._refuse_unless(
          _is_adaptive(self.plan)
          or math.isclose(
              clip_norm, self.plan.l2_norm_clip, rel_tol=_TOLERANCE
          ),
          f'the clip norm of round {rounds_done} is {clip_norm:g}, in the plan'
          f' {self.plan.l2_norm_clip:g}',
      )
      self._refuse_unless(
          math.isclose(
              float(measured['noise_stddev']), stddev, rel_tol=_TOLERANCE
          ),
          f'the noise of round {rounds_done} has a standard deviation of'
          f' {float(measured["noise_stddev"]):g}, in the plan {stddev:g}',
      )

  def _noise_stddev(self, round_index: int, clip_norm: float) -> float:
    """Returns the std of the noise on a coordinate of the mean."""
    multiplier = self.plan.noise_multiplier
    if _is_adaptive(self.plan):
      multiplier = self.plan.noise_multiplier_by_domain['value']
    round_in_tree = (round_index - 1) % self.plan.mechanism.rounds_per_tree
    stddev = multiplier * math.sqrt(self._variances[round_in_tree])
    return stddev * clip_norm / self.release.divisor

  @functools.cached_property
  def _variances(self) -> np.ndarray:
    return self.plan.mechanism.round_variances()

  def _refuse_unless(self, is_right: bool, what: str) -> None:
    if not is_right:
      raise _checks.PrivacyRefusedError(
          what,
          why='the epsilon of the plan holds only if each round adds the noise'
          ' that the plan has for that round',
          way_out='train the process that was built from this plan, from its'
          ' own initialize() or checkpoint',
      )


def certify(process: Any, plan: base.Plan | None = None) -> Certificate:
  """Returns a certificate that the plan's epsilon is true of a process.

  The check errs to the safe side. It refuses some processes although the
  epsilon is true of them. If the epsilon is false of a process, the check
  refuses it, as long as only aggregators of this library put `release_marks`
  into the graph.

  Args:
    process: A `tff.learning.templates.LearningProcess`.
    plan: Plan whose epsilon is stated. Default: the plan that the process
      names. The builders of `tff_dp.learning` keep it in `process.plan`. An
      aggregator made by `plan.aggregator()` names it in its graph. You must
      pass the plan if it is a `NonPrivatePlan` or a result of
      `with_availability`. You must also pass it if the aggregator was made in
      another Python process, or before aggregators of 32 other plans.

  Raises:
    ArgumentError: If `process` is not a `LearningProcess`, if `plan` is not a
      plan, or if the plan of the process is not known here.
    PrivacyRefusedError: If the plan's epsilon might not be true of the run.
  """
  _check_is_runnable(process)
  built_from = getattr(process, 'plan', None)
  if plan is None:
    plan = built_from
  if plan is not None and not isinstance(plan, base.Plan):
    raise _checks.ArgumentError(
        'plan', plan, f'one of tff_dp.{", ".join(plans.HOMES)}'
    )
  if plan is not None and not _training(plan).is_private:
    _check_may_lack_noise(built_from)
    return Certificate(plan, None, frozenset())
  if plan is not None:
    _check_built_from(built_from, plan)
  return _certify(process.next, plan)


def certify_computation(
    next_computation: tff.Computation, plan: base.Plan
) -> Certificate:
  """Returns the certificate of a `next` that was read from a file.

  Such a file does not name the plan that its process was built from, but the
  marks of its noise do (see `release_marks`).

  Args:
    next_computation: The `next` of a process.
    plan: Plan whose epsilon is stated.

  Raises:
    PrivacyRefusedError: If the plan's epsilon might not be true of the process.
  """
  if not _training(plan).is_private:
    return Certificate(plan, None, frozenset())
  return _certify(next_computation, plan)


def type_fingerprint(process: Any) -> str:
  """Returns 16 hexadecimal digits, equal for processes of equal type."""
  text = str(process.next.type_signature)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def _certify(next_computation, plan) -> Certificate:
  """Returns the certificate, without comparing the plan in `process.plan`."""
  flow = data_flow.follow(
      next_computation,
      presence_is_public=(
          plan is not None and _training(plan).presence_is_public
      ),
  )
  if not flow.releases:
    raise _no_noise(flow, plan)
  if plan is None:
    plan = _plan_of(flow)
  release = _check_release(flow, plan)
  _check_state(flow, plan)
  not_covered = frozenset(
      path[1:]
      for path, traces in flow.leaves.items()
      if path[0] == _METRICS and traces
  )
  if release.at_clients:
    _check_metrics(not_covered)
    _check_asked(flow)
  training = _training(plan)
  training.check(next_computation, plan)
  return Certificate(
      plan,
      release if training.state_counts_rounds(plan) else None,
      not_covered,
      noise_at_clients=release.at_clients,
  )


def _check_is_runnable(process) -> None:
  _checks.instance_of(
      tff.learning.templates.LearningProcess,
      'a tff.learning.templates.LearningProcess, as the builders of'
      ' tff_dp.learning and tff.learning.algorithms return',
      process=process,
  )
  for name in ('initialize', 'next'):
    value = getattr(process, name)
    if not isinstance(value, tff.Computation):
      raise _checks.ArgumentError(
          f'process.{name}',
          type(value).__name__,
          'a TFF computation, such as a tff.federated_computation: nobody can'
          ' look into a Python function to see which noise it adds',
      )


def _check_may_lack_noise(built_from) -> None:
  """Raises if a process must not be trained under a `NonPrivatePlan`."""
  if not isinstance(built_from, base.Plan):
    return
  reason = _training(built_from).why_never_without_privacy
  if reason is not None:
    why, way_out = reason
    raise _checks.PrivacyRefusedError(
        f'a process of {built_from.kind.replace("_", " ")} cannot be trained'
        ' under a NonPrivatePlan',
        why=why,
        way_out=way_out,
    )


def _check_built_from(built_from, plan) -> None:
  """Raises unless the process may have been built from the plan."""
  if built_from is None:
    if plan.built_by is not None:
      raise _checks.PrivacyRefusedError(
          f'the process was not built from a plan of the kind {plan.kind!r}',
          why='what clients do with their data, and which of their'
          ' reports are used, is part of the plan',
          way_out=plan.built_by,
      )
  elif built_from.fingerprint != plan.fingerprint:
    raise _built_from_another(built_from.fingerprint, plan)


def _no_noise(flow, plan) -> _checks.PrivacyRefusedError:
  named = _named(flow)
  return _checks.PrivacyRefusedError(
      'the process adds no noise of a plan' + (named and f': {named}'),
      why='the epsilon of a plan holds only with the noise of the plan',
      way_out=f'{_way_to_noise(plan)}; to train without privacy, call train'
      ' with plan=tff_dp.NonPrivatePlan(...)',
  )


def _plan_of(flow) -> base.Plan:
  """Returns the plan that the aggregator in the process names."""
  release = flow.releases[0]
  plan = release_marks.plan_of(release)
  if plan is None:
    reason = (
        'its aggregator was built without a plan. If clients add the noise, take'
        " the builder of the plan's system"
    )
    if release.plan:
      reason = (
          f'plan {release.plan} of its aggregator is not known here. Only the'
          ' latest plans that called plan.aggregator() in this Python process'
          ' are known'
      )
    raise _checks.ArgumentError(
        'plan',
        None,
        'the plan of the process, as in train(process, clients, plan=plan,'
        f' ...): {reason}',
    )
  return plan


def _check_release(flow, plan) -> release_marks.Release:
  """Returns the only release. Raises unless it is the plan's release."""
  expected = _training(plan).release(plan)
  for found in flow.releases:
    if (found.fingerprint, found.at_clients, found.in_sum) != (
        expected.fingerprint, expected.at_clients, expected.in_sum
    ):
      raise _other_plan(
          'the process adds other noise (mechanism, noise multiplier or'
          ' clipping) than the plan states'
      )
    knows_divisor = _training(plan).knows_divisor
    if knows_divisor and found.divisor != expected.divisor:
      raise _other_plan(
          f'the process divides by clients_per_round={found.divisor}, the plan'
          f' by {expected.divisor}'
      )
    if found.plan not in (None, plan.fingerprint):
      raise _built_from_another(found.plan, plan)
  if len(flow.releases) > 1:
    raise _checks.PrivacyRefusedError(
        f'the process releases {len(flow.releases)} noised sums in a round',
        why='the epsilon of the plan is for one noised sum in a round',
        way_out='aggregate one structure once, so that it is clipped as a'
        ' whole; tff.aggregators.concat_factory makes one vector of it',
    )
  return flow.releases[0]


def _way_to_noise(plan) -> str:
  """Returns an instruction to build a process with the noise of the plan."""
  return (plan and _training(plan).way_to_noise(plan)) or (
      'build it with model_aggregator=plan.aggregator(), in'
      ' tff.aggregators.as_weighted_aggregator(...) where the builder asks for'
      ' a weighted one, or with a builder of tff_dp.learning'
  )


def _check_state(flow, plan) -> None:
  """Raises if clients or the state get data without noise."""
  named = _named(flow)
  if flow.sent:
    what = 'clients are sent ' + _causes(flow.sent) + ', without noise'
    why = 'one client then changes what the others add to the noised sum'
  elif named:
    what = f'without the noise of the plan, {named}'
    why = (
        'the state changes the next models, or decides which updates count in'
        ' them'
    )
  else:
    return
  raise _checks.PrivacyRefusedError(
      what,
      why=why,
      way_out=getattr(plan, 'built_by', None)
      or 'aggregate only the update, with plan.aggregator(). Give'
      ' zeroing_factory and clipping_factory constant norms, not estimated'
      ' ones. Use fed_avg, fed_prox or fed_sgd, not Mime. Do not divide by'
      ' sums of clients',
  )


def _check_metrics(not_covered) -> None:
  """Raises if an untrusted server sees metrics of data without noise."""
  if not_covered:
    names = sorted('/'.join(map(str, path)) for path in not_covered)
    raise _checks.PrivacyRefusedError(
        f'clients report {_listed(names)} without noise',
        why='the plan protects clients from the server, too, which would see'
        ' these numbers',
        way_out='build the process with allow_unprotected_metrics=False',
    )


def _check_asked(flow) -> None:
  """Raises if the keys that clients ask for may depend on their data."""
  if flow.asked:
    raise _checks.PrivacyRefusedError(
        'the part of the model that a client asks for may depend on its data',
        why='the server may see which part this is, and the guarantee of the'
        ' plan holds against the server',
        way_out='build the process with a builder of tff_dp.learning, whose'
        ' clients draw what they ask for from a key of their own',
    )


def _built_from_another(fingerprint: str, plan) -> _checks.PrivacyRefusedError:
  return _other_plan(
      f'the process was built from the plan {fingerprint}, and is to be trained'
      f' under the plan {plan.fingerprint}'
  )


def _other_plan(what: str) -> _checks.PrivacyRefusedError:
  return _checks.PrivacyRefusedError(
      what,
      why='epsilon holds for the noise that is added; a process keeps the noise'
      ' of the plan that it was built from, even if the plan is calibrated'
      ' afterwards',
      way_out='calibrate first, then build the process from the calibrated'
      ' plan; train finds it in the process'
  )


def _named(flow) -> str:
  """Returns words that name parts of the state, and data they depend on, or ''.
  """
  parts, traces = {}, set()
  for path, found in flow.leaves.items():
    if path[0] == _STATE and found:
      parts['.'.join(map(str, path[:3]))] = None
      traces |= found
  if not parts:
    return ''
  verb = 'depends' if len(parts) == 1 else 'depend'
  return f'{_listed(parts)} {verb} on {_causes(traces)}'


def _causes(traces: Iterable[data_flow.Trace]) -> str:
  in_order = sorted(traces, key=lambda trace: trace.number)
  return _listed(trace.aggregation or 'one client' for trace in in_order)


def _listed(names: Iterable[str]) -> str:
  names = list(dict.fromkeys(names))
  more = len(names) - _MOST_NAMED
  return ', '.join(names[:_MOST_NAMED]) + (f' and {more} more' * (more > 0))


def _groups(value: Any, *names: str) -> list[dict[str, Any]]:
  """Returns groups of leaves with these names that share one parent."""
  groups = {}
  for path, leaf in tree.flatten_with_path(value):
    if path and path[-1] in names:
      groups.setdefault(path[:-1], {})[path[-1]] = np.asarray(leaf)
  return [group for group in groups.values() if len(group) == len(names)]


def _training(plan: base.Plan) -> system.Training:
  return systems.of(plan.kind).training()


def _is_adaptive(plan) -> bool:
  return getattr(plan, 'adaptive_clipping', None) is not None
