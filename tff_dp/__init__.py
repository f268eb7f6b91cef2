# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Differential privacy for TensorFlow Federated, with its guarantee stated.

Importing this package loads nothing heavy: `tff_dp.accounting` and the other
parts are imported when they are first used, and only `aggregators`, `learning`,
`execution` and `program` need TensorFlow Federated.
"""

import importlib
import sys
from typing import TYPE_CHECKING

# Before anything of ours is imported, because an older Python cannot read it.
if sys.version_info < (3, 11):
  raise ImportError(
      'tff_dp needs Python 3.11, this is %d.%d. In a checkout of tff_dp, run'
      ' `make environment`: it puts Python 3.11 and every package into .venv;'
      ' then use .venv/bin/python.' % sys.version_info[:2]
  )

# pylint: disable=g-import-not-at-top,g-importing-member
from tff_dp import _compat
from tff_dp._version import __version__

if TYPE_CHECKING:
  # pylint: disable=g-bad-import-order,g-importing-member
  from tff_dp import accounting
  from tff_dp import aggregators
  from tff_dp import execution
  from tff_dp import learning
  from tff_dp import mechanisms
  from tff_dp import participation
  from tff_dp import program
  from tff_dp.draw_and_discard_plan import DrawAndDiscardPlan
  from tff_dp.non_private_plan import NonPrivatePlan
  from tff_dp.plan import PrivacyPlan
  from tff_dp.protocol_plan import ProtocolPlan

# Before TensorFlow and TFF are loaded.
_compat.prepare_imports()

_LAZY_MODULES = (
    'accounting',
    'aggregators',
    'execution',
    'learning',
    'mechanisms',
    'participation',
    'program',
)
# Name here -> module that defines it.
_LAZY_NAMES = {
    'DrawAndDiscardPlan': 'tff_dp.draw_and_discard_plan',
    'NonPrivatePlan': 'tff_dp.non_private_plan',
    'PrivacyPlan': 'tff_dp.plan',
    'PrivacyRefusedError': 'tff_dp._checks',
    'ProtocolPlan': 'tff_dp.protocol_plan',
}

__all__ = ('__version__', *_LAZY_MODULES, *_LAZY_NAMES)


def __getattr__(name: str):
  if name in _LAZY_MODULES:
    # The import system binds the submodule, so this runs once per name.
    return importlib.import_module(f'tff_dp.{name}')
  if name in _LAZY_NAMES:
    value = getattr(importlib.import_module(_LAZY_NAMES[name]), name)
    globals()[name] = value
    return value
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__():
  return sorted({*globals(), *__all__})
