# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Keeps off the screen what TensorFlow and TFF print about themselves."""

import contextlib
import logging
import os
import re
import sys
import tempfile
import warnings

_DEBUG_VARIABLE = 'TFF_DP_DEBUG'
# TensorFlow 2.21 writes these while its libraries are being loaded, whatever
# TF_CPP_MIN_LOG_LEVEL says, because it reads that only afterwards.
_NOISE = re.compile(
    rb'WARNING: All log messages before absl::InitializeLog'
    rb'|I\d{4} [\d:.]+ +\d+ \S+\.cc:\d+\]'
)


def is_debug() -> bool:
  """Returns whether TFF_DP_DEBUG asks for start-up noise and tracebacks."""
  return os.environ.get(_DEBUG_VARIABLE, '0').lower() not in ('', '0', 'false')


def quiet_start_up() -> None:
  """Silences what TensorFlow and TFF print when they are imported.

  TensorFlow's C++ messages of all levels below FATAL are off for the whole
  process (its errors still arrive as exceptions): three of those at start-up
  are logged as errors and are harmless. A TF_CPP_MIN_LOG_LEVEL that the user
  has set wins, and TFF_DP_DEBUG=1 leaves everything as it is. Off is, too, its
  line about every SavedModel, such as those of tff.program: notebooks print it
  twice.
  """
  if is_debug():
    return
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  # Once: the logger drops a filter that it has already.
  logging.getLogger('tensorflow').addFilter(_is_no_asset_line)
  # From googleapis-common-protos 1.61 below TFF; setuptools < 81 is pinned.
  warnings.filterwarnings('ignore', message='pkg_resources is deprecated')
  warnings.filterwarnings(
      'ignore', message='Deprecated call to `pkg_resources.declare_namespace'
  )


def _is_no_asset_line(record: logging.LogRecord) -> bool:
  return not str(record.msg).startswith('Assets written to')


@contextlib.contextmanager
def without_noise():
  """Holds back what is written to stderr inside, then repeats it without noise.

  Noise is C++ messages of level INFO; nothing else gets lost, unless the
  process is killed inside. A user who asks for that level gets it, and what is
  loaded already has said what it had to say.
  """
  wants_info = is_debug() or os.environ.get('TF_CPP_MIN_LOG_LEVEL') == '0'
  loaded = sys.modules.get('tensorflow')
  if wants_info or (
      loaded is not None
      # While a module is being loaded it is there already.
      and not getattr(loaded.__spec__, '_initializing', False)
  ):
    yield
    return
  try:
    screen = os.dup(2)
  except OSError:  # No stderr.
    yield
    return
  with tempfile.TemporaryFile() as held_back:
    _flush()
    os.dup2(held_back.fileno(), 2)
    try:
      yield
    finally:
      _flush()
      os.dup2(screen, 2)
      os.close(screen)
      held_back.seek(0)
      for line in held_back:
        if not _NOISE.match(line):
          os.write(2, line)


def _flush() -> None:
  if sys.stderr is not None:
    sys.stderr.flush()
