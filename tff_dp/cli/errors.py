# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Errors on the command line: what, why, what to try, and an exit code.

Exit codes:

- 0: done.
- 1: internal error.
- 2: usage.
- 3: environment, data or disk.
- 4: reserved for a run that its budget stopped.
- 5: refused for privacy.
- 129, 130, 143: stopped by SIGHUP, SIGINT, SIGTERM.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
import contextlib
import difflib
import errno
import shlex
import sys

from tff_dp import _calls
from tff_dp import _checks
from tff_dp import _compat
from tff_dp import _failures

DONE = 0
INTERNAL = 1
USAGE = 2
ENVIRONMENT = 3
REFUSED = 5
INTERRUPTED = 130
_DEBUG = '--debug'
DEBUG_HELP = f'{_DEBUG}, anywhere: the trace of an error, too (or TFF_DP_DEBUG=1).'
_LONGEST = 300
# Values that complete a command in an error, for required flags.
_EXAMPLE_VALUES = {
    '--batch-size': '100',
    '--check-in-probability': '1',
    '--check-in-rate': '0.1',
    '--clients-per-round': '100',
    '--delta': '1e-6',
    '--epochs': '5',
    '--epsilon': '2',
    '--local-epsilon': '1',
    '--max-participations': '1',
    '--noise-multiplier': '4',
    '--parameters': '1000',
    '--population': '100000',
    '--records': '1000',
    '--reports-per-round': '100',
    '--rounds': '100',
    '--slots': '50',
    '--trust': 'server',
}
_REQUIRED = 'the following arguments are required: '
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Parser(argparse.ArgumentParser):
  """An `ArgumentParser` with our errors and without abbreviated flags.

  The argument `fill` is a function that adds flags to the parser. It is called
  only when the parser first parses.
  """

  def __init__(
      self,
      *,
      fill: Callable[[argparse.ArgumentParser], None] | None = None,
      **options,
  ):
    options.setdefault('formatter_class', argparse.RawDescriptionHelpFormatter)
    super().__init__(allow_abbrev=False, **options)
    self._fill = fill
    self._words = []

  def asks_for(self, flag: str) -> bool:
    """Returns whether the words that are parsed have a flag."""
    return any(word.partition('=')[0] == flag for word in self._words)

  def has(self, flag: str) -> bool:
    """Returns whether the parser knows a flag."""
    return flag in self._option_string_actions

  def add(self, flag: str, kind: type | None = None, *, to=None, **options):
    """Adds a flag.

    Args:
      flag: The flag, with its dashes.
      kind: Type of the value, `None` for text. `--rounds` is always an integer
        of at most `_checks.MOST_ROUNDS`.
      to: Group of the flag, `None` for the parser itself.
      **options: Options of `add_argument`.
    """
    if flag == '--rounds':
      kind = _rounds
    if kind is not None:
      options['type'] = kind
    (to or self).add_argument(flag, **options)

  def add_relation(self):
    """Adds `--neighboring-relation`."""
    # `doctor` needs no accounting. pylint: disable-next=g-import-not-at-top
    from tff_dp.accounting.events import run_events

    self.add_argument(
        '--neighboring-relation',
        choices=[each.value for each in run_events.NeighboringRelation],
        default='zero_out',
        help='how two neighbouring data sets differ (default: zero_out)',
    )

  def prepare(self, words: Sequence[str]) -> None:
    """Adds all flags of this parser and of the commands in the words."""
    self._add_flags(words)
    for action in self._actions:
      if action.nargs == argparse.PARSER:
        for place, word in enumerate(words):
          if word in action.choices:
            action.choices[word].prepare(words[place + 1 :])
            break

  def _add_flags(self, words: Sequence[str]) -> None:
    """Calls `fill`, the first time, for a parser of these words."""
    self._words = list(words)
    fill, self._fill = self._fill, None
    if fill is not None:
      fill(self)

  def parse_known_args(self, args=None, namespace=None):
    """See base class."""
    self._add_flags(args or ())
    if args is not None and self._subparsers is None:
      self._check_flags(args)
    return super().parse_known_args(args, namespace)

  def _check_flags(self, words: Sequence[str]) -> None:
    """Exits if a flag does not exist, and names the one that was meant, if any.

    This check runs before the base class complains about missing flags.
    """
    known = [flag for flag in self._option_string_actions if flag[:2] == '--']
    for word in words:
      name = word.partition('=')[0]
      if not name.startswith('--') or name == '--' or name in known:
        continue
      meant = _calls.meant(_argument(name), [_argument(f) for f in known])
      if meant:
        meant = flag(meant) + _calls.note(meant)
      else:
        close = [flag for flag in known if flag.startswith(name)]
        close += difflib.get_close_matches(name, known, n=1, cutoff=0.75)
        meant = close[0] if close else f'{self.prog} --help'
      show(f'{self.prog} has no flag {name}', way_out=meant)
      self.exit(USAGE)

  def _check_value(self, action, value):
    """For a command or kind that does not exist, names the nearest, and exits.
    """
    if action.nargs != argparse.PARSER or value in action.choices:
      super()._check_value(action, value)
      return
    names = list(action.choices)
    close = [name for name in names if value in name]
    close += difflib.get_close_matches(value, names, n=1)
    show(
        f'{self.prog} has no {action.metavar or action.dest} {value}',
        why=f'there are {", ".join(names)}',
        way_out=f'{self.prog} {close[0] if close else "--help"}',
    )
    self.exit(USAGE)

  def error(self, message: str):
    """Prints the message and exits with status 2."""
    way_out = f'{self.prog} --help'
    missing = message.removeprefix(_REQUIRED).split(', ')
    if message.startswith(_REQUIRED) and set(missing) <= set(_EXAMPLE_VALUES):
      way_out = shlex.join([
          *self.prog.split(),
          *self._words,
          *(f'{flag}={_EXAMPLE_VALUES[flag]}' for flag in missing),
      ])
    show(message, way_out=way_out)
    self.exit(USAGE)


