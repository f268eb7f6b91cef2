# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The file `events.json` of a run, read without trusting its numbers.

The file names the plan and its cost. A reader should not have to trust the
cost. So the plan is rebuilt from the file and recomputes the cost of the file's
number of rounds. Both costs must agree.
"""

from collections.abc import Iterator, Mapping
import contextlib
import json
import math
import os
import types
from typing import Any, NamedTuple, Optional

import numpy as np

from tff_dp import _checks
from tff_dp import plans
from tff_dp.files import regular
from tff_dp.plans import base

# Tolerance of squared sensitivities, whose last digits depend on the processor.
_TOLERANCE = 1e-9
# Largest count in a file. The slowest accounting, of shuffled reports, takes
# minutes for so many clients.
_MOST_COUNT = 10**9
_LONGEST_TEXT = 10_000
# Most characters of an inner error in a message.
_LONGEST = 300


class PlanRun(NamedTuple):
  """The run that numbers are stated for.

  Attributes:
    plan: Plan of the run.
    num_rounds: Number of rounds that are accounted for, `None` for all.
    delta: Delta at which epsilon is stated. `None`, for draw and discard only,
      asks for the sum of pure epsilons.
    options: Options of `Plan.headline`, by name.
    detail_options: Further options of `Plan.details` of this kind of plan.
  """

  plan: base.Plan
  num_rounds: Optional[int]
  delta: Optional[float]
  options: Mapping[str, Any] = types.MappingProxyType({})
  detail_options: Mapping[str, Any] = types.MappingProxyType({})


def read(path: str | os.PathLike) -> PlanRun:
  """Returns the run that a file `events.json` describes.

  Raises:
    OSError: If the file cannot be read.
    ArgumentError: If the file is not an `events.json`.
    PrivacyRefusedError: If the file states another value than its plan.
  """
  with blaming(path):
    content = regular.read_json(path)
    _check_plain('', content)
    is_known = (
        content['schema'] == base.EVENTS_SCHEMA
        and content['schema_version'] == base.SCHEMA_VERSION
    )
    if not is_known:
      raise KeyError('schema')
    plan = plans.from_description(content['plan'])
    (event,) = content['events']
    run = PlanRun(plan, event['rounds'], content['delta'])
    anew = plan.events_json(delta=run.delta, num_rounds=run.num_rounds)
    check_same('', content, json.loads(json.dumps(anew)))
    return run


@contextlib.contextmanager
def blaming(path: str | os.PathLike) -> Iterator[None]:
  """Turns errors of accounting into errors about the file that was read.

  An example is an overflow because of a senseless number in the file.

  Args:
    path: Path of the file of events. The plan of the file is built or accounted
      for inside of this context.

  Raises:
    OSError: If it occurred inside.
    PrivacyRefusedError: If it occurred inside.
    ArgumentError: If any other error occurred inside.
  """
  try:
    with np.errstate(all='ignore'):
      yield
  except (OSError, _checks.PrivacyRefusedError):
    raise
  except Exception as error:
    raise _checks.ArgumentError(
        'events',
        os.fspath(path),
        f'a file of schema {base.EVENTS_SCHEMA} version'
        f' {base.SCHEMA_VERSION}, as a run writes it'
        f' ({type(error).__name__}: {str(error)[:_LONGEST]})',
    ) from error


def _check_plain(name: str, value: Any) -> None:
  """Raises if a number is so large that accounting would take too long.

  Also raises if a text is not one short line.

  Args:
    name: Name of the value in the file.
    value: Value of plain JSON types, checked with everything in it.
  """
  if isinstance(value, dict):
    for key, each in value.items():
      _check_plain('', key)
      _check_plain(key, each)
  elif isinstance(value, list):
    for each in value:
      _check_plain(name, each)
  elif isinstance(value, str):
    if not value.isprintable() or len(value) > _LONGEST_TEXT:
      raise ValueError(
          f'{name!r} has a text that is not one short line:'
          f' {_checks.shown(value)}'
      )
  elif isinstance(value, int):
    most = _checks.MOST_ROUNDS if name.endswith('rounds') else _MOST_COUNT
    if abs(value) > most:
      raise ValueError(f'{name}={value} is beyond {most}')


def check_same(
    name: str, stated: Any, planned: Any, *, tolerance: float = _TOLERANCE
) -> None:
  """Raises an error if a file states a value that differs from its plan.

  Args:
    name: Name of the compared value.
    stated: Value in the file, plain JSON types.
    planned: Value from the plan.
    tolerance: Relative tolerance of floats. Other values must be equal.

  Raises:
    PrivacyRefusedError: If they differ. The error has the name and both values.
  """
  if isinstance(stated, dict) and isinstance(planned, dict):
    for key in {**planned, **stated}:
      check_same(
          key, stated.get(key), planned.get(key), tolerance=tolerance
      )
    return
  if isinstance(stated, list) and isinstance(planned, list):
    if len(stated) == len(planned):
      for each, other in zip(stated, planned):
        check_same(name, each, other, tolerance=tolerance)
      return
  is_same = stated == planned
  if isinstance(stated, float) and isinstance(planned, float):
    is_same = is_same or math.isclose(stated, planned, rel_tol=tolerance)
  if not is_same:
    raise _checks.PrivacyRefusedError(
        f'the events state {name}={_checks.shown(stated)}, but their plan has'
        f' {_checks.shown(planned)}',
        why='one of the two is wrong, so no epsilon of this file can be trusted',
        way_out='take the events.json that the run wrote, unchanged',
    )
