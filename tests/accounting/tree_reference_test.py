# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tree recursion against the one of tensorflow-privacy, on a grid.

Theirs is the reference that KMSTTX (arXiv:2103.00039, appendix D) published. It
calls `min_separation` the rounds strictly between two participations, one less
than `min_index_gap` here. It is slow, so the grid is small.
"""

import importlib.util
import pathlib
import unittest

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp.accounting.sensitivity import patterns
from tff_dp.accounting.sensitivity import tree_sensitivity

_FILE = pathlib.Path('privacy', 'analysis', 'tree_aggregation_accountant.py')


def _reference():
  """Returns their module, without the package around it: that needs TF."""
  package = importlib.util.find_spec('tensorflow_privacy')
  if package is None:
    raise unittest.SkipTest('tensorflow-privacy is not installed')
  path = pathlib.Path(package.submodule_search_locations[0]) / _FILE
  spec = importlib.util.spec_from_file_location('tree_reference', path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


class TreeReferenceTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.reference = _reference()

  def _theirs(self, num_rounds, between, most):
    # rho = S2 / (2 nm^2).
    return 2 * self.reference.compute_zcdp_single_tree(
        1.0, num_rounds, most, between
    )

  def _ours(self, num_rounds, between, most):
    return tree_sensitivity.squared_sensitivity(
        patterns.MinSeparationPattern(
            num_rounds, min_index_gap=between + 1, max_participations=most
        )
    )

  @parameterized.product(
      num_rounds=(*range(1, 18), 31, 32, 33, 48, 63, 64, 65),
      between=(0, 1, 2, 3, 5, 8),
      most=(1, 2, 3, 4, 7),
  )
  def test_one_tree(self, num_rounds, between, most):
    self.assertEqual(
        self._ours(num_rounds, between, most),
        self._theirs(num_rounds, between, most),
    )

  @parameterized.parameters((200, 41, 3), (256, 30, 5), (255, 24, 3))
  def test_more_rounds(self, num_rounds, between, most):
    self.assertEqual(
        self._ours(num_rounds, between, most),
        self._theirs(num_rounds, between, most),
    )

  def test_the_other_convention_would_show(self):
    # An index gap of 4 leaves 3 rounds between: taken for 4, S2 is too small.
    gap = patterns.MinSeparationPattern(
        32, min_index_gap=4, max_participations=8
    )
    ours = tree_sensitivity.squared_sensitivity(gap)
    self.assertEqual(ours, self._theirs(32, 3, 8))
    self.assertGreater(ours, self._theirs(32, 4, 8))

  def test_stopping_after_every_round(self):
    pattern = patterns.MinSeparationPattern(
        40, min_index_gap=5, max_participations=5
    )
    by_round = tree_sensitivity.squared_sensitivity_by_round(pattern)
    self.assertEqual(
        by_round.tolist(),
        [self._theirs(rounds, 4, 5) for rounds in range(1, 41)],
    )

  @parameterized.product(
      num_rounds=(1, 5, 16, 31, 64, 100), restart_every=(1, 3, 4, 7, 16, 31)
  )
  def test_once_in_every_tree(self, num_rounds, restart_every):
    lengths = patterns.tree_lengths(num_rounds, restart_every=restart_every)
    # RDP of order 2 is 2 rho = S2 / nm^2.
    self.assertEqual(
        tree_sensitivity.squared_sensitivity(
            patterns.OncePerTreePattern(num_rounds),
            restart_every=restart_every,
        ),
        self.reference.compute_rdp_tree_restart(1.0, list(lengths), 2.0),
    )

  @parameterized.parameters((40, 16, 5), (33, 16, 2), (24, 8, 7))
  def test_restarts_cost_at_most_the_sum_of_their_trees(
      self, num_rounds, restart_every, between
  ):
    # Theirs knows no trees with a separation across them. Between one tree's
    # value and the sum of all trees' values ours has to lie.
    lengths = patterns.tree_lengths(num_rounds, restart_every=restart_every)
    trees = [self._theirs(length, between, num_rounds) for length in lengths]
    ours = tree_sensitivity.squared_sensitivity(
        patterns.MinSeparationPattern(num_rounds, min_index_gap=between + 1),
        restart_every=restart_every,
    )
    self.assertBetween(ours, max(trees), sum(trees))


if __name__ == '__main__':
  absltest.main()
