# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line prints what it printed before.

`goldens.json` has many commands and every number of their output. `outputs.json`
has commands of every kind and their whole output: text, JSON and statements. A
number that changes is a finding: the commit that changes it says why and by how
much.

Two kinds of commands in `outputs.json` are not typed like this. `events KIND ...`
is the `events.json` of a run of that plan; `account --events KIND ...` reads it.

  python -m tests.cli.goldens_test --write   # prints what changes, and writes
"""

import difflib
import json
import math
import pathlib
import re
import sys
import tempfile

from absl.testing import absltest
from absl.testing import parameterized
import pytest

from tests.cli import command as cli
from tff_dp.cli import main

_FILE = pathlib.Path(__file__).with_name('goldens.json')
_OUTPUTS = pathlib.Path(__file__).with_name('outputs.json')
# The last digits belong to the libraries and the processor: the transforms of
# composition came out 1.4e-8 apart on two of them. Mechanisms that are
# optimised numerically end where SciPy's optimiser ends: on two processors the
# sensitivities of Toeplitz noise for 128 rounds were 5e-4 apart.
_TOLERANCE = 1e-7
_OPTIMISED = ('blt', 'banded', 'banded-inverse', 'toeplitz')
_OPTIMISED_TOLERANCE = 2e-3
# In a text numbers have six or seven digits, the last of them rounded up.
_TEXT_TOLERANCE = 2e-6
_NUMBER = re.compile(r'(?<![A-Za-z\d.])(-?\d+\.?\d*(?:e[-+]?\d+)?)(?![A-Za-z\d])')


def _numbers(value, path=()) -> dict[str, float]:
  """Returns the numbers in a JSON value by their path."""
  if isinstance(value, dict):
    children = value.items()
  elif isinstance(value, list):
    children = enumerate(value)
  elif isinstance(value, (int, float)) and not isinstance(value, bool):
    return {'/'.join(path): value}
  else:
    return {}
  found = {}
  for key, child in children:
    found |= _numbers(child, (*path, str(key)))
  return found


def _run(command: str) -> dict[str, float]:
  printed = cli.run_json(main.main, *command.split())
  # The plan is what went in, and thousands of coefficients; its own tests make
  # it anew from what it says.
  printed.pop('plan', None)
  return _numbers(printed)


def _output(command: str) -> list[str]:
  """Returns the lines that a command of `outputs.json` prints."""
  words = command.split()
  if words[0] == 'events':
    return _events(words[1:]).splitlines()
  if words[1] == '--events':
    with tempfile.NamedTemporaryFile('w', suffix='.json') as file:
      file.write(_events(words[2:]))
      file.flush()
      code, out, err = cli.run(main.main, words[0], '--events', file.name)
  else:
    code, out, err = cli.run(main.main, *words)
  if code:
    raise AssertionError(err)
  return out.splitlines()


def _events(words: list[str]) -> str:
  """Returns the `events.json` of the run that a kind and its flags describe."""
  run = main.run_of(main.parse(['statement', *words]))
  return json.dumps(run.plan.events_json(delta=run.delta), indent=2)


def _other_lines(command, expected, actual) -> list[str]:
  """Returns the lines that differ in their words, or in a number by much."""
  tolerance = _TEXT_TOLERANCE
  if command.startswith('compare') or set(_OPTIMISED) & set(command.split()):
    tolerance = _OPTIMISED_TOLERANCE
  if len(expected) != len(actual):
    return list(difflib.unified_diff(expected, actual, n=0, lineterm=''))
  return [
      f'{old}\n  {new}'
      for old, new in zip(expected, actual)
      if not _is_same(old, new, tolerance)
  ]


def _is_same(old: str, new: str, tolerance: float) -> bool:
  # Words and numbers take turns, words first.
  old, new = _NUMBER.split(old), _NUMBER.split(new)
  return old[::2] == new[::2] and all(
      math.isclose(float(number), float(other), rel_tol=tolerance)
      for number, other in zip(old[1::2], new[1::2], strict=True)
  )


def _differences(command, expected, actual) -> list[str]:
  tolerance = _TOLERANCE
  if any(name in command.split() for name in _OPTIMISED):
    tolerance = _OPTIMISED_TOLERANCE
  found = []
  for path in sorted({*expected, *actual}):
    old, new = expected.get(path), actual.get(path)
    if old is None or new is None or not math.isclose(
        old, new, rel_tol=tolerance
    ):
      found.append(f'{path}: {old} -> {new}')
  return found


def _load(file=_FILE) -> dict:
  return json.loads(file.read_text())


@pytest.mark.reference_only(
    reason="goldens are of column A's SciPy and dp-accounting"
)
class GoldensTest(parameterized.TestCase):

  @parameterized.parameters(*_load())
  def test_numbers_of(self, command):
    self.assertEmpty(_differences(command, _load()[command], _run(command)))

  @parameterized.parameters(*_load(_OUTPUTS))
  def test_output_of(self, command):
    expected = _load(_OUTPUTS)[command]
    self.assertEmpty(_other_lines(command, expected, _output(command)))

  @parameterized.parameters(
      ('epsilon 1.234567 at', 'epsilon 1.234568 at', True),
      ('epsilon 1.234567 at', 'epsilon 1.2346 at', False),
      ('epsilon 1.5 at', 'epsilon 1.5 of', False),
      ('rounds 12', 'rounds 13', False),
      ('delta 1e-06, 3', 'delta 1e-07, 3', False),
  )
  def test_lines_are_compared_by_words_and_numbers(self, old, new, is_same):
    self.assertEqual(not _other_lines('account', [old], [new]), is_same)


def _write() -> None:
  """Writes the commands that differ, and prints what was otherwise before."""
  goldens = _load()
  for command, old in goldens.items():
    new = _run(command)
    found = _differences(command, old, new)
    for difference in found if old else ():
      print(f'tff-dp {command}\n  {difference}')
    if found:
      goldens[command] = new
  _FILE.write_text(json.dumps(goldens, indent=1) + '\n')
  outputs = _load(_OUTPUTS)
  for command, old in outputs.items():
    outputs[command] = new = _output(command)
    for difference in _other_lines(command, old, new) if old else ():
      print(f'tff-dp {command}\n  {difference}')
  _OUTPUTS.write_text(json.dumps(outputs, indent=1) + '\n')


if __name__ == '__main__':
  if sys.argv[1:] == ['--write']:
    _write()
  else:
    absltest.main()
