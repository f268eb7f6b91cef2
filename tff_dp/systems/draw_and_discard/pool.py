# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The pool of models at the server: how it begins, and how reports change it.

The models of a round arrive at once. They are put into a uniformly random
order, then written one by one. Under draw and discard, each one overwrites a
separately drawn model, so a later one may overwrite an earlier one. All coins
are the server's and follow from a key in the state and the round, so a resumed
run repeats them. The guarantee does not need them to be secret, because a
report is noised before it leaves the client.

A model that is not finite, or that the spam filter refuses, is counted and
never stored. The length of a report is part of its type.

Source: arXiv:1807.04369, section 3. `strategies` says what changes with several
clients at once, and which spread the models begin with.
"""

import collections
import math
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow as tf

from tff_dp import streams
from tff_dp.systems.draw_and_discard import spam_filters
from tff_dp.systems.draw_and_discard import strategies

# Purposes of the keys, and of the children of a round's key.
_SPREAD, _COINS = 'draw and discard spread', 'draw and discard coins'
_ORDER, _PLACE = range(2)


class Pool(NamedTuple):
  """State of the server. It depends on clients only through noised reports.

  Attributes:
    instances: Models, float32 of shape [models, p].
    pending: Sum of the updates that wait until their batch is full, float32 of
      shape [p]. The shape is [0] unless the strategy is 'server_batch'.
    num_pending: Number of updates in `pending`, int64.
    key: Root key of the server's coins, int64 of shape [2].
    round: Number of finished rounds, int64.
    num_sets: Number of times that weights were set, int64.
    release_id: Fingerprint of the plan whose noise is in the reports, int64.
  """

  instances: Any
  pending: Any
  num_pending: Any
  key: Any
  round: Any
  num_sets: Any
  release_id: Any


class Rules(NamedTuple):
  """How reports are written to a pool.

  Attributes:
    strategy: Strategy for a report.
    initial_variance: Variance of every weight over fresh instances.
    spam_filter: Spam filter, or `None`.
    release_id: Fingerprint of the plan, for the state.
  """

  strategy: strategies.Strategy
  initial_variance: float
  spam_filter: Optional[spam_filters.SpamFilter] = None
  release_id: int = 0


def initialize(rules: Rules, weights: tf.Tensor, key: tf.Tensor) -> Pool:
  """Returns a new pool around some weights.

  Args:
    rules: Rules of the pool.
    weights: Weights, float32 of shape [p].
    key: Root key of the server's coins, int64 of shape [2].
  """
  zero = tf.constant(0, tf.int64)
  has_pending = rules.strategy.name == strategies.SERVER_BATCH
  empty = Pool(
      instances=tf.zeros([rules.strategy.num_models, weights.shape[0]]),
      pending=tf.zeros([weights.shape[0] if has_pending else 0]),
      num_pending=zero,
      key=key,
      round=zero,
      num_sets=zero,
      release_id=tf.constant(rules.release_id, tf.int64),
  )
  return _spread_out(rules, empty, weights)


def set_weights(rules: Rules, pool: Pool, weights: tf.Tensor) -> Pool:
  """Returns the pool around other weights, with the spread of a new pool.

  Equal copies would not work: they are not a sample of the stationary
  distribution, and a spam filter would refuse every report. Updates that wait
  for their batch are dropped.

  Args:
    rules: Rules of the pool.
    pool: Pool, which keeps its round and key.
    weights: New weights, float32 of shape [p].
  """
  return _spread_out(
      rules,
      pool._replace(
          num_sets=pool.num_sets + 1,
          pending=tf.zeros_like(pool.pending),
          num_pending=tf.zeros_like(pool.num_pending),
      ),
      weights,
  )


def apply_reports(
    rules: Rules, pool: Pool, reports: tf.Tensor, drawn: tf.Tensor
):
  """Returns (pool, counts) after the reports of one round.

  Args:
    rules: Rules of the pool.
    pool: Pool before the round.
    reports: Reports, float32 of shape [m, p], where m may be 0.
    drawn: Instances that the clients had, int32 of shape [m], or [0] if the
      strategy does not use them.

  Returns:
    The pool, and an `OrderedDict` of int32 scalars: `num_reports`, all reports;
    `num_stored`, those that were written to a model or put into a batch;
    `num_not_finite` and `num_spam`, those that were refused. Under
    'accept_1_over_k' a report may be neither stored nor refused.
  """
  strategy = rules.strategy
  key = streams.fold_in(streams.domain_key(pool.key, _COINS), pool.round)
  num_reports = tf.shape(reports)[0]
  order = tf.argsort(
      streams.bits([num_reports], streams.fold_in(key, _ORDER))
  )
  places = streams.integers(
      [num_reports],
      streams.fold_in(key, _PLACE),
      below=strategy.num_instances,
      dtype=tf.int32,
  )
  sent = pool.instances

  def body(position, instances, pending, num_pending, stored, bad, spam):
    report = reports[order[position]]
    place = places[position]
    if strategy.needs_drawn:
      place = drawn[order[position]]
    is_finite = tf.reduce_all(tf.math.is_finite(report))
    is_spam = tf.constant(False)
    if rules.spam_filter is not None:
      is_spam = tf.logical_and(
          is_finite, _is_spam(rules, report, instances)
      )
    is_taken = tf.logical_and(is_finite, tf.logical_not(is_spam))
    is_written = is_taken
    if strategy.name == strategies.ACCEPT:
      is_written = tf.logical_and(is_taken, tf.equal(place, 0))
      place = tf.zeros_like(place)

    def write():
      if strategy.name == strategies.SERVER_BATCH:
        return _batch(strategy, sent, instances, pending, num_pending, report)
      new = report
      if strategy.averages:
        # Halve first: the sum of two floats may be infinite.
        new = 0.5 * report + 0.5 * instances[place]
      written = tf.tensor_scatter_nd_update(
          instances, [[place]], new[tf.newaxis]
      )
      return written, pending, num_pending

    instances, pending, num_pending = tf.cond(
        is_written, write, lambda: (instances, pending, num_pending)
    )
    return (
        position + 1,
        instances,
        pending,
        num_pending,
        stored + tf.cast(is_written, tf.int32),
        bad + tf.cast(tf.logical_not(is_finite), tf.int32),
        spam + tf.cast(is_spam, tf.int32),
    )

  zero = tf.constant(0)
  _, instances, pending, num_pending, stored, bad, spam = tf.while_loop(
      lambda position, *_: position < num_reports,
      body,
      (zero, sent, pool.pending, pool.num_pending, zero, zero, zero),
      parallel_iterations=1,
  )
  counts = collections.OrderedDict(
      num_reports=num_reports,
      num_stored=stored,
      num_not_finite=bad,
      num_spam=spam,
  )
  return (
      pool._replace(
          instances=instances,
          pending=pending,
          num_pending=num_pending,
          round=pool.round + 1,
      ),
      counts,
  )


def spread(instances: tf.Tensor) -> tf.Tensor:
  """Returns the sample variance of each weight, denominator k - 1, shape [p].

  It is 0 for a single instance.
  """
  num_models = instances.shape[0]
  if num_models == 1:
    return tf.zeros_like(instances[0])
  centred = instances - tf.reduce_mean(instances, axis=0)
  return tf.reduce_sum(centred**2, axis=0) / (num_models - 1.0)


def measure(pool: Pool) -> collections.OrderedDict:
  """Returns measurements of the noised models, which cost no privacy.

  Args:
    pool: Pool after a round.

  Returns:
    `spread`, the mean over weights of the sample variance over instances, and
    `max_distance`, the largest L2 distance of an instance from the mean of all.
  """
  centred = pool.instances - tf.reduce_mean(pool.instances, axis=0)
  return collections.OrderedDict(
      spread=tf.reduce_mean(spread(pool.instances)),
      max_distance=tf.reduce_max(tf.norm(centred, axis=1)),
  )


def _spread_out(rules: Rules, pool: Pool, weights: tf.Tensor) -> Pool:
  if rules.strategy.num_models == 1 or not rules.initial_variance:
    return pool._replace(
        instances=tf.zeros_like(pool.instances) + weights[tf.newaxis]
    )
  key = streams.domain_key(pool.key, _SPREAD)
  normals = streams.raw_normals(
      pool.instances.shape,
      # The round is part of the key: going back to an earlier state is another
      # run.
      streams.fold_in(streams.fold_in(key, pool.num_sets), pool.round),
  )
  return pool._replace(
      instances=weights + math.sqrt(rules.initial_variance) * normals
  )


def _batch(strategy, sent, instances, pending, num_pending, report):
  """Returns (instances, pending, num_pending) with one more update.

  A full batch moves the model. A batch that would move it to a value that is
  not finite is dropped.
  """
  pending += report - sent[0]
  num_pending += 1
  moved = instances + pending / strategy.updates_per_batch
  # Finite reports may still add up to infinity.
  is_sound = tf.reduce_all(tf.math.is_finite(moved))
  is_full = tf.equal(num_pending, strategy.updates_per_batch)
  is_over = tf.logical_or(is_full, tf.logical_not(is_sound))
  return (
      tf.where(tf.logical_and(is_full, is_sound), moved, instances),
      tf.where(is_over, tf.zeros_like(pending), pending),
      tf.where(is_over, tf.zeros_like(num_pending), num_pending),
  )


def _is_spam(rules: Rules, report, instances) -> tf.Tensor:
  """Returns whether the filter refuses the report, a scalar bool."""
  spam_filter = rules.spam_filter
  distance = report - tf.reduce_mean(instances, axis=0)
  scores = tf.abs(distance) / tf.maximum(
      tf.sqrt(spread(instances)), np.float32(spam_filter.min_spread)
  )
  is_far = scores >= spam_filter.threshold
  if spam_filter.rule == 'any':
    return tf.reduce_any(is_far)
  if spam_filter.rule == 'fraction':
    return tf.reduce_mean(tf.cast(is_far, tf.float32)) > spam_filter.bound
  return tf.reduce_mean(scores**2) >= spam_filter.threshold
