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

The first two lines and the weights are in every bundle.
"""

from collections.abc import Mapping
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
from typing import Any

from tff_dp import _checks
from tff_dp import _version
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
# What may be absent is said to be.
PARTS = (
    STATEMENT, STATEMENT_PAGE, EVENTS, PLAN, CARD, WEIGHTS, SAVED_MODEL,
    *OF_PROCESS, FUNCTIONAL_MODEL, TASK_CONFIG,
)
_VERSIONS = ('tensorflow', 'tensorflow-federated', 'numpy', 'dp-accounting')
_FIELDS = frozenset([
    'schema', 'schema_version', 'versions', 'plan_fingerprint', 'rounds',
    'absent', 'files',
])
_CHUNK = 2**20


def versions() -> dict[str, str]:
  """Returns the versions that a bundle is written with."""
  found = {'tff_dp': _version.__version__, 'python': platform.python_version()}
  for name in _VERSIONS:
    try:
      found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      pass
  return found


def write_manifest(root: pathlib.Path, facts: Mapping[str, Any]) -> None:
  """Writes the manifest of all files that are there, as the last one.

  Args:
    root: The bundle.
    facts: `plan_fingerprint`, `rounds`, and what is `absent`, with the reason.
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
    ArgumentError: If the directory has none that this version knows.
  """
  path = pathlib.Path(root) / MANIFEST
  try:
    content = json.loads(path.read_text(encoding='utf-8'))
    is_known = (
        content['schema'] == SCHEMA
        and content['schema_version'] == SCHEMA_VERSION
        and set(content) == _FIELDS
        and isinstance(content['files'], dict)
        and isinstance(content['absent'], dict)
        and isinstance(content['versions'], dict)
    )
  except (OSError, ValueError, LookupError, TypeError) as error:
    raise _not_a_bundle(root, f'{type(error).__name__}: {error}') from error
  if not is_known:
    raise _not_a_bundle(root, 'other fields, or another schema or version')
  return content


def changes(root: pathlib.Path, manifest: Mapping[str, Any]) -> list[str]:
  """Returns how the files differ from the manifest, a phrase for each."""
  found = []
  listed, present = manifest['files'], _list(root)
  for name in sorted({*listed, *present}):
    if name not in present:
      found.append(f'{name} is missing')
    elif name not in listed:
      found.append(f'{name} is not in the manifest')
    elif digest(root / name) != listed[name]:
      found.append(f'{name} has changed')
  return found


def has(manifest: Mapping[str, Any], part: str) -> bool:
  """Returns whether a manifest lists a part, a file or a folder."""
  return any(_is_in(name, part) for name in manifest['files'])


def is_of_bundle(name: str) -> bool:
  """Returns whether a file is of a part that a bundle has."""
  return any(_is_in(name, part) for part in PARTS)


def _is_in(name: str, part: str) -> bool:
  return name == part or name.startswith(part + '/')


def digest(path: pathlib.Path) -> str:
  """Returns the sha256 of a file."""
  found = hashlib.sha256()
  with open(path, 'rb') as file:
    while chunk := file.read(_CHUNK):
      found.update(chunk)
  return found.hexdigest()


def _list(root: pathlib.Path) -> list[str]:
  """Returns the names of all files but the manifest."""
  names = [
      path.relative_to(root).as_posix()
      for path in root.rglob('*')
      if path.is_symlink() or not path.is_dir()
  ]
  return sorted(set(names) - {MANIFEST})


def _not_a_bundle(root, why: str) -> _checks.ArgumentError:
  return _checks.ArgumentError(
      'verify',
      os.fspath(root),
      f'a directory that tff-dp export wrote, with its {MANIFEST} ({why})',
  )
