# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dense references for noise, straight from the definitions.

Written without the recursions of `tff_dp.mechanisms`: every prefix is a linear
combination of independent nodes, and the combination is spelled out.
"""

import collections

import numpy as np
import scipy.linalg

from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.mechanisms import workloads
from tff_dp.mechanisms.matrix import toeplitz_algebra

# (tree, level, index) -> coefficient of that node's unit draw.
Combination = collections.Counter
TREES = ('tree', 'honaker')


def prefix(name: str, tree: int, t: int) -> Combination:
  """Returns b_t of one tree as a combination of its nodes."""
  combination = Combination()
  for level in range(t.bit_length()):
    if t >> level & 1:
      index = (t >> level) - 1
      if name == 'tree':
        combination[tree, level, index] += 1.0
      else:
        weight = 1.0 / (2.0 - 2.0**-level)
        for node, share in averaged(tree, level, index).items():
          combination[node] += weight * share
  return combination


def averaged(tree: int, level: int, index: int) -> Combination:
  """Returns Honaker's V of a node: z + (V_left + V_right) / 2."""
  combination = Combination({(tree, level, index): 1.0})
  if level:
    for child in (2 * index, 2 * index + 1):
      for node, share in averaged(tree, level - 1, child).items():
        combination[node] += share / 2
  return combination


def residual_covariance(mechanism) -> np.ndarray:
  """Returns Cov of the released residuals at unit scale, shape [T, T]."""
  rounds_per_tree = mechanism.restart_every or mechanism.num_rounds
  prefixes, carried = [Combination()], Combination()
  for round_index in range(mechanism.num_rounds):
    tree, position = divmod(round_index, rounds_per_tree)
    if position == 0 and tree > 0:
      # What the finished tree leaves in the model.
      last = rounds_per_tree
      if mechanism.complete_trees:
        last = 1 << (rounds_per_tree - 1).bit_length()
      carried.update(prefix(mechanism.name, tree - 1, last))
    total = Combination(carried)
    total.update(prefix(mechanism.name, tree, position + 1))
    prefixes.append(total)
  nodes = sorted({node for combination in prefixes for node in combination})
  matrix = np.array([[c[node] for node in nodes] for c in prefixes])
  residuals = np.diff(matrix, axis=0)
  return residuals @ residuals.T


def workload_variances(
    workload: workloads.Workload, inverse_coefficients, num_rounds: int
) -> np.ndarray:
  """Returns the variance of [A C^-1 z]_t, t = 1..n: squared norms of rows.

  Args:
    workload: A.
    inverse_coefficients: First column of the Toeplitz matrix C^-1.
    num_rounds: n.
  """
  rows = workload.matrix(num_rounds) @ toeplitz_algebra.matrix(
      inverse_coefficients, num_rounds
  )
  return np.sum(rows**2, axis=1)


def strategy(mechanism: mechanism_lib.Mechanism, num_rounds: int) -> np.ndarray:
  """Returns C of one tree of a matrix mechanism, shape [n, n]."""
  rounds = np.arange(num_rounds)
  if mechanism.name == 'independent':
    return np.eye(num_rounds)
  if mechanism.name == 'banded-inverse':
    column = np.array(mechanism.inverse_coefficients)
    return np.linalg.inv(_lower_toeplitz(column, num_rounds))
  if mechanism.name == 'blt':
    column = np.ones(num_rounds)
    column[1:] = sum(
        weight * decay ** rounds[:-1]
        for weight, decay in zip(mechanism.weights, mechanism.decays)
    )
  else:
    column = np.array(mechanism.coefficients)
  return _lower_toeplitz(column, num_rounds)


def noise_matrix(mechanism: mechanism_lib.Mechanism) -> np.ndarray:
  """Returns C^-1 of the whole run: one block per tree, shape [T, T]."""
  lengths = tree_lengths(mechanism)
  return scipy.linalg.block_diag(
      *(np.linalg.inv(strategy(mechanism, length)) for length in lengths)
  )


def covariance(mechanism: mechanism_lib.Mechanism) -> np.ndarray:
  """Returns Cov of the released residuals at unit draws, shape [T, T]."""
  if mechanism.name in TREES:
    return residual_covariance(mechanism)
  inverse = noise_matrix(mechanism)
  return inverse @ inverse.T


def covariance_statistic(samples: np.ndarray, expected: np.ndarray) -> float:
  """Returns the log-likelihood ratio of "Cov = expected" against any other.

  Chi-square with T (T + 1) / 2 degrees of freedom where the covariance is right
  (T rounds; `samples` has shape [T, p], p independent normal columns).
  """
  num_rounds, num_samples = samples.shape
  ratio = np.linalg.solve(expected, samples @ samples.T / num_samples)
  _, log_determinant = np.linalg.slogdet(ratio)
  return num_samples * (np.trace(ratio) - log_determinant - num_rounds)


def tree_lengths(mechanism: mechanism_lib.Mechanism) -> list[int]:
  """Returns the rounds of every tree of a run."""
  step = mechanism.restart_every or mechanism.num_rounds
  return [
      min(step, mechanism.num_rounds - start)
      for start in range(0, mechanism.num_rounds, step)
  ]


def _lower_toeplitz(column: np.ndarray, num_rounds: int) -> np.ndarray:
  padded = np.zeros(num_rounds)
  padded[: len(column)] = column[:num_rounds]
  return scipy.linalg.toeplitz(padded, np.zeros(num_rounds))
