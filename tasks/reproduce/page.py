# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""docs/reproductions.md, from the results in the repository, and figures."""

import json
import math
import pathlib
import re
import textwrap
from typing import Any

import numpy as np

from tasks.reproduce import rows
from tasks.reproduce import table
from tff_dp import _axes

_FOLDER = pathlib.Path(__file__).resolve().parent
PATH = _FOLDER.parents[1] / 'docs' / 'reproductions.md'
# Values of x that are all named on a logarithmic axis.
_MOST_TICKS = 8
# Distance of two curves' points at the same x, as a share of the largest x.
_ASIDE = 0.006
# Characters in a line of a panel's title.
_TITLE_WIDTH = 75
_HEAD = """# The papers' experiments, beside ours

`python -m tasks reproduce --write-page` writes this page from the results in
`tasks/reproduce/results`. `python -m tasks reproduce` lists the rows, and says which
data are on this machine. `python -m tasks reproduce NAME` runs one, prints its table
and draws its figure. The same command resumes a stopped run.

A long row has many trials: one for each method, epsilon and seed, for example. Without
`--keep`, the command computes all of them. With `--keep`, it takes those in
`tasks/reproduce/results/trials` that have the same settings, computes the others, and
stores each there as soon as it ends. So a row can be run in parts, on several days or
machines: `--seeds 3` adds two seeds to a stored one. The hours of such a row are those
of its trials. A trial of shuffled check-in also stores its model, about every five
minutes after an evaluation. From there, another machine goes on with new coins and
keys. Rounds that the first machine may have made after that evaluation are made again,
and epsilon counts them twice.

A verdict is about what the paper claims: *holds*, *holds in part*, *does not hold*. A
row is *too short to compare* if a shorter run than the paper's falls short of its
number. It is *not testable here* if its data cannot be had offline, and *not run* if we
have not run it. A run with less than a tenth of the rounds or a quarter of the
population does not count as the paper's setting, and says so. Numbers marked
UNCERTIFIED come from formulas that do not hold. Our numbers are rounded to the nearest
digit, while `tff-dp account` rounds up.
"""


def path_of(name: str) -> pathlib.Path:
  """Returns where the result of a row is in the repository."""
  return _FOLDER / 'results' / f'{name}.json'


def figure_of(name: str) -> pathlib.Path:
  """Returns where the figure of a row is, beside the page."""
  return PATH.parent / 'figures' / f'{name}.png'


def trials_of(name: str) -> pathlib.Path:
  """Returns the file of the trials of a row in the repository."""
  return path_of(name).parent / 'trials' / f'{name}.json'


def json_text(content: dict[str, Any]) -> str:
  """Returns a result as JSON, with a list of numbers on one line."""
  return (
      re.sub(
          r'\[[^\[\]{}"]*\]',
          lambda numbers: ' '.join(numbers[0].split()),
          json.dumps(content, indent=1),
      )
      + '\n'
  )


def stored(name: str) -> dict[str, Any] | None:
  """Returns the result of a row in the repository; None without one."""
  path = path_of(name)
  return json.loads(path.read_text()) if path.exists() else None


def verdict(row: rows.Row) -> str:
  """Returns the verdict so far."""
  if not row.is_testable:
    return rows.NOT_HERE
  content = stored(row.name)
  if content is None:
    return rows.NOT_RUN
  return rows.Result.from_json(content).shown_verdict


def text() -> str:
  """Returns the page."""
  parts = [_HEAD, '| paper | item | verdict | name |', '|---|---|---|---|']
  for row in table.ROWS:
    name = f'`{row.name}`'
    if stored(row.name) is not None:
      name = f'[{name}](#{row.name})'
    parts.append(f'| {row.paper} | {row.item} | {verdict(row)} | {name} |')
  for row in table.ROWS:
    content = stored(row.name)
    if content is not None:
      parts += ['', section(row, content)]
      figure = figure_of(row.name)
      if figure.exists():
        parts += ['', f'![{row.item}](figures/{figure.name})']
  parts += ['', '## Not run, not testable here', '']
  for row in table.ROWS:
    if stored(row.name) is None:
      command = f'`python -m tasks reproduce {row.name}`'
      why = row.why_not or f'Not run yet. {command} runs it. {row.cost}'
      parts.append(f'* `{row.name}`: {why}'.rstrip())
  return '\n'.join(parts) + '\n'


