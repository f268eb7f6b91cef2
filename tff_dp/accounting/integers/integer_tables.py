# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables from which integer noise is drawn, exact to 2^-62.

Value `lower + i` has the weight w_i = round(2^62 P(X = lower + i)), and all
weights add up to 2^62, so that 62 uniform bits decide. What is outside of the
table, 14 standard deviations away, is never drawn. A draw from the table is
therefore within a stated total variation of the law that is accounted.
"""

import dataclasses

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.integers import integer_noise

BITS = 62
# 16 MiB in the computation that a silo runs.
_MOST_VALUES = 1 << 21


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
  """How to draw from a law of integers with 62 uniform bits.

  A number u from 0 to 2^62 - 1 stands for `lower + #{i: cumulative[i] <= u}`.

  Attributes:
    lower: The least value.
    cumulative: Sums of the weights, int64 of shape [num_values]; the last is
      2^62.
    mean: Of the law.
    distance: Total variation between what is drawn and the law, up to the
      rounding errors of the law's own probabilities. Upper bound.
  """

  lower: int
  cumulative: np.ndarray
  mean: float
  distance: float

  @property
  def upper(self) -> int:
    """The largest value."""
    return self.lower + len(self.cumulative) - 1


def build(law: integer_noise.IntegerLaw, *, mean: float) -> Table:
  """Returns the table of a law.

  Args:
    law: At most 2^21 likely values.
    mean: Of the law.
  """
  if len(law.probs) > _MOST_VALUES:
    raise _checks.ArgumentError(
        'law',
        f'{len(law.probs)} likely values',
        f'noise that takes at most {_MOST_VALUES}: choose a coarser grid',
    )
  # A product with a power of two is exact.
  weights = np.rint(np.ldexp(law.probs, BITS)).astype(np.int64)
  likely = np.flatnonzero(weights)
  first, last = int(likely[0]), int(likely[-1])
  # What rounding left over goes to the most likely value.
  excess = (1 << BITS) - int(weights.sum())
  weights[np.argmax(weights)] += excess
  # Half of the sum of absolute errors, half a weight for each value and
  # the excess.
  distance = (len(weights) / 2 + abs(excess)) * 2.0**-BITS + law.outside
  return Table(
      lower=law.lower + first,
      cumulative=np.cumsum(weights[first : last + 1]),
      mean=float(mean),
      distance=distance,
  )
