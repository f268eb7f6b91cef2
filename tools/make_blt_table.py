# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of BLT parameters in tff_dp/mechanisms/matrix/blt_table.json.

    python tools/make_blt_table.py

Takes a minute or two. The result differs between versions of SciPy in the last
digits of the parameters, and in the objective by less than a test allows.
"""

import json
import pathlib
import sys

import numpy as np

_ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT))

# pylint: disable=g-import-not-at-top,wrong-import-position
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms.matrix import blt
from tff_dp.mechanisms.matrix import toeplitz_algebra
# pylint: enable=g-import-not-at-top,wrong-import-position

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
  lines = []
  for num_rounds, gap, most in _SETTINGS:
    pattern = patterns.MinSeparationPattern(
        num_rounds, min_index_gap=gap, max_participations=most
    )
    for error in toeplitz_algebra.ERRORS:
      for num_buffers in _BUFFERS:
        key = blt.Key(
            *toeplitz_algebra.tree_setting(pattern), num_buffers, error
        )
        found = blt.search(pattern, num_buffers=num_buffers, error=error)
        lines.append(json.dumps([*key, *map(_shortest, found)]))
        print(tuple(key), file=sys.stderr)
  blt.TABLE.write_text('[\n' + ',\n'.join(lines) + '\n]\n')


def _shortest(numbers) -> list[float]:
  return [
      float(np.format_float_positional(np.float32(number), unique=True))
      for number in numbers
  ]


if __name__ == '__main__':
  main()
