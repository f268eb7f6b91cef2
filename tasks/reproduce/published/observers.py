# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Who sees less of draw and discard, and what the paper gives them.

Numbers about observers II and III of arXiv:1807.04369, section 4, for one
participation. None of them is a guarantee of the client, and each says why.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any, Optional

from tasks.reproduce.published import later_snapshots
from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.systems.draw_and_discard import accounting

# Under these strategies the model that a later client draws descends from one
# given update with probability at most 1/k.
_MIXING_STRATEGIES = ('draw_and_discard', 'same', 'accept_1_over_k')
_LATER_UPDATES = (1, 100, 10_000)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnostic:
  """A number about a weaker observer, which is no guarantee.

  Attributes:
    name: Name of the number.
    epsilon: Value of the number, an epsilon.
    delta: Delta at which `epsilon` is stated, `None` if there is none.
    unit: 'model' or 'coordinate', the part that `epsilon` is about.
    why_not: Reason why it is no guarantee of the client's data.
    facts: Other facts that the number depends on.
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
    delta: Delta at which the numbers are stated.
    later_updates: Number of further updates after which the observer looks.
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
    found.append(_one_later_draw(plan, delta))
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


def _one_later_draw(plan, delta) -> Diagnostic:
  """Returns what one later client that draws one instance learns.

  Upper bound, for the whole model. Given the coins of the server, the instance
  that it draws descends from the update, or is independent of it. The first
  case has probability at most 1/k, and leaves at most the client's own profile.
  Coins do not depend on data. By joint convexity, delta(epsilon) is at most 1/k
  of the client's own delta. So epsilon at delta is the client's epsilon at k
  delta.
  """
  num_instances = plan.num_instances
  inner = num_instances * delta
  epsilon = 0.0
  if inner < 1:
    epsilon = accounting.epsilon(
        plan.step, num_params=plan.num_params, participations=1, delta=inner
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
