# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Aggregation factory: correlated noise with a clip norm that adapts.

In round t, with the clip norm c of the current tree,

    g_t = sum over clients of clip(x, c)
    h_t = sum over clients of (+1/2 if |x| <= c else -1/2)
    result = (g_t + value multiplier * c * n_t) / clients_per_round
    bits   = (h_t + quantile multiplier * 1/2 * m_t) / clients_per_round

where n_t and m_t are the residual noise of the mechanism, for draws of variance
1, in the key domains 'value' and 'quantile'. When a tree of R rounds is
finished, the mean of its R values of `bits`, plus 1/2, estimates the share of
clients within c. The next tree begins with

    c * exp(-learning_rate * (estimate - target_quantile)).

Here the estimate is cut to [0, 1]. The new clip norm stays within
`_checks.CLIP_NORMS`.

`mechanisms.adaptive_clipping` explains why both streams together cost as much
as one stream with the plan's noise multiplier.
"""

import collections
import dataclasses
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.aggregators import clipping
from tff_dp.aggregators import correlated_noise
from tff_dp.aggregators import noise_state
from tff_dp.aggregators import shuffle
from tff_dp.mechanisms import adaptive_clipping as adaptive_clipping_lib
from tff_dp.mechanisms import mechanism as mechanism_lib

QUANTILE_DOMAIN = 'quantile'

# Step of the grid on which updates are added up, relative to the power of two
# below the clip norm.
_STEP = shuffle.grid_step(1.0)
# The bits of a float32 that hold its exponent.
_EXPONENT = 0x7F800000


class AdaptiveClippingFactory(correlated_noise.CorrelatedNoiseFactory):
  """`CorrelatedNoiseFactory` whose clip norm follows a quantile of norms.

  The server sends the clip norm of the current tree to the clients. With its
  update, a client sends a bit: +1/2 if its norm is within the clip norm, -1/2
  if not. A client whose norm is not finite in float32 counts as zero, and so as
  within the clip norm. The clip norm depends only on noised bits of finished
  trees. The clip norm and the scale of the noise change only when a tree
  begins. If the noise of the rounds is independent, they change in every round.

  `state`: `OrderedDict(release_id, key, is_key_insecure, round, tree_id,
  round_in_tree, digests, buffers, clip_norm, quantile)`. `quantile` is
  `OrderedDict(bits, buffers)`, where `bits` is the sum of the noised means of
  the bits over the rounds of the current tree. The state holds no un-noised
  data, except the keyed digests. The noise of updates and the noise of bits
  depend on the same digests, which are made from updates and bits together.

  `measurements`: the measurements of `CorrelatedNoiseFactory`, with the
  `clip_norm` of the round, and `quantile_estimate`. This is the estimated share
  of clients within the clip norm, from the noised bits of the tree so far. The
  guarantee covers it. Because of its noise it may lie outside [0, 1].
  """

  def __init__(
      self,
      mechanism: mechanism_lib.Mechanism,
      *,
      adaptive_clipping: adaptive_clipping_lib.AdaptiveClipping,
      noise_multiplier: float,
      initial_l2_norm_clip: float,
      clients_per_round: int,
      insecure_seed: Optional[int] = None,
      plan: Any = None,
  ):
    """Initializes the factory.

    Args:
      mechanism: Mechanism that adds the noise of every round, to updates and to
        bits.
      adaptive_clipping: Target quantile, learning rate, and the share of the
        guarantee that is spent on the bits.
      noise_multiplier: Noise multiplier of a single stream that costs as much
        as the streams of updates and of bits together. 0 adds no noise and
        gives no privacy.
      initial_l2_norm_clip: Clip norm of the first tree.
      clients_per_round: Expected number of clients, the divisor.
      insecure_seed: Seed for tests only. It replaces the secret key by one that
        anybody who knows the seed can compute.
      plan: Plan of the factory, see `CorrelatedNoiseFactory`.

    Raises:
      ArgumentError: If a value is outside its range.
      PrivacyRefusedError: If the mechanism does not allow the clip norm to
        change.
    """
    _checks.clip_norm(initial_l2_norm_clip=initial_l2_norm_clip)
    super().__init__(
        mechanism,
        noise_multiplier=noise_multiplier,
        l2_norm_clip=initial_l2_norm_clip,
        clients_per_round=clients_per_round,
        insecure_seed=insecure_seed,
        plan=plan,
    )
    self._adaptive_clipping = adaptive_clipping
    self._rounds_per_clip_norm = adaptive_clipping_lib.rounds_per_clip_norm(
        mechanism
    )
    self._value_multiplier = adaptive_clipping.value_noise_multiplier(
        noise_multiplier
    )
    # Noise on the sum of bits, whose sensitivity is 1/2.
    self._bits_stddev = (
        adaptive_clipping.quantile_noise_multiplier(noise_multiplier)
        * adaptive_clipping_lib.BIT
    )

  def _facts(self) -> dict[str, Any]:
    return {
        **super()._facts(),
        'adaptive_clipping': dataclasses.asdict(self._adaptive_clipping),
    }

  def _create_flat(
      self, value_type: tff.TensorType
  ) -> tff.templates.AggregationProcess:
    """Creates the process for one vector per client."""
    correlated_noise.check_flat(value_type)
    initialize_state = self._build_adaptive_initialize(value_type.shape[0])
    state_type = initialize_state.type_signature.result
    begin_round = self._build_begin_round(state_type)
    encode = _build_encode(value_type)
    add_up = shuffle.build_sum(value_type.shape[0], step=_STEP)
    release = self._build_adaptive_release(
        state_type, value_type.shape[0], encode.type_signature.result[1]
    )

    @tff.federated_computation
    def init_fn():
      return tff.federated_eval(initialize_state, tff.SERVER)

    @tff.federated_computation(
        tff.FederatedType(state_type, tff.SERVER),
        tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      state, clip_norm = tff.federated_map(begin_round, state)
      encoded, counts = tff.federated_map(
          encode, (value, tff.federated_broadcast(clip_norm))
      )
      new_state, result, measurements = tff.federated_map(
          release,
          (state, add_up(encoded)['total'], tff.federated_sum(counts)),
      )
      return tff.templates.MeasuredProcessOutput(
          new_state, result, measurements
      )

    return tff.templates.AggregationProcess(init_fn, next_fn)

  def _build_adaptive_initialize(self, num_params: int) -> tff.Computation:
    initialize_values = self._build_initialize(num_params)

    @tff.tensorflow.computation
    @tf.function(autograph=False)
    def initialize():
      buffers = ()
      if self._noise_multiplier > 0:
        buffers = self._mechanism.initialize(tf.zeros([1], tf.float32))
      return collections.OrderedDict(
          **initialize_values(),
          clip_norm=tf.constant(self._l2_norm_clip, tf.float32),
          quantile=collections.OrderedDict(
              bits=tf.constant(0.0, tf.float32), buffers=buffers
          ),
      )

    return initialize

  def _build_begin_round(self, state_type) -> tff.Computation:
    @tff.tensorflow.computation(state_type)
    @tf.function(autograph=False)
    def begin_round(state):
      """Returns the state for the round that begins, and its clip norm."""
      state = self._begin(state)
      is_finished = self._is_clip_norm_finished(state)
      target = self._adaptive_clipping.target_quantile
      estimate = state['quantile']['bits'] / self._rounds_per_clip_norm + 0.5
      # A share is within [0, 1], but its noised estimate need not be.
      step = tf.clip_by_value(estimate, 0.0, 1.0) - target
      adapted = state['clip_norm'] * tf.exp(
          -self._adaptive_clipping.learning_rate * step
      )
      state['clip_norm'] = tf.where(
          is_finished,
          tf.clip_by_value(adapted, *_checks.CLIP_NORMS),
          state['clip_norm'],
      )
      state['quantile']['bits'] = tf.where(
          is_finished, 0.0, state['quantile']['bits']
      )
      return state, state['clip_norm']

    return begin_round

  def _is_clip_norm_finished(self, state):
    """Whether the round that begins needs a new clip norm."""
    if self._rounds_per_clip_norm == 1:
      return state['round'] > 0
    starts_tree, _, _ = noise_state.advance(
        self._mechanism, state['tree_id'], state['round_in_tree']
    )
    return starts_tree

  def _build_adaptive_release(
      self, state_type, num_params: int, counts_type
  ) -> tff.Computation:
    @tff.tensorflow.computation(
        state_type, tff.TensorType(np.int64, [num_params]), counts_type
    )
    @tf.function(autograph=False)
    def release(state, total, counts):
      stddev = self._value_multiplier * state['clip_norm']
      digest = self._digest(state, total, counts)
      noise, buffers = self._unit_noise(
          noise_state.VALUE_DOMAIN, state, digest, state['buffers'], num_params
      )
      bits_noise, bits_buffers = self._unit_noise(
          QUANTILE_DOMAIN, state, digest, state['quantile']['buffers'], 1
      )
      result = self.release.mark(
          correlated_noise.noised_mean(
              total,
              _STEP * _power_of_two(state['clip_norm']),
              noise,
              stddev,
              self._clients_per_round,
          )
      )
      # +1/2 for each client, but -1/2 for each that was clipped: whole bits.
      noised_bits = self.release.mark(
          correlated_noise.noised_mean(
              counts['num_clients'] - 2 * counts['num_clipped'],
              adaptive_clipping_lib.BIT,
              bits_noise[0],
              self._bits_stddev,
              self._clients_per_round,
          )
      )
      new_state = collections.OrderedDict(
          **self._advanced(state, digest),
          buffers=buffers,
          clip_norm=state['clip_norm'],
          quantile=collections.OrderedDict(
              bits=state['quantile']['bits'] + noised_bits,
              buffers=bits_buffers,
          ),
      )
      round_in_tree = new_state['round_in_tree']
      variances = tf.constant(self._mechanism.round_variances(), tf.float32)
      noise_stddev = (
          tf.sqrt(variances[round_in_tree - 1])
          * stddev
          / self._clients_per_round
      )
      num_rounds = tf.cast(
          tf.minimum(round_in_tree, self._rounds_per_clip_norm), tf.float32
      )
      measurements = collections.OrderedDict(
          clip_norm=state['clip_norm'],
          quantile_estimate=new_state['quantile']['bits'] / num_rounds + 0.5,
          noise_stddev=noise_stddev,
          round=new_state['round'],
          tree_id=new_state['tree_id'],
          snr=correlated_noise.signal_to_noise(result, noise_stddev),
          not_covered=counts,
      )
      return new_state, result, measurements

    return release


def _build_encode(value_type: tff.TensorType) -> tff.Computation:
  """Returns a computation (update, clip norm) -> (part of the sum, counts)."""

  @tff.tensorflow.computation(value_type, np.float32)
  @tf.function(autograph=False)
  def encode(update, clip_norm):
    clipped, counts = clipping.clip(update, clip_norm)
    # Exact, so that one grid serves all clip norms.
    return clipped / _power_of_two(clip_norm), counts

  return encode


def _power_of_two(clip_norm: tf.Tensor) -> tf.Tensor:
  """Returns the largest power of two up to `clip_norm`, a normal float32."""
  exponent = tf.bitcast(clip_norm, tf.int32) & tf.constant(_EXPONENT, tf.int32)
  return tf.bitcast(exponent, tf.float32)
