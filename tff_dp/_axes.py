# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts that all plots share: figures, lines, axes, and PNG and SVG files."""

from collections.abc import Callable
import html
import io
import math
import re
from typing import Any

# Line i is thinner than the one below it, so that both are seen where they meet.
_STYLES = ((3.0, '-'), (2.2, '--'), (1.5, '-.'), (1.2, ':'))
# In an SVG these colours become those of the page.
_INK = '#010203'
_LINES = ('#1b62a5', '#c8550b', '#39782f', '#7b4397')
_IDS = re.compile(r'(\bid="|href="#|url\(#)')
_UNUSED = re.compile(
    r'<metadata>.*?</metadata>|<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->', re.DOTALL
)
_FONT = re.compile(r"font: ([\d.]+px) [^;\"]*")


def figure(width: float, height: float, rows: int = 1) -> tuple[Any, list[Any]]:
  """Returns a matplotlib figure and its axes. The layout cuts off no label.

  Args:
    width: Width in inches.
    height: Height in inches.
    rows: Number of plots above each other, with the same horizontal axis.
  """
  # Slow to import, and without pyplot, whose global state belongs to the caller's
  # notebook.
  # pylint: disable-next=g-import-not-at-top
  from matplotlib import figure as figure_lib

  made = figure_lib.Figure(figsize=(width, height), layout='constrained')
  all_axes = list(made.subplots(rows, sharex=True, squeeze=False)[:, 0])
  for axes in all_axes:
    axes.grid(alpha=0.3)
  return made, all_axes


def style(index: int) -> dict[str, Any]:
  """Returns the arguments of `plot` for the line with this index, from 0."""
  turn, place = divmod(index, len(_STYLES))
  width, dashes = _STYLES[place]
  if turn:
    width = min(width, 1.6)
  return {
      'color': f'C{index % 10}' if turn else _LINES[place],
      'linewidth': width,
      'linestyle': dashes,
      'marker': '.',
      'markersize': 2.5 * width,
  }


def png(made: Any) -> bytes:
  """Returns the PNG of a figure."""
  # pylint: disable-next=g-import-not-at-top
  from matplotlib.backends import backend_agg

  content = io.BytesIO()
  backend_agg.FigureCanvasAgg(made).print_png(content)
  return content.getvalue()


def svg(draw: Callable[[], Any], *, name: str, description: str) -> str:
  """Returns an SVG element for an HTML page, in the colours of the page.

  Text and axes have the current colour. The colours of the first four lines are
  the custom properties `--line-1` to `--line-4` of the page.

  Args:
    draw: Function that returns a figure.
    name: Beginning of the element's ids, unique in the page.
    description: Text without markup, for readers who cannot see the figure.
  """
  import matplotlib  # pylint: disable=g-import-not-at-top
  from matplotlib.backends import backend_svg  # pylint: disable=g-import-not-at-top

  names = ('text.color', 'axes.edgecolor', 'axes.labelcolor', 'xtick.color', 'ytick.color')
  settings = dict.fromkeys(names, _INK) | {
      'font.size': 9.0,
      'svg.fonttype': 'none',
      'svg.hashsalt': name,
      'axes.spines.top': False,
      'axes.spines.right': False,
      'legend.frameon': False,
      'savefig.transparent': True,
      # A name of a metric is text, also with dollar signs.
      'text.parse_math': False,
  }
  content = io.StringIO()
  with matplotlib.rc_context(settings):
    made = draw()
    made.patch.set_visible(False)
    for axes in made.axes:
      axes.patch.set_visible(False)
    backend_svg.FigureCanvasSVG(made).print_svg(content, metadata={'Date': None})
  found = _UNUSED.sub('', content.getvalue()).strip()
  found = _IDS.sub(rf'\g<1>{name}-', found).replace(_INK, 'currentColor')
  found = _FONT.sub(r'font-size: \1', found)
  for index, colour in enumerate(_LINES, 1):
    found = found.replace(colour, f'var(--line-{index})')
  # The page decides about the size, by the shape that `viewBox` gives.
  head, rest = found.split('>', 1)
  head = re.sub(r' (width|height|version)="[^"]*"', '', head)
  return f'{head} role="img" aria-label="{html.escape(description)}">{rest}'


def count(axis) -> None:
  """Puts a few ticks at round integers on a matplotlib axis: 200, 5k, 10M."""
  from matplotlib import ticker  # pylint: disable=g-import-not-at-top

  # Leaves out the step 2.5, which is one of the defaults.
  axis.set_major_locator(
      ticker.MaxNLocator(
          nbins=6, integer=True, steps=(1, 2, 5, 10), min_n_ticks=1
      )
  )
  axis.set_major_formatter(ticker.EngFormatter(sep=''))


def log(axis) -> None:
  """Labels a logarithmic axis with plain numbers. Call it after drawing data.

  Args:
    axis: Axis of a matplotlib plot, `axes.xaxis` or `axes.yaxis`.
  """
  from matplotlib import ticker  # pylint: disable=g-import-not-at-top

  low, high = axis.get_data_interval()
  decades = math.log10(high / low) if 0 < low < high < math.inf else 0.0
  if low == high:
    # Around a single value the default has ticks elsewhere.
    locator = ticker.FixedLocator([low])
  elif decades < 0.7:
    locator = ticker.MaxNLocator(nbins=5)
  else:
    # Labels such as 5e-08 are wide.
    most = 3 if low >= 1e-4 else 1.5
    locator = ticker.LogLocator(subs=(1,) if decades > most else (1, 2, 5))
  axis.set_major_locator(locator)
  axis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f'{x:g}'))
  axis.set_minor_formatter(ticker.NullFormatter())
  if low == high:
    axis.set_minor_locator(ticker.NullLocator())
