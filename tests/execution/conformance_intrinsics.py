# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Conformance cases: every intrinsic, alone and several in one computation."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution import conformance
from tests.execution.conformance import at_clients
from tests.execution.conformance import at_server

CASES = {}

_FLOATS = [0.1, -2.5, 3.7, 1e-3, 12.0]
_INTS = [5, 0, 7, 62, 3]
_NUMBERS = tff.SequenceType(np.int32)


def _case(**properties):
  return conformance.case(CASES, **properties)


def _pair(first, second):
  return collections.OrderedDict(first=first, second=second)


@tff.tensorflow.computation(np.float32)
def _third(x):
  return x / 3.0


@tff.tensorflow.computation(np.int32)
def _double(x):
  return 2 * x


@tff.tensorflow.computation(np.int32, np.int32)
def _add(x, y):
  return x + y


@tff.tensorflow.computation(np.float32, np.float32)
def _subtract(x, y):
  return x - y


@tff.tensorflow.computation(np.float32)
def _square(x):
  return x * x


# Intrinsics of one value.


# TFF's runtime multiplies by a rounded third: here, nothing is rewritten.
@_case(tolerance=1e-6)
def map_at_clients():
  @tff.federated_computation(at_clients(np.float32))
  def computation(values):
    return tff.federated_map(_third, values)

  return computation, _FLOATS


@_case()
def map_at_server():
  @tff.federated_computation(at_server(np.float32))
  def computation(value):
    return tff.federated_map(_third, value)

  return computation, 2.0


@_case()
def map_of_two_values_zips_them():
  @tff.federated_computation(at_clients(np.float32), at_clients(np.float32))
  def computation(xs, ys):
    return tff.federated_map(_subtract, (xs, ys))

  return computation, _FLOATS, _FLOATS[::-1]


@_case()
def map_all_equal():
  # TFF has no public function that makes this intrinsic, only the intrinsic.
  value_type = at_clients(np.float32, all_equal=True)
  framework = tff.framework
  intrinsic = framework.Intrinsic(
      framework.FEDERATED_MAP_ALL_EQUAL.uri,
      tff.FunctionType([_third.type_signature, value_type], value_type),
  )
  call = framework.Call(
      intrinsic,
      framework.Struct(
          [_third.to_building_block(), framework.Reference('value', value_type)]
      ),
  )
  mapped = framework.ConcreteComputation(
      computation_proto=framework.Lambda('value', value_type, call).proto,
      context_stack=framework.get_context_stack(),
  )

  @tff.federated_computation(at_server(np.float32), at_clients(np.float32))
  def computation(value, others):
    equal = mapped(tff.federated_broadcast(value))
    return equal, tff.federated_sum(equal), others

  return computation, 2.0, _FLOATS


@_case()
def broadcast_is_returned_once():
  @tff.federated_computation(at_server(np.float32), at_clients(np.float32))
  def computation(value, others):
    return tff.federated_broadcast(value), tff.federated_sum(others)

  return computation, 2.0, _FLOATS


@_case()
def value_at_both_placements():
  @tff.federated_computation(at_clients(np.int32))
  def computation(others):
    return (
        tff.federated_value(3, tff.CLIENTS),
        tff.federated_value((1.0, [True]), tff.SERVER),
        tff.federated_sum(others),
    )

  return computation, _INTS


@_case()
def eval_at_both_placements():
  @tff.tensorflow.computation
  def seven():
    return _pair(7, tf.range(3))

  @tff.federated_computation(at_clients(np.int32))
  def computation(others):
    return (
        tff.federated_eval(seven, tff.CLIENTS),
        tff.federated_eval(seven, tff.SERVER),
        tff.federated_sum(others),
    )

  return computation, _INTS


@_case()
def zip_at_clients_of_nested_and_named():
  @tff.federated_computation(
      at_clients(np.float32),
      at_clients((np.int32, [np.bool_])),
      at_server(np.float32),
  )
  def computation(xs, ys, z):
    return tff.federated_zip(
        _pair(xs, (ys, _pair(xs, tff.federated_broadcast(z))))
    )

  return computation, [1.0, 2.0], [(1, [True]), (2, [False])], 4.0


@_case()
def zip_at_server_of_nested_and_named():
  @tff.federated_computation(at_server(np.float32), at_server(np.int32))
  def computation(x, y):
    return tff.federated_zip(_pair([x, y], y))

  return computation, 1.5, 2


@_case()
def zip_of_one_and_of_four():
  @tff.federated_computation(at_clients(np.int32))
  def computation(xs):
    return tff.federated_zip([xs]), tff.federated_zip((xs, xs, xs, xs))

  return computation, _INTS


