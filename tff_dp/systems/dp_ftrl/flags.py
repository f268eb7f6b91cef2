# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""DP-FTRL on the command line: `DpFtrlPlan` from flags.

Some flags serve `tff-dp compare` too.
"""

import argparse
import functools
import time
from typing import Any, Optional

from tff_dp import _checks
from tff_dp import _waiting
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import search
from tff_dp.cli import errors
from tff_dp.cli import results
from tff_dp.mechanisms import catalogue
from tff_dp.participation import sampling
from tff_dp.systems.dp_ftrl import plan as plan_lib

_BEST, _TREE = 'blt', 'honaker'
_PARTICIPATIONS = ('min-separation', 'fixed-order', 'once-per-tree')
# Maps a flag to a mechanism's argument of another name.
_ARGUMENTS = {
    'bands': 'num_bands',
    'buffers': 'num_buffers',
    'rounds': 'num_rounds',
    'mechanisms': 'names',
}
# The reverse, for errors.
FLAGS = {argument: flag for flag, argument in _ARGUMENTS.items()}
# Flags that only some mechanisms use.
_OPTIONS = ('bands', 'buffers', 'error', 'restart_every', 'complete_trees')
# Limit of the search for rounds. If S2 grows only with the levels of the tree,
# a budget can afford more rounds than anybody runs. Limits are powers of two,
# and lower for mechanisms that must be optimised for each number of rounds.
_MOST_ROUNDS = 1 << 16
_MOST_ROUNDS_BY_MECHANISM = {
    'banded': 1 << 13,
    'blt': 1 << 13,
    'toeplitz': 1 << 12,
    'banded-inverse': 1 << 13,
}
# A longer search shows its progress.
_QUIET_SECONDS = 2.0
_DESCRIPTIONS = {
    'account': (
        'Prints epsilon of a whole run with every model released. No\n'
        'amplification by sampling or shuffling is claimed.'
    ),
    'calibrate': (
        'Solves for the one of --noise-multiplier and --rounds that is not\n'
        'given, rounds to the private side, and prints the guarantee.\n'
        'Matrix mechanisms are optimised anew for each number of rounds\n'
        'that is tried; the answer holds for the mechanism of that number.'
    ),
    'statement': 'Prints the privacy statement of a run that is planned.',
}
_EXAMPLES = {
    'account': """examples:
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
""",
    'calibrate': """examples:
  the noise multiplier for 1600 rounds, each client in one of them:
    tff-dp calibrate dp-ftrl --mechanism honaker --rounds 1600 \\
        --max-participations 1 --epsilon 8 --delta 1e-6
  how many rounds a noise multiplier affords:
    tff-dp calibrate dp-ftrl --mechanism honaker --noise-multiplier 2 \\
        --max-participations 4 --min-index-gap 100 --epsilon 8 --delta 1e-6
  about half the noise, for three stored copies of the model:
    tff-dp calibrate dp-ftrl --mechanism blt --buffers 3 --rounds 2048 \\
        --max-participations 6 --min-index-gap 342 --epsilon 8 --delta 1e-6
""",
    'statement': """example:
    tff-dp statement dp-ftrl --mechanism tree --rounds 2000 \\
        --max-participations 6 --min-index-gap 314 --noise-multiplier 7 \\
        --l2-norm-clip 0.5 --clients-per-round 6500 --delta 1e-10
""",
}


def add_arguments(
    parser: errors.Parser, kind: str, command: str
) -> None:
  """Adds the flags of mechanism, participation and noise."""
  add = parser.add
  del kind
  parser.description = _DESCRIPTIONS[command]
  parser.epilog = _EXAMPLES[command]
  solves = command == 'calibrate'
  if solves:
    add('--epsilon', float, required=True, help='the budget of the whole run')
  add('--rounds', int, required=not solves, help='rounds of the whole run')
  add('--noise-multiplier', float, required=not solves, help='standard'
      ' deviation of one draw on the SUM, over the clip norm')
  add('--mechanism', choices=tuple(catalogue.BY_NAME), help='what noise is'
      f' added (default: {_BEST}, or {_TREE} where another flag needs trees or'
      ' another --participation); see tff-dp compare')
  add_option_arguments(parser)
  add_participation_arguments(parser)
  add('--l2-norm-clip', float, default=1.0, help='bound on the norm of the'
      ' update of a client; epsilon does not depend on it, the statement names'
      ' it (default: 1)')
  add('--clients-per-round', int, help='divisor of the noised sum;'
      ' with --population also the source of the gap (default: 1)')
  if command != 'statement':
    parser.add_relation()
  add('--delta', float, required=True, help='at most 0.1, below 1/population')


def add_option_arguments(parser: errors.Parser) -> None:
  """Adds the flags of the mechanisms' options."""
  add = parser.add
  add('--bands', int, metavar='P', help='bands of banded, at most the index gap'
      ' (default: that, up to 512), or of banded-inverse (default: 16)')
  add('--buffers', int, metavar='D', help='buffers of blt, 2 to 8 (default: 3)')
  add('--error', choices=('max', 'mean'), help='what matrix mechanisms are'
      ' optimised for: the largest or the mean variance of the noise on a'
      ' prefix sum (default: max)')
  add('--restart-every', int, metavar='ROUNDS', help='rounds of one noise tree'
      ' (default: one tree for the whole run)')
  add('--complete-trees', action='store_true', default=None, help='extend each'
      ' finished tree to a power of two; costs privacy')


