# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Random allocation on the command line: an `AllocationPlan` from flags."""

import argparse
from typing import Any

from tff_dp.cli import errors
from tff_dp.cli import protocol_flags
from tff_dp.cli import results
from tff_dp.systems.allocation import plan as plan_lib
from tff_dp.systems.allocation import protocols

FLAGS = protocol_flags.FLAGS
_KIND = protocol_flags.Kind(
    description=(
        'of check-ins with Gaussian noise on the sum of\n'
        'every slot, empty ones too (arXiv:2502.08202). --rounds above\n'
        '--slots means further passes with new coins.'
    ),
    examples="""
  tff-dp account random-allocation --population 1000000 --slots 2000 \\
      --noise-multiplier 1 --delta 1e-6
  tff-dp calibrate random-allocation --slots 2000 --epsilon 1 --delta 1e-6
""",
    required=('slots',),
    optional=('population', 'rounds', 'check_in_probability', 'selected'),
    varied='slots',
)


def add_arguments(parser: errors.Parser, kind: str, command: str) -> None:
  """Adds the flags of protocol, noise and bound."""
  del kind
  protocol_flags.add_arguments(parser, _KIND, command)
  if command != 'calibrate':
    parser.add('--noise-multiplier', float, required=True, metavar='SIGMA',
               help='noise on the sum of a slot over the bound on one'
               ' contribution')
  if command != 'statement':
    parser.add_relation()
  protocol_flags.add_guarantee(parser)


def plan_of(arguments: argparse.Namespace) -> plan_lib.AllocationPlan:
  """Returns the plan of the flags, with noise multiplier 1 if none is set."""
  protocol_flags.check_counts(arguments)
  noise = getattr(arguments, 'noise_multiplier', None)
  probability = arguments.check_in_probability
  protocol = protocols.RandomAllocation(
      arguments.slots,
      arguments.selected,
      1.0 if probability is None else probability,
  )
  return plan_lib.AllocationPlan(
      protocol,
      noise_multiplier=1.0 if noise is None else noise,
      l2_norm_clip=arguments.clip_norm,
      num_passes=protocol_flags.passes_of(arguments),
      **protocol_flags.options_of(arguments),
  )


def run_of(arguments: argparse.Namespace) -> results.PlanRun:
  """Returns the run that the flags describe."""
  return protocol_flags.run_of(arguments, plan_of)


def calibrated(
    arguments: argparse.Namespace,
) -> tuple[results.PlanRun, dict[str, Any]]:
  """Returns the run within the budget, and a dict with the noise in words."""
  return protocol_flags.calibrated(arguments, plan_of)


def write_plot(arguments: argparse.Namespace) -> None:
  """Writes a PNG of epsilon by every bound against slots."""
  protocol_flags.write_plot(arguments, _KIND, plan_of)
