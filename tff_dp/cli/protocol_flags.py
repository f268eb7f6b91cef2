# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags of plans whose clients decide themselves whether to take part."""

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.accounting.events import run_events
from tff_dp.cli import errors
from tff_dp.cli import plots
from tff_dp.cli import results
from tff_dp.plans import protocol_plan

FLAGS = {
    'num_rounds': 'rounds',
    'num_slots': 'slots',
    'window': 'slots',
    'num_selected': 'selected',
    'num_categories': 'categories',
    'min_num_clients': 'population',
    'l2_norm_clip': 'clip_norm',
    'l1_norm_clip': 'clip_norm',
}


class Kind(NamedTuple):
  """A kind of runs on the command line.

  Attributes:
    description: Text for `--help`, which continues `SAYS`.
    examples: Examples for `--help`.
    required: Names of the flags in `_FLAGS` that this kind requires.
    optional: Names of the flags in `_FLAGS` that this kind also accepts.
    varied: Flag on the horizontal axis of `--plot`.
  """

  description: str
  examples: str
  required: tuple[str, ...]
  optional: tuple[str, ...]
  varied: str


_FLAGS = {
    'population': dict(
        type=int,
        metavar='N',
        help='clients that are sure to flip their coins and to deliver',
    ),
    'check_in_rate': dict(
        type=float,
        metavar='P',
        help='probability with which a client takes part in a round',
    ),
    'rounds': dict(
        type=int, metavar='ROUNDS', help='rounds of the whole run'
    ),
    'slots': dict(
        type=int,
        metavar='M',
        help='slots of one pass, or of a sliding window',
    ),
    'check_in_probability': dict(
        type=float,
        metavar='P0',
        help='probability with which a client takes part at all (default: 1)',
    ),
    'selected': dict(
        type=int,
        metavar='K',
        default=1,
        help='slots of each client in one pass (default: 1)',
    ),
}
SAYS = {
    'account': 'Prints epsilon ',
    'calibrate': 'Prints the noise for an epsilon ',
    'statement': 'Prints the privacy statement ',
}


def add_arguments(parser: errors.Parser, kind: Kind, command: str) -> None:
  """Adds description, examples, and the flags of the protocol.

  Args:
    parser: Parser of the command.
    kind: Kind of runs.
    command: 'account', 'calibrate' or 'statement'.
  """
  parser.description = SAYS[command] + kind.description
  parser.epilog = f'examples:{kind.examples}'
  for flag in (*kind.required, *kind.optional):
    parser.add_argument(
        errors.flag(flag), required=flag in kind.required, **_FLAGS[flag]
    )
  if command == 'calibrate':
    parser.add(
        '--epsilon', float, required=True, help='the budget of the whole run'
    )


def add_guarantee(parser: errors.Parser) -> None:
  """Adds the flags for clip norm, delta and the choice of bounds."""
  add = parser.add
  add_clip_norm_and_delta(parser)
  add('--bound', metavar='NAME', default='best', help='use only this one of the'
      ' bounds that the output names (default: the best that holds)')
  add('--published-proofs', action='store_true', help="use only bounds with a"
      " published proof, none with this project's own")


def add_clip_norm_and_delta(parser: errors.Parser) -> None:
  """Adds the flags that every protocol has."""
  add = parser.add
  add('--clip-norm', float, default=1.0, help='bound on the norm of one report;'
      ' epsilon does not depend on it, the statement names it (default: 1)')
  add('--delta', float, required=True, help='at most 0.1, below 1/population')


def check_counts(arguments: argparse.Namespace) -> None:
  """Raises `ArgumentError` unless all given counts are integers from 1 on."""
  for name in ('population', 'rounds', 'slots', 'selected'):
    _checks.optional_integer_at_least(
        1, **{name: getattr(arguments, name, None)}
    )


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
  """Returns the arguments of a plan that do not depend on its protocol."""
  return {
      'bound': arguments.bound,
      'published_proofs': arguments.published_proofs,
  }


def run_of(
    arguments: argparse.Namespace,
    plan_of: Callable[[argparse.Namespace], protocol_plan.ProtocolPlan],
) -> results.PlanRun:
  """Returns the run that the flags describe."""
  _checks.delta(delta=arguments.delta)
  return run_with(arguments, plan_of(arguments))