def add_participation_arguments(parser: errors.Parser) -> None:
  """Adds the flags that say how often every client takes part at most."""
  add = parser.add
  add('--participation', choices=_PARTICIPATIONS, default='min-separation',
      help='what is promised about every client (default: min-separation)')
  add('--max-participations', int, metavar='K', help='most rounds of one'
      ' client, for min-separation (default: as many as the gap allows)')
  separation = parser.add_mutually_exclusive_group()
  add('--min-index-gap', int, metavar='B', to=separation, help='least'
      ' difference of the indices of two rounds of one client; 1 allows every'
      ' round (default: 1)')
  add('--min-rounds-between', int, metavar='B-1', to=separation,
      help='the same, as rounds strictly between')
  add('--population', int, metavar='N', help='clients that there are; with'
      ' --clients-per-round the gap follows from it, if none is given')
  add('--rounds-per-epoch', int, metavar='ROUNDS', help='rounds of one pass,'
      ' for fixed-order')


def plan_of(
    arguments: argparse.Namespace,
    num_rounds: int,
    noise_multiplier: Optional[float],
) -> plan_lib.DpFtrlPlan:
  """Returns the plan of the flags, with a mechanism optimised for its rounds.

  Sets `arguments.mechanism` if the user chose none.

  Args:
    arguments: The flags.
    num_rounds: Number of rounds of the run.
    noise_multiplier: Noise multiplier of the plan. `None` for a plan that will
      be calibrated.
  """
  _checks.integer_at_least(1, rounds=num_rounds)
  if arguments.mechanism is None:
    arguments.mechanism = _default_mechanism(arguments)
  check_options(arguments)
  schedule = schedule_of(arguments, num_rounds)
  with errors.named_as_flags(FLAGS):
    mechanism = catalogue.build(
        arguments.mechanism, schedule, **options_of(arguments)
    )
  return plan_lib.DpFtrlPlan(
      mechanism,
      schedule,
      l2_norm_clip=arguments.l2_norm_clip,
      clients_per_round=(
          1
          if arguments.clients_per_round is None
          else arguments.clients_per_round
      ),
      noise_multiplier=noise_multiplier,
  )


def run_of(arguments: argparse.Namespace) -> results.PlanRun:
  """Returns the run that the flags describe."""
  _checks.delta(delta=arguments.delta)
  is_known = _set_gap(arguments)
  plan = plan_of(arguments, arguments.rounds, arguments.noise_multiplier)
  if not is_known:
    _assume(
        '--min-index-gap=1, every client in every round, as no flag says'
        ' otherwise; --population and --clients-per-round give a gap'
    )
  return _run_with(arguments, plan)


