# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is done on which of four virtual CPUs: `python -m ...placement_run`."""

import collections
import json
from unittest import mock

import tff_dp  # noqa: F401 pylint: disable=unused-import
import numpy as np  # pylint: disable=g-bad-import-order
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution.conformance import at_clients
from tests.execution.conformance import at_server
from tff_dp import execution
from tff_dp.execution.data import calls

CLIENT_DEVICES = ('CPU:1', 'CPU:2', 'CPU:0')
SERVER_DEVICE = 'CPU:3'
NUM_CLIENTS = 8
_MARKED = (
    'client',
    'iterator_loop',
    'reduce_loop',
    'mapped',
    'before_a_dataset',
    'accumulate',
    'merge',
    'report',
)


def _leave_mark(where: str, mark: tf.Tensor) -> tf.Operation:
  """Returns an operation that leaves `mark` on the device of its own kernel.

  TensorFlow keeps a store of this kind, under its name, once on each device: a
  kernel reaches that of its own device and no other.
  """
  return tf.raw_ops.OrderedMapStage(
      key=tf.cast(mark, tf.int64),
      indices=[0],
      values=[mark],
      dtypes=[tf.int32],
      shared_name=where,
  )


def _take_marks(where: str) -> dict[str, list[int]]:
  """Returns the marks that were left on each device, in order, and forgets."""
  found = {}
  store = dict(dtypes=[tf.int32], shared_name=where)
  for device in tf.config.list_logical_devices('CPU'):
    with tf.device(device.name):
      size = int(tf.raw_ops.OrderedMapSize(**store))
      marks = [
          int(tf.raw_ops.OrderedMapUnstageNoKey(indices=[0], **store).key)
          for _ in range(size)
      ]
    if marks:
      found[device.name.partition('device:')[2]] = marks
  return found


def _build_marking_computation() -> tff.Computation:
  @tff.tensorflow.computation(tff.SequenceType(np.int32), np.int32)
  def work(numbers, client):
    total = tf.Variable(0)

    def mapped(number):
      with tf.control_dependencies(
          [_leave_mark('mapped', 10 * client + number)]
      ):
        return tf.identity(number)

    @tf.function
    def train():
      # As the training loop that our builders ask TFF for.
      for number in iter(numbers):
        _leave_mark('iterator_loop', 10 * client + number)
        total.assign_add(number)
      # As TFF's default, which AutoGraph turns into `Dataset.reduce`.
      for number in numbers:
        _leave_mark('reduce_loop', 10 * client + number)
        total.assign_add(number)
      # A dataset's own function.
      for _ in iter(numbers.map(mapped)):
        pass
      return total.read_value()

    with tf.control_dependencies([_leave_mark('client', client)]):
      return train(), tf.identity(client)

  @tff.tensorflow.computation(np.int32, (np.int32, np.int32))
  def accumulate(total, value):
    with tf.control_dependencies([_leave_mark('accumulate', value[1])]):
      return total + value[0]

  @tff.tensorflow.computation(np.int32, np.int32)
  def merge(one, other):
    with tf.control_dependencies([_leave_mark('merge', one + other)]):
      return one + other

  @tff.tensorflow.computation(np.int32)
  def report(total):
    with tf.control_dependencies([_leave_mark('report', total)]):
      return tf.identity(total)

  @tff.federated_computation(
      at_clients(tff.SequenceType(np.int32)), at_clients(np.int32)
  )
  def computation(numbers, clients):
    worked = tff.federated_map(work, (numbers, clients))
    return tff.federated_aggregate(worked, 0, accumulate, merge, report)

  return computation


def _build_reducing_computation() -> tff.Computation:
  @tff.tensorflow.computation(np.int32, np.int32)
  def add(total, number):
    return total + number

  @tff.federated_computation(tff.SequenceType(np.int32))
  def reduce(numbers):
    return tff.sequence_reduce(numbers, 0, add), tff.sequence_sum(numbers)

  @tff.federated_computation(at_clients(tff.SequenceType(np.int32)))
  def computation(numbers):
    both = tff.federated_map(reduce, numbers)
    return tff.federated_sum(both[0]), tff.federated_sum(both[1])

  return computation


def _devices_of_reductions() -> list[str]:
  """Returns where TensorFlow is told to reduce the sequences of clients."""
  found, reduce = [], tf.data.Dataset.reduce

  def noted(dataset, *arguments, **options):
    found.append(tf.no_op().device)
    return reduce(dataset, *arguments, **options)

  with mock.patch.object(tf.data.Dataset, 'reduce', noted):
    results = _build_reducing_computation()([[1, 2], [3], [4]])
  assert list(results) == [10, 10]
  return found


