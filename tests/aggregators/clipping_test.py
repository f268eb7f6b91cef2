# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clipped vectors stay within the clip norm, whatever float32 rounds."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from tff_dp.aggregators import clipping


def _one(row: np.ndarray, l2_norm_clip: float) -> np.ndarray:
  return clipping.clip(tf.constant(row), l2_norm_clip)[0].numpy()


def _of_rows(row: np.ndarray, l2_norm_clip: float) -> np.ndarray:
  # Beside others, of which one is not finite.
  rows = np.stack([np.full_like(row, np.nan), row, np.zeros_like(row)])
  clipped = clipping.clip_rows(tf.constant(rows), l2_norm_clip).numpy()
  np.testing.assert_array_equal(clipped[[0, 2]], 0.0)
  return clipped[1]


def _norm(row: np.ndarray) -> float:
  # In float64, whose errors are a millionth of the margin.
  return math.sqrt(np.square(row.astype(np.float64)).sum())


class ClippingTest(parameterized.TestCase):

  @parameterized.product(
      clip_one=(_one, _of_rows), size=(1, 3, 257, 1023, 100_003, 1_000_000)
  )
  def test_exact_norm_is_within_the_bound(self, clip_one, size):
    rng = np.random.default_rng(size)
    random = rng.standard_normal(size)
    # A long run of squares that are lost beside a first large one.
    beside = np.full(size, 2.0**-12.5)
    beside[0] = 1.0
    for direction in (np.ones(size), random, beside, beside[::-1]):
      unit = direction / np.linalg.norm(direction)
      for l2_norm_clip in (1.0, 7e-4):
        for factor in (1 - 1e-7, 1.0, 1 + 1e-6, 3.0, 1e6):
          row = (unit * l2_norm_clip * factor).astype(np.float32)
          norm = _norm(clip_one(row, l2_norm_clip))
          self.assertLessEqual(norm, l2_norm_clip)
          self.assertGreater(norm, l2_norm_clip * (1 - 3e-5))

  @parameterized.product(clip_one=(_one, _of_rows))
  def test_short_vectors_stay_as_they_are(self, clip_one):
    row = np.array([0.3, -0.4, 0.0], np.float32)
    np.testing.assert_array_equal(clip_one(row, 0.51), row)

  @parameterized.product(
      clip_one=(_one, _of_rows), wrong=(np.nan, np.inf, -np.inf, 1e30)
  )
  def test_what_has_no_norm_becomes_zero(self, clip_one, wrong):
    row = np.array([1.0, wrong, 2.0], np.float32)
    np.testing.assert_array_equal(clip_one(row, 1.0), 0.0)


if __name__ == '__main__':
  absltest.main()