def calibrated(
    arguments: argparse.Namespace,
) -> tuple[results.PlanRun, dict[str, Any]]:
  """Returns the run within the budget, and a dict with the answer in words.

  Solves for the noise multiplier if the number of rounds is set, and for the
  number of rounds if the noise multiplier is set.

  Raises:
    ArgumentError: If both are set or neither is, or if no flag limits how often
      a client takes part.
    PrivacyRefusedError: If not even one round fits the budget.
  """
  rounds, noise = arguments.rounds, arguments.noise_multiplier
  if (rounds is None) == (noise is None):
    raise _checks.ArgumentError(
        'noise_multiplier',
        noise,
        'exactly one of --rounds and --noise-multiplier, to solve for the'
        ' other',
    )
  given = vars(arguments).copy()
  ask_for_gap(arguments)
  if noise is None:
    plan = _least_noise(arguments, plan_of(arguments, rounds, None))
    solved_for = 'noise_multiplier'
    number = rounding.rounded_up(plan.noise_multiplier, digits=7)
    flags = _chosen(arguments, given)
    answer = f'{rounds} rounds need {flags}--noise-multiplier={number}'
  else:
    plan = _longest_affordable(arguments, noise)
    solved_for = 'rounds'
    flags = _chosen(arguments, given)
    answer = (
        f'{flags}--noise-multiplier={noise:g} affords {plan.num_rounds} rounds'
    )
    if plan.num_rounds == _most_rounds(arguments):
      answer += ' or more (no more were tried)'
  budget = (
      f'epsilon {rounding.short(arguments.epsilon)} at delta'
      f' {rounding.short(arguments.delta)}'
  )
  return _run_with(arguments, plan), {
      'solved_for': solved_for, 'answer': f'{answer} within {budget}'
  }


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
  """Returns the options of `catalogue.build` that the flags set."""
  return {
      _ARGUMENTS.get(option, option): getattr(arguments, option)
      for option in _OPTIONS
      if getattr(arguments, option) is not None
  }