def _select(select):
  @tff.tensorflow.computation(tff.TensorType(np.float32, [4, 2]), np.int32)
  def row(table, key):
    return tf.gather(table, key)

  @tff.federated_computation(
      at_server(tff.TensorType(np.float32, [4, 2])),
      at_server(np.int32),
      at_clients(tff.TensorType(np.int32, [3])),
  )
  def computation(table, max_key, keys):
    chosen = select(keys, max_key, table, row)
    total = tff.tensorflow.computation(
        lambda rows: rows.reduce(np.zeros([2], np.float32), tf.add),
        chosen.type_signature.member,
    )
    return chosen, tff.federated_sum(tff.federated_map(total, chosen))

  table = np.arange(8, dtype=np.float32).reshape(4, 2)
  keys = np.array([[0, 1, 3], [3, 3, 3], [2, 0, 0]], np.int32)
  return computation, table, 3, list(keys)


@_case()
def select_rows():
  return _select(tff.federated_select)


@_case(native=False)
def secure_select_rows():
  return _select(tff.federated_secure_select)


# Aggregations.


@_case()
def aggregate_with_other_types_everywhere():
  # Value, accumulator and result differ in type.
  accumulator = _pair(np.float32, np.int32)

  @tff.tensorflow.computation(accumulator, np.float32)
  def accumulate(total, value):
    return _pair(total['first'] + value, total['second'] + 1)

  @tff.tensorflow.computation(accumulator, accumulator)
  def merge(one, other):
    return _pair(
        one['first'] + other['first'], one['second'] + other['second']
    )

  @tff.tensorflow.computation(accumulator)
  def report(total):
    return total['first'] / tf.cast(total['second'], tf.float32), 'clients'

  @tff.federated_computation(at_clients(np.float32))
  def computation(values):
    zero = _pair(0.0, 0)
    return tff.federated_aggregate(values, zero, accumulate, merge, report)

  return computation, _FLOATS


@_case()
def aggregate_from_a_zero_that_depends_on_the_argument():
  @tff.federated_computation(at_clients(np.int32), at_server(np.int32))
  def computation(values, offset):
    negate = tff.tensorflow.computation(lambda x: -x, np.int32)
    total = tff.federated_aggregate(values, 0, _add, _add, negate)
    return tff.federated_map(_add, (total, offset))

  return computation, _INTS, 1000


def _aggregated(zero, accumulate, merge):
  """Returns the aggregate of the sums of clients' numbers, for seven clients.

  Args:
    zero: The accumulator of nobody.
    accumulate: Maps an accumulator and a client's sum to the next accumulator.
    merge: Maps two accumulators to one.
  """
  floats = tff.SequenceType(np.float32)

  @tff.tensorflow.computation(floats)
  def total(numbers):
    return numbers.reduce(np.float32(0), tf.add)

  start = tff.tensorflow.computation(zero)
  kind = start.type_signature.result
  add = tff.tensorflow.computation(accumulate, (kind, np.float32))
  join = tff.tensorflow.computation(merge, (kind, kind))
  report = tff.tensorflow.computation(lambda x: x, kind)

  @tff.federated_computation(at_clients(floats))
  def computation(numbers):
    totals = tff.federated_map(total, numbers)
    return tff.federated_aggregate(totals, start(), add, join, report)

  return computation, [[number, 1.0] for number in (3.0, 1, 4, 1, 5, 9, 2)]


@_case(at_once=7)
def aggregate_with_a_sum_that_goes_into_another():
  return _aggregated(
      lambda: (np.float32(0), np.float32(0)),
      lambda state, x: (state[0] + 0 * state[1] + x, state[1] + x),
      lambda a, b: (a[0] + b[0], a[1] + b[1]),
  )


@_case(at_once=7)
def aggregate_two_sums():
  return _aggregated(
      lambda: (np.float32(0), np.float32(0)),
      lambda state, x: (state[0] + 1, x * x + state[1]),
      lambda a, b: (a[0] + b[0], a[1] + b[1]),
  )


@_case(at_once=7)
def aggregate_what_is_no_sum():
  return _aggregated(
      lambda: (np.float32(0), np.float32(1), np.float32(-9)),
      lambda state, x: (
          tf.maximum(state[0], 2 * x),
          tf.minimum(state[1], 2 - x),
          tf.maximum(state[2], x),
      ),
      lambda a, b: (
          tf.maximum(a[0], b[0]),
          tf.minimum(a[1], b[1]),
          tf.maximum(a[2], b[2]),
      ),
  )


