# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags that describe a DP-FTRL run, shared by several commands."""

import argparse
from typing import Any, Optional

from tff_dp import _checks
from tff_dp.accounting.events import run_events
from tff_dp.accounting.sensitivity import patterns
from tff_dp.cli import errors
from tff_dp.cli import guarantee
from tff_dp.mechanisms import catalogue
from tff_dp.mechanisms import mechanism as mechanism_lib

_PARTICIPATIONS = ('min-separation', 'fixed-order', 'once-per-tree')
# What flags are called where a mechanism's argument has another name.
_ARGUMENTS = {
    'bands': 'num_bands',
    'buffers': 'num_buffers',
    'rounds': 'num_rounds',
    'mechanisms': 'names',
}
# And the other way round, for errors.
FLAGS = {argument: flag for flag, argument in _ARGUMENTS.items()}
# Flags of some mechanisms only.
_OPTIONS = ('bands', 'buffers', 'error', 'restart_every', 'complete_trees')


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of mechanism, participation, relation and output."""
  parser.add_argument(
      '--mechanism',
      choices=tuple(catalogue.BY_NAME),
      default='honaker',
      help='what noise is added (default: honaker); see tff-dp compare',
  )
  add_option_arguments(parser)
  add_participation_arguments(parser)
  parser.add_argument(
      '--neighboring-relation',
      choices=tuple(
          relation.value for relation in run_events.NeighboringRelation
      ),
      default='zero_out',
      help='how two neighbouring data sets differ (default: zero_out)',
  )
  parser.add_argument(
      '--delta', type=float, required=True, help='in (0, 1), below 1/population'
  )
  parser.add_argument('--format', choices=('text', 'json'), default='text')


def add_option_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags that describe mechanisms closer."""
  parser.add_argument(
      '--bands',
      type=int,
      metavar='P',
      help='bands of banded, at most the index gap (default: that, up to 512),'
      ' or of banded-inverse (default: 16)',
  )
  parser.add_argument(
      '--buffers',
      type=int,
      metavar='D',
      help='buffers of blt, 2 to 8 (default: 3)',
  )
  parser.add_argument(
      '--error',
      choices=('max', 'mean'),
      help='what matrix mechanisms are optimised for: the largest or the mean'
      ' variance of the noise on a prefix sum (default: max)',
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
      default=None,
      help='extend each finished tree to a power of two; costs privacy',
  )


def add_participation_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of what is promised about every client."""
  parser.add_argument(
      '--participation',
      choices=_PARTICIPATIONS,
      default='min-separation',
      help='what is promised about every client (default: min-separation)',
  )
  parser.add_argument(
      '--max-participations',
      type=int,
      metavar='K',
      help='most rounds of one client, for min-separation (default: as many as'
      ' the gap allows)',
  )
  separation = parser.add_mutually_exclusive_group()
  separation.add_argument(
      '--min-index-gap',
      type=int,
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


def mechanism_of(
    arguments: argparse.Namespace, num_rounds: int
) -> mechanism_lib.Mechanism:
  """Returns the mechanism of the flags, optimised where it can be."""
  _checks.integer_at_least(1, rounds=num_rounds)
  check_options(arguments)
  name = arguments.mechanism
  with errors.named_as_flags(FLAGS):
    return catalogue.build(
        name, pattern_of(arguments, num_rounds), **options_of(arguments)
    )


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
  """Returns the options of `catalogue.build` that flags give."""
  return {
      _ARGUMENTS.get(option, option): getattr(arguments, option)
      for option in _OPTIONS
      if getattr(arguments, option) is not None
  }


def check_options(
    arguments: argparse.Namespace, names: Optional[tuple[str, ...]] = None
) -> None:
  """Raises where a flag is out of range, or none of the mechanisms uses it.

  Args:
    arguments: The flags.
    names: The mechanisms, by default the one of `--mechanism`.
  """
  names = names or (arguments.mechanism,)
  for option in _OPTIONS:
    value = getattr(arguments, option)
    argument = _ARGUMENTS.get(option, option)
    users = [
        name
        for name, options in catalogue.USED_OPTIONS.items()
        if argument in options
    ]
    if value is not None and not set(users) & set(names):
      raise _checks.ArgumentError(
          option,
          value,
          f'nothing with {" and ".join(names)}: it is for'
          f' {", ".join(users)}',
      )
  if arguments.buffers is not None:
    _checks.integer_between(2, 8, buffers=arguments.buffers)
  _checks.optional_integer_at_least(1, bands=arguments.bands)


def pattern_of(
    arguments: argparse.Namespace, num_rounds: int
) -> patterns.ParticipationPattern:
  """Returns the promise about every client that the flags describe."""
  kind = arguments.participation
  if kind != 'min-separation':
    _refuse_unused(
        arguments,
        ('max_participations', 'min_index_gap', 'min_rounds_between'),
    )
  if kind != 'fixed-order':
    _refuse_unused(arguments, ('rounds_per_epoch',))
  if kind == 'once-per-tree':
    return patterns.OncePerTreePattern(num_rounds)
  if kind == 'fixed-order':
    _checks.integer_at_least(1, rounds_per_epoch=arguments.rounds_per_epoch)
    return patterns.FixedOrderPattern(
        num_rounds, rounds_per_epoch=arguments.rounds_per_epoch
    )
  gap = 1
  if arguments.min_index_gap is not None:
    gap = arguments.min_index_gap
  if arguments.min_rounds_between is not None:
    _checks.integer_at_least(
        0, min_rounds_between=arguments.min_rounds_between
    )
    gap = arguments.min_rounds_between + 1
  return patterns.MinSeparationPattern(
      num_rounds,
      min_index_gap=gap,
      # None is as many as fit: what is not promised is not assumed.
      max_participations=arguments.max_participations,
  )


def guarantee_of(
    arguments: argparse.Namespace,
    mechanism: mechanism_lib.Mechanism,
    noise_multiplier: float,
) -> dict[str, Any]:
  """Returns the guarantee of a run with this mechanism, and the flags' rest."""
  return guarantee.of_run(
      mechanism,
      pattern_of(arguments, mechanism.num_rounds),
      noise_multiplier=noise_multiplier,
      delta=arguments.delta,
      neighboring_relation=arguments.neighboring_relation,
  )


def _refuse_unused(arguments: argparse.Namespace, names: tuple[str, ...]):
  """Raises where a flag was given that the participation would ignore."""
  for name in names:
    if getattr(arguments, name) is not None:
      raise _checks.ArgumentError(
          name,
          getattr(arguments, name),
          f'nothing with --participation={arguments.participation}, which it'
          ' does not describe',
      )
