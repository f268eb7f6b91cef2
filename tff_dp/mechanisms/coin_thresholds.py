# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Coins of local randomizers as 64-bit integers, rounded to the safe side.

A coin is an integer, uniform over `VALUES` values, that is compared with a
threshold. A floating-point probability would be slightly off, and a bound on
likelihood ratios does not allow that.
"""

import decimal

# Number of values of a coin.
VALUES = 2**64
# Enough decimal digits for exp(epsilon) and a quotient of 128-bit integers,
# with far more digits than a 64-bit threshold has.
_DIGITS = 100


def change_threshold(local_epsilon: float, *, num_others: int) -> int:
  """Returns the least f with (1 - f/N) / (f/N * u) <= exp(local_epsilon).

  N is `VALUES`. u is the least probability of one of the other categories given
  a change: floor(N / num_others) / N for an N-valued integer modulo num_others.
  """
  least_share = VALUES // num_others
  with decimal.localcontext() as context:
    context.prec = _DIGITS
    context.Emax = decimal.MAX_EMAX
    # exp is rounded correctly. Make it a little smaller, the safe side.
    ratio = decimal.Decimal(float(local_epsilon)).exp()
    ratio *= 1 - decimal.Decimal(10) ** (5 - _DIGITS)
    if ratio > decimal.Decimal(VALUES) ** 3:
      return 1
    odds = decimal.Decimal(VALUES) + ratio * least_share
    exact = decimal.Decimal(VALUES) ** 2 / odds
    return max(1, int(exact.to_integral_value(rounding=decimal.ROUND_CEILING)))
