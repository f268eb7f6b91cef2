# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Many epsilons and deltas of one loss distribution.

dp_accounting sums the tail of a distribution again for every epsilon and every
delta that it returns, in Python. Here the tails are summed once.
"""

import functools
import math

import numpy as np

from tff_dp import _compat_losses


class LossTails:
  """The tails of a privacy-loss distribution on a grid.

  With p_i the probability of the loss l_i,

      delta(eps) = infinite + sum_{l_i > eps} p_i (1 - exp(eps - l_i)).

  The sums begin at the largest loss, and round as the sums of dp_accounting do.
  So the results are the results of dp_accounting, up to the last digits.
  """

  def __init__(self, pmf):
    """Sums nothing before it is needed.

    Args:
      pmf: Loss distribution of one direction, a `PLDPmf` of dp_accounting.
    """
    self._pmf = pmf
    *_, infinite = _compat_losses.losses_of(pmf)
    self._infinite = float(infinite)

  def deltas(self, epsilons: np.ndarray) -> np.ndarray:
    """Returns deltas at epsilons >= 0, in any order."""
    epsilons = np.asarray(epsilons, np.float64)
    losses, lower = self._rising
    above = len(losses) - np.searchsorted(losses, epsilons, side='right')
    with np.errstate(over='ignore', invalid='ignore'):
      found = self._upper[above] - np.exp(epsilons) * lower[above]
    return np.where(above > 0, found, self._infinite)

  def epsilon(self, delta: float) -> float:
    """Returns the smallest epsilon >= 0 at delta, infinity if there is none."""
    if self._infinite > delta:
      return math.inf
    # Between two losses, delta(eps) is upper - exp(eps) lower. Find the largest
    # loss below which this reaches delta.
    upper, (losses, lower) = self._upper, self._falling
    (where,) = np.nonzero((upper[:-1] > delta) & (lower[:-1] > 0))
    with np.errstate(over='ignore'):
      crossings = np.log((upper[where] - delta) / lower[where])
    where = where[crossings >= losses[where]]
    last = int(where[0]) if len(where) else len(losses)
    # exp(-loss) is 0 for a very large loss.
    (lost,) = np.nonzero((upper[1:] >= delta) & (lower[1:] == 0))
    if len(lost) and lost[0] < last:
      return float(losses[lost[0]])
    most, least = float(upper[last]), float(lower[last])
    if most <= least + delta:
      return 0.0
    return math.log((most - delta) / least)

  @functools.cached_property
  def _upper(self) -> np.ndarray:
    """Entry k: probability that a loss is infinite or one of the k largest."""
    return np.cumsum(np.append(self._infinite, self._above_zero()[2]))

  @functools.cached_property
  def _rising(self) -> tuple[np.ndarray, np.ndarray]:
    """The losses, smallest first, and entries as in `_falling`."""
    interval, points, probs = self._above_zero()
    losses = points[::-1] * interval
    return losses, _lower(probs, losses[::-1])

  @functools.cached_property
  def _falling(self) -> tuple[np.ndarray, np.ndarray]:
    """The losses, largest first, and sums of p_i exp(-l_i).

    Entry k is the sum over the k largest losses. dp_accounting subtracts the
    interval again and again, and so does this.
    """
    interval, points, probs = self._above_zero()
    losses = np.cumsum(np.diff(points, prepend=0) * interval)
    return losses, _lower(probs, losses)

  def _above_zero(self) -> tuple[float, np.ndarray, np.ndarray]:
    """Returns the losses above 0, the largest first: (interval, points, probs).

    As in `_compat_losses.losses_of`. Other losses do not count for
    epsilon >= 0.
    """
    interval, points, probs, _ = _compat_losses.losses_of(self._pmf)
    is_counted = points > 0
    return interval, points[is_counted][::-1], probs[is_counted][::-1]


def _lower(probs: np.ndarray, losses: np.ndarray) -> np.ndarray:
  return np.cumsum(np.append(0.0, probs * np.exp(-losses)))
