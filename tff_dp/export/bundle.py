# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The directory of a bundle: its files, and the manifest that lists them.

    manifest.json              digests, versions, what is absent and why
    privacy_statement.{json,md}, events.json, plan.json
    MODEL_CARD.md, model.npz
    saved_model/               the weights, and a prediction if there is a model
    functional_model/          the model, as TFF reads it
    initialize.pb, next.pb     the process
    map_reduce/*.pb, distribute_aggregate/*.pb     TFF's forms of `next`
    task_config.pbtxt          for On-Device Personalization

The files of the first three lines are in every bundle.
"""

from collections.abc import Mapping
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import shutil
from typing import Any

from tff_dp import _checks
from tff_dp import _version
from tff_dp.files import regular
from tff_dp.files import run_directory

SCHEMA, SCHEMA_VERSION = 'tff_dp.bundle', 1
MANIFEST = 'manifest.json'
STATEMENT = 'privacy_statement.json'
STATEMENT_PAGE = 'privacy_statement.md'
EVENTS, PLAN = 'events.json', 'plan.json'
CARD, WEIGHTS = 'MODEL_CARD.md', 'model.npz'
INITIALIZE, NEXT = 'initialize.pb', 'next.pb'
SAVED_MODEL, FUNCTIONAL_MODEL = 'saved_model', 'functional_model'
MAP_REDUCE, DISTRIBUTE_AGGREGATE = 'map_reduce', 'distribute_aggregate'
TASK_CONFIG = 'task_config.pbtxt'
OF_PROCESS = (INITIALIZE, NEXT, MAP_REDUCE, DISTRIBUTE_AGGREGATE)
# Parts that may be absent. The manifest says so if they are.
PARTS = (
    STATEMENT, STATEMENT_PAGE, EVENTS, PLAN, CARD, WEIGHTS, SAVED_MODEL,
    *OF_PROCESS, FUNCTIONAL_MODEL, TASK_CONFIG,
)
ALWAYS = (STATEMENT, STATEMENT_PAGE, EVENTS, PLAN, CARD, WEIGHTS)
# Why a part is absent. `computations.NO_FORM` has further reasons.
NO_PROCESS = 'the run has kept none, and none was given'
NOT_ALLOWED = 'the process has an operation that --verify refuses'
NO_MODEL = 'no functional model was given'
NO_POPULATION = 'no population was named'
_VERSIONS = ('tensorflow', 'tensorflow-federated', 'numpy', 'dp-accounting')
_FIELDS = frozenset([
    'schema', 'schema_version', 'versions', 'plan_fingerprint', 'rounds',
    'absent', 'files',
])
# Keys of the manifest whose tables have only texts as values.
_TABLES = ('versions', 'absent', 'files')
_CHUNK = 2**20
# Largest sizes: of a protocol buffer, and of about ten billion weights.
_MOST_PROTO_BYTES, _MOST_WEIGHTS_BYTES = 2**31, 2**36
# A bundle has about forty files.
_MOST_FILES = 1000


def versions() -> dict[str, str]:
  """Returns the versions of the software that writes a bundle."""
  found = {'tff_dp': _version.__version__, 'python': platform.python_version()}
  for name in _VERSIONS:
    try:
      found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      pass
  return found


def write_manifest(root: pathlib.Path, facts: Mapping[str, Any]) -> None:
  """Writes the manifest of all files. Call this after all others are written.

  Args:
    root: Directory of the bundle.
    facts: `plan_fingerprint`, `rounds`, and `absent`, a mapping from absent
      parts to reasons.
  """
  run_directory.write_json(
      root / MANIFEST,
      {
          'schema': SCHEMA,
          'schema_version': SCHEMA_VERSION,
          'versions': versions(),
          **facts,
          'files': {name: digest(root / name) for name in _list(root)},
      },
  )


def read_manifest(root: str | os.PathLike) -> dict[str, Any]:
  """Returns the manifest of a bundle.

  Raises:
    ArgumentError: If the directory has no manifest that this version knows.
  """
  try:
    content = read_json(pathlib.Path(root) / MANIFEST)
    is_known = (
        content['schema'] == SCHEMA
        and content['schema_version'] == SCHEMA_VERSION
        and set(content) == _FIELDS
        and all(map(_is_of_texts, map(content.get, _TABLES)))
        and isinstance(content['plan_fingerprint'], str)
        and type(content['rounds']) is int  # A bool is not allowed.
    )
  except (OSError, ValueError, LookupError, TypeError) as error:
    raise _not_a_bundle(root, f'{type(error).__name__}: {error}') from error
  if not is_known:
    raise _not_a_bundle(root, 'the manifest is not one of this version')
  return content


def read_json(path: pathlib.Path) -> Any:
  """Returns the JSON value in a file that `run_directory.write_json` wrote.

  Any other text with the same value is refused. For example, a text may have a
  name twice, and another reader could take the other value.

  Raises:
    OSError: See `regular.read`.
    ValueError: If `write_json` cannot have written the file.
  """
  text = read_text(path)
  content = regular.parse_json(text.encode())
  if text != run_directory.json_text(content):
    raise ValueError(f'{path.name} is not as tff-dp writes it')
  return content


def read_text(path: pathlib.Path) -> str:
  """Returns the text in a file of at most 64 MiB."""
  return regular.read(path, most_bytes=regular.MOST_JSON_BYTES).decode()


def _is_of_texts(table: Any) -> bool:
  return isinstance(table, dict) and all(
      isinstance(value, str) for value in table.values()
  )


def changes(root: pathlib.Path, manifest: Mapping[str, Any]) -> list[str]:
  """Returns a phrase for each file that differs from the manifest.

  Raises:
    ValueError: If the bundle has anything but files and folders, or too many.
  """
  found = []
  listed, present = manifest['files'], _list(root)
  for name in sorted({*listed, *present}):
    if name not in present:
      found.append(f'{name} is missing')
    elif name not in listed:
      found.append(f'{name} is not in the manifest')
    elif (root / name).stat().st_size > most_bytes(name):
      found.append(f'{name} is larger than any of its kind')
    elif digest(root / name) != listed[name]:
      found.append(f'{name} has changed')
  return found


def has(manifest: Mapping[str, Any], part: str) -> bool:
  """Returns whether a manifest lists a part, which may be a file or a folder.
  """
  return any(_is_in(name, part) for name in manifest['files'])


def _is_in(name: str, part: str) -> bool:
  return name == part or name.startswith(part + '/')


def most_bytes(name: str) -> int:
  """Returns the largest size of a file with this name, in bytes."""
  if name.endswith('.pb'):
    return _MOST_PROTO_BYTES
  if name.endswith(('.json', '.md', '.pbtxt')):
    return regular.MOST_JSON_BYTES
  return _MOST_WEIGHTS_BYTES


def digest(path: pathlib.Path) -> str:
  """Returns the sha256 of a file."""
  found = hashlib.sha256()
  with open(regular.open_file(path, follow_links=False), 'rb') as file:
    while chunk := file.read(_CHUNK):
      found.update(chunk)
  return found.hexdigest()


def _list(root: pathlib.Path) -> list[str]:
  """Returns the names of all files but the manifest.

  Raises:
    ValueError: If there is anything but files and folders, or more than about
      1,000 of them.
  """
  found, folders = [], [root]
  while folders:
    for entry in os.scandir(folders.pop()):
      name = pathlib.Path(entry.path).relative_to(root).as_posix()
      if entry.is_dir(follow_symlinks=False):
        folders.append(entry.path)
      elif entry.is_file(follow_symlinks=False):
        found.append(name)
      else:
        raise ValueError(f'{name} is a link, a pipe or a device, and no file')
      if len(found) + len(folders) > _MOST_FILES:
        raise ValueError(f'there are more than {_MOST_FILES} files')
  return sorted(set(found) - {MANIFEST})


def copy(root: str | os.PathLike, target: pathlib.Path) -> None:
  """Copies a bundle into a new directory, which only its owner can read.

  Raises:
    ArgumentError: If the bundle cannot be listed, has anything but regular
      files and folders, or has too many of them.
    OSError: If a file cannot be copied, or the target exists.
  """
  root = pathlib.Path(root)
  try:
    names = [MANIFEST, *_list(root)]
  except (OSError, ValueError) as error:
    raise _not_a_bundle(root, str(error)) from error
  target.mkdir(mode=0o700)
  for name in names:
    (target / name).parent.mkdir(parents=True, exist_ok=True)
    copy_file(root / name, target / name)


def copy_file(source: pathlib.Path, target: pathlib.Path) -> None:
  """Copies a regular file.

  Raises:
    OSError: If the source is a link or not regular, or cannot be copied.
  """
  opened = regular.open_file(source, follow_links=False)
  with open(opened, 'rb') as file, open(target, 'wb') as written:
    shutil.copyfileobj(file, written)


def _not_a_bundle(root, why: str) -> _checks.ArgumentError:
  return _checks.ArgumentError(
      'verify',
      os.fspath(root),
      f'a directory that tff-dp export wrote, with its {MANIFEST} ({why})',
  )
