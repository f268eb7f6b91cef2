# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Random draws of Keras 3 models, such as dropout, as TFF needs them.

They are new in every step, and the same in a resumed run. TFF drops the state
of Keras' seed generators, so each call of a model gets new seeds, from its
features and the trained weights. `unseeded` finds a draw that does not follow
from these seeds.
"""

import re

import tensorflow as tf

_RANDOM = re.compile(
    'Random|Multinomial|TruncatedNormal|NonDeterministic|StatefulUniform'
    '|StatefulStandardNormal|Rng'
)


def unseeded(graph, *, num_fixed: int, num_seeds: int) -> str | None:
  """Returns the name of a random operation that does not follow from the seeds.

  Args:
    graph: Graph of a model. Its first inputs are the weights, and the next ones
      are the seeds.
    num_fixed: Number of weights, trained and frozen ones together.
    num_seeds: Number of seed generators.

  Returns:
    The name, or `None` if all draws follow from the seeds.
  """
  functions = {
      each.signature.name: each
      for each in graph.as_graph_def().library.function
  }
  draws = {}

  def has_draws(name: str) -> bool:
    if name not in draws:
      draws[name] = False
      draws[name] = any(
          _RANDOM.search(node.op) or any(map(has_draws, _called(node)))
          for node in functions[name].node_def
      )
    return draws[name]

  inputs = graph.inputs[num_fixed : num_fixed + num_seeds]
  seeded = {tensor.op for tensor in inputs}
  for op in graph.get_operations():
    is_draw = bool(_RANDOM.search(op.type)) and len(op.inputs) > 0
    sources = op.inputs
    if is_draw:
      sources = [
          tensor
          for argument, tensor in zip(op.op_def.input_arg, op.inputs)
          if argument.name in ('seed', 'key')
      ]
    # Seeds are integers. A mask that was drawn from one is no seed.
    if any(each.op in seeded and each.dtype.is_integer for each in sources):
      seeded.add(op)
    calls = [name for name in _called(op.node_def) if name in functions]
    if (is_draw and (op.op_def.is_stateful or op not in seeded)) or (
        op not in seeded and any(map(has_draws, calls))
    ):
      return op.name
  return None


def seeds(variables, trained, x) -> list[tf.Tensor]:
  """Returns a state for each seed generator, of shape [2] and its own dtype.

  The states follow from the features and the trained weights. Integers are
  added modulo a power of two, so the order in which a device adds them does not
  change the states.

  Args:
    variables: States of the model's seed generators.
    trained: Trained weights.
    x: Features of the batch.
  """
  if not variables:
    return []
  of_features = tf.zeros([], tf.int64)
  for index, tensor in enumerate(tf.nest.flatten(x)):
    words = _as_words(tensor)
    # Random factors, because two batches often have the same numbers in another
    # order, such as words.
    factors = tf.random.stateless_uniform(
        tf.shape(words),
        seed=[index, 0],
        minval=None,
        maxval=None,
        dtype=tf.int64,
        alg='philox',
    )
    of_features += tf.reduce_sum(words * factors)
  of_weights = tf.zeros([], tf.int64)
  for index, tensor in enumerate(trained):
    total = tf.reduce_sum(tf.bitcast(tensor, tf.int32))
    of_weights += (2 * index + 1) * tf.cast(total, tf.int64)
  states = tf.random.stateless_uniform(
      [len(variables), 2],
      seed=tf.stack([of_features, of_weights]),
      maxval=2**31 - 2,
      dtype=tf.int64,
      alg='philox',
  )
  return [
      tf.cast(state, variable.dtype)
      for variable, state in zip(variables, tf.unstack(states))
  ]


def _called(node) -> list[str]:
  """Returns the names of the functions that a node calls."""
  return [
      each.name
      for attribute in node.attr.values()
      for each in (attribute.func, *attribute.list.func)
      if each.name
  ]


def _as_words(tensor: tf.Tensor) -> tf.Tensor:
  """Returns the bits of a tensor's entries, int64 of shape [size]."""
  if tensor.dtype == tf.string:
    tensor = tf.strings.to_hash_bucket_fast(tensor, 2**62)
  elif tensor.dtype.is_floating:
    width = {2: tf.int16, 4: tf.int32, 8: tf.int64}[tensor.dtype.size]
    tensor = tf.bitcast(tensor, width)
  return tf.reshape(tf.cast(tensor, tf.int64), [-1])
