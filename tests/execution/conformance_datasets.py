# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Conformance cases: datasets with a state, used again and again.

Every case invokes twice, with one dataset object for both calls, all clients
and all contexts: it must make no difference who iterated over it before. Of
three clients, one worker of two has two.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution import conformance
from tests.execution.conformance import at_clients
from tests.execution.conformance import at_server

CASES = {}

_NUMBERS = tff.SequenceType(np.int64)


def _case(**properties):
  return conformance.case(CASES, **properties)


def _all_of(numbers: tf.data.Dataset) -> tf.Tensor:
  return numbers.batch(1000).reduce(
      tf.zeros([0], tf.int64), lambda found, x: tf.concat([found, x], 0)
  )


@tff.tensorflow.computation(_NUMBERS)
def _two_epochs(numbers):
  # In one call, a dataset goes on where it stopped, as an epoch wants it.
  first = _all_of(numbers)
  with tf.control_dependencies([first]):
    return first, _all_of(numbers)


@tff.tensorflow.computation(_NUMBERS)
def _one_epoch(numbers):
  return _all_of(numbers)


@tff.federated_computation(at_clients(_NUMBERS))
def _epochs_of_clients(numbers):
  return tff.federated_map(_two_epochs, numbers)


def _range(size: int = 6) -> tf.data.Dataset:
  return tf.data.Dataset.range(size)


def _with_variable() -> tf.data.Dataset:
  variable = tf.Variable(1, dtype=tf.int64)
  return _range().map(lambda x: x * variable.assign_add(1))


def _with_generator() -> tf.data.Dataset:
  generator = tf.random.Generator.from_seed(4)
  return _range().map(lambda _: generator.uniform([], 0, 100, tf.int64))


def _with_table() -> tf.data.Dataset:
  keys = tf.range(3, dtype=tf.int64)
  table = tf.lookup.StaticHashTable(
      tf.lookup.KeyValueTensorInitializer(keys, keys + 7), -1
  )
  return _range().shuffle(6, seed=1).map(table.lookup)


def _within_flat_map() -> tf.data.Dataset:
  inner = _range().shuffle(6, seed=1)
  return _range(2).flat_map(lambda _: inner)


def _within_interleave() -> tf.data.Dataset:
  return _range(3).interleave(
      lambda x: tf.data.Dataset.range(x + 2).shuffle(5, seed=1),
      cycle_length=2,
  )


def _sampled(**arguments) -> tf.data.Dataset:
  return tf.data.Dataset.sample_from_datasets(
      [_range(), _range().map(lambda x: x + 10)], [0.5, 0.5], seed=2,
      **arguments,
  )


def _add(name: str, make: Callable[[], tf.data.Dataset], **properties) -> None:
  def build():
    numbers = make()
    return (
        lambda: [_epochs_of_clients([numbers] * 3) for _ in range(2)],
    )

  build.__name__ = name
  conformance.case(CASES, **properties)(build)


_add('shuffle', lambda: _range().shuffle(6, seed=1))
_add(
    'shuffle_once',
    lambda: _range().shuffle(6, seed=1, reshuffle_each_iteration=False),
)
_add('shuffle_and_repeat', lambda: _range().shuffle(6, seed=1).repeat(2))
_add('shuffle_below', lambda: _range().shuffle(6, seed=1).map(tf.abs).take(4))
_add('cache', lambda: _range().cache())
_add('cache_of_shuffle', lambda: _range().shuffle(6, seed=1).cache())
_add('shuffle_of_cache', lambda: _range().cache().shuffle(6, seed=1))
_add('random', lambda: tf.data.Dataset.random(seed=3).take(3))
_add(
    'random_anew',
    lambda: tf.data.Dataset.random(
        seed=3, rerandomize_each_iteration=True
    ).take(3),
)
_add('sampled', _sampled)
_add('sampled_anew', lambda: _sampled(rerandomize_each_iteration=True))
_add('within_flat_map', _within_flat_map)
_add('within_interleave', _within_interleave)
_add(
    'concatenated',
    lambda: _range().concatenate(_range().shuffle(6, seed=1)),
)
_add(
    'rebatched',
    lambda: _range().shuffle(6, seed=3).batch(2).rebatch(3).unbatch(),
)
_add(
    'seeded_map',
    lambda: _range().map(
        lambda _: tf.random.uniform([], 0, 100, tf.int64, seed=3)
    ),
)
_add('variable', _with_variable)
_add('generator_of_random_numbers', _with_generator)
_add('table', _with_table)
_add(
    'shuffled_and_repeated_together',
    lambda: _range().apply(
        tf.data.experimental.shuffle_and_repeat(6, 2, seed=5)
    ),
)
# The same numbers in another order: only that no order comes twice is tested.
_add('shuffle_without_a_seed', lambda: _range(500).shuffle(500), is_random=True)
_add(
    'cache_without_a_seed',
    lambda: _range(500).shuffle(500).cache(),
    is_random=True,
)


