# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""`tff-dp account draw-and-discard`: what noised models cost a client."""

import argparse
import json

from tff_dp import _checks
from tff_dp.accounting import draw_and_discard
from tff_dp.accounting import rounding
from tff_dp.cli import errors
from tff_dp.cli import event_files
from tff_dp.mechanisms import client_steps
from tff_dp.plans import draw_and_discard as draw_and_discard_plan

HELP = 'noised models of one client that a server writes over its instances'
DESCRIPTION = (
    'Prints what all models that one client sent back cost its whole local\n'
    'data set. Adjacency: the data set is replaced. No trust in the server;\n'
    'how many instances it keeps, which one it overwrites, changes nothing.\n'
    'Numbers about weaker observers come last, as diagnostics.'
)
EXAMPLES = """examples:
  noise as in the paper, where epsilon is about one weight:
    tff-dp account draw-and-discard --parameters 33 \\
        --epsilon-per-coordinate 3.47 --participations 1 --instances 20
  Gaussian noise on a clipped norm, five participations:
    tff-dp account draw-and-discard --parameters 387 --epsilon 2 --delta 1e-6 \\
        --mechanism gaussian --clip l2 --participations 5 --instances 20
"""
_FLAGS = {
    'num_params': 'parameters',
    'num_instances': 'instances',
    'clients_per_round': 'concurrency',
}


def add_account_parser(kinds) -> None:
  """Adds `draw-and-discard` to the kinds of `tff-dp account`."""
  add_account_arguments(
      kinds.add_parser(
          'draw-and-discard',
          help=HELP,
          description=DESCRIPTION,
          epilog=EXAMPLES,
      )
  )


def add_account_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags, and what runs the command."""
  parser.add_argument(
      '--parameters',
      type=int,
      required=True,
      help='weights of the model, all together, p',
  )
  unit = parser.add_mutually_exclusive_group(required=True)
  unit.add_argument(
      '--epsilon',
      type=float,
      help='of one participation, for the whole model: what the noise is'
      ' calibrated to',
  )
  unit.add_argument(
      '--epsilon-per-coordinate',
      type=float,
      help='of one participation, for one weight, as in the paper; the whole'
      ' model costs up to p times as much',
  )
  parser.add_argument(
      '--participations',
      type=int,
      help='of one client: the largest number that occurs (default: the cap)',
  )
  parser.add_argument(
      '--max-participations',
      type=int,
      help='the cap that clients enforce, if they do',
  )
  parser.add_argument(
      '--instances', type=int, required=True, help='of the server, k'
  )
  parser.add_argument(
      '--concurrency',
      type=int,
      default=1,
      help='clients in flight at once, m (default: 1)',
  )
  parser.add_argument(
      '--mechanism',
      choices=('laplace', 'gaussian'),
      default='laplace',
      help='of the noise (default: laplace)',
  )
  parser.add_argument(
      '--clip',
      choices=client_steps.CLIPS,
      default='box',
      help='of the mean gradient of a client (default: box, every weight)',
  )
  parser.add_argument(
      '--clip-norm',
      type=float,
      default=1.0,
      help='bound of the clip (default: 1)',
  )
  parser.add_argument(
      '--learning-rate',
      type=float,
      default=0.001,
      help='of the client; the noise scales with it (default: 0.001)',
  )
  parser.add_argument(
      '--delta',
      type=float,
      help='in (0, 1), of all participations; none by default, except that'
      ' gaussian needs one',
  )
  parser.add_argument(
      '--later-updates',
      type=int,
      nargs='+',
      default=[1, 100, 10_000],
      help='for the diagnostics: after how many more updates somebody looks'
      ' (default: 1 100 10000)',
  )
  parser.add_argument('--format', choices=('text', 'json'), default='text')
  parser.set_defaults(run=run_account)


def run_account(arguments: argparse.Namespace) -> int:
  """Prints the guarantee."""
  events = getattr(arguments, 'events', None)
  if events is not None:
    raise _checks.ArgumentError(
        'events', events, 'nothing with draw-and-discard'
    )
  per_weight = arguments.epsilon_per_coordinate
  is_gaussian = arguments.mechanism == 'gaussian'
  participations = arguments.participations
  if participations is None:
    # What is not promised is not assumed.
    participations = arguments.max_participations
  if participations is None:
    raise _checks.ArgumentError(
        'participations', None, 'a number, here or as --max-participations'
    )
  if per_weight is not None:
    # The step would name its own field.
    _checks.positive(epsilon_per_coordinate=per_weight)
  with errors.named_as_flags(_FLAGS):
    step = client_steps.ClientStep(
        learning_rate=arguments.learning_rate,
        clip=arguments.clip,
        clip_norm=arguments.clip_norm,
        mechanism=arguments.mechanism,
        epsilon=arguments.epsilon if per_weight is None else per_weight,
        delta=arguments.delta if is_gaussian else None,
        privacy_unit='model' if per_weight is None else 'coordinate',
    )
    is_capped = arguments.max_participations is not None
    # A participation is at most one in a round.
    cap = arguments.max_participations if is_capped else max(1, participations)
    plan = draw_and_discard_plan.DrawAndDiscardPlan(
        step=step,
        num_params=arguments.parameters,
        num_instances=arguments.instances,
        max_participations=cap,
        num_rounds=cap,
        clients_per_round=arguments.concurrency,
    )
    found = draw_and_discard.guarantee(
        plan,
        participations=participations,
        delta=arguments.delta,
        is_capped=is_capped,
        later_updates=arguments.later_updates,
    )
  if arguments.format == 'json':
    print(json.dumps(found.to_json(), indent=2, allow_nan=False))
  else:
    print(found.to_text())
  return errors.DONE


def show_run(
    run: event_files.PlanRun, *, delta: float, output_format: str
) -> None:
  """Prints what a run costs, recomputed from its plan.

  Args:
    run: What an events file describes.
    delta: In (0, 1).
    output_format: 'text' or 'json'.
  """
  _checks.delta(delta=delta)
  plan = run.plan
  found = draw_and_discard.guarantee(
      plan,
      participations=plan.participations_after(run.num_rounds),
      delta=delta,
  )
  if output_format != 'json':
    print(found.to_text())
    return
  epsilon = plan.epsilon(delta=delta, num_rounds=run.num_rounds)
  result = {
      'epsilon': rounding.to_json_number(epsilon),
      'delta': delta,
      'epsilon_no_amplification': rounding.to_json_number(epsilon),
      'unit': plan.unit,
      'neighboring_relation': plan.neighboring_relation.value,
      'trust': plan.trust,
      'assumptions': list(found.assumptions),
      'warnings': list(plan.statement(delta=delta).warnings),
      'rounds': run.num_rounds,
      'participations': found.participations,
      'plan': plan.describe(),
      'guarantee': found.to_json(),
  }
  print(json.dumps(result, indent=2, allow_nan=False))
