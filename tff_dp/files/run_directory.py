# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The output directory of one run: a part to share and a secret part.

    output_dir/
      release/   model, metrics, statement, events, config, environment, process
      secret/    mode 0700: checkpoints (with the noise key), participation
                 ledger, write-ahead record, metrics that are not covered

A directory belongs to one run. Only a run with the same plan, configuration and
clients may open it again. Any other run is refused before a byte in it changes.

A directory also belongs to one user. It is refused if somebody else has made
it, if others may write to it, or if it is a link: others could read the noise
key, or put back an older ledger. Whoever can write to `secret` owns the run. No
checksum there has a key, because the key would lie beside it.
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
import secrets
import shutil
import stat
import uuid

from tff_dp import _checks
from tff_dp.files import regular

# The statement as a page, in the folder of what is released.
REPORT = 'report.html'
_SCHEMA = 1
_SUFFIX = '.tff_dp_tmp'
_TEMPORARY = re.compile(r'.*(\.tff_dp_tmp|_temp\d{4})$')
# Files of a run that was killed before it wrote its manifest.
_FIRST_FILES = re.compile(
    r'release|secret|secret/lock|secret/run\.json\.\w+\.tff_dp_tmp'
)
_RELEASE_MODE, _SECRET_MODE = 0o755, 0o700


def write_atomically(
    path: str | os.PathLike, content: bytes | str | Iterable[bytes]
) -> None:
  """Writes a file. A reader sees either the whole new file or the old one.

  The content is on the disk before the name points to it. The file is no more
  accessible than its directory: in `secret` its mode is 0600. A link in its
  place is replaced, and nobody can guess the temporary name.

  Args:
    path: The file.
    content: The whole content, or its parts.
  """
  path = pathlib.Path(path)
  if isinstance(content, str):
    content = content.encode()
  if isinstance(content, bytes):
    content = [content]
  temporary = path.with_name(f'{path.name}.{secrets.token_hex(8)}{_SUFFIX}')
  with naming(path):
    descriptor = os.open(
        temporary,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
        path.parent.stat().st_mode & 0o666,
    )
    try:
      with open(descriptor, 'wb') as file:
        file.writelines(content)
        file.flush()
        os.fsync(file.fileno())
      os.replace(temporary, path)
    except BaseException:
      # Otherwise every attempt on a full disk would leave a temporary file.
      with contextlib.suppress(OSError):
        temporary.unlink()
      raise


@contextlib.contextmanager
def naming(path: os.PathLike):
  """Turns file system errors in its block into errors that name the file."""
  try:
    yield
  except OSError as error:
    if error.filename is None:
      error.filename = os.fspath(path)
    raise
  except Exception as error:
    # TensorFlow raises its own errors.
    what = os.strerror(errno.ENOSPC)
    if what not in str(error):
      raise
    raise OSError(errno.ENOSPC, what, os.fspath(path)) from error


