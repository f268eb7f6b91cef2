# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Bounds and sums the updates of clients that the server need not trust.

The server clips every update again, rounds it to a grid towards zero, and adds
it up in integers. Clipping and rounding make no update longer, and the sum is
exact. So one client moves the sum by at most the clip norm, whatever it sends
and in whatever order updates come.
"""

from collections.abc import Mapping
import math

import numpy as np

# The relative error of a float64 norm of n numbers is below n 2^-53. That is
# below this margin up to 10^9 parameters.
_NORM_MARGIN = 1e-6
# Relative excess of a norm that a client clipped in float32.
_CLIENT_MARGIN = 1e-5
# The grid has 2^40 steps up to the clip norm, so 2^22 clients fit into int64.
_GRID_BITS = 40
MOST_CLIENTS = 1 << 22


def flat(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
  """Returns the arrays as one float64 vector, in the order of the mapping."""
  return np.concatenate([np.ravel(v).astype(np.float64) for v in arrays.values()])


def unflat(
    vector: np.ndarray, like: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """Returns the arrays of a vector that `flat` made, in the types of `like`."""
  arrays, start = {}, 0
  for name, value in like.items():
    part = vector[start : start + value.size]
    arrays[name] = part.reshape(value.shape).astype(value.dtype)
    start += value.size
  return arrays


def fits(arrays: object, like: Mapping[str, np.ndarray]) -> bool:
  """Returns whether these are float arrays with a model's names and shapes."""
  return (
      isinstance(arrays, Mapping)
      and set(arrays) == set(like)
      and all(
          # Other classes of arrays flatten or add up differently.
          type(arrays[name]) is np.ndarray  # pylint: disable=unidiomatic-typecheck
          and arrays[name].shape == value.shape
          and arrays[name].dtype.kind == 'f'
          for name, value in like.items()
      )
  )


def clip(update: np.ndarray, l2_norm_clip: float) -> tuple[np.ndarray, str]:
  """Returns (bounded update, problem).

  An update with a NaN, an infinity or a squared norm beyond float64 becomes
  zero. The problem is then 'not finite'. It is 'over the clip norm' if the norm
  is larger than the clip norm, by more than a client's rounding to float32
  explains. Else it is ''.

  Args:
    update: Update of a client, a float64 vector.
    l2_norm_clip: Bound on the exact norm.
  """
  norm = _norm(update)
  if not math.isfinite(norm):
    return np.zeros_like(update), 'not finite'
  bound = l2_norm_clip * (1.0 - _NORM_MARGIN)
  if norm > bound:
    update = update * (bound / norm)
  is_over = norm > l2_norm_clip * (1.0 + _CLIENT_MARGIN)
  return update, 'over the clip norm' if is_over else ''


def is_within(update: np.ndarray, l2_norm_clip: float) -> bool:
  """Returns whether the norm is at most the clip norm, or is not finite.

  `clip` replaces an update whose norm is not finite with zeros.
  """
  norm = _norm(update)
  return norm <= l2_norm_clip or not math.isfinite(norm)


def on_grid(update: np.ndarray, l2_norm_clip: float) -> np.ndarray:
  """Returns a clipped update in grid steps, int64, rounded towards zero."""
  return np.trunc(update / grid_step(l2_norm_clip)).astype(np.int64)


def grid_step(l2_norm_clip: float) -> float:
  """Returns the grid's step. It is a power of two, so scaling is exact."""
  _, exponent = math.frexp(l2_norm_clip)
  return math.ldexp(1.0, exponent - _GRID_BITS)


def _norm(update: np.ndarray) -> float:
  with np.errstate(over='ignore', invalid='ignore'):
    return float(np.linalg.norm(update))
