# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""`tff-dp advise`: which systems fit a setting, and what each would cost."""

import argparse
import dataclasses
import json
import shlex
import sys
import textwrap
from typing import Any, Optional

from tff_dp import _checks
from tff_dp import _waiting
from tff_dp import advice
from tff_dp import systems
from tff_dp.accounting import rounding
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import bounds
from tff_dp.advice import offers
from tff_dp.cli import errors
from tff_dp.cli import results

_KIND = 'advice'
_SCHEMA_VERSION = 1
_WIDTH = 88
# With --records, the other flags may be left out.
_ASSUMED = {'rounds': 100, 'parameters': 1000, 'epsilon': 2.0, 'trust': 'nobody'}
_ERROR = (
    'error: standard deviation of the noise on the mean update of a round, per'
    ' weight, in clip norms; norm: that of the noise on all weights. Noise that'
    ' is correlated over rounds counts as the independent noise that leaves the'
    ' same root mean square error on the running sum of all rounds. Sampling'
    ' and clipping are not counted.'
)
_SAME = {
    'client': (
        'All have the same clients, reports, rounds and budget. Noise at the'
        ' server is accounted under {relation}, local reports under'
        ' replace_one{implies}.'
    ),
    'record': (
        'All have the same clients, records, rounds and budget; one record is'
        ' replaced.'
    ),
}
_EXAMPLES = """
examples:
  phones whose owners trust the server:
    tff-dp advise --population 60000 --reports-per-round 100 --rounds 1000 \\
        --parameters 10000 --epsilon 8 --delta 1e-6 --trust server
  the same phones, a shuffler, and how far an update of norm 0.5 stands out:
    tff-dp advise --population 60000 --reports-per-round 100 --rounds 1000 \\
        --parameters 10000 --epsilon 8 --delta 1e-6 --trust shuffler \\
        --update-norm 0.5
  20 hospitals with 1000 records each, of which 15 answer in a round:
    tff-dp advise --population 20 --reports-per-round 15 --rounds 30 \\
        --parameters 100 --epsilon 1 --trust nobody --records 1000
  what to do for another system than the best, as JSON:
    tff-dp advise --population 60000 --reports-per-round 100 --rounds 200 \\
        --parameters 10000 --epsilon 2 --trust server \\
        --for random-allocation --format json
"""


def add_arguments(parser: errors.Parser) -> None:
  """Adds the flags of the command."""
  add = parser.add
  parser.description = (
      'Prints every system that fits: the noise that it needs for the\n'
      'budget, the error that is left, traffic and memory, what it\n'
      'assumes, the best first; and how to go on with one of them.'
  )
  parser.epilog = '\n'.join([
      'systems:',
      *(
          f'  {name:<18} {offered.summary}'
          for name, offered in systems.offers().items()
      ),
      _EXAMPLES,
  ])
  is_of_silos = parser.asks_for('--records')
  parser.add_argument(
      '--population', '--hospitals', '--silos', type=int, required=True,
      help='number of clients; where a guarantee rests on a crowd, of those'
      ' that are sure to deliver')
  for name, kind, text in (
      ('reports_per_round', int, 'reports that the server wants in a round'
       ' (default with --records: one from each client)'),
      ('rounds', int, 'rounds of the whole run'),
      ('parameters', int, 'weights of the model, all together'),
      ('epsilon', float, 'the budget of the whole run'),
  ):
    parser.add_argument(
        errors.flag(name), type=kind, required=not is_of_silos, help=text
    )
  add('--delta', float, help='at most 0.1, below 1/population (default:'
      ' population^-1.1; with --records, records^-2)')
  add('--trust', choices=offers.TRUST, required=not is_of_silos, help='whom clients'
      ' trust; more trust includes less. shuffler: a shuffler, or a secure sum')
  add('--records', int, metavar='N', help='records of each client, such as a'
      ' hospital: the unit is then a record, not a client')
  add('--update-norm', float, help='also print signal to noise, for a mean'
      ' update of that norm, in clip norms')
  add('--max-participations', int, metavar='K', help='most rounds of one'
      ' client, where a server chooses (default: as many as the gap allows)')
  add('--min-index-gap', int, metavar='B', help='the number of rounds from one'
      ' participation of a client to its next, at least (1 allows every round),'
      ' where a server chooses (default: population / reports per round, for'
      ' which all clients must be present)')
  parser.add_argument(
      '--neighboring-relation',
      choices=offers.RELATIONS,
      help='relation under which the epsilon of a client must hold (default:'
      f' {offers.RELATIONS[0]}); local reports are always accounted for under'
      ' replace_one',
  )
  add('--for', dest='system', choices=tuple(systems.offers()), metavar='SYSTEM',
      help='how to go on with another system than the best')
  add('--details', action='store_true', help='also print what each system'
      ' assumes')
  add('--format', choices=('text', 'json'), default='text')
  parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
  """Compares the systems, and prints the result."""
  _assume(arguments)
  update_norm = arguments.update_norm
  if update_norm is not None:
    _checks.positive(update_norm=update_norm)
    _checks.in_closed(0, 1, update_norm=update_norm)
  with errors.named_as_flags({
      'clients_per_round': 'reports_per_round',
      'num_clients': 'population',
      'num_records': 'records',
  }):
    setting = advice.Setting(**{
        field.name: getattr(arguments, field.name)
        for field in dataclasses.fields(advice.Setting)
    })
  with _waiting.saying('comparing systems'):
    found = advice.advise(setting, progress=_progress())
  chosen = _chosen(found, arguments.system)
  if arguments.format == 'json':
    result = _json(found, chosen, update_norm)
    print(json.dumps(result, indent=2, allow_nan=False))
  else:
    lines = _lines(found, chosen, update_norm, arguments.details)
    print('\n'.join(lines))
  return errors.DONE


