# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Counts the files that one epsilon goes through, from its flags.

  python tools/trace_epsilon.py                       # one command of each kind
  python tools/trace_epsilon.py --list                # and which files
  python tools/trace_epsilon.py dp-ftrl --rounds 8 --noise-multiplier 2 ...

A file counts if a function in it runs between the words after `tff-dp account`
and the return of `plan.epsilon`: what somebody has to open who follows the
number in a debugger. Imports do not count, nor what prints the number. Caches
are empty. `front` are the files that read and check flags, `tff_dp/cli` and
`_checks`: the same three for every kind, and one of its own; `number` are the
rest.
"""

import argparse
import functools
import gc
import pathlib
import sys

_PACKAGE = pathlib.Path(__file__).resolve().parents[1] / 'tff_dp'
sys.path.insert(0, str(_PACKAGE.parent))

# pylint: disable=g-import-not-at-top
from tff_dp.cli import main as main_lib
# pylint: enable=g-import-not-at-top

_TREE = '--rounds 64 --max-participations 4 --min-index-gap 16'
KINDS = (
    f'dp-ftrl --mechanism independent {_TREE} --noise-multiplier 4',
    f'dp-ftrl --mechanism honaker {_TREE} --noise-multiplier 4',
    f'dp-ftrl --mechanism blt {_TREE} --noise-multiplier 4',
    'shuffle --population 10000 --local-epsilon 1',
    'shuffled-check-in --population 10000 --check-in-rate 0.01'
    ' --local-epsilon 2 --rounds 100',
    'random-check-in --slots 50 --local-epsilon 0.5',
    'random-allocation --slots 50 --noise-multiplier 1',
    'cyclic-allocation --rounds 64 --windows 2 --stride 8 --noise-multiplier 2',
    'isrl --records 1238 --rounds 35 --batch-size 100 --sampling poisson'
    ' --noise-multiplier 4.2',
    'dp-fedavg --population 3400 --clients-per-round 100 --rounds 200'
    ' --noise-multiplier 1',
    'draw-and-discard --parameters 33 --epsilon 1 --instances 20'
    ' --participations 3',
)
DELTA = '--delta=1e-6'


def files_of(words: list[str]) -> list[str]:
  """Returns the files below tff_dp that an epsilon goes through, sorted."""
  _epsilon(words)  # Imports whatever it needs.
  for found in gc.get_objects():
    if isinstance(found, functools._lru_cache_wrapper):  # pylint: disable=protected-access
      found.cache_clear()
  files = set()

  def profile(frame, event, unused_argument):
    if event == 'call':
      files.add(frame.f_code.co_filename)

  sys.setprofile(profile)
  try:
    _epsilon(words)
  finally:
    sys.setprofile(None)
  paths = map(pathlib.Path, files)
  return sorted(
      str(path.relative_to(_PACKAGE))
      for path in paths
      if path.is_relative_to(_PACKAGE)
  )


def _epsilon(words: list[str]) -> None:
  run = main_lib.run_of(main_lib.parse(['account', *words]))
  run.plan.epsilon(delta=run.delta, num_rounds=run.num_rounds)


def main() -> None:
  """Prints a line for each kind."""
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--list', action='store_true', help='name the files')
  arguments, words = parser.parse_known_args()
  commands = [words] if words else [kind.split() for kind in KINDS]
  print('front  number  all  kind')
  for command in commands:
    if not words:
      command.append(DELTA)
    files = files_of(command)
    front = [
        name for name in files if name.startswith('cli/') or name == '_checks.py'
    ]
    count = len(files) - len(front)
    print(f'{len(front):5}  {count:6}  {len(files):3}  {" ".join(command[:3])}')
    if arguments.list:
      print(*(f'    {name}' for name in files), sep='\n')


if __name__ == '__main__':
  main()
