# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares our contexts with TFF's own runtime: `python -m tests.oracle`.

TFF's values come from its runtime where that works, and from `recorded/`
elsewhere. Where both are there, they are compared, too.
"""

import argparse
import os
import sys

if __name__ == '__main__':
  # Before TensorFlow is imported: with oneDNN, the kernels of one machine are
  # not those of the next.
  os.environ['TF_ENABLE_ONEDNN_OPTS'] = '0'

# pylint: disable=g-import-not-at-top,wrong-import-position
from collections.abc import Sequence
import dataclasses
import importlib
import json
import pathlib
import time

import tff_dp  # noqa: F401 pylint: disable=unused-import
import tqdm

from tests.oracle import oracle
from tests.oracle import programs
from tff_dp import _compat
# pylint: enable=g-import-not-at-top,wrong-import-position

# Kind -> the module of its cases.
_MODULES = {
    'tutorial': 'tests.oracle.tutorials',
    'builder': 'tests.oracle.builders',
    'generated': 'tests.oracle.generated',
    'poisoned': 'tests.oracle.poisoned',
}
_EXAMPLES = """\
examples:
  python -m tests.oracle
      all cases on all paths; exits with 0 only if nothing differs
  python -m tests.oracle --kinds tutorial --cases text_generation
      one case of one kind
  python -m tests.oracle --kinds generated --generated 50 --seed 7
      50 generated cases from a seed, without the recorded ones
  python -m tests.oracle --part 1/8
      every eighth case
  python -m tests.oracle --kinds tutorial generated --part 1/8 1/50
      every eighth case of the one kind, every fiftieth of the other
  python -m tests.oracle --paths single vectorized
      TFF's runtime and two of our paths
  python -m tests.oracle --kinds tutorial --record
      keep what TFF gives now in recorded/tutorial.npz; nothing is compared
  python -m tests.oracle --kinds generated --seed 7 --journal seed_7.jsonl
      go on where an earlier run of the command ended
  .venv-current/bin/python -m tests.oracle
      the same cases on a newer TensorFlow, against what was recorded
