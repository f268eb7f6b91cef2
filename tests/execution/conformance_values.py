# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Conformance cases: types, containers, numbers of clients, sequences."""

import collections

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution import conformance
from tests.execution.conformance import at_clients
from tests.execution.conformance import at_server

CASES = {}

_VECTOR = tff.TensorType(np.float32, [None])
_NUMBERS = tff.SequenceType(np.int32)

_Point = collections.namedtuple('_Point', ['x', 'y'])


@attrs.define
class _Box:
  low: object
  high: object


def _case(**properties):
  return conformance.case(CASES, **properties)


# Types and Python containers.


@_case()
def all_dtypes():
  dtypes = [
      np.bool_,
      np.int8,
      np.int16,
      np.int64,
      np.uint8,
      np.uint16,
      np.uint32,
      np.uint64,
      np.float16,
      np.float64,
      np.complex64,
      np.complex128,
  ]

  @tff.federated_computation(at_clients(dtypes), at_server(dtypes))
  def computation(values, value):
    return values, value

  ones = [dtype(1) for dtype in dtypes]
  return computation, [ones, ones], ones


@_case()
def bfloat16():
  @tff.tensorflow.computation(np.float32)
  def computation(x):
    return tf.cast([x, -x], tf.bfloat16)

  return computation, 1.7


@_case()
def scalars_and_empty_tensors():
  @tff.tensorflow.computation(np.bool_, tff.TensorType(np.float32, [0, 3]))
  def computation(flag, empty):
    return tf.logical_not(flag), empty, tf.shape(empty), tf.constant([[[2]]])

  return computation, True, np.zeros([0, 3], np.float32)


@_case()
def python_numbers_as_arguments():
  @tff.federated_computation(
      at_clients((np.float32, np.int64)), at_server(np.bool_), np.float64
  )
  def computation(values, flag, number):
    return values, flag, number

  return computation, [(1.5, 2), (0.1, 3)], True, 0.1


@_case()
def tensors_as_arguments():
  @tff.federated_computation(at_clients(_VECTOR), at_server(np.int32))
  def computation(values, number):
    return values, number

  vectors = [tf.constant([1.0, 2.0]), np.array([3.0], np.float32)]
  return computation, vectors, tf.constant(2)


@_case()
def strings_and_bytes():
  @tff.federated_computation(
      at_clients((np.str_, tff.TensorType(np.str_, [None]))), at_server(np.str_)
  )
  def computation(values, word):
    join = tff.tensorflow.computation(
        lambda x: x[0] + tf.strings.reduce_join(x[1]),
        values.type_signature.member,
    )
    return values, tff.federated_map(join, values), word

  return (
      computation,
      [
          ('a', np.array(['b', 'cd'], object)),
          (b'\xff\x00z', np.array([], object)),
      ],
      'word',
  )


@_case()
def string_accumulator():
  # Strings have no zero and no sum in TFF, but an aggregation of their own.
  longest = tff.tensorflow.computation(
      lambda x, y: tf.where(
          tf.strings.length(x) >= tf.strings.length(y), x, y
      ),
      (np.str_, np.str_),
  )

  @tff.federated_computation(at_clients(np.str_))
  def computation(words):
    report = tff.tensorflow.computation(
        lambda word: tf.strings.upper(word), np.str_
    )
    return tff.federated_aggregate(words, '', longest, longest, report)

  return computation, ['a', 'abc', 'ab', '']


@_case()
def nested_containers():
  member = collections.OrderedDict(
      point=_Point(np.int32, (np.float32, [np.int32])),
      box=_Box(np.int32, collections.OrderedDict(a=np.int32)),
      nothing=(),
  )

  @tff.federated_computation(at_clients(member), at_server(member), member)
  def computation(values, value, plain):
    turn = tff.tensorflow.computation(
        lambda x: _Box(_Point(x['box'].low, x['point'].x), [x['point'].y]),
        member,
    )
    return _Point(
        x=[values, tff.federated_map(turn, values)],
        y=collections.OrderedDict(a=value, b=plain, c=turn(plain)),
    )

  value = collections.OrderedDict(
      point=_Point(1, (2.0, [3])),
      box=_Box(4, collections.OrderedDict(a=5)),
      nothing=(),
  )
  return computation, [value, value], value, value


@_case()
def empty_structures():
  @tff.federated_computation(at_clients(()), at_server(()), ())
  def computation(values, value, plain):
    return values, value, plain, tff.federated_broadcast(value), []

  return computation, [(), ()], (), ()


@_case()
def named_arguments():
  @tff.federated_computation(at_server(np.int32), at_clients(np.int32))
  def computation(first, second):
    return first, second

  return (lambda: computation(second=[1, 2], first=3),)


