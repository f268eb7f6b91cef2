# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""The privacy statement of a plan, and of the run that follows it."""

import dataclasses
from typing import Optional

from tff_dp.accounting import ledger as ledger_lib
from tff_dp.accounting import statement
from tff_dp.accounting import statement_facts


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
    plan: A `PrivacyPlan` with a noise multiplier.
    delta: In (0, 1).
    observed: What the participation ledger saw, `None` before round 1.
    insecure_seed: Whether the noise key was made from a known seed.
    declarations: What the plan cannot know.
  """
  mechanism, pattern = plan.mechanism, plan.participation.pattern
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
          mechanism=mechanism.name,
          mechanism_parameters={
              name: 'none' if value is None else value
              for name, value in dataclasses.asdict(mechanism).items()
          },
          participation=pattern.describe(),
          min_index_gap=limits.min_index_gap,
          max_participations=limits.max_participations,
          noise_multiplier=plan.noise_multiplier,
          l2_norm_clip=plan.l2_norm_clip,
          clients_per_round=plan.clients_per_round,
          num_rounds=plan.num_rounds,
          delta=delta,
          squared_sensitivity=plan.squared_sensitivity,
          complete_trees=mechanism.complete_trees,
          squared_sensitivity_without_completion=uncompleted,
          squared_sensitivity_so_far=so_far,
          observed=observed,
          insecure_seed=insecure_seed,
          **dataclasses.asdict(declarations),
      )
  )
