# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A hint that the noise leaves almost nothing to learn, from public numbers.

Heuristic: nothing here is part of a guarantee, and nothing here spends budget.
"""

import math

from tff_dp import _checks

# On the digits of `python -m tasks sweep digits`, held-out accuracy is 0.33 at a
# ratio of 1.3, 0.68 at 2.4, 0.76 at 3.8 and 0.86 at 6.8. Other models reach more
# at lower ratios, so the hint appears only below a low ratio.
_LEAST_RATIO = 1.0


def is_for(plan) -> bool:
  """Returns whether a plan has a cohort size, and the server adds the noise."""
  size = getattr(plan, 'clients_per_round', None)
  return size is not None and plan.mechanism is not None


def signal_to_noise(plan, *, num_params: int, num_rounds: int) -> float:
  """Returns the largest norm of a sum of updates, over the norm of its noise.

  The sum is longest if all updates have the full clip norm and the same
  direction. In real runs it is much shorter. The norm of the noise is a root
  mean square. Without noise the ratio is infinite.

  Args:
    plan: Plan for which `is_for` holds.
    num_params: Number of weights of the model.
    num_rounds: Number of rounds in the sum, at most `plan.num_rounds`.
  """
  _checks.integer_at_least(1, num_params=num_params)
  _checks.integer_between(1, plan.num_rounds, num_rounds=num_rounds)
  variance = plan.mechanism.run_prefix_variances()[num_rounds - 1]
  noise = plan.noise_multiplier * math.sqrt(variance * num_params)
  updates = plan.clients_per_round * num_rounds
  return updates / noise if noise > 0 else math.inf


def too_noisy(
    plan, *, num_params: int, num_rounds: int, num_clients: int | None = None
) -> str | None:
  """Returns a hint if the noise may leave little to learn, else `None`.

  There is a hint if `signal_to_noise` is below 1.

  Args:
    plan: Plan of the run. There is no hint for a plan that has no cohort size,
      or whose clients add the noise.
    num_params: Number of weights of the model.
    num_rounds: Number of rounds of the run.
    num_clients: Size of the population, `None` if unknown.
  """
  if not is_for(plan):
    return None
  ratio = signal_to_noise(plan, num_params=num_params, num_rounds=num_rounds)
  if ratio >= _LEAST_RATIO:
    return None
  cohort = math.ceil(plan.clients_per_round * _LEAST_RATIO / ratio)
  ways = (
      f'At this noise that takes about {cohort} clients per round; more rounds,'
      ' fewer weights or a larger epsilon help as well.'
  )
  if num_clients is not None and cohort > num_clients:
    ways = (
        f'{num_clients} clients are too few for that: more rounds, fewer weights'
        ' or a larger epsilon help. If each client holds the records of many'
        ' people, such as a hospital, protect records instead of clients:'
        ' tff-dp advise --records ...'
    )
  return (
      'hint: this noise may leave little to learn. Even if all'
      f' {plan.clients_per_round} clients of all {num_rounds} rounds pulled the'
      f' same way, their sum would be {ratio:.2g} times as long as its noise'
      f' (noise multiplier {plan.noise_multiplier:.4g}, {num_params:,} weights);'
      f' most models need {_LEAST_RATIO:g} or more. {ways}'
  )
