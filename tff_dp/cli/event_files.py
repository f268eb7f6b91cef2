# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reading `events.json`, and checking it before anything is computed from it.

The file names the plan and what it cost. A reader should not have to believe
the cost: the plan is made anew from the file, and its squared sensitivity
computed and compared.
"""

import dataclasses
import json
import math
from typing import Any, Optional

from tff_dp import _checks
from tff_dp import participation
from tff_dp.accounting.events import run_events
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import adaptive_clipping as adaptive_clipping_lib
from tff_dp.mechanisms import catalogue
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.plans import check_ins as protocol_plan
from tff_dp.plans import draw_and_discard as draw_and_discard_plan
from tff_dp.plans import draw_and_discard_statement
from tff_dp.plans import silos as silo_plan

_SCHEMA = 'tff_dp.events'
_SCHEMA_VERSION = 1
_SCHEDULES = {
    schedule.__name__: schedule
    for schedule in (
        participation.MinSeparation,
        participation.ShuffledEpochs,
        participation.UniformSampling,
    )
}


@dataclasses.dataclass(frozen=True)
class Run:
  """The run that a file describes.

  Attributes:
    mechanism: What noise was added, for the rounds that count.
    pattern: What was promised about every client, for the same rounds.
    noise_multiplier: Std of one draw on the SUM, over the clip norm.
    neighboring_relation: The relation the file is about.
    delta: The delta that the run states its epsilon at.
    adaptive_clipping: How the clip norm followed the data, or `None`.
  """

  mechanism: mechanism_lib.Mechanism
  pattern: patterns.ParticipationPattern
  noise_multiplier: float
  neighboring_relation: run_events.NeighboringRelation
  delta: float
  adaptive_clipping: Optional[adaptive_clipping_lib.AdaptiveClipping] = None


@dataclasses.dataclass(frozen=True)
class ProtocolRun:
  """The run of a check-in protocol that a file describes.

  Attributes:
    plan: What was promised.
    num_rounds: Rounds that count.
    delta: The delta that the run states its epsilon at.
  """

  plan: protocol_plan.ProtocolPlan
  num_rounds: int
  delta: float


@dataclasses.dataclass(frozen=True)
class PlanRun:
  """The run of silos, or of draw and discard, that a file describes.

  Attributes:
    plan: What was promised.
    num_rounds: Rounds that count.
    delta: The delta that the run states its epsilon at.
  """

  plan: silo_plan.SiloPlan | draw_and_discard_plan.DrawAndDiscardPlan
  num_rounds: int
  delta: float


def read(path: str) -> Run | ProtocolRun | PlanRun:
  """Returns the run of a file that the `events_json` of a plan wrote.

  Raises:
    OSError: If the file cannot be read.
    ArgumentError: If it is not such a file.
    PrivacyRefusedError: If the plan in it does not cost what it says.
  """
  with open(path, encoding='utf-8') as file:
    try:
      content = json.load(file)
      is_known = (
          content['schema'] == _SCHEMA
          and content['schema_version'] == _SCHEMA_VERSION
          and content['unit'] == _unit(content)
      )
      if not is_known:
        raise KeyError('schema')
      return _run(content)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
      raise _checks.ArgumentError(
          'events',
          path,
          f'a file of schema {_SCHEMA} version {_SCHEMA_VERSION}, as a run'
          f' writes it ({type(error).__name__}: {error})',
      ) from error


def _unit(content: dict[str, Any]) -> str:
  is_of_silos = content['events'][0]['type'] == 'silos'
  return silo_plan.SiloPlan.unit if is_of_silos else 'client'


def _run(content: dict[str, Any]) -> Run | ProtocolRun | PlanRun:
  plan = content['plan']
  if content['events'][0]['type'] == 'silos':
    return _silo_run(content)
  if content['events'][0]['type'] == 'protocol':
    return _protocol_run(content)
  if content['events'][0]['type'] == draw_and_discard_statement.EVENT:
    return _draw_and_discard_run(content)
  mechanism = catalogue.from_description(plan['mechanism'])
  schedule = _made(_SCHEDULES, plan['participation'])
  clipping = None
  if 'adaptive_clipping' in plan:
    clipping = adaptive_clipping_lib.AdaptiveClipping(
        **plan['adaptive_clipping']
    )
  (event,) = content['events']
  if event['type'] != 'gaussian':
    raise ValueError(f'unknown event {event["type"]}')
  rounds = event['rounds']
  # A tree that was cut short counts as the last one, which is not completed.
  mechanism = mechanism.truncated(rounds)
  pattern = schedule.pattern.truncated(rounds)
  needed = mechanism.squared_sensitivity(pattern)
  stated = event['squared_sensitivity']
  if not math.isclose(stated, needed, rel_tol=1e-9):
    raise _checks.PrivacyRefusedError(
        f'the events state squared_sensitivity={stated:g}, but their plan has'
        f' {needed:g} after {rounds} rounds',
        why='the epsilon of such a file would not be that of the run',
        way_out='take the events.json that the run wrote, unchanged',
    )
  noise = plan['noise_multiplier']
  _check_stated(event, 'noise_multiplier', noise)
  streams = None
  if clipping is not None:
    streams = {
        'value': clipping.value_noise_multiplier(noise),
        'quantile': clipping.quantile_noise_multiplier(noise),
    }
  _check_stated(event, 'streams', streams)
  return Run(
      mechanism=mechanism,
      pattern=pattern,
      noise_multiplier=event['noise_multiplier'],
      neighboring_relation=run_events.NeighboringRelation(
          content['neighboring_relation']
      ),
      delta=content['delta'],
      adaptive_clipping=clipping,
  )


def _protocol_run(content: dict[str, Any]) -> ProtocolRun:
  plan = protocol_plan.ProtocolPlan.from_description(content['plan'])
  (event,) = content['events']
  rounds = event['rounds']
  _check_stated(event, 'rounds_accounted', plan.rounds_accounted(rounds))
  _check_stated(
      content, 'neighboring_relation', plan.neighboring_relation.value
  )
  return ProtocolRun(plan=plan, num_rounds=rounds, delta=content['delta'])


def _silo_run(content: dict[str, Any]) -> PlanRun:
  plan = silo_plan.SiloPlan.from_description(content['plan'])
  (event,) = content['events']
  rounds = event['rounds']
  _checks.integer_between(1, plan.num_rounds, rounds=rounds)
  sent = {
      name: int(plan.messages(name, num_rounds=rounds).size)
      for name in plan.silos
  }
  _check_stated(event, 'messages', sent)
  _check_stated(
      content, 'neighboring_relation', plan.neighboring_relation.value
  )
  return PlanRun(plan=plan, num_rounds=rounds, delta=content['delta'])


def _draw_and_discard_run(content: dict[str, Any]) -> PlanRun:
  plan = draw_and_discard_plan.DrawAndDiscardPlan.from_description(
      content['plan']
  )
  (event,) = content['events']
  rounds = event['rounds']
  _check_stated(event, 'participations', plan.participations_after(rounds))
  _check_stated(
      content, 'neighboring_relation', plan.neighboring_relation.value
  )
  return PlanRun(
      plan=plan, num_rounds=rounds, delta=content['delta']
  )


def _check_stated(event: dict[str, Any], name: str, planned) -> None:
  """Raises where the events state something else than their plan."""
  if event.get(name) != planned:
    raise _checks.PrivacyRefusedError(
        f'the events state {name}={event.get(name)}, but their plan has'
        f' {planned}',
        why='the epsilon of such a file would not be that of the run',
        way_out='take the events.json that the run wrote, unchanged',
    )


def _made(classes: dict[str, type], described: dict[str, Any]):
  """Returns the object whose class and fields were written down."""
  made = classes[described['name']]
  fields = {
      field.name: described[field.name]
      for field in dataclasses.fields(made)
      if field.init
  }
  return made(**fields)