def _assume(arguments: argparse.Namespace) -> None:
  """If --records is given, fills in missing flags, and prints their values."""
  assumed = {'reports_per_round': arguments.population, **_ASSUMED}
  assumed = {
      name: value
      for name, value in assumed.items()
      if getattr(arguments, name) is None
  }
  vars(arguments).update(assumed)
  if assumed:
    flags = (f'{errors.flag(name)}={each}' for name, each in assumed.items())
    _waiting.note(f'assumed: {" ".join(flags)}')


def _progress():
  """Returns a function that prints the current system, `None` off a terminal.
  """
  if not sys.stderr.isatty():
    return None
  return lambda name: _waiting.note(f'calibrating {name} ...')


def _chosen(found: offers.Advice, system: Optional[str]) -> offers.Offer:
  """Returns the offer that the user chose, or the best one."""
  if system is None:
    return found.offers[0]
  for offer in found.offers:
    if offer.system == system:
      return offer
  (reason,) = [
      each.reason for each in found.refusals if each.system == system
  ]
  fitting = ', '.join(offer.system for offer in found.offers)
  raise _checks.ArgumentError(
      'for', system, f'one of {fitting}; {system} {reason}'
  )


def _json(
    found: offers.Advice, chosen: offers.Offer, update_norm: Optional[float]
) -> dict[str, Any]:
  """Returns all results as JSON types."""
  offers = []
  for offer in found.offers:
    described = offer.to_json()
    if update_norm is not None:
      described['signal_to_noise'] = offer.signal_to_noise(update_norm)
    offers.append(described)
  return {
      'kind': _KIND,
      'schema_version': _SCHEMA_VERSION,
      'epsilon': found.setting.epsilon,
      'delta': found.setting.delta,
      'setting': dataclasses.asdict(found.setting),
      'update_norm': update_norm,
      'error_is': _ERROR,
      'compared': _compared(found.setting),
      'warnings': list(found.warnings),
      'systems': offers,
      'not_offered': [dataclasses.asdict(each) for each in found.refusals],
      'next': chosen.system,
  }


def _compared(setting: advice.Setting) -> str:
  """Returns a sentence about the common basis of the comparison."""
  if setting.unit == 'record':
    return _SAME['record']
  relation = setting.neighboring_relation
  implies = ', which implies it' if relation != 'replace_one' else ' anyway'
  return _SAME['client'].format(relation=relation, implies=implies)


def _lines(
    found: offers.Advice,
    chosen: offers.Offer,
    update_norm: Optional[float],
    has_details: bool,
) -> list[str]:
  setting = found.setting
  records = (
      f' with {setting.records} records each' if setting.records else ''
  )
  lines = [
      f'epsilon {rounding.short(setting.epsilon)} at delta'
      f' {rounding.short(setting.delta)};'
      f' {offers.TRUSTED[setting.trust]}',
      f'{setting.population} clients{records}, {setting.reports_per_round}'
      f' reports in each of {setting.rounds} rounds, {setting.parameters}'
      ' weights',
      *(f'WARNING: {warning}' for warning in found.warnings),
      '',
      *_table(found, setting, update_norm),
      '',
      *_wrapped(
          '+ rests on proofs of this project that were not peer reviewed. error:'
          ' noise on the mean update of a round, per weight, in clip norms.'
          ' alone: epsilon without amplification. --details has the rest.'
      ),
  ]
  if update_norm is not None:
    lines += _wrapped(
        f'snr: norm {update_norm:g} of a mean update over that of its noise.'
    )
  if has_details:
    lines += [
        '',
        *_wrapped(_ERROR),
        *_wrapped(_compared(setting)),
        *_wrapped(
            'alone: epsilon without amplification, and without the noise of'
            ' others. up, down: of a report, and of what a client gets in a'
            ' round in which it takes part. memory: models, and state of the'
            ' noise, at the server.'
        ),
    ]
  if found.refusals:
    lines += ['', 'Does not fit:']
  for reason in dict.fromkeys(each.reason for each in found.refusals):
    names = ', '.join(
        each.system for each in found.refusals if each.reason == reason
    )
    lines += _wrapped(f'- {names}: {reason}', '  ', '    ')
  for offer in found.offers if has_details else ():
    lines += ['', *_about(offer)]
  return lines + ['', *_next(chosen)]


