# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Descent to a local minimum, for all optimisers of this package."""

from collections.abc import Callable, Sequence
import contextlib
from typing import Any, Optional

import numpy as np
from scipy import optimize

# Stands for an infinite value; the line search goes back from there.
_REJECTED = 1e3


def local_minimum(
    function: Callable[..., tuple[float, np.ndarray]],
    start: np.ndarray,
    *,
    args: tuple[Any, ...] = (),
    bounds: Optional[Sequence[tuple[float, float]]] = None,
    max_iterations: int = 200,
) -> np.ndarray:
  """Returns where a descent by L-BFGS from `start` ends.

  *Heuristic*: a local minimum, or near one if the iterations did not suffice.

  Args:
    function: Of the free numbers and `args`; returns a value, here a logarithm
      and hence of moderate size, and its gradient.
    start: Where to begin, shape [n].
    args: Passed on.
    bounds: Least and largest of each number, `None` for none.
    max_iterations: When to stop at the latest.
  """
  if not len(start):
    return start

  def guarded(free):
    # A series whose inverse explodes overflows; it is no minimum.
    with np.errstate(all='ignore'):
      value, gradient = function(free, *args)
    if not np.isfinite(value) or not np.all(np.isfinite(gradient)):
      return _REJECTED, np.zeros_like(free)
    return value, gradient

  with _one_thread():
    return optimize.minimize(
        guarded,
        start,
        jac=True,
        method='L-BFGS-B',
        bounds=bounds,
        options=dict(maxiter=max_iterations, ftol=1e-10, gtol=1e-8),
    ).x


def _one_thread():
  """Returns a context in which linear algebra does not start threads.

  Recent SciPy calls LAPACK in every iteration, on matrices of some ten rows.
  Waking up threads for these takes several times longer than all the rest.
  Where threadpoolctl is not installed, it is just slower.
  """
  try:
    import threadpoolctl  # pylint: disable=g-import-not-at-top
  except ImportError:
    return contextlib.nullcontext()
  return threadpoolctl.threadpool_limits(limits=1, user_api='blas')
