# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""From tables to silos' records, without a statistic of the silos' data.

Every number that a feature is scaled with is *declared*: a range that is known
without the records (an age is between 0 and 100), and not a mean, deviation or
range of them. A principal component analysis is fitted only to public records
that no silo has. So preprocessing releases nothing, and the guarantees of a run
need no share for it.

Features are built so that a record's vector has a norm of at most 1: numbers
are mapped to [-1, 1], a category is a 1 among zeros, a constant 1 is appended,
and all of it is divided by the root of the number of these parts.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math

import numpy as np

from tasks.common import digits_data
from tasks.silos import silo_data
from tff_dp import _checks

TRAIN_SHARE = 0.8


@dataclasses.dataclass(frozen=True)
class Records:
  """Rows of features with their labels.

  Attributes:
    features: float32, shape [num_records, num_features].
    labels: float32 or int32, shape [num_records].
  """

  features: np.ndarray
  labels: np.ndarray

  def __len__(self) -> int:
    return len(self.labels)

  def rows(self, indices) -> 'Records':
    """Returns the records at `indices`."""
    return Records(self.features[indices], self.labels[indices])


@dataclasses.dataclass(frozen=True)
class Split:
  """Silos and held-out records.

  Attributes:
    train: Name of a silo -> its training records. Their numbers are public and
      do not depend on the seed.
    test: Held-out records of all silos, one after the other.
  """

  train: Mapping[str, Records]
  test: Records

  @property
  def num_records(self) -> dict[str, int]:
    """Number of training records by silo."""
    return {name: len(records) for name, records in self.train.items()}


def num_train(num_records: int, share: float = TRAIN_SHARE) -> int:
  """Returns the number of a silo's records that are for training, 1 or more."""
  return max(1, math.floor(share * num_records))


def split(
    silos: Mapping[str, Records], seed: int, *, share: float = TRAIN_SHARE
) -> Split:
  """Returns the silos, with a random share of each silo's records held out.

  Args:
    silos: Name -> records. Each silo has at least two.
    seed: Seed of the choice, which is not secret. The records of a silo are
      shuffled, so their order says nothing.
    share: Share of the records that are for training, in (0, 1).
  """
  _checks.integer_at_least(0, seed=seed)
  _checks.in_open(0, 1, share=share)
  train, held_out = {}, []
  for index, (name, records) in enumerate(silos.items()):
    _checks.integer_at_least(2, records_of_a_silo=len(records))
    order = np.random.default_rng([seed, index]).permutation(len(records))
    end = num_train(len(records), share)
    train[name] = records.rows(order[:end])
    held_out.append(records.rows(order[end:]))
  test = Records(
      np.concatenate([part.features for part in held_out]),
      np.concatenate([part.labels for part in held_out]),
  )
  return Split(train, test)


def scaled(values, low: float, high: float) -> np.ndarray:
  """Returns values with a declared range mapped to [-1, 1], and clipped.

  Args:
    values: float array.
    low: Lower end, known without the records.
    high: Upper end.
  """
  if not low < high:
    raise _checks.ArgumentError('low', low, f'a number below high={high}')
  clipped = np.clip(np.asarray(values, np.float64), low, high)
  return 2.0 * (clipped - low) / (high - low) - 1.0


def one_of(
    table: silo_data.Table, column: str, categories: Sequence[str]
) -> np.ndarray:
  """Returns the position of each row in the declared categories.

  Args:
    table: Table with the rows.
    column: Name of the column.
    categories: All possible values, known without the records.

  Returns:
    int array of positions in `categories`.

  Raises:
    DataFileError: If a value is no declared category.
  """
  positions = {name: index for index, name in enumerate(categories)}
  for value in table[column]:
    if value not in positions:
      raise digits_data.DataFileError(
          f'column {column} of {table.source.file_name} has {str(value)!r}:'
          f' expected one of {", ".join(categories)}'
      )
  return np.array([positions[value] for value in table[column]], np.int64)


class Features:
  """Collects columns, and makes rows of them whose norm is at most 1."""

  def __init__(self):
    self._columns = []
    self._num_groups = 0

  def number(self, values, low: float, high: float) -> None:
    """Adds a number with a declared range, see `scaled`."""
    self._columns.append(scaled(values, low, high)[:, np.newaxis])
    self._num_groups += 1

  def flag(self, is_true) -> None:
    """Adds a column of 1 and -1."""
    self.number(np.asarray(is_true, np.float64), 0.0, 1.0)

  def category(self, positions, num_categories: int) -> None:
    """Adds a column for each category: 1 in its own, 0 elsewhere."""
    self._columns.append(np.eye(num_categories)[np.asarray(positions)])
    self._num_groups += 1

  def masked(self, values, is_missing, low: float, high: float) -> None:
    """Adds a number that may be missing, and a flag for missing ones.

    A missing number becomes 0, the middle of the range.
    """
    numbers = np.where(is_missing, 0.0, scaled(values, low, high))
    self._columns.append(numbers[:, np.newaxis])
    self._num_groups += 1
    self.flag(is_missing)

  def rows(self) -> np.ndarray:
    """Returns float32 of shape [num_records, num_features], a constant last."""
    constant = np.ones([len(self._columns[0]), 1])
    matrix = np.concatenate([*self._columns, constant], axis=1)
    return (matrix / math.sqrt(self._num_groups + 1)).astype(np.float32)


class PublicComponents:
  """The principal components of public records, to be applied to others.

      z = (x - mean) V / spread,   then a constant 1, all divided by sqrt(2)

  where V has the leading eigenvectors of the public records' covariance, and
  `spread` is the root mean square of |(x - mean) V| over the public records. A
  record's norm is about 1. Not this norm but the clipping of gradients bounds a
  record's influence.
  """

  def __init__(self, public: np.ndarray, num_components: int):
    """Computes the components.

    Args:
      public: Public records that no silo has, floats of shape [num_records,
        num_inputs].
      num_components: Number of components, at most num_records and num_inputs.
    """
    public = np.asarray(public, np.float64)
    _checks.integer_between(
        1, min(public.shape), num_components=num_components
    )
    self._mean = public.mean(axis=0)
    centred = public - self._mean
    _, vectors = np.linalg.eigh(centred.T @ centred)
    self._components = vectors[:, ::-1][:, :num_components]
    projected = centred @ self._components
    self._spread = math.sqrt(np.mean(np.sum(projected**2, axis=1)))

  def rows(self, values: np.ndarray) -> np.ndarray:
    """Returns float32 of shape [num_records, num_components + 1]."""
    projected = (np.asarray(values, np.float64) - self._mean) @ self._components
    constant = np.ones([len(projected), 1])
    rows = np.concatenate([projected / self._spread, constant], axis=1)
    return (rows / math.sqrt(2.0)).astype(np.float32)