def run_with(
    arguments: argparse.Namespace, plan: protocol_plan.ProtocolPlan
) -> results.PlanRun:
  """Returns the run of a plan, with the relation and clients of the flags."""
  options = {
      'neighboring_relation': relation_of(arguments),
      'population': getattr(arguments, 'population', None),
  }
  return results.PlanRun(plan, None, arguments.delta, options)


def calibrated(
    arguments: argparse.Namespace,
    plan_of: Callable[[argparse.Namespace], protocol_plan.ProtocolPlan],
) -> tuple[results.PlanRun, dict[str, Any]]:
  """Returns the run with the noise that the budget needs, and the solution.

  The solution has the name of the parameter that was solved for, and a sentence
  with its value.
  """
  plan = plan_of(arguments).calibrated(
      epsilon=arguments.epsilon,
      delta=arguments.delta,
      neighboring_relation=relation_of(arguments),
  )
  if plan.noise_multiplier is not None:
    solved_for = 'noise_multiplier'
    number = rounding.rounded_up(plan.noise_multiplier, digits=7)
  else:
    solved_for = 'local_epsilon'
    number = results.rounded_down(plan.randomizer.local_epsilon)
  return run_with(arguments, plan), {
      'solved_for': solved_for,
      'answer': (
          f'{errors.flag(solved_for)}={number} is within epsilon'
          f' {rounding.short(arguments.epsilon)} at delta'
          f' {rounding.short(arguments.delta)}'
      ),
  }


def write_plot(
    arguments: argparse.Namespace,
    kind: Kind,
    plan_of: Callable[[argparse.Namespace], protocol_plan.ProtocolPlan],
) -> None:
  """Writes a PNG of epsilon by every bound against rounds or slots.

  Args:
    arguments: The flags.
    kind: Kind of runs, with the flag on the horizontal axis.
    plan_of: Function that returns the plan of some flags.
  """
  varied, passes = kind.varied, plan_of(arguments).num_passes

  def epsilons_of(changed):
    if varied == 'slots' and changed.rounds is not None:
      # As many passes as the run has, each with fewer slots.
      changed.rounds = passes * changed.slots
    return plan_of(changed).epsilon_by_bound(
        delta=changed.delta, neighboring_relation=relation_of(changed)
    )

  names = (
      'protocol', 'population', 'check_in_rate', 'check_in_probability',
      'slots', 'local_epsilon', 'local_delta', 'randomizer',
      'noise_multiplier',
  )
  said = [
      f'{name.replace("_", " ")} {value}'
      for name in names
      if name != varied
      and (value := getattr(arguments, name, None)) is not None
  ]
  if passes > 1:
    said.append(f'{passes} passes')
  plots.write_epsilons(
      arguments.plot,
      arguments,
      epsilons_of,
      varied=varied,
      title=f'Epsilon of {arguments.kind.replace("-", " ")}: {", ".join(said)}',
  )


def passes_of(arguments) -> int:
  """Returns the number of passes through all slots, 1 without `--rounds`.

  Raises:
    ArgumentError: If the rounds are not a multiple of the slots.
  """
  if arguments.rounds is None:
    return 1
  if arguments.slots > arguments.rounds:
    raise too_long(arguments, 'rounds')
  if arguments.rounds % arguments.slots:
    raise _checks.ArgumentError(
        'rounds',
        arguments.rounds,
        f'a multiple of --slots={arguments.slots}, so that passes are whole',
    )
  return arguments.rounds // arguments.slots


def too_long(arguments, name: str) -> _checks.ArgumentError:
  """Returns the error about a window of slots that is longer than the run.

  Args:
    arguments: The flags.
    name: Name of the flag that bounds `--slots`, 'rounds' or 'population'.
  """
  return _checks.ArgumentError(
      'slots',
      arguments.slots,
      f'at most {errors.flag(name)}={getattr(arguments, name)}: a window cannot'
      ' be longer than the run',
  )


def relation_of(arguments) -> run_events.NeighboringRelation | None:
  """Returns the relation that the flags ask for, `None` for the plan's."""
  name = getattr(arguments, 'neighboring_relation', None)
  return None if name is None else run_events.NeighboringRelation(name)
