# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Entry point of `tff-dp` and `python -m tff_dp`, with the accounting commands.

`account`, `calibrate` and `statement` give the cost of one run. The run comes
from flags or from `events.json`. That file is not trusted: see `plans.events`.
Nothing is imported before it is needed, because `doctor` must work where the
accounting cannot even be imported.
"""

import argparse
from collections.abc import Callable, Sequence
import functools
import importlib
import json
import os
import pathlib
import sys
from typing import Any

from tff_dp import _checks
from tff_dp import _version
from tff_dp import _waiting
from tff_dp import systems
from tff_dp.cli import errors
from tff_dp.systems import system

# Only the module of the chosen command is loaded.
_COMMANDS = {
    'account': system.Tool(
        'epsilon of a run, from its parameters or its events.json',
        system.At('tff_dp.cli.main', 'add_account'),
    ),
    'advise': system.Tool(
        'which systems fit a setting, and what each would cost',
        system.At('tff_dp.cli.advise', 'add_arguments'),
    ),
    'calibrate': system.Tool(
        'the noise, or the rounds, that a privacy budget allows',
        system.At('tff_dp.cli.main', 'add_calibrate'),
    ),
    'doctor': system.Tool(
        'check this machine, and say how to fix it',
        system.At('tff_dp.cli.doctor', 'add_arguments'),
    ),
    'export': system.Tool(
        'a finished run as a bundle for a production stack, or its check',
        system.At('tff_dp.cli.export', 'add_arguments'),
    ),
    'statement': system.Tool(
        'the privacy statement of a plan, in twelve points',
        system.At('tff_dp.cli.main', 'add_statement'),
    ),
    'train': system.Tool(
        'train a task on data, as python -m tasks train does',
        system.At('tff_dp.cli.main', 'add_train'),
    ),
}
_MORE_EXAMPLES = """  tff-dp compare --rounds 2048 --min-index-gap 342 --max-participations 6
  tff-dp advise --population 60000 --reports-per-round 100 --rounds 1000 \\
      --parameters 10000 --epsilon 8 --delta 1e-6 --trust server
  tff-dp export runs/mine --output bundle
  tff-dp export --verify bundle
  tff-dp doctor

