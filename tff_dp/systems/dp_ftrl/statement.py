# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The contents of the privacy statement that are specific to a `DpFtrlPlan`."""

import dataclasses
from typing import Any, Optional

import numpy as np

from tff_dp.accounting import rounding
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events
from tff_dp.ledger import participation_ledger
from tff_dp.mechanisms import adaptive_clipping
from tff_dp.mechanisms import catalogue
from tff_dp.statement import builder
from tff_dp.statement import plain_words

# Source of the squared sensitivity, by the name of the mechanism.
_TREES = 'of trees, Kairouz et al., arXiv:2103.00039, appendix D'
_TOEPLITZ = 'of Toeplitz matrices, arXiv:2405.13763, theorem 2'
_SENSITIVITY = {
    'independent': 'the number of participations',
    'tree': _TREES,
    'honaker': _TREES,
    'banded': 'of banded matrices, arXiv:2306.08153',
    'toeplitz': _TOEPLITZ,
    'blt': _TOEPLITZ,
    'banded-inverse': _TOEPLITZ,
}
_EXACT = 'exact for the worst case of the promised participation'
_BOUND = (
    'an upper bound: the squared sensitivity bounds the worst case of the'
    ' promised participation, its conversion is exact'
)
_METHOD = 'one Gaussian mechanism, exact conversion; no amplification claimed'
_SENTENCES = """
setting.model: central differential privacy
setting.adversary: anybody who sees every released model and metric of the run
unit.contribution_bound: the whole update of a client in a round has L2 norm at
    most {plan.l2_norm_clip:g}, whatever its number of examples
release.covered: the model after every round, its evaluation on data of others
    than the clients in training, and metrics computed from noised values
mechanism.noise_multiplier: {noise}: standard deviation of one draw on the SUM,
    over the L2 clip norm
mechanism.clients_per_round: {plan.clients_per_round}, the constant divisor
accounting.method: the run is one Gaussian mechanism over all noised values;
    exact conversion to (epsilon, delta)
accounting.theorem: Gaussian: Balle and Wang, arXiv:1805.06530, theorem 8;
    adaptive streams: Denisov et al., arXiv:2202.08312; sensitivity:
    {sensitivity}
accounting.exactness: {exactness}; floating-point errors are rounded upward
accounting.discretisation: none: no grid of losses, Renyi orders are continuous
implementation.arithmetic: an exact sum of clipped updates; float32 Gaussian
    noise, not a secure discrete sampler
implementation.dropouts: a selected client counts as having taken part; a short
    round gets the full noise and the same divisor
implementation.realised_cohorts: no round yet
not_claimed.limits: nothing is claimed for several clients of one person, for
    side channels, or against the server; other runs on the same clients are
    releases of their own and add up
"""
_WITH_ADAPTIVE_CLIPPING = """
unit.contribution_bound: the whole update of a client in a round has L2 norm at
    most the clip norm of the tree, {plan.l2_norm_clip:g} in the first, whatever
    its number of examples; beside it, a client sends +1/2 or -1/2
release.covered: the model after every round, its evaluation on data of others
    than the clients in training, and metrics computed from noised values, among
    them the
    clip norms and the estimates of the quantile that they follow
mechanism.noise_multiplier: {noise}: of updates and quantile bits together, as
    one Gaussian mechanism
accounting.adaptive_clipping: two Gaussian mechanisms with the same S2, whose
    1 / sigma^2 add up to that of the noise multiplier above: Andrew et al.,
    arXiv:1905.03871, theorem 1; each clip norm follows from what was released
    before
"""
_WITH_ROUNDS = """
implementation.realised_cohorts: {seen.smallest_cohort} to {seen.largest_cohort}
    clients selected per round, {plan.clients_per_round} planned
"""
_WITHOUT_COHORTS = """
implementation.realised_cohorts: not said here
"""


