# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Everything that there is to say about a run, computed and printed."""

import dataclasses
import json
from typing import Any, Optional

import numpy as np

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import adaptive_clipping as adaptive_clipping_lib
from tff_dp.mechanisms import catalogue
from tff_dp.mechanisms import mechanism as mechanism_lib

_METHOD = 'one Gaussian mechanism, exact conversion; no amplification claimed'


def of_run(
    mechanism: mechanism_lib.Mechanism,
    pattern: patterns.ParticipationPattern,
    *,
    noise_multiplier: float,
    delta: float,
    neighboring_relation: str,
    adaptive_clipping: Optional[adaptive_clipping_lib.AdaptiveClipping] = None,
) -> dict[str, Any]:
  """Returns the guarantee of a whole run, as JSON types.

  Epsilons are for `neighboring_relation` unless named otherwise; S2 is always
  the one for zero-out.

  Args:
    mechanism: What noise is added.
    pattern: What is promised about every client.
    noise_multiplier: Std of one draw on the SUM, over the clip norm.
    delta: In (0, 1).
    neighboring_relation: How two neighbouring data sets differ.
    adaptive_clipping: How the clip norm follows the data; its share of the
      guarantee is part of `noise_multiplier`.
  """
  _checks.non_negative(noise_multiplier=noise_multiplier)
  _checks.delta(delta=delta)
  relation = run_events.NeighboringRelation(neighboring_relation)
  limits = pattern.limits(restart_every=mechanism.restart_every)
  squared_sensitivity = mechanism.squared_sensitivity(pattern)

  def sigma_under(named_relation):
    return run_events.effective_sigma(
        noise_multiplier=noise_multiplier,
        squared_sensitivity=squared_sensitivity,
        neighboring_relation=named_relation,
    )

  def epsilon_under(named_relation):
    return rounding.to_json_number(
        gaussian.exact_epsilon(sigma=sigma_under(named_relation), delta=delta)
    )

  sigma = sigma_under(relation)
  result = {
      'epsilon': epsilon_under(relation),
      'epsilon_rdp': rounding.to_json_number(
          gaussian.rdp_epsilon(sigma=sigma, delta=delta)
      ),
      'delta': delta,
      'unit': 'client',
      'neighboring_relation': relation.value,
      'neighboring_relation_means': relation.description,
      'epsilon_by_neighboring_relation': {
          other.value: epsilon_under(other)
          for other in run_events.NeighboringRelation
      },
      'mechanism': mechanism.name,
      'mechanism_parameters': catalogue.summary(mechanism),
      'rounds': mechanism.num_rounds,
      'restart_every': mechanism.restart_every,
      'complete_trees': mechanism.complete_trees,
      'noise_multiplier': noise_multiplier,
      'participation': pattern.describe(),
      'max_participations': limits.max_participations,
      'min_index_gap': limits.min_index_gap,
      'min_rounds_between': limits.min_rounds_between,
      'squared_sensitivity': _whole(squared_sensitivity),
      'squared_sensitivity_is_exact': mechanism.sensitivity_is_exact(pattern),
      'sigma_eff': sigma,
      'zcdp_rho': rounding.to_json_number(gaussian.zcdp_rho(sigma=sigma)),
      'accounting': _METHOD,
  }
  if mechanism.complete_trees:
    plain = dataclasses.replace(mechanism, complete_trees=False)
    result['squared_sensitivity_without_completion'] = _whole(
        plain.squared_sensitivity(pattern)
    )
  if adaptive_clipping is not None:
    result['adaptive_clipping'] = dataclasses.asdict(adaptive_clipping)
  return result


def show(result: dict[str, Any], output_format: str) -> None:
  """Prints what `of_run` returned on stdout.

  Args:
    result: May have a `headline`, printed first.
    output_format: 'text' or 'json'.
  """
  if output_format == 'json':
    print(json.dumps(result, indent=2, allow_nan=False))
  else:
    print('\n'.join(_lines(result)))


def _whole(value: float) -> float | int:
  """Returns an integer where the value is one: S2 of trees is a count."""
  return int(value) if float(value).is_integer() else value


def _parameter_lines(parameters: dict[str, Any]) -> list[str]:
  """Returns bands, or the numbers of BLT as float32 needs them."""
  if 'weights' in parameters:
    return [
        f'               {name:<8}'
        + ' '.join(str(np.float32(number)) for number in parameters[name])
        for name in ('weights', 'decays')
    ]
  if 'num_bands' in parameters:
    return [f'               bands {parameters["num_bands"]}']
  return []


def _lines(result: dict[str, Any]) -> list[str]:
  def up(value):
    return rounding.rounded_up(rounding.from_json_number(value))

  lines = [result['headline']] if 'headline' in result else []
  if result['epsilon'] == 'inf':
    lines.append('NO PRIVACY: epsilon is infinite')
  else:
    lines.append(
        f'epsilon {up(result["epsilon"])} at delta {result["delta"]:g}'
    )
  lines += [
      f'  by Renyi DP, for comparison with papers: {up(result["epsilon_rdp"])}'
  ]
  lines += [
      f'  under {relation} adjacency: {up(epsilon)}'
      for relation, epsilon in result['epsilon_by_neighboring_relation'].items()
      if relation != result['neighboring_relation']
  ]
  trees = ''
  if result['restart_every'] is not None:
    trees += f', a new tree every {result["restart_every"]}'
  if result['complete_trees']:
    trees += ', trees completed'
  noise = rounding.rounded_up(result['noise_multiplier'], digits=7)
  exact = result['squared_sensitivity_is_exact']
  lines += [
      f'unit           {result["unit"]}: all its contributions to the run',
      f'neighbours     {result["neighboring_relation_means"]}',
      f'mechanism      {result["mechanism"]}, {result["rounds"]} rounds{trees}',
      *_parameter_lines(result['mechanism_parameters']),
      f'noise          {noise}, standard deviation of one draw on the SUM, over'
      ' the clip norm',
      f'participation  {result["participation"]}',
      f'               index gap {result["min_index_gap"]}, that is'
      f' {result["min_rounds_between"]} rounds strictly between',
      f'sensitivity    {result["squared_sensitivity"]:g} squared clip norms'
      f' (zero-out), {"exact" if exact else "an upper bound"}',
      f'               sigma {result["sigma_eff"]:.6g}, zCDP rho'
      f' {up(result["zcdp_rho"])}',
  ]
  if 'squared_sensitivity_without_completion' in result:
    plain = result['squared_sensitivity_without_completion']
    lines.append(f'               {plain:g} if the trees were not completed')
  if 'adaptive_clipping' in result:
    clipping = result['adaptive_clipping']
    lines.append(
        f'clip norm      adaptive; {clipping["budget_share"]:g} of 1/sigma^2 is'
        ' for the bits that it follows'
    )
  lines.append(f'accounting     {result["accounting"]}')
  return lines
