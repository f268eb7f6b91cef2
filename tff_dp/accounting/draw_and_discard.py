# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What draw and discard guarantees a client, and what it does not.

    guarantee(plan, participations=5).total_epsilon

The guarantee is that of the client's own noise: whoever reads the channel sees
the model that was sent and the one that came back. Unit: one client's whole
local data set, replaced by any other. Every participation of a client is one
release; they compose. What the server does with the models, how many instances
it keeps and which one it overwrites, changes none of that.

Weaker observers have been given smaller numbers (arXiv:1807.04369, section 4).
Those are `diagnostics`, each with the sentence why it is none of the client's
guarantee.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any, NamedTuple, Optional

import dp_accounting

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.events import run_events
from tff_dp.accounting.published import later_snapshots

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
# Under these strategies the model that a later client draws descends from one
# given update with probability at most 1/k.
_MIXING_STRATEGIES = ('draw_and_discard', 'same', 'accept_1_over_k')
_LATER_UPDATES = (1, 100, 10_000)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnostic:
  """A number about a weaker observer, which is no guarantee.

  Attributes:
    name: Of the number.
    epsilon: Its value.
    delta: At which it holds, None if the number knows of none.
    unit: 'model' or 'coordinate': what epsilon is about.
    why_not: Why it is no guarantee of the client's data.
    facts: What else the number depends on.
  """

  name: str
  epsilon: float
  unit: str
  why_not: str
  delta: Optional[float] = None
  facts: dict[str, Any] = dataclasses.field(default_factory=dict)

  def to_json(self) -> dict[str, Any]:
    """Returns JSON types."""
    described = dataclasses.asdict(self)
    described['epsilon'] = rounding.to_json_number(self.epsilon)
    return described


class Guarantee(NamedTuple):
  """What the reports of one client cost it; infinite without noise.

  Attributes:
    model_epsilon: Of one participation, at `delta`, for the whole model.
    delta: Of one participation; 0 for pure epsilon.
    total_epsilon: Of all participations of a client. The headline.
    total_delta: Of all participations.
    pure_total_epsilon: Without any delta; infinite for Gaussian noise.
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
  """Returns what so many participations of one client cost it.

  Upper bound. Laplace noise without a delta: pure epsilon, which adds up. With
  a delta, the numeric composition of all noised weights of all participations,
  every weight at its bound, or pure epsilon if that is less. Gaussian noise:
  exact.

  Args:
    plan: A `tff_dp.DrawAndDiscardPlan`.
    participations: Of one client: the largest number that occurred, `None` for
      the cap of the plan.
    delta: Of all participations together, in (0, 1); None for pure epsilon, or
      for the delta of a Gaussian step.
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


def diagnostics(
    plan,
    *,
    delta: float,
    later_updates: Sequence[int] = _LATER_UPDATES,
) -> tuple[Diagnostic, ...]:
  """Returns numbers about observers II and III, for one participation.

  Heuristic: none of them is a guarantee, and each says why. A step without
  noise has none.

  Args:
    plan: A `tff_dp.DrawAndDiscardPlan`.
    delta: At which they are stated.
    later_updates: After how many more updates somebody looks.
  """
  step, num_params, num_instances = (
      plan.step, plan.num_params, plan.num_instances
  )
  if not step.is_private:
    return ()
  found = []
  one_weight = step.coordinate_epsilon(num_params)
  is_laplace = step.mechanism == 'laplace'
  if is_laplace:
    found.append(
        Diagnostic(
            name='"expected loss" against who sees all instances',
            epsilon=later_snapshots.published_expected_loss(
                local_epsilon=one_weight, num_instances=num_instances
            ),
            unit='coordinate',
            why_not='It averages epsilon over coins of the server; differential'
            ' privacy bounds every outcome. Who sees the instances before and'
            ' after learns which one was overwritten: what holds is'
            f' {rounding.rounded_up(one_weight)}.',
            facts={'num_instances': int(num_instances)},
        )
    )
  if plan.strategy in _MIXING_STRATEGIES and plan.spam_filter is None:
    found.append(_one_later_draw(step, num_params, num_instances, delta))
  distance = step.coordinate_sensitivity() / step.noise_scale(num_params)
  for num_updates in later_updates:
    _checks.integer_at_least(1, later_updates=num_updates)
    facts = {'num_updates': int(num_updates)}
    if is_laplace and delta < 0.5:
      for corrected, key in ((False, 'published'), (True, 'corrected')):
        facts[key] = later_snapshots.published_later_epsilon(
            local_epsilon=one_weight,
            num_updates=num_updates,
            delta=delta,
            corrected=corrected,
        )
    found.append(
        Diagnostic(
            name=f'who sees one instance {num_updates} updates later',
            epsilon=later_snapshots.later_epsilon(
                mechanism=step.mechanism,
                distance=distance,
                num_updates=num_updates,
                delta=delta,
            ),
            delta=delta,
            unit='coordinate',
            why_not='Exact only if later gradients did not depend on the model;'
            ' about one weight; and nobody promises so many updates: the next'
            ' client may draw at once.',
            facts=facts,
        )
    )
  return tuple(found)


