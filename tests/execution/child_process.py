# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs a module of the tests in a process of its own."""

import pathlib
import subprocess
import sys

_ROOT = pathlib.Path(__file__).parents[2]
_SECONDS = 600


def lines_of(module: str, *arguments: str) -> list[str]:
  """Returns the lines that `python -m module` prints.

  Args:
    module: Module of the checkout.
    *arguments: Arguments of the command.

  Raises:
    RuntimeError: If the process fails. It has what the process wrote to stderr.
  """
  child = subprocess.run(
      [sys.executable, '-m', module, *arguments],
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
      cwd=_ROOT,
      check=False,
      timeout=_SECONDS,
  )
  if child.returncode:
    raise RuntimeError(child.stderr)
  return child.stdout.splitlines()
