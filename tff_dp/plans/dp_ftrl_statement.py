# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a plan, or the run that follows it, says of its privacy.

The privacy statement for readers, and the events for whoever recomputes it.
"""

import dataclasses
from typing import Any, Optional

import numpy as np

from tff_dp.accounting.events import run_events
from tff_dp.ledger import participation_ledger as ledger_lib
from tff_dp.mechanisms import adaptive_clipping
from tff_dp.statement import statement
from tff_dp.statement import statement_facts
from tff_dp.statement import statement_sections


# A BLT has up to 8 buffers; matrices have thousands of entries.
_MOST_NUMBERS = 8
_FIRST_NUMBERS = 4


def _default(name: str) -> str:
  return statement_facts.StatementFacts.__dataclass_fields__[name].default


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declarations:
  """What a plan cannot know: the person who runs the training declares it.

  The fields are those of `StatementFacts` of the same name, with its defaults,
  which claim nothing.

  Attributes:
    population: Number of clients, `None` if unknown.
    population_origin: Whether that number is public or an estimate.
    delta_reason: Why this delta.
    hyperparameters: How they were chosen, and whether that is accounted for.
    architecture: How the model was chosen.
    early_stopping: Whether results decided when to stop.
    pretraining: Where the initial weights come from.
    public_data: Data outside the protected population that was used.
    preprocessing: Whether vocabularies or normalisers saw private data.
    not_covered: Values that are released without being covered.
  """

  population: Optional[int] = None
  population_origin: str = _default('population_origin')
  delta_reason: str = _default('delta_reason')
  hyperparameters: str = _default('hyperparameters')
  architecture: str = _default('architecture')
  early_stopping: str = _default('early_stopping')
  pretraining: str = _default('pretraining')
  public_data: str = _default('public_data')
  preprocessing: str = _default('preprocessing')
  not_covered: str = _default('not_covered')


def build(
    plan,
    *,
    delta: float,
    observed: Optional[ledger_lib.Observed],
    insecure_seed: bool,
    declarations: Declarations,
) -> statement.PrivacyStatement:
  """Returns the statement of a plan, or of the run that followed it so far.

  Args:
    plan: A `PrivacyPlan` with a noise multiplier, or a `NonPrivatePlan`.
    delta: In (0, 1).
    observed: What the participation ledger saw, `None` before round 1.
    insecure_seed: Whether the noise key was made from a known seed.
    declarations: What the plan cannot know.
  """
  mechanism, pattern = plan.mechanism, plan.participation.pattern
  is_private = plan.l2_norm_clip is not None
  limits = pattern.limits(restart_every=mechanism.restart_every)
  so_far = None
  if observed is not None and observed.num_rounds:
    so_far = float(plan.squared_sensitivity_by_round[observed.num_rounds - 1])
  uncompleted = None
  if mechanism.complete_trees:
    uncompleted = dataclasses.replace(
        mechanism, complete_trees=False
    ).squared_sensitivity(pattern)
  return statement.build_statement(
      statement_facts.StatementFacts(
          mechanism=mechanism.name if is_private else 'none',
          mechanism_parameters=(
              readable_parameters(mechanism) if is_private else {}
          ),
          participation=pattern.describe(),
          min_index_gap=limits.min_index_gap,
          max_participations=limits.max_participations,
          noise_multiplier=plan.noise_multiplier,
          l2_norm_clip=plan.l2_norm_clip,
          clients_per_round=plan.clients_per_round,
          num_rounds=plan.num_rounds,
          delta=delta,
          squared_sensitivity=plan.squared_sensitivity,
          sensitivity_is_exact=mechanism.sensitivity_is_exact(pattern),
          complete_trees=mechanism.complete_trees,
          squared_sensitivity_without_completion=uncompleted,
          squared_sensitivity_so_far=so_far,
          adaptive_clipping=_adaptive_clipping(plan),
          observed=observed,
          insecure_seed=insecure_seed,
          **dataclasses.asdict(declarations),
      )
  )


def events_json(plan, *, delta: float, num_rounds: int) -> dict[str, Any]:
  """Returns what epsilon of a run can be recomputed from, as JSON types.

  Args:
    plan: A `PrivacyPlan` with a noise multiplier.
    delta: In (0, 1).
    num_rounds: Rounds after which the run stopped.
  """
  event = {
      'type': 'gaussian',
      'noise_multiplier': plan.noise_multiplier,
      'squared_sensitivity': float(
          plan.squared_sensitivity_by_round[num_rounds - 1]
      ),
      'rounds': num_rounds,
  }
  if plan.adaptive_clipping is not None:
    # What the one event is made of: 1 / noise_multiplier^2 adds up.
    event['streams'] = plan.noise_multiplier_by_domain
  described = {
      'schema': 'tff_dp.events',
      'schema_version': 1,
      'unit': 'client',
      'neighboring_relation': run_events.NeighboringRelation.ZERO_OUT.value,
      'delta': delta,
      'plan': plan.describe(),
      'events': [event],
  }
  if plan.noise_multiplier == 0:
    described['warnings'] = [statement_sections.NO_NOISE]
  return described


def readable_parameters(mechanism) -> dict[str, Any]:
  """Returns a mechanism's parameters for readers, JSON types."""
  return {
      name: _readable(value)
      for name, value in dataclasses.asdict(mechanism).items()
  }


def _readable(value: Any) -> Any:
  if value is None:
    return 'none'
  if not isinstance(value, (tuple, list)):
    return value
  numbers = np.ravel(value)
  if len(numbers) <= _MOST_NUMBERS:
    return ', '.join(f'{number:.9g}' for number in numbers)
  first = ', '.join(f'{number:.6g}' for number in numbers[:_FIRST_NUMBERS])
  return f'{len(numbers)} numbers: {first}, ...'


def _adaptive_clipping(plan) -> Optional[dict[str, Any]]:
  """Returns what the statement says about a clip norm that adapts."""
  if plan.adaptive_clipping is None:
    return None
  multipliers = plan.noise_multiplier_by_domain
  rounds = adaptive_clipping.rounds_per_clip_norm(plan.mechanism)
  return {
      **dataclasses.asdict(plan.adaptive_clipping),
      'budget_share_of': '1 / sigma^2, for the quantile bits',
      'rounds_per_clip_norm': rounds,
      'value_noise_multiplier': multipliers['value'],
      'quantile_noise_multiplier': multipliers['quantile'],
      'quantile_noise_on_sum': (
          adaptive_clipping.BIT * multipliers['quantile']
      ),
      'key_domains': ', '.join(multipliers),
  }
