# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the table of BLT parameters."""

from absl.testing import absltest
import numpy as np
import pytest

from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import workloads
from tff_dp.mechanisms.matrix import blt
from tff_dp.mechanisms.matrix import toeplitz_algebra


def _pattern(key):
  return patterns.MinSeparationPattern(
      key.num_rounds,
      min_index_gap=key.min_index_gap,
      max_participations=key.max_participations,
  )


def _error(key, parameters):
  pattern = _pattern(key)
  objective = toeplitz_algebra.Objective(
      toeplitz_algebra.tree_setting(pattern), error=key.error
  )
  return blt.error_of(objective, parameters, pattern=pattern)


class BltTableTest(absltest.TestCase):

  def test_every_entry_is_a_mechanism(self):
    self.assertGreater(len(blt.table()), 50)
    for key, entry in blt.table().items():
      pattern = _pattern(key)
      self.assertEqual(toeplitz_algebra.tree_setting(pattern), key[:3])
      found = blt.optimize(
          pattern, num_buffers=key.num_buffers, error=key.error
      )
      np.testing.assert_allclose(found, entry, rtol=1e-6)
      mechanism = blt.Blt(key.num_rounds, *found)
      # As rounded for the run: the mechanism has nothing left to round.
      self.assertEqual(found, (mechanism.weights, mechanism.decays))
      self.assertEqual(mechanism.num_buffers, key.num_buffers)
      self.assertTrue(mechanism.sensitivity_is_exact(pattern))

  def test_more_buffers_are_never_worse(self):
    for key, entry in blt.table().items():
      more = key._replace(num_buffers=key.num_buffers + 1)
      if more in blt.table():
        self.assertLessEqual(
            _error(more, blt.table()[more]),
            _error(key, entry) * (1 + 1e-6),
        )

  @pytest.mark.slow
  def test_a_sample_is_what_the_search_finds(self):
    # Those with three buffers, whose run is not too long.
    for key, entry in blt.table().items():
      if key.num_buffers == 3 and key.num_rounds <= 2000:
        found = blt.search(
            _pattern(key), num_buffers=3, error=key.error
        )
        np.testing.assert_allclose(
            _error(key, entry), _error(key, found), rtol=1e-3
        )

  def test_lookup_only_where_the_setting_is_the_same(self):
    pattern = patterns.MinSeparationPattern(
        2048, min_index_gap=342, max_participations=6
    )
    key = blt.Key(2048, 342, 6, 3, 'max')
    expected = blt.table()[key]
    self.assertEqual(blt.optimize(pattern), expected)
    # The sensitivity in a fixed order is the same, and so is the optimum.
    self.assertEqual(
        blt.optimize(
            patterns.FixedOrderPattern(2048, rounds_per_epoch=342)
        ),
        expected,
    )
    self.assertEqual(
        blt.optimize(pattern, workload=workloads.Workload()),
        expected,
    )
    for other in (
        dict(error='mean'),
        dict(num_buffers=2),
        dict(restart_every=1024),
        dict(workload=workloads.Workload(momentum=0.9)),
    ):
      self.assertNotEqual(
          blt.optimize(pattern, **other), expected
      )


if __name__ == '__main__':
  absltest.main()
