# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests that no two streams share anything, and that keys are secret."""

import itertools

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import scipy.stats
import tensorflow as tf

from tff_dp import _checks
from tff_dp import streams


class RootKeyTest(absltest.TestCase):

  def test_each_run_of_one_graph_gives_a_new_key_of_128_bits(self):
    @tf.function(autograph=False)
    def root_key():
      return streams.random_root_key()

    keys = np.stack([root_key().numpy() for _ in range(64)])
    self.assertEqual(keys.dtype, np.int64)
    self.assertLen(np.unique(keys, axis=0), 64)
    bits = (keys.view(np.uint64)[..., None] >> np.arange(64, dtype=np.uint64)) & 1
    # A bit that never changes in 64 keys has probability 2^-63.
    self.assertTrue(np.all(bits.any(axis=0)) and not np.any(bits.all(axis=0)))
    # The 8192 bits are fair: false alarm 1e-6.
    fairness = scipy.stats.binomtest(int(bits.sum()), bits.size)
    self.assertGreater(fairness.pvalue, 1e-6)

  def test_neighbouring_seeds_share_no_bits_beyond_chance(self):
    keys = [streams.insecure_root_key(seed).numpy() for seed in range(32)]
    self.assertLen({word for key in keys for word in key}, 64)

  def test_negative_seed_is_refused(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'insecure_seed=-1'):
      streams.insecure_root_key(-1)


class StreamsTest(absltest.TestCase):

  def test_a_key_of_zeros_is_refused(self):
    zeros = tf.zeros([2], tf.int64)
    for derive in (
        streams.domain_key,
        tf.function(streams.domain_key, autograph=False),
    ):
      with self.assertRaisesRegex(tf.errors.InvalidArgumentError, 'all zeros'):
        derive(zeros, 'value')
      # Half of it may be zero by chance.
      derive(tf.constant([0, 1], tf.int64), 'value')

  def test_streams_of_seeds_domains_trees_and_nodes_are_disjoint(self):
    # tensorflow-privacy's integer seeds fail this: seeds 0 and 1 share almost
    # all noise. A shared window of 4 floats would show any common stretch.
    @tf.function(autograph=False)
    def normals(root):
      return tf.stack([
          streams.node_normals(
              streams.fold_in(streams.domain_key(root, domain), tree), 64
          )(level, index)
          for domain in ('value', 'quantile')
          for tree in range(3)
          for level, index in ((0, 0), (0, 1), (1, 0), (2, 1))
      ])

    draws = np.concatenate([
        normals(streams.insecure_root_key(seed)).numpy() for seed in range(32)
    ])
    windows = np.lib.stride_tricks.sliding_window_view(draws, 4, axis=1)
    windows = windows.reshape(-1, 4)
    self.assertLen(np.unique(windows, axis=0), len(windows))
    correlations = np.corrcoef(draws)[np.triu_indices(len(draws), 1)]
    # Fisher: std 1/sqrt(61); the largest of 295,000 stays below 6 of them.
    self.assertLess(np.abs(np.arctanh(correlations)).max(), 6.0 / np.sqrt(61))

  def test_levels_and_indices_do_not_collide(self):
    key = streams.insecure_root_key(0)
    draw = streams.node_normals(key, 4)
    nodes = list(itertools.product(range(12), (0, 1, 2, 2**20, 2**40)))
    draws = np.stack([draw(level, index).numpy() for level, index in nodes])
    self.assertLen(np.unique(draws, axis=0), len(nodes))

  def test_a_node_is_a_function_of_its_key(self):
    draw = streams.node_normals(streams.insecure_root_key(3), 8)
    np.testing.assert_array_equal(draw(2, 5), draw(2, tf.constant(5)))

  def test_child_keys_use_all_of_the_parent(self):
    key = streams.insecure_root_key(0)
    children = [
        streams.fold_in(tf.bitwise.bitwise_xor(key, flip), 7).numpy()
        for flip in ([0, 0], [1, 0], [0, 1])
    ]
    self.assertLen({word for child in children for word in child}, 6)


class DrawsTest(parameterized.TestCase):
  """Draws are those of `tf.random.stateless_*`, in fewer operations."""

  @parameterized.product(shape=([], [3], [2, 5], 'tensor'), seed=(0, 1))
  def test_same_numbers_as_tensorflow_s_own(self, shape, seed):
    key = streams.fold_in(streams.insecure_root_key(seed), -(2**63) + 5)
    if shape == 'tensor':
      shape = tf.shape(tf.zeros([4, 1]))
    own = dict(shape=shape, seed=key, alg=streams.ALGORITHM)
    for drawn, expected in (
        (
            streams.bits(shape, key),
            tf.random.stateless_uniform(
                **own, minval=None, maxval=None, dtype=tf.int64
            ),
        ),
        (streams.normals(shape, key), tf.random.stateless_normal(**own)),
        (
            streams.normals(shape, key, tf.float64),
            tf.random.stateless_normal(**own, dtype=tf.float64),
        ),
        (streams.uniforms(shape, key), tf.random.stateless_uniform(**own)),
        (
            streams.uniforms(shape, key, tf.float64),
            tf.random.stateless_uniform(**own, dtype=tf.float64),
        ),
        (
            streams.integers(shape, key, below=7, dtype=tf.int32),
            tf.random.stateless_uniform(**own, maxval=7, dtype=tf.int32),
        ),
        (
            streams.integers(shape, key, below=tf.constant(2**40 + 3)),
            tf.random.stateless_uniform(
                **own, maxval=tf.constant(2**40 + 3), dtype=tf.int64
            ),
        ),
    ):
      self.assertEqual(drawn.dtype, expected.dtype)
      np.testing.assert_array_equal(drawn, expected, strict=True)


class OperationsTest(parameterized.TestCase):

  @parameterized.parameters(1, 2, 7, 8, 9, 15, 16, 40)
  def test_combine_is_the_linear_combination(self, num_vectors):
    rng = np.random.default_rng(num_vectors)
    coefficients = rng.normal(size=num_vectors)
    vectors = rng.normal(size=[num_vectors, 5]).astype(np.float32)
    operations = streams.operations(streams.insecure_root_key(0), 5)

    @tf.function(autograph=False)
    def combine(scalars):
      return operations.combine(scalars, list(vectors))

    for scalars in (
        coefficients.tolist(),
        list(coefficients),
        tf.unstack(tf.constant(coefficients, tf.float32)),
    ):
      np.testing.assert_allclose(
          combine(scalars), coefficients @ vectors, rtol=0, atol=2e-6
      )

  def test_combine_needs_as_many_coefficients_as_vectors(self):
    operations = streams.operations(streams.insecure_root_key(0), 5)
    with self.assertRaises(ValueError):
      operations.combine([1.0], [tf.zeros(5), tf.zeros(5)])

  def test_take_finds_the_row(self):
    operations = streams.operations(streams.insecure_root_key(0), 5)
    table = np.arange(6.0).reshape(3, 2)
    row = operations.take(table, tf.constant(2, tf.int64))
    self.assertEqual([float(value) for value in row], [4.0, 5.0])


if __name__ == '__main__':
  absltest.main()
