# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures 200 unlike rounds: `python -m tests.execution.memory_run`."""

import collections
import ctypes
import gc
import json
import os
import pathlib

import tff_dp  # noqa: F401 pylint: disable=unused-import
import numpy as np  # pylint: disable=g-bad-import-order
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution.conformance import at_clients
from tests.execution.conformance import at_server
from tff_dp import execution

_NUM_ROUNDS = 200
_ROUNDS_PER_READING = 5
_MODEL_BYTES = 4 * 100_000
_NUM_CHUNK_ROUNDS = 60
_CLIENT_BYTES = 4 * 25_000


def _build_round() -> tff.Computation:
  """Returns a computation that has a bit of everything that holds memory."""
  model_type = tff.TensorType(np.float32, [_MODEL_BYTES // 4])
  batch_type = collections.OrderedDict(
      x=tff.TensorType(np.float32, [None, None]),
      word=tff.TensorType(np.str_, [None]),
  )

  @tff.tensorflow.computation(model_type, tff.SequenceType(batch_type))
  def train(model, batches):
    weights = tf.Variable(model)
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(['a', 'b'], [1.0, 2.0]), 0.0
    )

    @tf.function
    def loop():
      count = tf.constant(0)
      for batch in batches:
        step = tf.reduce_mean(batch['x']) * tf.reduce_sum(
            table.lookup(batch['word'])
        )
        weights.assign_add(tf.fill(tf.shape(weights), 1e-3 * step))
        count += tf.shape(batch['word'])[0]
      return count

    count = loop()
    with tf.control_dependencies([count]):
      return weights.read_value(), count

  subtract = tff.tensorflow.computation(
      lambda x, y: tf.reduce_max(x - y), (model_type, model_type)
  )

  @tff.federated_computation(
      at_server(model_type), at_clients(tff.SequenceType(batch_type))
  )
  def computation(model, batches):
    models, counts = tff.federated_map(
        train, (tff.federated_broadcast(model), batches)
    )
    mean = tff.federated_mean(models)
    # A second pass over kept client values, some of which are returned.
    distances = tff.federated_map(
        subtract, (models, tff.federated_broadcast(mean))
    )
    return mean, tff.federated_max(distances), counts

  return computation


def _list_of_batches(rng: np.random.Generator) -> list:
  """Returns a client's batches, of shapes that hardly ever come again."""
  width = rng.integers(1, 400)
  return [
      collections.OrderedDict(
          x=rng.normal(size=[size, width]).astype(np.float32),
          word=np.array(['b'] * size, object),
      )
      for size in rng.integers(0, 30, rng.integers(0, 4))
  ]


def _dataset(rng: np.random.Generator) -> tf.data.Dataset:
  x = rng.normal(size=[rng.integers(1, 30), rng.integers(1, 400)])
  examples = collections.OrderedDict(
      x=x.astype(np.float32), word=['a'] * len(x)
  )
  dataset = tf.data.Dataset.from_tensor_slices(examples)
  if rng.integers(2):  # With state, so that every call has copies.
    dataset = dataset.cache().shuffle(len(x), seed=1)
  return dataset.batch(int(rng.integers(5, 20)))


def _resident_bytes() -> int:
  """Returns what is held, once all that was freed is given back."""
  gc.collect()
  ctypes.CDLL(None).malloc_trim(0)
  pages = pathlib.Path('/proc/self/statm').read_text().split()[1]
  return int(pages) * os.sysconf('SC_PAGE_SIZE')


def _measure_rounds() -> tuple[list[int], list[int]]:
  """Returns resident bytes (every few rounds) and functions held (each)."""
  computation = _build_round()
  rng = np.random.default_rng(1)
  model = np.zeros(_MODEL_BYTES // 4, np.float32)
  # Made once: TensorFlow itself never forgets the shapes of an eager dataset.
  datasets = [_dataset(rng) for _ in range(10)]
  resident, traces = [], []
  context = execution.create_sync_in_process_context(max_concurrent_clients=2)
  with context:
    for round_num in range(_NUM_ROUNDS):
      clients = [_list_of_batches(rng) for _ in range(rng.integers(0, 3))]
      chosen = rng.permutation(len(datasets))[: rng.integers(1, 3)]
      clients += [datasets[index] for index in chosen]
      model, _, _ = computation(model, clients)
      if not round_num % _ROUNDS_PER_READING:
        resident.append(_resident_bytes())
      traces.append(context.num_traces)
  return resident, traces


def _measure_chunks() -> tuple[list[int], dict[str, int]]:
  """Returns resident bytes (every few rounds) and paths, of 4 clients a round."""
  length = _CLIENT_BYTES // 4
  rows_type = tff.SequenceType(tff.TensorType(np.float32, [None, length]))

  @tff.tensorflow.computation(rows_type)
  def total(batches):
    @tf.function
    def loop():
      so_far = tf.zeros([length])
      # An iterator, which is a resource, unlike the loop of `reduce`.
      for batch in iter(batches):
        so_far += tf.reduce_sum(batch, axis=0)
      return so_far

    return tf.reduce_sum(loop()) + batches.reduce(
        0.0, lambda sum_of, batch: sum_of + tf.reduce_max(batch)
    )

  @tff.federated_computation(at_clients(rows_type))
  def computation(batches):
    return tff.federated_sum(tff.federated_map(total, batches))

  clients = [[np.ones([1, length], np.float32)] for _ in range(4)]
  resident = []
  with execution.create_sync_in_process_context() as context:
    for round_num in range(_NUM_CHUNK_ROUNDS):
      computation(clients)
      if not round_num % _ROUNDS_PER_READING:
        resident.append(_resident_bytes())
    return resident, context.num_clients_by_path


def _held_computations() -> list[tuple[int, int]]:
  """Returns (functions held with a computation, and after its end), thrice."""
  held = []
  with execution.create_sync_in_process_context() as context:
    for _ in range(3):
      add_one = tff.tensorflow.computation(lambda x: x + 1, np.int32)
      if add_one(1) != 2:
        raise AssertionError('1 + 1')
      with_it = context.num_traces
      del add_one
      gc.collect()
      held.append((with_it, context.num_traces))
  return held


def main() -> None:
  # What was imported stays, and need not be looked through at each collection.
  gc.collect()
  gc.freeze()
  resident, traces = _measure_rounds()
  resident_in_chunks, paths = _measure_chunks()
  print(
      json.dumps(
          dict(
              model_bytes=_MODEL_BYTES,
              rounds_per_reading=_ROUNDS_PER_READING,
              resident=resident,
              traces=traces,
              client_bytes=_CLIENT_BYTES,
              resident_in_chunks=resident_in_chunks,
              paths=paths,
              held=_held_computations(),
          )
      )
  )


if __name__ == '__main__':
  main()
