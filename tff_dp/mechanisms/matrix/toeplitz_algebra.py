# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Toeplitz matrices as power series, and the error that is minimised.

The lower-triangular matrix with first column c_0, c_1, ... has the entry
c_{i-j} in row i and column j <= i. It stands for the series c(x) = sum_j c_j
x^j: the product of two such matrices belongs to the product of the series, and
the first n coefficients never depend on later ones. So functions of matrices
take and return a first column, cut off or continued with zeros at `n`
coefficients. All arithmetic is float64.

The optimisers minimise the error at equal privacy. For a mechanism C with first
column c, first column d = 1/c of its inverse, a workload A, and one tree of n
rounds:

    S2(c) = |sum_{j < k, j b < n} shift(c, j b)|^2
    V(d)  = max_t or mean_t of Var([A C^-1 z]_t)
    error = sqrt(S2 V)

Here shift(c, j b) is c moved down by j b places, and z are the draws. S2 is the
squared sensitivity for at most k participations, b rounds apart, if c is
non-negative and non-increasing, or has at most b coefficients, or k = 1. Most
searches stay inside one of these sets. A search for a banded inverse may leave
them, so the results of searches are compared by the accountant's S2.

The error does not change if c is multiplied by a constant. All products of
series use the fast Fourier transform, so one value with its gradient costs O(n
log n).