@_case()
def literals():
  @tff.federated_computation
  def computation():
    return 1, 2.5, True, 'text', np.arange(3), (np.float64(2), [np.int64(1)])

  return (computation,)


# Numbers of clients.


@_case()
def no_argument_and_no_client():
  @tff.federated_computation
  def computation():
    ones = tff.federated_value(1, tff.CLIENTS)
    return tff.federated_sum(ones), tff.federated_value(2.0, tff.SERVER)

  return (computation,)


@_case()
def zero_clients():
  @tff.federated_computation(
      at_clients(np.float32), at_clients(_NUMBERS), at_server(np.int32)
  )
  def computation(values, datasets, value):
    count = tff.tensorflow.computation(
        lambda total, _: total + 1, (np.int32, _NUMBERS)
    )
    add = tff.tensorflow.computation(lambda x, y: x + y, (np.int32, np.int32))
    negate = tff.tensorflow.computation(lambda x: -x, np.int32)
    total = tff.federated_aggregate(datasets, 7, count, add, negate)
    return (
        total,
        tff.federated_sum(values),
        tff.federated_mean(values),
        tff.federated_min(values),
        tff.federated_max(values),
        value,
    )

  return computation, [], [], 3


@_case(expected=lambda: ([], []))
def zero_clients_return_their_values():
  # TFF's contexts cannot send a list of no values back.
  @tff.federated_computation(at_clients(np.float32), at_server(np.int32))
  def computation(values, start):
    started = tff.federated_map(
        tff.tensorflow.computation(lambda x, y: (x, y), (np.float32, np.int32)),
        (values, tff.federated_broadcast(start)),
    )
    return values, started

  return computation, [], 2


@_case()
def one_client():
  @tff.federated_computation(at_clients(np.float32))
  def computation(values):
    return values, tff.federated_sum(values), tff.federated_mean(values)

  return computation, [2.5]


@_case()
def number_of_clients_changes_between_calls():
  @tff.federated_computation(at_clients(np.int32))
  def count(values):
    return tff.federated_sum(values), tff.federated_max(values)

  return (lambda: [count(list(range(n))) for n in (3, 7, 1, 0, 5)],)


@_case(raises='(?i)cardinalit|clients')
def conflicting_numbers_of_clients():
  @tff.federated_computation(at_clients(np.int32), at_clients(np.int32))
  def computation(xs, ys):
    return tff.federated_sum(xs), tff.federated_sum(ys)

  return computation, [1, 2], [1, 2, 3]


# Sequences and batches.


@_case()
def sequences_as_lists_and_as_datasets():
  @tff.federated_computation(
      at_clients(_NUMBERS), at_server(_NUMBERS), _NUMBERS
  )
  def computation(values, value, plain):
    total = tff.tensorflow.computation(
        lambda numbers: numbers.reduce(100, tf.add), _NUMBERS
    )
    return values, value, plain, tff.federated_map(total, values), total(plain)

  numbers = conformance.dataset([4, 5])
  return computation, [[1, 2], numbers, [], numbers.take(0)], numbers, [7]


@_case()
def lists_that_need_a_cast():
  floats = tff.SequenceType(_VECTOR)
  integers = tff.SequenceType(np.int32)
  pairs = tff.SequenceType((np.float64, np.bool_))

  @tff.federated_computation(at_clients(floats), integers, pairs)
  def computation(values, numbers, pairs):
    return values, numbers, pairs

  rows = [
      [np.array([0.1, 1.7]), np.array([np.nan, -np.inf])],
      [np.array([1, 2]), [3, 4], (5, 0.25)],
      [tf.constant([7]), np.array([True]), np.array([0.1, 2.0])],
      [np.array([2**40]), np.array([2**24 + 1]), np.zeros([0], np.int64)],
  ]
  numbers = [np.int64(3), np.uint8(4), tf.constant(5, tf.int64), 6, True]
  return (
      computation,
      rows,
      numbers,
      [(1, True), (np.float32(0.1), np.bool_(False))],
  )


@_case()
def tensors_that_widen():
  @tff.federated_computation(
      np.int64,
      np.float64,
      tff.TensorType(np.float64, [None]),
      at_clients(np.int64),
      tff.TensorType(np.int32, [None]),
  )
  def computation(integer, number, vector, values, integers):
    return integer, number, vector, values, integers

  return (
      computation,
      tf.constant(3),
      tf.constant(0.1),
      tf.Variable([0.1, 0.2]),
      [tf.constant(1, tf.uint8), tf.Variable(2), np.int32(3)],
      [tf.constant(4), 5],
  )


