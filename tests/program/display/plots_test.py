# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the picture of a run."""

import pathlib
import sys
import tempfile

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp.program.display import plots


class WriteCurvesTest(parameterized.TestCase):

  @parameterized.parameters(
      ([], [], 2.0),
      ([0.5, 1.0], ['test_accuracy'], 2.0),
      ([0.5, 1.0], ['test_loss'], None),
      ([float('inf')] * 2, ['test_accuracy'], None),
  )
  def test_writes_a_png(self, epsilons, columns, budget):
    history = [
        {'round': t, 'released': {'epsilon': e, **dict.fromkeys(columns, 0.5)}}
        for t, e in enumerate(epsilons, start=1)
    ]
    folder = self.enterContext(tempfile.TemporaryDirectory())
    path = pathlib.Path(folder) / 'curves.png'
    loaded = set(sys.modules)
    plots.write_curves(
        path,
        history,
        evaluation_columns=columns,
        delta=1e-5,
        epsilon_budget=budget,
    )
    self.assertStartsWith(path.read_bytes(), b'\x89PNG')
    self.assertNotIn('matplotlib.pyplot', set(sys.modules) - loaded)


if __name__ == '__main__':
  absltest.main()