def points(plan, about: builder.Occasion) -> dict[str, Any]:
  """Returns 'point.name' -> value, see `builder.build`.

  Args:
    plan: A `DpFtrlPlan` with a noise multiplier.
    about: Occasion of the statement.
  """
  mechanism, pattern = plan.mechanism, plan.participation.pattern
  limits = pattern.limits(restart_every=mechanism.restart_every)
  # The adversary's view: known noise is no noise.
  is_known, delta = about.insecure_seed, about.delta
  sigma = 0.0 if is_known else plan.sigma(num_rounds=about.num_rounds)
  noise = rounding.rounded_up(plan.noise_multiplier, digits=7)
  if plan.noise_multiplier == 0:
    noise += f' ({plain_words.NO_PRIVACY})'
  text = _SENTENCES
  if plan.adaptive_clipping is not None:
    text += _WITH_ADAPTIVE_CLIPPING
  if about.rounds_done:
    is_known = isinstance(about.observed, participation_ledger.Observed)
    text += _WITH_ROUNDS if is_known else _WITHOUT_COHORTS
  said = builder.sentences(
      text,
      plan=plan,
      noise=noise,
      seen=about.observed,
      sensitivity=_SENSITIVITY.get(
          mechanism.name, 'of the mechanism, as documented'
      ),
      exactness=_EXACT if mechanism.sensitivity_is_exact(pattern) else _BOUND,
  )
  if plan.adaptive_clipping is not None:
    said['mechanism.adaptive_clipping'] = _adaptive_clipping(plan)
  if mechanism.complete_trees:
    said['accounting.squared_sensitivity_without_completion'] = (
        _without_completion(mechanism, pattern)
    )
  parameters = mechanism.describe()
  del parameters['name']
  return said | {
      'unit.participation': pattern.describe(),
      'unit.max_participations': limits.max_participations,
      'unit.min_index_gap': limits.min_index_gap,
      'unit.min_rounds_between': limits.min_index_gap - 1,
      'mechanism.name': mechanism.name,
      'mechanism.parameters': builder.readable(parameters),
      'mechanism.l2_norm_clip': plan.l2_norm_clip,
      'accounting.squared_sensitivity': plan.squared_sensitivity,
      'guarantee.epsilon_rdp': about.number(
          gaussian.rdp_epsilon(sigma=sigma, delta=delta)
      ),
      'guarantee.zcdp_rho': about.number(gaussian.zcdp_rho(sigma=sigma)),
      'guarantee.sigma_eff': sigma,
      'amplification.assumptions': dict.fromkeys(
          ('Poisson sampling', 'secret cohorts', 'trusted shuffler'),
          'not assumed',
      ),
  }


def details(
    plan,
    *,
    delta: float,
    num_rounds: Optional[int],
    relation: run_events.NeighboringRelation,
) -> dict[str, Any]:
  """Returns the details of a `DpFtrlPlan`, see `Plan.details`.

  Args:
    plan: A `DpFtrlPlan` with a noise multiplier.
    delta: Target delta, in (0, 1).
    num_rounds: Rounds after which the run stops, `None` for all.
    relation: Relation of epsilon.
  """
  rounds = plan.num_rounds if num_rounds is None else num_rounds
  mechanism = plan.mechanism.truncated(rounds)
  pattern = plan.participation.pattern.truncated(rounds)
  limits = pattern.limits(restart_every=mechanism.restart_every)
  spent, number = plan.spent(rounds), rounding.to_json_number
  sigma = plan.sigma(num_rounds=num_rounds, neighboring_relation=relation)
  found = {
      'epsilon_rdp': number(gaussian.rdp_epsilon(sigma=sigma, delta=delta)),
      'epsilon_by_neighboring_relation': {
          each.value: number(
              plan.epsilon(
                  delta=delta, num_rounds=num_rounds, neighboring_relation=each
              )
          )
          for each in run_events.NeighboringRelation
      },
      'mechanism': mechanism.name,
      'mechanism_parameters': catalogue.summary(mechanism),
      'rounds': rounds,
      'restart_every': mechanism.restart_every,
      'complete_trees': mechanism.complete_trees,
      'noise_multiplier': plan.noise_multiplier,
      'participation': pattern.describe(),
      'max_participations': limits.max_participations,
      'min_index_gap': limits.min_index_gap,
      'min_rounds_between': limits.min_rounds_between,
      'squared_sensitivity': spent['squared_sensitivity'],
      'squared_sensitivity_is_exact': mechanism.sensitivity_is_exact(pattern),
      'sigma_eff': sigma,
      'zcdp_rho': number(gaussian.zcdp_rho(sigma=sigma)),
      'accounting': _METHOD,
  }
  if mechanism.complete_trees:
    found['squared_sensitivity_without_completion'] = _without_completion(
        mechanism, pattern
    )
  if plan.adaptive_clipping is not None:
    found['adaptive_clipping'] = dataclasses.asdict(plan.adaptive_clipping)
  return found


