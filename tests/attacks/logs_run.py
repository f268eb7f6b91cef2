# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs with a client whose label does not fit, told how loud to be.

  python -m tests.attacks.logs_run DIRECTORY [words...]

The directory gets a run in every context that this stack has, by its name.
TensorFlow is imported before `tff_dp`. Ends with the code in which all runs end.
"""

import contextlib
import pathlib
import sys

# In the label of the bad client, as text anywhere it is a leak.
LABEL = 8417
# Takes part, but not in the first round.
BAD = 'client 5'
IN_PROCESS, NATIVE = 'in_process', 'native'
NUM_CLASSES = 3


def _build_model():
  # pylint: disable=g-import-not-at-top
  import numpy as np
  import tensorflow as tf
  import tensorflow_federated as tff

  @tf.function
  def predict(weights, x, training):
    del training
    return tf.matmul(x, weights[0][0])

  def loss(output, label, sample_weight=None):
    del sample_weight
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(label, output)
    )

  return tff.learning.models.FunctionalModel(
      initial_weights=((np.zeros([2, NUM_CLASSES], np.float32),), ()),
      predict_on_batch_fn=predict,
      loss_fn=loss,
      input_spec=(
          tf.TensorSpec([None, 2], tf.float32),
          tf.TensorSpec([None], tf.int32),
      ),
  )


class Clients:
  client_ids = [f'client {i}' for i in range(8)]

  def create_tf_dataset_for_client(self, client_id: str):
    import tensorflow as tf  # pylint: disable=g-import-not-at-top

    labels = [0, 1, LABEL if client_id == BAD else 2]
    examples = tf.ones([3, 2]), tf.constant(labels)
    return tf.data.Dataset.from_tensor_slices(examples).batch(3)


def main() -> int:
  directory, *words = sys.argv[1:]
  # pylint: disable=g-import-not-at-top
  import tensorflow  # noqa: F401
  from tests.program import processes
  import tensorflow_federated as tff
  from tff_dp import _compat
  from tff_dp import execution
  from tff_dp import program
  from tff_dp.cli import errors

  plan = processes.build_plan()
  process = tff.learning.algorithms.build_unweighted_fed_avg(
      _build_model(), processes.SGD, model_aggregator=plan.aggregator()
  )
  contexts = {IN_PROCESS: contextlib.nullcontext}
  if _compat.COLUMN.has_worker:
    contexts[NATIVE] = lambda: execution.create_native_context(
        max_concurrent_clients=1
    )
  codes = set()
  for kind, context in contexts.items():

    def command(words, kind=kind, context=context):
      del words
      with context():
        program.train(
            process,
            Clients(),
            output_dir=pathlib.Path(directory, kind),
            delta=1e-5,
            progress='plain',
        )
      return 0

    codes.add(errors.run(command, words, stopped='stopped'))
  return codes.pop() if len(codes) == 1 else 1


if __name__ == '__main__':
  sys.exit(main())
