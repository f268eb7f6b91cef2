# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""`tff-dp account` for check-ins and shuffling: what a protocol certifies."""

import argparse
import dataclasses
import json
import math
from typing import Any

import dp_accounting

from tff_dp import _checks
from tff_dp.accounting.amplification import check_in_utility
from tff_dp.accounting.protocols import best_bound
from tff_dp.cli import errors
from tff_dp.cli import plot_files
from tff_dp.cli import protocols_event
from tff_dp.cli import protocols_flags
from tff_dp.cli import protocols_plot
from tff_dp.cli import protocols_published
from tff_dp.cli import protocols_text


def add_parsers(kinds) -> None:
  """Adds the four protocols to the subparsers of `tff-dp account`."""
  protocols_flags.add_parsers(kinds, run)


def run(arguments: argparse.Namespace) -> int:
  """Prints what the protocol certifies."""
  if arguments.events is not None:
    raise _checks.ArgumentError(
        'events', arguments.events, f'nothing with {arguments.kind}'
    )
  _checks.delta(delta=arguments.delta)
  if arguments.plot is not None:
    plot_files.check(arguments.plot)
  certificate = certificate_of(arguments)
  if arguments.plot is not None:
    protocols_plot.write(
        arguments.plot,
        arguments,
        certificate_of,
        varied=protocols_flags.KINDS[arguments.kind].varied,
    )
  result = certificate.to_json() | _facts(arguments)
  result['warnings'] += _warnings(arguments)
  if arguments.published:
    result['published_uncertified'] = [
        dataclasses.asdict(row) for row in protocols_published.of(arguments)
    ]
  if arguments.format == 'json':
    print(json.dumps(result, indent=2, allow_nan=False))
  else:
    print('\n'.join(protocols_text.lines(result)))
  return errors.DONE


def certificate_of(arguments: argparse.Namespace) -> best_bound.Certificate:
  """Returns the certificate of the run that the flags describe."""
  one, count = protocols_event.of(arguments)
  return best_bound.amplify(
      dp_accounting.SelfComposedDpEvent(one, count),
      delta=arguments.delta,
      bound=arguments.bound,
      neighboring_relation=getattr(arguments, 'neighboring_relation', None),
      use_derived=not arguments.without_derived,
  )


def _facts(arguments) -> dict[str, Any]:
  """Returns the numbers of the protocol, and what follows from them."""
  names = (
      'population', 'check_in_rate', 'rounds', 'protocol', 'slots',
      'check_in_probability', 'selected', 'local_epsilon', 'local_delta',
      'noise_multiplier', 'randomizer', 'categories',
  )
  parameters = {
      name: getattr(arguments, name)
      for name in names
      if getattr(arguments, name, None) is not None
  }
  result = {'protocol': arguments.kind, 'parameters': parameters}
  population = arguments.population
  if population is None or arguments.kind in ('shuffle', 'shuffled-check-in'):
    return result
  protocol = getattr(arguments, 'protocol', None)
  if protocol == 'sliding-window':
    result['expected_dummy_updates'] = (
        check_in_utility.expected_dummies_sliding_window(
            population, window=arguments.slots
        )
    )
    return result
  probability = protocols_event.probability(arguments)
  if protocol == 'fixed-window':
    result['expected_dummy_updates'] = protocols_event.passes(arguments) * (
        check_in_utility.expected_dummies_fixed_window(
            population,
            num_slots=arguments.slots,
            check_in_probability=probability,
        )
    )
  result['expected_clients_per_slot'] = (
      population * probability * getattr(arguments, 'selected', 1)
      / arguments.slots
  )
  return result


def _warnings(arguments) -> list[str]:
  population = arguments.population
  # 1/population itself is what papers report.
  if population is None or arguments.delta * population <= 1 + 1e-3:
    return []
  if math.isclose(arguments.delta * population, 1):
    return []
  return [
      f'delta {arguments.delta:g} is above 1/population: revealing one client'
      ' entirely would be within it.'
  ]
