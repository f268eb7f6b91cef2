# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans: the participants and the noise of a run, and its accounting.

Each system has one plan class, with the same verbs. The classes are loaded when
first used, and none of them loads TensorFlow.
"""

from typing import Any

from tff_dp import _lazy
from tff_dp import systems

# Public name -> full name of its module. Not of other packages' systems, whose
# modules import this one.
HOMES = {each.plan.name: each.plan.module for each in systems.own().values()}


def from_description(description: dict[str, Any]):
  """Returns the plan, of any kind, from the output of its `describe`."""
  system = systems.of(description['kind'])
  return system.plan().from_description(description)


__getattr__, __dir__, __all__ = _lazy.names(__name__, HOMES)
__all__ = (*__all__, 'from_description')
