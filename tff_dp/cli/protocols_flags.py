# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The flags of the check-in and shuffle protocols of `tff-dp account`."""

import argparse
from collections.abc import Callable
import dataclasses

from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import best_bound
from tff_dp.cli import errors
from tff_dp.cli import protocols_event

_PROTOCOLS = ('fixed-window', 'averaged', 'sliding-window')


@dataclasses.dataclass(frozen=True)
class _Kind:
  """One protocol on the command line.

  Attributes:
    summary: A line for the list of kinds.
    description: What is certified, of what.
    examples: Of whole commands.
    required: Flags, of those in `_FLAGS`, that have to be given.
    optional: Flags that may.
    varied: The flag that a picture varies.
    is_local: Whether clients add the noise.
  """

  summary: str
  description: str
  examples: str
  required: tuple[str, ...]
  optional: tuple[str, ...]
  varied: str
  is_local: bool = True


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

KINDS = {
    'shuffle': _Kind(
        summary='every client sends one report through a shuffler',
        description=(
            'Prints epsilon of reports that a trusted shuffler permutes. With\n'
            '--rounds, everybody reports in every round.'
        ),
        examples="""examples:
  tff-dp account shuffle --population 100000 --local-epsilon 1 --delta 1e-6
""",
        required=('population',),
        optional=('rounds',),
        varied='rounds',
    ),
    'shuffled-check-in': _Kind(
        summary='each client flips a coin every round, reports are shuffled',
        description=(
            'Prints epsilon of rounds in which clients take part by coins of\n'
            'their own, and a trusted shuffler permutes the reports\n'
            '(arXiv:2206.03151).'
        ),
        examples="""examples:
  LDP-SGD on 60,000 clients, for any randomizer:
    tff-dp account shuffled-check-in --population 60000 --check-in-rate 0.1 \\
        --local-epsilon 2 --rounds 6800 --delta 1.6666e-5
  the same with the one-bit randomizer, and what the paper's formulas say:
    tff-dp account shuffled-check-in --population 60000 --check-in-rate 0.1 \\
        --local-epsilon 2 --randomizer sphere --rounds 6800 \\
        --delta 1.6666e-5 --published
""",
        required=('population', 'check_in_rate', 'rounds'),
        optional=(),
        varied='rounds',
    ),
    'random-check-in': _Kind(
        summary='each client draws its own slot, at a trusted server',
        description=(
            'Prints epsilon of random check-ins (arXiv:2007.06605): clients\n'
            'add the noise, the server is trusted to keep secret who checked\n'
            'in. --rounds above --slots means further passes with new coins,\n'
            'or, with sliding-window, the rounds of the whole run.'
        ),
        examples="""examples:
  tff-dp account random-check-in --protocol fixed-window --slots 2000 \\
      --check-in-probability 0.3 --local-epsilon 0.5 --delta 1e-6
  tff-dp account random-check-in --protocol averaged --slots 2000 \\
      --population 1000000 --local-epsilon 0.5 --delta 1e-6
""",
        required=('slots',),
        optional=('population', 'rounds', 'check_in_probability'),
        varied='slots',
    ),
    'random-allocation': _Kind(
        summary='check-ins at a server that is trusted to add the noise',
        description=(
            'Prints epsilon of check-ins with Gaussian noise on the sum of\n'
            'every slot, empty ones too (arXiv:2502.08202). --rounds above\n'
            '--slots means further passes with new coins.'
        ),
        examples="""examples:
  tff-dp account random-allocation --population 1000000 --slots 2000 \\
      --noise-multiplier 1 --delta 1e-6
""",
        required=('slots',),
        optional=('population', 'rounds', 'check_in_probability', 'selected'),
        varied='slots',
        is_local=False,
    ),
}


def add_parsers(kinds, run: Callable[[argparse.Namespace], int]) -> None:
  """Adds the four kinds, which `run` will run, to argparse subparsers."""
  for name, kind in KINDS.items():
    parser = kinds.add_parser(
        name,
        help=kind.summary,
        description=kind.description,
        epilog=kind.examples,
    )
    for flag in (*kind.required, *kind.optional):
      parser.add_argument(
          errors.flag(flag), required=flag in kind.required, **_FLAGS[flag]
      )
    if name == 'random-check-in':
      parser.add_argument(
          '--protocol',
          choices=_PROTOCOLS,
          default='fixed-window',
          help='one winner a slot, all averaged, or one winner with a window'
          ' that slides (default: fixed-window)',
      )
    _add_noise_arguments(parser, kind)
    parser.add_argument(
        '--delta',
        type=float,
        required=True,
        help='in (0, 1), below 1/population',
    )
    parser.add_argument(
        '--bound',
        choices=best_bound.BOUNDS,
        default='best',
        help='use this argument only (default: the best that holds)',
    )
    parser.add_argument(
        '--without-derived',
        action='store_true',
        help="only arguments from papers, none of this project's own",
    )
    parser.add_argument(
        '--published',
        action='store_true',
        help='also print what published formulas say that do not hold, marked'
        ' UNCERTIFIED',
    )
    parser.add_argument(
        '--plot',
        metavar='FILE',
        help=f'draw epsilon against {kind.varied} for each argument, as a PNG;'
        ' published formulas dashed',
    )
    parser.add_argument('--format', choices=('text', 'json'), default='text')
    parser.set_defaults(run=run)


def _add_noise_arguments(parser, kind: _Kind) -> None:
  """Adds the flags of the local randomizer, or of the server's noise."""
  if not kind.is_local:
    parser.add_argument(
        '--noise-multiplier',
        type=float,
        required=True,
        metavar='SIGMA',
        help='noise on the sum of a slot over the bound on one contribution',
    )
    parser.add_argument(
        '--neighboring-relation',
        choices=tuple(
            relation.value for relation in run_events.NeighboringRelation
        ),
        default='zero_out',
        help='how two neighbouring data sets differ (default: zero_out)',
    )
    return
  noise = parser.add_mutually_exclusive_group(required=True)
  noise.add_argument(
      '--local-epsilon',
      type=float,
      metavar='EPS0',
      help='epsilon of one report by itself',
  )
  noise.add_argument(
      '--noise-multiplier',
      type=float,
      metavar='TAU',
      help='instead: Gaussian noise at the client, over its clip norm',
  )
  parser.add_argument(
      '--local-delta',
      type=float,
      metavar='DELTA0',
      help='delta of one report by itself (default: 0)',
  )
  parser.add_argument(
      '--randomizer',
      choices=tuple(protocols_event.RANDOMIZERS),
      default='any',
      help='what is known of the randomizer beyond EPS0 (default: any)',
  )
  parser.add_argument(
      '--categories',
      type=int,
      metavar='K',
      help='of randomized-response (default: 2)',
  )
