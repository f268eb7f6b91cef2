# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The ancestry of the instances of a pool, sampled backward in time.

Every instance is a chain of updates back to the first model. Two instances
share their chains up to the update at which they branch, and differ by the
noise of later updates. So the chains form a tree. An edge with n updates is one
sum of n noise draws. So the numbers of updates on the edges determine the
distribution of the differences in a stationary pool.

Go backward in time, one client at a time, and let `a` chains be left. An update
that overwrote the instance of a chain moves this chain to a uniform instance.
With probability (a - 1)/k the chain then joins another one. Each chain is
equally likely to move. So the number of moves until two chains join is
geometric, and single updates need not be simulated. With several clients in
flight, a round moves all chains whose instance was overwritten, each to an
instance of its own choice.

*Exact*, without gradients: no burn-in, no initial state.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tff_dp import _checks


class Lineages(NamedTuple):
  """The lineage trees of simulated pools, one tree for each pool.

  The leaves of a tree are the k models of the pool, and the next model that a
  client returns.

  Attributes:
    below: Whether a model is below an edge, float32 0/1, [pools, edges, k + 1].
      The chain of a model has the updates of all edges that it is below. The
      last column is the returned model.
    counts: Number of updates on an edge, int64 [pools, edges], 0 for an edge
      that does not exist.
  """

  below: np.ndarray
  counts: np.ndarray


def sample(
    num_instances: int,
    num_pools: int,
    rng: np.random.Generator,
    *,
    concurrency: int = 1,
) -> Lineages:
  """Returns independent stationary trees, with one honest update each.

  The update is from a client at a uniformly random position of its round. The
  pool is as it is when the model of that client comes back.

  Args:
    num_instances: Number of instances k, at least 2.
    num_pools: Number of trees.
    rng: Random generator of the simulation.
    concurrency: Number of clients m of a round.
  """
  _checks.integer_at_least(2, num_instances=num_instances)
  _checks.integer_at_least(1, num_pools=num_pools)
  _checks.integer_at_least(1, concurrency=concurrency)
  if concurrency == 1:
    return _sequential(num_instances, num_pools, rng)
  return _in_rounds(num_instances, num_pools, concurrency, rng)


