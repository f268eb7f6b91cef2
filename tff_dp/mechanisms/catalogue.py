# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Mechanisms by name, built from a few options or from a description."""

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

BY_NAME: dict[str, Any] = {
    'independent': mechanism_lib.Independent,
    'tree': tree.Tree,
    'honaker': tree.HonakerTree,
    'banded': toeplitz.Banded,
    'blt': blt.Blt,
    'toeplitz': toeplitz.Toeplitz,
    'banded-inverse': banded_inverse.BandedInverse,
}
# Options of `build` that each mechanism uses.
USED_OPTIONS = {
    'independent': (),
    'tree': ('restart_every', 'complete_trees'),
    'honaker': ('restart_every', 'complete_trees'),
    'banded': ('num_bands', 'error', 'workload', 'restart_every'),
    'blt': ('num_buffers', 'error', 'workload', 'restart_every'),
    'toeplitz': ('error', 'workload', 'restart_every'),
    'banded-inverse': ('num_bands', 'error', 'workload', 'restart_every'),
}
# Above some hundred bands, one more band lowers the error very little.
_MOST_DEFAULT_BANDS = 512
# This many draws per round cost less than a round of most trainings.
_DEFAULT_INVERSE_BANDS = 16
_DEFAULT_BUFFERS = 3
_DEFAULT_ERROR = 'max'

def default_bands(
    name: str,
    participation: Any,
    *,
    restart_every: Optional[int] = None,
) -> int:
  """Returns the default of `num_bands` in `build`.

  Args:
    name: Name of the mechanism, 'banded' or 'banded-inverse'.
    participation: A schedule or a participation pattern, as for `build`.
    restart_every: Number of rounds per tree, or `None` for one tree.
  """
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
  """Returns the mechanism of a name, optimised for the participation.

  An option that the mechanism does not use is refused. Only `error` and
  `workload` are accepted for every mechanism.

  Args:
    name: Key of `BY_NAME`.
    participation: A schedule or a participation pattern: the number of rounds,
      and the rounds in which one client may take part.
    num_bands: Number of bands. Default for 'banded': 512, or fewer if a client
      may come again sooner, or if a tree has fewer rounds. Default for
      'banded-inverse': 16, or the rounds per tree if fewer.
    num_buffers: Number of buffers of 'blt'. Default: 3.
    error: Error to minimise at equal privacy: the largest variance of the noise
      over the rounds ('max', the default), or the mean ('mean').
    workload: Map from the noised sums of the rounds to the model, see
      `workloads`. Default: the prefix sum.
    restart_every: Number of rounds per tree, or `None` for one tree.
    complete_trees: Whether 'tree' and 'honaker' extend a tree by virtual rounds
      before the next tree begins, see `Mechanism`.

  Raises:
    ArgumentError: If the name or an option is out of range, or if the mechanism
      does not use the option.
    TypeError: If `participation` is neither a schedule nor a pattern.
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
          option, value, f'no value with {name}, which has no such option'
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

  They are the number of bands of a banded mechanism, or the number of buffers,
  weights and decays of BLT, as JSON types. Coefficients are left out, as there
  may be thousands. For other mechanisms, the result is empty.
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
  """Returns the mechanism that a plan describes under 'mechanism'.

  Args:
    described: Name and all fields of the mechanism, as described or as read
      back from JSON.

  Raises:
    ArgumentError: If a field is missing or unknown, or if the mechanism would
      change it. For example, it rounds a number that is not a float32.
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
          field,
          fields[field],
          f'{value}, the value that {name} computes for this field',
      )
  return made


def _tupled(value):
  """Returns the value with tuples in place of lists, as before JSON."""
  if isinstance(value, (list, tuple)):
    return tuple(map(_tupled, value))
  return value
