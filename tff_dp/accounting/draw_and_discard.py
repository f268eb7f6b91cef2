# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What draw and discard guarantees a client, and what it does not.

    found = guarantee(plan, participations=5)
    print(found.to_text())

The guarantee is that of the client's own noise: whoever reads the channel sees
the model that was sent and the one that came back. Unit: one client's whole
local data set, replaced by any other. Every participation of a client is one
release; they compose. What the server does with the models, how many instances
it keeps and which one it overwrites, changes none of that.

Weaker observers have been given smaller numbers (arXiv:1807.04369, section 4).
Those are in `non_dp_diagnostics`, each with the sentence why it is none of the
client's guarantee.
"""

from collections.abc import Sequence
import functools
import math
from typing import Optional

import dp_accounting

from tff_dp import _checks
from tff_dp.accounting import draw_and_discard_statement as statement
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import composition
from tff_dp.accounting.events import compositions
from tff_dp.accounting.protocols import local_reports
from tff_dp.accounting.published import later_snapshots

# Under these strategies the model that a later client draws descends from one
# given update with probability at most 1/k.
_MIXING_STRATEGIES = ('draw_and_discard', 'same', 'accept_1_over_k')
_LATER_UPDATES = (1, 100, 10_000)
_DIAGNOSTIC_DELTA = 1e-6


def guarantee(
    plan,
    *,
    participations: Optional[int] = None,
    delta: Optional[float] = None,
    is_capped: bool = True,
    later_updates: Sequence[int] = _LATER_UPDATES,
) -> statement.DdmlGuarantee:
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
    is_capped: Whether the plan's cap is enforced.
    later_updates: For the diagnostic of later observers.
  """
  cap = plan.max_participations
  if participations is None:
    participations = cap
  _checks.integer_between(0, cap, participations=participations)
  if delta is not None:
    _checks.delta(delta=delta)
  step, num_params = plan.step, plan.num_params
  if delta is None:
    delta = step.delta
  void = None if step.is_private else statement.NO_NOISE
  pure = step.model_epsilon(num_params)
  if void is None:
    one = _epsilon_and_delta(step, num_params, 1, pure, delta)
    total = _epsilon_and_delta(step, num_params, participations, pure, delta)
    about_others = diagnostics(
        step,
        num_params=num_params,
        num_instances=plan.num_instances,
        delta=_DIAGNOSTIC_DELTA if delta is None else delta,
        strategy=plan.strategy,
        has_spam_filter=plan.spam_filter is not None,
        later_updates=later_updates,
    )
  else:
    one, total, about_others = (math.inf, 1.0), (math.inf, 1.0), ()
  return statement.DdmlGuarantee(
      model_epsilon=one[0],
      delta=one[1],
      total_epsilon=total[0],
      total_delta=total[1],
      pure_total_epsilon=_times_epsilon(pure, participations)
      if void is None
      else math.inf,
      coordinate_epsilon=step.coordinate_epsilon(num_params),
      participations=int(participations),
      max_participations=cap if is_capped else None,
      num_params=num_params,
      num_instances=plan.num_instances,
      concurrency=plan.clients_per_round,
      strategy=plan.strategy,
      noise_scale=step.noise_scale(num_params),
      step=step.describe(),
      void=void,
      non_dp_diagnostics=about_others,
  )


def diagnostics(
    step,
    *,
    num_params: int,
    num_instances: int,
    delta: float,
    strategy: str = 'draw_and_discard',
    has_spam_filter: bool = False,
    later_updates: Sequence[int] = _LATER_UPDATES,
) -> tuple[statement.Diagnostic, ...]:
  """Returns numbers about observers II and III, for one participation.

  Heuristic: none of them is a guarantee, and each says why. A step without
  noise has none.

  Args:
    step: The `mechanisms.client_steps.ClientStep` that the clients run.
    num_params: p, all weights together.
    num_instances: k.
    delta: At which they are stated.
    strategy: Of the server.
    has_spam_filter: Whether the server refuses some models.
    later_updates: After how many more updates somebody looks.
  """
  if not step.is_private:
    return ()
  found = []
  one_weight = step.coordinate_epsilon(num_params)
  is_laplace = step.mechanism == 'laplace'
  if is_laplace:
    found.append(
        statement.Diagnostic(
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
  if strategy in _MIXING_STRATEGIES and not has_spam_filter:
    found.append(
        _one_later_draw(step, num_params, num_instances, delta)
    )
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
        statement.Diagnostic(
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
  leaves = compositions.merged(compositions.leaves(what))
  return composition.epsilon(
      [local_reports.report(leaf).part(count) for leaf, count in leaves], delta
  )


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


def _one_later_draw(
    step, num_params, num_instances, delta
) -> statement.Diagnostic:
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
  return statement.Diagnostic(
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
