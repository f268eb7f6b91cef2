# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans: who takes part, what noise is added, how both are accounted.

One for each system, with the same verbs; they are loaded when first used, and
none of them loads TensorFlow.
"""

import importlib
from typing import Any

from tff_dp import _checks

# Public name -> module of this package.
HOMES = {
    'CheckInPlan': 'check_ins',
    'DpFtrlPlan': 'dp_ftrl',
    'DrawAndDiscardPlan': 'draw_and_discard',
    'NonPrivatePlan': 'non_private',
    'SecureSumPlan': 'secure_sums',
    'SiloPlan': 'silos',
}

__all__ = (*HOMES, 'from_description')


def from_description(description: dict[str, Any]):
  """Returns the plan whose `describe()` this is, of any kind."""
  kind = description['kind']
  # Modules are called as the kinds are.
  _checks.one_of(tuple(HOMES.values()), kind=kind)
  (name,) = (name for name, home in HOMES.items() if home == kind)
  return __getattr__(name).from_description(description)


def __getattr__(name: str):
  if name not in HOMES:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  home = importlib.import_module(f'{__name__}.{HOMES[name]}')
  value = globals()[name] = getattr(home, name)
  return value


def __dir__():
  return sorted({*globals(), *HOMES})