`tff-dp COMMAND --help` explains a command. Tasks: `python -m tasks --help`,
in a checkout.
""" + errors.DEBUG_HELP
_STATEMENT_FORMATS = ('markdown', 'json', 'html')


def main(argv: Sequence[str] | None = None) -> int:
  """Runs one command and returns its exit code."""
  if '_ARGCOMPLETE' in os.environ:
    _complete()
  return errors.run(
      _command, sys.argv[1:] if argv is None else argv, stopped='interrupted'
  )


def parse(words: Sequence[str]) -> argparse.Namespace:
  """Returns the flags of a command, with the function `run` that runs it."""
  return _parser().parse_args(_with_events(list(words)))


def _parser() -> errors.Parser:
  parser = errors.Parser(
      prog='tff-dp',
      description='Differentially private federated learning: its accounting.',
      epilog=_examples('') + _MORE_EXAMPLES,
  )
  parser.add_argument(
      '--version', action='version', version=f'tff-dp {_version.__version__}'
  )
  commands = parser.add_subparsers(
      dest='command', required=True, metavar='COMMAND'
  )
  # No system replaces a command of ours.
  for name, tool in sorted((systems.tools() | _COMMANDS).items()):
    commands.add_parser(
        name, help=tool.summary, fill=functools.partial(_fill, tool)
    )
  return parser


def _complete() -> None:
  """Tells the shell which words may come next, and exits."""
  # Its hook in the shell has set the variables. Nobody else needs it.
  import argcomplete  # pylint: disable=g-import-not-at-top

  parser = _parser()
  parser.prepare(os.environ.get('COMP_LINE', '').split()[1:])
  argcomplete.autocomplete(parser)


def add_account(parser: errors.Parser) -> None:
  """Adds the flags of `account`."""
  parser.description = (
      'Prints epsilon of a whole run with every model released, from its\n'
      'parameters (KIND) or recomputed from the events.json of a run.\n'
      'A kind claims the amplification that holds for its protocol, if any,\n'
      'and prints the epsilon without it beside.'
  )
  parser.epilog = _examples('account') + (
      '  a finished run, without believing its own numbers:\n'
      '    tff-dp account --events runs/mine\n'
  )
  _add_events(parser)
  _add_plot(parser)
  _add_format(parser, ('text', 'json'))
  parser.set_defaults(run=_account, is_solved=False)
  _add_kinds(parser, 'account', _account)


def add_calibrate(parser: errors.Parser) -> None:
  """Adds the flags of `calibrate`."""
  parser.description = (
      'Solves for what a privacy budget allows, rounds to the private side,\n'
      'and prints the guarantee of the solution.'
  )
  parser.epilog = _examples('calibrate')
  _add_kinds(parser, 'calibrate', _calibrate, required=True)


def add_statement(parser: errors.Parser) -> None:
  """Adds the flags of `statement`."""
  parser.description = (
      'Prints the privacy statement of a plan: setting, unit, neighbours,\n'
      'what is released, mechanism, accounting, guarantee and what it rests\n'
      'on. The plan comes from flags (KIND) or from the events.json of a run,\n'
      'whose rounds so far are then stated; who came is in the statement\n'
      'beside that file.'
  )
  parser.epilog = _examples('statement') + (
      '  of the rounds that a run has done:\n'
      '    tff-dp statement --events runs/mine\n'
  )
  _add_events(parser)
  _add_format(parser, _STATEMENT_FORMATS)
  parser.set_defaults(run=_statement, is_solved=False)
  _add_kinds(parser, 'statement', _statement, formats=_STATEMENT_FORMATS)


def add_train(parser: errors.Parser) -> None:
  """Adds the help of `train`. `_command` runs `train` without parsing it."""
  parser.description = (
      'Trains a task of the checkout on data. For a model of your own, call\n'
      'tff_dp.program.train, see README.md.'
  )
  parser.add('task', metavar='TASK', help='see tff-dp train --help in a checkout')


def run_of(arguments: argparse.Namespace) -> Any:
  """Returns the `PlanRun` of `KIND` and its flags, or of `--events`."""
  if arguments.kind is None:
    if arguments.events is None:
      raise _checks.ArgumentError(
          'events',
          None,
          f'a file, or a KIND and its flags, as in {arguments.command} dp-ftrl'
          f' --help. There are {", ".join(systems.commands())}',
      )
    # pylint: disable-next=g-import-not-at-top
    from tff_dp.plans import events

    arguments.events = _events_file(arguments.events)
    run = events.read(arguments.events)
    if arguments.delta is not None:
      run = run._replace(delta=arguments.delta)
    _checks.delta(delta=run.delta)
    return run
  if arguments.events is not None:
    raise _checks.ArgumentError(
        'events', arguments.events, f'no value with {arguments.kind}'
    )
  flags = _flags_of(arguments.kind)
  with errors.named_as_flags(flags.FLAGS):
    if arguments.is_solved:
      return flags.calibrated(arguments)[0]
    return flags.run_of(arguments)


def _with_events(words: list[str]) -> list[str]:
  """Returns the words, with `--events` inserted before the path of a run.

  Only `account` and `statement` can have a path there. A word is a path if it
  exists as one or has a slash, and does not name a kind of runs.
  """
  takes_events = words[:1] in (['account'], ['statement'])
  if takes_events and len(words) > 1 and not words[1].startswith('-'):
    is_path = os.sep in words[1] or os.path.exists(words[1])
    if is_path and words[1] not in systems.commands():
      return [words[0], '--events', *words[1:]]
  return words


def _events_file(path: str) -> str:
  """Returns the file of events at a path, which may be the folder of a run."""
  inside = ('events.json', os.path.join('release', 'events.json'))
  files = [os.path.join(path, name) for name in inside]
  return next(filter(os.path.isfile, files), path)


def _examples(command: str) -> str:
  """Returns the examples of all systems for the help of a command."""
  found = ['examples:\n']
  for each in systems.commands().values():
    if each.examples is not None:
      found.append(each.examples().get(command, ''))
  return ''.join(found)


def _command(words: list[str]) -> int:
  if words[:1] == ['train']:
    return _train(words)
  arguments = parse(words)
  return arguments.run(arguments)


def _train(words: list[str]) -> int:
  """Does what `python -m tasks` does, if it can be imported."""
  # Beside this package in a checkout, and never from the working directory.
  root = pathlib.Path(__file__).parents[2]
  if not (root / 'tasks' / '__main__.py').is_file():
    errors.show(
        'tff-dp train finds no tasks',
        why='they are in the checkout of tff_dp, and not in what pip installs',
        way_out='python -m tasks train digits, in a checkout; or'
        ' tff_dp.program.train(process, clients, ...) in Python for your model',
    )
    return errors.USAGE
  sys.path.insert(0, str(root))
  return importlib.import_module('tasks.__main__').main(words)


def _fill(tool: system.Tool, parser: errors.Parser) -> None:
  tool.add_arguments()(parser)


def _account(arguments: argparse.Namespace) -> int:
  """Prints the guarantee of the run that flags or a file describe."""
  # pylint: disable=g-import-not-at-top
  from tff_dp.cli import plots
  from tff_dp.cli import results

  # pylint: enable=g-import-not-at-top
  if arguments.is_solved:
    return _calibrate(arguments)
  if arguments.plot is not None:
    plots.check(arguments.plot)
  with _waiting.saying('computing epsilon'):
    described = run_of(arguments)
    with _naming(arguments):
      result = results.of(described)
      if arguments.plot is not None:
        _write_plot(arguments, described)
  results.show(result, arguments.format, described.plan.details_in_words)
  return errors.DONE


def _write_plot(arguments: argparse.Namespace, described: Any) -> None:
  """Writes the picture of the run's kind if it has one, else epsilon by round.
  """
  # pylint: disable-next=g-import-not-at-top
  from tff_dp.cli import plots

  flags = arguments.kind and _flags_of(arguments.kind)
  if hasattr(flags, 'write_plot'):
    flags.write_plot(arguments)
  else:
    plots.write_epsilon_by_round(arguments.plot, described)
  _waiting.note(f'wrote {arguments.plot}')


def _calibrate(arguments: argparse.Namespace) -> int:
  """Calibrates, and prints the guarantee of the solution."""
  # pylint: disable-next=g-import-not-at-top
  from tff_dp.cli import results

  _checks.positive(epsilon=arguments.epsilon)
  if arguments.delta is not None:
    _checks.delta(delta=arguments.delta)
  with _naming(arguments), _waiting.saying('calibrating'):
    found, solution = _flags_of(arguments.kind).calibrated(arguments)
    result = results.of(found)
  result['details']['calibration'] = {
      'epsilon_budget': arguments.epsilon, **solution
  }
  results.show(result, arguments.format, found.plan.details_in_words)
  return errors.DONE


def _statement(arguments: argparse.Namespace) -> int:
  """Prints the statement of a plan or run, which flags or a file describe."""
  # pylint: disable-next=g-import-not-at-top
  from tff_dp.statement import builder

  with _waiting.saying('computing the statement'):
    described, observed = run_of(arguments), None
    if arguments.kind is None:
      observed = builder.RoundsDone(described.num_rounds)
    with _naming(arguments):
      statement = described.plan.statement(
          delta=described.delta, observed=observed
      )
    if arguments.format == 'json':
      text = json.dumps(statement.to_json(), indent=2, allow_nan=False) + '\n'
    elif arguments.format == 'html':
      text = statement.to_html()
    else:
      text = statement.to_markdown()
  print(text, end='')
  return errors.DONE


def _naming(arguments: argparse.Namespace):
  """Returns a context manager: errors in its block name the flag or the file.
  """
  if arguments.kind is not None:
    return errors.named_as_flags(_flags_of(arguments.kind).FLAGS)
  # pylint: disable-next=g-import-not-at-top
  from tff_dp.plans import events

  return events.blaming(arguments.events)


def _add_kinds(
    parser: errors.Parser,
    command: str,
    run: Callable[[argparse.Namespace], int],
    *,
    required: bool = False,
    formats: tuple[str, ...] = ('text', 'json'),
) -> None:
  """Adds all kinds of runs to a command.

  Args:
    parser: Parser of the command.
    command: 'account', 'calibrate' or 'statement'.
    run: Function that runs the command.
    required: Whether the command needs a kind.
    formats: Formats of the output, the default first.
  """

  def fill(kind, kind_parser):
    flags, asked = _flags_of(kind), command
    if command != 'calibrate' and kind_parser.asks_for('--epsilon'):
      # Where epsilon is no flag of the noise, it is a budget to solve for.
      usual = errors.Parser()
      flags.add_arguments(usual, kind, command)
      asked = command if usual.has('--epsilon') else 'calibrate'
    flags.add_arguments(kind_parser, kind, asked)
    if command == 'account':
      _add_plot(kind_parser)
    _add_format(kind_parser, formats)
    kind_parser.set_defaults(run=run, is_solved=asked != command)

  kinds = parser.add_subparsers(
      dest='kind', metavar='KIND', required=required
  )
  for kind, offered in systems.commands().items():
    kinds.add_parser(
        kind, help=offered.summary, fill=functools.partial(fill, kind)
    )


def _add_format(
    parser: errors.Parser, formats: tuple[str, ...]
) -> None:
  """Adds `--format`."""
  parser.add('--format', choices=formats, default=formats[0])


def _add_plot(parser: errors.Parser) -> None:
  """Adds `--plot`."""
  parser.add(
      '--plot', metavar='FILE', nargs='?', const='epsilon.png',
      help='draw epsilon as a PNG (without FILE: epsilon.png)',
  )


def _add_events(parser: errors.Parser) -> None:
  """Adds `--events`, which reads a plan from a file instead of flags."""
  parser.add('--events', metavar='RUN', help='the directory of a run, or its'
             ' events.json')
  parser.add('--delta', float, help="with --events, a delta in place of the"
             " run's own")


def _flags_of(kind: str) -> Any:
  """Returns the flags of a kind of runs, see `systems.system.Command`."""
  return systems.commands()[kind].flags()


if __name__ == '__main__':
  sys.exit(main())
