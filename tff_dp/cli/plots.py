# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The pictures of the command line: error, or epsilon, against rounds."""

import argparse
from collections.abc import Callable, Sequence
import copy
import importlib.util
import io
import math
import os
import sys
import time

import numpy as np

from tff_dp import _axes
from tff_dp import _checks
from tff_dp.mechanisms import choice

_NUM_POINTS = 13
_LEAST_SLOTS = 10
# Longer work shows its progress.
_QUIET_SECONDS = 2.0


def check(path: str) -> None:
  """Raises if `--plot PATH` cannot be written. Called before the work."""
  if importlib.util.find_spec('matplotlib') is None:
    raise ImportError('--plot needs matplotlib, which is not installed')
  folder = os.path.dirname(os.path.abspath(path))
  is_writable = os.access(path if os.path.exists(path) else folder, os.W_OK)
  if os.path.isdir(path) or not os.path.isdir(folder) or not is_writable:
    raise _checks.ArgumentError(
        'plot', path, 'a file that can be written, in a folder that exists'
    )


def write_errors(path: str, rows: Sequence[choice.Row], *, at: str) -> None:
  """Writes a PNG with the noise on the sum so far, for every mechanism.

  Args:
    path: The file.
    rows: Rows to draw, one for each mechanism.
    at: Privacy at which the errors of the rows are compared.
  """
  figure, axes = _figure(5.0)
  for row in rows:
    variances = row.mechanism.run_prefix_variances()
    rounds = np.arange(1, len(variances) + 1)
    axes.plot(
        rounds,
        row.max_error * np.sqrt(variances / variances.max()),
        label=row.label,
        linewidth=1.0,
        # A single round has no line.
        marker='.' if len(rounds) == 1 else None,
    )
  axes.set_yscale('log')
  axes.set_xlabel('round')
  _axes.count(axes.xaxis)
  axes.set_ylabel(f'noise on the sum so far, in clip norms, at {at}')
  axes.set_title('Error at equal privacy')
  if axes.lines:
    figure.legend(loc='outside right upper', fontsize='small')
  _write(figure, path)


def write_epsilons(
    path: str,
    arguments: argparse.Namespace,
    epsilons_of: Callable[[argparse.Namespace], dict[str, float]],
    *,
    varied: str,
    title: str,
) -> None:
  """Writes a PNG with one line per argument.

  Args:
    path: The file.
    arguments: Arguments of the command.
    epsilons_of: Function from arguments to epsilon by the name of the bound.
    varied: Flag on the horizontal axis, up to its given value.
    title: Title above the picture.
  """
  lines = {}
  start = time.monotonic()
  for point in _points(arguments, varied):
    if time.monotonic() - start > _QUIET_SECONDS:
      print(f'{varied} {point} ...', file=sys.stderr)
    changed = copy.copy(arguments)
    setattr(changed, varied, point)
    if varied == 'slots':
      changed.rounds = None
    for name, epsilon in epsilons_of(changed).items():
      lines.setdefault(name, {})[point] = epsilon
  figure, axes = _figure(6.0)
  for name, line in lines.items():
    shown = {x: y for x, y in line.items() if 0 < y < math.inf}
    if shown:
      axes.plot(
          list(shown),
          list(shown.values()),
          label=name,
          linewidth=1.0,
          marker='.',
      )
  axes.set_xscale('log')
  axes.set_yscale('log')
  axes.set_xlabel(varied)
  axes.set_ylabel(f'epsilon at delta {arguments.delta:.3g}')
  axes.set_title(title, fontsize='medium', wrap=True)
  if axes.lines:
    figure.legend(loc='outside lower center', ncols=2, fontsize='small')
  _write(figure, path)


def _points(arguments, varied: str) -> list[int]:
  last = getattr(arguments, varied) or 1
  first = min(last, 1 if varied == 'rounds' else _LEAST_SLOTS)
  spread = np.geomspace(first, last, _NUM_POINTS).round()
  return sorted({int(point) for point in spread} | {last})


def _figure(height: float):
  # Slow to import, and needed nowhere else.
  # pylint: disable-next=g-import-not-at-top
  from matplotlib import figure as figure_lib

  # Without pyplot, whose global state belongs to the caller's notebook.
  figure = figure_lib.Figure(figsize=(8.0, height), layout='constrained')
  return figure, figure.subplots()


def _write(figure, path: str) -> None:
  # pylint: disable-next=g-import-not-at-top
  from matplotlib.backends import backend_agg

  figure.axes[0].grid(alpha=0.3, which='both')
  content = io.BytesIO()
  backend_agg.FigureCanvasAgg(figure).print_png(content)
  with open(path, 'wb') as file:
    file.write(content.getvalue())
