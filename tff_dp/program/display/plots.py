# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Curves of a run as a picture: quality and epsilon against the round."""

import os
from typing import Any

from tff_dp import _axes
from tff_dp.files import run_directory
from tff_dp.statement import charts
from tff_dp.statement import plain_words
from tff_dp.statement import report
from tff_dp.statement import statement as statement_lib


def write_curves(
    path: os.PathLike,
    statement: statement_lib.PrivacyStatement,
    course: report.Course,
) -> None:
  """Writes a PNG with a plot of the accuracies and a plot of epsilon.

  If no metric is an accuracy, metrics of another kind, such as losses, take
  their place. There is no plot of epsilon if the run has no privacy, or if no
  epsilon was released. If there is nothing to plot, no file is written.

  Args:
    path: The file.
    statement: Statement of the rounds so far.
    course: Released metrics and epsilons of the run.
  """
  content = statement.to_json()
  kinds = charts.by_kind(course.metrics)
  title = 'Accuracy' if 'Accuracy' in kinds else next(iter(kinds), None)
  has_epsilon = bool(
      course.epsilons.rounds and not plain_words.is_void(content)
  )
  num_plots = (title is not None) + has_epsilon
  if not num_plots:
    return
  figure, axes = _axes.figure(6.4, 0.8 + 2.9 * num_plots, num_plots)
  figure.suptitle(_title(content), fontsize='medium')
  if title is not None:
    charts.draw_metrics(axes[0], kinds[title], label=title.lower())
  if has_epsilon:
    charts.draw_spent(
        axes[-1],
        course.epsilons,
        delta=content['delta'],
        budget=course.epsilon_budget,
        whose=report.whose(content),
    )
  for above in axes[:-1]:
    above.set_xlabel('')
  run_directory.write_atomically(path, _axes.png(figure))


def _title(content: dict[str, Any]) -> str:
  done = content['points']['mechanism']['rounds_done']
  what = f'{done} rounds with {content["points"]["setting"]["model"]}'
  if plain_words.is_void(content):
    what = f'{done} rounds without privacy'
  return what.partition(':')[0]
