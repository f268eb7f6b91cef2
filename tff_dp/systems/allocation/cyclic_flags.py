# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Cyclic allocation on the command line: an `AllocationPlan` from flags."""

import argparse
from typing import Any

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.accounting.sensitivity import patterns
from tff_dp.cli import errors
from tff_dp.cli import protocol_flags
from tff_dp.cli import results
from tff_dp.mechanisms.matrix import toeplitz
from tff_dp.systems.allocation import plan as plan_lib
from tff_dp.systems.allocation import protocols
from tff_dp.systems.allocation import strides

FLAGS = protocol_flags.FLAGS | {'num_windows': 'windows', 'num_bands': 'bands'}
_DESCRIPTION = """of check-ins at a server whose noise is
correlated over rounds. A client keeps to one residue class of the rounds
mod --stride, and draws one slot in each of --windows windows of it."""
_EXAMPLES = """examples:
  six windows in 2048 rounds, the noise of the stride that is best:
    tff-dp calibrate cyclic-allocation --rounds 2048 --windows 6 \\
        --epsilon 2 --delta 1e-6
  what a given noise costs:
    tff-dp account cyclic-allocation --rounds 2048 --windows 6 --stride 24 \\
        --noise-multiplier 3.81 --delta 1e-6
"""


def add_arguments(parser: errors.Parser, kind: str, command: str) -> None:
  """Adds the flags of protocol and noise."""
  del kind
  add, solves = parser.add, command == 'calibrate'
  parser.description = protocol_flags.SAYS[command] + _DESCRIPTION
  parser.epilog = _EXAMPLES
  add('--rounds', int, required=True, help='rounds of the whole run')
  add('--windows', int, default=1, metavar='E', help='most participations of a'
      ' client (default: 1)')
  if solves:
    add('--stride', int, metavar='P', help='rounds between two slots of a'
        ' client (default: the one with the least error)')
    add('--epsilon', float, required=True, help='the budget of the whole run')
  else:
    add('--stride', int, required=True, metavar='P', help='rounds between two'
        ' slots of a client')
    add('--bands', int, metavar='B', help='bands of the noise (default: as many'
        ' as the stride)')
    add('--noise-multiplier', float, required=True, metavar='SIGMA',
        help='standard deviation of one draw on the SUM, over the clip norm')
  add('--error', choices=('mean', 'max'), default='mean', help='what the bands'
      ' are optimised for: the noise of all rounds, or of the worst')
  add('--population', int, metavar='N', help='clients, for what is to be'
      ' expected; epsilon does not depend on it')
  add('--check-in-probability', float, default=1.0, metavar='P0',
      help='probability of taking part in a window (default: 1)')
  protocol_flags.add_clip_norm_and_delta(parser)
  if command == 'account':
    parser.add_relation()


def run_of(arguments: argparse.Namespace) -> results.PlanRun:
  """Returns the run that the flags describe."""
  _checks.delta(delta=arguments.delta)
  protocol = protocols.CyclicAllocation(
      arguments.rounds,
      arguments.windows,
      arguments.stride,
      arguments.check_in_probability,
  )
  bands = arguments.stride if arguments.bands is None else arguments.bands
  pattern = patterns.MinSeparationPattern(
      arguments.rounds,
      min_index_gap=arguments.stride,
      max_participations=arguments.windows,
  )
  mechanism = toeplitz.Banded.optimized(pattern, bands, error=arguments.error)
  plan = plan_lib.AllocationPlan(
      protocol,
      noise_multiplier=arguments.noise_multiplier,
      l2_norm_clip=arguments.clip_norm,
      mechanism=mechanism,
  )
  return protocol_flags.run_with(arguments, plan)


def calibrated(
    arguments: argparse.Namespace,
) -> tuple[results.PlanRun, dict[str, Any]]:
  """Returns the run within the budget, and a dict with the strides tried."""
  options = dict(
      epsilon=arguments.epsilon,
      delta=arguments.delta,
      l2_norm_clip=arguments.clip_norm,
      check_in_probability=arguments.check_in_probability,
      error=arguments.error,
  )
  where = arguments.rounds, arguments.windows
  if arguments.stride is None:
    found = strides.best(*where, **options)
  else:
    found = (strides.candidate(*where, arguments.stride, **options),)
  plan = found[0].plan
  noise = rounding.rounded_up(plan.noise_multiplier, digits=7)
  return protocol_flags.run_with(arguments, plan), {
      'solved_for': 'noise_multiplier',
      'answer': (
          f'--stride={found[0].stride} --noise-multiplier={noise} is within'
          f' epsilon {rounding.short(arguments.epsilon)} at delta'
          f' {rounding.short(arguments.delta)}'
      ),
      'strides': [
          {
              'stride': each.stride,
              'noise_multiplier': each.plan.noise_multiplier,
              'rmse': each.rmse,
              'max_error': each.max_error,
          }
          for each in sorted(found, key=lambda each: each.stride)
      ],
  }
