# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Errors as a command line shows them: what, why, what to try; an exit code.

Exit codes: 0 done; 1 internal error; 2 usage; 3 environment, data or disk; 5
refused for privacy; 129, 130 and 143 stopped by SIGHUP, SIGINT and SIGTERM. 4
is kept for a run that its budget stopped.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
import contextlib
import difflib
import errno
import sys

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
# What people write for a flag of another name.
_MEANT = {'--sigma': '--noise-multiplier', '--noise': '--noise-multiplier'}
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Parser(argparse.ArgumentParser):
  """An `ArgumentParser` with our errors and without abbreviated flags.

  One that has a `fill` gets its flags from it, once it is to parse any.
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

  def add(self, flag: str, kind: type | None = None, *, to=None, **options):
    """Adds a flag of a type, to a group of the parser if there is one."""
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

  def parse_known_args(self, args=None, namespace=None):
    """See base class."""
    fill, self._fill = self._fill, None
    if fill is not None:
      fill(self)
    if args is not None and self._subparsers is None:
      self._check_flags(args)
    return super().parse_known_args(args, namespace)

  def _check_flags(self, words: Sequence[str]) -> None:
    """Exits at a flag that there is not, if it is clear which one was meant.

    Before the base class says which flags are required.
    """
    known = [flag for flag in self._option_string_actions if flag[:2] == '--']
    for word in words:
      name = word.partition('=')[0]
      if not name.startswith('--') or name == '--' or name in known:
        continue
      meant = _MEANT.get(name)
      if meant not in known:
        close = [flag for flag in known if flag.startswith(name)]
        close += difflib.get_close_matches(name, known, n=1, cutoff=0.75)
        meant = close[0] if close else None
      if meant:
        show(f'{self.prog} has no flag {name}', way_out=meant)
        self.exit(USAGE)

  def error(self, message: str):
    """Prints the message and exits with status 2."""
    show(message, way_out=f'{self.prog} --help')
    self.exit(USAGE)


def _rounds(text: str) -> int:
  value = int(text)
  if value > _checks.MOST_ROUNDS:
    raise argparse.ArgumentTypeError(
        f'{text} is above {_checks.MOST_ROUNDS}, the most rounds that are accounted'
    )
  return value


_rounds.__name__ = 'int'  # For the message about what is no number.


def hyphenated(words: Sequence[str]) -> list[str]:
  """Returns the words with `--flags_like_this` spelled `--flags-like-this`."""

  def convert(word):
    if not word.startswith('--'):
      return word
    name, equals, value = word.partition('=')
    return name.replace('_', '-') + equals + value

  return [convert(word) for word in words]


def flag(argument: str) -> str:
  """Returns the flag that belongs to an argument's name."""
  return '--' + argument.replace('_', '-')


@contextlib.contextmanager
def named_as_flags(names: Mapping[str, str]):
  """Renames the argument of an error to that of its flag.

  Args:
    names: The flag's name, without dashes, by that of the argument.
  """
  try:
    yield
  except _checks.ArgumentError as error:
    if error.argument not in names:
      raise
    raise _checks.ArgumentError(
        names[error.argument], error.value, error.allowed
    ) from error


def run(
    command: Callable[[list[str]], int], words: Sequence[str], *, stopped: str
) -> int:
  """Returns the exit code of a command, however it ends.

  Args:
    command: Gets the words without `--debug`; returns an exit code.
    words: Of the command line.
    stopped: What to say after Ctrl-C.
  """
  words = hyphenated(words)
  is_debug = _compat.is_debug() or _DEBUG in words
  try:
    return command([word for word in words if word != _DEBUG])
  except BrokenPipeError:
    # The reader of a pipe, such as `head`, has seen enough.
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
  """Prints up to three lines on stderr."""
  lines = [f'error: {what}']
  if why:
    lines.append(f'why: {why}')
  if way_out:
    lines.append(f'try: {way_out}')
  # What we say may have several lines; a name of a stranger's in it is escaped.
  lines = '\n'.join(lines).split('\n')
  print('\n'.join(map(_checks.printable, lines)), file=sys.stderr)


def report(error: Exception) -> int:
  """Prints an error in up to three lines and returns its exit code."""
  if isinstance(error, _checks.ArgumentError):
    # None is what a flag is that was left out.
    is_missing = error.value is None
    problem = ' is missing' if is_missing else f'={_checks.printable(str(error.value))} is not allowed'
    show(f'{flag(error.argument)}{problem}: expected {error.allowed}')
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
    where = _notes(error) or 'its `details` have it.'
    show(
        str(error),
        why=f'the data or the model of {whose}; what TensorFlow said may show'
        ' the data, so only the log has it',
        way_out=f'{where} Leave bad examples out with a filter, see'
        ' docs/training.md',
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
