# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Conformance cases: what TensorFlow does inside a computation."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution import conformance
from tests.execution.conformance import at_clients
from tests.execution.conformance import at_server

CASES = {}

_VECTOR = tff.TensorType(np.float32, [None])
_NUMBERS = tff.SequenceType(np.int32)
_FLOATS = tff.SequenceType(np.float32)


def _case(**properties):
  return conformance.case(CASES, **properties)


# What TensorFlow keeps beside the graph: variables, tables, composites.


@_case()
def variables():
  @tff.tensorflow.computation(np.int32)
  def count(n):
    total = tf.Variable(0, name='total')
    table = tf.Variable(tf.zeros([2, 3], tf.int32), name='total')

    @tf.function
    def step(i):
      total.assign_add(i)
      table.scatter_nd_update([[0, 1]], [total])
      return i + 1

    tf.while_loop(lambda i: i <= n, lambda i: [step(i)], [tf.constant(1)])
    with tf.control_dependencies([total.read_value()]):
      return total.read_value(), table.read_value()

  @tff.federated_computation(at_clients(np.int32), at_server(np.int32))
  def computation(values, value):
    # Would add up over clients, or over calls, if anything shared a variable.
    first = tff.federated_map(count, values)
    second = tff.federated_map(count, values)
    return first, second, tff.federated_map(count, value)

  return (lambda: [computation([3, 4, 3], 5) for _ in range(2)],)


def _summed(work, data):
  """Returns the sum of the clients' results, for 100 clients with `data`."""

  @tff.federated_computation(at_clients(_FLOATS))
  def computation(values):
    return tff.federated_sum(tff.federated_map(work, values))

  # A client may find what another left, so a call is not enough.
  return (lambda: [computation(100 * [data]) for _ in range(3)],)


def _thrice(*results):
  """Returns what `_summed` gives, where each client has these results."""

  def expected():
    sums = tuple(np.float32(100) * np.float32(result) for result in results)
    return 3 * [sums if len(sums) > 1 else sums[0]]

  return expected


@_case(at_once=300, expected=_thrice(5.0))
def variable_in_a_function_whose_argument_is_a_reduction():
  # The argument comes late, and the variable is not needed for it.
  @tff.tensorflow.computation(_FLOATS)
  def work(data):
    total = tf.Variable(2.0)
    number = data.reduce(0.0, tf.add)

    @tf.function
    def add(number):
      total.assign(total.read_value() + number)
      return total.read_value()

    return add(number)

  return _summed(work, [1.0, 2.0])


@_case(expected=_thrice(5.0))
def variable_in_a_function_whose_argument_is_a_single_element():
  @tff.tensorflow.computation(_FLOATS)
  def work(data):
    total = tf.Variable(2.0)
    numbers = data.batch(10).get_single_element()

    @tf.function
    def add(numbers):
      total.assign(total + tf.reduce_sum(numbers))
      return total.read_value()

    return add(numbers)

  return _summed(work, [1.0, 2.0])


@_case()
def variable_that_takes_long_to_initialise():
  size = 300_000

  @tff.tensorflow.computation(np.float32, np.float32, _FLOATS)
  def work(x, y, data):
    value = tf.Variable(tf.random.normal([size]) * 0 + 100.0)

    @tf.function
    def body(x, y, data):
      value.assign(tf.fill([size], x))

      def step(count, number):
        value.assign_add(tf.zeros([size]) + 0 * number)
        return count + 1

      data.reduce(0.0, step)
      return value[0] + 0 * y

    return body(x, y * 2.0, data)

  @tff.federated_computation(
      at_clients(np.float32), at_clients(np.float32), at_clients(_FLOATS)
  )
  def computation(x, y, data):
    return tff.federated_map(work, (x, y, data))

  numbers = [float(number) for number in range(10)]
  return computation, numbers, numbers, 10 * [[1.0, 2.0]]


@_case(
    at_once=300,
    expected=_thrice(
        [[[5.0, 6.0], [1.0, 2.0]], [[3.0, 4.0], [3.0, 4.0]]],
        [[6.0, 7.0], [8.0, 9.0]],
    ),
)
def variable_whose_rows_are_read():
  # As an embedding does it, before and after an assignment.
  @tff.tensorflow.computation(_FLOATS)
  def work(data):
    table = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

    @tf.function
    def read(data):
      before = tf.nn.embedding_lookup(table, [[2, 0], [1, 1]])
      table.assign_add(tf.fill([3, 2], data.reduce(0.0, tf.add)))
      return before, tf.gather(table, [1, 2])

    return read(data)

  return _summed(work, [1.0, 2.0])


