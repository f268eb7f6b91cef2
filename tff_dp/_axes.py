# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Axes of pictures that count rounds, updates or images."""


def count(axis) -> None:
  """Puts few ticks on a matplotlib axis, at round integers: 200, 5k, 10M."""
  from matplotlib import ticker  # pylint: disable=g-import-not-at-top

  # Without the step 2.5 that is among the default ones.
  axis.set_major_locator(
      ticker.MaxNLocator(
          nbins=6, integer=True, steps=(1, 2, 5, 10), min_n_ticks=1
      )
  )
  axis.set_major_formatter(ticker.EngFormatter(sep=''))
