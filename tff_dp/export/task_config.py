# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""`TaskConfig` text protos for On-Device Personalization (ODP).

ODP's server (odp-federatedcompute) builds the process itself, from a functional
model and a `TaskConfig`. It knows four TFF aggregators. Our plans can express
three of them: the fixed Gaussian, the adaptive Gaussian, and one tree. The
fields below are from its `task_builder.proto` and `common.proto`, last compared
at revision 76145df. The text is written without ODP's classes, which require
TFF 0.68.

ODP has its own accounting, which is stated beside our epsilon. For Gaussians,
it assumes Poisson sampling from three million clients, with the report goal as
the expected number. For a tree, it assumes that each client takes part once.
"""

import math
import re
import textwrap
from typing import Any

import dp_accounting

from tff_dp import _checks
from tff_dp import systems
from tff_dp.accounting import rounding
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.mechanisms import tree
from tff_dp.plans import base
from tff_dp.plans import events as events_lib

_POPULATION = 3_000_000
# Limits of its validator.
_MOST_EPSILON, _MOST_DELTA = 10.0, 1 / _POPULATION
# Defaults of TFF's adaptive clipping, which ODP uses.
_TARGET_QUANTILE, _LEARNING_RATE = 0.5, 0.2
# Number of clients for each unit of stddev in the noised count of clipped
# clients.
_CLIENTS_PER_STDDEV = 20.0
# ODP message -> its fields. Other names are numbers, text or, in capitals,
# enums.
_FIELDS = {
    'TaskConfig': {
        'mode': 'ENUM',
        'population_name': 'string',
        'policies': 'Policies',
        'federated_learning': 'FederatedLearning',
        'differential_privacy': 'DifferentialPrivacy',
        'use_daf': 'bool',
    },
    'Policies': {
        'min_separation_policy': 'MinimumSeparationPolicy',
        'model_release_policy': 'ModelReleaseManagementPolicy',
    },
    'MinimumSeparationPolicy': {'minimum_separation': 'int64'},
    'ModelReleaseManagementPolicy': {
        'dp_target_epsilon': 'double',
        'dp_delta': 'double',
        'num_max_training_rounds': 'int64',
    },
    'FederatedLearning': {'learning_process': 'LearningProcess'},
    'LearningProcess': {'runtime_config': 'RuntimeConfig'},
    'RuntimeConfig': {'report_goal': 'int64'},
    'DifferentialPrivacy': {
        'type': 'ENUM',
        'noise_multiplier': 'double',
        'clip_norm': 'double',
    },
}
_NAME = re.compile(r'[A-Za-z0-9_./-]+')
_WAY_OUT = (
    'hand over the forms of the bundle instead, or train with a plan of'
    ' Independent noise or one HonakerTree'
)


def why_not(plan: base.Plan) -> str | None:
  """Returns the reason why ODP cannot express a plan, `None` if it can."""
  if not systems.of(plan.kind).training().is_in_odp:
    return f'ODP has no aggregator for a plan of the kind {plan.kind}'
  mechanism, clipping = plan.mechanism, plan.adaptive_clipping
  if plan.noise_multiplier == 0:
    return 'the plan adds no noise, which ODP would replace by noise of its own'
  if isinstance(mechanism, mechanism_lib.Independent):
    if clipping is None:
      return None
    if (clipping.target_quantile, clipping.learning_rate) != (
        _TARGET_QUANTILE, _LEARNING_RATE
    ):
      return (
          'ODP clips adaptively with target_quantile=0.5 and learning_rate=0.2'
          ' only'
      )
    if 2.0 * _bits_stddev(plan) <= plan.noise_multiplier:
      return (
          'ODP gives the bits of adaptive clipping a noise of clients / 20,'
          f' which for {plan.clients_per_round} clients is more than the noise'
          f' multiplier {plan.noise_multiplier:g} leaves'
      )
    return None
  if not isinstance(mechanism, tree.HonakerTree):
    return (
        f'ODP draws independent noise or trees with the estimates of Honaker,'
        f' not the noise of {type(mechanism).__name__}'
    )
  if mechanism.restart_every is not None or mechanism.complete_trees:
    return 'ODP never restarts a tree with a fixed clip norm'
  if clipping is not None:
    return (
        "ODP's adaptive tree restarts after 128 rounds and then every 1024, and"
        ' accounts as if it did not'
    )
  return None


def render(described: events_lib.PlanRun, *, population: str) -> str:
  """Returns the task configuration of a run's plan, for all its rounds.

  Args:
    described: Plan and delta of the run.
    population: Name of the population at ODP.

  Raises:
    ArgumentError: If `population` is not a valid name.
    PrivacyRefusedError: If ODP cannot express the plan, or if epsilon by our
      accounting or by ODP's is above 10, the most that ODP takes.
  """
  if not isinstance(population, str) or not _NAME.fullmatch(population):
    raise _checks.ArgumentError(
        'odp_population', population, 'letters, digits and ./_- only'
    )
  plan = described.plan
  reason = why_not(plan)
  if reason is not None:
    raise _checks.PrivacyRefusedError(
        f'On-Device Personalization cannot express this plan: {reason}',
        why='ODP would add other noise than the statement says, or another'
        ' guarantee would hold',
        way_out=_WAY_OUT,
    )
  delta = min(described.delta, _MOST_DELTA)
  ours = plan.epsilon(delta=delta)
  # With little noise, ODP's accounting takes long.
  theirs = _their_epsilon(plan, delta) if ours <= _MOST_EPSILON else 0.0
  if not max(ours, theirs) <= _MOST_EPSILON:
    raise _checks.PrivacyRefusedError(
        'On-Device Personalization takes an epsilon of at most'
        f' {_MOST_EPSILON:g}, and at delta {rounding.short(delta)} it is'
        f' {rounding.rounded_up(max(ours, theirs))}',
        why='ODP refuses such a task',
        way_out='take more noise or fewer rounds, or hand over the forms of'
        ' the bundle',
    )
  content = {
      'mode': 'TRAINING_ONLY',
      'population_name': population,
      'policies': {
          'min_separation_policy': {'minimum_separation': _separation(plan)},
          'model_release_policy': {
              'dp_target_epsilon': float(
                  rounding.rounded_up(max(ours, theirs))
              ),
              'dp_delta': delta,
              'num_max_training_rounds': plan.num_rounds,
          },
      },
      'federated_learning': {
          'learning_process': {
              'runtime_config': {'report_goal': plan.clients_per_round}
          }
      },
      'differential_privacy': {
          'type': _aggregator(plan),
          'noise_multiplier': plan.noise_multiplier,
          'clip_norm': plan.l2_norm_clip,
      },
      'use_daf': True,
  }
  comments = [
      'proto-message: TaskConfig (odp-federatedcompute).',
      *textwrap.wrap(accounting(described), 76),
      'Left to whoever trains: dataset_policy, label_name, learning rates,',
      'optimizers, metrics, example_selector_uri and over_selection_rate.',
  ]
  return ''.join(
      [f'# {line}\n' for line in comments]
      + _lines('TaskConfig', content)
  )


def accounting(described: events_lib.PlanRun) -> str:
  """Returns sentences about epsilon by ODP's own accounting and by ours."""
  plan, delta = described.plan, min(described.delta, _MOST_DELTA)
  theirs = rounding.rounded_up(_their_epsilon(plan, delta))
  how = (
      f'Poisson sampling of {plan.clients_per_round} among {_POPULATION}'
      ' clients in each round, which its devices do not do'
  )
  if not isinstance(plan.mechanism, mechanism_lib.Independent):
    how = 'one tree, each client in it once'
  return (
      f'Of all {plan.num_rounds} rounds, our epsilon is'
      f' {rounding.rounded_up(plan.epsilon(delta=delta))} at delta'
      f' {rounding.short(delta)}.'
      f' ODP accounts with {how}, and has epsilon {theirs}: believe ours, which'
      f' rests on a separation of at least {_separation(plan)} rounds that the'
      ' devices keep.'
  )


