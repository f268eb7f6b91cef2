# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Check-ins and shuffling on the command line: `CheckInPlan` from flags."""

import argparse
from typing import Any, NamedTuple

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import best_bound
from tff_dp.cli import errors
from tff_dp.cli import plots
from tff_dp.cli import results
from tff_dp.mechanisms import randomizers
from tff_dp.participation import check_ins
from tff_dp.participation import protocol as protocol_lib
from tff_dp.participation import shuffled_check_in
from tff_dp.plans import check_ins as plan_lib

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
_PROTOCOLS = ('fixed-window', 'averaged', 'sliding-window')
_RANDOMIZERS = ('any', 'randomized-response', 'sphere', 'laplace')
_GAUSSIAN = 'gaussian'
_ALLOCATION = 'random-allocation'


class _Kind(NamedTuple):
  """One kind: description, examples, flags, and the flag of a picture."""

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
_KINDS = {
    'shuffle': _Kind(
        description=(
            'of reports that a trusted shuffler permutes. With\n'
            '--rounds, everybody reports in every round.'
        ),
        examples="""
  tff-dp account shuffle --population 100000 --local-epsilon 1 --delta 1e-6
  tff-dp calibrate shuffle --population 100000 --epsilon 0.1 --delta 1e-6
""",
        required=('population',),
        optional=('rounds',),
        varied='rounds',
    ),
    'shuffled-check-in': _Kind(
        description=(
            'of rounds in which clients take part by coins of\n'
            'their own, and a trusted shuffler permutes the reports\n'
            '(arXiv:2206.03151).'
        ),
        examples="""
  LDP-SGD on 60,000 clients, for any randomizer:
    tff-dp account shuffled-check-in --population 60000 --check-in-rate 0.1 \\
        --local-epsilon 2 --rounds 6800 --delta 1.6666e-5
  the same with the one-bit randomizer:
    tff-dp account shuffled-check-in --population 60000 --check-in-rate 0.1 \\
        --local-epsilon 2 --randomizer sphere --rounds 6800 \\
        --delta 1.6666e-5
  the epsilon of its reports for a budget of all rounds:
    tff-dp calibrate shuffled-check-in --population 60000 \\
        --check-in-rate 0.1 --randomizer sphere --rounds 6800 \\
        --epsilon 1 --delta 1.6666e-5
""",
        required=('population', 'check_in_rate', 'rounds'),
        optional=(),
        varied='rounds',
    ),
    'random-check-in': _Kind(
        description=(
            'of random check-ins (arXiv:2007.06605): clients\n'
            'add the noise, the server is trusted to keep secret who checked\n'
            'in. --rounds above --slots means further passes with new coins,\n'
            'or, with sliding-window, the rounds of the whole run.'
        ),
        examples="""
  tff-dp account random-check-in --protocol fixed-window --slots 2000 \\
      --check-in-probability 0.3 --local-epsilon 0.5 --delta 1e-6
  tff-dp account random-check-in --protocol averaged --slots 2000 \\
      --population 1000000 --local-epsilon 0.5 --delta 1e-6
""",
        required=('slots',),
        optional=('population', 'rounds', 'check_in_probability'),
        varied='slots',
    ),
    _ALLOCATION: _Kind(
        description=(
            'of check-ins with Gaussian noise on the sum of\n'
            'every slot, empty ones too (arXiv:2502.08202). --rounds above\n'
            '--slots means further passes with new coins.'
        ),
        examples="""
  tff-dp account random-allocation --population 1000000 --slots 2000 \\
      --noise-multiplier 1 --delta 1e-6
  tff-dp calibrate random-allocation --slots 2000 --epsilon 1 --delta 1e-6
""",
        required=('slots',),
        optional=('population', 'rounds', 'check_in_probability', 'selected'),
        varied='slots',
    ),
}
SAYS = {
    'account': 'Prints epsilon ',
    'calibrate': 'Prints the noise for an epsilon ',
    'statement': 'Prints the privacy statement ',
}


