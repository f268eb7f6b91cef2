# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""The noise of one stream, round after round, as pure TensorFlow functions.

A stream belongs to a root key and a domain. Where it stands is given by the
tree's id and the rounds done in the tree; what it remembers, by the mechanism's
buffers.
"""

import tensorflow as tf

from tff_dp import streams
from tff_dp.mechanisms import mechanism as mechanism_lib

# The purpose of the stream that protects the clients' updates.
VALUE_DOMAIN = 'value'


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


def next_noise(
    mechanism: mechanism_lib.Mechanism,
    *,
    key,
    domain: str,
    tree_id,
    round_in_tree,
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
    buffers: What the previous round returned.
    num_params: Length of the noise.
  """
  root = streams.domain_key(key, domain)
  starts_tree, new_tree_id, new_round_in_tree = advance(
      mechanism, tree_id, round_in_tree
  )

  def step(tree, at_round, at_buffers):
    return mechanism.next_noise(
        at_buffers,
        at_round,
        streams.operations(streams.fold_in(root, tree), num_params),
    )

  fresh = buffers = tuple(buffers)
  if mechanism.restart_every is not None and not mechanism.overwrites_buffers:
    fresh = tf.cond(
        starts_tree,
        lambda: mechanism.initialize(tf.zeros([num_params])),
        lambda: buffers,
    )
  noise, new_buffers = step(new_tree_id, new_round_in_tree, fresh)
  if mechanism.virtual_rounds:
    noise += tf.cond(
        starts_tree,
        lambda: _completion(
            step, tree_id, round_in_tree, buffers, mechanism.virtual_rounds,
            num_params,
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
    num_params: int,
    start=None,
):
  """Returns the buffers after a round, from nothing but key and position.

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
      streams.fold_in(streams.domain_key(key, domain), tree_id), num_params
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


def _completion(step, tree_id, last_round, buffers, num_rounds, num_params):
  """Returns the noise of the virtual rounds that complete a tree, summed."""

  def body(offset, total, at_buffers):
    noise, next_buffers = step(tree_id, last_round + offset, at_buffers)
    return offset + 1, total + noise, next_buffers

  _, total, _ = tf.while_loop(
      lambda offset, *_: offset <= num_rounds,
      body,
      (tf.constant(1, tf.int64), tf.zeros([num_params]), buffers),
  )
  return total
