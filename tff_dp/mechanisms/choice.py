# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Comparison of all mechanisms at equal privacy, and the choice of the best.

Two mechanisms have equal privacy if they have the same sigma_eff =
noise_multiplier / sqrt(S2), where S2 is the squared sensitivity in squared clip
norms. Draws of standard deviation sqrt(S2) give sigma_eff = 1. Then the noise
on the prefix sum after round t has standard deviation sqrt(S2 Var(b_t)), where
b_t is the noise for draws of standard deviation 1. The two errors of a
mechanism are

    max_error   sqrt(S2 max_t Var(b_t))
    rmse        sqrt(S2 mean_t Var(b_t))

over the rounds of the whole run, including restarts. Both are exact, except
that S2 may be an upper bound. Both grow in proportion to sigma_eff.
"""

from collections.abc import Callable, Sequence
import dataclasses
import math
from typing import Any, Optional

from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import catalogue
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.mechanisms import tree
from tff_dp.mechanisms import workloads
from tff_dp.mechanisms.matrix import toeplitz_algebra

_MOST_BUFFERS = 8
# Errors that differ by less than this share are equal. Then fewer model copies
# decide.
_EQUAL = 1e-3
# Number of useless buffers before the search ends. Two more buffers may lower
# the error where one more does not.
_PATIENCE = 2


@dataclasses.dataclass(frozen=True)
class Row:
  """A mechanism with its errors and costs.

  Attributes:
    name: Key of `catalogue.BY_NAME`. In `tff-dp compare` also the name of
      another system's row, such as 'random-allocation'.
    mechanism: Mechanism of the row.
    rmse: Root mean square, over the rounds, of the standard deviation of the
      noise on the sum so far. It is in clip norms, at sigma_eff = 1 (see the
      module docstring). In `tff-dp compare` it is at the budget.
    max_error: Largest such standard deviation, at the same privacy.
    squared_sensitivity: Squared sensitivity, in squared clip norms.
    sensitivity_is_exact: Whether it is known that some client attains
      `squared_sensitivity`. If not, it is an upper bound.
    state_copies: Number of vectors of the model's size in the state.
    draws_per_round: Average number of normal vectors that a round draws.
    reason: Reason in words why the mechanism was not chosen. '' for the chosen
      one, and in the rows of `compare`.
  """

  name: str
  mechanism: mechanism_lib.Mechanism
  rmse: float
  max_error: float
  squared_sensitivity: float
  sensitivity_is_exact: bool
  state_copies: int
  draws_per_round: float
  reason: str = ''

  @property
  def label(self) -> str:
    """Name of the mechanism, with its number of bands or buffers if it has any.
    """
    numbers = catalogue.summary(self.mechanism)
    for option, word in (('num_bands', 'band'), ('num_buffers', 'buffer')):
      if option in numbers:
        plural = '' if numbers[option] == 1 else 's'
        return f'{self.name}, {numbers[option]} {word}{plural}'
    return self.name

  def error(self, kind: str) -> float:
    """Returns `max_error` for 'max', `rmse` for 'mean'."""
    return self.max_error if kind == 'max' else self.rmse

  def scaled(self, sigma: float) -> 'Row':
    """Returns the row with errors at another sigma than 1.

    Args:
      sigma: Noise multiplier of the run as one Gaussian mechanism.
    """
    return dataclasses.replace(
        self, rmse=sigma * self.rmse, max_error=sigma * self.max_error
    )


@dataclasses.dataclass(frozen=True)
class Choice:
  """A mechanism, and all mechanisms that it was compared with.

  Attributes:
    chosen: Row of the chosen mechanism.
    rows: All rows, smallest error first.
    error: Error that was minimised, 'max' or 'mean'.
    max_state_copies: Limit on model copies in the state.
  """

  chosen: Row
  rows: tuple[Row, ...]
  error: str
  max_state_copies: int

  @property
  def mechanism(self) -> mechanism_lib.Mechanism:
    """Chosen mechanism."""
    return self.chosen.mechanism

  def table(self) -> str:
    """Returns the rows as a Markdown table."""
    lines = [
        '| mechanism | max error | rmse | squared sensitivity | model copies |'
        ' draws per round | why not |',
        '|---|---:|---:|---:|---:|---:|---|',
    ]
    for row in self.rows:
      bound = '' if row.sensitivity_is_exact else ' (bound)'
      numbers = (
          f'{row.max_error:.4g}',
          f'{row.rmse:.4g}',
          f'{row.squared_sensitivity:.6g}{bound}',
          f'{row.state_copies}',
          f'{row.draws_per_round:.3g}',
      )
      reason = row.reason or '**chosen**'
      lines.append(f'| {" | ".join((row.label, *numbers, reason))} |')
    return '\n'.join(lines)


def compare(
    participation: Any,
    *,
    names: Optional[Sequence[str]] = None,
    num_bands: Optional[int] = None,
    num_buffers: Optional[int] = None,
    error: str = 'max',
    workload: Optional[workloads.Workload] = None,
    restart_every: Optional[int] = None,
    complete_trees: bool = False,
    progress: Optional[Callable[[str], None]] = None,
) -> tuple[Row, ...]:
  """Returns one row per mechanism, smallest error first.

  Each option goes to the mechanisms that use it (`catalogue.USED_OPTIONS`).

  Args:
    participation: A schedule or a participation pattern: the rounds in which
      one client may take part.
    names: Names of the mechanisms. Default: all.
    num_bands: Number of bands of 'banded' and 'banded-inverse'.
    num_buffers: Number of buffers of 'blt'.
    error: Error to minimise: 'max' (`Row.max_error`) or 'mean' (`Row.rmse`).
      The rows are in the order of this error.
    workload: Linear map from the noised sums of the rounds to the model, see
      `workloads`. Parameters are optimised for the model's noise. But the
      errors in the rows are always for the prefix sum.
    restart_every: Number of rounds per tree, or `None` for one tree.
    complete_trees: Whether 'tree' and 'honaker' extend a tree by virtual rounds
      before the next tree begins, see `Mechanism`.
    progress: Function that is called with the name of each mechanism before it
      is built.

  Raises:
    ArgumentError: If a name or an option is out of range.
  """
  pattern = mechanism_lib.pattern_of(participation)
  _checks.one_of(toeplitz_algebra.ERRORS, error=error)
  if names is None:
    names = tuple(catalogue.BY_NAME)
  for name in names:
    _checks.one_of(tuple(catalogue.BY_NAME), names=name)
  rows = []
  for name in names:
    if progress is not None:
      progress(name)
    given = dict(
        num_bands=num_bands,
        num_buffers=num_buffers,
        error=error,
        workload=workload,
        restart_every=restart_every,
        complete_trees=complete_trees,
    )
    options = {
        option: value
        for option, value in given.items()
        if option in catalogue.USED_OPTIONS[name]
    }
    rows.append(_row(name, pattern, **options))
  return _sorted(rows, error)


def best(
    rounds: int,
    participation: Any,
    *,
    error: str = 'max',
    max_state_copies: int = 8,
    names: Optional[Sequence[str]] = None,
    num_bands: Optional[int] = None,
    num_buffers: Optional[int] = None,
    workload: Optional[workloads.Workload] = None,
    restart_every: Optional[int] = None,
    complete_trees: bool = False,
    progress: Optional[Callable[[str], None]] = None,
) -> Choice:
  """Returns the mechanism with the smallest error within a limit on memory.

  The candidates are the rows of `compare`, and these versions:

  * 'tree' with as many cached levels, up to two, as the limit allows.
  * 'blt' with 2, 3, ... buffers, if `num_buffers` is not given. The largest
    number is 8 or the limit, or smaller if more buffers do not help. If the
    limit is 1, there is one version, with one buffer.
  * 'banded' with as many bands as the limit allows, if `num_bands` is not
    given. There are never more bands than by default.

  If errors differ by less than 0.1 %, fewer model copies decide, then fewer
  draws.

  Args:
    rounds: Number of rounds of the run, as in the participation.
    participation: A schedule or a participation pattern: the rounds in which
      one client may take part.
    error: Error to minimise: 'max' (`Row.max_error`) or 'mean' (`Row.rmse`).
    max_state_copies: Largest number of vectors of the model's size in the
      state.
    names: Names of the mechanisms to consider. Default: all.
    num_bands: Number of bands of 'banded' and 'banded-inverse'.
    num_buffers: Number of buffers of 'blt'.
    workload: Linear map from the noised sums of the rounds to the model, see
      `workloads`. Parameters are optimised for the model's noise. But the
      errors in the rows are always for the prefix sum.
    restart_every: Number of rounds per tree, or `None` for one tree.
    complete_trees: Whether 'tree' and 'honaker' extend a tree by virtual rounds
      before the next tree begins, see `Mechanism`.
    progress: Function that is called with the name of each mechanism before its
      row of `compare` is built.

  Raises:
    ArgumentError: If no candidate is within `max_state_copies`, if `rounds` is
      not the number of rounds of the participation, or if a name or an option
      is out of range.
  """
  pattern = mechanism_lib.pattern_of(participation)
  if rounds != pattern.num_rounds:
    raise _checks.ArgumentError(
        'rounds',
        rounds,
        f'{pattern.num_rounds}, the number of rounds of the participation',
    )
  _checks.integer_at_least(0, max_state_copies=max_state_copies)
  rows = list(
      compare(
          pattern,
          names=names,
          num_bands=num_bands,
          num_buffers=num_buffers,
          error=error,
          workload=workload,
          restart_every=restart_every,
          complete_trees=complete_trees,
          progress=progress,
      )
  )
  optimised = dict(error=error, workload=workload, restart_every=restart_every)
  asked_for = {row.name for row in rows}
  if 'blt' in asked_for and num_buffers is None:
    rows += _blt_rows(pattern, max_state_copies, optimised)
  if 'banded' in asked_for and num_bands is None:
    most = catalogue.default_bands(
        'banded', pattern, restart_every=restart_every
    )
    bands = min(max_state_copies + 1, most)
    rows.append(_row('banded', pattern, num_bands=bands, **optimised))
  if 'tree' in asked_for:
    rows.append(
        measured(
            'tree',
            tree.Tree(
                rounds,
                restart_every=restart_every,
                complete_trees=complete_trees,
                num_cached_levels=min(2, max_state_copies),
            ),
            pattern,
        )
    )
  rows = list({(row.label, row.state_copies): row for row in rows}.values())
  return _chosen(rows, error, max_state_copies)


def _blt_rows(pattern, limit: int, options) -> list[Row]:
  """Returns rows of BLT with 2, 3, ... buffers, until more do not help."""
  rows, idle = [], 0
  for buffers in range(min(2, limit), min(_MOST_BUFFERS, limit) + 1):
    if buffers == 0 or idle == _PATIENCE:
      continue
    rows.append(_row('blt', pattern, num_buffers=buffers, **options))
    errors = [row.error(options['error']) for row in rows]
    has_gained = len(rows) == 1 or errors[-1] < errors[-2] * (1.0 - _EQUAL)
    idle = 0 if has_gained else idle + 1
  return rows


def _chosen(rows: list[Row], error: str, limit: int) -> Choice:
  """Returns the choice among rows, with a reason against each other row."""
  within = [row for row in rows if row.state_copies <= limit]
  if not within:
    raise _checks.ArgumentError(
        'max_state_copies',
        limit,
        f'at least {min(row.state_copies for row in rows)}, because the'
        ' mechanisms keep these numbers of model copies: '
        + ', '.join(f'{row.label}: {row.state_copies}' for row in rows),
    )
  least = min(row.error(error) for row in within)
  chosen = min(
      (row for row in within if row.error(error) <= least * (1 + _EQUAL)),
      key=lambda row: (row.state_copies, row.draws_per_round),
  )

  def reason(row):
    if row is chosen:
      return ''
    if row.state_copies > limit:
      return f'keeps {row.state_copies} model copies, more than {limit}'
    excess = row.error(error) / chosen.error(error) - 1
    if excess <= _EQUAL:
      return 'no better, and more model copies or draws'
    return f'error {100 * excess:.3g} % above the chosen'

  explained = {
      id(row): dataclasses.replace(row, reason=reason(row)) for row in rows
  }
  return Choice(
      chosen=explained[id(chosen)],
      rows=_sorted(explained.values(), error),
      error=error,
      max_state_copies=limit,
  )


def _row(name: str, pattern: patterns.ParticipationPattern, **options) -> Row:
  """Returns the row of a mechanism that is built from its options."""
  return measured(
      name, catalogue.build(name, pattern, **options), pattern
  )


def measured(
    name: str,
    mechanism: mechanism_lib.Mechanism,
    pattern: patterns.ParticipationPattern,
) -> Row:
  """Returns the row of a mechanism, with its errors at sigma_eff = 1.

  Args:
    name: Name of the row.
    mechanism: Mechanism for the whole run.
    pattern: Promised participation.
  """
  squared_sensitivity = float(mechanism.squared_sensitivity(pattern))
  rmse, max_error = mechanism.prefix_errors(math.sqrt(squared_sensitivity))
  return Row(
      name,
      mechanism,
      rmse=rmse,
      max_error=max_error,
      squared_sensitivity=squared_sensitivity,
      sensitivity_is_exact=mechanism.sensitivity_is_exact(pattern),
      state_copies=mechanism.state_copies,
      draws_per_round=float(mechanism.draws_per_round),
  )


def _sorted(rows, error: str) -> tuple[Row, ...]:
  return tuple(sorted(rows, key=lambda row: row.error(error)))
