# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs the command `tff-dp` for `python -m tff_dp`."""

import sys

from tff_dp import _start

if __name__ == '__main__':
  # First of all: the imports take a while.
  _start.exit_on_interrupt('interrupted')
  from tff_dp.cli import main  # pylint: disable=g-import-not-at-top

  sys.exit(main.main())
