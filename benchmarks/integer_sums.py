# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares the noises of integer sums at equal epsilon.

    python -m benchmarks.integer_sums
    python -m benchmarks.integer_sums --epsilon 1 --dimension 50 --silos 25

Prints the standard deviation of noise and rounding on a coordinate of the mean,
over the clip norm, for binomial, Skellam and discrete Gaussian noise, for one
Gaussian of a trusted server, and for Gaussians of silos that trust nobody; and
how many bits a coordinate takes in the secure sum. Nothing is drawn or timed.
"""

import argparse
import json
import sys

from benchmarks import integer_comparison
from tff_dp.systems.silos import integer_plans


def main(arguments: list[str]) -> int:
  """Prints the comparison that the arguments ask for."""
  parser = argparse.ArgumentParser(
      prog='python -m benchmarks.integer_sums',
      description=__doc__.splitlines()[0],
  )
  parser.add_argument('--epsilon', type=float, default=1.0)
  parser.add_argument('--delta', type=float, default=1e-6)
  parser.add_argument(
      '--dimension', type=int, default=50, help='length of the vectors'
  )
  parser.add_argument('--silos', type=int, default=25)
  parser.add_argument(
      '--records', type=int, default=35, help='of each silo in the sum'
  )
  parser.add_argument(
      '--grids', type=int, nargs='+', default=[16, 64],
      help='steps from -C to C; binomial noise is slow to calibrate above 64',
  )
  parser.add_argument(
      '--noises', nargs='+', default=list(integer_plans.NOISES),
      choices=integer_plans.NOISES,
  )
  parser.add_argument('--format', choices=('text', 'json'), default='text')
  given = parser.parse_args(arguments)
  rows = integer_comparison.compare(
      epsilon=given.epsilon,
      delta=given.delta,
      dimension=given.dimension,
      num_silos=given.silos,
      records_per_silo=given.records,
      grids=given.grids,
      noises=given.noises,
  )
  if given.format == 'json':
    described = vars(given) | {'rows': [row.to_json() for row in rows]}
    print(json.dumps(described, indent=2, allow_nan=False))
  else:
    print(integer_comparison.to_text(rows))
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
