# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the run of a check-in protocol costs, recomputed from its plan."""

import json
from typing import Any

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.cli import event_files
from tff_dp.cli import protocols_text


def result_of(
    run: event_files.ProtocolRun, *, delta: float
) -> dict[str, Any]:
  """Returns epsilon of a run and what it rests on, as JSON types.

  Args:
    run: What an events file describes.
    delta: In (0, 1).
  """
  _checks.delta(delta=delta)
  plan = run.plan
  accounted = plan.rounds_accounted(run.num_rounds)
  certificate = plan.certificate(delta=delta, num_rounds=accounted)
  epsilon = plan.epsilon_after(run.num_rounds, delta=delta)
  parameters = plan.protocol.describe()
  parameters |= {
      'passes': plan.num_passes,
      'randomizer': plan.randomizer.name,
      'rounds': run.num_rounds,
      'rounds_accounted': accounted,
  }
  result = certificate.to_json() | {
      'epsilon': rounding.to_json_number(epsilon),
      'delta': delta,
      'protocol': parameters.pop('name'),
      'parameters': parameters,
      'rounds': run.num_rounds,
      'plan': plan.describe(),
  }
  result['assumptions'] += plan.protocol.assumptions
  if plan.occupancy_noise_stddev is not None:
    shares = plan.counted(delta=delta, num_rounds=accounted)
    parameters['occupancy_noise_stddev'] = plan.occupancy_noise_stddev
    result['warnings'].append(
        f'{rounding.rounded_up(2 * shares.count_epsilon)} of epsilon is for'
        ' noised counts of check-ins; the table below is of the models alone,'
        f' at delta {certificate.delta:.3g}'
    )
  return result


def show(
    run: event_files.ProtocolRun, *, delta: float, output_format: str
) -> None:
  """Prints `result_of`.

  Args:
    run: What an events file describes.
    delta: In (0, 1).
    output_format: 'text' or 'json'.
  """
  result = result_of(run, delta=delta)
  if output_format == 'json':
    print(json.dumps(result, indent=2, allow_nan=False))
  else:
    print('\n'.join(protocols_text.lines(result)))
