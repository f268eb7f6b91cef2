# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The client's side of Draw and Discard: draw an instance, move it, add noise.

    B = instance i,   i uniform in 0..k-1, drawn by the client
    G = clip( gradient of the mean loss over all its examples )
    report = B - learning_rate * G + noise,   independent in every weight

Reading the data and adding the noise are two separate computations. The second
one has no side effects, and marks the report as one with the noise of the plan.
So the checks of a process see whether anything else leaves a client
(`release_marks`).

The unit is the client's whole data set, so the *mean* gradient is clipped, and
a client with more examples moves the model no further. A gradient that is not
finite counts as zero. A client without examples sends B + noise.

By default, coins and noise come from 128 bits of the machine that runs the
client, fresh in every run, and no seed can change them. With `client_keys`,
coins follow from a secret key of the client and from the round. The noise
follows from these two and from the un-noised model. If a round is repeated on
the same data and instances, each client then sends the same report bit for bit,
which reveals nothing more. If the un-noised model differs, all noise is
different.

Source: arXiv:1807.04369, section 3.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import streams
from tff_dp.aggregators import release_marks
from tff_dp.learning import keyed_data
from tff_dp.systems.draw_and_discard import client_steps
from tff_dp.systems.draw_and_discard import models
from tff_dp.systems.draw_and_discard import plan as plan_lib

EXAMPLES, KEY = 'examples', 'key'
# Purposes of the keys that follow from a client's secret.
_DRAW, _NOISE = 'draw and discard instance', 'draw and discard noise'
# Norms are in float64. Rounding moves them by far less than this share.
_MARGIN = 1e-9


class Sums(NamedTuple):
  """Un-noised sums over the examples of one client, or of all in a round.

  Attributes:
    loss: Sum of the loss over examples.
    num_examples: Number of examples.
    num_refused: Number of examples with a label that the model does not allow.
  """

  loss: Any
  num_examples: Any
  num_refused: Any


class ClientComputations(NamedTuple):
  """Unplaced computations of one client.

  Attributes:
    data_type: Type of the client's data.
    key: Computation that returns the secret key of the client's coin and noise,
      int64 of shape [2]. The key never leaves the client. If `build` was called
      with `client_keys`, the computation's argument is the client's data.
      Otherwise it has no argument.
    draw: Computation of (key, round) that returns a pair. The first entry is
      the number of the drawn instance, int32 of shape [1]. The client keeps it.
      The second entry goes to the server. It is the same number, or an empty
      tensor if the server's strategy does not use it.
    instance: Computation of (sequence of one instance) that returns the
      instance, float32 of shape [p].
    move: Computation of (instance, data) that takes the client's step, without
      noise. It returns a pair. The first entry is the moved instance, float64
      of shape [p]. The second entry is the `Sums` of the client.
    report: Computation of (moved instance, key, round) that returns the report.
  """

  data_type: tff.Type
  key: tff.Computation
  draw: tff.Computation
  instance: tff.Computation
  move: tff.Computation
  report: tff.Computation


def release_of(
    plan: plan_lib.DrawAndDiscardPlan,
) -> release_marks.Release:
  """Returns the mark of a report, with the fingerprint of the plan."""
  return release_marks.Release.of(plan.describe())


