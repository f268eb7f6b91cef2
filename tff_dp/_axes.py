# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Axes of plots: counts such as rounds, and logarithms."""

import math


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
  """Puts plain numbers on a logarithmic matplotlib axis that has its data.

  Args:
    axis: Axis of a plot, `axes.xaxis` or `axes.yaxis`.
  """
  from matplotlib import ticker  # pylint: disable=g-import-not-at-top

  low, high = axis.get_data_interval()
  decades = math.log10(high / low) if 0 < low < high < math.inf else 0.0
  if decades < 0.7:
    locator = ticker.MaxNLocator(nbins=5)
  else:
    locator = ticker.LogLocator(subs=(1,) if decades > 3 else (1, 2, 5))
  axis.set_major_locator(locator)
  axis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f'{x:g}'))
  axis.set_minor_formatter(ticker.NullFormatter())
