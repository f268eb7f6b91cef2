# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sums of many reports of the one-bit sphere randomizer, drawn exactly.

A client with the clipped vector x, |x| <= C, sends `B h v`: v uniform on the unit
sphere of R^d, the sign h equal to that of <z, v> with probability
alpha = e^eps0 / (1 + e^eps0), and z = +-C x/|x| (arXiv:2001.03618). A simulation of
k clients has to draw the sum of the `h v`. Drawing each v costs k d normals; the
same law is had for a small part of it. *Exact*, by three identities:

1. *Mixture.* Given z, the density of h v is 2 alpha on the half of the sphere
   around z and 2 (1 - alpha) on the other half; z points along u = x/|x| with
   probability 1/2 + |x|/(2C). So h v is uniform on the half around u with
   probability p = (2 alpha - 1) |x|/C, and otherwise uniform on the whole sphere,
   whatever the data are.
2. *Reflection.* If w is uniform on the sphere, then w + 2 max(0, -<w, u>) u is
   uniform on the half around u: the other half is mirrored into it.
3. *Isotropy.* A sum of independent vectors whose directions are uniform in a space
   of dimension d' has a direction that is uniform and independent of its length.
   The length follows by adding one at a time: |s + r w|^2 = |s|^2 + r^2 +
   2 r |s| t, t one coordinate of a uniform unit vector of R^d'. Numbers only.

By 3, the reports that are uniform on the whole sphere cost one vector together.
The others are taken in groups. Let V be the space that a group's u_i span, of
dimension g, and e_1..e_g an orthonormal basis, so that u_i = sum_j L_ij e_j with
L the Cholesky factor of the u_i's inner products. The part of w_i in V is g
coordinates; what the reflections need of w_i lies in V. The parts outside V are
independent and isotropic given the parts inside, and by 3 their sum costs one
vector for the group. So a group costs one vector of d normals instead of g, and
the gradients themselves are only needed in sums and inner products.

A vector u_i that is almost in the span of its group's earlier ones would divide by
almost nothing. It is put off to a group of its own with other such, smaller each
time; alone, a vector is never dependent.
"""

from typing import Protocol

import numpy as np

from tff_dp import _checks

# Of the vectors put off from one size, most fit into the next.
_GROUP_SIZES = (32, 8, 2, 1)
# Least squared distance of a unit vector from the span of the earlier ones. The
# inner products are good to about 1e-6.
_LEAST_PIVOT = 1e-2
# With fewer dimensions outside a group's span, a direction there could be too
# short for its rounding.
_LEAST_DIMENSIONS = 8


class Vectors(Protocol):
  """What is needed of the clients' vectors; see `mnist_gradients.Gradients`."""

  num_params: int

  def norms(self) -> np.ndarray:
    ...

  def grams(self, group_size: int) -> np.ndarray:
    ...

  def projections(self, vectors: np.ndarray) -> np.ndarray:
    ...

  def weighted_sum(self, weights: np.ndarray) -> np.ndarray:
    ...

  def rows(self, indices) -> 'Vectors':
    ...


