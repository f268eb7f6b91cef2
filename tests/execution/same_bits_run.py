# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prints digests of trained weights: `python -m tests.execution.same_bits_run`.

Each argument is a number of cores that a copy of the process may use, 0 for all.
"""

import hashlib
import os
import sys

import numpy as np
import tff_dp  # noqa: F401 pylint: disable=unused-import
import tensorflow as tf  # pylint: disable=g-bad-import-order
import tensorflow_federated as tff

from tests.execution.conformance import at_clients
from tests.execution.conformance import at_server
from tff_dp import execution

_NUM_FEATURES, _NUM_HIDDEN, _NUM_CLASSES = 784, 256, 10


def _build_round() -> tff.Computation:
  """Returns a round of training, of models whose mean is the next one."""
  # Large enough for kernels that divide their work among threads.
  model_type = tff.to_type((
      (np.float32, [_NUM_FEATURES, _NUM_HIDDEN]),
      (np.float32, [_NUM_HIDDEN, _NUM_CLASSES]),
  ))
  batch_type = tff.to_type(
      ((np.float32, [None, _NUM_FEATURES]), (np.int32, [None]))
  )

  @tff.tensorflow.computation(model_type, tff.SequenceType(batch_type))
  def train(model, batches):
    weights = [tf.Variable(part) for part in model]

    @tf.function
    def loop():
      for x, y in iter(batches):
        with tf.GradientTape() as tape:
          logits = tf.nn.relu(x @ weights[0]) @ weights[1]
          loss = tf.reduce_mean(
              tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
          )
        for part, slope in zip(weights, tape.gradient(loss, weights)):
          part.assign_sub(0.1 * slope)
      return [part.read_value() for part in weights]

    return tuple(loop())

  @tff.federated_computation(
      at_server(model_type), at_clients(tff.SequenceType(batch_type))
  )
  def next_round(model, batches):
    return tff.federated_mean(
        tff.federated_map(train, (tff.federated_broadcast(model), batches))
    )

  return next_round


def _client(rng: np.random.Generator) -> tf.data.Dataset:
  examples = (
      rng.normal(size=[60, _NUM_FEATURES]).astype(np.float32),
      rng.integers(0, 10, 60).astype(np.int32),
  )
  dataset = tf.data.Dataset.from_tensor_slices(examples)
  return dataset.cache().shuffle(60, seed=1).batch(30)


def _train(num_cores: int) -> None:
  if num_cores:
    allowed = sorted(os.sched_getaffinity(0))[:num_cores]
    os.sched_setaffinity(0, allowed)  # Before TensorFlow counts them.
  tf.config.threading.set_intra_op_parallelism_threads(2)
  rng = np.random.default_rng(1)
  clients = [_client(rng) for _ in range(5)]
  with execution.create_sync_in_process_context(max_concurrent_clients=2):
    next_round = _build_round()
    start = tuple(
        0.1 * rng.normal(size=shape).astype(np.float32)
        for shape in (
            [_NUM_FEATURES, _NUM_HIDDEN],
            [_NUM_HIDDEN, _NUM_CLASSES],
        )
    )
    digests = []
    for _ in range(2):  # Once more from the start, with the same datasets.
      model = start
      for _ in range(2):
        model = next_round(model, clients)
      everything = b''.join(np.asarray(part).tobytes() for part in model)
      digests.append(hashlib.sha256(everything).hexdigest())
  print(len(os.sched_getaffinity(0)), *digests, flush=True)


def main() -> int:
  for num_cores in sys.argv[1:]:
    # TensorFlow is loaded, which takes seconds, and has no threads yet.
    copy = os.fork()
    if not copy:
      _train(int(num_cores))
      return 0
    _, status = os.waitpid(copy, 0)
    if status:
      return 1
  return 0


if __name__ == '__main__':
  sys.exit(main())