def flush(path: os.PathLike) -> None:
  """Returns after a file, or the names in a directory, are on the disk."""
  with naming(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
      os.fsync(descriptor)
    finally:
      os.close(descriptor)


def write_json(path: str | os.PathLike, content: Mapping) -> None:
  """Writes a mapping as indented JSON, atomically."""
  write_atomically(path, json_text(content))


def json_text(content: Mapping) -> str:
  """Returns the text that `write_json` writes for a mapping."""
  return json.dumps(content, indent=2) + '\n'


def write_statement(release: os.PathLike, statement) -> None:
  """Writes a `PrivacyStatement` as JSON, and the Markdown rendered from it."""
  path = os.path.join(release, 'privacy_statement')
  write_json(path + '.json', statement.to_json())
  write_atomically(path + '.md', statement.to_markdown())


class RunDirectory:
  """An output directory that this process has opened and locked.

  Attributes:
    root: The directory.
    release: Folder of the files that may leave the machine.
    secret: Folder of the files that must not leave it.
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
      output_dir: Directory that is absent, empty, or holds the same run.
      identity: Everything that the results depend on, as a nested mapping of
        plain JSON types.
      client_ids: Ids of the population. Only a salted hash of them is stored.

    Raises:
      OSError: If the disk is full.
      ArgumentError: If the directory cannot be written, is not this user's
        alone, holds something else, holds a damaged run or one with another
        identity or population, or is in use.
    """
    self.root = pathlib.Path(output_dir)
    self.release = self.root / 'release'
    self.secret = self.root / 'secret'
    self._locks: list[int] = []
    identity = json.loads(json.dumps(identity))
    try:
      self.root.parent.mkdir(parents=True, exist_ok=True)
      self._make(self.root, _RELEASE_MODE)
      self._check_foreign()
      self._make(self.release, _RELEASE_MODE)
      self._make(self.secret, _SECRET_MODE)
      self.secret.chmod(_SECRET_MODE)
      self._acquire()
      for folder in (self.secret, self.checkpoints):
        for path in folder.glob('*'):
          self._check_ours(path)
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
    """File for the traces of errors."""
    return self.secret / 'run.log'

  @property
  def checkpoints(self) -> pathlib.Path:
    """Folder for the checkpoints."""
    return self.secret / 'checkpoints'

  def close(self) -> None:
    """Gives up the lock. The files stay. May be called twice."""
    while self._locks:
      os.close(self._locks.pop())

  def __enter__(self) -> 'RunDirectory':
    return self

  def __exit__(self, *exception_info) -> None:
    self.close()

  @property
  def _manifest(self) -> pathlib.Path:
    return self.secret / 'run.json'

  def _refused(self, allowed: str) -> _checks.ArgumentError:
    return _checks.ArgumentError('output_dir', str(self.root), allowed)

  def _make(self, folder: pathlib.Path, mode: int) -> None:
    """Makes a directory, or takes the existing one if it is ours."""
    with contextlib.suppress(FileExistsError):
      folder.mkdir(mode)
    self._check_ours(folder)
    if not folder.is_dir():
      raise NotADirectoryError(
          errno.ENOTDIR, f'{folder.name!r} is not a directory'
      )

  def _check_ours(self, path: pathlib.Path) -> None:
    """Raises if the path is a link, or if others own it or may write to it."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
      problem = 'is a link'
    elif status.st_uid != os.geteuid():
      problem = f'belongs to the user with the number {status.st_uid}'
    elif status.st_mode & 0o022:
      problem = 'may be written to by others, until chmod go-w'
    else:
      return
    raise self._refused(
        'a new directory, or one that is the running user\'s alone;'
        f' {str(path)!r} {problem}'
    )

  def _check_foreign(self) -> None:
    """Raises if the directory holds files that no run of ours has written."""
    if self._manifest.exists():
      return
    found = {str(p.relative_to(self.root)) for p in self.root.rglob('*')}
    foreign = sorted(name for name in found if not _FIRST_FILES.fullmatch(name))
    if foreign:
      raise self._refused(
          'a new or empty directory, or the directory of a run; this one holds'
          f' other files, such as {foreign[0]!r}'
      )

  def _acquire(self) -> None:
    """Locks the run by locking a file and its directory.

    One lock is not enough. A file can be deleted while it is locked, and a new
    file of the same name has no lock. A directory with files in it cannot be
    deleted, but some file systems, such as NFS, lock only files. The kernel
    releases the locks when the process ends, however it ends.
    """
    file = self.secret / 'lock'
    self._lock(regular.open_file(
        file, os.O_RDWR | os.O_CREAT, follow_links=False
    ))
    self._lock(
        os.open(self.secret, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC),
        or_not=True,
    )
    held = [os.fstat(each) for each in self._locks]
    named = [each.lstat() for each in (file, self.secret)]
    if not all(map(os.path.samestat, held, named)):
      raise self._refused(
          'a directory that no other program changes; its lock file was'
          ' deleted or replaced: stop that program, and try again'
      )

  def _lock(self, descriptor: int, *, or_not: bool = False) -> None:
    """Takes a free lock. `or_not` tolerates a file system without such locks.
    """
    self._locks.append(descriptor)
    try:
      fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      raise self._refused(
          'a directory that no other process is using; a run is active there'
      ) from None
    except OSError:
      if not or_not:
        raise

  def _identify(self, identity: Mapping, client_ids: list[str]) -> None:
    """Stores the identity of the run, or compares it with the stored one."""
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
      stored = regular.read_json(self._manifest)
      is_known = (
          stored['schema'] == _SCHEMA
          and isinstance(stored['run_id'], str)
          and isinstance(stored['identity'], dict)
          and isinstance(stored['population'], str)
      )
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
          'a new directory: this one holds a run with another plan or'
          f' configuration ({"; ".join(changes)})'
      )

  def _remove_temporary(self) -> None:
    """Removes temporary files of a killed process."""
    for folder in (self.release, self.secret, self.checkpoints):
      for path in folder.glob('*'):
        if _TEMPORARY.match(path.name):
          if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
          else:
            path.unlink()


def list_changes(before: Mapping, after: Mapping) -> list[str]:
  """Returns a phrase for each changed key, as `plan.num_rounds 10 -> 20`."""
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
