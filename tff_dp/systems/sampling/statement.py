# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The parts of a privacy statement that only sampling has."""

import dataclasses
from typing import Any, Optional

from tff_dp.accounting import rounding
from tff_dp.accounting.events import run_events
from tff_dp.statement import builder
from tff_dp.statement import plain_words

# 'point.name: sentence'. {units} is clients or examples.
_SENTENCES = """
setting.model: central differential privacy, amplified by sampling
setting.adversary: anybody who sees every released model and metric of the run,
    but neither the coins nor the cohorts
unit.contribution_bound: {contribution} has L2 norm at most
    {plan.l2_norm_clip:g}
unit.participation: Poisson sampling: each of {plan.population} {units} takes
    part in a round with probability {plan.clients_per_round} /
    {plan.population}, by a coin of its own
adjacency.definition: {relation}; adding or removing one {plan.unit} gives the
    same numbers, because rate and divisor are constants of the plan
release.covered: the model after every round, its evaluation on data of others
    than the {units} in training, and metrics computed from noised values;
    nothing about who or how many took part in a round
mechanism.name: Poisson-sampled Gaussian mechanism, independent in every round
mechanism.noise_multiplier: {noise}: standard deviation of the noise on the SUM,
    over the L2 clip norm
mechanism.clients_per_round: {plan.clients_per_round}, the expected cohort and
    the constant divisor
accounting.method: privacy loss distributions of the sampled Gaussian
    mechanism, composed over all rounds; never more than without sampling
accounting.theorem: sampled Gaussian: Zhu, Dong and Wang, arXiv:2106.08567,
    theorem 11; composition: the same, theorem 10; without sampling: Balle and
    Wang, arXiv:1805.06530, theorem 8; replace-one: a removal and an addition
accounting.exactness: an upper bound; grid, tails and floating-point errors err
    upward
accounting.discretisation: losses on a grid, pessimistic (connect the dots)
accounting.rounds_accounted: {rounds}: a run that stops earlier counts as one
    that stops there
amplification.claimed: Poisson sampling at the rate {plan.sampling_rate:g}
implementation.arithmetic: an exact sum of clipped contributions; float32
    Gaussian noise, not a secure discrete sampler
implementation.coins: drawn by the server of this library from one secret key
    (BLAKE2b; counts and subsets from PCG64, which is not cryptographic); a
    cohort from elsewhere is refused
implementation.dropouts: whoever was drawn and does not report adds nothing;
    a short or an empty round gets the full noise and the same divisor
implementation.realised_cohorts: secret, and not recorded in what is released
not_claimed.limits: nothing is claimed for several {units} of one person, for
    side channels such as the time of a round, or against those who are trusted
    above; other runs on the same {units} are releases of their own and add up
"""
_UNSAMPLED = """
setting.model: central differential privacy
amplification.claimed: none
"""
_WITH_ADAPTIVE_CLIPPING = """
unit.contribution_bound: {contribution} has L2 norm at most the clip norm of the
    round, {plan.l2_norm_clip:g} in the first; beside it goes +1/2 or -1/2
mechanism.noise_multiplier: {noise}: of updates and quantile bits together, as
    one Gaussian mechanism
accounting.adaptive_clipping: two Gaussian mechanisms on the same sample, whose
    1 / sigma^2 add up to that of the noise multiplier above: Andrew et al.,
    arXiv:1905.03871, theorem 1
"""
_CONTRIBUTIONS = {
    'client': (
        'the whole update of a client in a round, whatever its number of'
        ' examples,'
    ),
    'example': 'the gradient of an example in a step',
}


def assumptions(plan) -> tuple[str, ...]:
  """Returns the assumptions of the amplified epsilon, as sentences.

  Args:
    plan: A `SamplingPlan` with a rate below 1.
  """
  coins = (
      f'Every round draws each {plan.unit} by a secret coin of its own, with'
      f' probability {plan.clients_per_round} / {plan.population}.'
  )
  if plan.unit == 'example':
    return (
        coins,
        'Nobody but the holder sees coins and batches, nor how large a batch'
        ' is.',
    )
  return (
      coins,
      'The server can call whom it likes: whether a client can be reached, and'
      ' whether it answers, does not depend on its coin.',
      'Nobody but the server sees coins and cohorts, nor how many took part.',
  )


