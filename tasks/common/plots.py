# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plots of a measured mean by epsilon, which several tasks draw."""

from collections.abc import Mapping
import pathlib
from typing import Any

# Lines at the same epsilon stand beside each other by this factor, so that no
# bar hides another.
_ASIDE = 1.02


def by_epsilon(
    lines: Mapping[str, Mapping[float, tuple[float, float]]],
    *,
    without_privacy: Mapping[str, float],
    title: str,
    epsilon_label: str,
    value_label: str,
) -> tuple[Any, Any]:
  """Returns a figure and its axes, with bars of one standard deviation.

  Args:
    lines: Label -> finite epsilon -> (mean, standard deviation).
    without_privacy: Label -> mean, to draw as a horizontal line.
    title: Title of the plot.
    epsilon_label: Label of the horizontal axis, which is logarithmic.
    value_label: Label of the vertical axis.
  """
  from matplotlib import figure as figure_lib  # pylint: disable=g-import-not-at-top

  figure = figure_lib.Figure(figsize=(6.4, 4.2), layout='constrained')
  axes = figure.subplots()
  for index, (label, mean) in enumerate(without_privacy.items()):
    style = ('--', ':', '-.')[index % 3]
    axes.axhline(mean, color='black', linestyle=style, linewidth=1, label=label)
  for index, (label, line) in enumerate(lines.items()):
    aside = _ASIDE ** (index - (len(lines) - 1) / 2)
    epsilons = sorted(line)
    means, deviations = zip(*(line[epsilon] for epsilon in epsilons))
    axes.errorbar(
        [epsilon * aside for epsilon in epsilons],
        means,
        yerr=deviations,
        marker='os^Dv'[index % 5],
        markersize=4,
        capsize=3,
        label=label,
    )
  ticks = sorted({epsilon for line in lines.values() for epsilon in line})
  if ticks:
    axes.set_xscale('log', base=2)
    axes.set_xticks(ticks, [f'{tick:g}' for tick in ticks])
  axes.set_title(title)
  axes.set_xlabel(epsilon_label)
  axes.set_ylabel(value_label)
  axes.grid(alpha=0.3)
  return figure, axes


def save(figure: Any, path: pathlib.Path) -> None:
  """Writes a figure as a PNG."""
  figure.savefig(path, dpi=120)
