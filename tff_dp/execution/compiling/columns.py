# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sequences inside of plain code: rows in memory, and what is made of them.

Of the operations on datasets, those are here that are functions of nothing but
the rows, for which `inline` has Python objects around tensors. A `shuffle` is
none, even with a seed, since its order is known to TensorFlow alone.
"""

from collections.abc import Callable, Sequence
import dataclasses

import tensorflow as tf

from tff_dp.execution import errors


@dataclasses.dataclass(frozen=True, eq=False)
class Columns:
  """A sequence inside a graph, whose rows are in memory.

  Attributes:
    columns: The components of its elements, shape [rows, ...].
    num_rows: How many rows its elements are cut from, an int64 scalar.
    batch_size: Rows of a batch, an int64 scalar; the last may be shorter.
    is_batched: Whether its elements are batches of rows, or the rows.
    period: After how many rows they begin anew; None if they do not.
    repeats: How often its elements come.
    row_maps: What is done to the components of a row before there are batches,
      in this order.
    maps: What is done to the components of an element, in this order.
  """

  columns: Sequence[tf.Tensor]
  num_rows: tf.Tensor
  batch_size: tf.Tensor
  is_batched: bool
  period: tf.Tensor | None = None
  repeats: int = 1
  row_maps: tuple[Callable[[list], list], ...] = ()
  maps: tuple[Callable[[list], list], ...] = ()

  @property
  def _size(self) -> tf.Tensor:
    # Batches of 2^63 - 1 rows, which mean all of them, would overflow.
    return tf.minimum(self.batch_size, tf.maximum(self.num_rows, 1))

  @property
  def _num_distinct(self) -> tf.Tensor:
    return (self.num_rows + self._size - 1) // self._size

  @property
  def num_elements(self) -> tf.Tensor:
    """How many elements there are, an int64 scalar."""
    return self._num_distinct * self.repeats

  def element(self, index: tf.Tensor) -> list[tf.Tensor]:
    """Returns the components of an element."""
    if self.repeats != 1:
      index %= tf.maximum(self._num_distinct, 1)
    start = index * self._size
    end = tf.minimum(start + self._size, self.num_rows)
    if self.period is not None:
      # Not the rows as often as they come, which would take as much memory.
      rows = tf.range(start, end) if self.is_batched else start
      rows %= tf.maximum(self.period, 1)
      found = [tf.gather(column, rows) for column in self.columns]
    elif self.is_batched:
      found = [column[start:end] for column in self.columns]
    else:
      found = [column[start] for column in self.columns]
    if self.row_maps:
      found = tf.vectorized_map(
          lambda row: _applied(self.row_maps, row),
          found,
          fallback_to_while_loop=False,
          warn=False,
      )
    return _applied(self.maps, found)

  def mapped(self, function: Callable[[list], list]) -> 'Columns':
    return dataclasses.replace(self, maps=(*self.maps, function))

  def repeated(self, count: int) -> 'Columns':
    """Returns it several times."""
    if self.is_batched or self.period is not None:
      return dataclasses.replace(self, repeats=self.repeats * count)
    return dataclasses.replace(
        self, num_rows=self.num_rows * count, period=self.num_rows
    )

  def taken(self, count: tf.Tensor) -> 'Columns':
    """Returns the first elements; all, if the number is negative."""
    self._check_repeats_no_elements()
    is_all = (count < 0) | (count >= self.num_elements)
    # The product of a large number would be too large.
    some = tf.where(is_all, tf.zeros_like(count), count) * self._size
    return dataclasses.replace(
        self, num_rows=tf.where(is_all, self.num_rows, some)
    )

  def batched(self, size: tf.Tensor, drops_remainder: tf.Tensor) -> 'Columns':
    """Returns batches of its rows."""
    self._check_repeats_no_elements()
    if self.is_batched:
      raise errors.NotPlainError('batches are of batches')
    full = self.num_rows // size * size
    return dataclasses.replace(
        self,
        num_rows=tf.where(drops_remainder, full, self.num_rows),
        batch_size=size,
        is_batched=True,
        row_maps=self.maps,
        maps=(),
    )

  def _check_repeats_no_elements(self) -> None:
    if self.repeats != 1:
      raise errors.NotPlainError('elements are cut from what is repeated')


def _applied(functions, parts: list) -> list:
  for function in functions:
    parts = function(parts)
  return parts