# Of a row that is read n times, a step takes the share n * number / 5.
@_case(
    tolerance=1e-5,
    expected=_thrice([[0.96, 0.96], [2.0, 2.0], [0.24, 0.24]]),
)
def variable_whose_rows_have_gradients():
  @tff.tensorflow.computation(_FLOATS)
  def work(data):
    table = tf.Variable(tf.random.normal([3, 2]) * 0 + 2.0)

    @tf.function
    def train(data):
      def step(count, number):
        with tf.GradientTape() as tape:
          rows = tf.nn.embedding_lookup(table, [2, 0, 2])
          loss = tf.reduce_sum(number * tf.square(rows))
        gradient = tf.convert_to_tensor(tape.gradient(loss, table))
        table.assign_sub(0.1 * gradient)
        return count + 1

      data.reduce(0, step)
      return table.read_value()

    return train(data)

  return _summed(work, [1.0, 2.0])


@_case(raises=r'= 3 is not in \[0, 3\)')
def variable_without_such_a_row():
  @tff.tensorflow.computation(_FLOATS)
  def work(data):
    table = tf.Variable([1.0, 2.0, 3.0])

    @tf.function
    def read(data):
      return tf.gather(table, tf.cast(data.reduce(0.0, tf.add), tf.int32))

    return read(data)

  return _summed(work, [1.0, 2.0])


@_case(expected=_thrice(6.0))
def variable_after_a_call_that_writes_it_late():
  # Its result does not wait for the assignment, and is read with the variable.
  @tff.tensorflow.computation(_FLOATS)
  def work(data):
    total = tf.Variable([1.0, 2.0])

    @tf.function
    def write(x):
      total.assign(tf.reverse(tf.sort(tf.random.normal([20_000])), [0])[:2] * 0)
      total.assign_add([x, 2 * x])
      return tf.constant(1)

    @tf.function
    def body(data):
      place = write(data.reduce(0.0, tf.add))
      return tf.gather(total, place)

    return body(data)

  return _summed(work, [1.0, 2.0])


@_case(expected=_thrice(0.0))
def variable_whose_random_start_is_read_in_a_branch():
  # Everybody who reads the initial value reads the same draw.
  @tff.tensorflow.computation(_FLOATS)
  def work(data):
    start = tf.Variable(tf.random.normal([3]))

    @tf.function
    def difference(data):
      number = data.reduce(0.0, tf.add)
      first = start.read_value() if number > 2.0 else tf.zeros([3])
      for _ in tf.range(2):
        if number > 2.0:
          first += start * 0.0
      second = start.read_value() if number > 2.0 else tf.zeros([3])
      return tf.reduce_sum(first - second)

    return difference(data)

  return _summed(work, [1.0, 2.0])


@_case(expected=_thrice(0.0))
def draws_of_an_element_that_is_read_twice():
  @tff.tensorflow.computation(_FLOATS)
  @tf.function
  def work(data):
    total = tf.constant(0.0)
    iterator = iter(data.map(lambda x: x + tf.random.normal([])))
    element = iterator.get_next_as_optional()
    while element.has_value():
      total += element.get_value() - element.get_value()
      element = iterator.get_next_as_optional()
    return total

  return _summed(work, [1.0, 2.0])


@_case(at_once=300)
def variable_in_a_form_of_a_bundle():
  # TFF's compiler of forms has inlined the functions of the graph.
  @tff.tensorflow.computation(_FLOATS)
  def work(data):
    total = tf.Variable(2.0)
    number = data.reduce(0.0, tf.add)

    @tf.function
    def add(number):
      total.assign(total.read_value() + number)
      return total.read_value()

    return add(number)

  add_up = tff.tensorflow.computation(
      lambda x, y: x + y, (np.float32, np.float32)
  )

  @tff.federated_computation(at_server(np.float32), at_clients(_FLOATS))
  def step(state, values):
    total = tff.federated_sum(tff.federated_map(work, values))
    return tff.federated_map(add_up, (state, total)), total

  mapreduce = tff.backends.mapreduce
  form = mapreduce.get_distribute_aggregate_form_for_computation(step)
  computation = mapreduce.get_computation_for_distribute_aggregate_form(form)
  return (
      lambda: [computation(1.0, 100 * [[1.0, 2.0]]) for _ in range(3)],
  )


