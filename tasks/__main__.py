# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""The tasks' command line: `python -m tasks --help`."""

import argparse
import importlib
import sys

from tasks import engine
from tff_dp import _compat
from tff_dp.cli import errors

# Task -> what it does; the module of the same name is loaded when it is used.
_TASKS = {
    'digits': 'DP-FTRL on 4,000 real handwritten digits, against two baselines',
}
_PROGRESS = ('auto', 'bar', 'plain', 'quiet')
_EXAMPLES = """examples:
  python -m tasks list
  python -m tasks train digits
  python -m tasks train digits --epsilon 4 --output-dir runs/digits_eps4
"""


def _build_parser(task_name: str | None) -> argparse.ArgumentParser:
  """Returns the parser; the flags of `train` are those of one task."""
  parser = errors.Parser(
      prog='python -m tasks',
      description='Trains models on real data with differential privacy.',
      epilog=_EXAMPLES,
  )
  commands = parser.add_subparsers(dest='command', required=True)
  commands.add_parser('list', help='the tasks, a line each')
  train = commands.add_parser('train', help='train one task')
  tasks = train.add_subparsers(dest='task', required=True, metavar='TASK')
  for name, summary in _TASKS.items():
    if name != task_name:
      tasks.add_parser(name, help=summary, add_help=False)
      continue
    module = importlib.import_module(f'tasks.{name}')
    task = tasks.add_parser(
        name,
        help=summary,
        description=module.__doc__,
        epilog=module.EXAMPLES,
    )
    module.add_arguments(task)
    engine.add_arguments(task)
    task.add_argument(
        '--progress',
        choices=_PROGRESS,
        default='auto',
        help='bar on a terminal, plain lines elsewhere (default: auto)',
    )
  return parser


def main(argv: list[str] | None = None) -> int:
  """Runs one command and returns its exit code."""
  argv = errors.hyphenated(sys.argv[1:] if argv is None else argv)
  task_name = argv[1] if argv[:1] == ['train'] and len(argv) > 1 else None
  if task_name is not None and not task_name.startswith('-'):
    if task_name not in _TASKS:
      errors.show(
          f'TASK={task_name} is not allowed: expected one of'
          f' {", ".join(_TASKS)}',
          way_out='python -m tasks list',
      )
      return errors.USAGE
  arguments = _build_parser(task_name).parse_args(argv)
  if arguments.command == 'list':
    for name, summary in _TASKS.items():
      print(f'{name:<12} {summary}')
    return 0
  values = vars(arguments)
  progress = values.pop('progress')
  del values['command'], values['task']
  module = importlib.import_module(f'tasks.{task_name}')
  try:
    where = engine.take_settings(values)
    return module.main(
        module.Settings(**values), where=where, progress=progress
    )
  except _compat.BrokenEnvironmentError as error:
    errors.show(str(error))
    return errors.ENVIRONMENT
  except KeyboardInterrupt:
    print('interrupted; the same command resumes', file=sys.stderr)
    return errors.INTERRUPTED
  except Exception as error:  # pylint: disable=broad-exception-caught
    return errors.report(error)


if __name__ == '__main__':
  sys.exit(main())
