# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The cumulative form of correlated noise: a factory of its own.

A `CorrelatedNoiseFactory` releases residuals x_t, one round's noised mean, and
a server optimizer adds them up. Where the consumer needs the prefix sum itself (L1,
constraint sets, least squares), this releases

    s_t = s_{t-1} + x_t,        s_0 = 0

from the same residuals, so neither the state nor a checkpoint ever holds a sum
without its noise, and the two forms have the same guarantee: s_t follows from
x_1 .. x_t. An optimizer that adds up what it receives would add prefix sums up
twice, so the form is a type and not a flag: it takes the place of no TFF
factory.
"""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.aggregators import correlated_noise


class PrefixSumFactory(tff.aggregators.UnweightedAggregationFactory):
  """Makes processes that release noised prefix sums; refuses to be plugged in.

  It is an `UnweightedAggregationFactory` only so that a builder which is handed
  one by mistake gets as far as `create`, which says what is wrong.

  `state`: `OrderedDict(residual, prefix_sum)`: the state of the residual
  factory (`key` in it is secret), and s_t, which is released. The sum runs over
  the whole run: at a restart, the noise that the finished tree leaves stays in
  it.

  `measurements`: those of the residual factory.
  """

  def __init__(self, residual: correlated_noise.CorrelatedNoiseFactory):
    """Initializes the factory.

    Args:
      residual: Releases the residuals. No other factory is allowed, since the
        state keeps the sum of what it releases.
    """
    if not isinstance(residual, correlated_noise.CorrelatedNoiseFactory):
      raise _checks.ArgumentError(
          'residual',
          type(residual).__name__,
          'a CorrelatedNoiseFactory, since the sum of what it releases is kept'
          ' in the state',
      )
    self._residual = residual

  def create(self, value_type) -> tff.templates.AggregationProcess:
    """Refuses: this is what builders of learning processes call."""
    raise _checks.ArgumentError(
        'model_aggregator',
        type(self).__name__,
        'a factory that releases residuals, such as plan.aggregator(): the'
        ' server optimizer adds up what it receives, and would add prefix sums'
        ' up twice; a process that is made for prefix sums calls'
        ' create_prefix_sum(value_type)',
    )

  def create_prefix_sum(self, value_type) -> tff.templates.AggregationProcess:
    """Creates the process that releases s_t; `value_type` as for `create`."""
    residual = self._residual.create(value_type)
    residual_state_type = residual.initialize.type_signature.result.member

    @tff.tensorflow.computation
    @tf.function(autograph=False)
    def zeros():
      return tf.nest.map_structure(
          lambda spec: tf.zeros(spec.shape, spec.dtype),
          tff.types.type_to_tf_tensor_specs(value_type),
      )

    @tff.tensorflow.computation(value_type, value_type)
    @tf.function(autograph=False)
    def add(prefix_sum, released):
      return tf.nest.map_structure(tf.add, prefix_sum, released)

    @tff.federated_computation
    def init_fn():
      return tff.federated_zip(
          collections.OrderedDict(
              residual=residual.initialize(),
              prefix_sum=tff.federated_eval(zeros, tff.SERVER),
          )
      )

    state_type = tff.to_type(
        collections.OrderedDict(
            residual=residual_state_type, prefix_sum=value_type
        )
    )

    @tff.federated_computation(
        tff.FederatedType(state_type, tff.SERVER),
        tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      output = residual.next(state['residual'], value)
      prefix_sum = tff.federated_map(
          add, (state['prefix_sum'], output.result)
      )
      new_state = collections.OrderedDict(
          residual=output.state, prefix_sum=prefix_sum
      )
      return tff.templates.MeasuredProcessOutput(
          tff.federated_zip(new_state), prefix_sum, output.measurements
      )

    return tff.templates.AggregationProcess(init_fn, next_fn)
