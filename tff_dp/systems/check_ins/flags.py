# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Check-ins and shuffling on the command line: `CheckInPlan` from flags."""

import argparse
from typing import Any

from tff_dp import _checks
from tff_dp.cli import errors
from tff_dp.cli import protocol_flags
from tff_dp.cli import results
from tff_dp.mechanisms import randomizers
from tff_dp.participation import protocol as protocol_lib
from tff_dp.systems.check_ins import plan as plan_lib
from tff_dp.systems.check_ins import shuffled
from tff_dp.systems.check_ins import windows

FLAGS = protocol_flags.FLAGS
_PROTOCOLS = ('fixed-window', 'averaged', 'sliding-window')
_RANDOMIZERS = ('any', 'randomized-response', 'sphere', 'laplace')
_GAUSSIAN = 'gaussian'
_KINDS = {
    'shuffle': protocol_flags.Kind(
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
    'shuffled-check-in': protocol_flags.Kind(
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
    'random-check-in': protocol_flags.Kind(
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
}


def add_arguments(parser: errors.Parser, kind: str, command: str) -> None:
  """Adds the flags of protocol, noise and bound."""
  protocol_flags.add_arguments(parser, _KINDS[kind], command)
  if kind == 'random-check-in':
    parser.add('--protocol', choices=_PROTOCOLS, default='fixed-window',
               help='one winner a slot, all averaged, or one winner with a'
               ' window that slides (default: fixed-window)')
  _add_noise(parser, command)
  protocol_flags.add_guarantee(parser)


def _add_noise(parser: errors.Parser, command: str) -> None:
  """Adds the flags of the local randomizer."""
  add = parser.add
  solves = command == 'calibrate'
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
  """Returns the plan of the flags.

  In a calibration no flag sets the noise. Its noise multiplier or local epsilon
  is then 1.
  """
  protocol_flags.check_counts(arguments)
  protocol, num_passes = _protocol_of(arguments)
  return plan_lib.CheckInPlan(
      protocol,
      _randomizer_of(arguments),
      num_passes=num_passes,
      **protocol_flags.options_of(arguments),
  )


def run_of(arguments: argparse.Namespace) -> results.PlanRun:
  """Returns the run that the flags describe."""
  return protocol_flags.run_of(arguments, plan_of)


def calibrated(
    arguments: argparse.Namespace,
) -> tuple[results.PlanRun, dict[str, Any]]:
  """Returns the run within the budget, and a dict with the noise in words."""
  return protocol_flags.calibrated(arguments, plan_of)


def write_plot(arguments: argparse.Namespace) -> None:
  """Writes a PNG of epsilon by every bound against rounds or slots."""
  protocol_flags.write_plot(arguments, _KINDS[arguments.kind], plan_of)


def _protocol_of(
    arguments: argparse.Namespace,
) -> tuple[protocol_lib.Protocol, int]:
  """Returns (protocol, number of passes)."""
  kind, population = arguments.kind, arguments.population
  if kind == 'shuffle':
    rounds = 1 if arguments.rounds is None else arguments.rounds
    return shuffled.ShuffledReports(rounds, population), 1
  if kind == 'shuffled-check-in':
    return (
        shuffled.ShuffledCheckIn(
            arguments.rounds, arguments.check_in_rate, population
        ),
        1,
    )
  probability = arguments.check_in_probability
  if arguments.protocol == 'fixed-window':
    protocol = windows.FixedWindowCheckIn(
        arguments.slots, 1.0 if probability is None else probability
    )
    return protocol, protocol_flags.passes_of(arguments)
  if probability not in (None, 1.0):
    raise _checks.ArgumentError(
        'check_in_probability',
        probability,
        f'1, or nothing, with --protocol={arguments.protocol}',
    )
  if arguments.protocol == 'averaged':
    if population is None:
      raise _checks.ArgumentError(
          'population', None, 'a number, which --protocol=averaged needs'
      )
    protocol = windows.AveragedCheckIn(arguments.slots, population)
    return protocol, protocol_flags.passes_of(arguments)
  # One client wakes in every round, so there are as many clients as rounds.
  horizons = {
      name: getattr(arguments, name)
      for name in ('rounds', 'population')
      if getattr(arguments, name) is not None
  }
  for name, horizon in horizons.items():
    if arguments.slots > horizon:
      raise protocol_flags.too_long(arguments, name)
  rounds = next(iter(horizons.values()), arguments.slots)
  return windows.SlidingWindowCheckIn(rounds, arguments.slots), 1


def _randomizer_of(arguments: argparse.Namespace):
  """Returns the local randomizer of the flags.

  Its noise multiplier or local epsilon is 1 in a calibration.
  """
  clip = arguments.clip_norm
  # In a calibration the flag is missing, and the value does not matter.
  noise = getattr(arguments, 'noise_multiplier', None)
  local_epsilon = getattr(arguments, 'local_epsilon', None)
  name = arguments.randomizer
  if noise is not None or name == _GAUSSIAN:
    for other, why in (
        ('local_delta', 'it follows from the noise'),
        ('categories', 'they are of randomized response'),
    ):
      if getattr(arguments, other) is not None:
        raise _checks.ArgumentError(
            other,
            getattr(arguments, other),
            f'no value with Gaussian noise: {why}',
        )
    if noise is not None and name != 'any':
      raise _checks.ArgumentError(
          'randomizer',
          name,
          'no value with --noise-multiplier, which means Gaussian noise',
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
        f'no value with --randomizer={name}',
    )
  if name == 'any':
    return randomizers.Declared(local_epsilon, arguments.local_delta or 0.0)
  if name == 'sphere':
    return randomizers.Sphere(local_epsilon, clip)
  if name == 'laplace':
    return randomizers.Laplace(local_epsilon, clip)
  categories = 2 if arguments.categories is None else arguments.categories
  return randomizers.RandomizedResponse(local_epsilon, categories)
