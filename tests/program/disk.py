# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Listens to what a run does to its files, in order, and kills it anywhere."""

from collections.abc import Callable, Iterator
import contextlib
import os
import pathlib
import re
from unittest import mock

from tests.program import kills

_TEMPORARY = re.compile(r'\.[0-9a-f]{16}\.tff_dp_tmp$')
_LINES = ('.jsonl', '.csv')


class Disk:
  """Records each change of a file below a folder as a short text.

  'create a~' is a new temporary file for a. 'sync a' is an fsync. 'name a' gives
  a the content of its temporary file. 'open a+' opens a for lines at its end,
  and 'cut a' shortens it. Files of lines have the number of their lines behind
  them, at the time of the change.

  Attributes:
    events: The changes so far.
  """

  def __init__(
      self,
      root: pathlib.Path,
      *,
      killed_at: int | None = None,
      look: Callable[[], None] = lambda: None,
  ):
    """Makes it.

    Args:
      root: The folder.
      killed_at: Number of events after which the run is killed, in the place
        of the next one. `None`: it is not.
      look: Called after each event.
    """
    self.events: list[str] = []
    self._root = os.path.realpath(root)
    self._killed_at = killed_at
    self._look = look

  def say(self, event: str) -> None:
    """Records an event. Raises `Killed` in the place of the chosen one."""
    if self._killed_at is not None and len(self.events) >= self._killed_at:
      raise kills.Killed
    self.events.append(event)

  @contextlib.contextmanager
  def listening(self) -> Iterator[None]:
    """Records all changes of the block."""
    real_sync, real_replace, real_open = os.fsync, os.replace, os.open
    real_write, real_cut = os.pwrite, os.ftruncate

    def sync(descriptor):
      self._act('sync', _path_of(descriptor))
      real_sync(descriptor)
      self._look()

    def replace(source, target):
      self._act('name', target)
      real_replace(source, target)
      self._look()

    def open_(path, flags, *rest, **options):
      if flags & os.O_EXCL:
        self._act('create', path)
      elif flags & os.O_APPEND:
        self._act('open', path, '+')
      return real_open(path, flags, *rest, **options)

    def write(descriptor, content, place):
      self._act('write', _path_of(descriptor))
      done = real_write(descriptor, content, place)
      self._look()
      return done

    def cut(descriptor, length):
      if os.fstat(descriptor).st_size != length:
        self._act('cut', _path_of(descriptor))
      real_cut(descriptor, length)

    with contextlib.ExitStack() as stack:
      for name, stand_in in (
          ('fsync', sync),
          ('replace', replace),
          ('open', open_),
          ('pwrite', write),
          ('ftruncate', cut),
      ):
        stack.enter_context(mock.patch.object(os, name, stand_in))
      yield

  def _act(self, verb: str, path, suffix: str = '') -> None:
    path = os.path.realpath(path)
    if not path.startswith(self._root + os.sep):
      return
    name = _TEMPORARY.sub('~', os.path.relpath(path, self._root))
    lines = ''
    if name.endswith(_LINES) and os.path.exists(path):
      lines = f' {pathlib.Path(path).read_bytes().count(os.linesep.encode())}'
    self.say(f'{verb} {name}{suffix}{lines}')


def _path_of(descriptor: int) -> str:
  return os.readlink(f'/proc/self/fd/{descriptor}')
