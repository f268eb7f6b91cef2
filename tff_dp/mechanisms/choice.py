# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which mechanism to take: all of them at equal privacy, and the best.

Two mechanisms are compared at the same privacy, that is at the same
sigma_eff = noise_multiplier / sqrt(S2). A draw of standard deviation sqrt(S2)
gives sigma_eff = 1, and the noise on the prefix sum after round t has then the
standard deviation sqrt(S2 Var(b_t)). The two errors of a mechanism are

    max_error   sqrt(S2 max_t Var(b_t))
    rmse        sqrt(S2 mean_t Var(b_t))

over the rounds of the whole run, restarts included. Both are exact, except that
S2 may be an upper bound, and grow with sigma_eff in the same proportion.
"""

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any, Optional

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import catalogue
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.mechanisms import tree
from tff_dp.mechanisms import workloads
from tff_dp.mechanisms.matrix import toeplitz_algebra

_MOST_BUFFERS = 8
# Errors that differ by less than this are equal: fewer model copies decide.
_EQUAL = 1e-3
# One more buffer may bring nothing where two more do.
_PATIENCE = 2


@dataclasses.dataclass(frozen=True)
class Row:
  """One mechanism, and what it costs.

  Attributes:
    name: As in `catalogue.BY_NAME`.
    mechanism: The mechanism.
    rmse: sqrt(S2 mean_t Var(b_t)).
    max_error: sqrt(S2 max_t Var(b_t)).
    squared_sensitivity: S2.
    sensitivity_is_exact: Whether S2 is that of some client, not a bound.
    state_copies: Vectors of the model's size in the state.
    draws_per_round: Normal vectors that a round draws, on average.
    reason: Why it was not chosen, in words; '' if it was.
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
    """The name, with bands or buffers where it has them."""
    numbers = catalogue.summary(self.mechanism)
    for option, word in (('num_bands', 'band'), ('num_buffers', 'buffer')):
      if option in numbers:
        plural = '' if numbers[option] == 1 else 's'
        return f'{self.name}, {numbers[option]} {word}{plural}'
    return self.name

  def error(self, kind: str) -> float:
    """Returns `max_error` for 'max', `rmse` for 'mean'."""
    return self.max_error if kind == 'max' else self.rmse


@dataclasses.dataclass(frozen=True)
class Choice:
  """A mechanism, and all that it was compared with.

  Attributes:
    chosen: The row of the mechanism that was chosen.
    rows: All rows, in the order of their error.
    error: What was minimised, 'max' or 'mean'.
    max_state_copies: The limit on model copies.
  """

  chosen: Row
  rows: tuple[Row, ...]
  error: str
  max_state_copies: int

  @property
  def mechanism(self) -> mechanism_lib.Mechanism:
    """The mechanism that was chosen."""
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
  """Returns a row for each mechanism, in the order of the error.

  Options go to the mechanisms that have a use for them, see `build`.

  Args:
    participation: Which rounds one client may take part in.
    names: Mechanisms to compare, all of them by default.
    num_bands: Bands of the banded mechanisms.
    num_buffers: Buffers of BLT.
    error: What is minimised where there is something to choose.
    workload: For which parameters are chosen. The errors stay those of the
      prefix sum.
    restart_every: Rounds per tree, `None` for one tree.
    complete_trees: Whether finished trees are completed.
    progress: Is told the name of a mechanism before the work begins.
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
  """Returns the mechanism with the least error within a limit on memory.

  Considers what `compare` does, and beside that every number of buffers and the
  number of bands that the limit has room for, unless they are given. Where
  errors differ by less than 0.1 %, fewer model copies decide, then fewer draws.

  Args:
    rounds: Rounds of the run, those of the participation.
    participation: Which rounds one client may take part in.
    error: 'max' or 'mean': the largest or the mean variance over the rounds.
    max_state_copies: Vectors of the model's size that the state may hold.
    names: Mechanisms to consider, all of them by default.
    num_bands: Bands of the banded mechanisms.
    num_buffers: Buffers of BLT.
    workload: What the server makes of the sums; parameters are chosen for it.
    restart_every: Rounds per tree, `None` for one tree.
    complete_trees: Whether finished trees are completed.
    progress: Is told the name of a mechanism before the work begins.
  """
  pattern = mechanism_lib.pattern_of(participation)
  if rounds != pattern.num_rounds:
    raise _checks.ArgumentError(
        'rounds', rounds, f'those of the participation, {pattern.num_rounds}'
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
        _measured(
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
  """Returns BLT with 2, 3, .. buffers, until more of them bring nothing."""
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
  """Returns the choice among rows, with the reasons against the others."""
  within = [row for row in rows if row.state_copies <= limit]
  if not within:
    raise _checks.ArgumentError(
        'max_state_copies',
        limit,
        'room for at least one of '
        + ', '.join(f'{row.label} ({row.state_copies})' for row in rows),
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
  """Returns the row of a mechanism that is to be built."""
  return _measured(
      name, catalogue.build(name, pattern, **options), pattern
  )


def _measured(
    name: str,
    mechanism: mechanism_lib.Mechanism,
    pattern: patterns.ParticipationPattern,
) -> Row:
  """Returns the row of a mechanism."""
  variances = mechanism.run_prefix_variances()
  squared_sensitivity = float(mechanism.squared_sensitivity(pattern))
  return Row(
      name,
      mechanism,
      rmse=float(np.sqrt(squared_sensitivity * np.mean(variances))),
      max_error=float(np.sqrt(squared_sensitivity * np.max(variances))),
      squared_sensitivity=squared_sensitivity,
      sensitivity_is_exact=mechanism.sensitivity_is_exact(pattern),
      state_copies=mechanism.state_copies,
      draws_per_round=float(mechanism.draws_per_round),
  )


def _sorted(rows, error: str) -> tuple[Row, ...]:
  return tuple(sorted(rows, key=lambda row: row.error(error)))
