# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Brute force for sensitivities: every allowed set, every sign, any vectors.

Nothing here knows why some set should be the worst one. Rounds are 0-based.
"""

import functools
import itertools

import numpy as np

from tff_dp.accounting.sensitivity import patterns


def block_diagonal(column, num_rounds, restart_every=None) -> np.ndarray:
  """Returns C of a run: a lower-triangular Toeplitz block per tree."""
  matrix = np.zeros((num_rounds, num_rounds))
  every = restart_every or num_rounds
  for j in range(num_rounds):
    for i in range(j, num_rounds):
      if i // every == j // every and i - j < len(column):
        matrix[i, j] = column[i - j]
  return matrix


@functools.cache
def allowed(pattern, restart_every=None) -> np.ndarray:
  """Returns all allowed sets as 0/1 rows, shape [number, num_rounds]."""
  num_rounds = pattern.num_rounds
  every = restart_every or num_rounds
  sets = np.array(list(itertools.product((0.0, 1.0), repeat=num_rounds)))
  first, second = np.indices((num_rounds, num_rounds))
  gap, same_tree = second - first, first // every == second // every
  if isinstance(pattern, patterns.MinSeparationPattern):
    clashes = gap < pattern.min_index_gap
  elif isinstance(pattern, patterns.OncePerTreePattern):
    clashes = same_tree
  else:
    clashes = same_tree & (gap % pattern.rounds_per_epoch != 0)
  num_clashes = np.sum((sets @ (clashes & (gap > 0))) * sets, axis=1)
  sets = sets[num_clashes == 0]
  if isinstance(pattern, patterns.MinSeparationPattern):
    sets = sets[sets.sum(axis=1) <= pattern.max_participations]
  return sets


def worst_aligned(matrix, pattern, restart_every=None) -> float:
  """Returns the worst |C x|^2 over allowed sets, all contributions equal."""
  responses = allowed(pattern, restart_every) @ matrix.T
  return float(np.sum(responses**2, axis=1).max())


@functools.cache
def _signed(num_rounds) -> tuple[np.ndarray, np.ndarray]:
  """Returns all of {-1, 0, 1}^n and the number of each one's support."""
  values = np.array(list(itertools.product((-1, 0, 1), repeat=num_rounds)))
  return values, np.abs(values) @ (1 << np.arange(num_rounds))


def worst_signed(matrix, pattern, restart_every=None) -> float:
  """Returns the worst |C x|^2 over allowed sets and signs."""
  values, supports = _signed(pattern.num_rounds)
  sets = allowed(pattern, restart_every) @ (1 << np.arange(pattern.num_rounds))
  is_allowed = np.zeros(1 << pattern.num_rounds, bool)
  is_allowed[sets.astype(int)] = True
  responses = values[is_allowed[supports]] @ matrix.T
  return float(np.sum(responses**2, axis=1).max())


def worst_vectors(
    matrix, pattern, restart_every=None, *, dimension=3, num_starts=4, seed=0
) -> float:
  """Returns a large |C U|^2 over allowed sets and rows U of norm at most 1.

  Ascent from random starts, one row after the other: each row moves to where
  the others pull it. A lower bound on S2, and more than signs can reach.
  """
  rng = np.random.default_rng(seed)
  gram = matrix.T @ matrix
  sets = allowed(pattern, restart_every)
  shape = (num_starts, len(sets), pattern.num_rounds, dimension)
  rows = rng.standard_normal(shape)
  rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
  rows *= sets[np.newaxis, :, :, np.newaxis]
  off_diagonal = gram - np.diag(np.diag(gram))
  for _ in range(30):
    for i in range(pattern.num_rounds):
      pull = np.einsum('j,abjd->abd', off_diagonal[i], rows)
      norm = np.linalg.norm(pull, axis=-1, keepdims=True)
      moved = np.where(
          norm > 1e-12, pull / np.maximum(norm, 1e-12), rows[:, :, i]
      )
      rows[:, :, i] = moved * sets[np.newaxis, :, i, np.newaxis]
  values = np.einsum('ij,abid,abjd->ab', gram, rows, rows)
  return float(values.max())
