# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A functional model with five weights, quick to trace, and its clients."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tff_dp

# Two tensors, so that flattening is tested too.
INITIAL = (
    np.array([[0.5, -0.25], [1.0, 0.0]], np.float32),
    np.array([0.125], np.float32),
)
NUM_PARAMS = 5


def build(frozen=(), loss_scale=None) -> tff.learning.models.FunctionalModel:
  """Returns a linear model; its loss reaches every weight that is trained."""

  @tf.function
  def predict(weights, x, training):
    del training
    kernel, bias = weights[0]
    return tf.reduce_sum(tf.matmul(x, kernel), axis=1) + bias

  def loss(output, label, sample_weight=None):
    del sample_weight
    found = tf.reduce_mean((output - label) ** 2)
    return found if loss_scale is None else loss_scale * found

  return tff.learning.models.FunctionalModel(
      initial_weights=(INITIAL, tuple(frozen)),
      predict_on_batch_fn=predict,
      loss_fn=loss,
      input_spec=(
          tf.TensorSpec([None, 2], tf.float32),
          tf.TensorSpec([None], tf.float32),
      ),
  )


def client(seed: int, num_examples: int = 4) -> tf.data.Dataset:
  rng = np.random.default_rng(seed)
  examples = (
      rng.standard_normal([num_examples, 2]).astype(np.float32),
      rng.standard_normal([num_examples]).astype(np.float32),
  )
  return tf.data.Dataset.from_tensor_slices(examples).batch(2)


def build_plan(mechanism, **changes) -> tff_dp.DpFtrlPlan:
  arguments = dict(
      participation=tff_dp.participation.UniformSampling(mechanism.num_rounds),
      l2_norm_clip=0.5,
      clients_per_round=2,
      noise_multiplier=1.0,
  )
  return tff_dp.DpFtrlPlan(mechanism=mechanism, **(arguments | changes))


def build_process(plan, **changes):
  arguments = dict(
      client_optimizer=tff.learning.optimizers.build_sgdm(0.1),
      server_learning_rate=0.5,
      insecure_seed=3,
  )
  return tff_dp.dp_ftrl.build_dp_ftrl(build(), plan, **(arguments | changes))


def flat(weights: tff.learning.models.ModelWeights) -> np.ndarray:
  return np.concatenate([np.ravel(tensor) for tensor in weights.trainable])


def released_residuals(plan, *, num_rounds=None) -> np.ndarray:
  """Returns what the plan's aggregator releases without clients, [T, p]."""
  process = plan.aggregator(insecure_seed=3).create(
      tff.TensorType(np.float32, [NUM_PARAMS])
  )
  state, released = process.initialize(), []
  for _ in range(num_rounds or plan.num_rounds):
    output = process.next(state, [])
    state = output.state
    released.append(output.result)
  return np.stack(released)