@_case()
def dataset_with_two_uses():
  @tff.federated_computation(at_clients(_NUMBERS))
  def computation(numbers):
    return (
        tff.federated_map(_two_epochs, numbers),
        tff.federated_map(_one_epoch, numbers),
    )

  numbers = _range().shuffle(6, seed=1)
  return (
      lambda: [
          computation([numbers, [1, 2], _range(3), numbers]) for _ in range(2)
      ],
  )


@_case()
def dataset_of_the_server_for_every_client():
  @tff.federated_computation(
      at_server(_NUMBERS), at_clients(np.int32), at_server(_NUMBERS)
  )
  def computation(numbers, values, others):
    shared = tff.federated_broadcast(numbers)
    return (
        tff.federated_map(_two_epochs, shared),
        tff.federated_map(_one_epoch, numbers),
        tff.federated_map(_one_epoch, tff.federated_broadcast(others)),
        values,
    )

  numbers = _range().shuffle(6, seed=1)
  return (
      lambda: [
          computation(numbers, [1, 2, 3], others)
          for others in ([4, 5], _range(2))
      ],
  )


@_case()
def dataset_in_a_struct():
  member = (_NUMBERS, np.int32)

  @tff.tensorflow.computation(member)
  def use(pair):
    return _all_of(pair[0]), pair[1]

  @tff.federated_computation(at_clients(member), member)
  def computation(pairs, pair):
    return (
        tff.federated_map(use, pairs),
        tff.federated_map(use, pairs),
        use(pair),
        _two_epochs(pair[0]),
        _one_epoch(pair[0]),
    )

  pair = (_range().shuffle(6, seed=1), 3)
  return (lambda: [computation([pair] * 3, pair) for _ in range(2)],)


@_case()
def dataset_of_a_later_pass():
  @tff.tensorflow.computation(_NUMBERS, np.int64)
  def after(numbers, total):
    return _all_of(numbers) + total

  @tff.federated_computation(at_clients(_NUMBERS))
  def computation(numbers):
    first = tff.federated_map(
        tff.tensorflow.computation(
            lambda x: x.reduce(np.int64(0), lambda y, z: 2 * y + z), _NUMBERS
        ),
        numbers,
    )
    total = tff.federated_broadcast(tff.federated_sum(first))
    return total, tff.federated_map(after, (numbers, total))

  numbers = _range().shuffle(6, seed=1)
  return (lambda: [computation([numbers] * 3) for _ in range(2)],)


@_case()
def state_of_a_dataset_inside():
  @tff.tensorflow.computation(_NUMBERS)
  def inside(numbers):
    return (
        _all_of(numbers.shuffle(6, seed=1).repeat(2)),
        _all_of(numbers.shuffle(6, seed=2).cache().repeat(2)),
    )

  @tff.federated_computation(at_clients(_NUMBERS))
  def computation(numbers):
    return tff.federated_map(inside, numbers)

  return (
      lambda: [
          computation([_range() for _ in range(3)]) for _ in range(2)
      ],
  )


# Datasets that a computation makes. Each use finds them unchanged, too.
@tff.tensorflow.computation(_NUMBERS)
def _shuffled(numbers):
  return numbers.shuffle(6, seed=1).map(lambda x: 2 * x)


@tff.tensorflow.computation(_NUMBERS)
def _doubled(numbers):
  return numbers.map(lambda x: 2 * x)


@tff.tensorflow.computation(_NUMBERS, _NUMBERS)
def _both(first, second):
  return _all_of(first), _all_of(second)