@_case()
def names_for_what_has_none():
  pair = (np.int32, np.float32)

  @tff.federated_computation(at_clients(pair), at_server(pair), pair)
  def computation(values, value, plain):
    return values, value, plain

  return (
      computation,
      [dict(x=1, y=2.0), dict(y=3, x=4.0), _Point(5, 6.0)],
      collections.OrderedDict(b=7, a=8.0),
      tff.structure.Struct.named(a=9, b=10.0),
  )


@_case()
def sequences_of_structures():
  element = collections.OrderedDict(x=_VECTOR, y=(np.int32, np.str_))

  @tff.federated_computation(at_clients(tff.SequenceType(element)))
  def computation(values):
    return values

  examples = [
      collections.OrderedDict(
          x=np.array([1.0, 2.0], np.float32), y=(3, 'a')
      ),
      collections.OrderedDict(x=np.array([], np.float32), y=(4, 'b')),
  ]
  from_generator = tf.data.Dataset.from_generator(
      lambda: iter(examples),
      output_signature=collections.OrderedDict(
          x=tf.TensorSpec([None], tf.float32),
          y=(tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.string)),
      ),
  )
  # A generator lives in this process, so only its elements can travel.
  return computation, [examples, list(from_generator)[:1]]


@_case()
def ragged_and_empty_batches():
  batch = collections.OrderedDict(
      x=tff.TensorType(np.float32, [None, 2]),
      y=tff.TensorType(np.int32, [None]),
  )

  @tff.tensorflow.computation(tff.SequenceType(batch))
  def summarise(batches):
    return batches.reduce(
        (0, tf.zeros([2])),
        lambda total, b: (
            total[0] + tf.shape(b['y'])[0],
            total[1] + tf.reduce_sum(b['x'], 0),
        ),
    )

  @tff.federated_computation(at_clients(tff.SequenceType(batch)))
  def computation(values):
    summaries = tff.federated_map(summarise, values)
    return summaries, tff.federated_sum(summaries)

  def client(num_examples, batch_size):
    x = np.arange(2 * num_examples, dtype=np.float32).reshape(-1, 2)
    y = np.arange(num_examples, dtype=np.int32)
    return tf.data.Dataset.from_tensor_slices(
        collections.OrderedDict(x=x, y=y)
    ).batch(batch_size)

  sizes = [(5, 2), (0, 3), (7, 7), (1, 4)]
  return computation, [client(*size) for size in sizes]


@_case()
def tensors_of_unknown_shape():
  @tff.federated_computation(at_clients(_VECTOR), at_server(_VECTOR))
  def computation(values, value):
    shape = tff.tensorflow.computation(
        lambda x: (tf.shape(x), tf.concat([x, x], 0)), _VECTOR
    )
    return tff.federated_map(shape, values), tff.federated_map(shape, value)

  vectors = [np.ones([n], np.float32) for n in (2, 0, 5)]
  return computation, vectors, vectors[0]


@_case()
def dataset_made_on_clients():
  @tff.tensorflow.computation(np.int32)
  def count(n):
    return tf.data.Dataset.range(tf.cast(n, tf.int64)).map(
        lambda i: (i, tf.cast(i, tf.float32) / 2)
    )

  @tff.federated_computation(at_clients(np.int32), at_server(np.int32))
  def computation(values, value):
    return tff.federated_map(count, values), tff.federated_map(count, value)

  return computation, [3, 0], 2


@_case()
def dataset_pipeline_inside():
  @tff.tensorflow.computation(_NUMBERS)
  def shuffled(numbers):
    batches = (
        numbers.shuffle(10, seed=3, reshuffle_each_iteration=False)
        .repeat(2)
        .batch(4)
        .map(lambda x: tf.cast(x, tf.float32))
        .prefetch(1)
    )
    first = batches.reduce(0.0, lambda total, x: total / 2 + tf.reduce_sum(x))
    return first, batches.take(2)

  @tff.federated_computation(at_clients(_NUMBERS))
  def computation(values):
    return tff.federated_map(shuffled, values)

  numbers = conformance.dataset(range(10))
  return computation, [numbers, list(range(5, 12)), numbers]


@_case()
def dataset_iterated_with_a_python_loop():
  @tff.tensorflow.computation(_NUMBERS)
  def alternating(numbers):
    @tf.function
    def loop():
      total, sign = tf.constant(0), tf.constant(1)
      for number in numbers:
        total += sign * number
        sign = -sign
      return total

    return loop()

  @tff.federated_computation(at_clients(_NUMBERS))
  def computation(values):
    return tff.federated_map(alternating, values)

  return computation, [[1, 2, 3], [], [5, 9]]