def add_arguments(
    parser: errors.Parser, kind: str, command: str
) -> None:
  """Adds the flags of protocol, noise and bound."""
  add = parser.add
  described = _KINDS[kind]
  parser.description = SAYS[command] + described.description
  parser.epilog = f'examples:{described.examples}'
  for flag in (*described.required, *described.optional):
    parser.add_argument(
        errors.flag(flag), required=flag in described.required, **_FLAGS[flag]
    )
  if kind == 'random-check-in':
    add('--protocol', choices=_PROTOCOLS, default='fixed-window',
        help='one winner a slot, all averaged, or one winner with a window that'
        ' slides (default: fixed-window)')
  if command == 'calibrate':
    add('--epsilon', float, required=True, help='the budget of the whole run')
  _add_noise(parser, kind, command)
  add('--clip-norm', float, default=1.0, help='bound on the norm of one report;'
      ' epsilon does not depend on it, the statement names it (default: 1)')
  add('--delta', float, required=True, help='in (0, 1), below 1/population')
  add('--bound', choices=best_bound.BOUNDS, default='best', help='use this'
      ' argument only (default: the best that holds)')
  add('--published-proofs', action='store_true', help="only arguments from"
      " papers, none of this project's own")
  if command != 'account':
    return
  parser.add_argument(
      '--plot',
      metavar='FILE',
      help=f'draw epsilon against {described.varied} for each argument, as a'
      ' PNG',
  )


def _add_noise(parser, kind: str, command: str) -> None:
  """Adds the flags of the local randomizer, or of the server's noise."""
  add = parser.add
  solves = command == 'calibrate'
  if kind == _ALLOCATION:
    if not solves:
      add('--noise-multiplier', float, required=True, metavar='SIGMA',
          help='noise on the sum of a slot over the bound on one contribution')
    if command != 'statement':
      parser.add_relation()
    return
  if not solves:
    noise = parser.add_mutually_exclusive_group(required=True)
    add('--local-epsilon', float, metavar='EPS0', to=noise, help='epsilon of'
        ' one report by itself')
    add('--noise-multiplier', float, metavar='TAU', to=noise,
        help='instead: Gaussian noise at the client, over its clip norm')
  add('--local-delta', float, metavar='DELTA0', help='delta of one report by'
      ' itself (default: 0)')
  add('--randomizer', choices=_RANDOMIZERS + (_GAUSSIAN,) * solves,
      default='any', help='what is known of the randomizer beyond EPS0'
      ' (default: any)')
  add('--categories', int, metavar='K', help='of randomized-response (default:'
      ' 2)')


def plan_of(arguments: argparse.Namespace) -> plan_lib.CheckInPlan:
  """Returns the plan of the flags. The noise is 1 if its flag is missing."""
  for name in ('population', 'rounds', 'slots', 'selected'):
    _checks.optional_integer_at_least(
        1, **{name: getattr(arguments, name, None)}
    )
  protocol, num_passes = _protocol_of(arguments)
  return plan_lib.CheckInPlan(
      protocol,
      _randomizer_of(arguments),
      num_passes=num_passes,
      bound=arguments.bound,
      published_proofs=arguments.published_proofs,
  )


def run_of(arguments: argparse.Namespace) -> results.PlanRun:
  """Returns the run that the flags describe."""
  _checks.delta(delta=arguments.delta)
  if getattr(arguments, 'plot', None) is not None:
    plots.check(arguments.plot)
  return run_with(arguments, plan_of(arguments))


def run_with(
    arguments: argparse.Namespace, plan: plan_lib.CheckInPlan
) -> results.PlanRun:
  """Returns the run of a plan, with the relation and clients of the flags."""
  options = {
      'neighboring_relation': _relation_of(arguments),
      'population': getattr(arguments, 'population', None),
  }
  return results.PlanRun(plan, None, arguments.delta, options)


def calibrated(
    arguments: argparse.Namespace,
) -> tuple[results.PlanRun, dict[str, Any]]:
  """Returns the run within the budget, and the solution."""
  plan = plan_of(arguments).calibrated(
      epsilon=arguments.epsilon,
      delta=arguments.delta,
      neighboring_relation=_relation_of(arguments),
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
          f' {arguments.epsilon:g} at delta {arguments.delta:g}'
      ),
  }


