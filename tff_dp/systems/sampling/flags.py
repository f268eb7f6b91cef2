# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""DP-FedAvg and DP-SGD on the command line: a `SamplingPlan` from flags."""

import argparse
from collections.abc import Mapping
import dataclasses
import math
from typing import Any

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.accounting.events import run_events
from tff_dp.cli import errors
from tff_dp.cli import results
from tff_dp.systems.sampling import plan as plan_lib

_SAYS = {
    'account': 'Prints epsilon of a whole run.',
    'calibrate': 'Prints the least noise within a budget.',
    'statement': 'Prints the privacy statement of a planned run.',
}
_REST = """ by a secret coin
for each of them, drawn anew in every round. Beside it stands the epsilon that is
left if somebody else chooses who takes part, or sees it."""


@dataclasses.dataclass(frozen=True)
class Flags:
  """The flags of one kind of run, DP-FedAvg or DP-SGD.

  Attributes:
    unit: Unit of the plan, 'client' or 'example'.
    text: Beginning of the sentence that describes the kind in `--help`.
    example: Flags of an example for `--help`, without noise, budget and delta.
    FLAGS: Argument of the plan -> flag, where the names differ.
  """

  unit: str
  text: str
  example: str
  FLAGS: Mapping[str, str] = dataclasses.field(default_factory=dict)  # pylint: disable=invalid-name

  def add_arguments(
      self, parser: errors.Parser, kind: str, command: str
  ) -> None:
    """Adds the flags of population, sampling and noise."""
    add, solves = parser.add, command == 'calibrate'
    parser.description = f'{_SAYS[command]}\n{self.text}{_REST}'
    given = '--epsilon 2' if solves else '--noise-multiplier 1'
    parser.epilog = (
        f'example:\n  tff-dp {command} {kind} {self.example} \\\n'
        f'      {given} --delta 1e-5\n'
    )
    if self.unit == 'client':
      add('--population', int, required=True, metavar='N', help='clients')
      add('--clients-per-round', int, required=True, metavar='B',
          help='expected cohort; each client comes with probability B/N')
      add('--rounds', int, required=True, help='rounds of the whole run')
    else:
      add('--records', int, required=True, metavar='N', help='examples')
      add('--batch-size', int, required=True, metavar='B',
          help='expected batch; each example comes with probability B/N')
      add('--epochs', float, required=True, help='passes: the run has'
          ' epochs * N / B steps, rounded up')
    if solves:
      add('--epsilon', float, required=True, help='the budget of the whole run')
    else:
      add('--noise-multiplier', float, required=True, metavar='SIGMA',
          help='standard deviation of the noise on the SUM, over the clip norm')
    add('--l2-norm-clip', float, default=1.0, help='bound on the norm of one'
        ' contribution; epsilon does not depend on it, the statement names it'
        ' (default: 1)')
    add('--delta', float, required=True, help='at most 0.1, below 1/N')
    if command != 'statement':
      parser.add_relation()

  def run_of(self, arguments: argparse.Namespace) -> results.PlanRun:
    """Returns the run that the flags describe."""
    _checks.delta(delta=arguments.delta)
    return self._run_with(arguments, self._plan(arguments))

  def calibrated(
      self, arguments: argparse.Namespace
  ) -> tuple[results.PlanRun, dict[str, Any]]:
    """Returns the run within the budget, and a dict with the noise in words."""
    plan = self._plan(arguments).calibrated(
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        neighboring_relation=_relation(arguments),
    )
    number = rounding.rounded_up(plan.noise_multiplier, digits=7)
    return self._run_with(arguments, plan), {
        'solved_for': 'noise_multiplier',
        'answer': (
            f'--noise-multiplier={number} is within epsilon'
            f' {rounding.short(arguments.epsilon)} at delta'
            f' {rounding.short(arguments.delta)}'
        ),
    }

  def _plan(self, arguments: argparse.Namespace) -> plan_lib.SamplingPlan:
    if self.unit == 'client':
      population, cohort = arguments.population, arguments.clients_per_round
      rounds = arguments.rounds
    else:
      population, cohort = arguments.records, arguments.batch_size
      _checks.integer_at_least(1, records=population)
      _checks.integer_between(1, population, batch_size=cohort)
      _checks.positive(epochs=arguments.epochs)
      steps = arguments.epochs * population / cohort
      if steps > _checks.MOST_ROUNDS:
        raise _checks.ArgumentError(
            'epochs',
            arguments.epochs,
            f'fewer passes: they make {steps:.3g} steps, and a run has at most'
            f' {_checks.MOST_ROUNDS}',
        )
      rounds = math.ceil(steps)
    with errors.named_as_flags(self.FLAGS):
      return plan_lib.SamplingPlan(
          population=population,
          clients_per_round=cohort,
          num_rounds=rounds,
          noise_multiplier=getattr(arguments, 'noise_multiplier', None),
          l2_norm_clip=arguments.l2_norm_clip,
          unit=self.unit,
      )

  def _run_with(
      self, arguments: argparse.Namespace, plan: plan_lib.SamplingPlan
  ) -> results.PlanRun:
    options = {'neighboring_relation': _relation(arguments)}
    return results.PlanRun(plan, None, arguments.delta, options)


def _relation(arguments: argparse.Namespace):
  name = getattr(arguments, 'neighboring_relation', None)
  return None if name is None else run_events.NeighboringRelation(name)


DP_FEDAVG = Flags(
    'client',
    'DP-FedAvg: a trusted server draws clients',
    '--population 3400 --clients-per-round 100 --rounds 200',
    {'num_rounds': 'rounds'},
)
DP_SGD = Flags(
    'example',
    'DP-SGD: the holder of all data draws examples',
    '--records 60000 --batch-size 250 --epochs 20',
    {'population': 'records', 'clients_per_round': 'batch-size'},
)
