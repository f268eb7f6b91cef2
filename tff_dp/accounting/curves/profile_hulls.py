# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lower convex hulls of privacy profiles, as laws of losses on a grid.

A curve H_E(P || Q) is convex in E, from 1 at E = 0. One that is linear between
points E_i = exp(l_i) is that of a pair with losses l_i only: where its slope
rises by q, Q has the mass q and P the mass E_i q (connect the dots,
arXiv:2207.04380, where the points are neighbours).
"""

import math

import numpy as np

# Grid points that are used: all up to this one, then ever fewer.
_DENSE_NODES = 50
_NODE_GROWTH = 1.02


def nodes(last: int) -> np.ndarray:
  """Returns grid points 0..last: all of the first, then ever fewer."""
  found = np.arange(min(last, _DENSE_NODES) + 1)
  if last > _DENSE_NODES:
    num = 2 + math.ceil(
        math.log(last / _DENSE_NODES) / math.log(_NODE_GROWTH)
    )
    spread = np.geomspace(_DENSE_NODES, last, num)
    found = np.unique(np.concatenate([found, np.ceil(spread).astype(int)]))
    found = np.minimum(found, last)
    found = np.unique(found)
  return found


def lower_hull(
    grid: np.ndarray,
    interval: float,
    forward: np.ndarray,
    backward: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns (grid points, masses) of the lower convex hull of a curve.

  The curve is f(E) = H_E on both sides of E = 1. Left of it, g = f - (1 - E) is
  small where f is near 1, so slopes are taken of g, and 1 is subtracted where a
  difference crosses: no digits are lost in the tails.

  Args:
    grid: Grid points from 0 on, shape [n].
    interval: Of the grid.
    forward: f at exp(grid * interval).
    backward: The same for the pair the other way around.
  """
  left = -grid[:0:-1]
  points = np.concatenate([left, grid])
  odds = np.exp(points * interval)
  values = np.concatenate(
      [np.exp(left * interval) * backward[:0:-1], forward]
  )
  # f = values + lift, with lift = 1 - E left of 1.
  lifts = np.concatenate([-np.expm1(left * interval), np.zeros(len(grid))])
  num_left = len(left)

  def slope(i, j):
    """Of g on the left, of f on the right and across."""
    gap = -odds[i] * math.expm1((points[j] - points[i]) * interval)
    if i >= num_left or j < num_left:
      return (values[i] - values[j]) / gap
    return (values[i] - values[j] + lifts[i]) / gap

  def comparable(i, j):
    """The slope of f between i and j."""
    return slope(i, j) - (1.0 if j < num_left else 0.0)

  kept = []
  for new in range(len(points)):
    while len(kept) > 1:
      before, middle = kept[-2], kept[-1]
      if new < num_left:
        is_below = slope(before, middle) < slope(middle, new)
      else:
        is_below = comparable(before, middle) < comparable(middle, new)
      if is_below:
        break
      kept.pop()
    kept.append(new)
  kept = np.array(kept)
  slopes = np.array([slope(i, j) for i, j in zip(kept[:-1], kept[1:])])
  is_left = kept[1:] < num_left
  # Before the first point f runs to 1 at E = 0; after the last it is constant.
  first = values[kept[0]] / odds[kept[0]]
  slopes = np.concatenate([[first], slopes, [0.0]])
  is_left = np.concatenate([[True], is_left, [False]])
  rises = np.diff(slopes) + (is_left[:-1] & ~is_left[1:])
  # Rounding alone makes a rise negative; more mass dominates less.
  masses = np.maximum(rises, 0.0) * odds[kept]
  return points[kept], masses