def _table(found, setting, update_norm) -> list[str]:
  rows = [['', 'system', 'noise', 'error', 'norm', 'epsilon', 'alone', 'up',
           'down', 'memory']]
  if update_norm is not None:
    rows[0].insert(5, 'snr')
  for position, offer in enumerate(found.offers, start=1):
    row = [
        f'{position}',
        f'{offer.system} +' if _rests_on_own_proofs(offer) else offer.system,
        offer.variant,
        f'{offer.error:.4g}',
        f'{offer.error_l2:.4g}',
        rounding.rounded_up(offer.epsilon),
        rounding.rounded_up(offer.epsilon_no_amplification),
        _size(offer.bytes_up),
        _size(offer.bytes_down),
        _size(offer.model_copies * 4 * setting.parameters)
        + f' ({offer.model_copies})',
    ]
    if update_norm is not None:
      row.insert(5, f'{offer.signal_to_noise(update_norm):.3g}')
    rows.append(row)
  return results.aligned(rows, 3)


def _rests_on_own_proofs(offer: offers.Offer) -> bool:
  return any(bounds.OWN_PROOFS in sentence for sentence in offer.assumptions)


def _about(offer: offers.Offer) -> list[str]:
  """Returns lines about an offer, with the assumptions that it rests on."""
  if offer.unit == 'client':
    relation = run_events.NeighboringRelation(offer.neighboring_relation)
    neighbours = relation.description
  else:
    neighbours = 'one record of one client is replaced'
  noise = ', '.join(
      f'{name.replace("_", " ")} {value:.8g}'
      for name, value in offer.noise.items()
  )
  lines = _wrapped(
      f'{offer.system}: {systems.offers()[offer.system].summary}'
  )
  for name, text in (
      ('trusted', offer.trust),
      ('unit', offer.unit),
      ('neighbours', neighbours),
      ('noise', f'{offer.variant}: {noise}'),
      ('clients', offer.participation),
  ):
    lines += _wrapped(text, f'  {name:<12}', ' ' * 14)
  for sentence in offer.notes:
    lines += _wrapped(sentence, '  note        ', ' ' * 14)
  lines.append('  holds if')
  for sentence in offer.assumptions:
    if sentence.startswith('The unit is '):
      continue  # Printed above.
    lines += _wrapped(sentence, '  - ', '    ')
  return lines


def _next(offer: offers.Offer) -> list[str]:
  """Returns lines about the next steps with an offer."""
  lines = [f'To go on with {offer.system}:', '']
  if offer.command:
    lines += [f'  {line}' for line in _command(offer.command)] + ['']
  lines += [f'  {line}' for line in offer.python.splitlines()]
  return lines + ['', f'and then {offer.process}.']


def _command(words: tuple[str, ...]) -> list[str]:
  """Returns the lines of a command, which a shell reads as one line."""
  # A flag and its value stay on one line.
  text = shlex.join(words).replace(' ', '\0').replace('\0--', ' --')
  lines = textwrap.wrap(
      text,
      _WIDTH - 4,
      subsequent_indent='    ',
      break_long_words=False,
      break_on_hyphens=False,
  )
  lines = [line.replace('\0', ' ') for line in lines]
  return [f'{line} \\' for line in lines[:-1]] + lines[-1:]


def _wrapped(text: str, first: str = '', rest: str = '') -> list[str]:
  return textwrap.wrap(
      text,
      _WIDTH,
      initial_indent=first,
      subsequent_indent=rest or ' ' * len(first),
      break_on_hyphens=False,
  )


def _size(count: float) -> str:
  """Returns a number of bytes with three digits."""
  for unit in ('B', 'kB', 'MB', 'GB'):
    if count < 999.5:
      break
    count /= 1000
  return f'{count:.3g} {unit}'