@_case()
def aggregate_datasets():
  # The accumulator is a dataset, which no graph can hold as a plain tensor.
  numbers = tff.SequenceType(np.int32)
  append = tff.tensorflow.computation(
      lambda total, value: total.concatenate(value), (numbers, numbers)
  )

  @tff.tensorflow.computation
  def empty():
    return tf.data.Dataset.range(0, output_type=tf.int32)

  @tff.tensorflow.computation(numbers)
  def report(total):
    # Counted, because each worker appends the numbers of its own clients.
    return total.reduce(
        tf.zeros([10], tf.int32),
        lambda counts, number: counts + tf.one_hot(number, 10, dtype=tf.int32),
    )

  @tff.federated_computation(at_clients(numbers))
  def computation(values):
    return tff.federated_aggregate(values, empty(), append, append, report)

  return computation, [[3, 1], [], [2], [9, 8, 7]]


@_case()
def sum_of_structures():
  member = _pair(tff.TensorType(np.float32, [2]), (np.int32, np.int64))

  @tff.federated_computation(at_clients(member))
  def computation(values):
    return tff.federated_sum(values)

  clients = [
      _pair(np.array([x, -x], np.float32), (n, n + 2**40))
      for x, n in zip(_FLOATS, _INTS)
  ]
  return computation, clients


@_case()
def mean_of_structures():
  @tff.federated_computation(at_clients((np.float32, [np.float64])))
  def computation(values):
    return tff.federated_mean(values)

  return computation, [(x, [x]) for x in _FLOATS]


@_case()
def weighted_mean():
  @tff.federated_computation(at_clients(np.float32), at_clients(np.float32))
  def computation(values, weights):
    return tff.federated_mean(values, weights)

  return computation, _FLOATS, [1.0, 0.0, 2.5, 1.0, 0.3]


@_case()
def weighted_mean_with_integer_and_zero_weights():
  @tff.federated_computation(at_clients(np.float32), at_clients(np.int32))
  def computation(values, weights):
    nothing = tff.federated_map(
        tff.tensorflow.computation(lambda w: 0 * w, np.int32), weights
    )
    return (
        tff.federated_mean(values, weights),
        tff.federated_mean(values, nothing),
    )

  return computation, _FLOATS, _INTS


@_case()
def min_and_max():
  @tff.federated_computation(at_clients((np.float32, np.int32)))
  def computation(values):
    return tff.federated_min(values), tff.federated_max(values)

  return computation, list(zip(_FLOATS, _INTS))


# Secure sums, which only TFF's test context and ours can run.


@_case(native=False)
def secure_sum():
  @tff.federated_computation(at_clients(np.int32))
  def computation(values):
    return tff.federated_secure_sum(values, 62)

  return computation, _INTS


@_case(native=False)
def secure_sum_with_a_bound_per_leaf():
  @tff.federated_computation(at_clients((np.int32, [np.int64])))
  def computation(values):
    return (
        tff.federated_secure_sum(values, (62, [2**40])),
        tff.federated_secure_sum_bitwidth(values, (6, [41])),
    )

  return computation, [(n, [n + 2**39]) for n in _INTS]


@_case(native=False, raises='larger than maximum')
def secure_sum_refuses_values_above_the_bound():
  @tff.federated_computation(at_clients(np.int32))
  def computation(values):
    return tff.federated_secure_sum(values, 61)

  return computation, _INTS


@_case(native=False, raises='larger than maximum')
def secure_sum_bitwidth_refuses_values_above_the_bound():
  @tff.federated_computation(at_clients(np.int32))
  def computation(values):
    return tff.federated_secure_sum_bitwidth(values, 5)

  return computation, _INTS


@_case(native=False, raises='greater than maximum bitwidth')
def secure_sum_bitwidth_refuses_63_bits():
  @tff.federated_computation(at_clients(np.int32))
  def computation(values):
    return tff.federated_secure_sum_bitwidth(values, 63)

  return computation, _INTS


@_case(native=False)
def secure_modular_sum():
  modular_sum = tff.backends.mapreduce.federated_secure_modular_sum

  @tff.federated_computation(at_clients(np.int32), at_clients([np.int32] * 2))
  def computation(values, pairs):
    # Values outside [0, modulus), negative ones among them, wrap around.
    return modular_sum(values, 11), modular_sum(pairs, (7, 100))

  return computation, [5, -3, 70, 11], [[n, -n] for n in (1, 2, 3, 50)]


# Sequences. TFF's C++ runtime reduces a sequence only if it is an argument, and
# dies of some; it has no sum at all. These say themselves what is right.


@_case(
    expected=lambda: (
        [np.int32(106), np.int32(100), np.int32(107)],
        np.int32(104),
        np.int32(111),
    )
)
def sequence_reduce_of_arguments():
  @tff.federated_computation(
      at_clients(_NUMBERS), at_server(_NUMBERS), _NUMBERS
  )
  def computation(values, value, plain):
    return (
        tff.sequence_reduce(
            values, tff.federated_value(100, tff.CLIENTS), _add
        ),
        tff.sequence_reduce(value, tff.federated_value(100, tff.SERVER), _add),
        tff.sequence_reduce(plain, 100, _add),
    )

  seven = conformance.dataset([7])
  return computation, [[1, 2, 3], [], seven], [4], [5, 6]


