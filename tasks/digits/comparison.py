# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Puts the runs of one task side by side: a table, JSON and a plot."""

from collections.abc import Iterable, Sequence
import dataclasses
import json
import math
import pathlib
from typing import Optional

from tff_dp import _axes
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import gaussian
from tff_dp.systems.dp_ftrl import plan as dp_ftrl_plan

# Rows in which clients draw their own rounds.
CHECK_INS = ('allocation', 'cyclic')
TABLE = 'comparison.md'
_JSON = 'comparison.json'


@dataclasses.dataclass(frozen=True)
class Row:
  """One run.

  Attributes:
    name: Name of the row.
    mechanism: Noise mechanism, 'none' if the noise multiplier is 0.
    noise_multiplier: Std of one draw on the SUM, over the clip norm.
    epsilon: Epsilon of the finished rounds at delta. For `CHECK_INS` it is an
      upper bound, for other rows it is exact.
    epsilon_rdp: Epsilon of the finished rounds by RDP, for comparison with
      papers. `None` for `CHECK_INS`.
    delta: Target delta, in (0, 1).
    num_rounds: Number of finished rounds.
    accuracy_by_round: Pair (round, held-out accuracy) of every evaluation.
  """

  name: str
  mechanism: str
  noise_multiplier: float
  epsilon: float
  epsilon_rdp: Optional[float]
  delta: float
  num_rounds: int
  accuracy_by_round: tuple[tuple[int, float], ...]

  @classmethod
  def of(cls, name, plan, result, *, delta: float) -> 'Row':
    """Returns the row of a `tff_dp.program.results.TrainResult`."""
    epsilon, epsilon_rdp = result.epsilon, None
    if isinstance(plan, dp_ftrl_plan.DpFtrlPlan):
      sigma = plan.sigma(num_rounds=result.rounds_done)
      epsilon_rdp = gaussian.rdp_epsilon(sigma=sigma, delta=delta)
    if result.statement.warnings:
      # What voids the statement voids its numbers.
      epsilon = epsilon_rdp = math.inf
    return cls(
        name=name,
        mechanism=plan.mechanism.name if plan.noise_multiplier else 'none',
        noise_multiplier=plan.noise_multiplier,
        epsilon=epsilon,
        epsilon_rdp=epsilon_rdp,
        delta=delta,
        num_rounds=result.rounds_done,
        accuracy_by_round=tuple(
            (int(row['round']), float(row['test_accuracy']))
            for row in result.metrics
            if row.get('test_accuracy') is not None
        ),
    )

  @property
  def test_accuracy(self) -> float:
    """Held-out accuracy of the last model, NaN if there was no evaluation."""
    return self.accuracy_by_round[-1][1] if self.accuracy_by_round else math.nan


def table(rows: Sequence[Row]) -> str:
  """Returns the rows as a Markdown table."""
  lines = [
      '| run | noise | noise multiplier | epsilon | epsilon (RDP) | rounds |'
      ' held-out accuracy |',
      '|---|---|---|---|---|---|---|',
  ]
  for row in rows:
    lines.append(
        f'| {row.name} | {row.mechanism} | {row.noise_multiplier:.4g} |'
        f' {_epsilon(row.epsilon)} | {_epsilon(row.epsilon_rdp)} |'
        f' {row.num_rounds} | {row.test_accuracy:.3f} |'
    )
  return '\n'.join(lines)


def amplification(names: Iterable[str]) -> str:
  """Returns a phrase about the amplification in the epsilons of rows."""
  names = set(names)
  amplified = [name for name in CHECK_INS if name in names]
  if not amplified:
    return 'without amplification'
  return (
      f'without amplification, but for {" and ".join(amplified)}, whose clients'
      ' keep secret when they came'
  )


def write(rows: Sequence[Row], output_dir: pathlib.Path) -> None:
  """Writes `comparison.md`, `comparison.png` and `comparison.json`.

  The JSON is written last: to `names`, it is the sign that all files exist.
  """
  (output_dir / TABLE).write_text(
      table(rows)
      + f'\n\nEpsilon is for one client\'s whole contribution replaced by zeros,'
      f' delta {rows[0].delta:g}, {amplification(row.name for row in rows)}.\n'
  )
  _plot(rows, output_dir / 'comparison.png')
  content = [
      {
          **dataclasses.asdict(row),
          'epsilon': rounding.to_json_number(row.epsilon),
          'epsilon_rdp': rounding.to_json_number(row.epsilon_rdp),
          'test_accuracy': row.test_accuracy,
      }
      for row in rows
  ]
  (output_dir / _JSON).write_text(
      json.dumps({'rows': content}, indent=2) + '\n'
  )


def clear(output_dir: pathlib.Path) -> None:
  """Removes the comparison, because runs in it are about to change."""
  (output_dir / _JSON).unlink(missing_ok=True)


def names(output_dir: pathlib.Path) -> list[str] | None:
  """Returns the names of the rows that `write` wrote last, else `None`."""
  try:
    content = json.loads((output_dir / _JSON).read_text())
    (output_dir / TABLE).stat()
    return [row['name'] for row in content['rows']]
  except (OSError, ValueError, LookupError, TypeError):
    return None


def _plot(rows: Sequence[Row], path: pathlib.Path) -> None:
  # Slow to import, and needed only here. Not pyplot: its state is global.
  from matplotlib import figure as figure_lib  # pylint: disable=g-import-not-at-top

  figure = figure_lib.Figure(figsize=(6.4, 4.0), layout='constrained')
  axes = figure.subplots()
  for row in rows:
    rounds, accuracies = zip(*row.accuracy_by_round)
    epsilon = (
        'no privacy'
        if math.isinf(row.epsilon)
        else f'epsilon {rounding.rounded_up(row.epsilon)}'
    )
    axes.plot(
        rounds, accuracies, marker='o', markersize=3,
        label=f'{row.name} ({epsilon})',
    )
  axes.set_xlabel('round')
  _axes.count(axes.xaxis)
  axes.set_ylabel('held-out accuracy')
  axes.set_ylim(0, 1)
  axes.grid(alpha=0.3)
  axes.legend()
  figure.savefig(path, dpi=120)


def _epsilon(value: Optional[float]) -> str:
  if value is None:
    return 'none'
  return 'NO PRIVACY' if math.isinf(value) else rounding.rounded_up(value)