def _build_computation_that_returns_datasets() -> tff.Computation:
  @tff.tensorflow.computation(np.int32)
  def count(client):
    with tf.control_dependencies([_leave_mark('before_a_dataset', client)]):
      number = tf.cast(client, tf.int64)
    return tf.data.Dataset.range(number).map(lambda n: n + number)

  @tff.federated_computation(at_clients(np.int32))
  def computation(clients):
    return tff.federated_map(count, clients)

  return computation


def _devices_of_returned_datasets() -> list[str]:
  """Returns where TensorFlow would iterate over the datasets of clients."""
  found = _build_computation_that_returns_datasets()(list(range(NUM_CLIENTS)))
  for client, numbers in enumerate(found):
    assert [int(n) for n in numbers] == list(range(client, 2 * client))
  variants = [tf.data.experimental.to_variant(numbers) for numbers in found]
  return [variant.device.partition('device:')[2] for variant in variants]


def _build_round() -> tff.Computation:
  """Returns a round of training: a model and the server's momentum go through.
  """
  model_type = tff.TensorType(np.float32, [2])
  state_type = tff.to_type((model_type, model_type))
  rows_type = tff.SequenceType(model_type)

  @tff.tensorflow.computation(model_type, rows_type)
  def train(model, rows):
    weights = tf.Variable(model)

    @tf.function
    def loop():
      for row in iter(rows):
        weights.assign_add(0.1 * (row - weights))
      return weights.read_value()

    return loop() - model

  @tff.tensorflow.computation(state_type, model_type)
  def step(state, update):
    model, velocity = state
    velocity = 0.9 * velocity + update
    return model + 0.5 * velocity, velocity

  @tff.federated_computation(at_server(state_type), at_clients(rows_type))
  def next_round(state, rows):
    updates = tff.federated_map(
        train, (tff.federated_broadcast(state[0]), rows)
    )
    return tff.federated_map(step, (state, tff.federated_mean(updates)))

  return next_round


def _train(next_round, **settings) -> list[float]:
  """Returns the model after two rounds."""
  random = np.random.default_rng(1)
  state = 2 * (np.zeros(2, np.float32),)
  with execution.create_sync_in_process_context(**settings):
    for num_clients in (4, 5):
      rows = random.normal([0.0, 3.0], size=[num_clients, 3, 2])
      rows = rows.astype(np.float32)
      clients = [tf.data.Dataset.from_tensor_slices(own) for own in rows]
      state = next_round(state, clients)
  return state[0].tolist()


def _devices_of_arguments(train) -> dict[str, set[tuple[str, ...]]]:
  """Returns the devices of the arguments of each function that is called."""
  found = collections.defaultdict(set)
  execute = calls._execute.execute_with_cancellation  # pylint: disable=protected-access

  def noted(name, *, inputs, **others):
    # A dataset stays on the CPU.
    found[name].add(
        tuple(each.device for each in inputs if each.dtype != tf.variant)
    )
    return execute(name, inputs=inputs, **others)

  with mock.patch.object(
      calls._execute, 'execute_with_cancellation', noted  # pylint: disable=protected-access
  ):
    train()
  return found


def main() -> None:
  cpu = tf.config.list_physical_devices('CPU')[0]
  tf.config.set_logical_device_configuration(
      cpu, [tf.config.LogicalDeviceConfiguration()] * 4
  )
  devices = dict(
      client_tf_devices=CLIENT_DEVICES, server_tf_device=SERVER_DEVICE
  )
  computation = _build_marking_computation()
  context = execution.create_sync_in_process_context(**devices)
  with context:
    result = computation([[1, 2]] * NUM_CLIENTS, list(range(NUM_CLIENTS)))
    devices_of_reductions = _devices_of_reductions()
    devices_of_returned_datasets = _devices_of_returned_datasets()
  next_round = _build_round()
  model_on_three = []
  devices_of_arguments = _devices_of_arguments(
      lambda: model_on_three.extend(_train(next_round, **devices))
  )
  print(
      json.dumps(
          dict(
              client_devices=context.client_devices,
              server_device=context.server_device,
              result=int(result),
              devices_of_reductions=devices_of_reductions,
              devices_of_returned_datasets=devices_of_returned_datasets,
              marks={where: _take_marks(where) for where in _MARKED},
              model_on_one=_train(next_round, client_tf_devices=['CPU:0']),
              model_on_three=model_on_three,
              num_functions=len(devices_of_arguments),
              most_devices_of_arguments=max(
                  map(len, devices_of_arguments.values())
              ),
          )
      )
  )


if __name__ == '__main__':
  main()
