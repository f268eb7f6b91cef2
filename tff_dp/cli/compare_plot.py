# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The picture of `tff-dp compare`: error against round."""

from collections.abc import Sequence
import io
import os

import numpy as np

from tff_dp import _axes
from tff_dp.mechanisms import choice


def write(path: os.PathLike | str, rows: Sequence[choice.Row]) -> None:
  """Writes a PNG with sqrt(S2 Var(b_t)) for every mechanism.

  Args:
    path: The file.
    rows: Those without a mechanism are left out.
  """
  # Slow to import, and needed only here.
  # pylint: disable=g-import-not-at-top
  from matplotlib import figure as figure_lib
  from matplotlib.backends import backend_agg
  # pylint: enable=g-import-not-at-top

  # Not pyplot: its global state belongs to the caller's notebook.
  figure = figure_lib.Figure(figsize=(8.0, 5.0), layout='constrained')
  axes = figure.subplots()
  for row in rows:
    if row.mechanism is None:
      continue
    variances = row.mechanism.run_prefix_variances()
    rounds = np.arange(1, len(variances) + 1)
    axes.plot(
        rounds,
        np.sqrt(row.squared_sensitivity * variances),
        label=row.label,
        linewidth=1.0,
        # A single round has no line.
        marker='.' if len(rounds) == 1 else None,
    )
  axes.set_yscale('log')
  axes.set_xlabel('round')
  _axes.count(axes.xaxis)
  axes.set_ylabel('noise on the sum so far, at sigma 1, in clip norms')
  axes.set_title('Error at equal privacy')
  axes.grid(alpha=0.3, which='both')
  if axes.lines:
    figure.legend(loc='outside right upper', fontsize='small')
  content = io.BytesIO()
  backend_agg.FigureCanvasAgg(figure).print_png(content)
  with open(path, 'wb') as file:
    file.write(content.getvalue())
