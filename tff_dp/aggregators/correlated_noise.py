# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Aggregation factory: clip per client, sum, add correlated noise, divide.

    g_t = sum over clients of clip(x, l2_norm_clip)
    result = (g_t + noise_multiplier * l2_norm_clip * n_t) / clients_per_round

where n_t is the residual noise of the mechanism, for draws of variance 1. The
divisor is the *expected* number of clients, never the number that reported. A
short or empty round gets the full noise and the same divisor.

g_t is exact. Each clipped update is rounded separately, towards zero, to a grid
of at most 2^-32 clip norms. The rounded updates are added up in integers. So
one client moves g_t by its own rounded update, whose norm is at most
`l2_norm_clip`. This holds for up to 2^30 clients, for any number of weights and
for any order of the sum. (In a float32 sum, the others' rounding depends on
whether the client is there: one client moves the sum of an adversarial cohort
of 16,385 with 100,000 weights by 3.09 clip norms.) Noise is added in float64.
Only the noised sum is rounded to float32 and divided. One caveat remains:
normals are drawn as float32 numbers (Mironov, CCS 2012).
"""

import collections
import functools
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _calls
from tff_dp import _checks
from tff_dp import streams
from tff_dp.aggregators import clipping
from tff_dp.aggregators import noise_state
from tff_dp.aggregators import release_marks
from tff_dp.aggregators import shuffle
from tff_dp.mechanisms import mechanism as mechanism_lib


class CorrelatedNoiseFactory(tff.aggregators.UnweightedAggregationFactory):
  """`UnweightedAggregationFactory` for the noised mean of clipped updates.

  Wrap it with `tff.aggregators.as_weighted_aggregator` if a builder asks for a
  weighted factory: weights are data, so they are ignored. TFF's own
  `zeroing_factory` and `clipping_factory` may wrap it with a *constant* norm.
  An estimated norm depends on every client, so one client could decide which
  others are zeroed, and change the sum by many clip norms.

  A client whose update has a NaN, an infinity or a squared norm beyond float32
  counts as zero. The state holds the secret key of the noise in `key`. Treat
  checkpoints as secret, too. The draws of a round are a function of (key,
  tree_id, round_in_tree) and of everything that clients have sent so far. So if
  one state is continued twice, or a round is retried, other data get other
  noise, and the same data get the same noise.

  `state`: `OrderedDict(release_id, key, is_key_insecure, round, tree_id,
  round_in_tree, digests, buffers)`. `release_id` identifies the noise that is
  added, see `release`. A state with another `release_id` is refused. `digests`
  has 64 keyed bits for each round whose draws a later round may need. They are
  as secret as the key. The state holds no other un-noised data.

  `measurements`: `clip_norm`, `noise_stddev` (per coordinate of the result),
  `round` and `tree_id` are public. `snr` is an estimate: the norm of the signal
  over the norm of the noise. It is computed from the noised result, so the
  guarantee covers it. The entries of `not_covered` (`num_clients`,
  `num_zeroed`, `num_empty`, `num_clipped`) are exact counts, which it does not
  cover.
  """

  def __init__(
      self,
      mechanism: mechanism_lib.Mechanism,
      *,
      noise_multiplier: float,
      l2_norm_clip: float,
      clients_per_round: int,
      insecure_seed: Optional[int] = None,
      plan: Any = None,
  ):
    """Initializes the factory.

    Args:
      mechanism: Mechanism that adds the noise of every round.
      noise_multiplier: Standard deviation of one draw on the SUM, divided by
        the clip norm. 0 adds no noise and gives no privacy.
      l2_norm_clip: Bound on the L2 norm of one client's whole update.
      clients_per_round: Expected number of clients, the divisor.
      insecure_seed: Seed for tests only. It replaces the secret key by one that
        anybody who knows the seed can compute.
      plan: Plan whose `aggregator()` this is, so that `program.train` finds the
        plan of a process. It changes nothing else.

    Raises:
      ArgumentError: If a value is outside its range.
    """
    _checks.non_negative(noise_multiplier=noise_multiplier)
    _checks.clip_norm(l2_norm_clip=l2_norm_clip)
    _checks.integer_at_least(1, clients_per_round=clients_per_round)
    self._mechanism = mechanism
    self._noise_multiplier = float(noise_multiplier)
    self._l2_norm_clip = float(l2_norm_clip)
    self._clients_per_round = int(clients_per_round)
    self._insecure_seed = insecure_seed
    if insecure_seed is not None:
      _checks.integer_at_least(0, insecure_seed=insecure_seed)
    self._plan = None
    if plan is not None:
      release_marks.remember(plan)
      self._plan = plan.fingerprint

  @functools.cached_property
  def release(self) -> release_marks.Release:
    """The noise that the factory adds. Its graphs are marked with it."""
    return release_marks.Release.of(
        self._facts(), divisor=self._clients_per_round, plan=self._plan
    )

  def _facts(self) -> dict[str, Any]:
    """Returns all facts that the guarantee of the noise rests on."""
    return {
        'mechanism': self._mechanism.describe(),
        'noise_multiplier': self._noise_multiplier,
        'l2_norm_clip': self._l2_norm_clip,
    }

  @_calls.unweighted
  def create(self, value_type) -> tff.templates.AggregationProcess:
    """Creates the process. `value_type` holds float32 tensors only."""
    if isinstance(value_type, tff.TensorType) and len(value_type.shape) == 1:
      return self._create_flat(value_type)
    return tff.aggregators.concat_factory(_Flat(self)).create(value_type)

  def _create_flat(
      self, value_type: tff.TensorType
  ) -> tff.templates.AggregationProcess:
    """Creates the process for one vector per client."""
    check_flat(value_type)
    num_params = value_type.shape[0]
    initialize_noise = self._build_initialize(num_params)
    state_type = initialize_noise.type_signature.result
    clip = self._build_clip(value_type)
    add_up = shuffle.build_sum(
        num_params, step=shuffle.grid_step(self._l2_norm_clip)
    )
    counts_type = clip.type_signature.result[1]
    release = self._build_release(state_type, num_params, counts_type)

    @tff.federated_computation
    def init_fn():
      return tff.federated_eval(initialize_noise, tff.SERVER)

    @tff.federated_computation(
        tff.FederatedType(state_type, tff.SERVER),
        tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      clipped, counts = tff.federated_map(clip, value)
      new_state, result, measurements = tff.federated_map(
          release,
          (state, add_up(clipped)['total'], tff.federated_sum(counts)),
      )
      return tff.templates.MeasuredProcessOutput(
          new_state, result, measurements
      )

    return tff.templates.AggregationProcess(init_fn, next_fn)

  def _begin(self, state):
    """Returns the state. Fails if it is of other noise, or if no round is left.
    """
    is_ours = tf.debugging.assert_equal(
        state['release_id'],
        tf.constant(self.release.number, tf.int64),
        message='the state was made by an aggregator that adds other noise',
    )
    # If functions run eagerly, an assertion without dependents does not run.
    with tf.control_dependencies([is_ours]):
      return within_horizon(state, self._mechanism.num_rounds)

  def _build_initialize(self, num_params: int) -> tff.Computation:
    @tff.tensorflow.computation
    @tf.function(autograph=False)
    def initialize():
      if self._insecure_seed is None:
        key = streams.random_root_key()
      else:
        key = streams.insecure_root_key(self._insecure_seed)
      buffers = ()
      if self._noise_multiplier > 0:
        buffers = self._mechanism.initialize(tf.zeros([num_params], tf.float32))
      return collections.OrderedDict(
          release_id=tf.constant(self.release.number, tf.int64),
          key=key,
          is_key_insecure=tf.constant(self._insecure_seed is not None),
          round=tf.constant(0, tf.int64),
          tree_id=tf.constant(0, tf.int64),
          round_in_tree=tf.constant(0, tf.int64),
          digests=noise_state.no_digests(self._mechanism),
          buffers=buffers,
      )

    return initialize

  def _build_clip(self, value_type: tff.TensorType) -> tff.Computation:
    @tff.tensorflow.computation(value_type)
    @tf.function(autograph=False)
    def clip(update):
      return clipping.clip(update, self._l2_norm_clip)

    return clip

  def _build_release(self, state_type, num_params: int, counts_type):
    stddev = self._noise_multiplier * self._l2_norm_clip
    step = shuffle.grid_step(self._l2_norm_clip)

    @tff.tensorflow.computation(
        state_type, tff.TensorType(np.int64, [num_params]), counts_type
    )
    @tf.function(autograph=False)
    def release(state, total, counts):
      state = self._begin(state)
      digest = self._digest(state, total, counts)
      noise, buffers = self._unit_noise(
          noise_state.VALUE_DOMAIN, state, digest, state['buffers'], num_params
      )
      result = self.release.mark(
          noised_mean(total, step, noise, stddev, self._clients_per_round)
      )
      new_state = collections.OrderedDict(
          **self._advanced(state, digest), buffers=buffers
      )
      variances = tf.constant(self._mechanism.round_variances(), tf.float32)
      noise_stddev = (
          tf.sqrt(variances[new_state['round_in_tree'] - 1])
          * stddev
          / self._clients_per_round
      )
      measurements = collections.OrderedDict(
          clip_norm=tf.constant(self._l2_norm_clip),
          noise_stddev=noise_stddev,
          round=new_state['round'],
          tree_id=new_state['tree_id'],
          snr=signal_to_noise(result, noise_stddev),
          not_covered=counts,
      )
      return new_state, result, measurements

    return release

  def _digest(self, state, total, counts) -> tf.Tensor:
    """Returns the digest of a round: a hash of all data that the server got.

    The digest decides which noise the round gets. The counts are included,
    because equal noise reveals that all inputs are equal.

    Args:
      state: State before the round.
      total: Exact sum.
      counts: Summed counts of `clipping.clip`.
    """
    digest = noise_state.digest_of(
        state['key'],
        state['digests'],
        state['round_in_tree'],
        total,
        tf.stack(list(counts.values())),
    )
    # Random bits to anyone without the key.
    return self.release.mark(digest)

  def _advanced(self, state, digest):
    """Returns the entries of the new state that do not depend on the noise."""
    _, tree_id, round_in_tree = noise_state.advance(
        self._mechanism, state['tree_id'], state['round_in_tree']
    )
    return collections.OrderedDict(
        release_id=state['release_id'],
        key=state['key'],
        is_key_insecure=state['is_key_insecure'],
        round=state['round'] + 1,
        tree_id=tree_id,
        round_in_tree=round_in_tree,
        digests=noise_state.with_digest(
            state['digests'], round_in_tree, digest
        ),
    )

  def _unit_noise(self, domain: str, state, digest, buffers, num_params: int):
    """Returns (unit noise, buffers) of one stream in the round that begins."""
    if self._noise_multiplier == 0:
      return tf.zeros([num_params]), tuple(buffers)
    return noise_state.next_noise(
        self._mechanism,
        key=state['key'],
        domain=domain,
        tree_id=state['tree_id'],
        round_in_tree=state['round_in_tree'],
        digests=state['digests'],
        digest=digest,
        buffers=buffers,
        num_params=num_params,
    )


def check_flat(value_type: tff.TensorType) -> None:
  """Raises unless the type is a float32 vector of known length."""
  if np.dtype(value_type.dtype) != np.float32 or value_type.shape[0] is None:
    raise TypeError(
        'Expected `value_type` to hold float32 tensors of known shape, found '
        f'{value_type}. The weights of the model decide dtype and shape.'
    )


def within_horizon(state, num_rounds: int):
  """Returns the state, after an assertion that a planned round is left.

  If all planned rounds are done, running the graph fails.

  Args:
    state: State with the number of finished rounds in `round`.
    num_rounds: Number of rounds of the plan.
  """
  is_planned = tf.debugging.assert_less(
      state['round'],
      tf.constant(num_rounds, tf.int64),
      message=f'num_rounds={num_rounds} rounds are done; the plan covers no '
      'further round',
  )
  # Nothing else of a round beyond the plan may run, or fail, first.
  with tf.control_dependencies([is_planned]):
    return tf.nest.map_structure(tf.identity, state)


class _Flat(tff.aggregators.UnweightedAggregationFactory):
  """The factory on one flat vector, which `concat_factory` wraps."""

  def __init__(self, outer: CorrelatedNoiseFactory):
    self._create = outer._create_flat  # pylint: disable=protected-access

  def create(self, value_type) -> tff.templates.AggregationProcess:
    return self._create(value_type)


def noised_mean(total, step, noise, noise_stddev, clients_per_round: int):
  """Returns (total * step + noise_stddev * noise) / clients_per_round, float32.

  The noise is added in float64. If a large sum were rounded to float32 before,
  one client could move the rounded sum by more than its own update.

  Args:
    total: Exact sum in units of `step`, integers.
    step: A power of two, a number or a float32 scalar.
    noise: Unit noise, float32 of the same shape.
    noise_stddev: Factor of the noise: the standard deviation, on the sum, of a
      draw of variance 1. A number or a float32 scalar.
    clients_per_round: Divisor.
  """
  # Few passes over float64 vectors: noise alone depends on nobody's data, and
  # the noised value may be rounded.
  units = tf.cast(noise * (noise_stddev / step), tf.float64)
  noised = tf.cast(tf.cast(total, tf.float64) + units, tf.float32)
  return noised * tf.cast(step / clients_per_round, tf.float32)


def signal_to_noise(result, noise_stddev):
  """Returns an estimate: the norm of the signal over the norm of the noise.

  The squared norm of the signal is estimated by the squared norm of the result
  minus the expected squared norm of the noise, but at least 0. If the noise of
  the rounds is independent, this difference is right on average. If it is
  correlated, the estimate is only indicative. It ignores the extra noise of a
  completed tree.

  Args:
    result: Released vector, with the noise in it.
    noise_stddev: Standard deviation of the noise on a coordinate of `result`.
  """
  num_params = tf.cast(tf.size(result), tf.float32)
  noise_squared = num_params * noise_stddev**2
  signal_squared = tf.maximum(2 * tf.nn.l2_loss(result) - noise_squared, 0.0)
  return tf.sqrt(tf.math.divide_no_nan(signal_squared, noise_squared))
