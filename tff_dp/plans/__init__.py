# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans: who takes part, which noise is added, and how both are accounted.

Each system has one plan class, with the same verbs. The classes are loaded when
first used, and none of them loads TensorFlow.
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
  """Returns the plan, of any kind, from the output of its `describe`."""
  kind = description['kind']
  # Modules have the names of the kinds.
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
