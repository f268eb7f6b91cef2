# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What every test needs before it starts."""

import pathlib
import signal

from absl import flags
import pytest

# Before any test imports TFF: on a current stack it could not be imported.
from tff_dp import _compat

# pytest, not absl, parses the command line; without this, absltest's
# `create_tempdir` refuses to work.
flags.FLAGS.mark_as_parsed()

# What a shell starts with `&` ignores it, and so would all its children: tests
# of interrupts would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
  signal.signal(signal.SIGINT, signal.default_int_handler)

_NEEDS_WORKER = "needs TFF's worker: column A (Python 3.11) only"
# Files that are about the worker, or compare with it, from beginning to end.
_REFERENCE_ONLY = {
    'execution/contexts_test.py': _NEEDS_WORKER,
    'execution/native_test.py': _NEEDS_WORKER,
}


def pytest_collection_modifyitems(items):
  """Skips, with its reason, what is tied to column A where this is not A."""
  if _compat.COLUMN.has_worker:
    return
  folder = pathlib.Path(__file__).parent
  for item in items:
    name = item.path.relative_to(folder).as_posix()
    marker = item.get_closest_marker('reference_only')
    if marker is not None:
      item.add_marker(pytest.mark.skip(reason=marker.kwargs['reason']))
    elif name in _REFERENCE_ONLY:
      item.add_marker(pytest.mark.skip(reason=_REFERENCE_ONLY[name]))