def points(plan, about: builder.Occasion) -> dict[str, Any]:
  """Returns 'point.name' -> value, see `builder.build`.

  Args:
    plan: A `SamplingPlan` with a noise multiplier.
    about: Occasion of the statement.
  """
  noise = rounding.rounded_up(plan.noise_multiplier, digits=7)
  if plan.noise_multiplier == 0:
    noise += f' ({plain_words.NO_PRIVACY})'
  text = _SENTENCES
  if plan.adaptive_clipping is not None:
    text += _WITH_ADAPTIVE_CLIPPING
  found = assumptions(plan)
  if plan.clients_per_round == plan.population:
    text, found = text + _UNSAMPLED, ()
  said = builder.sentences(
      text,
      plan=plan,
      units=f'{plan.unit}s',
      noise=noise,
      contribution=_CONTRIBUTIONS[plan.unit],
      relation=plan.neighboring_relation.description.replace(
          'client', plan.unit
      ),
      rounds=plan.rounds_accounted(about.num_rounds),
  )
  if about.declarations.population is None:
    said['mechanism.population'] = f'{plan.population}, by the plan'
  if plan.adaptive_clipping is not None:
    said['mechanism.adaptive_clipping'] = dataclasses.asdict(
        plan.adaptive_clipping
    )
  return said | {
      'unit.max_participations': plan.num_rounds,
      'mechanism.parameters': {'rounds': plan.num_rounds},
      'mechanism.l2_norm_clip': plan.l2_norm_clip,
      'mechanism.sampling_rate': plan.sampling_rate,
      'amplification.assumptions': list(found) or 'none',
  }


def details(
    plan, *, delta: float, num_rounds: Optional[int]
) -> dict[str, Any]:
  """Returns the details of a `SamplingPlan`, see `Plan.details`.

  Args:
    plan: A `SamplingPlan` with a noise multiplier.
    delta: Target delta, in (0, 1).
    num_rounds: Rounds after which the run stops, `None` for all.
  """
  rounds = plan.num_rounds if num_rounds is None else num_rounds
  found = {
      'epsilon_by_neighboring_relation': {
          each.value: rounding.to_json_number(
              plan.epsilon_after(
                  num_rounds, delta=delta, neighboring_relation=each
              )
          )
          for each in run_events.NeighboringRelation
      },
      'sampling': 'Poisson',
      'sampling_rate': plan.sampling_rate,
      'rounds': rounds,
      'rounds_accounted': plan.rounds_accounted(num_rounds),
      'noise_multiplier': plan.noise_multiplier,
      'l2_norm_clip': plan.l2_norm_clip,
      'epsilon_without_sampling': rounding.to_json_number(
          plan.epsilon_no_amplification(delta=delta, num_rounds=num_rounds)
      ),
  }
  if plan.adaptive_clipping is not None:
    found['adaptive_clipping'] = dataclasses.asdict(plan.adaptive_clipping)
  return found


def in_words(plan, found: dict[str, Any]) -> list[tuple[str, str]]:
  """Returns lines (label, text) about the result of `details`."""
  lines = [
      ('', 'add-or-remove-one gives the same epsilon: the divisor is constant'),
      ('trusted', plan.trust),
      (
          'sampling',
          f'Poisson: each of {plan.population} {plan.unit}s with probability'
          f' {found["sampling_rate"]:.6g} in each of {found["rounds"]} rounds',
      ),
      (
          'noise',
          f'{rounding.rounded_up(found["noise_multiplier"], digits=7)}, standard'
          ' deviation on the SUM, over the clip norm; the divisor is'
          f' {plan.clients_per_round}',
      ),
      ('accounting', 'privacy loss distributions, an upper bound'),
  ]
  if found['epsilon_without_sampling'] == 'inf':
    lines.append(('', 'without sampling no finite epsilon holds'))
  if found['rounds_accounted'] != found['rounds']:
    lines.append(('', f'as after {found["rounds_accounted"]} rounds'))
  return lines
