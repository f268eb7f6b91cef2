# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loops inside `tf.vectorized_map`, whose variables become a client's own.

A model is the same for all clients before their training, and differs after the
first step. TensorFlow finds this out by trial. It converts the body of the loop
with a shared model, then with a model for each client, and then converts the
whole loop again. That is three conversions, and more for a loop in a loop.
`separate` gives each client its own copy before the loop, so one conversion is
enough. Values do not change.
"""

import tensorflow as tf

from tff_dp import _compat_tensorflow

# Clients share the results of these operations, even if the inputs differ. For
# branches and all others in `vectorized.OPERATIONS`, TensorFlow makes a result
# for each client if an input differs.
_SHARED = frozenset(
    ['BroadcastGradientArgs', 'Rank', 'Shape', 'ShapeN', 'Size', 'ZerosLike']
)
_LOOPS = frozenset(['While', 'StatelessWhile'])


def separate(loop: tf.Operation, own_zero: tf.Tensor) -> None:
  """Gives each client its own copy of the variables that will differ.

  Args:
    loop: A `While` of the current graph.
    own_zero: Number 0 of each client, from inside of `tf.vectorized_map`.
  """
  known = {id(_client_index(own_zero)): True}
  before = [_differs(tensor, known) for tensor in loop.inputs]
  after = _after(loop, before)
  for index, (is_own, will_be_own) in enumerate(zip(before, after)):
    if will_be_own and not is_own:
      shared = tf.expand_dims(loop.inputs[index], 0)
      _compat_tensorflow.replace_input(loop, index, tf.gather(shared, own_zero))


def _client_index(tensor: tf.Tensor) -> tf.Tensor:
  """Returns the client's position, which `tf.vectorized_map` counts."""
  waiting = [tensor]
  while waiting:
    tensor = waiting.pop()
    if tensor.op.type == 'PlaceholderWithDefault':
      return tensor
    waiting += tensor.op.inputs
  raise ValueError('the zero is not from inside of tf.vectorized_map')


def _after(loop: tf.Operation, before: list[bool]) -> list[bool]:
  """Returns which variables of a loop differ between clients in some step."""
  body = _compat_tensorflow.body_of_loop(loop)
  found = before
  while True:
    known = {id(tensor): own for tensor, own in zip(body.inputs, found)}
    again = [
        own or _differs(tensor, known)
        for own, tensor in zip(found, body.outputs)
    ]
    if again == found:
      return found
    found = again


def _differs(tensor: tf.Tensor, known: dict[int, bool]) -> bool:
  """Returns whether a tensor differs between clients.

  Variables of an outer loop, which is still being made, count as shared.

  Args:
    tensor: The tensor.
    known: What is known about other tensors, by their ids. Receives what is
      found.
  """
  waiting = [tensor]
  while waiting:
    operation, inputs = waiting[-1].op, list(waiting[-1].op.inputs)
    if operation.type == 'Placeholder':
      captures = getattr(operation.graph, 'captures', ())
      inputs = [outer for outer, own in captures if own is waiting[-1]]
    unknown = [one for one in inputs if id(one) not in known]
    if id(waiting[-1]) in known:
      waiting.pop()
    elif operation.type in _SHARED:
      known[id(waiting.pop())] = False
    elif unknown:
      waiting += unknown
    else:
      found = [known[id(one)] for one in inputs]
      if operation.type in _LOOPS:
        found = _after(operation, found)
      else:
        found = [any(found)] * len(operation.outputs)
      known.update(zip(map(id, operation.outputs), found))
  return known[id(tensor)]
