# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The settings of a sweep over silos, and the flags for them."""

import argparse
import dataclasses
from typing import Optional

from tasks.common import flags
from tasks.silos import silo_algorithms
from tff_dp import _checks


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """The settings of a sweep. The fields are the flags of `add_arguments`."""

  output_dir: str = 'runs/silos'
  data: Optional[str] = None
  epsilons: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
  algorithms: tuple[str, ...] = silo_algorithms.DEFAULT
  seeds: int = 3
  tuning_seeds: int = 3
  rounds: int = 35
  one_pass_rounds: int = 10
  local_steps: int = 20
  l2_norm_clip: float = 1.0
  silos_per_round: Optional[int] = None
  epsilon_factors: Optional[tuple[float, ...]] = None
  weighting: str = silo_algorithms.EQUAL
  largest_epsilon: float = 16.0
  step_scales: tuple[float, ...] = (0.125, 0.5, 2.0, 8.0)

  def __post_init__(self):
    _checks.integer_at_least(1, seeds=self.seeds)
    _checks.integer_at_least(1, tuning_seeds=self.tuning_seeds)
    _checks.optional_integer_at_least(1, silos_per_round=self.silos_per_round)
    for epsilon in self.epsilons:
      _checks.positive(epsilons=epsilon)
    for scale in self.step_scales:
      _checks.positive(step_scales=scale)
    self.sizes  # Checked when it is built.

  @property
  def sizes(self) -> silo_algorithms.Sizes:
    return silo_algorithms.Sizes(
        rounds=self.rounds,
        one_pass_rounds=self.one_pass_rounds,
        local_steps=self.local_steps,
        l2_norm_clip=self.l2_norm_clip,
        epsilon_factors=self.epsilon_factors,
        weighting=self.weighting,
        largest_epsilon=self.largest_epsilon,
    )


def add_arguments(
    parser: argparse.ArgumentParser, default: Settings
) -> None:
  """Adds the flags of `Settings`, with a task's own defaults."""

  add = flags.adder(parser, default)
  add('output_dir', 'folder of all runs; the same command resumes in it')
  add('data', 'where the data is, see above', metavar='PATH', type=str)
  add('epsilons', "budgets of every silo; delta is 1 / (silo's records)^2")
  add('algorithms', 'rows', choices=tuple(silo_algorithms.BY_NAME))
  add('seeds', 'runs of each row at each epsilon')
  add('tuning_seeds', 'further runs for each step size to choose from')
  add('rounds', 'rounds of the algorithms with several passes')
  add('one_pass_rounds', 'rounds of the algorithms with a single pass')
  add('local_steps', 'steps of a silo between two messages of local SGD')
  add('l2_norm_clip', "bound on the norm of each record's gradient")
  add(
      'silos_per_round',
      "silos that can be reached in a round (default: the task's number)",
      type=int,
  )
  add(
      'epsilon_factors',
      'personal budgets: the budget of each silo divided by that of'
      ' --epsilons, in the order of the silos (default: all the same)',
      type=float,
      nargs='+',
      metavar='FACTOR',
  )
  add(
      'weighting',
      'weights of the silos in training: equal, or by their records',
      choices=silo_algorithms.WEIGHTINGS,
  )
  add(
      'largest_epsilon',
      'E in the number of records of a round of several passes,'
      ' floor(n sqrt(E / 4 R))',
  )
  add(
      'step_scales',
      'step sizes to choose from, for each row and epsilon, in units of 1 /'
      ' smoothness',
  )