def check_options(
    arguments: argparse.Namespace, names: Optional[tuple[str, ...]] = None
) -> None:
  """Raises `ArgumentError` if an option that is set is unused or out of range.

  An option is used if at least one mechanism in `names` takes it. Only the
  ranges of `bands` and `buffers` are checked here. A mechanism checks the rest.

  Args:
    arguments: The flags.
    names: Names of the mechanisms. Default: the name in `--mechanism`.
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
          f'no value with {" and ".join(names)}: it is for mechanism'
          f' {", ".join(users)}',
      )
  if arguments.buffers is not None:
    _checks.integer_between(2, 8, buffers=arguments.buffers)
  _checks.optional_integer_at_least(1, bands=arguments.bands)


def schedule_of(
    arguments: argparse.Namespace, num_rounds: int
) -> sampling.Schedule:
  """Returns the promised participation that the flags describe."""
  kind = arguments.participation
  if kind != 'min-separation':
    _refuse_unused(
        arguments,
        ('max_participations', 'min_index_gap', 'min_rounds_between'),
    )
  if kind != 'fixed-order':
    _refuse_unused(arguments, ('rounds_per_epoch',))
  if kind == 'once-per-tree':
    return sampling.OncePerTree(num_rounds)
  if kind == 'fixed-order':
    _checks.integer_at_least(1, rounds_per_epoch=arguments.rounds_per_epoch)
    # In a shorter run, everybody takes part at most once too.
    return sampling.ShuffledEpochs(
        num_rounds, min(arguments.rounds_per_epoch, num_rounds)
    )
  gap = 1
  if arguments.min_index_gap is not None:
    gap = arguments.min_index_gap
  if arguments.min_rounds_between is not None:
    _checks.integer_at_least(
        0, min_rounds_between=arguments.min_rounds_between
    )
    gap = arguments.min_rounds_between + 1
  return sampling.MinSeparation(
      num_rounds,
      min_index_gap=gap,
      # None means as many as fit: nothing is assumed without a promise.
      max_participations=arguments.max_participations,
  )


def ask_for_gap(arguments: argparse.Namespace) -> None:
  """Raises `ArgumentError` if no flag limits how often a client takes part.

  Args:
    arguments: The flags. The function sets `min_index_gap` if the gap follows
      from population and cohort.
  """
  if not _set_gap(arguments):
    raise _checks.ArgumentError(
        'min_index_gap',
        None,
        'the least number of rounds from one participation of a client to its'
        ' next (1 allows every round). Or give --population and'
        ' --clients-per-round, from which the gap is computed',
    )


def _assume(what: str) -> None:
  """Says on stderr what was assumed, since no flag says it."""
  _waiting.note(f'assumed: {what}')


def _set_gap(arguments: argparse.Namespace) -> bool:
  """Returns whether flags limit how often a client takes part.

  If the flags give a population without a cohort, the result is True and the
  gap 1 is assumed, which allows every client in every round.

  Args:
    arguments: The flags. `min_index_gap` is set if it follows from others or is
      assumed, and stderr then says so.

  Raises:
    ArgumentError: If `min_index_gap` is larger than population and cohort
      allow, or if the cohort is not from 1 to the population.
  """
  known = ('min_index_gap', 'min_rounds_between', 'max_participations')
  if arguments.participation != 'min-separation':
    return True
  population, cohort = arguments.population, arguments.clients_per_round
  if None not in (population, cohort):
    _checks.integer_between(1, population, clients_per_round=cohort)
  if any(getattr(arguments, name) is not None for name in known):
    for name, less in (('min_index_gap', 0), ('min_rounds_between', 1)):
      gap = getattr(arguments, name)
      if None in (gap, population, cohort):
        continue
      if gap + less > population // cohort:
        raise _checks.ArgumentError(
            name,
            gap,
            f'at most {population // cohort - less}: after population / clients'
            f' per round = {population // cohort} rounds all clients have come',
        )
    return True
  if population is None:
    return False
  if cohort is None:
    arguments.min_index_gap = 1
    _assume(
        '--min-index-gap=1, every client in every round; --population gives a'
        ' larger gap with --clients-per-round'
    )
    return True
  arguments.min_index_gap = population // cohort
  _assume(
      f'--min-index-gap={arguments.min_index_gap}, population / clients per'
      ' round: the server asks no client again before all others'
  )
  return True


def _chosen(arguments: argparse.Namespace, given: dict[str, Any]) -> str:
  """Returns the flags whose values were chosen for the user, as text.

  Args:
    arguments: The flags, all set.
    given: The flags as the user gave them.
  """
  return ''.join(
      f'{errors.flag(name)}={getattr(arguments, name)} '
      for name in ('mechanism', 'min_index_gap')
      if getattr(arguments, name) != given[name]
  )


def _default_mechanism(arguments: argparse.Namespace) -> str:
  """Returns 'blt', or 'honaker' if a flag needs trees or another schedule."""
  trees = arguments.restart_every, arguments.complete_trees
  if arguments.participation != 'min-separation' or any(trees):
    return _TREE
  return _BEST


def _run_with(
    arguments: argparse.Namespace, plan: plan_lib.DpFtrlPlan
) -> results.PlanRun:
  relation = getattr(arguments, 'neighboring_relation', None)
  options = {'neighboring_relation': relation}
  return results.PlanRun(plan, None, arguments.delta, options)


def _refuse_unused(arguments: argparse.Namespace, names: tuple[str, ...]):
  """Raises `ArgumentError` if one of the flags is set.

  Args:
    arguments: The flags.
    names: Names of flags that this `--participation` would ignore.
  """
  for name in names:
    if getattr(arguments, name) is not None:
      raise _checks.ArgumentError(
          name,
          getattr(arguments, name),
          f'no value with --participation={arguments.participation}, which does'
          ' not use it',
      )


def _least_noise(arguments, plan: plan_lib.DpFtrlPlan) -> plan_lib.DpFtrlPlan:
  return plan.calibrated(
      epsilon=arguments.epsilon,
      delta=arguments.delta,
      neighboring_relation=arguments.neighboring_relation,
  )


def _most_rounds(arguments: argparse.Namespace) -> int:
  return _MOST_ROUNDS_BY_MECHANISM.get(arguments.mechanism, _MOST_ROUNDS)


def _longest_affordable(
    arguments: argparse.Namespace, noise: float
) -> plan_lib.DpFtrlPlan:
  """Returns the plan with the most rounds within the budget.

  No more rounds than `_most_rounds` are tried. As rounds are added, the squared
  sensitivity of trees and of independent noise never falls. If a mechanism is
  optimised for each number of rounds, its squared sensitivity might fall a
  little. Then the result fits the budget, and one more round does not, but a
  larger number of rounds might.

  Args:
    arguments: The flags, with a noise multiplier.
    noise: The noise multiplier.

  Raises:
    PrivacyRefusedError: If not even one round fits the budget.
  """
  _checks.positive(noise_multiplier=noise)
  start = time.monotonic()

  @functools.cache
  def plan_at(rounds):
    if time.monotonic() - start > _QUIET_SECONDS:
      _waiting.note(f'optimising for {rounds} rounds ...')
    return plan_of(arguments, rounds, noise)

  def fits(rounds):
    epsilon = plan_at(rounds).epsilon(
        delta=arguments.delta,
        neighboring_relation=arguments.neighboring_relation,
    )
    return epsilon <= arguments.epsilon

  if not fits(1):
    needed = _least_noise(arguments, plan_at(1)).noise_multiplier
    raise _checks.PrivacyRefusedError(
        f'not even one round with --noise-multiplier={noise:g} fits --epsilon='
        f'{arguments.epsilon:g}',
        why='one round alone is a Gaussian mechanism with that multiplier',
        way_out=f'--noise-multiplier={rounding.rounded_up(needed)} or more',
    )
  low, high, most = 1, 2, _most_rounds(arguments)
  while high <= most and fits(high):
    low, high = high, 2 * high
  return plan_at(low if high > most else search.nearest(fits, high, low))
