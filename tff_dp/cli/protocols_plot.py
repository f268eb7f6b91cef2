# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The picture of `tff-dp account`: epsilon against rounds, or against slots."""

import argparse
from collections.abc import Callable
import copy
import io
import math
import sys
import time

import numpy as np

from tff_dp.accounting.protocols import best_bound
from tff_dp.accounting.protocols import protocol_bounds
from tff_dp.cli import protocols_published

_NUM_POINTS = 13
_LEAST_SLOTS = 10
# Work that takes longer says what it is at.
_QUIET_SECONDS = 2.0


def write(
    path: str,
    arguments: argparse.Namespace,
    certificate_of: Callable[
        [argparse.Namespace], best_bound.Certificate
    ],
    *,
    varied: str,
) -> None:
  """Writes a PNG with one line per argument; published formulas are dashed.

  Args:
    path: The file.
    arguments: Of the command.
    certificate_of: Returns the certificate for such arguments.
    varied: The flag on the horizontal axis, up to the given value.
  """
  # Slow to import, and needed only here.
  # pylint: disable=g-import-not-at-top
  from matplotlib import figure as figure_lib
  from matplotlib.backends import backend_agg
  # pylint: enable=g-import-not-at-top

  certified, published = {}, {}
  start = time.monotonic()
  for point in _points(arguments, varied):
    if time.monotonic() - start > _QUIET_SECONDS:
      print(f'{varied} {point} ...', file=sys.stderr)
    changed = copy.copy(arguments)
    setattr(changed, varied, point)
    if varied == 'slots':
      changed.rounds = None
    for candidate in _candidates(changed, certificate_of):
      certified.setdefault(candidate.bound, {})[point] = candidate.epsilon
    for row in protocols_published.of(changed):
      published.setdefault(row.formula, {})[point] = row.number
  # Not pyplot: its global state belongs to the caller's notebook.
  figure = figure_lib.Figure(figsize=(8.0, 6.0), layout='constrained')
  axes = figure.subplots()
  for values, style, mark in (
      (certified, '-', ''), (published, '--', ' UNCERTIFIED')
  ):
    for name, line in values.items():
      shown = {x: y for x, y in line.items() if 0 < y < math.inf}
      if shown:
        axes.plot(
            list(shown),
            list(shown.values()),
            style,
            label=f'{name}{mark}',
            linewidth=1.0,
            marker='.',
        )
  axes.set_xscale('log')
  axes.set_yscale('log')
  axes.set_xlabel(varied)
  axes.set_ylabel(f'epsilon at delta {arguments.delta:.3g}')
  axes.set_title(_title(arguments, varied), fontsize='medium', wrap=True)
  axes.grid(alpha=0.3, which='both')
  if axes.lines:
    figure.legend(loc='outside lower center', ncols=2, fontsize='small')
  content = io.BytesIO()
  backend_agg.FigureCanvasAgg(figure).print_png(content)
  with open(path, 'wb') as file:
    file.write(content.getvalue())


def _candidates(arguments, certificate_of) -> list[best_bound.Candidate]:
  """Returns all bounds, with those that a certificate leaves out as slow."""
  found = list(certificate_of(arguments).candidates)
  if arguments.bound != 'best' or arguments.without_derived:
    return found
  names = [candidate.bound for candidate in found]
  for name in protocol_bounds.SLOW_NAMES:
    if name in names:
      alone = copy.copy(arguments)
      alone.bound = name
      found[names.index(name)] = certificate_of(alone).candidates[-1]
  return found


def _points(arguments, varied: str) -> list[int]:
  last = getattr(arguments, varied) or 1
  first = min(last, 1 if varied == 'rounds' else _LEAST_SLOTS)
  spread = np.geomspace(first, last, _NUM_POINTS).round()
  return sorted({int(point) for point in spread} | {last})


def _title(arguments, varied: str) -> str:
  names = ('protocol', 'population', 'check_in_rate', 'check_in_probability',
           'slots', 'local_epsilon', 'local_delta', 'randomizer',
           'noise_multiplier')
  said = [
      f'{name.replace("_", " ")} {value}'
      for name in names
      if name != varied
      and (value := getattr(arguments, name, None)) is not None
  ]
  return f'{arguments.kind}: {", ".join(said)}'
