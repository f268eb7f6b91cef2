# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Charts of a statement and of the released metrics of a run.

Each function draws on matplotlib axes, so that a chart looks the same in the
report, in a picture and in a notebook.
"""

from collections.abc import Mapping, Sequence
import math
from typing import Any, NamedTuple

from tff_dp import _axes
from tff_dp.accounting import rounding

# Start of the columns that clients release with noise.
PRIVATE = 'client_work/private/'


class Series(NamedTuple):
  """The values of one metric, in the rounds that have one.

  Attributes:
    rounds: 1-based rounds, in order.
    values: A finite number for each of them.
  """

  rounds: Sequence[int]
  values: Sequence[float]


def words(column: str) -> str:
  """Returns the name of a metric in words."""
  return column.removeprefix(PRIVATE).replace('_', ' ')


def by_kind(metrics: Mapping[str, Series]) -> dict[str, dict[str, Series]]:
  """Returns a dict from the title of a chart to its metrics.

  All accuracies share a chart. Any other metric has its own.
  """
  found: dict[str, dict[str, Series]] = {}
  for column, series in metrics.items():
    title = 'Accuracy' if 'accuracy' in column else words(column).capitalize()
    found.setdefault(title, {})[column] = series
  return found


def curve_points(content: Mapping[str, Any]) -> list[tuple[float, float]]:
  """Returns pairs (delta, epsilon) that the statement gives, deltas ascending.

  They are about the rounds so far, or about all planned rounds where the
  statement gives only these. Epsilons that are 0 or infinite are left out.

  Args:
    content: Result of `PrivacyStatement.to_json`.
  """
  rows = content['points']['guarantee']['curve']
  name = 'epsilon' if 'epsilon' in rows[0] else 'epsilon_planned'
  found = [
      (row['delta'], rounding.from_json_number(row[name])) for row in rows
  ]
  return sorted((x, y) for x, y in found if 0 < y < math.inf)


def draw_curve(
    axes: Any, points: Sequence[tuple[float, float]], *, delta: float
) -> None:
  """Draws epsilon against delta, as steps.

  Between two deltas, the epsilon of the smaller one holds.

  Args:
    axes: Axes of matplotlib.
    points: Result of `curve_points`, not empty.
    delta: Delta of the headline, which is marked if it is among the points.
  """
  deltas, epsilons = zip(*points)
  axes.plot(deltas, epsilons, drawstyle='steps-post', **_axes.style(0))
  chosen = dict(points).get(delta)
  if chosen is not None:
    axes.plot(
        [delta],
        [chosen],
        color=_axes.style(1)['color'],
        linestyle='none',
        marker='o',
        markersize=7,
        label=(
            f'epsilon {rounding.rounded_up(chosen)} at delta'
            f' {rounding.short(delta)}'
        ),
    )
    axes.legend(fontsize='small')
  axes.set_xscale('log')
  _axes.log(axes.xaxis)
  axes.set_ylim(0, 1.15 * max(epsilons))
  axes.set_xlabel('delta (smaller is stricter)')
  axes.set_ylabel('epsilon (smaller is stricter)')


def draw_metrics(axes: Any, metrics: Mapping[str, Series], *, label: str) -> None:
  """Draws metrics against the round.

  Args:
    axes: Axes of matplotlib.
    metrics: Column -> values. At least one.
    label: Label of the vertical axis.
  """
  for index, (column, series) in enumerate(metrics.items()):
    axes.plot(*series, label=words(column), **_axes.style(index))
  if len(metrics) > 1:
    axes.legend(fontsize='small')
  axes.set_ylabel(label)
  draw_rounds(axes)


def draw_spent(
    axes: Any,
    epsilons: Series,
    *,
    delta: float,
    budget: float | None,
    whose: str = '',
) -> None:
  """Draws the epsilon spent so far against the round.

  Args:
    axes: Axes of matplotlib.
    epsilons: Finite epsilons of the run so far.
    delta: Delta of the epsilons.
    budget: The budget, which is drawn as a line. `None` draws no line.
    whose: Phrase for the label of the axis that says whom epsilon protects,
      such as 'per client, zero-out'.
  """
  axes.plot(*epsilons, label='spent', **_axes.style(0))
  if budget is not None:
    axes.axhline(
        budget, color=_axes.style(1)['color'], linestyle='--', label='budget'
    )
    axes.legend(fontsize='small')
  axes.set_ylim(bottom=0)
  said = f'epsilon at delta {rounding.short(delta)}'
  axes.set_ylabel(f'{said}\n({whose})' if whose else said)
  draw_rounds(axes)


def draw_rounds(axes: Any) -> None:
  """Labels the horizontal axis as rounds, with ticks at integers."""
  axes.set_xlabel('round')
  _axes.count(axes.xaxis)
