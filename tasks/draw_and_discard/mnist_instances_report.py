# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The table and the figures of the sweeps of Draw and Discard on MNIST."""

import pathlib
from typing import Any

from tff_dp import _axes

# Of the figure.
_COLUMNS = 4


def table(results: list[dict[str, Any]]) -> str:
  """Returns a Markdown table, a line for each row."""
  lines = [
      '| experiment | row | accuracy | training loss | epsilon per weight (no'
      ' guarantee) | epsilon of the model, one participation | in total |',
      '|---' * 7 + '|',
  ]
  for one in results:
    epsilons = [
        'no privacy' if one[name] is None else f'{one[name]:.3g}'
        for name in ('epsilon_per_weight', 'model_epsilon', 'total_epsilon')
    ]
    lines.append(
        f'| {one["experiment"]} | {one["name"]} | {one["accuracy"]:.3f} |'
        f' {one["loss"]:.3f} | {" | ".join(epsilons)} |'
    )
  return '\n'.join(lines)


def plot(results: list[dict[str, Any]], path: pathlib.Path) -> None:
  """Draws training loss and test accuracy against the images that were used.

  Args:
    results: Result of `mnist_instances.run`.
    path: Path of the PNG.
  """
  from matplotlib import figure as figure_lib  # pylint: disable=g-import-not-at-top

  titles = list(dict.fromkeys(map(_title, results)))
  columns = min(_COLUMNS, len(titles))
  bands = -(-len(titles) // columns)
  figure = figure_lib.Figure(
      figsize=(3.6 * columns, 5.2 * bands), layout='constrained'
  )
  grid = figure.subplots(2 * bands, columns, squeeze=False)
  for axes in grid.flat:
    axes.set_visible(False)
  for index, title in enumerate(titles):
    band, column = divmod(index, columns)
    losses_axes, accuracy_axes = grid[2 * band : 2 * band + 2, column]
    for one in results:
      if _title(one) == title:
        images, losses, accuracies = zip(*one['points'])
        label = one['name'].removeprefix('draw_and_discard_')
        losses_axes.plot(images, losses, label=label, linewidth=1)
        accuracy_axes.plot(images, accuracies, label=label, linewidth=1)
    losses_axes.set_title(title)
    losses_axes.legend(fontsize=6)
    accuracy_axes.set_xlabel('images used')
    if not column:
      losses_axes.set_ylabel('training loss of the mean')
      accuracy_axes.set_ylabel('test accuracy of the mean')
    for axes in (losses_axes, accuracy_axes):
      axes.set_visible(True)
      _axes.count(axes.xaxis)
      axes.grid(alpha=0.3)
  figure.savefig(path, dpi=100)


def _title(one: dict[str, Any]) -> str:
  """Returns the column of the figure that shows a row."""
  if one['experiment'] != 'low_rate':
    return one['experiment']
  return f"low_rate, k = {one['facts']['row']['num_instances']}"
