# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Differential privacy for TensorFlow Federated, with its guarantee stated.

Importing this package loads nothing heavy: `tff_dp.accounting` and the other
parts are imported when they are first used. `aggregators`, `execution`,
`export`, `learning` and `program` need TensorFlow Federated.
"""

import importlib
import sys
from typing import TYPE_CHECKING

# Before any other module of the package, which an older Python cannot parse.
if sys.version_info < (3, 11):
  raise ImportError(
      'tff_dp needs Python 3.11 or later, this is %d.%d. In a checkout of tff_dp, run'
      ' `make environment`: it puts Python 3.11 and every package into .venv;'
      ' then use .venv/bin/python.' % sys.version_info[:2]
  )

# pylint: disable=g-import-not-at-top,g-importing-member
from tff_dp import _compat
from tff_dp import _lazy
from tff_dp import plans
from tff_dp import systems
from tff_dp._version import __version__

if TYPE_CHECKING:
  # pylint: disable=g-bad-import-order,g-importing-member
  from tff_dp import accounting
  from tff_dp import advice
  from tff_dp import aggregators
  from tff_dp import execution
  from tff_dp import learning
  from tff_dp import mechanisms
  from tff_dp import participation
  from tff_dp import program
  from tff_dp.systems.allocation.plan import AllocationPlan
  from tff_dp.systems.check_ins.plan import CheckInPlan
  from tff_dp.systems.dp_ftrl.plan import DpFtrlPlan
  from tff_dp.systems.dp_ftrl.non_private import NonPrivatePlan
  from tff_dp.systems import allocation
  from tff_dp.systems import check_ins
  from tff_dp.systems import dp_ftrl
  from tff_dp.systems import draw_and_discard
  from tff_dp.systems import sampling
  from tff_dp.systems import silos
  from tff_dp.systems.draw_and_discard.plan import DrawAndDiscardPlan
  from tff_dp.systems.sampling.plan import SamplingPlan
  from tff_dp.systems.silos.plan import SiloPlan
  from tff_dp.systems.silos.secure_sum_plan import SecureSumPlan

# Before TensorFlow and TFF are loaded.
_compat.prepare_imports()

# The folders of systems are parts of this package: `tff_dp.draw_and_discard`.
_SYSTEMS = systems.FOLDERS
for _name in _SYSTEMS:
  globals()[_name] = sys.modules[f'tff_dp.systems.{_name}']
  sys.modules[f'tff_dp.{_name}'] = globals()[_name]
sys.meta_path.insert(0, _lazy.Aliases(_SYSTEMS))

_LAZY_MODULES = (
    'accounting',
    'advice',
    'aggregators',
    'execution',
    'learning',
    'mechanisms',
    'participation',
    'program',
)
# Re-exported names, with the modules that define them.
_LAZY_NAMES = {
    'PrivacyRefusedError': 'tff_dp._checks',
    **plans.HOMES,
}

__all__ = ('__version__', *_SYSTEMS, *_LAZY_MODULES, *_LAZY_NAMES)


def __getattr__(name: str):
  if name in _LAZY_MODULES:
    # The import system binds the submodule, so this runs once per name.
    return importlib.import_module(f'tff_dp.{name}')
  if name in _LAZY_NAMES:
    value = getattr(importlib.import_module(_LAZY_NAMES[name]), name)
    globals()[name] = value
    return value
  raise _lazy.unknown(__name__, name)


def __dir__():
  return sorted({*globals(), *__all__})
