# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The vector sum with binomial noise, described record by record.

Every record brings Binomial(b, p) for each coordinate, and a silo adds up those
of its K records: Binomial(K b, p), see `integer_sum`.

Source: the vector sum of Cheu, Joseph, Mao and Peng, arXiv:2106.09805, as used
by arXiv:2106.09779, algorithms 4 to 6. There, y is sent as y ones and h + b - y
zeros through a shuffler; since only the number of ones says anything, the sum
of y is the same mechanism. `integers.vector_sum` of the accounting calibrates
h, b and p.
"""

import dataclasses

from tff_dp import _checks
from tff_dp.accounting.integers import integer_plans
from tff_dp.accounting.integers import vector_sum
from tff_dp.aggregators import integer_sum


class BinomialVectorSumFactory(integer_sum.IntegerVectorSumFactory):
  """The mean of the records of all silos, with binomial noise in the sum.

      next: mean over silos and records of clip(x), plus noise of variance
            (2 L / h)^2 (b p (1-p) / m + rounding),  rounding <= 1 / (4 m)

  See `integer_sum.IntegerVectorSumFactory`, whose values, state and
  measurements it has.
  """

  def __init__(
      self,
      spec: vector_sum.BinomialSum,
      *,
      l2_norm_clip: float,
      records_per_silo: int,
      max_silos: int,
  ):
    """Builds the factory.

    Args:
      spec: h, b and p, calibrated for the `spec.num_records` records whose
        noise is promised to be in every sum; fewer are refused.
      l2_norm_clip: L.
      records_per_silo: K, records of every silo in a round.
      max_silos: Most silos that take part in a round, for the range.
    """
    if not isinstance(spec, vector_sum.BinomialSum):
      raise _checks.ArgumentError('spec', spec, 'a vector_sum.BinomialSum')
    _checks.integer_at_least(1, records_per_silo=records_per_silo)
    min_silos = -(-spec.num_records // records_per_silo)
    _checks.integer_at_least(min_silos, max_silos=max_silos)
    self._whole = dataclasses.replace(
        spec, num_records=max_silos * records_per_silo
    )
    if self.num_values > 2**integer_sum.MOST_BITS:
      raise _checks.ArgumentError(
          'spec',
          spec,
          'a range of max_silos * records_per_silo * (grid + trials) + 1 values'
          f' within {integer_sum.MOST_BITS} bits; here it is'
          f' {self.num_values}',
      )
    plan = integer_plans.BinomialPlan(
        grid=spec.grid,
        trials=spec.trials,
        probability=spec.probability,
        records_per_silo=records_per_silo,
        min_silos=min_silos,
    )
    super().__init__(plan, l2_norm_clip=l2_norm_clip, max_silos=max_silos)

  @property
  def num_values(self) -> int:
    """How many values the sum could take. Those far out are never drawn."""
    return self._whole.required_range
