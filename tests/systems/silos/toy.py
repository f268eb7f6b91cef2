# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Silos whose messages can be read, and models whose gradients are known."""

import collections
import functools
from unittest import mock

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import silos
from tff_dp.learning import finalizers
from tff_dp.systems.silos import plan as silo_plan
from tff_dp.systems.silos import plan_base
from tff_dp.systems.silos import process
from tff_dp.systems.silos import secure_sum_plan
from tff_dp.systems.silos import silo_budget

SiloBudget = silo_budget.SiloBudget


def build_model(
    num_params: int, *, curvature=None, initial=None
) -> tff.learning.models.FunctionalModel:
  """Returns a model of two tensors whose gradients are known.

  The gradient of record x is x, or curvature * (w - x), elementwise.

  Args:
    num_params: At least 2; the first tensor has the shape [num_params - 1, 1].
    curvature: Eigenvalues of the Hessian, or `None` for a linear loss.
    initial: Initial weights as one vector, zeros by default.
  """
  if initial is None:
    initial = np.zeros(num_params)
  initial = np.asarray(initial, np.float32)

  @tf.function
  def predict(weights, x, training=True):
    del training
    (first, second), _ = weights
    flat = tf.concat([tf.reshape(first, [-1]), second], axis=0)
    if curvature is None:
      return tf.linalg.matvec(x, flat)
    scales = tf.constant(curvature, tf.float32)
    return 0.5 * tf.reduce_sum(scales * (flat - x) ** 2, axis=1)

  def loss(output, label, sample_weight=None):
    del label, sample_weight
    return tf.reduce_mean(output)

  return tff.learning.models.FunctionalModel(
      initial_weights=(
          (initial[:-1].reshape([-1, 1]), initial[-1:]),
          (),
      ),
      predict_on_batch_fn=predict,
      loss_fn=loss,
      input_spec=(
          tf.TensorSpec([None, num_params], tf.float32),
          tf.TensorSpec([None], tf.float32),
      ),
  )


def examples(rows, batch: int = 3) -> list:
  """Returns the batches of a silo whose records are the rows."""
  rows = np.asarray(rows, np.float32)
  return [
      (rows[start : start + batch], np.zeros(len(rows[start : start + batch]),
                                             np.float32))
      for start in range(0, len(rows), batch)
  ]


def flat(weights: tff.learning.models.ModelWeights) -> np.ndarray:
  return np.concatenate([np.ravel(tensor) for tensor in weights.trainable])


class Tap(tff.aggregators.UnweightedAggregationFactory):
  """The mean of the messages; what each silo sent is in the measurements."""

  def create(self, value_type) -> tff.templates.AggregationProcess:
    mean = tff.aggregators.UnweightedMeanFactory().create(value_type)

    @tff.tensorflow.computation(value_type)
    @tf.function(autograph=False)
    def flatten(value):
      return finalizers.flatten(value)

    rows_type = tff.TensorType(
        np.float32, [None, flatten.type_signature.result.shape[0]]
    )

    @tff.tensorflow.computation
    @tf.function(autograph=False)
    def zero():
      return tf.zeros([0, rows_type.shape[1]])

    @tff.tensorflow.computation(rows_type, flatten.type_signature.result)
    @tf.function(autograph=False)
    def accumulate(rows, row):
      return tf.concat([rows, row[tf.newaxis]], axis=0)

    @tff.tensorflow.computation(rows_type, rows_type)
    @tf.function(autograph=False)
    def merge(left, right):
      return tf.concat([left, right], axis=0)

    @tff.tensorflow.computation(rows_type)
    @tf.function(autograph=False)
    def report(rows):
      return tf.identity(rows)

    @tff.federated_computation(
        mean.initialize.type_signature.result,
        tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      output = mean.next(state, value)
      messages = tff.federated_aggregate(
          tff.federated_map(flatten, value), zero(), accumulate, merge, report
      )
      return tff.templates.MeasuredProcessOutput(
          output.state,
          output.result,
          tff.federated_zip(collections.OrderedDict(messages=messages)),
      )

    return tff.templates.AggregationProcess(mean.initialize, next_fn)


def messages(output) -> np.ndarray:
  """Returns what silos sent in a round of a process with a `Tap`, one a row."""
  return np.asarray(output.metrics['aggregator']['aggregator']['messages'])


class Runner:
  """A process and its state; `round` returns the messages."""

  def __init__(self, process: process.SiloProcess):
    self.process = process
    self.state = process.initialize()

  def round(self, data) -> np.ndarray:
    """Runs a round with name -> examples, or with pairs of them."""
    pairs = data.items() if isinstance(data, dict) else data
    output = self.process.next(
        self.state,
        [self.process.client_data(name, part) for name, part in pairs],
    )
    self.state = output.state
    self.metrics = output.metrics
    return messages(output)

  @property
  def sent_out(self) -> np.ndarray:
    return flat(self.state.global_model_weights)

  @property
  def result(self) -> np.ndarray:
    return flat(self.process.get_model_weights(self.state))


class _Planned(Exception):
  """Stops a builder that has made its plan, the argument."""


def plan_of(build) -> plan_base.PlanOfSilos:
  """Returns the plan that a builder makes, and spares the graph of the process.
  """

  def stopping(make):
    def stop(*args, **arguments):
      raise _Planned(make(*args, **arguments))

    return stop

  with mock.patch.object(
      silo_plan, 'SiloPlan', stopping(silo_plan.SiloPlan)
  ), mock.patch.object(
      secure_sum_plan, 'SecureSumPlan', stopping(secure_sum_plan.SecureSumPlan)
  ):
    try:
      build()
    except _Planned as planned:
      return planned.args[0]
  raise AssertionError('the builder made no plan')


def build_sgd(model, **arguments) -> process.SiloProcess:
  """Returns noisy minibatch SGD with a tap, and step 1."""
  return silos.build_noisy_mb_sgd(
      model,
      **(
          dict(
              l2_norm_clip=1.0,
              learning_rate=1.0,
              averaging='last',
              model_aggregator=Tap(),
          )
          | arguments
      ),
  )


@functools.cache
def free(num_records: int, weight=None) -> SiloBudget:
  """Returns a silo without a budget, for noise that is given."""
  return SiloBudget(num_records, None, 1e-5, weight)