@_case()
def variable_and_loop_of_the_old_kind():
  # TFF's compilers of forms leave such loops behind: Enter, Merge, Switch.
  tf.compat.v1.disable_control_flow_v2()
  try:

    @tff.tensorflow.computation(np.int32)
    def count(n):
      total = tf.Variable(2, name='total')
      _, found = tf.compat.v1.while_loop(
          lambda i, _: i < n,
          lambda i, value: (i + 1, value * 3 + total),
          [tf.constant(0), total.read_value()],
      )
      return found

  finally:
    tf.compat.v1.enable_control_flow_v2()

  @tff.federated_computation(at_clients(np.int32))
  def computation(values):
    return tff.federated_map(count, values)

  return (lambda: computation([3, 4, 0]),)


@_case()
def static_hash_table():
  @tff.tensorflow.computation(np.str_)
  def look_up(word):
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(['a', 'b'], [10, 20]), -1
    )
    return table.lookup(word)

  @tff.federated_computation(at_clients(np.str_))
  def computation(words):
    return tff.federated_map(look_up, words)

  return computation, ['b', 'a', 'c', 'b']


@_case()
def vocabulary_table():
  @tff.tensorflow.computation(tff.SequenceType(np.str_))
  def encode(words):
    table = tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(
            ['a', 'b'], tf.range(2, dtype=tf.int64)
        ),
        num_oov_buckets=1,
    )
    return words.map(table.lookup).reduce(
        np.int64(0), lambda total, key: 10 * total + key
    )

  @tff.federated_computation(at_clients(tff.SequenceType(np.str_)))
  def computation(words):
    return tff.federated_map(encode, words)

  return computation, [['a', 'b', 'z'], ['b', 'b'], []]


@_case()
def hash_table_whose_initialiser_depends_on_an_argument():
  strings = tff.TensorType(np.str_, [None])

  @tff.tensorflow.computation(strings, np.str_)
  def look_up(keys, word):
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(keys, tf.range(tf.size(keys))), -1
    )
    return table.lookup(word), table.size()

  @tff.federated_computation(
      at_server(strings), at_clients(strings), at_clients(np.str_)
  )
  def computation(shared, keys, words):
    return (
        tff.federated_map(look_up, (tff.federated_broadcast(shared), words)),
        tff.federated_map(look_up, (keys, words)),
    )

  def words(*items):
    return np.array(items, object)

  keys = [words('x', 'y'), words('y'), words('a', 'b', 'x')]
  return computation, words('x', 'b'), keys, ['x', 'y', 'x']


@_case()
def ragged_tensors_inside():
  @tff.tensorflow.computation(tff.SequenceType(np.str_))
  def count_words(lines):
    words = lines.batch(2).map(tf.strings.split)
    return words.reduce(
        np.int64(0), lambda total, row: total + tf.size(row.values, tf.int64)
    )

  @tff.federated_computation(at_clients(tff.SequenceType(np.str_)))
  def computation(lines):
    return tff.federated_map(count_words, lines)

  return computation, [['a b', 'c', 'd e f'], [], ['g']]


@_case()
def sparse_tensors_between_computations():
  # TFF 0.87 can make a composite tensor but not rebuild one, neither as an
  # argument nor as a result, so the consumer takes it for a plain structure.
  square = tff.TensorType(np.int32, [2, 2])
  parts = collections.OrderedDict(
      indices=tff.TensorType(np.int64, [None, 2]),
      values=tff.TensorType(np.int32, [None]),
      dense_shape=tff.TensorType(np.int64, [2]),
  )

  @tff.tensorflow.computation(square)
  def sparse(dense):
    return tf.sparse.from_dense(dense)

  @tff.tensorflow.computation(parts)
  def doubled(parts):
    value = tf.SparseTensor(**parts)
    return tf.sparse.to_dense(tf.sparse.add(value, value)), parts

  @tff.federated_computation(at_clients(square))
  def computation(values):
    return tff.federated_map(doubled, tff.federated_map(sparse, values))

  eye = np.eye(2, dtype=np.int32)
  return computation, [eye, 0 * eye, 1 + eye]