"""
_LINE_SECONDS = 60.0
_RECORDED = 'recorded'


class _Progress:
  """Shows how far the work is: a bar on a terminal, else a line a minute."""

  def __init__(self, total: int):
    self._total = total
    self._done = 0
    self._start = self._last_line = time.monotonic()
    self._bar = None
    if sys.stderr.isatty():
      self._bar = tqdm.tqdm(
          total=total, unit='run', file=sys.stderr, dynamic_ncols=True
      )

  def begin(self, what: str) -> None:
    if self._bar is not None:
      self._bar.set_postfix_str(what)
      return
    now = time.monotonic()
    if now - self._last_line >= _LINE_SECONDS:
      self._last_line = now
      left = 'no estimate yet'
      if self._done:
        seconds = (now - self._start) / self._done * (self._total - self._done)
        left = f'{seconds / 60:.1f} min left'
      print(
          f'{self._done} of {self._total} runs, {left}; now {what}',
          file=sys.stderr,
          flush=True,
      )

  def end(self) -> None:
    self._done += 1
    if self._bar is not None:
      self._bar.update()

  def skip(self, num: int) -> None:
    self._total -= num
    if self._bar is not None:
      self._bar.total = self._total
      self._bar.refresh()

  def close(self) -> None:
    if self._bar is not None:
      self._bar.close()


@dataclasses.dataclass
class _Report:
  """What was found in one kind of cases.

  Attributes:
    kind: The kind.
    num_cases: How many cases ran.
    num_compared: How many outcomes were compared with TFF's.
    differences: (case, path, words), one for each value that differs.
    both_raise: (case, path, TFF's error, our error).
    refused: (case, path, message).
    ended: Cases in which the process ended, in an earlier run: see --journal.
    seconds: What each path took, all cases together.
    slowest: (seconds, case, path) of the slowest run.
    clients: How our contexts let clients work, by path.
  """

  kind: str
  num_cases: int = 0
  num_compared: int = 0
  differences: list[tuple[str, str, str]] = dataclasses.field(
      default_factory=list
  )
  both_raise: list[tuple[str, str, str, str]] = dataclasses.field(
      default_factory=list
  )
  refused: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)
  ended: list[str] = dataclasses.field(default_factory=list)
  seconds: dict[str, float] = dataclasses.field(default_factory=dict)
  slowest: tuple[float, str, str] = (0.0, '', '')
  clients: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)

  def add(self, other: '_Report') -> None:
    """Adds what was found in one case."""
    self.num_cases += other.num_cases
    self.num_compared += other.num_compared
    for name in ('differences', 'both_raise', 'refused', 'ended'):
      getattr(self, name).extend(getattr(other, name))


class _Journal:
  """What earlier runs of one command found, case by case, in a file."""

  def __init__(self, path: pathlib.Path | None):
    self._path = path
    self._reports = {}
    if path is not None and path.exists():
      for line in path.read_text().splitlines():
        kind, name, found = json.loads(line)
        self._reports[kind, name] = found

  def report(self, kind: str, name: str) -> _Report | None:
    """Returns what was found in a case; None if it did not run yet."""
    if (kind, name) not in self._reports:
      return None
    found = self._reports[kind, name]
    if found is None:
      return _Report(kind, num_cases=1, ended=[name])
    return _Report(kind, num_cases=1, **found)

  def begin(self, kind: str, name: str) -> None:
    self._write(kind, name, None)

  def end(self, kind: str, name: str, report: _Report) -> None:
    names = ('num_compared', 'differences', 'both_raise', 'refused')
    self._write(kind, name, {key: getattr(report, key) for key in names})

  def _write(self, *line) -> None:
    if self._path is not None:
      with self._path.open('a') as file:
        file.write(json.dumps(line) + '\n')


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
      prog='python -m tests.oracle',
      description=(
          'Run cases under TFF\'s own runtime and under each path of our'
          ' in-process context, and compare every value that comes out.'
      ),
      epilog=_EXAMPLES,
      formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument(
      '--kinds', nargs='+', choices=_MODULES, default=list(_MODULES)
  )
  parser.add_argument(
      '--cases', nargs='+', metavar='NAME', help='only the cases of these names'
  )
  parser.add_argument(
      '--generated',
      type=int,
      metavar='N',
      default=200,
      help='how many cases to generate beside the recorded ones (default: 200)',
  )
  parser.add_argument(
      '--part',
      nargs='+',
      type=_part,
      metavar='K/N',
      default=[(1, 1)],
      help=(
          'only every N-th case, from the K-th on (default: 1/1); one part for'
          ' all kinds, or one for each'
      ),
  )
  parser.add_argument(
      '--seed',
      type=int,
      help='generate from this seed, and leave the recorded cases out',
  )
  parser.add_argument(
      '--paths',
      nargs='+',
      choices=oracle.OWN_PATHS,
      default=list(oracle.OWN_PATHS),
      help="our paths to compare with TFF's runtime (default: all)",
  )
  parser.add_argument(
      '--record',
      action='store_true',
      help="keep TFF's values for the stacks without its runtime",
  )
  parser.add_argument(
      '--json', type=pathlib.Path, metavar='FILE', help='write the report there'
  )
  parser.add_argument(
      '--show',
      action='store_true',
      help='print the programs of the generated cases first',
  )
  parser.add_argument(
      '--journal',
      type=pathlib.Path,
      metavar='FILE',
      help=(
          'note each case there, and go on after the last one if the file is'
          ' there already; a case in which the process ended is not run again'
      ),
  )
  options = parser.parse_args(arguments)
  if options.generated < 0:
    parser.error(f'--generated is {options.generated}, not at least 0')
  if len(options.part) == 1:
    options.part *= len(options.kinds)
  if len(options.part) != len(options.kinds):
    parser.error(
        f'--part has {len(options.part)} parts for {len(options.kinds)} kinds'
    )
  if options.record and not _compat.COLUMN.has_worker:
    parser.error(
        "--record needs TFF's runtime, which only the reference stack has"
        ' (.venv/bin/python)'
    )
  return options


def _part(text: str) -> tuple[int, int]:
  """Returns K and N of 'K/N'."""
  first, _, step = text.partition('/')
  if not (first.isdecimal() and step.isdecimal()):
    raise argparse.ArgumentTypeError(f'{text!r} is not two numbers, as in 1/8')
  if not 1 <= int(first) <= int(step):
    raise argparse.ArgumentTypeError(f'in {text!r}, K is not from 1 to N')
  return int(first), int(step)


def _load(kind: str, options) -> list[oracle.Case] | None:
  """Returns the cases of a kind; None if there is no such module yet."""
  name = _MODULES[kind]
  try:
    module = importlib.import_module(name)
  except ModuleNotFoundError as error:
    if error.name != name:
      raise
    return None
  if kind != 'generated':
    cases = list(module.CASES)
  else:
    cases = []
    if options.seed is None or not _compat.COLUMN.has_worker:
      cases += module.recorded_cases()
    if _compat.COLUMN.has_worker and not options.record:
      cases += module.cases(options.generated, options.seed or 0)
  names = [case.name for case in cases]
  twice = sorted({name for name in names if names.count(name) > 1})
  if twice:
    raise ValueError(f'two cases of {name} have the same name: {twice}')
  if options.cases:
    cases = [case for case in cases if case.name in options.cases]
  first, step = options.part[options.kinds.index(kind)]
  return cases[first - 1 :: step]


def _paths_of(case: oracle.Case, options) -> list[str]:
  return [path for path in options.paths if path in case.own_paths]


def _compare(
    kind: str,
    cases: list[oracle.Case],
    options,
    progress: _Progress,
    journal: _Journal,
) -> _Report:
  """Runs cases of a kind on TFF's runtime and our paths, and compares them."""
  report = _Report(kind)
  recorded = oracle.load_recorded(kind)
  with oracle.Contexts() as contexts:

    def run(path: str, case: oracle.Case) -> oracle.Outcome:
      progress.begin(f'{case.name} on {path}')
      start = time.monotonic()
      outcome = contexts.outcome_on(path, case)
      seconds = time.monotonic() - start
      report.seconds[path] = report.seconds.get(path, 0.0) + seconds
      report.slowest = max(report.slowest, (seconds, case.name, path))
      progress.end()
      return outcome

    def compare(case: oracle.Case) -> _Report:
      own = _Report(kind, num_cases=1)
      found = own.differences
      kept = recorded.get(case.name)
      outcomes = {}
      if _compat.COLUMN.has_worker:
        outcomes['tff'] = run('tff', case)
        if outcomes['tff'].is_refused:
          own.refused.append((case.name, 'tff', outcomes['tff'].error))
        if kept is not None and not case.is_random:
          found += [
              (case.name, _RECORDED, words)
              for words in oracle.judge(
                  case, _RECORDED, {**outcomes, _RECORDED: kept}
              )
          ]
      else:
        outcomes['tff'] = kept
      if kept is None and (
          kind != 'generated' or not _compat.COLUMN.has_worker
      ):
        found.append((case.name, _RECORDED, 'nothing; see --record'))
      # 'single' first, because others are compared with it.
      paths = sorted(_paths_of(case, options), key=lambda p: p != 'single')
      for path in paths if outcomes['tff'] is not None else ():
        outcomes[path] = run(path, case)
        own.num_compared += 1
        theirs = outcomes['tff']
        if theirs.error and not (outcomes[path].error or theirs.is_refused):
          # After other errors, TFF's runtime fails at times without a cause.
          contexts.renew('tff')
          outcomes['tff'] = contexts.outcome_on('tff', case)
        if outcomes[path].is_refused:
          own.refused.append((case.name, path, outcomes[path].error))
        elif outcomes[path].error and outcomes['tff'].error:
          own.both_raise.append(
              (case.name, path, outcomes['tff'].error, outcomes[path].error)
          )
        found += [
            (case.name, path, words)
            for words in oracle.judge(case, path, outcomes)
        ]
      return own

    for case in cases:
      own = journal.report(kind, case.name)
      if own is None:
        journal.begin(kind, case.name)
        own = compare(case)
        journal.end(kind, case.name, own)
      else:
        progress.skip(_compat.COLUMN.has_worker + len(_paths_of(case, options)))
      report.add(own)
    report.clients = contexts.clients_by_path()
  return report


def _record(kind: str, cases: list[oracle.Case], options, progress) -> bool:
  """Writes what TFF gives in two runs that agree; returns whether all did."""
  outcomes = {}
  if options.cases:
    outcomes = oracle.load_recorded(kind)
  is_good = True
  with oracle.Contexts() as contexts:
    for case in cases:
      progress.begin(f'{case.name} on tff')
      first, second = (contexts.outcome_on('tff', case) for _ in range(2))
      progress.end()
      found = oracle.judge(case, 'again', {'tff': first, 'again': second})
      if found:
        is_good = False
        print(f'not recorded: two runs of {case.name} in TFF differ: {found}')
      else:
        if first.error:
          print(f'{case.name} raises in TFF: {first.error}')
          # Only what is generated may.
          is_good = is_good and kind == 'generated'
        outcomes[case.name] = first
  path = oracle.save_recorded(kind, outcomes)
  print(f'{path}: {len(outcomes)} cases, {path.stat().st_size} bytes')
  return is_good


def _print_report(reports: list[_Report]) -> None:
  head = (
      'kind',
      'cases',
      'compared',
      'differences',
      'both raise',
      'refused',
      'ended',
  )
  rows = [
      (
          report.kind,
          report.num_cases,
          report.num_compared,
          len(report.differences),
          len(report.both_raise),
          len(report.refused),
          len(report.ended),
      )
      for report in reports
  ]
  print()
  for row in (head, *rows):
    print(f'{row[0]:<10}' + ''.join(f'{item:>13}' for item in row[1:]))
  for report in reports:
    print(f'\n{report.kind}: seconds and clients by path')
    for path, seconds in report.seconds.items():
      clients = ', '.join(
          f'{count} {way}'
          for way, count in report.clients.get(path, {}).items()
      )
      print(f'  {path:<12}{seconds:>7.0f} s  {clients}')
    seconds, name, path = report.slowest
    print(f'  the slowest run: {name} on {path}, {seconds:.1f} s')
    if report.both_raise:
      print(f'\n{report.kind}: errors in TFF and here')
      # Once for a case, since our paths say the same or nearly so.
      for name, line in {
          name: f'TFF: {theirs}\n    ours: {ours}'
          for name, _, theirs, ours in report.both_raise
      }.items():
        print(f'  {name}\n    {line}')
    if report.refused:
      print(f'\n{report.kind}: refused')
      by_message = {}
      for name, path, message in report.refused:
        by_message.setdefault((name, message), []).append(path)
      for (name, message), paths in by_message.items():
        print(f'  {name} [{", ".join(paths)}]: {message}')
    if report.ended:
      print(f'\n{report.kind}: the process ended in')
      print(f'  {", ".join(report.ended)}')
    if report.differences:
      print(f'\n{report.kind}: differences')
      for name, path, words in report.differences:
        print(f'  {name} [{path}] {words}')
  print()


def main(arguments: Sequence[str] | None = None) -> int:
  """Returns the exit status: 0 only if all kinds ran and nothing differs."""
  options = _parse(arguments)
  kinds, is_good = {}, True
  for kind in options.kinds:
    cases = _load(kind, options)
    if cases is None:
      print(f'{kind}: left out, because there is no {_MODULES[kind]} yet')
      is_good = False
    elif cases:
      kinds[kind] = cases
  found = {case.name for cases in kinds.values() for case in cases}
  unknown = sorted(set(options.cases or ()) - found)
  if unknown:
    print(f'no case of {", ".join(options.kinds)} is called {unknown}')
    return 2
  if not kinds:
    print('there is no case to run')
    return 2
  if options.show:
    for case in kinds.get('generated', ()):
      print(f'# {case.name}\n{programs.source(case.program)}', flush=True)
  journal = _Journal(options.journal)
  progress = _Progress(
      sum(
          1
          if options.record
          else _compat.COLUMN.has_worker + len(_paths_of(case, options))
          for cases in kinds.values()
          for case in cases
      )
  )
  try:
    if options.record:
      good = [
          _record(kind, cases, options, progress)
          for kind, cases in kinds.items()
      ]
      return 0 if all(good) and is_good else 1
    reports = [
        _compare(kind, cases, options, progress, journal)
        for kind, cases in kinds.items()
    ]
  finally:
    progress.close()
  _print_report(reports)
  if options.json:
    options.json.write_text(
        json.dumps([dataclasses.asdict(report) for report in reports], indent=1)
    )
  has_differences = any(report.differences for report in reports)
  return 0 if is_good and not has_differences else 1


if __name__ == '__main__':
  sys.exit(main())
