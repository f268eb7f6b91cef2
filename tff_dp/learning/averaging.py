# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Online-to-batch averages: one model from all models that were sent out.

With theta_t the model *before* the update of round t, an average is a running
mean

    average_t = (1 - share_t) average_{t-1} + share_t theta_t,   share_1 = 1

theta_1 is the initial model. theta_{n+1} is the last model and not in the
average. The average continues across restarts and needs one more vector of the
model's size. It is post-processing of models that were released anyway, so it
costs no privacy.

Source: Kairouz et al., arXiv:2103.00039, section 4, for the uniform average.
Only the uniform average has a guarantee: the regret of the online learner
bounds its excess population risk if no client comes twice. The other averages
are heuristics.
"""

import abc
import collections
import dataclasses
import math

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.learning import finalizers


class Average(abc.ABC):
  """A rule that gives each model's share in a running mean of models.

  The model of round t, theta_t, is the model before the round's update.
  """

  @abc.abstractmethod
  def shares(self, num_rounds: int) -> np.ndarray:
    """Returns the shares of theta_1..theta_n, float64, shape [num_rounds].

    The share of theta_t is its weight at the moment when it enters the mean.

    Args:
      num_rounds: Horizon n. A run that stops earlier has the average of the
        rounds so far.
    """


@dataclasses.dataclass(frozen=True)
class UniformAverage(Average):
  """The mean of the models theta_1..theta_n of n rounds."""

  def shares(self, num_rounds: int) -> np.ndarray:
    return 1.0 / np.arange(1, num_rounds + 1)


@dataclasses.dataclass(frozen=True)
class SuffixAverage(Average):
  """The mean of the last ceil(share n) of the models theta_1..theta_n.

  n is the planned number of rounds. Before the first of these models, the
  average after round t is the model theta_t alone.

  Attributes:
    share: Share of the models that are averaged, in (0, 1].
  """

  share: float = 0.5

  def __post_init__(self):
    _checks.positive(share=self.share)
    _checks.in_closed(0.0, 1.0, share=self.share)

  def shares(self, num_rounds: int) -> np.ndarray:
    # Rounded as in `workloads.Cooldown`, so that 0.1 * 30 is 3.
    counted = math.ceil(round(self.share * num_rounds, 9))
    rounds = np.arange(1, num_rounds + 1)
    return 1.0 / np.maximum(1, rounds - (num_rounds - counted))


@dataclasses.dataclass(frozen=True)
class ExponentialAverage(Average):
  """The mean of the models theta_t, weighted by decay^(n - t), after n rounds.

  Attributes:
    decay: Decay of the weights, in (0, 1). About 1 / (1 - decay) models count.
  """

  decay: float = 0.99

  def __post_init__(self):
    _checks.in_open(0.0, 1.0, decay=self.decay)

  def shares(self, num_rounds: int) -> np.ndarray:
    rounds = np.arange(1, num_rounds + 1)
    return (1.0 - self.decay) / -np.expm1(rounds * np.log(self.decay))


def build_averaging_finalizer(
    finalizer: tff.learning.templates.FinalizerProcess,
    average: Average,
    *,
    num_rounds: int,
) -> tff.learning.templates.FinalizerProcess:
  """Returns the finalizer, extended to keep the average of its models.

  It works with any finalizer of `tff.learning.models.ModelWeights` whose
  trainable weights are floats. `state`: `OrderedDict(finalizer, averaging)`,
  where `averaging` is the state of the average (see `averaged_weights`).
  Measurements and hyperparameters come from `finalizer`.

  Args:
    finalizer: Finalizer that updates the model.
    average: Rule of the average.
    num_rounds: Horizon of the run.

  Raises:
    ArgumentError: If `average` is not an `Average`.
  """
  _, weights_type, update_type = finalizer.next.type_signature.parameter
  trainable_type = weights_type.member.trainable
  shares = shares_of(average, num_rounds)

  @tff.tensorflow.computation
  def initialize():
    return no_models(trainable_type)

  @tff.tensorflow.computation(initialize.type_signature.result, trainable_type)
  @tf.function(autograph=False)
  def add(state, trainable):
    return with_model(state, trainable, shares)

  @tff.federated_computation
  def init_fn():
    return tff.federated_zip(
        collections.OrderedDict(
            finalizer=finalizer.initialize(),
            averaging=tff.federated_eval(initialize, tff.SERVER),
        )
    )

  @tff.federated_computation(
      init_fn.type_signature.result, weights_type, update_type
  )
  def next_fn(state, weights, update):
    # Use the weights before the update, because the new ones are not in the
    # average.
    averaging = tff.federated_map(add, (state['averaging'], weights.trainable))
    output = finalizer.next(state['finalizer'], weights, update)
    new_state = collections.OrderedDict(
        finalizer=output.state, averaging=averaging
    )
    return tff.templates.MeasuredProcessOutput(
        tff.federated_zip(new_state), output.result, output.measurements
    )

  return tff.learning.templates.FinalizerProcess(
      init_fn,
      next_fn,
      **finalizers.hparams_of(
          finalizer, init_fn.type_signature.result.member, 'finalizer'
      ),
  )


def shares_of(average: Average, num_rounds: int) -> np.ndarray:
  """Returns the result of `average.shares` as float32, shape [num_rounds].

  Args:
    average: Rule of the average.
    num_rounds: Horizon n of the run.

  Raises:
    ArgumentError: If `average` is not an `Average`.
  """
  _checks.instance_of(
      Average,
      'UniformAverage(), SuffixAverage(share), ExponentialAverage(decay), an'
      ' Average of your own, or None',
      averaging=average,
  )
  return np.asarray(average.shares(num_rounds), np.float32)


def no_models(trainable_type: tff.Type) -> collections.OrderedDict:
  """Returns the average before round 1, as tensors: zeros."""
  zeros = tf.nest.map_structure(
      lambda spec: tf.zeros(spec.shape, spec.dtype),
      tff.types.type_to_tf_tensor_specs(trainable_type),
  )
  return collections.OrderedDict(mean=zeros, round=tf.constant(0, tf.int64))


def with_model(state, trainable, shares) -> collections.OrderedDict:
  """Returns the average with one more model in it.

  Args:
    state: State of the average.
    trainable: Weights of the model.
    shares: Result of `shares_of`.
  """
  # Beyond the horizon the aggregator refuses, with the reason.
  share = tf.constant(shares)[tf.minimum(state['round'], len(shares) - 1)]

  def mean(old, new):
    weight = tf.cast(share, new.dtype)
    return (1 - weight) * old + weight * new

  return collections.OrderedDict(
      mean=tf.nest.map_structure(mean, state['mean'], trainable),
      round=state['round'] + 1,
  )


def averaged_weights(
    finalizer_state, weights: tff.learning.models.ModelWeights
) -> tff.learning.models.ModelWeights:
  """Returns the average, or the initial model before round 1, as tensors.

  Args:
    finalizer_state: State of a finalizer from `build_averaging_finalizer`.
    weights: Current model. Its non-trainable weights are not averaged.
  """
  averaging = finalizer_state['averaging']
  return tff.learning.models.ModelWeights(
      tf.nest.map_structure(
          lambda current, mean: tf.where(
              tf.equal(averaging['round'], 0), current, mean
          ),
          weights.trainable,
          averaging['mean'],
      ),
      weights.non_trainable,
  )
