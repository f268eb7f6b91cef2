# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Federated least squares under a plan's noise, as a TFF learning process."""

import collections
from typing import Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.learning import averaging as averaging_lib
from tff_dp.learning import constraints
from tff_dp.learning import finalizers
from tff_dp.learning import process as process_lib
from tff_dp.mechanisms import workloads
from tff_dp.systems.dp_ftrl import least_squares
from tff_dp.systems.dp_ftrl import plan as plan_lib

# Room for a clip norm that was computed in float32.
_TOLERANCE = 1e-6


@_calls.helpful
def build_least_squares(
    plan: plan_lib.DpFtrlPlan,
    *,
    num_features: int,
    feature_norm_bound: float,
    server_learning_rate: float,
    constraint: Optional[constraints.L2Ball] = None,
    averaging: Optional[averaging_lib.Average] = None,
    insecure_seed: Optional[int] = None,
) -> process_lib.PrivateLearningProcess:
  """Returns a process of least squares from noised moments (A_FTRL-LS).

  Clients send the sums of x x^T and y x over their samples. The plan clips the
  p (p + 1) / 2 + p numbers of a client as one vector, and noises the sum of
  these vectors with one mechanism. The server adds up the noised sums of all
  rounds and computes a new model from them in every round (`least_squares` has
  the formulas).

  Clients' datasets are batches of `OrderedDict(x, y)`, float32, of shapes
  [batch, num_features] and [batch]. Append a column of ones for an intercept.
  Samples beyond the bounds are scaled or clipped to them. Samples with a NaN or
  an infinity count as zero. The bounds are declared, never taken from the data.
  The model is `ModelWeights(trainable=[theta], non_trainable=[])`. It begins at
  zero. The next round replaces weights that you have set.

  The moments do not depend on the model. So, unlike in FTRL, the sums here
  continue when a new tree of the plan begins. If they began anew, the model
  would forget all samples of earlier trees. The model does not jump at a
  restart, and the final noise of finished trees stays in the sums.

  The server's state holds the model and the sums, one vector as large as a
  client's update. The mechanism's noise takes `Mechanism.state_copies` vectors
  of this size, and `averaging` takes one more model. A round costs one
  eigendecomposition, of order num_features^3.

  Args:
    plan: A `DpFtrlPlan` without adaptive clipping. Its `l2_norm_clip` bounds
      the vector of one client. It must be at most
      `moments_norm_bound(feature_norm_bound)`, the largest norm that the vector
      of one sample can have. So a client has at most the influence of one
      sample.
    num_features: Number of features p.
    feature_norm_bound: Declared bound R on `|x|`. The bound on `|y|` is 1.
    server_learning_rate: Learning rate eta = 1 / lambda. The server minimises
      the sum over rounds of the clients' *mean* loss, plus lambda / 2
      `|theta|^2`.
    constraint: `None`, or the ball in which the model has to stay.
    averaging: Average of the models to keep in addition to the last one.
    insecure_seed: Seed for tests only, see `CorrelatedNoiseFactory`.

  Raises:
    ArgumentError: If a value is outside its range or does not fit the others.
  """
  plan_lib.check_is_dp_ftrl(plan)
  _checks.integer_at_least(1, num_features=num_features)
  _checks.positive(feature_norm_bound=feature_norm_bound)
  _checks.positive(server_learning_rate=server_learning_rate)
  bound = least_squares.moments_norm_bound(feature_norm_bound)
  if plan.l2_norm_clip > bound * (1.0 + _TOLERANCE):
    raise _checks.ArgumentError(
        'plan.l2_norm_clip',
        plan.l2_norm_clip,
        f'a number of at most R sqrt(R^2 + 1) = {bound!r}, the largest norm of'
        ' the moments of one sample with feature_norm_bound'
        f' R={feature_norm_bound}',
    )
  if getattr(plan, 'adaptive_clipping', None) is not None:
    raise _checks.ArgumentError(
        'plan.adaptive_clipping',
        plan.adaptive_clipping,
        'None: here the clip norm follows from the declared bounds on samples',
    )
  radius = None
  if isinstance(constraint, constraints.L2Ball):
    radius = float(constraint.radius)
  elif constraint is not None:
    raise _checks.ArgumentError(
        'constraint',
        constraint,
        'None or an L2Ball, for which the exact minimiser is known',
    )

  @tff.tensorflow.computation
  def initial_weights():
    return tff.learning.models.ModelWeights(
        trainable=[tf.zeros([num_features])], non_trainable=[]
    )

  weights_type = initial_weights.type_signature.result
  return process_lib.compose(
      plan,
      initial_weights=initial_weights,
      client_work=_build_client_work(
          weights_type, num_features, float(feature_norm_bound)
      ),
      finalizer=_build_finalizer(
          weights_type, num_features, float(server_learning_rate), radius
      ),
      workload=workloads.Workload(),
      averaging=averaging,
      insecure_seed=insecure_seed,
  )


