# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clipping and rounding of updates on a server without TensorFlow."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tff_dp.integrations import updates


class UpdatesTest(parameterized.TestCase):

  def test_no_client_moves_the_sum_by_more_than_the_clip_norm(self):
    rng = np.random.default_rng(2)
    for clip in (1e-3, 1.0, 0.7):
      for scale in (1e-9, 1.0, 1e200):
        bounded, _ = updates.clip(scale * rng.normal(size=1000), clip)
        steps = updates.on_grid(bounded, clip)
        # In integers of Python: exact.
        squared = sum(int(step) ** 2 for step in steps)
        limit = int(clip / updates.grid_step(clip)) ** 2
        self.assertLessEqual(squared, limit)
        # And no more is taken off than the grid does.
        np.testing.assert_allclose(
            steps * updates.grid_step(clip), bounded, rtol=0, atol=clip * 2**-38
        )
        # Towards zero: no coordinate grows.
        self.assertTrue(
            np.all(np.abs(steps) * updates.grid_step(clip) <= np.abs(bounded))
        )

  @parameterized.parameters(
      ((np.nan, 1.0),),
      ((np.inf, 1.0),),
      ((1.0, -np.inf),),
      ((np.inf, np.nan),),
      # Finite, but not their norm.
      ((1e200, 1e200),),
  )
  def test_what_has_no_norm_is_zero_and_within(self, update):
    update = np.array(update)
    bounded, problem = updates.clip(update, 0.5)
    np.testing.assert_array_equal(bounded, [0, 0])
    self.assertEqual(problem, 'not finite')
    np.testing.assert_array_equal(updates.on_grid(bounded, 0.5), [0, 0])
    # As the zeros are that stand in its place.
    self.assertTrue(updates.is_within(update, 0.5))

  def test_rounding_of_an_honest_client_is_no_complaint(self):
    for norm, problem, is_within in (
        (0.5, '', True),
        (0.5 * (1 + 5e-6), '', False),
        (0.5 * (1 + 2e-5), 'over the clip norm', False),
    ):
      update = np.array([0.0, norm])
      bounded, found = updates.clip(update, 0.5)
      self.assertEqual(found, problem)
      # Clipped all the same.
      self.assertBetween(bounded[1], 0.499999, 0.5 * (1 - 1e-7))
      self.assertEqual(updates.is_within(update, 0.5), is_within)


if __name__ == '__main__':
  absltest.main()
