# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Curves of a run as a picture: quality and epsilon against the round."""

from collections.abc import Sequence
import io
import math
import os

from tff_dp import _axes
from tff_dp.files import run_directory
from tff_dp.program import releases


def write_curves(
    path: os.PathLike,
    history: Sequence[releases.Row],
    *,
    evaluation_columns: list[str],
    delta: float,
    epsilon_budget: float | None,
) -> None:
  """Writes a PNG with accuracy above and epsilon below.

  Args:
    path: The file.
    history: Rows of a run.
    evaluation_columns: Names of the evaluation's metrics. The metrics with
      'accuracy' in their name are drawn, or the first one if there is none.
    delta: Delta at which epsilon is stated.
    epsilon_budget: Budget, drawn as a line. `None` for no budget.
  """
  # Slow to import, and needed nowhere else.
  # pylint: disable=g-import-not-at-top
  from matplotlib import figure as figure_lib
  from matplotlib.backends import backend_agg
  # pylint: enable=g-import-not-at-top

  # Without pyplot, whose global state belongs to the caller's notebook.
  figure = figure_lib.Figure(figsize=(6.4, 6.4), layout='constrained')
  top, bottom = figure.subplots(2, sharex=True)
  accuracies = [name for name in evaluation_columns if 'accuracy' in name]
  drawn = accuracies or evaluation_columns[:1]
  series = _series(history, [*drawn, 'epsilon'])
  for name in drawn:
    top.plot(*series[name], marker='.', label=name)
  if evaluation_columns:
    top.legend()
  else:
    top.text(0.5, 0.5, 'no evaluation', ha='center', transform=top.transAxes)
  top.set_ylabel('accuracy' if accuracies else 'evaluation')
  rounds, epsilons = series['epsilon']
  if epsilons and all(math.isinf(value) for value in epsilons):
    bottom.text(
        0.5, 0.5, 'NO PRIVACY', ha='center', transform=bottom.transAxes
    )
  bottom.plot(rounds, epsilons, color='tab:red', label='epsilon spent')
  if epsilon_budget is not None:
    bottom.axhline(epsilon_budget, color='gray', ls='--', label='budget')
  bottom.legend()
  bottom.set_xlabel('round')
  bottom.set_ylabel(f'epsilon (client, zero-out, delta={delta:g})')
  _axes.count(bottom.xaxis)
  for axes in (top, bottom):
    axes.grid(alpha=0.3)
  content = io.BytesIO()
  backend_agg.FigureCanvasAgg(figure).print_png(content)
  run_directory.write_atomically(path, content.getvalue())


def _series(
    history: Sequence[releases.Row], names: list[str]
) -> dict[str, tuple[list[int], list[float]]]:
  """Returns rounds and values of each column, for rounds that have a value."""
  found = {name: ([], []) for name in names}
  for row in history:
    for name, (rounds, values) in found.items():
      if name in row['released']:
        rounds.append(row[releases.KEY])
        values.append(row['released'][name])
  return found
