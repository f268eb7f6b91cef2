# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Keeps TensorFlow's and TFF's messages about themselves off the screen."""

import contextlib
import logging
import os
import re
import sys
import tempfile
import threading
import warnings

_DEBUG_VARIABLE = 'TFF_DP_DEBUG'
# TensorFlow 2.21 writes these while it loads its libraries, regardless of
# TF_CPP_MIN_LOG_LEVEL, which it reads only afterwards.
_NOISE = re.compile(
    rb'WARNING: All log messages before absl::InitializeLog'
    rb'|I\d{4} [\d:.]+ +\d+ \S+\.cc:\d+\]'
)

# Whether TensorFlow was imported before this package with its log on.
# TensorFlow reads its log level only once.
was_loaded_loud = (
    'tensorflow' in sys.modules
    and os.environ.get('TF_CPP_MIN_LOG_LEVEL') != '3'
)


def is_debug() -> bool:
  """Returns whether TFF_DP_DEBUG asks for start-up noise and tracebacks."""
  return os.environ.get(_DEBUG_VARIABLE, '0').lower() not in ('', '0', 'false')


def quiet_start_up() -> None:
  """Silences the messages of TensorFlow and TFF at import.

  All C++ messages of TensorFlow below FATAL are off for the whole process,
  because three harmless messages at start-up have the level ERROR. TensorFlow's
  errors still arrive as exceptions. A TF_CPP_MIN_LOG_LEVEL that the user has
  set wins, and TFF_DP_DEBUG=1 leaves everything as it is. The line that
  TensorFlow logs for every SavedModel, for example in tff.program, is off, too,
  because notebooks print it twice.
  """
  if is_debug():
    return
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  # Added once: the logger ignores a filter that it already has.
  logging.getLogger('tensorflow').addFilter(_is_no_asset_line)
  # This comes from googleapis-common-protos 1.61, which TFF needs. The lock
  # pins setuptools < 81.
  warnings.filterwarnings('ignore', message='pkg_resources is deprecated')
  warnings.filterwarnings(
      'ignore', message='Deprecated call to `pkg_resources.declare_namespace'
  )


def _is_no_asset_line(record: logging.LogRecord) -> bool:
  return not str(record.msg).startswith('Assets written to')


@contextlib.contextmanager
def without_log_of_tensorflow():
  """Drops this thread's records of TensorFlow's Python logger in its block.

  Use it around an attempt that may fail, because TensorFlow logs the stack of
  every operation before it raises. With TFF_DP_DEBUG=1 nothing is dropped.
  """
  thread = threading.get_ident()
  logger = logging.getLogger('tensorflow')

  def is_of_another_thread(record: logging.LogRecord) -> bool:
    return is_debug() or record.thread != thread

  logger.addFilter(is_of_another_thread)
  try:
    yield
  finally:
    logger.removeFilter(is_of_another_thread)


@contextlib.contextmanager
def without_noise():
  """Holds back stderr in its block, then writes it out without the noise.

  Noise is C++ messages of level INFO, and a warning about early messages.
  Nothing else gets lost, unless the process is killed in the block. A user who
  asks for level INFO gets the noise. If TensorFlow is loaded already, nothing
  is held back.
  """
  wants_info = is_debug() or os.environ.get('TF_CPP_MIN_LOG_LEVEL') == '0'
  loaded = sys.modules.get('tensorflow')
  if wants_info or (
      loaded is not None
      # A module is already in sys.modules while it is being loaded.
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