def _rounds(text: str) -> int:
  value = int(text)
  if value > _checks.MOST_ROUNDS:
    raise argparse.ArgumentTypeError(
        f'{text} is above {_checks.MOST_ROUNDS}, the largest number of rounds'
    )
  return value


_rounds.__name__ = 'int'  # For the message about a value that is no number.


def hyphenated(words: Sequence[str]) -> list[str]:
  """Returns the words with `--flags_like_this` spelled `--flags-like-this`."""

  def convert(word):
    if not word.startswith('--'):
      return word
    name, equals, value = word.partition('=')
    return name.replace('_', '-') + equals + value

  return [convert(word) for word in words]


def _argument(name: str) -> str:
  """Returns the name of the argument of a flag."""
  return name.removeprefix('--').replace('-', '_')


def flag(argument: str) -> str:
  """Returns the flag of an argument's name."""
  return '--' + argument.replace('_', '-')


@contextlib.contextmanager
def named_as_flags(names: Mapping[str, str]):
  """Renames the argument of an error in the block to the name of its flag.

  Args:
    names: Maps an argument's name to its flag's name, without dashes.
  """
  try:
    yield
  except _checks.ArgumentError as error:
    if error.argument not in names:
      raise
    raise error.renamed(names[error.argument]) from error


def run(
    command: Callable[[list[str]], int], words: Sequence[str], *, stopped: str
) -> int:
  """Runs a command and returns its exit code, also after an error.

  A `SystemExit` of the command, such as after `--help`, is not caught.

  Args:
    command: Function from the words without `--debug` to an exit code.
    words: Words of the command line.
    stopped: Text to print after Ctrl-C, such as 'interrupted'.
  """
  words = hyphenated(words)
  is_debug = _compat.is_debug() or _DEBUG in words
  try:
    return command([word for word in words if word != _DEBUG])
  except BrokenPipeError:
    # The reader of a pipe, such as `head`, has closed it.
    sys.stderr.close()
    return DONE
  except KeyboardInterrupt:
    print(stopped, file=sys.stderr)
    return INTERRUPTED
  except Exception as error:  # pylint: disable=broad-exception-caught
    if is_debug:
      print(_failures.trace(error), file=sys.stderr)
    return report(error)


def show(what: str, *, why: str = '', way_out: str = '') -> None:
  """Prints an error on stderr, with its reason and a way out if given.

  Args:
    what: The error.
    why: Reason, or ''.
    way_out: Alternative to try, or ''.
  """
  lines = [f'error: {what}']
  if why:
    lines.append(f'why: {why}')
  if way_out:
    lines.append(f'try: {way_out}')
  # Our own messages may have several lines. Foreign names in them are escaped.
  lines = '\n'.join(lines).split('\n')
  print('\n'.join(map(_checks.printable, lines)), file=sys.stderr)


def report(error: Exception) -> int:
  """Prints an error as `show` does and returns its exit code."""
  if isinstance(error, _checks.ArgumentError):
    # A flag that was left out is `None`.
    is_missing = error.value is None
    problem = ' is missing' if is_missing else f'={_checks.printable(str(error.value))} is not allowed'
    show(
        f'{flag(error.argument)}{problem}: expected {error.allowed}',
        why=error.why,
        way_out=error.way_out,
    )
    return USAGE
  if isinstance(error, _checks.PrivacyRefusedError):
    show(error.what, why=error.why, way_out=error.way_out)
    return REFUSED
  if isinstance(error, _compat.BrokenEnvironmentError):
    show(str(error))
    return ENVIRONMENT
  if isinstance(error, ImportError):
    show(
        str(error),
        why='a package is missing or broken',
        way_out='tff-dp doctor',
    )
    return ENVIRONMENT
  if isinstance(error, _failures.ComputationError):
    whose = 'this client'
    if not isinstance(error, _failures.ClientComputationError):
      whose = 'a client'
    details = f'the `details` of the error quote TensorFlow. {_failures.WAY_OUT}'
    show(
        str(error),
        why=f"the data or the model of {whose}; TensorFlow's message may show"
        ' the data, so only the log has it',
        way_out=_notes(error) or details,
    )
    return ENVIRONMENT
  if isinstance(error, OSError):
    what = error.strerror or str(error)
    if error.filename is not None:
      what = f'{error.filename}: {what}'
    if error.errno in _FULL:
      show(
          what,
          why='the disk, or your share of it, is full',
          way_out='make room; then the same command goes on from what is saved',
      )
    else:
      show(what)
    return ENVIRONMENT
  what = ' '.join(str(error).split()) or 'no message'
  if _failures.may_quote_data(error):
    what = 'it may show data of clients, so it is not said here'
  if len(what) > _LONGEST:
    what = what[:_LONGEST] + '...'
  show(
      f'{type(error).__name__}: {what}',
      why='not an error that this command knows: probably a bug',
      way_out=_trace_of(error),
  )
  return INTERNAL


def _trace_of(error: Exception) -> str:
  return f'{_notes(error)} {_DEBUG} shows it here'.strip()


def _notes(error: Exception) -> str:
  return ' '.join(getattr(error, '__notes__', ()))