def write() -> None:
  """Writes the page."""
  PATH.write_text(text(), encoding='utf-8')


def write_figures() -> None:
  """Draws the kept figures again, from the stored results."""
  for row in table.ROWS:
    if figure_of(row.name).exists():
      draw(row, stored(row.name), figure_of(row.name))


def section(row: rows.Row, content: dict[str, Any]) -> str:
  """Returns what a run gave, in Markdown."""
  result = rows.Result.from_json(content)
  parts = [
      f'## {row.name}',
      f'{row.paper}, {row.item}. **{result.shown_verdict.capitalize()}.**'
      f' {result.why}',
  ]
  facts = f'`{content["command"]}`, {content["date"]}'
  if row.kind != rows.ACCOUNTING:
    facts += f', seeds: {content["seeds"]}, scale {content["scale"]:g}'
    facts += f', {content["hours"]:.2g} hours'
  if not result.is_setting_of_paper:
    facts += (
        f". **Not the paper's setting**: {result.rounds_share:.2g} of the rounds"
        f' and {result.population_share:.2g} of the population'
    )
  parts.append(facts + '.')
  has_spread = any(line.spread is not None for line in result.lines)
  head = ['of what', 'paper', 'ours'] + ['±'] * has_spread
  lines = [_cells(head), '|---' * len(head) + '|']
  for line in result.lines:
    cells = [line.what, line.paper or '', _shown(line.ours)]
    if has_spread:
      cells.append('' if line.spread is None else _shown(line.spread))
    lines.append(_cells(cells))
  return '\n\n'.join([*parts, '\n'.join(lines)])


def draw(row: rows.Row, content: dict[str, Any], path: pathlib.Path) -> None:
  """Draws the curves of a stored result, a panel for each pair of axes."""
  from matplotlib import figure as figure_lib  # pylint: disable=g-import-not-at-top

  result = rows.Result.from_json(content)
  panels = list(dict.fromkeys(curve.panel for curve in result.curves))
  columns = min(2, len(panels))
  lines = -(-len(panels) // columns)
  figure = figure_lib.Figure(
      figsize=(6.4 * columns, 4.8 * lines), layout='constrained'
  )
  all_axes = figure.subplots(lines, columns, squeeze=False).ravel()
  for axes in all_axes[len(panels) :]:
    axes.remove()
  for axes, panel in zip(all_axes, panels):
    of_panel = [curve for curve in result.curves if curve.panel == panel]
    ends = [x for curve in of_panel for x in curve.x]
    is_log = min(ends) > 0 and max(ends) > 20 * min(ends)
    for index, curve in enumerate(of_panel):
      x = np.array(curve.x, float)
      if curve.spread is not None:
        # A little beside each other, so that no bar hides another.
        place = index - (len(of_panel) - 1) / 2
        x = x * 1.015**place if is_log else x + _ASIDE * max(ends) * place
      axes.errorbar(
          x,
          [math.nan if y is None else y for y in curve.y],
          yerr=curve.spread,
          marker='o',
          markersize=3,
          capsize=2,
          label=curve.label,
      )
    what, _, over = panel.partition(' over ')
    over, _, title = over.partition(': ')
    axes.set(xlabel=over, ylabel=what, title=title)
    shown = [y for curve in of_panel for y in curve.y if y is not None]
    if min(shown) > 0 and max(shown) > 20 * min(shown):
      axes.set_yscale('log')
      _axes.log(axes.yaxis)
    if is_log:
      axes.set_xscale('log')
      places = sorted(set(ends))
      if len(places) <= _MOST_TICKS:
        axes.set_xticks(places, [f'{x:g}' for x in places])
        axes.set_xticks([], minor=True)
      else:
        _axes.log(axes.xaxis)
    axes.grid(alpha=0.3)
    axes.legend(fontsize='small')
  title = f'{row.paper}, {row.item}'
  if content['scale'] != 1 and row.kind != rows.ACCOUNTING:
    title += f' (scale {content["scale"]:g})'
  figure.suptitle(
      textwrap.fill(title, _TITLE_WIDTH * columns), fontsize='medium'
  )
  figure.savefig(path, dpi=120)


def _cells(cells) -> str:
  return '| ' + ' | '.join(cells) + ' |'


def _shown(number: float) -> str:
  if abs(number) >= 1000:
    return f'{number:,.0f}'
  return f'{number:.4g}'
