# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the tree mechanisms against their definitions."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.mechanisms import contract
from tests.mechanisms import reference
from tff_dp import _checks
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.mechanisms import tree


def _run(spec, num_params=3, seed=0):
  """Returns the residuals of one tree, shape [T, num_params], and the draws."""
  rng = np.random.default_rng(seed)
  draws = {}

  def draw(level, index):
    if index < 0:
      raise ValueError(f'node ({level}, {index}) does not exist')
    key = (0, level, int(index))
    if key not in draws:
      draws[key] = rng.standard_normal(num_params)
    return draws[key]

  buffers = spec.initialize(np.zeros(num_params))
  residuals = []
  for t in range(1, spec.num_rounds + 1):
    noise, buffers = spec.next_noise(
        buffers, t, mechanism_lib.numpy_operations(draw)
    )
    residuals.append(noise)
  return np.stack(residuals), draws


def _specs(num_rounds):
  return (
      tree.HonakerTree(num_rounds),
      *(
          tree.Tree(num_rounds, num_cached_levels=levels)
          for levels in (0, 1, 2, 9)
      ),
  )


def _nodes(spec):
  """Returns the 0/1 matrix (node, round), straight from the definition."""
  rows = []
  for start in range(0, spec.num_rounds, spec.rounds_per_tree):
    length = min(spec.rounds_per_tree, spec.num_rounds - start)
    size = length
    if start + length < spec.num_rounds:
      size += spec.virtual_rounds
    for level in range(size.bit_length()):
      for first in range(0, size - 2**level + 1, 2**level):
        row = np.zeros(spec.num_rounds)
        row[start + first : start + min(first + 2**level, length)] = 1
        rows.append(row)
  return np.array(rows)


class _TreeContract(contract.MechanismContract):
  IS_MATRIX = False

  def encoder(self, spec):
    return _nodes(spec)


class TreeContractTest(_TreeContract, parameterized.TestCase):
  SPECS = (
      tree.Tree(11),
      tree.Tree(9, num_cached_levels=0),
      tree.Tree(12, restart_every=5),
      tree.Tree(12, restart_every=5, complete_trees=True),
      tree.Tree(11, restart_every=3, complete_trees=True, num_cached_levels=9),
      tree.Tree(8, restart_every=1),
  )


class HonakerContractTest(_TreeContract, parameterized.TestCase):
  SPECS = (
      tree.HonakerTree(11),
      tree.HonakerTree(12, restart_every=5),
      tree.HonakerTree(12, restart_every=5, complete_trees=True),
      tree.HonakerTree(11, restart_every=3, complete_trees=True),
      tree.HonakerTree(8, restart_every=1),
  )


class IndependentContractTest(
    contract.MechanismContract, parameterized.TestCase
):
  SPECS = (mechanism_lib.Independent(10),)


class TreeTest(parameterized.TestCase):

  @parameterized.parameters(1, 2, 3, 7, 8, 9, 35, 67)
  def test_residuals_telescope_to_the_defined_prefix(self, num_rounds):
    for spec in _specs(num_rounds):
      residuals, draws = _run(spec)
      prefixes = np.cumsum(residuals, axis=0)
      for t in range(1, num_rounds + 1):
        expected = sum(
            share * draws[node]
            for node, share in reference.prefix(spec.name, 0, t).items()
        )
        np.testing.assert_allclose(prefixes[t - 1], expected, atol=1e-12)

  @parameterized.parameters(1, 5, 16, 31)
  def test_variances_are_those_of_the_covariance(self, num_rounds):
    for spec in _specs(num_rounds):
      covariance = reference.residual_covariance(spec)
      np.testing.assert_allclose(spec.round_variances(), np.diag(covariance))
      sums = np.tril(np.ones((num_rounds, num_rounds)))
      np.testing.assert_allclose(
          spec.prefix_variances(), np.diag(sums @ covariance @ sums.T)
      )

  def test_published_prefix_variances(self):
    np.testing.assert_array_equal(
        tree.Tree(8).prefix_variances(), [1, 1, 2, 1, 2, 2, 3, 1]
    )
    np.testing.assert_allclose(
        tree.HonakerTree(4).prefix_variances(), [1, 2 / 3, 5 / 3, 4 / 7]
    )

  @parameterized.parameters(7, 8, 9)
  def test_levels_at_the_power_of_two_boundary(self, num_rounds):
    # floor(log2 n) + 1 nodes can be live; the paper's ceil(log2 n) is one short
    # when n is a power of two.
    expected = {7: 3, 8: 4, 9: 4}[num_rounds]
    self.assertEqual(tree.HonakerTree(num_rounds).num_levels, expected)
    self.assertLen(
        tree.HonakerTree(num_rounds).initialize(np.zeros(1)), expected - 1
    )

  @parameterized.parameters((5, 3), (8, 0), (6, 2))
  def test_virtual_rounds_reach_the_next_power_of_two(self, every, virtual):
    spec = tree.Tree(20, restart_every=every, complete_trees=True)
    self.assertEqual(spec.virtual_rounds, virtual)
    self.assertEqual(tree.Tree(20, restart_every=every).virtual_rounds, 0)

  def test_a_single_tree_is_never_completed(self):
    spec = tree.Tree(5, restart_every=9, complete_trees=True)
    self.assertEqual(spec.virtual_rounds, 0)

  def test_cached_vanilla_draws_on_average_what_the_docstring_says(self):
    for levels, expected in ((0, 2.0), (1, 1.5), (2, 1.25)):
      spec = tree.Tree(2**10, num_cached_levels=levels)
      count = 0

      def draw(level, index):
        nonlocal count
        del level, index
        count += 1
        return np.zeros(1)

      buffers = spec.initialize(np.zeros(1))
      for t in range(1, spec.num_rounds + 1):
        _, buffers = spec.next_noise(
            buffers, t, mechanism_lib.numpy_operations(draw)
        )
      self.assertAlmostEqual(count / spec.num_rounds, expected, delta=0.02)

  @parameterized.named_parameters(
      ('no_rounds', dict(num_rounds=0), 'num_rounds=0'),
      ('fraction', dict(num_rounds=1.5), 'num_rounds=1.5'),
      ('restart', dict(num_rounds=5, restart_every=0), 'restart_every=0'),
      (
          'completion_without_restart',
          dict(num_rounds=5, complete_trees=True),
          'complete_trees=True',
      ),
  )
  def test_bad_arguments_are_named(self, arguments, message):
    for cls in (tree.Tree, tree.HonakerTree):
      with self.assertRaisesRegex(_checks.ArgumentError, message):
        cls(**arguments)


class IndependentTest(absltest.TestCase):

  def test_every_round_has_its_own_draw(self):
    residuals, draws = _run(mechanism_lib.Independent(6))
    self.assertLen(draws, 6)
    for index in range(6):
      np.testing.assert_array_equal(residuals[index], draws[0, 0, index])


if __name__ == '__main__':
  absltest.main()
