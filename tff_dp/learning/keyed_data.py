# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The data of clients that bring the secret key of their noise.

A client's data is `OrderedDict(examples, key)`: its dataset, and a sequence of
one element, its secret noise key. The key goes to the noise of the same client
and nowhere else.
"""

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import _failures

# A batch of keys. If many clients go through one graph together, a client's
# sequences must be all of batches or all of rows.
KEYS_TYPE = tff.SequenceType(tff.TensorType(np.int64, [None, 2]))


def client_data(examples: Any, key: np.ndarray) -> collections.OrderedDict:
  """Returns the data of one client that brings the key of its noise.

  Args:
    examples: Batched dataset of the client, or a list of batches. It is empty
      for the dummy client of a step in which nobody checked in.
    key: Secret key of the client's noise, int64 of shape [2], such as
      `mechanisms.randomizers.noise_key(secret)`. A client uses the same key in
      all steps. A dummy has a new key in every step.

  Raises:
    ArgumentError: If the key has another type or shape, or is all zeros.
  """
  key = np.asarray(key)
  if key.dtype != np.int64 or key.shape != (2,):
    # Do not print the value: it is a secret.
    raise _checks.ArgumentError(
        'key',
        f'{key.dtype} of shape {key.shape}',
        'int64 of shape (2,), 128 secret bits',
    )
  if not key.any():
    raise _checks.ArgumentError(
        'key', 'all zeros', '128 secret bits; anybody would guess zeros'
    )
  return collections.OrderedDict(examples=examples, key=[key[np.newaxis]])


def only_element(elements, spec: tf.TensorSpec, what: str) -> tf.Tensor:
  """Returns the one element of a sequence.

  It fails at run time if the sequence has any other number of elements. Call it
  in a `tf.function` with AutoGraph, which turns its `for` statement into a loop
  of the graph.

  Args:
    elements: Sequence.
    spec: Spec of its elements.
    what: Name of the element, for the message of the failure.
  """
  value, count = tf.zeros(spec.shape, spec.dtype), 0
  for element in iter(elements):
    value, count = element, count + 1
  return _checked(value, count, what)


def only_key(batches) -> tf.Tensor:
  """Returns the one key in a sequence of `KEYS_TYPE`, like `only_element`."""
  key, count = tf.zeros([2], tf.int64), 0
  for batch in iter(batches):
    # Sum, so that an empty batch works, too.
    key, count = key + tf.reduce_sum(batch, axis=0), count + tf.shape(batch)[0]
  return _checked(key, count, 'key')


def _checked(value, count, what) -> tf.Tensor:
  has_one = tf.debugging.assert_equal(
      count,
      1,
      message=_failures.assertion(f'a client needs exactly one {what}'),
  )
  with tf.control_dependencies([has_one]):
    return tf.identity(value)
