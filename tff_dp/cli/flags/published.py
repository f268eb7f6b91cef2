# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What published formulas that do not hold say about a run, for comparison."""

import argparse
import math
from typing import Any
import warnings

from tff_dp.accounting import published
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import privacy_profiles


def of(arguments: argparse.Namespace) -> list[dict[str, Any]]:
  """Returns a row for each formula on a kind of run; none for allocation.

  JSON types: formula and flaw are where it is printed and why it does not hold;
  the value is what it says. UNCERTIFIED: it bounds nothing.
  """
  e0 = getattr(arguments, 'local_epsilon', None)
  if e0 is None:
    return []
  is_pure = not arguments.local_delta
  found = []
  with warnings.catch_warnings():
    # They say what every row says.
    warnings.simplefilter('ignore', published.PublishedFormulaWarning)
    for make in _formulas(arguments, e0, is_pure):
      try:
        value = make()
      except privacy_profiles.NotApplicableError:
        continue
      number = value.insecure_float()
      found.append({
          'formula': value.formula,
          'flaw': value.flaw,
          'value': (
              'inf' if math.isnan(number) else rounding.to_json_number(number)
          ),
          'status': 'UNCERTIFIED',
      })
  return found


def _formulas(arguments, e0: float, is_pure: bool):
  """Yields functions that return an `UncertifiedValue`."""
  delta = arguments.delta
  if arguments.kind == 'shuffled-check-in' and is_pure:
    if not arguments.check_in_rate > 0:
      return
    run = dict(
        local_epsilon=e0,
        num_clients=arguments.population,
        check_in_rate=arguments.check_in_rate,
        num_rounds=arguments.rounds,
        delta=delta,
    )
    yield lambda: published.published_sci_approach_1(**run)
    yield lambda: published.published_sci_approach_2(**run)
    yield lambda: published.published_sci_baseline(**run)
    yield lambda: published.published_sci_theorem_2_epsilon(**run)
  elif arguments.kind == 'shuffle' and is_pure:
    if arguments.rounds in (None, 1):
      yield lambda: published.published_fmt22_epsilon(
          local_epsilon=e0, num_reports=arguments.population, delta=delta
      )
  elif arguments.kind == 'random-check-in' and not is_pure:
    setting = dict(
        local_epsilon=e0,
        local_delta=arguments.local_delta,
        num_slots=arguments.slots,
        delta=delta,
    )
    if arguments.protocol == 'averaged':
      yield lambda: published.published_rci_theorem_4_1(
          min_num_clients=arguments.population, **setting
      )
    else:
      probability = getattr(arguments, 'check_in_probability', None)
      yield lambda: published.published_rci_theorem_3_2(
          check_in_probability=1.0 if probability is None else probability,
          **setting,
      )
