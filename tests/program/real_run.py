# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A small real run, for tests that kill it."""

import functools

import numpy as np
import tff_dp
from tff_dp import program
from tff_dp.program import results
import tensorflow as tf  # pylint: disable=g-bad-import-order
import tensorflow_federated as tff

NUM_ROUNDS = 12
_NUM_CLIENTS = 24


def build_plan() -> tff_dp.DpFtrlPlan:
  return tff_dp.DpFtrlPlan(
      mechanism=tff_dp.mechanisms.HonakerTree(NUM_ROUNDS, restart_every=8),
      participation=tff_dp.participation.MinSeparation(
          NUM_ROUNDS, min_index_gap=4
      ),
      l2_norm_clip=1.0,
      clients_per_round=5,
      noise_multiplier=3.0,
  )


def build_model() -> tff.learning.models.FunctionalModel:
  """Returns a linear model that refuses labels which it does not know.

  Its initial weights are random: a resumed run must not draw them again.
  """
  rng = np.random.default_rng()

  @tf.function
  def predict(weights, x, training):
    del training
    kernel, bias = weights[0]
    return tf.matmul(x, kernel) + bias

  def loss(output, label, sample_weight=None):
    del sample_weight
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(label, output)
    )

  return tff.learning.models.FunctionalModel(
      initial_weights=(
          (
              rng.standard_normal([4, 3], np.float32),
              np.zeros([3], np.float32),
          ),
          (),
      ),
      predict_on_batch_fn=predict,
      loss_fn=loss,
      input_spec=(
          tf.TensorSpec([None, 4], tf.float32),
          tf.TensorSpec([None], tf.int32),
      ),
  )


class Clients:
  """Clients that keep their datasets, with a seeded shuffle and a cache.

  A round must not depend on who has iterated over them before.
  """

  client_ids = [f'client {i}' for i in range(_NUM_CLIENTS)]

  @functools.cache
  def create_tf_dataset_for_client(self, client_id: str) -> tf.data.Dataset:
    rng = np.random.default_rng(self.client_ids.index(client_id))
    examples = (
        rng.normal(size=[8, 4]).astype(np.float32),
        rng.integers(0, 3, size=8).astype(np.int32),
    )
    dataset = tf.data.Dataset.from_tensor_slices(examples)
    return dataset.cache().shuffle(8, seed=1).repeat(2).batch(3)


_CLIENTS = Clients()


def evaluate(weights: tff.learning.models.ModelWeights) -> dict[str, float]:
  return {'test_accuracy': float(np.mean(weights.trainable[0] > 0))}


@functools.cache
def build_process() -> tff.learning.templates.LearningProcess:
  return tff_dp.dp_ftrl.build_dp_ftrl(
      build_model(),
      build_plan(),
      client_optimizer=tff.learning.optimizers.build_sgdm(0.1),
      server_learning_rate=0.5,
      momentum=0.9,
  )


def run(output_dir, **kwargs) -> results.TrainResult:
  """Trains in the caller's context."""
  arguments = dict(
      delta=1e-5,
      evaluate_fn=evaluate,
      rounds_per_eval=4,
      checkpoint_every=3,
      config={'task': 'real_run'},
      progress='quiet',
  )
  return program.train(
      build_process(),
      _CLIENTS,
      output_dir=output_dir,
      **arguments | kwargs,
  )
