# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The server's side: the mean of the noisy messages, and the model update.

Everything here is post-processing of noisy messages with public constants:
regulariser, projection, step sizes, averages, restarts. A round in which no
silo reports changes neither the model nor the state. The network decides how
many silos report. That number is public.

`state` of a finalizer: `OrderedDict(step, ...)`. At step 0 the finalizer begins
at the model that it is given. So to set a model, `step` is set to 0.
"""

import collections
from collections.abc import Callable, Sequence
import dataclasses
from typing import Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _calls
from tff_dp.learning import averaging as averaging_lib
from tff_dp.learning import constraints
from tff_dp.learning import finalizers
from tff_dp.systems.silos import minibatch_schedules

STEP = 'step'
# The iterate w, the result w_ag and the centre of the regulariser.
_ITERATE, _RESULT, _CENTRE = 'iterate', 'result', 'centre'
_MEAN = 'mean'
# Output of the aggregator for the finalizer.
UPDATE, NUM_SILOS = 'update', 'num_silos'


def build_sgd_finalizer(
    weights_type: tff.StructWithPythonType,
    *,
    learning_rates: np.ndarray,
    constraint: constraints.Constraint,
    regularization: float = 0.0,
    average: Optional[averaging_lib.Average] = None,
) -> tff.learning.templates.FinalizerProcess:
  """Returns the finalizer of projected SGD, for noisy minibatch SGD.

      w_{r+1} = Proj(w_r - eta_r (g + lambda (w_r - w_0)))

  Here g is the mean of the messages of round r. `average` is over w_0..w_{R-1},
  the models at which gradients were taken. `averaged_result` returns it.
  Source: arXiv:2106.09779, algorithm 2.

  Args:
    weights_type: Type of the model's weights.
    learning_rates: Learning rates eta_0..eta_{R-1}.
    constraint: Set in which the model has to stay.
    regularization: Regularisation lambda.
    average: Average of the models, or `None`.
  """
  num_rounds = len(learning_rates)
  rates = np.asarray(learning_rates, np.float32)

  def advance(step, state, weights, gradient):
    is_first = tf.equal(step, 0)
    centre = tf.where(is_first, weights, state[_CENTRE])
    gradient += regularization * (weights - centre)
    index = tf.minimum(step, num_rounds - 1)
    new_weights = constraint.project(
        weights - tf.constant(rates)[index] * gradient
    )
    new_state = {_CENTRE: centre}
    if average is not None:
      new_state |= _averaged(average, num_rounds, step, state, weights)
    return new_state, new_weights

  names = (_CENTRE,) if average is None else (_CENTRE, _MEAN)
  return _build(weights_type, names, advance)


def build_replacing_finalizer(
    weights_type: tff.StructWithPythonType,
    *,
    num_rounds: int,
    constraint: constraints.Constraint,
    average: Optional[averaging_lib.Average] = None,
) -> tff.learning.templates.FinalizerProcess:
  """Returns the finalizer of local SGD: the mean of the silos' models.

  Args:
    weights_type: Type of the model's weights.
    num_rounds: Number of rounds R.
    constraint: Set in which the model has to stay.
    average: Average of the models w_1..w_R after the rounds, or `None`.
  """

  def advance(step, state, weights, mean):
    del weights
    new_weights = constraint.project(mean)
    if average is not None:
      state = _averaged(average, num_rounds, step, state, new_weights)
    return state, new_weights

  return _build(weights_type, () if average is None else (_MEAN,), advance)


def _averaged(average, num_rounds: int, step, state, weights) -> dict:
  """Returns the state of an average with one more model in it."""
  shares = averaging_lib.shares_of(average, num_rounds)
  share = tf.constant(shares)[tf.minimum(step, num_rounds - 1)]
  # Select instead of multiply, because the old value of the average must not
  # count.
  mean = tf.where(tf.equal(step, 0), weights, state[_MEAN])
  return {_MEAN: (1.0 - share) * mean + share * weights}


@dataclasses.dataclass(frozen=True)
class Leg:
  """Stages of AC-SA, see `minibatch_schedules`, around one centre.

  Attributes:
    stages: Stages in order.
    strong_convexity: Strong convexity mu of the loss, without the regulariser.
    regularization: Lambda of lambda/2 |w - centre|^2, added at the server.
    radius: Radius of the ball around the centre in which w has to stay. `None`
      means only the constraint of the process.
  """

  stages: tuple[minibatch_schedules.Stage, ...]
  strong_convexity: float = 0.0
  regularization: float = 0.0
  radius: Optional[float] = None


def build_accelerated_finalizer(
    weights_type: tff.StructWithPythonType,
    legs: tuple[Leg, ...],
    *,
    constraint: constraints.Constraint,
) -> tff.learning.templates.FinalizerProcess:
  """Returns the finalizer of AC-SA, see `minibatch_schedules`.

  The state has an iterate w and the result w_ag. The global weights are w_md,
  the point at which silos compute gradients. A round with the mean g of the
  messages computes

      g    <- g + lambda (w_md - centre)
      w    <- Proj(w_of_md w_md + w_of_w w - w_of_gradient g)
      w_ag <- ag_of_w w + (1 - ag_of_w) w_ag

  and then the next w_md. A new stage begins with w = w_ag. A new leg also sets
  centre = w_ag. After the last round w_md is w_ag.

  Args:
    weights_type: Type of the model's weights.
    legs: Legs in order.
    constraint: Set in which w has to stay.
  """
  table = _table(legs)
  names = (_ITERATE, _RESULT, _CENTRE)

  def row(index):
    return {name: tf.constant(column)[index] for name, column in table.items()}

  def advance(step, state, weights, gradient):
    is_first = tf.equal(step, 0)
    iterate, result, centre = (
        tf.where(is_first, weights, state[name])
        for name in names
    )
    now, then = row(step), row(step + 1)
    gradient += now['regularization'] * (weights - centre)
    iterate = (
        now['w_of_md'] * weights
        + now['w_of_w'] * iterate
        - now['w_of_gradient'] * gradient
    )
    if any(leg.radius is not None for leg in legs):
      offset = iterate - centre
      scale = tf.minimum(
          1.0, tf.math.divide_no_nan(now['radius'], tf.norm(offset))
      )
      # `divide_no_nan` gives 0 at the centre itself, where the offset is 0
      # anyway.
      iterate = centre + scale * offset
    iterate = constraint.project(iterate)
    result = now['ag_of_w'] * iterate + (1.0 - now['ag_of_w']) * result
    iterate = tf.where(then['is_new_stage'], result, iterate)
    centre = tf.where(then['is_new_leg'], result, centre)
    sent_out = then['md_of_ag'] * result + then['md_of_w'] * iterate
    return dict(zip(names, (iterate, result, centre))), sent_out

  return _build(weights_type, names, advance)


def accelerated_result(
    finalizer_state, weights: tff.learning.models.ModelWeights
) -> tff.learning.models.ModelWeights:
  """Returns w_ag as a model. At step 0 this is the given model."""
  result = finalizers.unflatten(
      tf.where(
          tf.equal(finalizer_state[STEP], 0),
          finalizers.flatten(weights.trainable),
          finalizer_state[_RESULT],
      ),
      like=weights.trainable,
  )
  return tff.learning.models.ModelWeights(result, weights.non_trainable)


def averaged_result(
    finalizer_state, weights: tff.learning.models.ModelWeights
) -> tff.learning.models.ModelWeights:
  """Returns the average as a model. At step 0 this is the given model."""
  return averaging_lib.averaged_weights(
      {
          'averaging': {
              'round': finalizer_state[STEP],
              'mean': finalizers.unflatten(
                  finalizer_state[_MEAN], like=weights.trainable
              ),
          }
      },
      weights,
  )


def _table(legs: tuple[Leg, ...]) -> dict[str, np.ndarray]:
  """Returns columns of constants: one entry for each round, and one after."""
  columns = collections.defaultdict(list)
  for leg in legs:
    for index, stage in enumerate(leg.stages):
      coefficients = minibatch_schedules.accelerated_coefficients(
          stage.num_rounds,
          gamma=stage.gamma,
          strong_convexity=leg.strong_convexity + leg.regularization,
      )
      for name, column in coefficients._asdict().items():
        columns[name].append(column)
      is_first = np.arange(stage.num_rounds) == 0
      columns['is_new_stage'].append(is_first)
      columns['is_new_leg'].append(is_first & (index == 0))
      columns['regularization'].append(
          np.full(stage.num_rounds, leg.regularization)
      )
      columns['radius'].append(
          np.full(
              stage.num_rounds, np.inf if leg.radius is None else leg.radius
          )
      )
  last = dict(md_of_ag=1.0)
  return {
      name: np.append(np.concatenate(parts), last.get(name, 0)).astype(
          bool if name.startswith('is_') else np.float32
      )
      for name, parts in columns.items()
  }


def _build(
    weights_type: tff.StructWithPythonType,
    names: Sequence[str],
    advance: Callable[..., tuple[dict[str, tf.Tensor], tf.Tensor]],
) -> tff.learning.templates.FinalizerProcess:
  """Returns the finalizer of one rule on flat vectors.

  Args:
    weights_type: Type of the model's weights.
    names: Names of the vectors that the rule keeps.
    advance: Function that maps (step, state, weights, mean message) to (state,
      new weights).
  """
  num_params = finalizers.num_params(weights_type.trainable)
  update_type = tff.to_type(
      collections.OrderedDict({
          UPDATE: weights_type.trainable,
          NUM_SILOS: np.int32,
      })
  )

  @tff.tensorflow.computation
  @tf.function(autograph=False)
  def initialize():
    vectors = {name: tf.zeros([num_params]) for name in names}
    return collections.OrderedDict({STEP: tf.constant(0, tf.int64)} | vectors)

  state_type = initialize.type_signature.result

  @tff.tensorflow.computation(state_type, weights_type.trainable, update_type)
  @tf.function(autograph=False)
  def apply(state, trainable, update):
    def move():
      vectors, weights = advance(
          state[STEP],
          {name: state[name] for name in names},
          finalizers.flatten(trainable),
          finalizers.flatten(update[UPDATE]),
      )
      new_state = collections.OrderedDict(
          {STEP: state[STEP] + 1} | {name: vectors[name] for name in names}
      )
      return new_state, finalizers.unflatten(weights, like=trainable)

    new_state, weights = tf.cond(
        update[NUM_SILOS] > 0,
        move,
        lambda: tf.nest.map_structure(
            tf.identity, (collections.OrderedDict(state), trainable)
        ),
    )
    return new_state, weights, collections.OrderedDict()

  return finalizers.from_computations(
      initialize,
      apply,
      model_weights_type=weights_type,
      update_type=update_type,
  )


class ReportedMeanFactory(tff.aggregators.UnweightedAggregationFactory):
  """The unweighted mean of the messages, together with the number of silos.

      next: OrderedDict(update=inner(messages), num_silos)

  Without any silo, `update` is the inner factory's result for no values (NaN by
  default). Finalizers must not use it.

  Attributes:
    state: State of the inner factory.
    measurements: `OrderedDict(num_silos)`, and the measurements of the inner
      factory, if it has any, under `aggregator`.
  """

  def __init__(
      self,
      inner: Optional[tff.aggregators.UnweightedAggregationFactory] = None,
  ):
    """Initializes the factory.

    Args:
      inner: Factory that computes a mean. Default: TFF's
        `UnweightedMeanFactory`.
    """
    self._inner = inner or tff.aggregators.UnweightedMeanFactory()

  @_calls.unweighted
  def create(self, value_type) -> tff.templates.AggregationProcess:
    inner = self._inner.create(value_type)
    measured = inner.next.type_signature.result.measurements.member
    has_measurements = bool(
        tf.nest.flatten(tff.types.type_to_tf_tensor_specs(measured))
    )

    @tff.federated_computation(
        inner.initialize.type_signature.result,
        tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      output = inner.next(state, value)
      num_silos = tff.federated_sum(tff.federated_value(1, tff.CLIENTS))
      measurements = collections.OrderedDict({NUM_SILOS: num_silos})
      if has_measurements:
        measurements['aggregator'] = output.measurements
      return tff.templates.MeasuredProcessOutput(
          output.state,
          tff.federated_zip(
              collections.OrderedDict(
                  {UPDATE: output.result, NUM_SILOS: num_silos}
              )
          ),
          tff.federated_zip(measurements),
      )

    return tff.templates.AggregationProcess(inner.initialize, next_fn)
