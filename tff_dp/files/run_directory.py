# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The output directory of one run: what may be shared, and what may not.

    output_dir/
      release/   model, metrics, statement, events, config, environment, process
      secret/    mode 0700: checkpoints (with the noise key), participation
                 ledger, write-ahead record, metrics that are not covered

A directory belongs to one run. It is opened again only by a run with the same
plan, configuration and clients; anything else is refused before a byte in it
changes.
"""

from collections.abc import Iterable, Mapping
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import uuid

from tff_dp import _checks

_SCHEMA = 1
_TEMPORARY = re.compile(r'.*(\.tff_dp_tmp|_temp\d{4})$')


def write_atomically(
    path: os.PathLike, content: bytes | str | Iterable[bytes]
) -> None:
  """Writes a file so that a reader sees all of it or its predecessor.

  The content is on the disk before the name points to it.

  Args:
    path: The file.
    content: All of it, or its parts.
  """
  path = pathlib.Path(path)
  if isinstance(content, str):
    content = content.encode()
  if isinstance(content, bytes):
    content = [content]
  temporary = path.with_name(path.name + '.tff_dp_tmp')
  with naming(path):
    with open(temporary, 'wb') as file:
      file.writelines(content)
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, path)


@contextlib.contextmanager
def naming(path: os.PathLike):
  """Lets an error of the file system inside be one that names the file."""
  try:
    yield
  except OSError as error:
    if error.filename is None:
      error.filename = os.fspath(path)
    raise
  except Exception as error:
    # TensorFlow has errors of its own.
    what = os.strerror(errno.ENOSPC)
    if what not in str(error):
      raise
    raise OSError(errno.ENOSPC, what, os.fspath(path)) from error


def flush(path: os.PathLike) -> None:
  """Returns once a file or the names in a directory are on the disk."""
  with naming(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
      os.fsync(descriptor)
    finally:
      os.close(descriptor)


def write_json(path: os.PathLike, content: Mapping) -> None:
  """Writes a mapping as indented JSON, atomically."""
  write_atomically(path, json.dumps(content, indent=2) + '\n')


def write_statement(release: os.PathLike, statement) -> None:
  """Writes a `PrivacyStatement` as JSON, and the Markdown rendered from it."""
  path = os.path.join(release, 'privacy_statement')
  write_json(path + '.json', statement.to_json())
  write_atomically(path + '.md', statement.to_markdown())


class RunDirectory:
  """An output directory that this process has opened and locked.

  Attributes:
    root: The directory.
    release: What may leave the machine.
    secret: What must not.
    run_id: Random name of the run.
    is_new: Whether this call has created the run.
  """

  def __init__(
      self,
      output_dir: str | os.PathLike,
      *,
      identity: Mapping,
      client_ids: list[str],
  ):
    """Opens the directory for a run, new or resumed.

    Args:
      output_dir: Absent, empty, or of the same run.
      identity: Nested mapping of plain JSON types: everything that the results
        depend on.
      client_ids: The population. Only a salted hash of it is stored.

    Raises:
      OSError: If the disk is full.
      ArgumentError: If the directory cannot be written, holds something else,
        holds a run with another identity, or is in use.
    """
    self.root = pathlib.Path(output_dir)
    self.release = self.root / 'release'
    self.secret = self.root / 'secret'
    self._lock = None
    identity = json.loads(json.dumps(identity))
    try:
      self._check_foreign()
      self.release.mkdir(parents=True, exist_ok=True)
      self.secret.mkdir(mode=0o700, exist_ok=True)
      self.secret.chmod(0o700)
      self._acquire()
      self._identify(identity, client_ids)
      self._remove_temporary()
    except OSError as error:
      self.close()
      if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise
      raise self._refused(
          f'a directory that can be created and written ({error.strerror})'
      ) from error
    except BaseException:
      self.close()
      raise

  @property
  def log(self) -> pathlib.Path:
    """Where the traces of errors go."""
    return self.secret / 'run.log'

  @property
  def checkpoints(self) -> pathlib.Path:
    """Where the program state manager keeps its versions."""
    return self.secret / 'checkpoints'

  def close(self) -> None:
    """Gives up the lock; the files stay. May be called twice."""
    if self._lock is not None:
      self._lock.close()
      self._lock = None

  def __enter__(self) -> 'RunDirectory':
    return self

  def __exit__(self, *exception_info) -> None:
    self.close()

  @property
  def _manifest(self) -> pathlib.Path:
    return self.secret / 'run.json'

  def _refused(self, allowed: str) -> _checks.ArgumentError:
    return _checks.ArgumentError('output_dir', str(self.root), allowed)

  def _check_foreign(self) -> None:
    """Raises if there is anything that a run of ours has not put there."""
    # What a run leaves that was killed before it had written its manifest.
    ours = {'release', 'secret', 'secret/lock', 'secret/run.json.tff_dp_tmp'}
    if not self.root.exists() or self._manifest.exists():
      return
    found = {str(p.relative_to(self.root)) for p in self.root.rglob('*')}
    if not found <= ours:
      raise self._refused(
          'a new or empty directory, or that of a run to resume; this one holds'
          f' other files, such as {sorted(found - ours)[0]!r}'
      )

  def _acquire(self) -> None:
    # The kernel gives the lock up when the process ends, however it ends.
    self._lock = open(self.secret / 'lock', 'wb')
    with contextlib.suppress(BlockingIOError):
      fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
      return
    raise self._refused(
        'a directory that no other process is using; a run is active there'
    )

  def _identify(self, identity: dict, client_ids: list[str]) -> None:
    """Stores who we are, or compares it with what is stored."""
    self.is_new = not self._manifest.exists()
    if self.is_new:
      self.run_id = uuid.uuid4().hex
      write_json(
          self._manifest,
          {
              'schema': _SCHEMA,
              'run_id': self.run_id,
              'identity': identity,
              'population': _digest(self.run_id, client_ids),
          },
      )
      return
    try:
      stored = json.loads(self._manifest.read_text())
      is_known = stored['schema'] == _SCHEMA
    except (ValueError, KeyError, TypeError):
      is_known = False
    if not is_known:
      raise self._refused(
          'the directory of a run made by this version of tff_dp; its'
          ' secret/run.json is damaged or of another version'
      )
    self.run_id = stored['run_id']
    changes = list_changes(stored['identity'], identity)
    if stored['population'] != _digest(self.run_id, client_ids):
      changes.append('the ids of the clients, or their order')
    if changes:
      raise self._refused(
          'a new directory: this one holds a checkpoint of another plan or'
          f' configuration ({"; ".join(changes)})'
      )

  def _remove_temporary(self) -> None:
    """Removes what a killed process was about to write."""
    for folder in (self.release, self.secret, self.checkpoints):
      for path in folder.glob('*'):
        if _TEMPORARY.match(path.name):
          if path.is_dir():
            shutil.rmtree(path)
          else:
            path.unlink()


def list_changes(before: Mapping, after: Mapping) -> list[str]:
  """Returns one phrase per key that differs, `plan.num_rounds 10 -> 20`."""
  flat_before, flat_after = _flatten(before), _flatten(after)
  absent = object()
  changes = []
  for key in [*flat_before, *(k for k in flat_after if k not in flat_before)]:
    old, new = flat_before.get(key, absent), flat_after.get(key, absent)
    if old is not absent and new is not absent and repr(old) == repr(new):
      continue
    old, new = ['absent' if v is absent else repr(v) for v in (old, new)]
    changes.append(f'{key} {old} -> {new}')
  return changes


def _flatten(content, prefix: str = '') -> dict[str, object]:
  if not isinstance(content, Mapping) or not content:
    return {prefix: content}
  flat = {}
  for key, value in content.items():
    flat.update(_flatten(value, f'{prefix}.{key}' if prefix else str(key)))
  return flat


def _digest(run_id: str, client_ids: list[str]) -> str:
  content = json.dumps([run_id, [_text(i) for i in client_ids]])
  return hashlib.sha256(content.encode()).hexdigest()


def _text(client_id: str | bytes) -> str:
  return client_id.hex() if isinstance(client_id, bytes) else str(client_id)
