# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
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
