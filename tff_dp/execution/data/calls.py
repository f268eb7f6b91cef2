# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Calls of TensorFlow's functions with the same bits in every graph."""

from collections.abc import Callable
import functools
import itertools

import tensorflow as tf

from tff_dp import _compat_tensorflow

_execute = _compat_tensorflow.private_tensorflow('execute')
_eager_context = _compat_tensorflow.private_tensorflow('context')

# TensorFlow's rewrites that add or multiply in another order. The form of a
# graph decides which of them apply. So they would change a client's last bits.
_REORDERING_REWRITES = (
    'arithmetic_optimization',
    'constant_folding',
    'remapping',
)


@functools.lru_cache(maxsize=16)
def _without_reordering(config_proto: bytes) -> bytes:
  """Returns a serialized `ConfigProto` whose rewrites keep the order of sums.
  """
  config = tf.compat.v1.ConfigProto.FromString(config_proto)
  for name in _REORDERING_REWRITES:
    # RewriterConfig.OFF.
    setattr(config.graph_options.rewrite_options, name, 2)
  return config.SerializeToString(deterministic=True)


def call(
    name: str, tensors: list[tf.Tensor], *, num_outputs: int, cancellation=None
) -> list[tf.Tensor]:
  """Calls a function without rewrites that change the order of sums.

  Args:
    name: Name of the function in TensorFlow's context.
    tensors: Flat arguments.
    num_outputs: Number of its flat results.
    cancellation: TensorFlow's cancellation manager of this call, or None. An
      error cancels it, so each call needs its own.
  """
  context = _eager_context.context()
  attributes = context.function_call_options.as_attrs()
  attributes['config_proto'] = _without_reordering(attributes['config_proto'])
  arguments = dict(
      num_outputs=num_outputs,
      inputs=tensors,
      attrs=tuple(itertools.chain(*attributes.items())),
      ctx=context,
  )
  if cancellation is None:
    return _execute.execute(name, **arguments)
  return _execute.execute_with_cancellation(
      name, cancellation_manager=cancellation, **arguments
  )


class Function:
  """A function of flat tensors that returns flat tensors.

  Attributes:
    outputs: Symbolic results.
  """

  def __init__(
      self,
      body: Callable[..., list[tf.Tensor]],
      specs: list[tf.TensorSpec],
  ):
    """Traces `body` with arguments of these specs."""
    self._specs = specs
    self._function = tf.compat.v1.wrap_function(body, specs)
    self._name = self._function.name.decode()
    self._captured = self._function.captured_inputs
    self.outputs = self._function.outputs

  def __call__(
      self, tensors: list[tf.Tensor], *, cancellation=None
  ) -> list[tf.Tensor]:
    """Calls the function. The arguments and the result are those of `call`."""
    return call(
        self._name,
        [*tensors, *self._captured],
        num_outputs=len(self.outputs),
        cancellation=cancellation,
    )

  def called_on(self, device: str) -> 'Function':
    """Returns a function that calls this one on a device."""

    def body(*tensors):
      with tf.device(device):
        return self._function(*tensors)

    return Function(body, self._specs)
