# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Axes of plots that count rounds, updates or images."""


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