@_case(
    expected=lambda: (
        conformance.dataset([2, 4, 6]),
        np.int32(112),
        np.int32(6),
    )
)
def sequence_intrinsics_without_placement():
  @tff.federated_computation(_NUMBERS)
  def computation(numbers):
    doubled = tff.sequence_map(_double, numbers)
    return (
        doubled,
        tff.sequence_reduce(doubled, 100, _add),
        tff.sequence_sum(numbers),
    )

  return computation, [1, 2, 3]


@_case(
    expected=lambda: (
        np.int32(26),
        [np.int32(12), np.int32(0), np.int32(14)],
        [(np.int32(10), np.int32(n)) for n in (16, 10, 17)],
    )
)
def sequence_intrinsics_on_clients():
  @tff.federated_computation(_NUMBERS)
  def total(numbers):
    return tff.sequence_sum(tff.sequence_map(_double, numbers))

  @tff.federated_computation(_NUMBERS, np.int32)
  def total_after(numbers, start):
    return start, tff.sequence_reduce(numbers, start, _add)

  @tff.federated_computation(at_clients(_NUMBERS), at_server(np.int32))
  def computation(numbers, start):
    doubled = tff.sequence_map(_double, numbers)
    return (
        tff.federated_sum(tff.sequence_sum(doubled)),
        tff.federated_map(total, numbers),
        tff.federated_map(
            total_after, (numbers, tff.federated_broadcast(start))
        ),
    )

  return computation, [[1, 2, 3], [], conformance.dataset([7])], 10


@_case(
    expected=lambda: (
        conformance.dataset([2.0, 4.0], np.float32),
        (np.float32(3.0), np.int32(0)),
    )
)
def sequence_intrinsics_on_the_server():
  @tff.federated_computation(
      at_server(tff.SequenceType(np.float32)), at_server(_NUMBERS)
  )
  def computation(numbers, nothing):
    double = tff.tensorflow.computation(lambda x: 2 * x, np.float32)
    return (
        tff.sequence_map(double, numbers),
        (tff.sequence_sum(numbers), tff.sequence_sum(nothing)),
    )

  return computation, [1.0, 2.0], []


# Several in one computation.


@_case()
def three_levels_of_dependent_aggregations():
  @tff.federated_computation(at_clients(np.float32))
  def computation(values):
    mean = tff.federated_mean(values)
    centred = tff.federated_map(
        _subtract, (values, tff.federated_broadcast(mean))
    )
    variance = tff.federated_mean(tff.federated_map(_square, centred))
    above = tff.federated_map(
        _subtract,
        (
            tff.federated_map(_square, centred),
            tff.federated_broadcast(variance),
        ),
    )
    return mean, variance, tff.federated_max(above)

  return computation, _FLOATS


@_case()
def independent_aggregations_in_one_pass():
  @tff.federated_computation(at_clients(np.float32), at_clients(np.int32))
  def computation(xs, ns):
    thirds = tff.federated_map(_third, xs)
    return _pair(
        (tff.federated_sum(thirds), tff.federated_mean(thirds)),
        [tff.federated_sum(ns), tff.federated_max(xs), tff.federated_sum(xs)],
    )

  return computation, _FLOATS, _INTS


@_case(tolerance=1e-6)
def client_value_is_aggregated_used_again_and_returned():
  @tff.federated_computation(at_clients(np.float32))
  def computation(values):
    thirds = tff.federated_map(_third, values)
    mean = tff.federated_mean(thirds)
    rest = tff.federated_map(
        _subtract, (thirds, tff.federated_broadcast(mean))
    )
    return tff.federated_sum(rest), thirds, rest, mean, values

  return computation, _FLOATS


@_case()
def computations_called_from_computations():
  @tff.federated_computation(at_clients(np.float32))
  def centre(values):
    mean = tff.federated_mean(values)
    return tff.federated_map(
        _subtract, (values, tff.federated_broadcast(mean))
    )

  @tff.federated_computation(at_clients(np.float32))
  def spread(values):
    return tff.federated_max(tff.federated_map(_square, centre(values)))

  @tff.federated_computation(at_clients(np.float32))
  def computation(values):
    return spread(values), spread(tff.federated_map(_third, values))

  return computation, _FLOATS


@_case()
def functions_of_functions_without_placement():
  @tff.federated_computation(
      tff.FunctionType((np.int32, np.int32), np.int32), np.int32
  )
  def twice(function, value):
    return function(value, function(value, value))

  @tff.federated_computation(np.int32)
  def computation(value):
    return _pair(twice(_add, value), (value, [_add(value, 1)]))

  return computation, 4
