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

from tff_dp import execution

_NUM_FEATURES = 784


def _model_fn() -> tff.learning.models.VariableModel:
  start = tf.keras.initializers.GlorotUniform
  layers = tf.keras.layers
  # Large enough for kernels that divide their work among threads.
  return tff.learning.models.from_keras_model(
      tf.keras.Sequential([
          layers.InputLayer([_NUM_FEATURES]),
          layers.Dense(256, activation='relu', kernel_initializer=start(1)),
          layers.Dense(10, kernel_initializer=start(2)),
      ]),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=(
          tf.TensorSpec([None, _NUM_FEATURES], tf.float32),
          tf.TensorSpec([None], tf.int32),
      ),
  )


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
    process = tff.learning.algorithms.build_unweighted_fed_avg(
        _model_fn,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
        loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR,
    )
    start = process.initialize()
    digests = []
    for _ in range(2):  # Once more from the start, with the same datasets.
      state = start
      for _ in range(2):
        state = process.next(state, clients).state
      weights = process.get_model_weights(state).trainable
      everything = b''.join(np.asarray(part).tobytes() for part in weights)
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
