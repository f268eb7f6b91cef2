# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Exact laws of small protocols, by listing every outcome.

Nothing here knows of clones, of amplification or of a worst case. A local
randomizer is a matrix: row x is the law of the report of input x. A law is a
dict from outcomes to probabilities. Exact laws refute a bound, they never
certify one: other inputs, other randomizers and adaptivity are not in them.
"""

import collections
import itertools
import math

import numpy as np


def randomized_response(local_epsilon, num_categories=2) -> np.ndarray:
  """Returns the matrix of k-ary randomized response."""
  matrix = np.ones((num_categories, num_categories))
  np.fill_diagonal(matrix, math.exp(local_epsilon))
  return matrix / matrix.sum(axis=1, keepdims=True)


def leaky_randomized_response(local_epsilon, local_delta) -> np.ndarray:
  """Returns randomized response that shows its input with probability d0."""
  honest = (1 - local_delta) * randomized_response(local_epsilon)
  return np.hstack([honest, local_delta * np.eye(2)])


def sphere_cells(local_epsilon, angle, third_angle) -> np.ndarray:
  """Returns the one-bit sphere in the plane for three inputs, exactly.

  Inputs are unit vectors at angles 0, `angle` and `third_angle`. A report's
  direction matters only through the sides of the three lines it is on: cells
  are arcs between their ends.
  """
  inputs = np.array([0.0, angle, third_angle])
  ends = np.concatenate([inputs - math.pi / 2, inputs + math.pi / 2])
  ends = np.unique(np.mod(ends, 2 * math.pi).round(12))
  widths = np.diff(np.append(ends, ends[0] + 2 * math.pi))
  middles = ends + widths / 2
  alpha = 1 / (1 + math.exp(-local_epsilon))
  same_side = np.cos(middles[np.newaxis, :] - inputs[:, np.newaxis]) > 0
  return np.where(same_side, alpha, 1 - alpha) * widths / math.pi


def shuffled(matrix, inputs, check_in_rate=1.0) -> dict:
  """Returns the law of how often each report occurs, as tuples of counts.

  Each input's client checks in with the given probability, on its own.
  """
  num_reports = matrix.shape[1]
  law = {(0,) * num_reports: 1.0}
  for x in inputs:
    following = collections.defaultdict(float)
    for counts, mass in law.items():
      following[counts] += mass * (1 - check_in_rate)
      for report in range(num_reports):
        more = list(counts)
        more[report] += 1
        following[tuple(more)] += mass * check_in_rate * matrix[x, report]
    law = following
  return dict(law)


def binary_check_in(local_epsilon, num_zeros, num_ones, check_in_rate):
  """Returns Pr[zeros, ones] of one round of binary randomized response.

  As an array, for crowds too large to list: the same law as `shuffled`.
  """
  size = num_zeros + num_ones + 1
  matrix = check_in_rate * randomized_response(local_epsilon)
  law = np.zeros((size, size))
  law[0, 0] = 1.0
  for x in [0] * num_zeros + [1] * num_ones:
    following = (1 - check_in_rate) * law
    following[1:, :] += matrix[x, 0] * law[:-1, :]
    following[:, 1:] += matrix[x, 1] * law[:, :-1]
    law = following
  return law


def aligned(first: dict, second: dict) -> tuple[np.ndarray, np.ndarray]:
  """Returns two laws as arrays over the same outcomes."""
  outcomes = sorted(set(first) | set(second))
  return tuple(
      np.array([law.get(outcome, 0.0) for outcome in outcomes])
      for law in (first, second)
  )


def composed(first, second, num_rounds) -> tuple[np.ndarray, np.ndarray]:
  """Returns the laws of independent repetitions, as flat arrays."""
  pair = np.ones(1), np.ones(1)
  for _ in range(num_rounds):
    pair = tuple(
        np.outer(so_far, law).ravel()
        for so_far, law in zip(pair, (first, second))
    )
  return pair


def hockey_stick(first, second, epsilon) -> float:
  """Returns H_E(first || second), E = exp(epsilon), of two arrays."""
  return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())


def delta(first, second, epsilon) -> float:
  """Returns the larger H_E of both directions."""
  return max(
      hockey_stick(first, second, epsilon),
      hockey_stick(second, first, epsilon),
  )


def renyi_moment(first, second, order) -> float:
  """Returns Ex_second[(first / second)^order] of two arrays."""
  inside = second > 0
  ratios = first[inside] / second[inside]
  return float(second[inside] @ ratios**order)


def neighbours(num_clients, num_inputs):
  """Yields (inputs, inputs) that differ in one client, up to symmetry.

  The others' inputs are all multisets; the differing client holds 0 or 1, the
  first two of the inputs.
  """
  others = itertools.combinations_with_replacement(
      range(num_inputs), num_clients - 1
  )
  for rest in others:
    yield (0, *rest), (1, *rest)