def population_of(text: str) -> str:
  """Returns the name of the population in a configuration, '' if it has none.
  """
  found = re.search(r'^population_name: "([^"]*)"$', text, re.MULTILINE)
  return found.group(1) if found else ''


def _aggregator(plan) -> str:
  if not isinstance(plan.mechanism, mechanism_lib.Independent):
    return 'TREE_AGGREGATION'
  return (
      'FIXED_GAUSSIAN' if plan.adaptive_clipping is None else 'ADAPTIVE_GAUSSIAN'
  )


def _bits_stddev(plan) -> float:
  return plan.clients_per_round / _CLIENTS_PER_STDDEV


def _separation(plan) -> int:
  """Returns the least index gap between a client's rounds that keeps the plan.
  """
  pattern = plan.participation.pattern
  return max(
      pattern.min_index_gap,
      math.ceil(plan.num_rounds / pattern.max_participations),
  )


def _their_epsilon(plan, delta: float) -> float:
  """Returns epsilon as ODP's server computes it. We do not claim this bound."""
  if isinstance(plan.mechanism, mechanism_lib.Independent):
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(
            min(1.0, plan.clients_per_round / _POPULATION),
            dp_accounting.GaussianDpEvent(plan.noise_multiplier),
        ),
        plan.num_rounds,
    )
    accountant = dp_accounting.pld.PLDAccountant()
  else:
    event = dp_accounting.SingleEpochTreeAggregationDpEvent(
        plan.noise_multiplier, [plan.num_rounds]
    )
    accountant = dp_accounting.rdp.RdpAccountant(
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_SPECIAL
    )
  return accountant.compose(event).get_epsilon(delta)


def _lines(message: str, content: dict[str, Any], indent: str = '') -> list[str]:
  """Returns the lines of a message in the text format of protocol buffers."""
  lines = []
  for name, value in content.items():
    kind = _FIELDS[message][name]
    if kind in _FIELDS:
      lines += [
          f'{indent}{name} {{\n', *_lines(kind, value, indent + '  '),
          f'{indent}}}\n',
      ]
      continue
    text = {'string': f'"{value}"', 'bool': str(value).lower()}.get(
        kind, str(value)
    )
    lines.append(f'{indent}{name}: {text}\n')
  return lines
