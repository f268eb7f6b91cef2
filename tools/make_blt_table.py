# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of BLT parameters in tff_dp/mechanisms/matrix/blt_table.py.

    python tools/make_blt_table.py

Takes a minute or two. The result differs between versions of SciPy in the last
digits of the parameters, and in the objective by less than a test allows.
"""

import pathlib
import sys

import numpy as np

_ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT))

# pylint: disable=g-import-not-at-top,wrong-import-position
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms.matrix import blt
from tff_dp.mechanisms.matrix import blt_table
from tff_dp.mechanisms.matrix import toeplitz_algebra
# pylint: enable=g-import-not-at-top,wrong-import-position

_TABLE = _ROOT / 'tff_dp' / 'mechanisms' / 'matrix' / 'blt_table.py'
# (rounds, least index gap, most participations).
_SETTINGS = (
    # Once: StackOverflow of arXiv:2103.00039, and round numbers.
    (100, 100, 1),
    (500, 500, 1),
    (1000, 1000, 1),
    (1600, 1600, 1),
    (2000, 2000, 1),
    (2048, 2048, 1),
    (4000, 4000, 1),
    # Six passes over StackOverflow, arXiv:2211.06530.
    (2048, 342, 6),
    (2052, 342, 6),
    # A production setting, cf. arXiv:2305.18465.
    (2000, 314, 6),
    # Ten passes.
    (500, 50, 10),
    (1000, 100, 10),
    (2000, 200, 10),
)
_BUFFERS = (2, 3, 4)


def main() -> None:
  entries = {}
  for num_rounds, gap, most in _SETTINGS:
    pattern = patterns.MinSeparationPattern(
        num_rounds, min_index_gap=gap, max_participations=most
    )
    for error in toeplitz_algebra.ERRORS:
      for num_buffers in _BUFFERS:
        key = blt_table.Key(
            *toeplitz_algebra.tree_setting(pattern), num_buffers, error
        )
        entries[key] = blt.search(
            pattern, num_buffers=num_buffers, error=error
        )
        print(tuple(key), file=sys.stderr)
  lines = ['ENTRIES = {']
  for key, (weights, decays) in entries.items():
    lines += [
        f'    Key({", ".join(map(repr, key))}): (',
        f'        ({", ".join(map(_shortest, weights))}),',
        f'        ({", ".join(map(_shortest, decays))}),',
        '    ),',
    ]
  lines += ['}']
  text = _TABLE.read_text()
  before, rest = text.split('# BEGIN TABLE\n')
  _, after = rest.split('# END TABLE\n')
  table = '\n'.join(lines)
  _TABLE.write_text(f'{before}# BEGIN TABLE\n{table}\n# END TABLE\n{after}')


def _shortest(value: float) -> str:
  return np.format_float_positional(np.float32(value), unique=True, trim='0')


if __name__ == '__main__':
  main()
