# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Flags that describe a DP-FTRL run, shared by `account` and `calibrate`."""

import argparse
import json
import sys

from tff_dp import _checks
from tff_dp import mechanisms
from tff_dp.accounting import events
from tff_dp.accounting import gaussian
from tff_dp.accounting import patterns
from tff_dp.accounting import printing
from tff_dp.mechanisms import mechanism as mechanism_lib

_PARTICIPATIONS = ('min-separation', 'fixed-order', 'once-per-tree')


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of mechanism, participation, relation and output."""
  parser.add_argument(
      '--mechanism',
      choices=tuple(mechanisms.BY_NAME),
      default='honaker',
      help='what noise is added (default: honaker)',
  )
  parser.add_argument(
      '--restart-every',
      type=int,
      metavar='ROUNDS',
      help='rounds of one noise tree (default: one tree for the whole run)',
  )
  parser.add_argument(
      '--complete-trees',
      action='store_true',
      help='extend each finished tree to a power of two; costs privacy',
  )
  parser.add_argument(
      '--participation',
      choices=_PARTICIPATIONS,
      default='min-separation',
      help='what is promised about every client (default: min-separation)',
  )
  parser.add_argument(
      '--max-participations',
      type=int,
      default=1,
      metavar='K',
      help='most rounds of one client, for min-separation (default: 1)',
  )
  separation = parser.add_mutually_exclusive_group()
  separation.add_argument(
      '--min-index-gap',
      type=int,
      default=1,
      metavar='B',
      help='least difference of the indices of two rounds of one client; 1'
      ' allows every round (default: 1)',
  )
  separation.add_argument(
      '--min-rounds-between',
      type=int,
      metavar='B-1',
      help='the same, as rounds strictly between',
  )
  parser.add_argument(
      '--rounds-per-epoch',
      type=int,
      metavar='ROUNDS',
      help='rounds of one pass, for fixed-order',
  )
  parser.add_argument(
      '--neighboring-relation',
      choices=tuple(relation.value for relation in events.NeighboringRelation),
      default='zero_out',
      help='how two neighbouring data sets differ (default: zero_out)',
  )
  parser.add_argument(
      '--delta', type=float, required=True, help='in (0, 1), below 1/population'
  )
  parser.add_argument('--format', choices=('text', 'json'), default='text')


def mechanism_of(
    arguments: argparse.Namespace, num_rounds: int
) -> mechanism_lib.Mechanism:
  """Returns the mechanism that the flags describe."""
  _checks.integer_at_least(1, rounds=num_rounds)
  options = {}
  if arguments.restart_every is not None or arguments.complete_trees:
    if arguments.mechanism == 'independent':
      raise _checks.ArgumentError(
          'mechanism',
          arguments.mechanism,
          'tree or honaker with --restart-every and --complete-trees',
      )
    options = dict(
        restart_every=arguments.restart_every,
        complete_trees=arguments.complete_trees,
    )
  return mechanisms.BY_NAME[arguments.mechanism](num_rounds, **options)


def pattern_of(
    arguments: argparse.Namespace, num_rounds: int
) -> patterns.ParticipationPattern:
  """Returns the promise about every client that the flags describe."""
  kind = arguments.participation
  if (kind == 'fixed-order') != (arguments.rounds_per_epoch is not None):
    raise _checks.ArgumentError(
        'rounds_per_epoch',
        arguments.rounds_per_epoch,
        'a number of rounds with --participation=fixed-order, and only then',
    )
  if kind == 'fixed-order':
    return patterns.FixedOrderPattern(
        num_rounds, rounds_per_epoch=arguments.rounds_per_epoch
    )
  if kind == 'once-per-tree':
    return patterns.OncePerTreePattern(num_rounds)
  gap = arguments.min_index_gap
  if arguments.min_rounds_between is not None:
    _checks.integer_at_least(
        0, min_rounds_between=arguments.min_rounds_between
    )
    gap = arguments.min_rounds_between + 1
  return patterns.MinSeparationPattern(
      num_rounds,
      min_index_gap=gap,
      max_participations=arguments.max_participations,
  )


def guarantee(
    arguments: argparse.Namespace, num_rounds: int, noise_multiplier: float
) -> dict[str, object]:
  """Returns everything that there is to say about the run, as JSON types.

  Epsilons are for the neighbouring relation that the flags name; S2 is always
  the one for zero-out.
  """
  _checks.non_negative(noise_multiplier=noise_multiplier)
  _checks.in_open(0, 1, delta=arguments.delta)
  mechanism = mechanism_of(arguments, num_rounds)
  pattern = pattern_of(arguments, num_rounds)
  limits = pattern.limits(restart_every=mechanism.restart_every)
  squared_sensitivity = mechanism.squared_sensitivity(pattern)
  relation = events.NeighboringRelation(arguments.neighboring_relation)
  sigma = events.effective_sigma(
      noise_multiplier=noise_multiplier,
      squared_sensitivity=squared_sensitivity,
      neighboring_relation=relation,
  )
  result = {
      'mechanism': arguments.mechanism,
      'rounds': num_rounds,
      'noise_multiplier': noise_multiplier,
      'participation': pattern.describe(),
      'max_participations': limits.max_participations,
      'min_index_gap': limits.min_index_gap,
      'min_rounds_between': limits.min_rounds_between,
      'restart_every': mechanism.restart_every,
      'complete_trees': mechanism.complete_trees,
      'unit': 'client',
      'neighboring_relation': relation.value,
      'neighboring_relation_means': relation.description,
      'squared_sensitivity': squared_sensitivity,
      'sigma_eff': sigma,
      'zcdp_rho': printing.to_json_number(gaussian.zcdp_rho(sigma=sigma)),
      'delta': arguments.delta,
      'epsilon': printing.to_json_number(
          gaussian.exact_epsilon(sigma=sigma, delta=arguments.delta)
      ),
      'epsilon_rdp': printing.to_json_number(
          gaussian.rdp_epsilon(sigma=sigma, delta=arguments.delta)
      ),
      'accounting': 'one Gaussian mechanism, exact conversion; no amplification',
  }
  if mechanism.complete_trees:
    plain = argparse.Namespace(**{**vars(arguments), 'complete_trees': False})
    result['squared_sensitivity_without_completion'] = mechanism_of(
        plain, num_rounds
    ).squared_sensitivity(pattern)
  return result


def show(result: dict[str, object], output_format: str) -> None:
  """Prints what `guarantee` returned on stdout."""
  if output_format == 'json':
    json.dump(result, sys.stdout, indent=2)
    print()
    return
  number = lambda key: printing.rounded_up(
      printing.from_json_number(result[key])
  )
  epsilon = f'epsilon {number("epsilon")} at delta {result["delta"]:g}'
  if result['epsilon'] == 'inf':
    epsilon = 'NO PRIVACY: epsilon is infinite'
  lines = [
      epsilon,
      f'  (RDP, for comparison with papers: {number("epsilon_rdp")})',
      f'unit            {result["unit"]}',
      f'neighbours      {result["neighboring_relation_means"]}',
      f'mechanism       {result["mechanism"]}, {result["rounds"]} rounds'
      + (
          f', restart every {result["restart_every"]}'
          if result['restart_every']
          else ''
      )
      + (', trees completed' if result['complete_trees'] else ''),
      'noise           '
      + printing.rounded_up(result['noise_multiplier'], digits=7)
      + ' (standard deviation of one draw on the sum, over the clip norm)',
      f'participation   {result["participation"]}',
      f'                index gap {result["min_index_gap"]}, that is'
      f' {result["min_rounds_between"]} rounds strictly between',
      f'sensitivity     {result["squared_sensitivity"]:g}, squared, in clip'
      f' norms; sigma {result["sigma_eff"]:.6g}, zCDP rho {number("zcdp_rho")}',
      f'accounting      {result["accounting"]}',
  ]
  if 'squared_sensitivity_without_completion' in result:
    plain = result['squared_sensitivity_without_completion']
    lines.insert(-1, f'                {plain:g} if trees were not completed')
  print('\n'.join(lines))
