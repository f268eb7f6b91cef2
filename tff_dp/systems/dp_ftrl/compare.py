# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""`tff-dp compare`: how much noise each mechanism adds at equal privacy."""

import argparse
import json
import sys
import time
from typing import Any, Optional

from tff_dp import _checks
from tff_dp import _waiting
from tff_dp import systems
from tff_dp.accounting import calibration
from tff_dp.accounting import rounding
from tff_dp.accounting.sensitivity import patterns
from tff_dp.cli import errors
from tff_dp.cli import plots
from tff_dp.cli import results
from tff_dp.mechanisms import catalogue
from tff_dp.mechanisms import choice
from tff_dp.systems.dp_ftrl import flags

# Longer work shows its progress.
_QUIET_SECONDS = 1.0
_BAR_WIDTH = 24
_REFERENCE = 'honaker'
_EXPLANATION = """\
Standard deviation of the noise on the sum of all rounds so far, at equal
privacy: each mechanism draws as much noise as it needs for sigma 1 (the noise
of a run as one Gaussian mechanism). In clip norms; it grows with sigma. max
error: in the worst round; rmse: root mean square over rounds."""
_AT_BUDGET = """\
Standard deviation of the noise on the sum of all rounds so far, in clip norms,
with the least noise for epsilon {epsilon} at delta {delta}. max error: in
the worst round; rmse: root mean square over rounds. Secret draws amplify the
rows of allocation, where clients draw their rounds, and of dp-fedavg, where the
server draws cohorts and a client comes that often in the mean. The others claim
nothing of the kind."""
_EXAMPLES = """examples:
  six passes over StackOverflow, 342 rounds each, cf. arXiv:2211.06530:
    tff-dp compare --rounds 2048 --min-index-gap 342 --max-participations 6
  the best that keeps at most 4 vectors of the model's size, as a picture too:
    tff-dp compare --rounds 2048 --min-index-gap 342 --max-participations 6 \\
        --max-state-copies 4 --plot errors.png
  at a budget, next to clients that draw their own rounds:
    tff-dp compare --rounds 250 --max-participations 2 --min-index-gap 24 \\
        --epsilon 2 --delta 1e-6
  two of them, each client once, for a program:
    tff-dp compare --rounds 500 --max-participations 1 \\
        --mechanisms honaker blt --buffers 2 --format json
"""


def add_arguments(parser: errors.Parser) -> None:
  """Adds the flags of the command."""
  add = parser.add
  parser.description = (
      'Prints the error of every mechanism at equal privacy, with what it\n'
      'costs: vectors of the model\'s size in the state ("copies"), and\n'
      'normal vectors drawn per round. Matrix mechanisms are optimised\n'
      'for the rounds and clients that the flags describe.'
  )
  parser.epilog = _EXAMPLES
  add('--rounds', int, required=True, help='rounds of the whole run')
  parser.add_argument(
      '--mechanisms',
      nargs='+',
      choices=tuple(catalogue.BY_NAME),
      metavar='NAME',
      help=f'some of {", ".join(catalogue.BY_NAME)} (default: all)',
  )
  add('names', nargs='*', metavar='NAME', help='the same')
  flags.add_option_arguments(parser)
  flags.add_participation_arguments(parser)
  add('--clients-per-round', int, help='with --population, for the gap')
  add('--max-state-copies', int, metavar='N', help="mark the best that keeps no"
      " more than N vectors of the model's size; considers other numbers of"
      " bands and buffers as well")
  add('--epsilon', float, help='with --delta: errors at this budget, with rows'
      ' for clients that draw their own rounds')
  add('--delta', float, help='in (0, 1), with --epsilon')
  add('--plot', metavar='FILE', help='draw error against round, as a PNG')
  add('--format', choices=('text', 'json'), default='text')
  parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
  """Compares the mechanisms, prints the result, and draws it with `--plot`."""
  _checks.integer_at_least(1, rounds=arguments.rounds)
  asked = (*arguments.names, *(arguments.mechanisms or ()))
  names = tuple(dict.fromkeys(asked or catalogue.BY_NAME))
  for name in names:
    _checks.one_of(tuple(catalogue.BY_NAME), mechanisms=name)
  flags.check_options(arguments, names)
  if arguments.max_state_copies is not None:
    _checks.integer_at_least(0, max_state_copies=arguments.max_state_copies)
  if arguments.plot is not None:
    plots.check(arguments.plot)
  for name, other in (('epsilon', 'delta'), ('delta', 'epsilon')):
    if getattr(arguments, name) is None and getattr(arguments, other):
      raise _checks.ArgumentError(
          name, None, f'a number, which --{other} needs'
      )
  flags.ask_for_gap(arguments)
  pattern = flags.schedule_of(arguments, arguments.rounds).pattern
  options = flags.options_of(arguments)
  kind = options.setdefault('error', 'max')
  chosen = None
  with _waiting.saying('comparing mechanisms'):
    with errors.named_as_flags(flags.FLAGS):
      common = dict(options, names=names, progress=_progress())
      if arguments.max_state_copies is None:
        rows = choice.compare(pattern, **common)
      else:
        best = choice.best(
            arguments.rounds,
            pattern,
            max_state_copies=arguments.max_state_copies,
            **common,
        )
        rows, chosen = best.rows, best.chosen
    reference = _reference(rows, pattern, options)
    if arguments.epsilon is not None:
      sigma = calibration.noise_multiplier(
          epsilon=arguments.epsilon,
          delta=arguments.delta,
          squared_sensitivity=1.0,
      )
      reference, *rows = (row.scaled(sigma) for row in (reference, *rows))
      if chosen is not None:
        (chosen,) = (row for row in rows if row.mechanism == chosen.mechanism)
      rows += _others(arguments, pattern, kind)
      rows.sort(key=lambda row: row.error(kind))
    if arguments.plot is not None:
      plots.write_errors(arguments.plot, rows, at=_at(arguments))
  if arguments.format == 'json':
    result = _json(arguments, pattern, rows, chosen, kind, reference)
    print(json.dumps(result, indent=2, allow_nan=False))
  else:
    print('\n'.join(_lines(arguments, pattern, rows, chosen, kind, reference)))
  return errors.DONE


