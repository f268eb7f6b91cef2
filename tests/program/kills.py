# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs that are killed by an exception, and what has to be left of them."""

import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp.program.display import documents

# Files of a run that do not depend on how often it was killed.
_MUST_AGREE = (
    'release/config.json',
    'release/events.json',
    'release/metrics.csv',
    'release/model.npz',
    'release/privacy_statement.json',
    'release/privacy_statement.md',
    'secret/write_ahead.jsonl',
)


class Killed(BaseException):
  """Stands for the end of the process; no `except Exception` catches it."""


class RunsTestCase(parameterized.TestCase):
  """Tests of whole runs, in `parent`, without their report."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.parent = pathlib.Path(
        cls.enterClassContext(tempfile.TemporaryDirectory())
    )
    cls.enterClassContext(mock.patch.object(documents, 'write'))


def at_call(target, number: int, *, is_after: bool):
  """Returns a stand-in for a method that is killed at its n-th call."""
  calls = []

  def stand_in(*args, **kwargs):
    calls.append(None)
    if len(calls) == number and not is_after:
      raise Killed
    result = target(*args, **kwargs)
    if len(calls) == number:
      raise Killed
    return result

  return stand_in


def files_that_must_agree(root: pathlib.Path) -> dict[str, bytes]:
  """Returns what does not depend on how often a run was killed."""
  return {name: (root / name).read_bytes() for name in _MUST_AGREE}


def check_same_files(
    test: absltest.TestCase, root: pathlib.Path, other: pathlib.Path
) -> None:
  """Fails a test unless two runs left the same files."""
  others = files_that_must_agree(other)
  for name, content in files_that_must_agree(root).items():
    test.assertEqual(content, others[name], name)
