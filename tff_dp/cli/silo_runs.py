# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the run of silos costs, recomputed from its plan."""

import json
from typing import Any

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.cli import event_files


def result_of(
    run: event_files.PlanRun, *, delta: float
) -> dict[str, Any]:
  """Returns epsilon of a run, of the worst silo and of each, as JSON types.

  Args:
    run: What an events file describes.
    delta: In (0, 1), of the headline.

  Raises:
    PrivacyRefusedError: If the run has no guarantee.
  """
  _checks.delta(delta=delta)
  guarantee = run.plan.guarantee(num_rounds=run.num_rounds)
  return {
      'epsilon': rounding.to_json_number(
          run.plan.epsilon(delta=delta, num_rounds=run.num_rounds)
      ),
      'delta': delta,
      'epsilon_no_amplification': rounding.to_json_number(
          run.plan.epsilon_no_amplification(
              delta=delta, num_rounds=run.num_rounds
          )
      ),
      'unit': run.plan.unit,
      'neighboring_relation': run.plan.neighboring_relation.value,
      'rounds': run.num_rounds,
      'silos': guarantee.to_json()['silos'],
      'assumptions': list(guarantee.assumptions),
      'warnings': [],
      'plan': run.plan.describe(),
  }


def show(
    run: event_files.PlanRun, *, delta: float, output_format: str
) -> None:
  """Prints `result_of`.

  Args:
    run: What an events file describes.
    delta: In (0, 1), of the headline.
    output_format: 'text' or 'json'.
  """
  result = result_of(run, delta=delta)
  if output_format == 'json':
    print(json.dumps(result, indent=2, allow_nan=False))
    return
  epsilon = rounding.rounded_up(rounding.from_json_number(result['epsilon']))
  print(
      f'epsilon {epsilon} at delta {delta:g} for every record of every silo,'
      f' {result["neighboring_relation"]}; {run.num_rounds} of'
      f' {run.plan.num_rounds} rounds\n'
  )
  print(run.plan.guarantee(num_rounds=run.num_rounds).to_text())