@_case()
def ragged_tensors_between_computations():
  parts = collections.OrderedDict(
      flat_values=_VECTOR,
      nested_row_splits=[tff.TensorType(np.int32, [3])],
  )

  @tff.tensorflow.computation(_VECTOR)
  def ragged(x):
    lengths = tf.stack([tf.size(x) - 1, tf.constant(1)])
    return tf.RaggedTensor.from_row_lengths(x, lengths)

  @tff.tensorflow.computation(parts)
  def row_sums(parts):
    rows = tf.RaggedTensor.from_nested_row_splits(
        parts['flat_values'], parts['nested_row_splits']
    )
    return tf.reduce_sum(rows, axis=1), parts

  @tff.federated_computation(at_clients(_VECTOR))
  def computation(values):
    return tff.federated_map(row_sums, tff.federated_map(ragged, values))

  return computation, [np.array(x, np.float32) for x in ([1, 2, 3], [4])]


# Control flow and randomness.


@_case()
def loops_and_branches():
  @tff.tensorflow.computation(np.int32)
  def collatz_length(n):
    _, steps = tf.while_loop(
        lambda n, _: n > 1,
        lambda n, steps: (
            tf.cond(
                tf.equal(n % 2, 0), lambda: n // 2, lambda: 3 * n + 1
            ),
            steps + 1,
        ),
        [n, tf.constant(0)],
    )
    return steps

  @tff.federated_computation(at_clients(np.int32))
  def computation(values):
    return tff.federated_map(collatz_length, values)

  return computation, [1, 7, 27, 97]


@_case()
def stateless_draws():
  @tff.tensorflow.computation(tff.TensorType(np.int32, [2]))
  def draw(seed):
    return (
        tf.random.stateless_normal([3], seed),
        tf.random.stateless_uniform([2, 2], seed, 0, 100, tf.int32),
    )

  @tff.federated_computation(at_clients(tff.TensorType(np.int32, [2])))
  def computation(seeds):
    return tff.federated_map(draw, seeds)

  return computation, [np.array(s, np.int32) for s in ([1, 2], [3, 4], [1, 2])]


@_case(is_random=True)
def unseeded_draws():
  @tff.tensorflow.computation
  def draw():
    return tf.random.normal([500]), tf.random.uniform([500])

  @tff.federated_computation(at_clients(np.int32))
  def computation(values):
    drawn = tff.federated_eval(draw, tff.CLIENTS)
    return drawn, tff.federated_eval(draw, tff.SERVER), values

  def without_values():
    at_clients_, at_server_, _ = computation([0, 0, 0])
    return at_clients_, at_server_

  return (without_values,)


@_case(raises='must be positive')
def assertion_inside():
  @tff.tensorflow.computation(np.int32)
  def refuse(x):
    check = tf.debugging.assert_positive(x, 'must be positive')
    with tf.control_dependencies([check]):
      return tf.identity(x)

  @tff.federated_computation(at_clients(np.int32))
  def computation(values):
    return tff.federated_sum(tff.federated_map(refuse, values))

  return computation, [1, 0, 2]


# Pure work on sequences, which may be done for all clients at once.


@_case(tolerance=1e-6, at_once=7)
def pure_steps_on_ragged_clients():
  batch = collections.OrderedDict(
      x=tff.TensorType(np.float32, [None, 3]),
      y=tff.TensorType(np.float32, [None]),
  )
  weights_type = tff.TensorType(np.float32, [3])

  @tff.tensorflow.computation(tff.SequenceType(batch), weights_type)
  def work(batches, start):
    @tf.function
    def train():
      weights, num_examples = start, tf.constant(0)
      for batch in iter(batches):
        errors = tf.linalg.matvec(batch['x'], weights) - batch['y']
        step = tf.linalg.matvec(batch['x'], errors, transpose_a=True)
        weights -= 0.1 * tf.clip_by_norm(step, 1.0)
        num_examples += tf.shape(batch['y'])[0]
      if tf.reduce_sum(weights) > 0.5:
        weights *= 2.0
      largest = batches.reduce(
          -1.0, lambda so_far, b: tf.maximum(so_far, tf.reduce_max(b['y']))
      )
      return weights, num_examples, largest * tf.nn.l2_loss(weights)

    return train()

  @tff.federated_computation(
      at_clients(tff.SequenceType(batch)), at_server(weights_type)
  )
  def computation(data, weights):
    return tff.federated_sum(
        tff.federated_map(work, (data, tff.federated_broadcast(weights)))
    )

  random = np.random.default_rng(1)
  data = [
      tf.data.Dataset.from_tensor_slices(
          collections.OrderedDict(
              x=random.normal(size=[size, 3]).astype(np.float32),
              y=random.normal(size=size).astype(np.float32),
          )
      ).batch(2)
      for size in (5, 0, 3, 5, 1, 4, 3)
  ]
  return computation, data, np.array([0.1, 0.2, 0.3], np.float32)
