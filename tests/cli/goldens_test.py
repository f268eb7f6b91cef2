# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The numbers that the command line prints stay what they were.

`goldens.json` has the commands and every number of their output. A number that
changes is a finding: the commit that changes it says why and by how much.

  python -m tests.cli.goldens_test --write   # prints what changes, and writes
"""

import json
import math
import pathlib
import sys

from absl.testing import absltest
from absl.testing import parameterized
import pytest

from tests.cli import command as cli
from tff_dp.cli import main

_FILE = pathlib.Path(__file__).with_name('goldens.json')
# The last digits belong to the libraries and the processor: the transforms of
# composition came out 1.4e-8 apart on two of them. Mechanisms that are
# optimised numerically end where SciPy's optimiser ends: on two processors the
# sensitivities of Toeplitz noise for 128 rounds were 5e-4 apart.
_TOLERANCE = 1e-7
_OPTIMISED = ('blt', 'banded', 'banded-inverse', 'toeplitz', 'dense')
_OPTIMISED_TOLERANCE = 2e-3


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


def _load() -> dict[str, dict[str, float]]:
  return json.loads(_FILE.read_text())


@pytest.mark.reference_only(
    reason="goldens are of column A's SciPy and dp-accounting"
)
class GoldensTest(parameterized.TestCase):

  @parameterized.parameters(*_load())
  def test_numbers_of(self, command):
    self.assertEmpty(_differences(command, _load()[command], _run(command)))


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


if __name__ == '__main__':
  if sys.argv[1:] == ['--write']:
    _write()
  else:
    absltest.main()