def in_words(found: dict[str, Any]) -> list[tuple[str, str]]:
  """Returns lines (label, text) about the result of `details`."""
  trees = ''
  if found['restart_every'] is not None:
    trees += f', a new tree every {found["restart_every"]}'
  if found['complete_trees']:
    trees += ', trees completed'
  noise = rounding.rounded_up(found['noise_multiplier'], digits=7)
  exact = found['squared_sensitivity_is_exact']
  rho = rounding.rounded_up(rounding.from_json_number(found['zcdp_rho']))
  lines = [
      ('mechanism', f'{found["mechanism"]}, {found["rounds"]} rounds{trees}'),
      *(('', line) for line in _parameters(found['mechanism_parameters'])),
      (
          'noise',
          f'{noise}, standard deviation of one draw on the SUM, over the clip'
          ' norm',
      ),
      ('participation', found['participation']),
      (
          '',
          f'index gap {found["min_index_gap"]}, that is'
          f' {found["min_rounds_between"]} rounds strictly between',
      ),
      (
          'sensitivity',
          f'{found["squared_sensitivity"]:g} squared clip norms (zero-out),'
          f' {"exact" if exact else "an upper bound"}',
      ),
      ('', f'sigma {found["sigma_eff"]:.6g}, zCDP rho {rho}'),
  ]
  if 'squared_sensitivity_without_completion' in found:
    plain = found['squared_sensitivity_without_completion']
    lines.append(('', f'{plain:g} if the trees were not completed'))
  if 'adaptive_clipping' in found:
    share = found['adaptive_clipping']['budget_share']
    lines.append((
        'clip norm',
        f'adaptive; {share:g} of 1/sigma^2 is for the bits that it follows',
    ))
  lines.append(('accounting', found['accounting']))
  return lines


def _parameters(parameters: dict[str, Any]) -> list[str]:
  """Returns lines with the number of bands, or BLT's parameters as float32."""
  if 'weights' in parameters:
    return [
        f'{name:<8}'
        + ' '.join(str(np.float32(number)) for number in parameters[name])
        for name in ('weights', 'decays')
    ]
  if 'num_bands' in parameters:
    return [f'bands {parameters["num_bands"]}']
  return []


def _without_completion(mechanism, pattern) -> float:
  """Returns the squared sensitivity that the trees have without completion."""
  plain = dataclasses.replace(mechanism, complete_trees=False)
  return plain.squared_sensitivity(pattern)


def _adaptive_clipping(plan) -> dict[str, Any]:
  """Returns the part of the statement about an adaptive clip norm."""
  multipliers = plan.noise_multiplier_by_domain
  return {
      **dataclasses.asdict(plan.adaptive_clipping),
      'budget_share_of': '1 / sigma^2, for the quantile bits',
      'rounds_per_clip_norm': adaptive_clipping.rounds_per_clip_norm(
          plan.mechanism
      ),
      'value_noise_multiplier': multipliers['value'],
      'quantile_noise_multiplier': multipliers['quantile'],
      'quantile_noise_on_sum': (
          adaptive_clipping.BIT * multipliers['quantile']
      ),
      'key_domains': ', '.join(multipliers),
  }