def _progress():
  """Returns a function that prints the mechanism being optimised, on stderr.

  It prints nothing in the first `_QUIET_SECONDS`.
  """
  start = time.monotonic()

  def report(name):
    if time.monotonic() - start > _QUIET_SECONDS:
      _waiting.note(f'optimising {name} ...')

  return report


def _reference(rows, pattern, options) -> choice.Row:
  """Returns the row of Honaker's tree, even if the user did not ask for it."""
  for row in rows:
    if row.name == _REFERENCE:
      return row
  (row,) = choice.compare(pattern, names=(_REFERENCE,), **options)
  return row


def _others(arguments, pattern, kind: str) -> list[choice.Row]:
  """Returns the rows of other systems, at the budget of the flags."""
  return [
      row
      for system in systems.all_systems()
      if system.rows is not None
      for row in system.rows()(
          num_rounds=arguments.rounds,
          max_participations=pattern.max_participations,
          epsilon=arguments.epsilon,
          delta=arguments.delta,
          error=kind,
      )
  ]


def _json(
    arguments: argparse.Namespace,
    pattern: patterns.ParticipationPattern,
    rows: tuple[choice.Row, ...],
    chosen: Optional[choice.Row],
    kind: str,
    reference: choice.Row,
) -> dict[str, Any]:
  def described(row):
    return {
        'mechanism': row.name,
        'rmse': row.rmse,
        'max_error': row.max_error,
        'squared_sensitivity': row.squared_sensitivity,
        'squared_sensitivity_is_exact': row.sensitivity_is_exact,
        'state_copies': row.state_copies,
        'draws_per_round': row.draws_per_round,
        'rmse_over_honaker': row.rmse / reference.rmse,
        'max_error_over_honaker': row.max_error / reference.max_error,
        'mechanism_parameters': catalogue.summary(row.mechanism),
    }

  limits = pattern.limits(restart_every=arguments.restart_every)
  return {
      'mechanisms': [described(row) for row in rows],
      'rounds': arguments.rounds,
      'restart_every': arguments.restart_every,
      'complete_trees': bool(arguments.complete_trees),
      'participation': pattern.describe(),
      'max_participations': limits.max_participations,
      'min_index_gap': limits.min_index_gap,
      'min_rounds_between': limits.min_rounds_between,
      'optimised_for': kind,
      'errors_are': 'standard deviations of the noise on prefix sums in clip'
      f' norms, at {_at(arguments)}',
      'max_state_copies': arguments.max_state_copies,
      'best': None if chosen is None else described(chosen),
  }


def _at(arguments: argparse.Namespace) -> str:
  """Returns words for the privacy at which errors are compared."""
  if arguments.epsilon is None:
    return 'sigma 1'
  epsilon, delta = map(rounding.short, (arguments.epsilon, arguments.delta))
  return f'epsilon {epsilon}, delta {delta}'


def _lines(arguments, pattern, rows, chosen, kind, reference) -> list[str]:
  explanation = _EXPLANATION
  if arguments.epsilon is not None:
    explanation = _AT_BUDGET.format(
        epsilon=rounding.short(arguments.epsilon),
        delta=rounding.short(arguments.delta),
    )
  lines = [
      explanation,
      '',
      pattern.describe(),
      f'Matrix mechanisms are optimised for the {_kind_name(kind)}, by which'
      ' the rows are sorted.',
      '',
  ]
  table = [(
      '', 'mechanism', 'max error', 'rmse', 'of honaker', 'sensitivity^2',
      'copies', 'draws/round',
  )]
  for row in rows:
    bound = '' if row.sensitivity_is_exact else '<='
    table.append((
        '*' if row is chosen else '',
        row.label,
        f'{row.max_error:.2f}',
        f'{row.rmse:.2f}',
        f'{100 * row.error(kind) / reference.error(kind):.0f} %',
        f'{bound}{row.squared_sensitivity:.5g}',
        f'{row.state_copies}',
        f'{row.draws_per_round:.3g}',
    ))
  # Independent noise is off the scale: on its scale all others look alike.
  full = 2.0 * reference.error(kind)
  bars = [''] + [_bar(row.error(kind) / full) for row in rows]
  for line, bar in zip(results.aligned(table, 2), bars, strict=True):
    lines.append(f'{line}  {bar}'.rstrip())
  if any(not row.sensitivity_is_exact for row in rows):
    lines += ['', '<= marks an upper bound; the other sensitivities are exact.']
  if chosen is not None:
    lines += [
        '',
        f'* the least {_kind_name(kind)} within {arguments.max_state_copies}'
        f' copies of the model: {chosen.label}',
    ]
  return lines


def _kind_name(kind: str) -> str:
  return {'max': 'max error', 'mean': 'rmse'}[kind]


def _bar(share: float) -> str:
  """Returns a bar of a length, made of blocks if the terminal shows them.

  Args:
    share: Length as a share of the full width. A longer bar is cut, and ends
      with `>`.
  """
  length = min(max(1, round(share * _BAR_WIDTH)), _BAR_WIDTH)
  encoding = getattr(sys.stdout, 'encoding', None) or ''
  has_blocks = sys.stdout.isatty() and encoding.lower() in ('utf-8', 'utf8')
  bar = ('\N{FULL BLOCK}' if has_blocks else '#') * length
  return bar + '>' if share > 1.0 else bar
