# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a conformance case is, and when two contexts agree on it.

A case is a function that builds a computation and returns it with its
arguments; `case` registers it under the function's name. The tables are in
`conformance_intrinsics`, `conformance_values`, `conformance_tensorflow` and
`conformance_processes`; `conformance_test` runs every case on every context.
"""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
from unittest import mock

import attrs
import numpy as np
import scipy.stats
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp.execution.compiling import chunks

# Of a two-sample Kolmogorov-Smirnov test, where results are random.
_FALSE_ALARM = 1e-6


@dataclasses.dataclass(frozen=True)
class Case:
  """One computation, its arguments, and how to compare its results.

  Attributes:
    build: Returns `(function, *arguments)`. The function is a computation, or a
      Python function that invokes several; it runs inside each context.
    tolerance: Largest difference, absolute and relative, of a float from the
      reference with one worker; 0 asks for the same bits. Everything that is
      not a float must be equal anyway.
    raises: None, or a pattern that the error's message must match everywhere.
    is_random: Whether results are only equal in distribution.
    native: Whether TFF's native context can run it. It refuses secure sums.
    expected: None, or returns the result, for what no context of TFF's can run.
    at_once: How many clients work at once, where all may.
  """

  build: Callable[[], tuple]
  tolerance: float = 0.0
  raises: str | None = None
  is_random: bool = False
  native: bool = True
  expected: Callable[[], object] | None = None
  at_once: int = 0

  @property
  def name(self) -> str:
    return self.build.__name__


def case(table: dict[str, Case], **properties):
  """Returns a decorator that puts a builder into `table` as a case."""

  def register(build):
    if build.__name__ in table:
      raise ValueError(f'two cases are called {build.__name__}')
    table[build.__name__] = Case(build, **properties)
    return build

  return register


def at_clients(member, all_equal: bool = False) -> tff.FederatedType:
  return tff.FederatedType(member, tff.CLIENTS, all_equal)


def at_server(member) -> tff.FederatedType:
  return tff.FederatedType(member, tff.SERVER)


def dataset(values, dtype=np.int32) -> tf.data.Dataset:
  return tf.data.Dataset.from_tensor_slices(np.asarray(values, dtype))


@contextlib.contextmanager
def at_once() -> Iterator[None]:
  """Lets few clients work at once, too, and single ones of their kind."""
  few = dataclasses.replace(
      chunks.ON_CPU, min_of_worker=1, min_with_convolutions=1, min_at_once=1
  )
  with mock.patch.object(chunks, 'ON_CPU', few):
    yield


@contextlib.contextmanager
def in_loops() -> Iterator[None]:
  """Puts clients into loops, which are traced faster than work at once."""
  many = dataclasses.replace(chunks.ON_CPU, min_of_worker=1000)
  with mock.patch.object(chunks, 'ON_CPU', many):
    yield


def outline(value):
  """Returns the containers, dtypes and shapes of a result, without its values.

  Two contexts agree on a result's form if and only if their outlines are equal.
  All classes of dataset count as one: which of them a context makes from the
  same elements says nothing.
  """
  if isinstance(value, tf.data.Dataset):
    return 'dataset', str(value.element_spec)
  kind = type(value).__name__
  if attrs.has(type(value)):
    fields = attrs.asdict(value, recurse=False)
    return kind, [(name, outline(field)) for name, field in fields.items()]
  if isinstance(value, tf.SparseTensor):
    parts = (value.indices, value.values, value.dense_shape)
    return kind, [outline(part.numpy()) for part in parts]
  if isinstance(value, tff.learning.models.ModelWeights):
    return kind, [outline(value.trainable), outline(value.non_trainable)]
  if isinstance(value, dict):
    return kind, [(name, outline(item)) for name, item in value.items()]
  if isinstance(value, (list, tuple)):
    return kind, [outline(item) for item in value]
  if isinstance(value, (np.ndarray, np.generic)):
    return kind, str(value.dtype), value.shape
  return kind


def leaves(value) -> list[np.ndarray]:
  """Returns all arrays in a result, in order; a dataset gives its elements."""
  if isinstance(value, tf.data.Dataset):
    return [leaf for item in value for leaf in leaves(item)]
  if attrs.has(type(value)):
    return leaves(list(attrs.asdict(value, recurse=False).values()))
  if isinstance(value, tf.SparseTensor):
    return leaves([value.indices, value.values, value.dense_shape])
  if isinstance(value, dict):
    return leaves(list(value.values()))
  if isinstance(value, (list, tuple)):
    return [leaf for item in value for leaf in leaves(item)]
  return [np.asarray(value)]


def _is_float(array: np.ndarray) -> bool:
  # numpy files bfloat16, which is not its own, under "V".
  return array.dtype.kind in 'fcV'


def differences(expected, actual, *, tolerance: float) -> list[str]:
  """Returns in words where `actual` is not `expected`; nothing if they agree.

  Args:
    expected: The reference's result.
    actual: The result to judge.
    tolerance: See `Case`.
  """
  if outline(actual) != outline(expected):
    return [f'the form is {outline(actual)}, not {outline(expected)}']
  found = []
  expected, actual = leaves(expected), leaves(actual)
  if len(actual) != len(expected):
    return [f'{len(actual)} tensors, not {len(expected)}']
  for index, (want, got) in enumerate(zip(expected, actual)):
    if got.shape != want.shape or got.dtype != want.dtype:
      same = False
    elif tolerance and _is_float(want):
      kind = np.complex128 if want.dtype.kind == 'c' else np.float64
      same = np.allclose(
          got.astype(kind),
          want.astype(kind),
          rtol=tolerance,
          atol=tolerance,
          equal_nan=True,
      )
    elif want.dtype == object:
      same = np.array_equal(got, want)
    else:
      same = got.tobytes() == want.tobytes()
    if not same:
      found.append(f'tensor {index} is {got!r}, not {want!r}')
  return found


def differences_in_distribution(expected, actual) -> list[str]:
  """Like `differences` for random results: every tensor is one sample.

  False alarm rate 1e-6 for each tensor.
  """
  if outline(actual) != outline(expected):
    return [f'the form is {outline(actual)}, not {outline(expected)}']
  found = []
  for index, (want, got) in enumerate(zip(leaves(expected), leaves(actual))):
    test = scipy.stats.ks_2samp(np.ravel(want), np.ravel(got))
    if test.pvalue < _FALSE_ALARM:
      found.append(f'tensor {index} has another distribution: {test}')
    if np.array_equal(want, got):
      found.append(f'tensor {index} has the very same draws')
  return found