*Heuristic* in two respects, which can only cost utility. If the noise restarts,
the error of one tree is minimised, not of the run. With a cooldown, A is not
Toeplitz: the variance is then computed in some 64 rounds and interpolated, and
the maximum is replaced by a norm of high order.
"""

from collections.abc import Callable, Sequence
import contextlib
from typing import Any, NamedTuple, Optional

import numpy as np
from scipy import fft
from scipy import linalg
from scipy import optimize
from scipy import signal

from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.accounting.sensitivity import toeplitz_sensitivity
from tff_dp.mechanisms import workloads

ERRORS = ('max', 'mean')
# Number of rounds in which the variance is computed without a closed form.
_SAMPLED_ROUNDS = 64
# Order of the norm that replaces the maximum over these rounds.
_NORM_ORDER = 64
# Value in place of infinity, from which the line search turns back.
_REJECTED = 1e3

def first(coefficients: Sequence[float] | np.ndarray, n: int) -> np.ndarray:
  """Returns the first n coefficients, with zeros for missing ones."""
  coefficients = np.asarray(coefficients, np.float64)[:n]
  return np.pad(coefficients, (0, n - len(coefficients)))


def matrix(coefficients: Sequence[float] | np.ndarray, n: int) -> np.ndarray:
  """Returns the lower-triangular matrix of the coefficients, shape [n, n]."""
  return linalg.toeplitz(first(coefficients, n), np.zeros(n))


def square_root_coefficients(n: int) -> np.ndarray:
  """Returns the coefficients of 1 / sqrt(1 - x): the root of the prefix sum.

  c_0 = 1 and c_j = c_{j-1} (2j - 1) / (2j), positive and decreasing. The
  matrix of prefix sums has the series 1 / (1 - x), so the Toeplitz matrix of
  these coefficients is its square root (arXiv:2202.11205).
  """
  j = np.arange(1, n)
  return np.concatenate((np.ones(1), np.cumprod((2 * j - 1) / (2 * j))))[:n]


def inverse_square_root_coefficients(n: int) -> np.ndarray:
  """Returns the coefficients of sqrt(1 - x).

  d_0 = 1 and d_j = d_{j-1} (2j - 3) / (2j), negative from j = 1 on.
  """
  j = np.arange(1, n)
  return np.concatenate((np.ones(1), np.cumprod((2 * j - 3) / (2 * j))))[:n]


def inverse(coefficients: Sequence[float] | np.ndarray, n: int) -> np.ndarray:
  """Returns the first n coefficients of 1 / c(x). c_0 must not be 0.

  This is the response of the recursive filter with denominator c to a unit
  impulse: d_t = ([t = 0] - sum_{j >= 1} c_j d_{t-j}) / c_0.
  """
  impulse = np.zeros(n)
  impulse[:1] = 1.0
  denominator = np.asarray(coefficients, np.float64)[:n]
  return signal.lfilter([1.0], denominator, impulse)


def blt_coefficients(
    weights: Sequence[float], decays: Sequence[float], n: int
) -> np.ndarray:
  """Returns the first n coefficients of a BLT's C (arXiv:2404.16706).

  They are c_0 = 1 and c_j = sum_i w_i th_i^(j-1).

  Args:
    weights: Output weights w_i, shape [num_buffers].
    decays: Buffer decays th_i, shape [num_buffers].
    n: Number of coefficients.
  """
  powers = _powers(np.asarray(decays, np.float64), n - 1)
  tail = powers @ np.asarray(weights, np.float64)
  return np.concatenate((np.ones(1), tail))[:n]


def blt_inverse_coefficients(
    weights: Sequence[float], decays: Sequence[float], n: int
) -> np.ndarray:
  """Returns the first n coefficients of 1 / c(x), with c of a BLT.

  With weights w, decays th, draw z, noise x and buffers B, a round computes x =
  z - w'B and then B <- diag(th) B + x. This gives d_j = -w' (diag(th) - 1
  w')^(j-1) 1, where 1 is the vector of ones. Scaling the buffers by sqrt(w_i)
  makes the matrix symmetric, so with eigenpairs (l_m, v_m) of diag(th) - r r'
  for r = sqrt(w),

      d_0 = 1,   d_j = -sum_m (v_m . r)^2 l_m^(j-1).

  Terms can only cancel through the sign of l_m, and every |l_m| <= 1 in the
  stable domain (0 <= th_i <= 1, w_i >= 0, sum w_i <= 1): the eigenvalues lie
  between min th_i - sum w_i and max th_i. Unlike in a recursion over rounds, no
  errors accumulate. For the arguments see `blt_coefficients`.
  """
  roots = np.sqrt(np.asarray(weights, np.float64))
  symmetric = np.diag(np.asarray(decays, np.float64)) - np.outer(roots, roots)
  eigenvalues, vectors = np.linalg.eigh(symmetric)
  tail = -_powers(eigenvalues, n - 1) @ (roots @ vectors) ** 2
  return np.concatenate((np.ones(1), tail))[:n]


def prefix_variances(
    inverse_coefficients: Sequence[float] | np.ndarray, n: int
) -> np.ndarray:
  """Returns Var(b_t) for t = 1..n, for C^-1 with the given first column d.

  The noise of the prefix sum is b = A C^-1 z, where A is the workload of prefix
  sums and z has variance 1. So Var(b_t) is the running sum of the squares of
  cumsum(d). Exact.
  """
  return np.cumsum(np.cumsum(first(inverse_coefficients, n)) ** 2)


def round_variances(
    inverse_coefficients: Sequence[float] | np.ndarray, n: int
) -> np.ndarray:
  """Returns Var([C^-1 z]_t) for t = 1..n: the running sum of d^2. Exact."""
  return np.cumsum(first(inverse_coefficients, n) ** 2)


def _powers(bases: np.ndarray, n: int) -> np.ndarray:
  """Returns bases^0 .. bases^(n-1), shape [n, len(bases)], with 0^0 = 1."""
  return bases[np.newaxis, :] ** np.arange(max(n, 0))[:, np.newaxis]


class TreeSetting(NamedTuple):
  """One tree, and the limits on one client's participation in it.

  Attributes:
    num_rounds: Number of rounds n of the tree.
    min_index_gap: Smallest difference b between the indices of two rounds of
      one client.
    max_participations: Largest number k of rounds of one client. If k is 1, the
      gap does not matter and equals n.
  """

  num_rounds: int
  min_index_gap: int
  max_participations: int


def tree_setting(
    pattern: patterns.ParticipationPattern,
    *,
    restart_every: Optional[int] = None,
) -> TreeSetting:
  """Returns the pattern's limits inside the longest tree of a run."""
  _checks.optional_integer_at_least(1, restart_every=restart_every)
  num_rounds = min(restart_every or pattern.num_rounds, pattern.num_rounds)
  limits = pattern.truncated(num_rounds).limits()
  gap = limits.min_index_gap
  if limits.max_participations == 1:
    gap = num_rounds
  return TreeSetting(num_rounds, gap, limits.max_participations)


class Objective:
  """S2, V and their gradients, for one setting.

  Attributes:
    setting: Tree and the limits on participation.
    error: 'max' or 'mean'.
  """

  def __init__(
      self,
      setting: TreeSetting,
      *,
      error: str,
      workload: Optional[workloads.Workload] = None,
  ):
    _checks.one_of(ERRORS, error=error)
    self.setting = setting
    self.error = error
    n = setting.num_rounds
    workload = workload or workloads.Workload()
    self._size = fft.next_fast_len(2 * n, real=True)
    self._workload = workload.coefficients(n)
    if self._workload is not None:
      # Var_t is the sum of e_i^2, i < t. It never falls, and e_i^2 is part of n
      # - i of the n variances.
      self._shares = np.ones(n)
      if error == 'mean':
        self._shares = np.arange(n, 0, -1) / n
    else:
      self._steps = workload.step_coefficients(n)
      rounds = _sampled_rounds(n)
      self._round_shares = _interpolation_shares(rounds)
      factors = np.where(
          np.arange(n) < rounds[:, np.newaxis], workload.factors(n), 0.0
      )
      self._schedules = fft.rfft(factors, self._size)

  def log_error(
      self, coefficients: np.ndarray, inverse: np.ndarray
  ) -> tuple[float, np.ndarray, np.ndarray]:
    """Returns log(sqrt(S2 V)) and its partial derivatives by c and by d.

    S2 is the squared sensitivity, and V the variance of the model's noise.

    Args:
      coefficients: Coefficients c, shape [n].
      inverse: First n coefficients d of 1 / c.
    """
    sensitivity, by_c = self.squared_sensitivity(coefficients)
    variance, by_d = self.variance(inverse)
    return (
        0.5 * float(np.log(sensitivity * variance)),
        0.5 * by_c / sensitivity,
        0.5 * by_d / variance,
    )

  def through_inverse(
      self, inverse: np.ndarray, by_inverse: np.ndarray
  ) -> np.ndarray:
    """Turns a gradient with respect to 1 / c into one with respect to c.

    If the series c changes by a small dc, the series 1 / c changes by
    -dc / c^2.

    Args:
      inverse: First n coefficients of 1 / c.
      by_inverse: Gradient with respect to `inverse`.
    """
    return -self.adjoint_product(self.product(inverse, inverse), by_inverse)

  def squared_sensitivity(
      self, coefficients: np.ndarray
  ) -> tuple[float, np.ndarray]:
    """Returns S2 and its gradient with respect to c."""
    response = self._aligned(coefficients)
    gradient = 2.0 * self._aligned(response[::-1])[::-1]
    return float(response @ response), gradient

  def variance(self, inverse: np.ndarray) -> tuple[float, np.ndarray]:
    """Returns V and its gradient with respect to d."""
    if self._workload is None:
      return self._sampled_variance(inverse)
    entries = self.product(self._workload, inverse)
    weighted = self._shares * entries
    gradient = 2.0 * self.adjoint_product(self._workload, weighted)
    return float(weighted @ entries), gradient

  def product(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the first n coefficients of the product of two series."""
    spectrum = fft.rfft(left, self._size) * fft.rfft(right, self._size)
    return fft.irfft(spectrum, self._size)[: self.setting.num_rounds]

  def adjoint_product(
      self, factor: np.ndarray, gradient: np.ndarray
  ) -> np.ndarray:
    """Turns a gradient with respect to a product into one for its factor x.

    Args:
      factor: Other factor of the product.
      gradient: Gradient with respect to `product(factor, x)`.
    """
    return self.product(factor, gradient[::-1])[::-1]

  def series_inverse(self, coefficients: np.ndarray) -> np.ndarray:
    """Returns the first n coefficients of 1 / c, by Newton's iteration.

    Each step d <- d (2 - c d) doubles the number of correct coefficients.
    """
    n = self.setting.num_rounds
    inverse = np.array([1.0 / coefficients[0]])
    while len(inverse) < n:
      length = min(2 * len(inverse), n)
      size = fft.next_fast_len(2 * length, real=True)
      spectrum = fft.rfft(inverse, size)
      defect = -fft.irfft(
          spectrum * fft.rfft(coefficients[:length], size), size
      )[:length]
      defect[0] += 2.0
      inverse = fft.irfft(spectrum * fft.rfft(defect, size), size)[:length]
    return inverse

  def _aligned(self, values: np.ndarray) -> np.ndarray:
    """Returns the sum of k copies of `values`, shifted by 0, b, 2b, ..."""
    n, gap, most = self.setting
    if most == 1:
      return values
    grid = np.pad(values, (0, -n % gap)).reshape(-1, gap).cumsum(axis=0)
    grid[most:] -= grid[:-most].copy()
    return grid.ravel()[:n]

  def _sampled_variance(self, inverse: np.ndarray):
    """Returns V and its gradient if A is not a Toeplitz matrix.

    Row t of A C^-1 is the correlation of f_1..f_t with the coefficients of M
    C^-1 (f and M: see `workloads`). The gradient of the row's squared norm by
    these coefficients is twice the correlation of f_1..f_t with the row.
    """
    steps = self.product(self._steps, inverse)
    rows = self._correlations(fft.rfft(steps, self._size))
    variances = np.sum(rows**2, axis=1)
    if self.error == 'mean':
      value = float(self._round_shares @ variances)
      shares = self._round_shares
    else:
      largest = np.max(variances)
      powers = (variances / largest) ** _NORM_ORDER
      value = float(largest * np.sum(powers) ** (1.0 / _NORM_ORDER))
      shares = value * powers / np.sum(powers) / variances
    by_steps = 2.0 * shares @ self._correlations(
        fft.rfft(rows, self._size, axis=1)
    )
    return value, self.adjoint_product(self._steps, by_steps)

  def _correlations(self, spectrum: np.ndarray) -> np.ndarray:
    """Returns sum_i f_{j+i} v_i for each sampled round and j = 0..n-1.

    f are the learning rate factors, 0 after the sampled round.

    Args:
      spectrum: Fourier transform of v, or one for each sampled round.
    """
    full = fft.irfft(self._schedules * np.conj(spectrum), self._size, axis=1)
    return full[:, : self.setting.num_rounds]


def accounted_error(
    objective: Objective,
    coefficients: np.ndarray,
    inverse: np.ndarray,
    *,
    pattern: patterns.ParticipationPattern,
    restart_every: Optional[int] = None,
) -> float:
  """Returns the error sqrt(S2 V), with S2 as the accountant computes it.

  S2 is the squared sensitivity of the run, and V the variance of the model's
  noise in one tree. Candidates are compared by this error, because the S2 of
  `Objective` is right only for some coefficients, and a search may end at
  others. For these, the accountant's S2 may be an upper bound.

  Args:
    objective: Objective that computes V of one tree.
    coefficients: Coefficients c, as rounded for use, shape [n].
    inverse: First n coefficients d of 1 / c.
    pattern: Rounds in which one client may take part.
    restart_every: Number of rounds per tree, `None` for one tree over the whole
      run.
  """
  squared_sensitivity = toeplitz_sensitivity.squared_sensitivity(
      coefficients, pattern, restart_every=restart_every
  )
  variance, _ = objective.variance(inverse)
  return float(np.sqrt(squared_sensitivity * variance))


def _sampled_rounds(num_rounds: int) -> np.ndarray:
  """Returns some of 1..n: dense at the start, evenly spaced later, and n."""
  if num_rounds <= _SAMPLED_ROUNDS:
    return np.arange(1, num_rounds + 1)
  half = _SAMPLED_ROUNDS // 2
  rounds = np.concatenate((
      np.geomspace(1, num_rounds, half), np.linspace(1, num_rounds, half)
  ))
  return np.unique(np.round(rounds).astype(np.int64))


def _interpolation_shares(rounds: np.ndarray) -> np.ndarray:
  """Returns one weight for each of some rounds.

  The weighted sum of values in these rounds is the mean, over all rounds, of
  the linear interpolation of the values.
  """
  everywhere = np.arange(1, rounds[-1] + 1)
  hats = np.eye(len(rounds))
  return np.array(
      [np.mean(np.interp(everywhere, rounds, hat)) for hat in hats]
  )


def local_minimum(
    function: Callable[..., tuple[float, np.ndarray]],
    start: np.ndarray,
    *,
    args: tuple[Any, ...] = (),
    bounds: Optional[Sequence[tuple[float, float]]] = None,
    max_iterations: int = 200,
) -> np.ndarray:
  """Returns the end point of a descent by L-BFGS from `start`.

  *Heuristic*: a local minimum, or a point near one if the iterations ran out.

  Args:
    function: Function of the free numbers and `args` that returns a value and
      its gradient. The value is expected to be of moderate size, such as a
      logarithm.
    start: Starting point, shape [n].
    args: Further arguments of `function`.
    bounds: Smallest and largest value of each number, `None` for no bounds.
    max_iterations: Largest number of iterations.
  """
  if not len(start):
    return start

  def guarded(free):
    # A series whose inverse explodes overflows. It is not a minimum.
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
  Waking up threads for these takes several times longer than everything else.
  Without threadpoolctl this is just slower.
  """
  try:
    import threadpoolctl  # pylint: disable=g-import-not-at-top
  except ImportError:
    return contextlib.nullcontext()
  return threadpoolctl.threadpool_limits(limits=1, user_api='blas')
