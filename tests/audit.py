# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What many runs of a mechanism show about its epsilon."""

import math

import numpy as np
from scipy import stats


def epsilon_lower_bound(
    present: np.ndarray,
    absent: np.ndarray,
    *,
    threshold: float,
    delta: float,
    error: float = 1e-3,
) -> float:
  """Returns what epsilon is at least, as P(A) <= e^epsilon Q(A) + delta.

  A: the score is above the threshold. P(A) and Q(A) are replaced by one-sided
  Clopper-Pearson bounds, each of which is wrong with probability `error`.

  Args:
    present: Scores of runs that are no part of the choice of the threshold.
    absent: The same with the other of two neighbouring data sets.
    threshold: Of the attack.
    delta: In [0, 1).
    error: In (0, 1).

  Returns:
    -inf where P(A) may be below delta.
  """
  true = int(np.sum(present > threshold))
  false = int(np.sum(absent > threshold))
  # At none and at all of the runs these are NaN, and the bounds 0 and 1.
  least_true = stats.beta.ppf(error, true, len(present) - true + 1)
  most_false = stats.beta.isf(error, false + 1, len(absent) - false)
  surplus = (least_true if true else 0.0) - delta
  if not surplus > 0:
    return -math.inf
  return math.log(surplus / (most_false if false < len(absent) else 1.0))