def event(step, *, num_params: int, participations: int):
  """Returns the event of so many participations, stated for replace-one."""
  one = step.event(num_params)
  if participations == 0:
    return dp_accounting.NoOpDpEvent()
  return dp_accounting.SelfComposedDpEvent(one, int(participations))


# Asked for every round of a run, and different for few participations.
@functools.lru_cache(maxsize=1024)
def epsilon(
    step, *, num_params: int, participations: int, delta: float
) -> float:
  """Returns epsilon of so many reports of one client, for replace-one.

  As the total of `guarantee` at that delta; infinite without noise.

  Args:
    step: The `mechanisms.client_steps.ClientStep` that the clients run.
    num_params: p, all weights together.
    participations: Of one client.
    delta: Of all participations together, in (0, 1).
  """
  if not step.is_private and participations:
    return math.inf
  pure = step.model_epsilon(num_params)
  return _epsilon_and_delta(step, num_params, participations, pure, delta)[0]


def epsilon_of(what: dp_accounting.DpEvent, delta: float) -> float:
  """Returns epsilon of an `event` at delta. Upper bound; Gaussian noise: exact.

  What `accountants.epsilon` gives for method 'pld' and replace-one, but one
  Gaussian or Laplace step needs no search for amplification.

  Args:
    what: Of `event`, or a composition of such.
    delta: In (0, 1).
  """
  leaves = run_events.merged(run_events.leaves(what))
  return composition.epsilon(
      [local_profiles.report(leaf).part(count) for leaf, count in leaves],
      delta,
  )


def times(count: int) -> str:
  """Returns the count with its noun."""
  return '1 participation' if count == 1 else f'{count} participations'


def _epsilon_and_delta(
    step, num_params, participations, pure: float, delta: Optional[float]
) -> tuple[float, float]:
  """Returns (epsilon, delta) of so many participations."""
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


def _one_later_draw(step, num_params, num_instances, delta) -> Diagnostic:
  """Returns what one later client that draws one instance learns.

  Upper bound, for the whole model. Given the coins of the server, the instance
  that it draws descends from the update, or is independent of it. The first has
  probability at most 1/k and leaves at most the client's own profile; coins do
  not depend on data. By joint convexity delta(epsilon) is at most 1/k of the
  client's own: epsilon at delta is the client's at k delta.
  """
  inner = num_instances * delta
  epsilon = 0.0
  if inner < 1:
    epsilon, _ = _epsilon_and_delta(
        step, num_params, 1, step.model_epsilon(num_params), inner
    )
  return Diagnostic(
      name='who draws one instance, once, later',
      epsilon=epsilon,
      delta=delta,
      unit='model',
      why_not='A bound, if the server is trusted to keep its coins secret, and'
      ' the one who draws sees nothing else, ever: the server, or who listens'
      ' on the channel, sees more. The chance of 1/k multiplies delta, not'
      ' epsilon.',
      facts={'num_instances': int(num_instances)},
  )
