# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""BLT noise: near-optimal error from a handful of buffers.

C is Toeplitz with c_0 = 1 and c_j = sum_i w_i th_i^(j-1), a sum of d
exponentials ("buffered linear Toeplitz", arXiv:2404.16706, and arXiv:2408.08868
for several participations). Multiplying the draws z by C^-1 takes d buffers
B_i, which are zero at the start of a tree. The noise x_t of round t is

    x_t = z_t - sum_i w_i B_i,     then B_i <- th_i B_i + x_t.

Parameters are searched without constraints: th_i is the logistic function of
one number, and w is the softmax of others. So no iterate leaves the domain w >=
0, 0 <= th <= 1, sum w <= 1. The starting points are fixed, not random.
*Heuristic*: the result is the best of a few local optima, and is not unique. If
there are many buffers, two of them are often equal and could be merged.
"""

import dataclasses
import functools
import json
import pathlib
from typing import Any, NamedTuple, Optional

import numpy as np
from scipy import optimize as scipy_optimize

from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import mechanism
from tff_dp.mechanisms import workloads
from tff_dp.mechanisms.matrix import toeplitz
from tff_dp.mechanisms.matrix import toeplitz_algebra

MAX_BUFFERS = 8
# Up to this many rounds all starting points are tried, and beyond it only the
# first, because each costs seconds.
_MANY_ROUNDS = 6000
# The logistic function of 30 differs from 1 by 1e-13, less than float32 shows.
_BOUND = 30.0
# One more buffer may gain nothing although two more do. Three more never did.
_PATIENCE = 2
_GAIN = 1e-5
_LARGEST_SUM = 0.95
_LEAST_WEIGHT = 1e-4

Parameters = tuple[tuple[float, ...], tuple[float, ...]]
# A list for each entry: the fields of its `Key`, weights, decays. Numbers are
# the shortest that read back as the same float32.
TABLE = pathlib.Path(__file__).with_name('blt_table.json')


class Key(NamedTuple):
  """A setting for which the parameters of the mechanism are precomputed.

  Attributes:
    num_rounds: Rounds n of the tree.
    min_index_gap: Least difference of the indices of two rounds of one client.
      It is n if `max_participations` is 1.
    max_participations: Most rounds of one client.
    num_buffers: Buffers of the mechanism.
    error: Error that was minimised, 'max' or 'mean'.
  """

  num_rounds: int
  min_index_gap: int
  max_participations: int
  num_buffers: int
  error: str


@dataclasses.dataclass(frozen=True)
class Blt(toeplitz.ToeplitzMechanism):
  """Public description of BLT noise.

  Only the stable domain w_i >= 0, 0 <= th_i <= 1, sum_i w_i <= 1 is accepted.
  There the coefficients of C are non-negative and never increase, so the
  sensitivity is exact. The eigenvalues of the recursion lie in [-1, 1], so
  noise cannot grow exponentially.

  Attributes:
    num_rounds: Horizon T. The aggregator refuses round T + 1.
    weights: Weights w_i of 1 to 8 buffers, rounded to float32 towards 0.
      (Rounded to the nearest, they could add up to more than 1.)
    decays: Decays th_i, one per weight, rounded to float32.
    restart_every: Number of rounds per tree, or `None` for one tree over all
      rounds.
  """

  num_rounds: int
  weights: tuple[float, ...]
  decays: tuple[float, ...]
  restart_every: Optional[int] = None
  # Completion is about the nodes of tree noise.
  complete_trees: bool = dataclasses.field(default=False, init=False)

  name = 'blt'

  def __post_init__(self):
    self._check()
    weights = mechanism.rounded_down(weights=self.weights)
    decays = mechanism.rounded(decays=self.decays)
    for name, values in (('weights', weights), ('decays', decays)):
      if len(values) > MAX_BUFFERS:
        raise _checks.ArgumentError(
            name, values, f'at most {MAX_BUFFERS} numbers, one per buffer'
        )
    if len(decays) != len(weights):
      raise _checks.ArgumentError(
          'decays', decays, f'as many numbers as weights, {len(weights)}'
      )
    if min(weights) < 0 or sum(weights) > 1:
      raise _checks.ArgumentError(
          'weights',
          weights,
          'numbers of at least 0 whose sum is at most 1: outside of that the'
          ' noise is not stable, or its sensitivity not known',
      )
    if min(decays) < 0 or max(decays) > 1:
      raise _checks.ArgumentError(
          'decays',
          decays,
          'numbers from 0 to 1: outside of that the noise is not stable, or'
          ' its sensitivity not known',
      )
    object.__setattr__(self, 'weights', weights)
    object.__setattr__(self, 'decays', decays)

  @classmethod
  def optimized(
      cls,
      participation: Any,
      *,
      num_buffers: int = 3,
      error: str = 'max',
      workload=None,
      restart_every: Optional[int] = None,
  ) -> 'Blt':
    """Returns a mechanism with small error for a participation.

    *Heuristic*. The squared sensitivity S2 of the result is computed as for any
    other mechanism.

    Args:
      participation: A schedule or a participation pattern.
      num_buffers: Number of buffers, 1 to 8. 3 are almost as good as any
        number.
      error: Error to minimise: sqrt(S2 V), where V is the largest ('max') or
        the mean ('mean') variance of the model's noise over the rounds.
      workload: Map from the noised sums of the rounds to the model, see
        `workloads`. Default: the prefix sum.
      restart_every: Number of rounds per tree, or `None` for one tree.
    """
    _checks.integer_between(1, MAX_BUFFERS, num_buffers=num_buffers)
    pattern = mechanism.pattern_of(participation)
    weights, decays = optimize(
        pattern,
        num_buffers=num_buffers,
        error=error,
        workload=workload,
        restart_every=restart_every,
    )
    return cls(
        pattern.num_rounds, weights, decays, restart_every=restart_every
    )

  @property
  def num_buffers(self) -> int:
    """Number of model-sized vectors that the noise keeps."""
    return len(self.weights)

  def column(self, n: int) -> np.ndarray:
    return toeplitz_algebra.blt_coefficients(self.weights, self.decays, n)

  def inverse_column(self, n: int) -> np.ndarray:
    return toeplitz_algebra.blt_inverse_coefficients(
        self.weights, self.decays, n
    )

  def initialize(self, zeros):
    return (zeros,) * self.num_buffers

  def next_noise(self, buffers, round_in_tree, operations):
    noise = operations.combine(
        (1.0, *(-weight for weight in self.weights)),
        (operations.draw(0, round_in_tree - 1), *buffers),
    )
    return noise, tuple(
        operations.combine((decay, 1.0), (buffer, noise))
        for decay, buffer in zip(self.decays, buffers, strict=True)
    )


def optimize(
    pattern: patterns.ParticipationPattern,
    *,
    num_buffers: int = 3,
    error: str = 'max',
    workload: Optional[workloads.Workload] = None,
    restart_every: Optional[int] = None,
) -> Parameters:
  """Returns (weights, decays) with small sqrt(S2 V), from a table or `search`.

  S2 is the squared sensitivity of the run. V is the variance of the model's
  noise in one tree.

  Args:
    pattern: Rounds in which one client may take part.
    num_buffers: Number of buffers, 1 to 8 (model copies that are kept).
    error: 'max' or 'mean': whether V is the largest or the mean variance.
    workload: Map from the noised sums of the rounds to the model, see
      `workloads`. Default: the prefix sum.
    restart_every: Number of rounds per tree, `None` for one tree.
  """
  if restart_every is None and workload in (None, workloads.Workload()):
    setting = toeplitz_algebra.tree_setting(pattern)
    found = table().get(Key(*setting, num_buffers, error))
    if found is not None:
      return found
  return search(
      pattern,
      num_buffers=num_buffers,
      error=error,
      workload=workload,
      restart_every=restart_every,
  )


def _as_float32(values: list[float]) -> tuple[float, ...]:
  """Returns the numbers as rounded to float32."""
  return tuple(np.asarray(values, np.float32).astype(np.float64).tolist())


@functools.cache
def table() -> dict[Key, Parameters]:
  """Returns the (weights, decays) that `search` found, by common setting.

  The sensitivity S2 is always computed from the parameters in use. So a wrong
  entry costs utility, never privacy. `python tools/make_blt_table.py` makes the
  table anew.
  """
  return {
      Key(*key): (_as_float32(weights), _as_float32(decays))
      for *key, weights, decays in json.loads(TABLE.read_text())
  }


def search(
    pattern: patterns.ParticipationPattern,
    *,
    num_buffers: int = 3,
    error: str = 'max',
    workload: Optional[workloads.Workload] = None,
    restart_every: Optional[int] = None,
) -> Parameters:
  """Returns (weights, decays) with small sqrt(S2 V).

  S2 is the squared sensitivity of the run. V is the variance of the model's
  noise in one tree. *Heuristic*, but reproducible, see the module docstring.
  The result is never worse than the result with fewer buffers, which is among
  the candidates. Candidates are compared after rounding to float32. Weights and
  decays are tuples of `num_buffers` float32 numbers that `Blt` accepts. The
  buffer with the largest decay is the first.

  Args:
    pattern: Rounds in which one client may take part.
    num_buffers: Number of buffers, 1 to 8 (model copies that are kept).
    error: 'max' or 'mean': whether V is the largest or the mean variance.
    workload: Map from the noised sums of the rounds to the model, see
      `workloads`. Default: the prefix sum.
    restart_every: Number of rounds per tree, `None` for one tree.
  """
  _checks.integer_between(1, MAX_BUFFERS, num_buffers=num_buffers)
  return _level(pattern, num_buffers, error, workload, restart_every).parameters


class _Level(NamedTuple):
  """The best parameters with a given number of buffers.

  Attributes:
    parameters: Weights and decays.
    error: Error of the parameters.
    levels_without_gain: How many of the buffers that were added last brought no
      gain.
  """

  parameters: Parameters
  error: float
  levels_without_gain: int


@functools.lru_cache(maxsize=64)
def _level(pattern, num_buffers, error, workload, restart_every) -> _Level:
  """Returns the best parameters, building on the result for a buffer less."""
  candidates: list[Parameters] = []
  below = None
  if num_buffers > 1:
    below = _level(pattern, num_buffers - 1, error, workload, restart_every)
    candidates.append(_with_split_buffer(below.parameters))
    if below.levels_without_gain == _PATIENCE:
      return below._replace(parameters=candidates[0])
  setting = toeplitz_algebra.tree_setting(
      pattern, restart_every=restart_every
  )
  objective = toeplitz_algebra.Objective(
      setting, error=error, workload=workload
  )
  for start in _starts(setting, num_buffers):
    candidates.append(_rounded(_minimized(objective, *start)))
  errors = [
      error_of(
          objective, candidate, pattern=pattern, restart_every=restart_every
      )
      for candidate in candidates
  ]
  least = min(errors)
  idle = 0
  if below is not None and least >= below.error * (1.0 - _GAIN):
    idle = below.levels_without_gain + 1
  return _Level(candidates[errors.index(least)], least, idle)


def error_of(
    objective: toeplitz_algebra.Objective,
    parameters: Parameters,
    *,
    pattern: patterns.ParticipationPattern,
    restart_every: Optional[int] = None,
) -> float:
  """Returns the error sqrt(S2 V) of parameters.

  S2 is the squared sensitivity of the run, and V the variance of the noise of
  one tree, see `toeplitz_algebra.accounted_error`.

  Args:
    objective: Objective that computes V of one tree.
    parameters: Weights and decays.
    pattern: Rounds in which one client may take part.
    restart_every: Number of rounds per tree, `None` for one tree.
  """
  num_rounds = objective.setting.num_rounds
  return toeplitz_algebra.accounted_error(
      objective,
      toeplitz_algebra.blt_coefficients(*parameters, num_rounds),
      toeplitz_algebra.blt_inverse_coefficients(*parameters, num_rounds),
      pattern=pattern,
      restart_every=restart_every,
  )


def _starts(setting: toeplitz_algebra.TreeSetting, num_buffers: int):
  """Yields starting (weights, 1 - decays), fitted to the square root.

  The buffers' memories 1 / (1 - th) lie on geometric grids: up to the horizon,
  up to the separation, and one grid with a buffer that almost never forgets.
  """
  n, gap, _ = setting
  horizon = np.geomspace(min(0.5, 1.0 / n), 0.7, num_buffers)
  if num_buffers == 1:
    horizon = np.array([min(0.5, 3.0 / np.sqrt(n))])
  grids = [horizon]
  if n <= _MANY_ROUNDS and num_buffers > 1:
    separation = np.geomspace(min(0.5, 3.0 / gap), 0.9, num_buffers)
    constant = np.geomspace(min(0.5, 1.0 / gap), 0.7, num_buffers - 1)
    grids += [separation, np.append(1e-3 / n, constant)]
  for forgetting in grids:
    yield _fitted_weights(forgetting, n), forgetting


def _fitted_weights(forgetting: np.ndarray, n: int) -> np.ndarray:
  """Returns weights inside the domain that approximate the square root."""
  if n == 1:
    return np.full(len(forgetting), _LARGEST_SUM / len(forgetting))
  target = toeplitz_algebra.square_root_coefficients(n)[1:]
  # Relative to its own decay, so that small coefficients are fitted as well.
  scale = 1.0 / np.sqrt(np.arange(1, n))
  powers = (1.0 - forgetting) ** np.arange(n - 1)[:, np.newaxis]
  weights, _ = scipy_optimize.nnls(
      powers * scale[:, np.newaxis], target * scale
  )
  weights = np.maximum(weights, _LEAST_WEIGHT)
  return weights * min(1.0, _LARGEST_SUM / weights.sum())


def _minimized(
    objective: toeplitz_algebra.Objective,
    weights: np.ndarray,
    forgetting: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns (weights, decays) of the local minimum reached from a start."""
  num_buffers = len(weights)
  log_weights = np.log(weights / (1.0 - weights.sum()))
  log_forgetting = np.log(forgetting / (1.0 - forgetting))
  free = np.concatenate((log_weights, log_forgetting))
  found = toeplitz_algebra.local_minimum(
      _log_error,
      free,
      args=(objective,),
      bounds=[(-_BOUND, _BOUND)] * (2 * num_buffers),
  )
  weights, forgetting = _parameters(found)
  return weights, 1.0 - forgetting