def _build_client_work(
    weights_type: tff.Type, num_features: int, feature_norm_bound: float
) -> tff.learning.templates.ClientWorkProcess:
  """Returns the client work that sums up the moments of a client's samples.

  The measurements are the mean loss of the model before the round and the
  number of examples. They have no noise, like the measurements of TFF's client
  work.
  """
  data_type = tff.SequenceType(
      collections.OrderedDict(
          x=tff.TensorType(np.float32, [None, num_features]),
          y=tff.TensorType(np.float32, [None]),
      )
  )

  # Autograph's loop: `Dataset.reduce` takes several times as long.
  @tff.tensorflow.computation(weights_type, data_type)
  @tf.function
  def sum_moments(weights, dataset):
    theta = weights.trainable[0]
    second = tf.zeros([num_features, num_features])
    cross = tf.zeros([num_features])
    loss = tf.constant(0.0)
    num_examples = tf.constant(0, tf.int64)
    for batch in iter(dataset):
      x, y = least_squares.bounded_samples(
          batch['x'], batch['y'], feature_norm_bound=feature_norm_bound
      )
      second += tf.matmul(x, x, transpose_a=True)
      cross += tf.linalg.matvec(x, y, transpose_a=True)
      loss += tf.reduce_sum((y - tf.linalg.matvec(x, theta)) ** 2)
      num_examples += tf.cast(tf.shape(y)[0], tf.int64)
    result = tff.learning.templates.ClientResult(
        update=least_squares.encode(second, cross),
        update_weight=tf.constant(1.0),
    )
    return result, collections.OrderedDict(loss=loss, num_examples=num_examples)

  @tff.tensorflow.computation(sum_moments.type_signature.result[1])
  def finalize(summed):
    count = summed['num_examples']
    return collections.OrderedDict(
        train=collections.OrderedDict(
            loss=tf.math.divide_no_nan(
                summed['loss'], tf.cast(count, tf.float32)
            ),
            num_examples=count,
        )
    )

  @tff.federated_computation
  def init_fn():
    return tff.federated_value((), tff.SERVER)

  @tff.federated_computation(
      init_fn.type_signature.result,
      tff.FederatedType(weights_type, tff.CLIENTS),
      tff.FederatedType(data_type, tff.CLIENTS),
  )
  def next_fn(state, weights, datasets):
    result, metrics = tff.federated_map(sum_moments, (weights, datasets))
    measurements = tff.federated_map(finalize, tff.federated_sum(metrics))
    return tff.templates.MeasuredProcessOutput(state, result, measurements)

  return tff.learning.templates.ClientWorkProcess(init_fn, next_fn)


def _build_finalizer(
    weights_type: tff.Type,
    num_features: int,
    learning_rate: float,
    radius: Optional[float],
) -> tff.learning.templates.FinalizerProcess:
  """Returns the finalizer that adds up noised moments and solves for theta."""
  size = least_squares.num_moments(num_features)
  moments_type = tff.TensorType(np.float32, [size])

  @tff.tensorflow.computation
  def initialize():
    return collections.OrderedDict(moments=tf.zeros([size]))

  state_type = initialize.type_signature.result

  @tff.tensorflow.computation(
      state_type, weights_type.trainable, moments_type
  )
  @tf.function(autograph=False)
  def apply(state, unused_trainable, residual):
    moments = state['moments'] + residual
    second, cross = least_squares.decode(moments, num_features=num_features)
    solution = least_squares.solve(
        second, cross, learning_rate=learning_rate, radius=radius
    )
    theta = tf.cast(solution.theta, tf.float32)
    measurements = collections.OrderedDict(
        num_raised_eigenvalues=solution.num_raised
    )
    return collections.OrderedDict(moments=moments), [theta], measurements

  return finalizers.from_computations(
      initialize,
      apply,
      model_weights_type=weights_type,
      update_type=moments_type,
  )