def sum_on_halves(
    vectors: Vectors,
    is_included: np.ndarray,
    rng: np.random.Generator,
    *,
    group_sizes: tuple[int, ...] = _GROUP_SIZES,
) -> np.ndarray:
  """Returns a sum of unit vectors, each uniform on the half around a client's.

  Exact, up to the rounding of float32; the time is that of one vector of normals
  per group.

  Args:
    vectors: The clients' vectors, of any lengths, with at least 8 coordinates.
    is_included: Bool, shape [num_clients]: whose half to draw from. None of them
      may be the zero vector.
    rng: Source of all draws.
    group_sizes: Largest groups, and those for vectors that depend on others of
      their group; ends with 1.

  Returns:
    float64, shape [num_params].
  """
  _checks.integer_at_least(_LEAST_DIMENSIONS, num_params=vectors.num_params)
  norms = vectors.norms()
  total = np.zeros(vectors.num_params)
  indices = np.flatnonzero(is_included)
  is_whole = len(indices) == len(is_included)
  for size in group_sizes:
    if not len(indices):
      return total
    size = min(size, vectors.num_params // 4, len(indices))
    num_missing = -len(indices) % size
    padded = np.concatenate([indices, np.repeat(indices[:1], num_missing)])
    wanted = np.arange(len(padded)) < len(indices)
    if is_whole and not num_missing:
      chosen = vectors  # Spares a copy.
    else:
      chosen = vectors.rows(padded)
    part, is_done = _sum_groups(
        chosen, norms[padded], wanted.reshape(-1, size), rng
    )
    total += part
    indices = padded[wanted & ~is_done.reshape(-1)]
    is_whole = False
  if len(indices):
    raise _checks.ArgumentError('group_sizes', group_sizes, '1 as the last one')
  return total


def sum_on_sphere(
    count: int, num_params: int, rng: np.random.Generator
) -> np.ndarray:
  """Returns a sum of `count` independent uniform unit vectors, float64.

  Exact; one vector of normals, whatever the count.
  """
  _checks.integer_at_least(0, count=count)
  if not count:
    return np.zeros(num_params)
  cosines = _coordinates(np.full(count, num_params), rng)
  direction = rng.standard_normal(num_params, np.float32)
  return direction * (_walk(np.ones(count), cosines) / _norms(direction))


def literal_sum(
    vectors: np.ndarray,
    probabilities: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
  """Returns what a sum of reports is by definition, to test against.

  Args:
    vectors: Shape [num_clients, num_params].
    probabilities: Shape [num_clients]; with which the sign is that of the inner
      product with the client's vector.
    rng: Source of all draws.
  """
  directions = rng.standard_normal(vectors.shape)
  directions /= _norms(directions)[:, np.newaxis]
  is_positive = np.einsum('id,id->i', vectors, directions) >= 0
  is_kept = rng.random(len(vectors)) < probabilities
  signs = np.where(is_positive == is_kept, 1.0, -1.0)
  return signs @ directions


def _sum_groups(
    vectors: Vectors,
    norms: np.ndarray,
    wanted: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns (the sum over groups, which clients are in it).

  Args:
    vectors: The clients' vectors, one group after the other.
    norms: Their lengths.
    wanted: Bool, shape [num_groups, group_size].
    rng: Source of all draws.
  """
  num_groups, size = wanted.shape
  norms = norms.reshape(num_groups, size)
  grams = vectors.grams(size)
  grams /= norms[:, :, np.newaxis] * norms[:, np.newaxis]
  factor, is_done = _independent(grams, wanted)

  # Inside: coordinates of each w_i, and what the reflections add.
  inside_dimensions = is_done.sum(axis=1)
  outside_dimensions = vectors.num_params - inside_dimensions
  pairs = is_done[:, :, np.newaxis] & is_done[:, np.newaxis]
  inside = rng.standard_normal((num_groups, size, size)) * pairs
  outside_squared = _chi_square(outside_dimensions[:, np.newaxis], rng, size)
  lengths = np.sqrt(np.einsum('gij,gij->gi', inside, inside) + outside_squared)
  inside /= lengths[:, :, np.newaxis]
  dots = np.einsum('gij,gij->gi', factor, inside) * is_done
  mirrored = 2 * np.maximum(0, -dots)
  coordinates = inside.sum(axis=1)
  coordinates += np.einsum('gi,gij->gj', mirrored, factor)

  # Outside: one direction for each group, projected away from its vectors.
  radii = np.sqrt(outside_squared) / lengths * is_done
  cosines = _coordinates(
      np.broadcast_to(outside_dimensions[:, np.newaxis], radii.shape), rng
  )
  outside_length = _walk(radii.T, cosines.T)
  draws = rng.standard_normal((num_groups, vectors.num_params), np.float32)
  projections = vectors.projections(draws).reshape(num_groups, size) / norms
  projections = _solve(factor, projections * is_done)
  squares = _norms(draws) ** 2 - np.sum(projections**2, axis=1)
  scales = outside_length / np.sqrt(squares)

  # Back from coordinates in the basis to weights of the vectors.
  coordinates -= scales[:, np.newaxis] * projections
  weights = _solve(factor.transpose(0, 2, 1), coordinates) * is_done
  total = vectors.weighted_sum((weights / norms).reshape(-1))
  return total + scales @ draws, is_done


def _independent(
    grams: np.ndarray, wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns (Cholesky factors, which vectors are independent enough).

  The factor of a vector that is left out is that of a direction of its own, which
  keeps the matrix invertible.

  Args:
    grams: Inner products of unit vectors, shape [num_groups, size, size].
    wanted: Bool, shape [num_groups, size].
  """
  rest = grams.copy()
  is_done = wanted.copy()
  factor = np.zeros_like(grams)
  for j in range(grams.shape[1]):
    pivots = rest[:, j, j]
    # Alone in its group a vector has the pivot 1, up to rounding.
    is_done[:, j] &= pivots > _LEAST_PIVOT
    column = rest[:, :, j] / np.sqrt(np.where(is_done[:, j], pivots, np.inf))[
        :, np.newaxis
    ]
    factor[:, j:, j] = column[:, j:]
    rest -= column[:, :, np.newaxis] * column[:, np.newaxis]
  factor *= is_done[:, :, np.newaxis]
  size = grams.shape[1]
  factor[:, range(size), range(size)] += ~is_done
  return factor, is_done


def _solve(matrices: np.ndarray, vectors: np.ndarray) -> np.ndarray:
  return np.linalg.solve(matrices, vectors[:, :, np.newaxis])[:, :, 0]


def _coordinates(
    dimensions: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
  """Returns one coordinate each of uniform unit vectors of these dimensions."""
  normals = rng.standard_normal(dimensions.shape)
  others = _chi_square(dimensions - 1, rng)
  return normals / np.sqrt(normals**2 + others)


def _walk(radii: np.ndarray, cosines: np.ndarray) -> np.ndarray:
  """Returns the lengths of sums of vectors, added along the first axis."""
  squared = np.zeros_like(radii[0])
  for radius, cosine in zip(radii, cosines):
    squared = squared + radius**2 + 2 * radius * np.sqrt(squared) * cosine
    squared = np.maximum(squared, 0)  # Rounding; the square is not negative.
  return np.sqrt(squared)


def _chi_square(
    degrees: np.ndarray, rng: np.random.Generator, size: int | None = None
) -> np.ndarray:
  """Returns chi-square draws; with 0 degrees of freedom they are 0."""
  shape = degrees.shape if size is None else (len(degrees), size)
  draws = rng.chisquare(np.maximum(degrees, 1), shape)
  return np.where(degrees == 0, 0.0, draws)


def _norms(rows: np.ndarray) -> np.ndarray:
  return np.sqrt(np.einsum('...d,...d->...', rows, rows, dtype=np.float64))
