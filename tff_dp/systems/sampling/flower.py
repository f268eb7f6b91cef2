# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A Flower strategy that follows a `SamplingPlan`. Checked against Flower 1.41.

    strategy = flower.SamplingStrategy(plan, output_dir='run', delta=1e-6)
    result = strategy.start(grid=grid, initial_arrays=arrays)
"""

from tff_dp.integrations import flower_strategy

record_of = flower_strategy.record_of
arrays_of = flower_strategy.arrays_of


class SamplingStrategy(flower_strategy.PlanStrategy):
  """A strategy for a `SamplingPlan`, see base class."""