def _parameters(free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns (weights, 1 - decays) from unconstrained numbers."""
  logits, log_odds = np.split(free, 2)
  # Softmax with one more entry, 0, which takes the rest of the total of 1.
  exponentials = np.exp(logits - max(0.0, logits.max()))
  rest = np.exp(-max(0.0, logits.max()))
  weights = exponentials / (rest + exponentials.sum())
  return weights, 1.0 / (1.0 + np.exp(-log_odds))


def _log_error(free: np.ndarray, objective) -> tuple[float, np.ndarray]:
  """Returns log(sqrt(S2 V)) and its gradient in the unconstrained numbers."""
  n = objective.setting.num_rounds
  weights, forgetting = _parameters(free)
  decays = 1.0 - forgetting
  powers = _powers(decays, n - 1)
  roots = np.sqrt(weights)
  # See toeplitz_algebra.blt_inverse_coefficients, which is slower.
  poles, vectors = np.linalg.eigh(np.diag(decays) - np.outer(roots, roots))
  inverse = np.concatenate(
      ([1.0], -((roots @ vectors) ** 2) @ _powers(poles, n - 1))
  )
  value, by_c, by_d = objective.log_error(
      np.concatenate(([1.0], weights @ powers)), inverse
  )
  by_tail = (by_c + objective.through_inverse(inverse, by_d))[1:]
  by_weights = powers @ by_tail
  by_log_decays = weights * (powers @ (np.arange(n - 1) * by_tail))
  return value, np.concatenate((
      weights * (by_weights - weights @ by_weights),
      -by_log_decays * forgetting,
  ))


def _powers(bases: np.ndarray, n: int) -> np.ndarray:
  """Returns bases^0 .. bases^(n-1), shape [len(bases), n].

  Computed through the exponential, several times faster than `**`.
  """
  logarithms = np.log(np.maximum(np.abs(bases), np.finfo(np.float64).tiny))
  powers = np.exp(np.multiply.outer(logarithms, np.arange(n)))
  powers[bases < 0, 1::2] *= -1.0
  return powers


def _rounded(parameters: tuple[np.ndarray, np.ndarray]) -> Parameters:
  """Returns float32 numbers inside the domain, the slowest buffer first."""
  weights, decays = parameters
  order = np.argsort(-decays, kind='stable')
  weights = weights[order].astype(np.float32)
  decays = np.clip(decays[order], 0.0, 1.0).astype(np.float32)
  while sum(weights.tolist()) > 1.0:
    weights = np.nextafter(weights, np.float32(0))
  return tuple(weights.tolist()), tuple(decays.tolist())


def _with_split_buffer(parameters: Parameters) -> Parameters:
  """Returns parameters of the same C with one more buffer.

  Two buffers of half the weight take the place of the first one.
  """
  weights, decays = parameters
  half = weights[0] / 2
  return (half, half, *weights[1:]), (decays[0], *decays)
