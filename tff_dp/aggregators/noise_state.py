# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The noise of one stream, round after round, as pure TensorFlow functions.

A stream belongs to a root key and a domain. Where it stands is given by the
tree's id and the rounds done in the tree; what it remembers, by the mechanism's
buffers.

What a round draws also follows from all that clients have sent up to it, by a
digest. So a round that is repeated on the same data repeats its noise and tells
nobody anything new; and two continuations of one state on different data have
different noise, from the first round that differs to the end. Were it the same,
the difference of the two releases would be the difference of two sums, without
any noise; were it the same in later rounds that do not differ, those would take
back what protects the first, and their prefix sums would give it away. The
digests of the rounds that are drawn again later are kept as a ring, one number
per round.
"""

import tensorflow as tf

from tff_dp import streams
from tff_dp.mechanisms import mechanism as mechanism_lib

# The purpose of the stream that protects the clients' updates.
VALUE_DOMAIN = 'value'
_DIGEST_DOMAIN = 'digest'


def advance(mechanism: mechanism_lib.Mechanism, tree_id, round_in_tree):
  """Returns (starts_tree, tree_id, round_in_tree) of the round that begins.

  A restart happens at the beginning of the round that opens the new tree: the
  tree's id goes up, and with it every key.

  Args:
    mechanism: Knows when trees restart.
    tree_id: Of the previous round, scalar int64, 0 before round 1.
    round_in_tree: Of the previous round, scalar int64, 0 before round 1.
  """
  starts_tree = tf.constant(False)
  if mechanism.restart_every is not None:
    starts_tree = tf.equal(
        round_in_tree, tf.constant(mechanism.restart_every, tf.int64)
    )
  return (
      starts_tree,
      tree_id + tf.cast(starts_tree, tf.int64),
      tf.where(starts_tree, tf.ones_like(round_in_tree), round_in_tree + 1),
  )


def digest_of(key, digests, round_in_tree, *sums) -> tf.Tensor:
  """Returns 64 bits that belong to all that clients have sent in a run.

  Scalar int64, and secret: whoever has the key can test guesses with it. Nobody
  else can.

  Args:
    key: The root key.
    digests: The ring after the previous round, whose digest is part of this.
    round_in_tree: Of the previous round.
    *sums: Vectors, the sums of this round. They must not depend on the order in
      which clients are added up, or a repeated round would draw other noise.
  """
  child = streams.fold_in(
      streams.domain_key(key, _DIGEST_DOMAIN),
      _digest_of_round(digests)(round_in_tree),
  )
  for vector in sums:
    child = streams.fold_in(child, streams.digest(vector))
  return child[0]


def no_digests(mechanism: mechanism_lib.Mechanism) -> tf.Tensor:
  """Returns the ring of digests before round 1."""
  return tf.zeros([mechanism.rounds_drawn], tf.int64)


def with_digest(digests, round_in_tree, digest) -> tf.Tensor:
  """Returns the ring after a round; it takes the place of the oldest one."""
  place = (round_in_tree - 1) % digests.shape[0]
  return tf.tensor_scatter_nd_update(digests, [[place]], [digest])


def _digest_of_round(digests):
  return lambda at_round: tf.gather(digests, (at_round - 1) % digests.shape[0])


def next_noise(
    mechanism: mechanism_lib.Mechanism,
    *,
    key,
    domain: str,
    tree_id,
    round_in_tree,
    digests,
    digest,
    buffers,
    num_params: int,
):
  """Returns (noise, buffers) of the round that begins, at unit draws.

  If trees are completed, the round that opens a tree also takes over what the
  virtual rounds of the finished one change, `b_{R + virtual} - b_R`, so that
  the noise left behind is the root's alone.

  Args:
    mechanism: What noise is added in which round.
    key: The root key.
    domain: The purpose of the stream, which separates its keys from others'.
    tree_id: Of the previous round, as for `advance`.
    round_in_tree: Of the previous round.
    digests: The ring after the previous round.
    digest: Of the round that begins, see `digest_of`. Virtual rounds that this
      round catches up on draw with it too.
    buffers: What the previous round returned.
    num_params: Length of the noise.
  """
  root = streams.domain_key(key, domain)
  starts_tree, new_tree_id, new_round_in_tree = advance(
      mechanism, tree_id, round_in_tree
  )

  def step(tree, at_round, at_buffers, at_digests):
    at_digests = with_digest(at_digests, at_round, digest)
    operations = streams.operations(
        streams.fold_in(root, tree), num_params, _digest_of_round(at_digests)
    )
    noise, next_buffers = mechanism.next_noise(at_buffers, at_round, operations)
    return noise, tuple(next_buffers), at_digests

  fresh = buffers = tuple(buffers)
  if mechanism.restart_every is not None and not mechanism.overwrites_buffers:
    fresh = tf.cond(
        starts_tree,
        lambda: mechanism.initialize(tf.zeros([num_params])),
        lambda: buffers,
    )
  noise, new_buffers, _ = step(new_tree_id, new_round_in_tree, fresh, digests)
  if mechanism.virtual_rounds:
    noise += tf.cond(
        starts_tree,
        lambda: _completion(
            step, tree_id, round_in_tree, buffers, digests,
            mechanism.virtual_rounds, num_params,
        ),
        lambda: tf.zeros([num_params]),
    )
  return noise, new_buffers


def rebuild_buffers(
    mechanism: mechanism_lib.Mechanism,
    *,
    key,
    domain: str,
    tree_id,
    round_in_tree,
    digests,
    num_params: int,
    start=None,
):
  """Returns the buffers after a round, from key, position and digests.

  It does the float operations of `next_noise`, round by round and in the same
  order, so the buffers serve every later round as the lost ones would have, bit
  for bit. One that is written before it is read again may differ: here it is
  zero, there it holds a value of an earlier tree or round.

  Args:
    mechanism: What noise was added in which round.
    key: The root key.
    domain: The purpose of the stream.
    tree_id: The tree, scalar int64.
    round_in_tree: Rounds done in the tree, scalar int64.
    digests: The ring after the last round of the run.
    num_params: Length of the noise.
    start: Where to go on: a pair of a round of the same tree, scalar int64, and
      the buffers after it. `None` for where the noise to come begins to depend
      on what was drawn.
  """
  if start is None:
    start = (
        first_remembered(mechanism, round_in_tree),
        mechanism.initialize(tf.zeros([num_params])),
    )
  first, buffers = start
  if not buffers:
    return ()
  operations = streams.operations(
      streams.fold_in(streams.domain_key(key, domain), tree_id),
      num_params,
      _digest_of_round(digests),
  )

  def body(done, at_buffers):
    _, next_buffers = mechanism.next_noise(at_buffers, done + 1, operations)
    return done + 1, tuple(next_buffers)

  _, buffers = tf.while_loop(
      lambda done, _: done < round_in_tree,
      body,
      (tf.cast(first, tf.int64), tuple(buffers)),
      parallel_iterations=1,
  )
  return buffers


def first_remembered(mechanism: mechanism_lib.Mechanism, round_in_tree):
  """Returns the round after which zeros are as good as the buffers were."""
  if mechanism.rounds_remembered is None:
    return tf.zeros_like(round_in_tree)
  return tf.maximum(round_in_tree - mechanism.rounds_remembered, 0)


def _completion(
    step, tree_id, last_round, buffers, digests, num_rounds, num_params
):
  """Returns the noise of the virtual rounds that complete a tree, summed."""

  def body(offset, total, *state):
    noise, *state = step(tree_id, last_round + offset, *state)
    return offset + 1, total + noise, *state

  _, total, *_ = tf.while_loop(
      lambda offset, *_: offset <= num_rounds,
      body,
      (tf.constant(1, tf.int64), tf.zeros([num_params]), buffers, digests),
  )
  return total
