# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What draw and discard guarantees to a client, and what it does not.

    guarantee(plan, participations=5).total_epsilon

The guarantee comes from the client's own noise. It holds against anybody who
reads the channel and sees both the model sent to the client and the model that
came back. Unit: one client's whole local data set, replaced by any other. Every
participation of a client is one release, and releases compose. The guarantee
does not depend on what the server does with the models: how many instances it
keeps and which one it overwrites.

The paper gives smaller numbers to observers who see less (arXiv:1807.04369,
section 4). None of them is a guarantee, and none of them is here.
"""

import functools
import math
from typing import NamedTuple, Optional

import dp_accounting

from tff_dp import _checks
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.events import run_events

FEATURE_LEVEL = "feature-level; not a guarantee for the client's data"
ASSUMPTIONS = (
    "Neighbours: one client's whole local data set is replaced by any other;"
    ' that the client takes part, when and how often, is public.',
    'Covered: the models sent to and returned by the client, whoever reads'
    ' them, the server included; the rest of the run follows from them.',
    'The clip and the noise are applied on the device, to the whole model, with'
    ' randomness that nobody outside can seed, replay or learn.',
    'Nothing else leaves the device: no metrics without noise, no refusals that'
    ' depend on the data.',
    'Other runs and tuning on the same clients are participations too: they add'
    ' up unless they were counted here.',
    'Floating-point noise is not exactly Laplace or Gaussian (Mironov, 2012).',
)


class Guarantee(NamedTuple):
  """Privacy loss of one client through its reports.

  Without noise, each epsilon is infinite and each delta is 1.

  Attributes:
    model_epsilon: Epsilon of one participation, at `delta`, for the whole
      model.
    delta: Delta of one participation, 0 for pure epsilon.
    total_epsilon: Epsilon of all participations of a client. This is the
      headline number.
    total_delta: Delta of all participations, 0 if `total_epsilon` is pure.
    pure_total_epsilon: Epsilon of all participations at delta 0. It is infinite
      for Gaussian noise, but 0 without participations.
  """

  model_epsilon: float
  delta: float
  total_epsilon: float
  total_delta: float
  pure_total_epsilon: float


def guarantee(
    plan,
    *,
    participations: Optional[int] = None,
    delta: Optional[float] = None,
) -> Guarantee:
  """Returns the privacy loss of one client after a number of participations.

  Upper bound, and exact for Gaussian noise. Laplace noise without a delta gives
  pure epsilon, which adds up over participations. Laplace noise with a delta
  gives the smaller of two numbers: pure epsilon, and the numeric composition of
  all noised weights of all participations, with every weight at its bound.

  Args:
    plan: A `tff_dp.DrawAndDiscardPlan`.
    participations: Largest number of participations of any one client. Default:
      the cap of the plan.
    delta: Delta of all participations together, above 0 and at most 0.1. None
      means pure epsilon for Laplace noise, and the step's delta for Gaussian
      noise.
  """
  cap, step, num_params = plan.max_participations, plan.step, plan.num_params
  if participations is None:
    participations = cap
  _checks.integer_between(0, cap, participations=participations)
  if delta is not None:
    _checks.delta(delta=delta)
  else:
    delta = step.delta
  if not step.is_private:
    return Guarantee(math.inf, 1.0, math.inf, 1.0, math.inf)
  pure = step.model_epsilon(num_params)
  return Guarantee(
      *_epsilon_and_delta(step, num_params, 1, pure, delta),
      *_epsilon_and_delta(step, num_params, participations, pure, delta),
      _times_epsilon(pure, participations),
  )


def event(step, *, num_params: int, participations: int):
  """Returns the event of some participations of one client, for replace-one.

  Args:
    step: The `client_steps.ClientStep` that the client runs.
    num_params: Number of weights p of the whole model.
    participations: Number of participations of the client. 0 gives a
      `NoOpDpEvent`.
  """
  one = step.event(num_params)
  if participations == 0:
    return dp_accounting.NoOpDpEvent()
  return dp_accounting.SelfComposedDpEvent(one, int(participations))


# This is called in every round of a run, but with few distinct counts.
@functools.lru_cache(maxsize=1024)
def epsilon(
    step, *, num_params: int, participations: int, delta: float
) -> float:
  """Returns epsilon of one client's reports, for replace-one.

  With noise, the result equals `guarantee(...).total_epsilon` at that delta.
  Without noise it is infinite, or 0 for 0 participations.

  Args:
    step: The `client_steps.ClientStep` that the clients run.
    num_params: Number of weights p of the whole model.
    participations: Number of participations of one client.
    delta: Delta of all participations together, in (0, 1).
  """
  if not step.is_private and participations:
    return math.inf
  pure = step.model_epsilon(num_params)
  return _epsilon_and_delta(step, num_params, participations, pure, delta)[0]


def epsilon_of(what: dp_accounting.DpEvent, delta: float) -> float:
  """Returns epsilon of an `event` at delta.

  Upper bound, and exact for Gaussian noise. The result is the same as from
  `accountants.epsilon` with method 'pld' and replace-one. This function is
  faster, because it does not look for bounds with amplification.

  Args:
    what: Result of `event`, or a composition of such events.
    delta: Target delta, in (0, 1).
  """
  leaves = run_events.merged(run_events.leaves(what))
  return composition.epsilon(
      [local_profiles.report(leaf).part(count) for leaf, count in leaves],
      delta,
  )


def times(count: int) -> str:
  """Returns '1 participation', '2 participations' and so on."""
  return '1 participation' if count == 1 else f'{count} participations'


def _epsilon_and_delta(
    step, num_params, participations, pure: float, delta: Optional[float]
) -> tuple[float, float]:
  """Returns (epsilon, delta) of a number of participations."""
  if participations == 0:
    return 0.0, 0.0
  pure_total = _times_epsilon(pure, participations)
  if delta is None:
    return pure_total, 0.0
  is_calibrated = step.privacy_unit == 'model' and step.delta == delta
  if participations == 1 and is_calibrated:
    return float(step.epsilon), float(delta)
  numeric = epsilon_of(
      event(step, num_params=num_params, participations=participations), delta
  )
  if pure_total <= numeric:
    return pure_total, 0.0
  return numeric, float(delta)


def _times_epsilon(pure: float, participations: int) -> float:
  return 0.0 if participations == 0 else pure * participations
