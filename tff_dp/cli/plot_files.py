# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Whether a picture can be written, found out before the work for it."""

import importlib.util
import os

from tff_dp import _checks


def check(path: str) -> None:
  """Raises if `--plot PATH` could not be written."""
  if importlib.util.find_spec('matplotlib') is None:
    raise ImportError('--plot needs matplotlib, which is not installed')
  folder = os.path.dirname(os.path.abspath(path))
  is_writable = os.access(path if os.path.exists(path) else folder, os.W_OK)
  if os.path.isdir(path) or not os.path.isdir(folder) or not is_writable:
    raise _checks.ArgumentError(
        'plot', path, 'a file that can be written, in a folder that exists'
    )
