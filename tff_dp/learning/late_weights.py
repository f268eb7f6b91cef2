# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Initial models whose large frozen weights are not constants of a graph.

TFF and TensorFlow copy the constants of a computation about a dozen times on
its way to a kernel. Here the graph has zeros in place of the frozen weights,
and a call puts the weights into the result.
"""

from collections.abc import Callable
import functools
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

# Below this, the copies take less than the rest of a small model's round.
_MOST_CONSTANT_BYTES = 4 * 10**6


class LateWeights(tff.framework.ConcreteComputation):
  """A computation without a parameter that needs no graph of the weights.

  It has the type, the results and the serialized form of an ordinary
  computation. A call in a context of `tff_dp` that returns arrays at once runs
  `small` instead, and puts the weights into its result. Everything else needs
  the ordinary computation, for example a file, another context, or another
  computation that calls it. The ordinary computation is built when it is first
  needed. Checked against TFF 0.87.0, whose base class reads the three private
  attributes.

  Attributes:
    small: The computation with zeros for the weights.
  """

  def __init__(
      self,
      small: tff.Computation,
      *,
      put: Callable[[Any], Any],
      build: Callable[[], tff.Computation],
  ):
    """Does not build the ordinary computation.

    Args:
      small: Computation that returns zeros for the weights.
      put: Function from the result of `small` to the same with the weights.
      build: Function that returns the ordinary computation.
    """
    # pylint: disable=super-init-not-called
    self.small = small
    self._put = put
    self._build = build
    self._type_signature = small.type_signature
    self._context_stack = tff.framework.get_context_stack()

  @functools.cached_property
  def _computation_proto(self):
    return tff.framework.ConcreteComputation.get_proto(self._build())

  def __call__(self):
    if getattr(self._context_stack.current, 'returns_arrays', False):
      return self._put(self.small())
    return super().__call__()

  def initialize(
      self, compose: Callable[[tff.Computation], Any]
  ) -> tuple[Any, tff.Computation]:
    """Returns a process that begins with these weights, and its `initialize`.

    The `initialize` of the process itself returns zeros for them.

    Args:
      compose: Function from the computation of the initial model to a process
        whose state has `global_model_weights`.
    """
    process = compose(self.small)

    def put(state):
      return state._replace(
          global_model_weights=self._put(state.global_model_weights)
      )

    return process, LateWeights(
        process.initialize, put=put, build=lambda: compose(self).initialize
    )


def is_large(frozen: Any) -> bool:
  """Returns whether weights are arrays that should be no constants."""
  arrays = [each for each in frozen if isinstance(each, np.ndarray)]
  return (
      len(arrays) == len(frozen)
      and sum(each.nbytes for each in arrays) > _MOST_CONSTANT_BYTES
  )


def of_model(
    model: tff.learning.models.FunctionalModel,
    build: Callable[[Any], tff.Computation],
) -> LateWeights:
  """Returns the computation of the initial model, for large frozen weights.

  Args:
    model: Model whose frozen weights are arrays.
    build: Function from the frozen weights to the computation of the initial
      `ModelWeights`.
  """
  _, frozen = model.initial_weights
  # A state of the engine cannot be changed in place either.
  values = [each.view() for each in frozen]
  for value in values:
    value.flags.writeable = False

  def put(weights):
    return tff.learning.models.ModelWeights(
        weights.trainable,
        tf.nest.pack_sequence_as(weights.non_trainable, values),
    )

  return LateWeights(
      build(lambda: [tf.zeros(each.shape, each.dtype) for each in frozen]),
      put=put,
      build=lambda: build(lambda: frozen),
  )
