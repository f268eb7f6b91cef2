# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The client's side of check-in SGD: train, and provide the key of the noise.

A client's data is `OrderedDict(examples, key)`: its dataset, and a sequence of
one element, its secret noise key. The key goes to the randomizer of the same
client and nowhere else.
"""

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import _failures
from tff_dp.aggregators import correlated_noise
from tff_dp.learning import finalizers

ROUND = 'round'
_INNER = 'client_work'
# A batch of keys. If many clients go through one graph together, a client's
# sequences must be all of batches or all of rows.
KEYS_TYPE = tff.SequenceType(tff.TensorType(np.int64, [None, 2]))


def client_data(examples: Any, key: np.ndarray) -> collections.OrderedDict:
  """Returns the data of one client for a step of a check-in process.

  Args:
    examples: Batched dataset of the client, or a list of batches. It is empty
      for the dummy of a step in which nobody checked in.
    key: Secret key of its noise, int64 of shape [2], such as
      `mechanisms.randomizers.noise_key(secret)`. A client uses the same key in
      all steps. A dummy has a new key in every step.
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
        'key', 'all zeros', '128 secret bits; zeros are what anybody tries'
    )
  return collections.OrderedDict(examples=examples, key=[key[np.newaxis]])


def only_element(elements, spec: tf.TensorSpec, what: str) -> tf.Tensor:
  """Returns the one element of a sequence.

  It fails at run time if the sequence has any other number of elements. Call it
  in a `tf.function` with AutoGraph, which makes the loop.

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


def build_check_in_client_work(
    inner: tff.learning.templates.ClientWorkProcess,
    *,
    num_steps: int,
    allow_unprotected_metrics: bool,
) -> tff.learning.templates.ClientWorkProcess:
  """Returns local training whose updates come with a key and a round.

  The update of a client is `OrderedDict(update, key, round)`, for
  `LocalRandomizerFactory.create_keyed`. `state`:
  `OrderedDict(round, client_work)`, the number of finished steps and the state
  of `inner`.

  Args:
    inner: Local training on the examples.
    num_steps: Number of steps of the protocol. One more is refused.
    allow_unprotected_metrics: Whether to report the measurements of `inner`,
      under `not_covered`. They are computed from data without any noise.
  """
  _, weights_type, examples_type = inner.next.type_signature.parameter
  data_type = tff.to_type(
      collections.OrderedDict(
          examples=examples_type.member, key=KEYS_TYPE
      )
  )
  update_type = inner.next.type_signature.result.result.member.update
  round_type = tff.TensorType(np.int64)

  @tff.tensorflow.computation
  def zero():
    return tf.constant(0, tf.int64)

  @tff.tensorflow.computation(round_type)
  @tf.function(autograph=False)
  def begin(rounds_done):
    return correlated_noise.within_horizon({ROUND: rounds_done}, num_steps)[
        ROUND
    ]

  @tff.tensorflow.computation(round_type)
  @tf.function(autograph=False)
  def end(rounds_done):
    return rounds_done + 1

  @tff.tensorflow.computation(
      update_type, KEYS_TYPE, round_type
  )
  @tf.function
  def with_key(update, keys, round_index):
    # Without a key, the noise would come from a key that everybody knows.
    key = only_key(keys)
    return tff.learning.templates.ClientResult(
        update=collections.OrderedDict(
            update=update, key=key, round=round_index
        ),
        update_weight=tf.constant(1.0),
    )

  @tff.federated_computation
  def init_fn():
    return tff.federated_zip(
        collections.OrderedDict({
            ROUND: tff.federated_eval(zero, tff.SERVER),
            _INNER: inner.initialize(),
        })
    )

  @tff.federated_computation(
      init_fn.type_signature.result,
      tff.FederatedType(weights_type.member, tff.CLIENTS),
      tff.FederatedType(data_type, tff.CLIENTS),
  )
  def next_fn(state, weights, data):
    round_index = tff.federated_map(begin, state[ROUND])
    output = inner.next(state[_INNER], weights, data['examples'])
    result = tff.federated_map(
        with_key,
        (
            output.result.update,
            data['key'],
            tff.federated_broadcast(round_index),
        ),
    )
    new_state = collections.OrderedDict({
        ROUND: tff.federated_map(end, round_index),
        _INNER: output.state,
    })
    measurements = tff.federated_value(collections.OrderedDict(), tff.SERVER)
    if allow_unprotected_metrics:
      measurements = _not_covered(output.measurements)
    return tff.templates.MeasuredProcessOutput(
        tff.federated_zip(new_state), result, measurements
    )

  return tff.learning.templates.ClientWorkProcess(
      init_fn,
      next_fn,
      **finalizers.hparams_of(
          inner, init_fn.type_signature.result.member, _INNER
      ),
  )


def with_measurements_not_covered(
    inner: tff.learning.templates.ClientWorkProcess,
) -> tff.learning.templates.ClientWorkProcess:
  """Returns the same work, with its measurements under `not_covered`."""

  @tff.federated_computation(*inner.next.type_signature.parameter)
  def next_fn(state, weights, data):
    output = inner.next(state, weights, data)
    return tff.templates.MeasuredProcessOutput(
        output.state, output.result, _not_covered(output.measurements)
    )

  return tff.learning.templates.ClientWorkProcess(
      inner.initialize,
      next_fn,
      get_hparams_fn=inner.get_hparams,
      set_hparams_fn=inner.set_hparams,
  )


def _not_covered(measurements):
  return tff.federated_zip(
      collections.OrderedDict(not_covered=measurements)
  )
