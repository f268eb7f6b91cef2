# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Convolutions by Fourier transforms, with bounds on their rounding errors.

docs/proofs_check_ins.md, section 4.5, derives the bounds. Numbers of points are
powers of two.
"""

from collections.abc import Sequence
import math

import numpy as np
from scipy import fft

ROUNDING = 0.5 * float(np.finfo(np.float64).eps)

# Relative rounding of one radix-2 stage of a transform, in u: sqrt(5) for one
# complex product, 1 for one sum and 1 for one tabulated factor make 4.24.
_ROUNDING_PER_STAGE = 5.0
# Rounding of one complex product in u, rounded up from sqrt(5).
_ROUNDING_OF_PRODUCT = 3.0


def rounding_of(log2_points: int) -> float:
  """Returns a bound on the rounding error of a transform and a product.

  The bound is on the error of one point, as a share of the sum of absolute
  inputs.

  Args:
    log2_points: Binary logarithm of the number of points.
  """
  return ROUNDING * (_ROUNDING_PER_STAGE * log2_points + _ROUNDING_OF_PRODUCT)


def power(base: np.ndarray, exponent: int) -> np.ndarray:
  """Returns base ** exponent, by repeated squaring.

  At least as accurate as exponent - 1 multiplications in a row.

  Args:
    base: Complex or real numbers, of any shape.
    exponent: Exponent, an integer of at least 0.
  """
  if exponent == 0:
    return np.ones_like(base)
  result = None
  square = base
  while exponent > 1:
    if exponent & 1:
      result = square if result is None else result * square
    exponent >>= 1
    square = square * square
  return square.copy() if result is None else result * square


def convolved(
    factors: Sequence[tuple[np.ndarray, int]],
) -> tuple[np.ndarray, float]:
  """Returns (circular convolution, bound on its L1 error).

  Args:
    factors: Pairs (probabilities, number of occurrences). The probabilities are
      non-negative with a sum of at most 1. All arrays have the same number of
      points, a power of two.
  """
  num_points = len(factors[0][0])
  rounding = rounding_of(num_points.bit_length() - 1)
  product = np.ones(num_points // 2 + 1, np.complex128)
  log_size = np.zeros(num_points // 2 + 1)
  slope = np.zeros(num_points // 2 + 1)
  for probs, count in factors:
    one = fft.rfft(probs)
    product *= power(one, count)
    size = np.minimum(np.abs(one) + rounding, 1 + rounding)
    log_size += count * np.log(size)
    # One more product combines this power with the others.
    slope += (count * rounding + ROUNDING * _ROUNDING_OF_PRODUCT) / size
  sizes = np.exp(log_size)
  slope *= sizes
  # The transform of real input lists only half of the points. The others count
  # twice.
  error = math.sqrt(2 * float(slope @ slope))
  error += rounding * 2 * float(np.sum(sizes))
  return fft.irfft(product, num_points), error
