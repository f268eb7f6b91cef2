# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs a command line inside the test's process."""

from collections.abc import Callable
import contextlib
import io
import json


def run(main: Callable[[list[str]], int], *argv) -> tuple[int, str, str]:
  """Returns (exit code, stdout, stderr) of `main`; words may be of any type."""
  out, err = io.StringIO(), io.StringIO()
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    try:
      code = main([str(word) for word in argv])
    except SystemExit as stop:
      code = stop.code
  return code, out.getvalue(), err.getvalue()


def run_json(main: Callable[[list[str]], int], *argv):
  """Returns what `main --format json` prints; an error fails the test."""
  code, out, err = run(main, *argv, '--format', 'json')
  if code:
    raise AssertionError(err)
  return json.loads(out)


def run_flat(main: Callable[[list[str]], int], *argv):
  """Returns what `run_json` does, with the details beside the headline."""
  result = run_json(main, *argv)
  details = result.pop('details', {})
  if set(result) & set(details):
    raise AssertionError(f'{set(result) & set(details)} is in both')
  return result | details
