# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Numbers of a task that take long to find, kept in a file."""

from collections.abc import Callable
import json
import pathlib
from typing import Optional


class Calibrations:
  """Calibrated numbers, kept in a file: some take a minute to find."""

  def __init__(self, path: Optional[pathlib.Path] = None):
    """Initializes the object.

    Args:
      path: Path of the file, `None` to keep nothing.
    """
    self._path = path
    self._found = {}
    if path is not None and path.exists():
      self._found = json.loads(path.read_text())

  def find(self, key: str, search: Callable[[], float]) -> float:
    """Returns the number of a key. Calls `search` only if none is kept."""
    if key not in self._found:
      self._found[key] = search()
      if self._path is not None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix('.tmp')
        temporary.write_text(json.dumps(self._found, indent=2) + '\n')
        temporary.replace(self._path)
    return self._found[key]
