# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Coins of local randomizers as 64-bit integers, rounded to the safe side.

A coin is an integer that is uniform over `VALUES` values, compared with a
threshold. A probability in floating point would be a little off, and a bound on
likelihood ratios has no room for that.
"""

import decimal

# Values of the integers that coins are compared with.
VALUES = 2**64
# Enough for exp(epsilon) and a quotient of 128-bit integers, each to far more
# digits than a 64-bit threshold has.
_DIGITS = 100


def change_threshold(local_epsilon: float, *, num_others: int) -> int:
  """Returns the least f with (1 - f/N) / (f/N * u) <= exp(local_epsilon).

  N is `VALUES`, and u the least probability of one of the others given a
  change: floor(N / num_others) / N for an N-valued integer modulo num_others.
  """
  least_share = VALUES // num_others
  with decimal.localcontext() as context:
    context.prec = _DIGITS
    context.Emax = decimal.MAX_EMAX
    # exp is rounded correctly; a little less than it errs to the safe side.
    ratio = decimal.Decimal(float(local_epsilon)).exp()
    ratio *= 1 - decimal.Decimal(10) ** (5 - _DIGITS)
    if ratio > decimal.Decimal(VALUES) ** 3:
      return 1
    odds = decimal.Decimal(VALUES) + ratio * least_share
    exact = decimal.Decimal(VALUES) ** 2 / odds
    return max(1, int(exact.to_integral_value(rounding=decimal.ROUND_CEILING)))