def in_chunks(lineages: Lineages, num_values: int) -> Iterator[Lineages]:
  """Yields all trees, a few at a time, those with few non-empty edges first.

  The trees of a chunk have about equally many non-empty edges, so that most
  empty edges can be left out. No noise is then drawn for them.

  Args:
    lineages: Result of `sample`.
    num_values: Approximate number of edges and models of a chunk, together.
  """
  sizes = np.maximum(1, np.sum(lineages.counts > 0, axis=1))
  order = np.argsort(sizes, kind='stable')
  num_models = lineages.below.shape[2]
  start = 0
  while start < len(order):
    per_tree = int(sizes[order[start]]) + num_models
    chosen = order[start : start + max(1, num_values // per_tree)]
    start += len(chosen)
    # Edges are sorted: the empty ones are the last.
    size = int(sizes[chosen[-1]])
    yield Lineages(
        lineages.below[chosen, :size], lineages.counts[chosen, :size]
    )


def weights(
    lineages: Lineages,
    num_params: int,
    rng: np.random.Generator,
    *,
    mechanism: str,
) -> np.ndarray:
  """Returns models, float32 [pools, k + 1, p], up to a common offset.

  The unit is the scale of the noise. A sum of n Laplace draws has the
  distribution of sqrt(2 Gamma(n)) times a standard normal.

  Args:
    lineages: Result of `sample`.
    num_params: Number of weights p.
    rng: Random generator of the simulation.
    mechanism: 'laplace' or 'gaussian'.
  """
  _checks.one_of(('laplace', 'gaussian'), mechanism=mechanism)
  counts = lineages.counts[..., np.newaxis]
  shape = (*lineages.counts.shape, num_params)
  sums = rng.standard_normal(shape, dtype=np.float32)
  if mechanism == 'laplace':
    gammas = rng.standard_gamma(
        np.broadcast_to(counts.astype(np.float32), shape), dtype=np.float32
    )
    sums *= np.sqrt(2 * gammas)
  else:
    sums *= np.sqrt(counts).astype(np.float32)
  return np.matmul(np.swapaxes(lineages.below, 1, 2), sums)


def _sequential(num_instances: int, num_pools: int, rng) -> Lineages:
  """Returns trees for one client at a time, by geometric numbers of moves."""
  k = num_instances
  pools = np.arange(num_pools)
  num_edges = 2 * k
  below = np.zeros((num_pools, num_edges, k + 1), np.float32)
  counts = np.zeros((num_pools, num_edges), np.int64)
  # The models below each chain. The chains 0..a-1 are left.
  members = np.zeros((num_pools, k, k + 1), np.float32)
  members[:, np.arange(k), np.arange(k)] = 1
  moves = np.zeros((num_pools, k), np.int64)
  # The returned model is one update away from the instance that it was given.
  given = rng.integers(k, size=num_pools)
  below[:, 0, k] = 1
  counts[:, 0] = 1
  members[pools, given, k] = 1
  # The edge to that instance itself has no update on it.
  edge = 1
  for left in range(k, 1, -1):
    number = rng.geometric((left - 1) / k, size=num_pools)
    share = np.full(left, 1 / left)
    moves[:, :left] += rng.multinomial(number - 1, share)
    first = rng.integers(left, size=num_pools)
    second = (first + rng.integers(1, left, size=num_pools)) % left
    moves[pools, first] += 1
    for joined in (first, second):
      below[:, edge] = members[pools, joined]
      counts[:, edge] = moves[pools, joined]
      edge += 1
    both = members[pools, first] + members[pools, second]
    kept, dropped = np.minimum(first, second), np.maximum(first, second)
    members[pools, kept] = both
    moves[pools, kept] = 0
    # The last chain takes the place of the one that was dropped.
    members[pools, dropped] = members[:, left - 1]
    moves[pools, dropped] = moves[:, left - 1]
  return _without_empty_edges(below, counts)


def _in_rounds(
    num_instances: int, num_pools: int, concurrency: int, rng
) -> Lineages:
  """Returns trees for rounds of several clients, round by round."""
  k = num_instances
  edges = [[] for _ in range(num_pools)]
  # Sets of models, as bit masks.
  members = [[1 << model for model in range(k + 1)] for _ in range(num_pools)]
  # Position of each chain. A chain that has joined another one has a position
  # of its own above k. The returned model starts at k, which its round always
  # moves.
  places = np.tile(np.arange(k + 1), (num_pools, 1))
  moves = np.zeros((num_pools, k + 1), np.int64)
  index = np.arange(num_pools)
  # Only clients before the returned model have written in its own round.
  num_written = rng.integers(concurrency, size=num_pools)
  while len(index):
    written = rng.integers(k, size=(len(index), concurrency))
    late = np.arange(concurrency) >= num_written[:, np.newaxis]
    moved = np.zeros((len(index), 2 * k + 2), bool)
    np.put_along_axis(moved, np.where(late, k, written), True, axis=1)
    moved[:, k] = True
    moved = np.take_along_axis(moved, places, axis=1)
    moves += moved
    places = np.where(moved, rng.integers(k, size=places.shape), places)
    in_order = np.sort(places, axis=1)
    meets = np.any(in_order[:, 1:] == in_order[:, :-1], axis=1)
    for row in np.flatnonzero(meets):
      pool, there = index[row], {}
      for chain, place in enumerate(places[row].tolist()):
        there.setdefault(place, []).append(chain)
      for place, chains in there.items():
        if len(chains) == 1:
          continue
        union = 0
        for chain in chains:
          edges[pool].append((members[pool][chain], int(moves[row, chain])))
          union |= members[pool][chain]
          places[row, chain] = k + 1 + chain
        members[pool][chains[0]] = union
        moves[row, chains[0]] = 0
        places[row, chains[0]] = place
    unfinished = np.sum(places < k, axis=1) > 1
    index, places = index[unfinished], places[unfinished]
    moves = moves[unfinished]
    num_written = np.full(len(index), concurrency)
  num_edges = max(len(found) for found in edges)
  below = np.zeros((num_pools, num_edges, k + 1), np.float32)
  counts = np.zeros((num_pools, num_edges), np.int64)
  for pool, found in enumerate(edges):
    for edge, (models, number) in enumerate(found):
      below[pool, edge] = [models >> model & 1 for model in range(k + 1)]
      counts[pool, edge] = number
  return _without_empty_edges(below, counts)


def _without_empty_edges(below: np.ndarray, counts: np.ndarray) -> Lineages:
  """Returns trees with their edges sorted, and without unneeded empty edges."""
  order = np.argsort(-counts, axis=1)
  order = order[:, : max(1, int(np.max(np.sum(counts > 0, axis=1))))]
  return Lineages(
      np.take_along_axis(below, order[..., np.newaxis], axis=1),
      np.take_along_axis(counts, order, axis=1),
  )