def write_plot(arguments: argparse.Namespace) -> None:
  """Writes a PNG of epsilon by every bound against rounds or slots."""
  varied = _KINDS[arguments.kind].varied

  def epsilons_of(changed):
    return plan_of(changed).epsilon_by_bound(
        delta=changed.delta, neighboring_relation=_relation_of(changed)
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
  plots.write_epsilons(
      arguments.plot,
      arguments,
      epsilons_of,
      varied=varied,
      title=f'{arguments.kind}: {", ".join(said)}',
  )


def _protocol_of(
    arguments: argparse.Namespace,
) -> tuple[protocol_lib.CheckInProtocol, int]:
  """Returns (protocol, number of passes)."""
  kind, population = arguments.kind, arguments.population
  if kind == 'shuffle':
    rounds = 1 if arguments.rounds is None else arguments.rounds
    return shuffled_check_in.ShuffledReports(rounds, population), 1
  if kind == 'shuffled-check-in':
    return (
        shuffled_check_in.ShuffledCheckIn(
            arguments.rounds, arguments.check_in_rate, population
        ),
        1,
    )
  probability = arguments.check_in_probability
  if kind == _ALLOCATION:
    return (
        check_ins.RandomAllocation(
            arguments.slots,
            arguments.selected,
            1.0 if probability is None else probability,
        ),
        _passes(arguments),
    )
  if arguments.protocol == 'fixed-window':
    protocol = check_ins.FixedWindowCheckIn(
        arguments.slots, 1.0 if probability is None else probability
    )
    return protocol, _passes(arguments)
  if probability not in (None, 1.0):
    raise _checks.ArgumentError(
        'check_in_probability',
        probability,
        f'1, or nothing, with --protocol={arguments.protocol}',
    )
  if arguments.protocol == 'averaged':
    if population is None:
      raise _checks.ArgumentError(
          'population', None, 'a number with --protocol=averaged'
      )
    protocol = check_ins.AveragedCheckIn(arguments.slots, population)
    return protocol, _passes(arguments)
  # One client wakes in every round, so there are as many clients as rounds.
  horizons = {
      name: getattr(arguments, name)
      for name in ('rounds', 'population')
      if getattr(arguments, name) is not None
  }
  for name, horizon in horizons.items():
    if arguments.slots > horizon:
      raise _too_long(arguments, name)
  rounds = next(iter(horizons.values()), arguments.slots)
  return check_ins.SlidingWindowCheckIn(rounds, arguments.slots), 1


def _randomizer_of(arguments: argparse.Namespace):
  """Returns the noise, at the client or at the server."""
  clip = arguments.clip_norm
  # In a calibration the flag is missing, and the value does not matter.
  noise = getattr(arguments, 'noise_multiplier', None)
  local_epsilon = getattr(arguments, 'local_epsilon', None)
  if arguments.kind == _ALLOCATION:
    return plan_lib.CentralGaussian(1.0 if noise is None else noise, clip)
  name = arguments.randomizer
  if noise is not None or name == _GAUSSIAN:
    for other in ('local_delta', 'categories'):
      if getattr(arguments, other) is not None:
        raise _checks.ArgumentError(
            other,
            getattr(arguments, other),
            'nothing with Gaussian noise, from which it follows',
        )
    if noise is not None and name != 'any':
      raise _checks.ArgumentError(
          'randomizer', name, 'nothing with --noise-multiplier, of Gaussians'
      )
    return randomizers.Gaussian(1.0 if noise is None else noise, clip)
  if local_epsilon is None:
    local_epsilon = 1.0
  if arguments.local_delta and name != 'any':
    raise _checks.ArgumentError(
        'local_delta', arguments.local_delta, f'0 with --randomizer={name}'
    )
  if arguments.categories is not None and name != 'randomized-response':
    raise _checks.ArgumentError(
        'categories',
        arguments.categories,
        f'nothing with --randomizer={name}',
    )
  if name == 'any':
    return randomizers.Declared(local_epsilon, arguments.local_delta or 0.0)
  if name == 'sphere':
    return randomizers.Sphere(local_epsilon, clip)
  if name == 'laplace':
    return randomizers.Laplace(local_epsilon, clip)
  categories = 2 if arguments.categories is None else arguments.categories
  return randomizers.RandomizedResponse(local_epsilon, categories)


def _passes(arguments) -> int:
  """Returns the number of passes through all slots."""
  if arguments.rounds is None:
    return 1
  if arguments.slots > arguments.rounds:
    raise _too_long(arguments, 'rounds')
  if arguments.rounds % arguments.slots:
    raise _checks.ArgumentError(
        'rounds',
        arguments.rounds,
        f'a multiple of --slots={arguments.slots}: whole passes',
    )
  return arguments.rounds // arguments.slots


def _too_long(arguments, name: str) -> _checks.ArgumentError:
  return _checks.ArgumentError(
      'slots',
      arguments.slots,
      f'at most {errors.flag(name)}={getattr(arguments, name)}: a window cannot'
      ' be longer than the run',
  )


def _relation_of(arguments) -> run_events.NeighboringRelation | None:
  name = getattr(arguments, 'neighboring_relation', None)
  return None if name is None else run_events.NeighboringRelation(name)
