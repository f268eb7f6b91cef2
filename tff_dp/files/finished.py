# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tells whether the run in a directory is finished, without TensorFlow.

The last file that a run writes to `secret/` says that the run is finished. So a
command can read this file and `run.json`, before it loads TensorFlow, and see
that nothing is left to do. The file is no source for a guarantee: `release/`
has the statement.
"""

from collections.abc import Mapping
import json
import os
import pathlib
from typing import Any

from tff_dp.files import regular
from tff_dp.files import run_directory

_NAME = 'finished.json'


def write(secret: os.PathLike, *, rounds_done: int, is_over_budget: bool):
  """Notes that a run has ended and written its documents.

  Args:
    secret: The secret folder of the run.
    rounds_done: Number of complete rounds.
    is_over_budget: Whether the budget refused the next round.
  """
  run_directory.write_json(
      os.path.join(secret, _NAME),
      {'rounds_done': rounds_done, 'is_over_budget': is_over_budget},
  )


def clear(secret: os.PathLike) -> None:
  """Deletes the note, because the documents are about to be written again."""
  pathlib.Path(secret, _NAME).unlink(missing_ok=True)


def rounds_of(
    output_dir: os.PathLike,
    *,
    plan: Any,
    program: Mapping[str, Any],
    config: Mapping[str, Any],
) -> int | None:
  """Returns the number of rounds of a finished run, else `None`.

  A run is finished if the plan or the budget allows no further round, and if
  its statement is written. `None` also means that the directory holds another
  run, or files that cannot be read.

  Args:
    output_dir: Directory of the run, which may be absent.
    plan: Plan that the run must have.
    program: Arguments of `train` that the run must have, such as `delta`.
    config: Settings that the run must have.
  """
  secret = pathlib.Path(output_dir) / 'secret'
  try:
    # Whoever is told that the run is finished is sent to its statement.
    (secret.parent / 'release' / 'privacy_statement.json').stat()
    identity = regular.read_json(secret / 'run.json')['identity']
    ended = regular.read_json(secret / _NAME)
    rounds_done = int(ended['rounds_done'])
    is_same = (
        identity['plan']['fingerprint'] == plan.fingerprint
        and identity['config'] == json.loads(json.dumps(dict(config)))
        and all(
            identity['program'][name] == value
            for name, value in program.items()
        )
    )
    is_over = rounds_done >= plan.num_rounds or ended['is_over_budget'] is True
  except (OSError, ValueError, LookupError, TypeError):
    return None  # The run itself says what is wrong with its files.
  return rounds_done if is_same and is_over else None
