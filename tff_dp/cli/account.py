# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""`tff-dp account`: what a run costs."""

import argparse

from tff_dp import _checks
from tff_dp.cli import dp_ftrl
from tff_dp.cli import draw_and_discard
from tff_dp.cli import errors
from tff_dp.cli import event_files
from tff_dp.cli import guarantee
from tff_dp.cli import isrl
from tff_dp.cli import protocol_runs
from tff_dp.cli import protocols
from tff_dp.cli import silo_runs
from tff_dp.plans import silos as silo_plan

_EXAMPLES = """examples:
  StackOverflow of arXiv:2103.00039, each client once in 1600 rounds:
    tff-dp account dp-ftrl --mechanism honaker --rounds 1600 \\
        --max-participations 1 --noise-multiplier 1.13 --delta 1e-6
  Gboard (cf. arXiv:2305.18465), up to 6 times, 313 rounds strictly between:
    tff-dp account dp-ftrl --mechanism tree --rounds 2000 \\
        --max-participations 6 --min-index-gap 314 \\
        --noise-multiplier 7 --delta 1e-10
  the same with BLT noise, which is optimised for these rounds and clients:
    tff-dp account dp-ftrl --mechanism blt --buffers 3 --rounds 2000 \\
        --max-participations 6 --min-index-gap 314 \\
        --noise-multiplier 4 --delta 1e-10
  random check-ins at a trusted server; see also shuffle, random-check-in:
    tff-dp account random-allocation --population 1000000 --slots 2000 \\
        --noise-multiplier 1 --delta 1e-6
  shuffled check-in with any local randomizer:
    tff-dp account shuffled-check-in --population 60000 --check-in-rate 0.1 \\
        --local-epsilon 2 --rounds 6800 --delta 1.6666e-5
  a finished run, without believing its own numbers:
    tff-dp account --events runs/digits/dp_ftrl/release/events.json
"""


def add_parser(subparsers) -> None:
  """Adds the command to `argparse` subparsers."""
  parser = subparsers.add_parser(
      'account',
      description=(
          'Prints epsilon of a whole run with every model released, from its\n'
          'parameters (KIND) or recomputed from the events.json of a run.\n'
          'dp-ftrl claims no amplification; the other kinds claim what holds\n'
          'for their protocol, and print what there is without beside.'
      ),
      epilog=_EXAMPLES,
  )
  parser.add_argument(
      '--events', metavar='FILE', help='the events.json of a run'
  )
  parser.add_argument(
      '--delta',
      type=float,
      help='with --events, another delta than that of the run',
  )
  parser.add_argument('--format', choices=('text', 'json'), default='text')
  parser.set_defaults(run=run_events)
  kinds = parser.add_subparsers(dest='kind', metavar='KIND')
  dp_ftrl_parser = kinds.add_parser(
      'dp-ftrl',
      help='correlated or independent noise on a stream of sums',
      description=(
          'Prints epsilon of a whole run with every model released. No\n'
          'amplification by sampling or shuffling is claimed.'
      ),
      epilog=_EXAMPLES,
  )
  dp_ftrl_parser.add_argument(
      '--rounds', type=int, required=True, help='rounds of the whole run'
  )
  dp_ftrl_parser.add_argument(
      '--noise-multiplier',
      type=float,
      required=True,
      help='standard deviation of one draw on the SUM, over the clip norm',
  )
  dp_ftrl.add_arguments(dp_ftrl_parser)
  dp_ftrl_parser.set_defaults(run=run)
  protocols.add_parsers(kinds)
  isrl.add_account_parser(kinds)
  draw_and_discard.add_account_parser(kinds)


def run(arguments: argparse.Namespace) -> int:
  """Prints the guarantee of the run that the flags describe."""
  if arguments.events is not None:
    raise _checks.ArgumentError(
        'events', arguments.events, f'nothing with {arguments.kind}'
    )
  result = dp_ftrl.guarantee_of(
      arguments,
      dp_ftrl.mechanism_of(arguments, arguments.rounds),
      arguments.noise_multiplier,
  )
  guarantee.show(result, arguments.format)
  return errors.DONE


def run_events(arguments: argparse.Namespace) -> int:
  """Prints the guarantee of the run that a file describes."""
  if arguments.events is None:
    errors.show(
        'neither KIND nor --events is given', way_out='tff-dp account --help'
    )
    return errors.USAGE
  described = event_files.read(arguments.events)
  delta = described.delta if arguments.delta is None else arguments.delta
  if isinstance(described, event_files.ProtocolRun):
    protocol_runs.show(described, delta=delta, output_format=arguments.format)
    return errors.DONE
  if isinstance(described, event_files.PlanRun):
    show = draw_and_discard.show_run
    if isinstance(described.plan, silo_plan.SiloPlan):
      show = silo_runs.show
    show(described, delta=delta, output_format=arguments.format)
    return errors.DONE
  result = guarantee.of_run(
      described.mechanism,
      described.pattern,
      noise_multiplier=described.noise_multiplier,
      delta=delta,
      neighboring_relation=described.neighboring_relation,
      adaptive_clipping=described.adaptive_clipping,
  )
  guarantee.show(result, arguments.format)
  return errors.DONE
