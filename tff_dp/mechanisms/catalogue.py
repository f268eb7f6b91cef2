# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Mechanisms by name: from a few options, or from what was written down."""

from collections.abc import Mapping
import dataclasses
from typing import Any, Optional

from tff_dp import _checks
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.mechanisms import tree
from tff_dp.mechanisms import workloads
from tff_dp.mechanisms.matrix import banded_inverse
from tff_dp.mechanisms.matrix import blt
from tff_dp.mechanisms.matrix import toeplitz
from tff_dp.mechanisms.matrix import toeplitz_algebra

BY_NAME = {
    'independent': mechanism_lib.Independent,
    'tree': tree.Tree,
    'honaker': tree.HonakerTree,
    'banded': toeplitz.Banded,
    'blt': blt.Blt,
    'toeplitz': toeplitz.Toeplitz,
    'banded-inverse': banded_inverse.BandedInverse,
}
# The options of `build` that are for some mechanisms only.
USED_OPTIONS = {
    'independent': (),
    'tree': ('restart_every', 'complete_trees'),
    'honaker': ('restart_every', 'complete_trees'),
    'banded': ('num_bands', 'error', 'workload', 'restart_every'),
    'blt': ('num_buffers', 'error', 'workload', 'restart_every'),
    'toeplitz': ('error', 'workload', 'restart_every'),
    'banded-inverse': ('num_bands', 'error', 'workload', 'restart_every'),
}
# Beyond some hundred bands, one more brings next to nothing.
_MOST_DEFAULT_BANDS = 512
# That many draws a round cost less than a round of most trainings.
_DEFAULT_INVERSE_BANDS = 16
_DEFAULT_BUFFERS = 3
_DEFAULT_ERROR = 'max'

def default_bands(
    name: str,
    participation: Any,
    *,
    restart_every: Optional[int] = None,
) -> int:
  """Returns how many bands `build` gives to 'banded' or 'banded-inverse'."""
  setting = toeplitz_algebra.tree_setting(
      mechanism_lib.pattern_of(participation), restart_every=restart_every
  )
  if name == 'banded-inverse':
    return min(_DEFAULT_INVERSE_BANDS, setting.num_rounds)
  return min(_MOST_DEFAULT_BANDS, setting.min_index_gap, setting.num_rounds)


def build(
    name: str,
    participation: Any,
    *,
    num_bands: Optional[int] = None,
    num_buffers: Optional[int] = None,
    error: Optional[str] = None,
    workload: Optional[workloads.Workload] = None,
    restart_every: Optional[int] = None,
    complete_trees: bool = False,
) -> mechanism_lib.Mechanism:
  """Returns the mechanism of that name, optimised for the participation.

  Options that the mechanism has no use for are refused, except for `error` and
  `workload`, which say what it will be judged by.

  Args:
    name: A key of `BY_NAME`.
    participation: Which rounds one client may take part in, and how many there
      are.
    num_bands: For 'banded', by default as many as the separation allows and 512
      at most; for 'banded-inverse', by default 16.
    num_buffers: For 'blt', by default 3.
    error: What is minimised: 'max' (default) or 'mean' of the variance of the
      noise over rounds.
    workload: What the server makes of the sums; by default it adds them up.
    restart_every: Rounds per tree, `None` for one tree.
    complete_trees: For 'tree' and 'honaker': complete each finished tree.
  """
  _checks.one_of(tuple(BY_NAME), name=name)
  pattern = mechanism_lib.pattern_of(participation)
  options = dict(
      num_bands=num_bands,
      num_buffers=num_buffers,
      restart_every=restart_every,
      complete_trees=complete_trees or None,
  )
  for option, value in options.items():
    if value is not None and option not in USED_OPTIONS[name]:
      raise _checks.ArgumentError(
          option, value, f'nothing with {name}, which has no such option'
      )
  error = _DEFAULT_ERROR if error is None else error
  _checks.one_of(toeplitz_algebra.ERRORS, error=error)
  made = BY_NAME[name]
  if name == 'independent':
    return made(pattern.num_rounds)
  if name in ('tree', 'honaker'):
    return made(
        pattern.num_rounds,
        restart_every=restart_every,
        complete_trees=complete_trees,
    )
  common = dict(error=error, workload=workload, restart_every=restart_every)
  if name == 'toeplitz':
    return made.optimized(pattern, **common)
  if name == 'blt':
    buffers = _DEFAULT_BUFFERS if num_buffers is None else num_buffers
    return made.optimized(pattern, num_buffers=buffers, **common)
  if num_bands is None:
    num_bands = default_bands(name, pattern, restart_every=restart_every)
  return made.optimized(pattern, num_bands=num_bands, **common)


def summary(mechanism: mechanism_lib.Mechanism) -> dict[str, Any]:
  """Returns the few numbers that tell mechanisms of one name apart.

  Bands, and the weights and decays of BLT, as JSON types; not the coefficients,
  of which there may be thousands.
  """
  if isinstance(mechanism, blt.Blt):
    return {
        'num_buffers': mechanism.num_buffers,
        'weights': list(mechanism.weights),
        'decays': list(mechanism.decays),
    }
  if isinstance(mechanism, toeplitz.Banded):
    return {'num_bands': mechanism.num_bands}
  if isinstance(mechanism, banded_inverse.BandedInverse):
    return {'num_bands': mechanism.num_bands}
  return {}


def from_description(described: Mapping[str, Any]) -> mechanism_lib.Mechanism:
  """Returns the mechanism that `DpFtrlPlan.describe()['mechanism']` is about.

  Args:
    described: The name and all fields, possibly as JSON gave them back.

  Raises:
    ArgumentError: If a field is missing, unknown, or not as the mechanism has
      it once it is made: not a float32 number, for example.
  """
  fields = {name: _tupled(value) for name, value in dict(described).items()}
  name = fields.pop('name', None)
  _checks.one_of(tuple(BY_NAME), mechanism=name)
  known = dataclasses.fields(BY_NAME[name])
  expected = sorted(field.name for field in known)
  if sorted(fields) != expected:
    raise _checks.ArgumentError(
        'mechanism', sorted(fields), f'the fields {expected} of {name}'
    )
  made = BY_NAME[name](
      **{field.name: fields[field.name] for field in known if field.init}
  )
  for field, value in dataclasses.asdict(made).items():
    if _tupled(value) != fields[field]:
      raise _checks.ArgumentError(
          field, fields[field], f'{value} in a mechanism of these parameters'
      )
  return made


def _tupled(value):
  """Returns the value with lists, which JSON makes of tuples, as tuples."""
  if isinstance(value, (list, tuple)):
    return tuple(map(_tupled, value))
  return value
