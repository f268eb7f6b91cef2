# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The noise of one stream, round after round, as pure TensorFlow functions.

A stream belongs to a root key and a domain. Its position is the tree's id and
the number of rounds done in the tree. Its memory is the mechanism's buffers.

The draws of a round also depend on everything that clients have sent so far,
through a digest. So a round that is repeated on the same data repeats its noise
and reveals nothing new. Two continuations of one state on different data have
different noise, from the first round that differs to the end. This is needed
for two reasons:

*   With equal noise, the difference of the two releases would be the difference
  of two sums without any noise.
*   Later rounds subtract the noise that protects the first round that differs.
  If their noise were equal, the prefix sums would reveal that round.

A ring holds the digests of the rounds whose draws are made again later, one
number per round.
"""

import tensorflow as tf

from tff_dp import streams
from tff_dp.mechanisms import mechanism as mechanism_lib

# The purpose of the stream that protects the clients' updates.
VALUE_DOMAIN = 'value'
_DIGEST_DOMAIN = 'digest'


def advance(mechanism: mechanism_lib.Mechanism, tree_id, round_in_tree):
  """Returns (starts_tree, tree_id, round_in_tree) of the round that begins.

  `starts_tree` says whether the round opens a tree. Then the tree's id goes up,
  and the keys of all its draws change with it.

  Args:
    mechanism: Mechanism, which knows when trees restart.
    tree_id: Tree of the previous round, scalar int64, 0 before round 1.
    round_in_tree: Position of the previous round, scalar int64, 0 before round
      1.
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
  """Returns 64 bits that depend on everything clients have sent in the run.

  The result is a scalar int64. It is secret: whoever has it and the key can
  test guesses about the clients' data. Without the key nobody can.

  Args:
    key: Root key.
    digests: Digests of the last rounds, after the previous round. The result
      depends on the digest of that round.
    round_in_tree: Position of the previous round in its tree.
    *sums: Vectors: the sums of this round. They must not depend on the order in
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
  """Returns the ring of digests after a round.

  In a ring of n digests, the new digest replaces the one from n rounds ago in
  the tree. In the first n rounds of a tree it replaces a digest of an earlier
  tree, which no later round needs.

  Args:
    digests: Ring of digests before the round.
    round_in_tree: Position of the round in its tree, from 1.
    digest: Digest of the round.
  """
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
  """Returns (noise, buffers) of the round that begins.

  Draws have standard deviation 1. Some mechanisms complete a tree after its
  last round R, with virtual rounds that have noise and no data. The first round
  of the next tree also adds the noise of all virtual rounds. Let b_t be the sum
  of the old tree's noise after t rounds. The addition `b_{R + virtual} - b_R`
  leaves only the noise of the old tree's root in the model.

  Args:
    mechanism: Mechanism that adds the noise of every round.
    key: Root key.
    domain: Purpose of the stream, which separates its keys from other streams'.
    tree_id: Tree of the previous round, as for `advance`.
    round_in_tree: Position of the previous round in its tree.
    digests: Digests of the last rounds, after the previous round.
    digest: Digest of the round that begins, see `digest_of`. Virtual rounds
      that are added in this round draw their noise with the same digest.
    buffers: Buffers from the previous round.
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

  It repeats the float operations of `next_noise`, round by round and in the
  same order. So the rebuilt buffers give the same noise in every later round,
  bit for bit. A buffer that is written before it is read again may differ: it
  is zero here, and in the original it holds a value of an earlier tree or
  round.

  Args:
    mechanism: Mechanism that added the noise of every round.
    key: Root key.
    domain: Purpose of the stream.
    tree_id: Id of the tree, scalar int64.
    round_in_tree: Number of rounds done in the tree, scalar int64.
    digests: Ring of digests after the last round of the run.
    num_params: Length of the noise.
    start: Where to begin: a pair of a round of the same tree, scalar int64, and
      the buffers after that round. `None` means the first round on which the
      noise of later rounds depends.
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
  """Returns the round of the tree after which a rebuild may start from zeros.
  """
  if mechanism.rounds_remembered is None:
    return tf.zeros_like(round_in_tree)
  return tf.maximum(round_in_tree - mechanism.rounds_remembered, 0)


def _completion(
    step, tree_id, last_round, buffers, digests, num_rounds, num_params
):
  """Returns the sum of the noise of the virtual rounds that complete a tree."""

  def body(offset, total, *state):
    noise, *state = step(tree_id, last_round + offset, *state)
    return offset + 1, total + noise, *state

  _, total, *_ = tf.while_loop(
      lambda offset, *_: offset <= num_rounds,
      body,
      (tf.constant(1, tf.int64), tf.zeros([num_params]), buffers, digests),
  )
  return total
