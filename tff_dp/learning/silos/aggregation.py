# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The mean of the silos' messages, and how many there were.

All noise is in the messages already: whatever happens here is post-processing
of what silos have let go of. The number of silos that report is the network's
choice and public.
"""

import collections
from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff

UPDATE = 'update'
NUM_SILOS = 'num_silos'


class ReportedMeanFactory(tff.aggregators.UnweightedAggregationFactory):
  """The unweighted mean of the messages, beside the number of silos.

      next: OrderedDict(update=inner(messages), num_silos)

  Without any silo `update` is what the inner factory makes of no values (a
  NaN), which finalizers must not touch.

  Attributes:
    state: That of the inner factory.
    measurements: `OrderedDict(num_silos)`, and those of the inner factory, if
      it has any, under `aggregator`.
  """

  def __init__(
      self,
      inner: Optional[tff.aggregators.UnweightedAggregationFactory] = None,
  ):
    """Builds the factory.

    Args:
      inner: Computes a mean; `None` for TFF's `UnweightedMeanFactory`.
    """
    self._inner = inner or tff.aggregators.UnweightedMeanFactory()

  def create(self, value_type) -> tff.templates.AggregationProcess:
    inner = self._inner.create(value_type)
    measured = inner.next.type_signature.result.measurements.member
    has_measurements = bool(
        tf.nest.flatten(tff.types.type_to_tf_tensor_specs(measured))
    )

    @tff.federated_computation(
        inner.initialize.type_signature.result,
        tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      output = inner.next(state, value)
      num_silos = tff.federated_sum(tff.federated_value(1, tff.CLIENTS))
      measurements = collections.OrderedDict({NUM_SILOS: num_silos})
      if has_measurements:
        measurements['aggregator'] = output.measurements
      return tff.templates.MeasuredProcessOutput(
          output.state,
          tff.federated_zip(
              collections.OrderedDict(
                  {UPDATE: output.result, NUM_SILOS: num_silos}
              )
          ),
          tff.federated_zip(measurements),
      )

    return tff.templates.AggregationProcess(inner.initialize, next_fn)
