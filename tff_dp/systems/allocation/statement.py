# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The part of a privacy statement that only allocation has."""

from typing import Any

from tff_dp.mechanisms.matrix import toeplitz
from tff_dp.statement import builder

_SENTENCES = """
setting.model: central differential privacy, with check-ins
unit.contribution_bound: a report of a client is one vector of L2 norm at most
    {plan.l2_norm_clip:g}, whatever its number of examples
mechanism.local_guarantee: none: clients send their updates to the trusted
    server as they are
"""


def points(plan) -> dict[str, Any]:
  """Returns 'point.name' -> value, see `builder.build`.

  Args:
    plan: An `AllocationPlan`.
  """
  return builder.sentences(_SENTENCES, plan=plan) | {
      'mechanism.noise_multiplier': plan.noise_multiplier,
      'mechanism.l2_norm_clip': plan.l2_norm_clip,
      'mechanism.server_noise': builder.readable(plan.mechanism.describe()),
  }


def details(plan) -> dict[str, Any]:
  """Returns the details that only allocation has, see `Plan.details`.

  Args:
    plan: An `AllocationPlan`.
  """
  protocol, mechanism = plan.protocol, plan.mechanism
  found = {
      'noise_multiplier': plan.noise_multiplier,
      'l2_norm_clip': plan.l2_norm_clip,
  }
  if isinstance(mechanism, toeplitz.Banded):
    rmse, max_error = plan.prefix_errors()
    found |= {
        'stride': protocol.stride,
        'slots_per_window': protocol.slots_per_window,
        'mechanism': mechanism.name,
        'num_bands': mechanism.num_bands,
        'rmse': rmse,
        'max_error': max_error,
    }
  return found
