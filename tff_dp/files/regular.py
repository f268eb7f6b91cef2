# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads files that somebody else may have written, within bounds.

A name may stand for a pipe, a device or a link, and a few bytes may describe
more than the memory holds. So only regular files are opened, and sizes are
checked before anything is read.
"""

import errno
import json
import os
import stat
from typing import Any

_SETTINGS = os.O_CLOEXEC | os.O_NOCTTY
_OWNER_ONLY = 0o600
# More than any file of ours. In memory, nested lists take 20 times as much.
MOST_JSON_BYTES = 1 << 26
# Our files are nested at most 12 deep.
_MOST_DEPTH = 64


def open_file(
    path: str | os.PathLike,
    flags: int = os.O_RDONLY,
    *,
    follow_links: bool = True,
    mode: int = _OWNER_ONLY,
) -> int:
  """Returns the descriptor of a regular file, without ever waiting.

  Args:
    path: The file.
    flags: Flags of `os.open`.
    follow_links: Whether the last part of the path may be a link.
    mode: Access to a newly made file, before the umask.

  Raises:
    OSError: If the file cannot be opened or is not regular. The message names
      it.
  """
  if not follow_links:
    flags |= os.O_NOFOLLOW
  # Without O_NONBLOCK, opening a pipe waits for its other end.
  descriptor = os.open(path, flags | _SETTINGS | os.O_NONBLOCK, mode)
  if not stat.S_ISREG(os.fstat(descriptor).st_mode):
    os.close(descriptor)
    raise OSError(errno.EINVAL, 'not a regular file', os.fspath(path))
  return descriptor


def read(path: str | os.PathLike, *, most_bytes: int) -> bytes:
  """Returns the content of a regular file.

  Raises:
    OSError: If the file cannot be read, is not regular or is larger than
      `most_bytes`. The message names it.
  """
  with open(open_file(path), 'rb') as file:
    if os.fstat(file.fileno()).st_size <= most_bytes:
      # The file may grow meanwhile.
      content = file.read(most_bytes + 1)
      if len(content) <= most_bytes:
        return content
  raise OSError(
      errno.EFBIG, f'larger than {most_bytes} bytes', os.fspath(path)
  )


def read_json(path: str | os.PathLike) -> Any:
  """Returns the JSON value in a regular file of at most 64 MiB.

  Raises:
    OSError: See `read`.
    ValueError: If the content is not JSON, or nested too deeply.
  """
  return parse_json(read(path, most_bytes=MOST_JSON_BYTES))


def parse_json(content: bytes) -> Any:
  """Returns a JSON value.

  Raises:
    ValueError: If the content is not JSON in UTF-8, or nested more than 64
      deep.
  """
  too_deep = ValueError(f'nested more than {_MOST_DEPTH} deep')
  try:
    value = json.loads(content.decode())
  except RecursionError:
    raise too_deep from None
  level = [value]
  for _ in range(_MOST_DEPTH + 1):
    level = [
        each
        for part in level
        if isinstance(part, (dict, list))
        for each in (part.values() if isinstance(part, dict) else part)
    ]
    if not level:
      return value
  raise too_deep
