# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The client's side of check-in SGD: train, and provide the key of the noise.

A client's data is `learning.client_data(examples, key)`. The key goes to the
randomizer of the same client and nowhere else.
"""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp.aggregators import correlated_noise
from tff_dp.learning import finalizers
from tff_dp.learning import keyed_data
from tff_dp.learning import protocol_training

ROUND = 'round'
_INNER = 'client_work'


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
    num_steps: Number of steps of the protocol. A further step is an error.
    allow_unprotected_metrics: Whether to report the measurements of `inner`,
      under `not_covered`. They are computed from data without any noise.
  """
  _, weights_type, examples_type = inner.next.type_signature.parameter
  data_type = tff.to_type(
      collections.OrderedDict(
          examples=examples_type.member, key=keyed_data.KEYS_TYPE
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
      update_type, keyed_data.KEYS_TYPE, round_type
  )
  @tf.function
  def with_key(update, keys, round_index):
    # Without a key, the noise would come from a key that everybody knows.
    key = keyed_data.only_key(keys)
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
      measurements = protocol_training.not_covered(output.measurements)
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