@tff.tensorflow.computation(_NUMBERS, np.int64)
def _all_and(numbers, total):
  return _all_of(numbers) + total


@tff.tensorflow.computation(_NUMBERS)
def _digits(numbers):
  return numbers.reduce(np.int64(0), lambda total, x: 31 * total + x)


@_case()
def dataset_made_and_used_again():
  @tff.federated_computation(at_clients(_NUMBERS))
  def computation(numbers):
    made = tff.federated_map(_shuffled, numbers)
    twice = tff.federated_map(_doubled, made)
    total = tff.federated_sum(tff.federated_map(_digits, made))
    later = (made, tff.federated_broadcast(total))
    return (
        tff.federated_map(_two_epochs, made),
        tff.federated_map(_one_epoch, made),
        tff.federated_map(_both, (made, made)),
        tff.federated_map(_both, (twice, twice)),
        tff.federated_map(_one_epoch, twice),
        total,
        tff.federated_map(_all_and, later),
        tff.federated_sum(tff.federated_map(_digits, made)),
    )

  return (lambda: [computation([_range(), _range(5), _range(4)])],)


@_case()
def dataset_of_an_argument_made_and_used_again():
  @tff.tensorflow.computation(_NUMBERS)
  def halves(numbers):
    return numbers.take(3), numbers.skip(3)

  @tff.federated_computation(at_clients(_NUMBERS))
  def computation(numbers):
    made = tff.federated_map(halves, numbers)
    twice = tff.federated_map(_doubled, numbers)
    again = tff.federated_map(_doubled, twice)
    return (
        tff.federated_map(_both, made),
        tff.federated_map(_both, made),
        tff.federated_map(_both, (twice, again)),
        tff.federated_map(_one_epoch, again),
    )

  numbers = _range().shuffle(6, seed=1)
  return (lambda: [computation([numbers] * 3) for _ in range(2)],)


@_case()
def dataset_made_at_the_server():
  @tff.federated_computation(at_server(_NUMBERS), at_clients(np.int64))
  def computation(numbers, values):
    made = tff.federated_map(_shuffled, numbers)
    at_each = tff.federated_broadcast(made)
    return (
        tff.federated_map(_two_epochs, made),
        tff.federated_map(_one_epoch, made),
        tff.federated_map(_all_and, (at_each, values)),
        tff.federated_sum(tff.federated_map(_digits, at_each)),
    )

  return (lambda: [computation(_range(), [1, 2, 3])],)


def _in_memory(size: int) -> tf.data.Dataset:
  return tf.data.Dataset.from_tensor_slices(np.arange(size))


@tff.tensorflow.computation(_NUMBERS, _NUMBERS)
def _digits_of_both(first, second):
  return 1009 * _digits(first) + _digits(second)


@_case(at_once=3)
def dataset_that_the_server_makes_for_every_client():
  # One that is always the same is a part of the work at once. The other has a
  # state, which no client hands on.
  makers = [
      tff.tensorflow.computation(lambda: _range(7).map(lambda x: 3 * x + 1)),
      tff.tensorflow.computation(lambda: _range(7).shuffle(7, seed=1)),
  ]

  def of(make):
    @tff.federated_computation(at_clients(_NUMBERS))
    def computation(numbers):
      made = tff.federated_broadcast(tff.federated_eval(make, tff.SERVER))
      return tff.federated_sum(
          tff.federated_map(_digits_of_both, (made, numbers))
      )

    return computation

  numbers = [_in_memory(size) for size in (6, 5, 4)]
  computations = list(map(of, makers))
  return (lambda: [computation(numbers) for computation in computations],)


@_case(at_once=6)
def datasets_that_are_made_and_used_together():
  @tff.tensorflow.computation(_NUMBERS)
  def make(numbers):
    def double(x):
      return 2 * x

    return numbers.map(double), numbers.map(tf.identity)

  @tff.federated_computation(at_clients(_NUMBERS))
  def computation(numbers):
    made = tff.federated_map(make, numbers)
    return tff.federated_sum(tff.federated_map(_digits_of_both, made))

  # Neither goes on in the order of the other.
  return (
      lambda: [
          computation([numbers] * 3)
          for numbers in (_in_memory(6), _in_memory(6).shuffle(6, seed=1))
      ],
  )
