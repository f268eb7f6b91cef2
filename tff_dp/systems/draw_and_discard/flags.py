# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draw and discard on the command line: `DrawAndDiscardPlan` from flags."""

import argparse
from typing import Any

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.cli import errors
from tff_dp.cli import results
from tff_dp.systems.draw_and_discard import client_steps
from tff_dp.systems.draw_and_discard import plan as plan_lib

FLAGS = {
    'num_params': 'parameters',
    'num_instances': 'instances',
    'clients_per_round': 'concurrency',
}
_DESCRIPTIONS = {
    'account': (
        'Prints what all models that one client sent back cost its whole\n'
        'local data set, which is replaced. No trust in the server; how many\n'
        'instances it keeps, which one it overwrites, changes nothing.'
    ),
    'calibrate': (
        'Prints the epsilon of one participation with which all of a client\n'
        'stay within a budget; the noise follows from it.'
    ),
    'statement': 'Prints the privacy statement of a plan of draw and discard.',
}
_EXAMPLES = {
    'account': """examples:
  noise as in the paper, where epsilon is about one weight:
    tff-dp account draw-and-discard --parameters 33 \\
        --epsilon-per-coordinate 3.47 --participations 1 --instances 20
  Gaussian noise on a clipped norm, five participations:
    tff-dp account draw-and-discard --parameters 387 --epsilon 2 --delta 1e-6 \\
        --mechanism gaussian --clip l2 --participations 5 --instances 20
""",
    'calibrate': """example:
    tff-dp calibrate draw-and-discard --parameters 387 --instances 20 \\
        --mechanism gaussian --clip l2 --max-participations 5 \\
        --epsilon 4 --delta 1e-6
""",
    'statement': """example:
    tff-dp statement draw-and-discard --parameters 387 --epsilon 2 \\
        --mechanism gaussian --clip l2 --max-participations 5 \\
        --instances 20 --delta 1e-6
""",
}


def add_arguments(
    parser: errors.Parser, kind: str, command: str
) -> None:
  """Adds the flags of the client's step and of the server."""
  add = parser.add
  del kind
  parser.description = _DESCRIPTIONS[command]
  parser.epilog = _EXAMPLES[command]
  solves = command == 'calibrate'
  add('--parameters', int, required=True, help='weights of the model, all'
      ' together, p')
  if solves:
    add('--epsilon', float, required=True, help='the budget of all'
        ' participations of a client')
  else:
    unit = parser.add_mutually_exclusive_group(required=True)
    add('--epsilon', float, to=unit, help='of one participation, for the whole'
        ' model: what the noise is calibrated to')
    add('--epsilon-per-coordinate', float, to=unit, help='of one participation,'
        ' for one weight, as in the paper; the whole model costs up to p times'
        ' as much')
  add('--participations', int, help='of one client: the largest number that'
      ' occurs (default: the cap)')
  add('--max-participations', int, help='the cap that clients enforce, if they'
      ' do')
  add('--instances', int, required=True, help='of the server, k')
  add('--concurrency', int, default=1, help='clients in flight at once, m'
      ' (default: 1)')
  add('--mechanism', choices=('laplace', 'gaussian'), default='laplace',
      help='of the noise (default: laplace)')
  add('--clip', choices=client_steps.CLIPS, default='box', help='of the mean'
      ' gradient of a client (default: box, every weight)')
  add('--clip-norm', float, default=1.0, help='bound of the clip (default: 1)')
  add('--learning-rate', float, default=0.001, help='of the client; the noise'
      ' scales with it (default: 0.001)')
  parser.add_argument(
      '--delta',
      type=float,
      required=command != 'account',
      help='at most 0.1, of all participations'
      + ('; none by default, except that gaussian needs one')
      * (command == 'account'),
  )


def plan_of(
    arguments: argparse.Namespace, participations: int
) -> plan_lib.DrawAndDiscardPlan:
  """Returns the plan of the flags. Its number of rounds is a client's cap.

  Args:
    arguments: The flags.
    participations: Cap on the participations of a client, if no flag sets it.
  """
  per_weight = getattr(arguments, 'epsilon_per_coordinate', None)
  if per_weight is not None:
    # Checked here, because the error of the step would name another field.
    _checks.positive(epsilon_per_coordinate=per_weight)
  cap = arguments.max_participations
  if cap is None:
    # A client takes part at most once in a round.
    cap = max(1, participations)
  return plan_lib.DrawAndDiscardPlan(
      step=client_steps.ClientStep(
          learning_rate=arguments.learning_rate,
          clip=arguments.clip,
          clip_norm=arguments.clip_norm,
          mechanism=arguments.mechanism,
          epsilon=arguments.epsilon if per_weight is None else per_weight,
          delta=arguments.delta if arguments.mechanism == 'gaussian' else None,
          privacy_unit='model' if per_weight is None else 'coordinate',
      ),
      num_params=arguments.parameters,
      num_instances=arguments.instances,
      max_participations=cap,
      num_rounds=cap,
      clients_per_round=arguments.concurrency,
  )


def run_of(arguments: argparse.Namespace) -> results.PlanRun:
  """Returns the run that the flags describe."""
  participations = arguments.participations
  if participations is None:
    # Nothing is assumed without a promise.
    participations = arguments.max_participations
  if participations is None:
    raise _checks.ArgumentError(
        'participations',
        None,
        'a number, as --participations or --max-participations',
    )
  plan = plan_of(arguments, participations)
  _checks.integer_between(
      0, plan.max_participations, participations=participations
  )
  # At most one participation in a round, so there are as many rounds.
  return results.PlanRun(plan, participations, arguments.delta)


def calibrated(
    arguments: argparse.Namespace,
) -> tuple[results.PlanRun, dict[str, Any]]:
  """Returns the run within the budget, and a dict with the noise in words."""
  run = run_of(arguments)
  plan = run.plan.calibrated(epsilon=arguments.epsilon, delta=arguments.delta)
  number = results.rounded_down(plan.step.epsilon)
  scale = plan.step.noise_scale(plan.num_params)
  return run._replace(plan=plan), {
      'solved_for': 'epsilon_of_one_report',
      'answer': (
          f'--epsilon={number} of one participation, noise of scale'
          f' {rounding.rounded_up(scale, digits=6)}, is within epsilon'
          f' {rounding.short(arguments.epsilon)} at delta'
          f' {rounding.short(arguments.delta)}'
      ),
  }
