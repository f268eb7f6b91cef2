# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""`tff-dp calibrate`: the noise, or the rounds, that a budget allows."""

import argparse
import functools
import sys
import time

from tff_dp import _checks
from tff_dp.accounting import calibration
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events
from tff_dp.cli import dp_ftrl
from tff_dp.cli import errors
from tff_dp.cli import guarantee
from tff_dp.cli import isrl
from tff_dp.mechanisms import mechanism as mechanism_lib

# Where S2 grows only with the levels of the tree, a budget can afford more
# rounds than anybody runs. Powers of two; fewer for mechanisms that have to be
# optimised for each number of rounds.
_MOST_ROUNDS = 1 << 16
_MOST_ROUNDS_BY_MECHANISM = {
    'banded': 1 << 13,
    'blt': 1 << 13,
    'toeplitz': 1 << 12,
    'banded-inverse': 1 << 13,
    'dense': 1 << 6,
}
# A search that takes longer says so.
_QUIET_SECONDS = 2.0
_EXAMPLES = """examples:
  the noise multiplier for 1600 rounds, each client in one of them:
    tff-dp calibrate dp-ftrl --mechanism honaker --rounds 1600 \\
        --max-participations 1 --epsilon 8 --delta 1e-6
  how many rounds a noise multiplier affords:
    tff-dp calibrate dp-ftrl --mechanism honaker --noise-multiplier 2 \\
        --max-participations 4 --min-index-gap 100 --epsilon 8 --delta 1e-6
  about half the noise, for three stored copies of the model:
    tff-dp calibrate dp-ftrl --mechanism blt --buffers 3 --rounds 2048 \\
        --max-participations 6 --min-index-gap 342 --epsilon 8 --delta 1e-6
"""


def add_parser(subparsers) -> None:
  """Adds the command to `argparse` subparsers."""
  parser = subparsers.add_parser(
      'calibrate',
      description='Solves for what a privacy budget allows.',
      epilog=_EXAMPLES,
  )
  kinds = parser.add_subparsers(dest='kind', required=True, metavar='KIND')
  dp_ftrl_parser = kinds.add_parser(
      'dp-ftrl',
      help='correlated or independent noise on a stream of sums',
      description=(
          'Solves for the one of --noise-multiplier and --rounds that is not\n'
          'given, rounds to the private side, and prints the guarantee.\n'
          'Matrix mechanisms are optimised anew for each number of rounds\n'
          'that is tried; the answer holds for those of that number.'
      ),
      epilog=_EXAMPLES,
  )
  dp_ftrl_parser.add_argument(
      '--epsilon', type=float, required=True, help='the budget of the whole run'
  )
  dp_ftrl_parser.add_argument(
      '--rounds', type=int, help='rounds of the whole run'
  )
  dp_ftrl_parser.add_argument(
      '--noise-multiplier',
      type=float,
      help='standard deviation of one draw on the SUM, over the clip norm',
  )
  dp_ftrl.add_arguments(dp_ftrl_parser)
  dp_ftrl_parser.set_defaults(run=run)
  isrl.add_calibrate_parser(kinds)


def run(arguments: argparse.Namespace) -> int:
  """Solves, and prints the guarantee of the solution."""
  _checks.positive(epsilon=arguments.epsilon)
  _checks.delta(delta=arguments.delta)
  rounds, noise = arguments.rounds, arguments.noise_multiplier
  if (rounds is None) == (noise is None):
    raise _checks.ArgumentError(
        'noise_multiplier',
        noise,
        'exactly one of --rounds and --noise-multiplier, to solve for the'
        ' other',
    )
  budget = f'epsilon {arguments.epsilon:g} at delta {arguments.delta:g}'
  if noise is None:
    solved_for = 'noise_multiplier'
    mechanism = dp_ftrl.mechanism_of(arguments, rounds)
    noise = _noise_for(
        arguments,
        mechanism.squared_sensitivity(dp_ftrl.pattern_of(arguments, rounds)),
    )
    number = rounding.rounded_up(noise, digits=7)
    headline = f'{rounds} rounds need --noise-multiplier={number}'
  else:
    solved_for = 'rounds'
    mechanism = _longest_affordable(arguments, noise)
    rounds = mechanism.num_rounds
    headline = f'--noise-multiplier={noise:g} affords {rounds} rounds'
    if rounds == _most_rounds(arguments):
      headline += ' or more (no more were tried)'
  result = dp_ftrl.guarantee_of(arguments, mechanism, noise)
  result |= {
      'headline': f'{headline} within {budget}',
      'solved_for': solved_for,
      'epsilon_budget': arguments.epsilon,
  }
  guarantee.show(result, arguments.format)
  return errors.DONE


def _noise_for(
    arguments: argparse.Namespace, squared_sensitivity: float
) -> float:
  return calibration.noise_multiplier(
      epsilon=arguments.epsilon,
      delta=arguments.delta,
      squared_sensitivity=squared_sensitivity,
      neighboring_relation=arguments.neighboring_relation,
  )


def _most_rounds(arguments: argparse.Namespace) -> int:
  return _MOST_ROUNDS_BY_MECHANISM.get(arguments.mechanism, _MOST_ROUNDS)


def _longest_affordable(
    arguments: argparse.Namespace, noise: float
) -> mechanism_lib.Mechanism:
  """Returns the mechanism for the most rounds within the budget.

  S2 of trees and independent noise never falls as rounds are added. That of
  mechanisms that are optimised for each number of rounds might, by a little:
  then some number of rounds that fits, while one more does not.
  """
  _checks.positive(noise_multiplier=noise)
  start = time.monotonic()

  @functools.cache
  def squared_sensitivity(rounds):
    if time.monotonic() - start > _QUIET_SECONDS:
      print(f'optimising for {rounds} rounds ...', file=sys.stderr)
    mechanism = dp_ftrl.mechanism_of(arguments, rounds)
    pattern = dp_ftrl.pattern_of(arguments, rounds)
    return mechanism, mechanism.squared_sensitivity(pattern)

  def fits(rounds):
    sigma = run_events.effective_sigma(
        noise_multiplier=noise,
        squared_sensitivity=squared_sensitivity(rounds)[1],
        neighboring_relation=arguments.neighboring_relation,
    )
    epsilon = gaussian.exact_epsilon(sigma=sigma, delta=arguments.delta)
    return epsilon <= arguments.epsilon

  if not fits(1):
    needed = _noise_for(arguments, squared_sensitivity(1)[1])
    raise _checks.PrivacyRefusedError(
        f'not even one round with --noise-multiplier={noise:g} fits --epsilon='
        f'{arguments.epsilon:g}',
        why='one round alone is a Gaussian mechanism with that multiplier',
        way_out=f'--noise-multiplier={rounding.rounded_up(needed)} or more',
    )
  low, high = 1, 2
  most = _most_rounds(arguments)
  while high <= most and fits(high):
    low, high = high, 2 * high
  if high > most:
    return squared_sensitivity(low)[0]
  # What S2 must not exceed, up to rounding: where to look, no more than that.
  affordable = (noise / _noise_for(arguments, 1.0)) ** 2
  halve = False
  while high - low > 1:
    middle = (low + high) // 2
    if not halve:
      below, above = (squared_sensitivity(n)[1] for n in (low, high))
      share = (affordable - below) / max(above - below, 1e-12)
      guess = low + round(share * (high - low))
      middle = min(max(guess, low + 1), high - 1)
    # S2 may jump where one more participation fits: do not creep up to it.
    halve = not halve
    if fits(middle):
      low = middle
    else:
      high = middle
  return squared_sensitivity(low)[0]
