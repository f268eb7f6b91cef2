# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The pictures of the command line: error, or epsilon, against rounds."""

import argparse
from collections.abc import Callable, Sequence
import copy
import importlib.util
import math
import os
import textwrap
import time

import numpy as np

from tff_dp import _axes
from tff_dp import _checks
from tff_dp import _waiting
from tff_dp.accounting import rounding
from tff_dp.mechanisms import choice
from tff_dp.plans import events

_NUM_POINTS = 13
_TITLE_WIDTH = 80
_LEAST_SLOTS = 10
_MOST_TEETH = 50
# Longer work shows its progress.
_QUIET_SECONDS = 2.0
_WORDS = {'rounds': 'rounds of the run', 'slots': 'slots of one pass'}
_NAMES = {
    'none': 'without amplification',
    'best': 'the least of all arguments',
}


def check(path: str) -> None:
  """Raises if `--plot` cannot write its file, or if matplotlib is missing.

  Call it before the work.

  Args:
    path: The file.

  Raises:
    ImportError: If matplotlib is missing.
    ArgumentError: If the file cannot be written.
  """
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
    at: Privacy at which the errors are compared, as text for the title.
  """
  figure, (axes,) = _axes.figure(8.0, 5.0)
  for index, row in enumerate(rows):
    variances = row.mechanism.run_prefix_variances()
    rounds = np.arange(1, len(variances) + 1)
    style = _axes.style(index)
    # A single round has no line.
    if len(rounds) > 1:
      style['marker'] = None
    # A wide line that goes up and down all the time would be an area.
    if np.count_nonzero(np.diff(variances) < 0) > _MOST_TEETH:
      style |= {'linewidth': 0.5, 'linestyle': '-'}
    axes.plot(
        rounds,
        row.max_error * np.sqrt(variances / variances.max()),
        label=row.label,
        **style,
    )
  axes.set_yscale('log')
  axes.set_xlabel('round')
  _axes.count(axes.xaxis)
  _axes.log(axes.yaxis)
  axes.set_ylabel('standard deviation of the noise\non the sum so far (clip norms)')
  axes.set_title(f'Noise of each mechanism at {at}')
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
  """Writes a PNG with one line of epsilons for each bound.

  Args:
    path: The file.
    arguments: Arguments of the command.
    epsilons_of: Function from arguments to epsilon by the name of the bound.
    varied: Name of the flag on the horizontal axis. The axis ends at its value.
    title: Title above the picture.
  """
  lines = {}
  start = time.monotonic()
  for point in _points(arguments, varied):
    if time.monotonic() - start > _QUIET_SECONDS:
      _waiting.note(f'{varied} {point} ...')
    changed = copy.copy(arguments)
    setattr(changed, varied, point)
    for name, epsilon in epsilons_of(changed).items():
      lines.setdefault(name, {})[point] = epsilon
  _write_lines(
      path,
      {
          _NAMES.get(name, name.replace('_', ' ')): line
          for name, line in lines.items()
      },
      label=_WORDS.get(varied, varied),
      delta=arguments.delta,
      title=title,
  )


def write_epsilon_by_round(path: str, run: events.PlanRun) -> None:
  """Writes a PNG with epsilon against the round after which a run stops.

  A second line has the epsilon without amplification, if it differs. About a
  dozen rounds are computed, more of them at the start.

  Args:
    path: The file.
    run: The run. The axis ends at its `num_rounds`, or at the plan's if that is
      `None`.
  """
  plan, last = run.plan, run.num_rounds or run.plan.num_rounds
  lines = {'epsilon of the run so far': {}, _NAMES['none']: {}}
  for rounds in _spread(1, last):
    options = {'delta': run.delta, 'num_rounds': rounds, **run.options}
    headline = plan.headline(**options)
    for line, name in zip(lines.values(), ('epsilon', 'epsilon_no_amplification')):
      line[rounds] = rounding.from_json_number(headline[name])
  spent, without = lines.values()
  if spent == without:
    del lines[_NAMES['none']]
  relation = headline['neighboring_relation'].replace('_', '-')
  _write_lines(
      path,
      lines,
      label='round after which the run stops',
      delta=run.delta,
      title='Epsilon of a run that stops early, per'
      f' {plan.unit}, {relation} adjacency',
  )


def _write_lines(path, lines, *, label, delta, title) -> None:
  figure, (axes,) = _axes.figure(8.0, 6.0)
  for index, (name, line) in enumerate(lines.items()):
    shown = {x: y for x, y in line.items() if 0 < y < math.inf}
    if shown:
      axes.plot(
          list(shown),
          list(shown.values()),
          label=name,
          **_axes.style(index),
      )
  axes.set_xscale('log')
  axes.set_yscale('log')
  _axes.log(axes.xaxis)
  _axes.log(axes.yaxis)
  axes.set_xlabel(label)
  axes.set_ylabel(
      'epsilon'
      if delta is None
      else f'epsilon at delta {rounding.short(delta)}'
  )
  axes.set_title(textwrap.fill(title, _TITLE_WIDTH), fontsize='medium')
  if axes.lines:
    figure.legend(loc='outside lower center', ncols=2, fontsize='small')
  _write(figure, path)


def _points(arguments, varied: str) -> list[int]:
  last = getattr(arguments, varied) or 1
  first = min(last, 1 if varied == 'rounds' else _LEAST_SLOTS)
  return _spread(first, last)


def _spread(first: int, last: int) -> list[int]:
  spread = np.geomspace(first, last, _NUM_POINTS).round()
  return sorted({int(point) for point in spread} | {last})


def _write(figure, path: str) -> None:
  content = _axes.png(figure)
  with open(path, 'wb') as file:
    file.write(content)