def build(
    model: models.FlatModel,
    plan: plan_lib.DrawAndDiscardPlan,
    *,
    client_keys: bool = False,
) -> ClientComputations:
  """Returns the computations of a client.

  Args:
    model: Model, with as many weights as the plan says.
    plan: Plan with clip, noise, and number of models of the server.
    client_keys: Whether coin and noise follow from a key of the client, see the
      module docstring. The data of a client is then
      `learning.client_data(examples, key)`, else its examples.
  """
  step, size = plan.step, model.num_params
  num_models = plan.server.num_models
  examples_type = tff.SequenceType(
      tff.types.tensorflow_to_type(model.input_spec)
  )
  data_type = examples_type
  if client_keys:
    data_type = tff.to_type({
        EXAMPLES: examples_type,
        KEY: keyed_data.KEYS_TYPE,
    })
  slice_type = tff.SequenceType(tff.TensorType(np.float32, [size]))
  key_type, round_type = tff.TensorType(np.int64, [2]), tff.TensorType(np.int64)
  noise_domain = f'{_NOISE}|{step!r}|{size}'

  if client_keys:

    @tff.tensorflow.computation(data_type)
    @tf.function
    def key(data):
      return keyed_data.only_key(data[KEY])

  else:

    @tff.tensorflow.computation
    @tf.function(autograph=False)
    def key():
      return streams.random_root_key()

  @tff.tensorflow.computation(key_type, round_type)
  @tf.function(autograph=False)
  def draw(key, round_index):
    drawn = streams.integers(
        [1],
        streams.fold_in(streams.domain_key(key, _DRAW), round_index),
        below=num_models,
        dtype=tf.int32,
    )
    drawn = release_marks.mark_coin(drawn)
    return drawn, drawn[: int(plan.server.needs_drawn)]

  # A separate computation, because the slices are rows and a client's examples
  # are batches. See `keyed_data.KEYS_TYPE`.
  @tff.tensorflow.computation(slice_type)
  @tf.function
  def instance(slices):
    return keyed_data.only_element(
        slices, tf.TensorSpec([size]), 'instance'
    )

  @tff.tensorflow.computation(tff.TensorType(np.float32, [size]), data_type)
  def move(instance, data):
    gradient = model.build_gradient()

    @tf.function
    def run(instance, data):
      total = tf.zeros([size], tf.float64)
      loss = tf.constant(0.0)
      num_examples = tf.constant(0, tf.int64)
      num_refused = tf.constant(0, tf.int64)
      for batch in iter(data[EXAMPLES] if client_keys else data):
        of_batch, mean_loss, length, refused = gradient(instance, batch)
        # A batch without records has no mean.
        if length > 0:
          total += tf.cast(of_batch, tf.float64) * tf.cast(length, tf.float64)
          loss += mean_loss * tf.cast(length, tf.float32)
        num_examples += length
        num_refused += refused
      count = tf.cast(tf.maximum(num_examples, 1), tf.float64)
      moved = tf.cast(instance, tf.float64) - step.learning_rate * clip(
          total / count, step
      )
      return moved, Sums(loss, num_examples, num_refused)

    return run(instance, data)

  @tff.tensorflow.computation(
      tff.TensorType(np.float64, [size]), key_type, round_type
  )
  @tf.function(autograph=False)
  def report(moved, key, round_index):
    if not step.is_private:
      # The plan says so by name, and every statement of it says NO PRIVACY.
      return release_of(plan).mark(tf.cast(moved, tf.float32))
    key = streams.fold_in(streams.domain_key(key, noise_domain), round_index)
    key = streams.fold_in(key, streams.digest(moved))
    noised = moved + draw_noise(step, size, key)
    return release_of(plan).mark(tf.cast(noised, tf.float32))

  return ClientComputations(data_type, key, draw, instance, move, report)


def clip(gradient: tf.Tensor, step: client_steps.ClientStep) -> tf.Tensor:
  """Returns the gradient, clipped to the bound of the step, float64.

  The result is zero if a coordinate of the gradient is not finite.

  Args:
    gradient: Gradient, float64 of shape [p].
    step: Step with the kind and size of the bound.
  """
  gradient = tf.where(
      tf.reduce_all(tf.math.is_finite(gradient)),
      gradient,
      tf.zeros_like(gradient),
  )
  if step.clip == 'box':
    return tf.clip_by_value(gradient, -step.clip_norm, step.clip_norm)
  # Divide by the largest coordinate, so that no square is infinite.
  largest = tf.reduce_max(tf.abs(gradient))
  unit = tf.math.divide_no_nan(gradient, largest)
  norm = (
      tf.reduce_sum(tf.abs(unit))
      if step.clip == 'l1'
      else tf.sqrt(tf.reduce_sum(unit**2))
  )
  bound = step.clip_norm * (1.0 - _MARGIN)
  is_within = norm * largest <= bound
  return tf.where(
      is_within, gradient, unit * tf.math.divide_no_nan(bound, norm)
  )


def draw_noise(
    step: client_steps.ClientStep, num_params: int, key: tf.Tensor
) -> tf.Tensor:
  """Returns the noise on the weights, float64 of shape [num_params].

  The noise is float64, so that only its sum with the data is rounded to
  float32.

  Args:
    step: Step with the distribution and scale of the noise.
    num_params: Length of the noise.
    key: Secret key, int64 of shape [2]. It must not be used for anything else.
  """
  scale = step.noise_scale(num_params)
  if step.mechanism == 'gaussian':
    return scale * streams.normals([num_params], key, tf.float64)
  return scale * streams.laplace([num_params], key)
