# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What of a bundle reads bytes; see `fuzz_targets_files`.

A target puts the bytes in the place of a file, repairs the digests, and checks
the bundle as `--verify` does.
"""

import functools
import json
import pathlib
import shutil
import tempfile

from tests.attacks import bundles
from tests.attacks import fuzz_targets_files as files
from tff_dp import _checks
from tff_dp.export import bundle
from tff_dp.export import operations
from tff_dp.export import saved_models
from tff_dp.export import verification
from tff_dp.program.files import process_files

_SYSTEMS = ('dp_ftrl', 'cyclic', 'silos', 'draw_and_discard')
_VARIABLES = 'saved_model/variables/variables'


@functools.cache
def _root() -> pathlib.Path:
  folder = pathlib.Path(tempfile.mkdtemp(prefix='tff_dp_fuzz_'))
  shutil.copytree(bundles.kept(), folder / 'bundle')
  return folder / 'bundle'


def _verified(name: str, data: bytes) -> None:
  """Checks a bundle with other bytes in a file."""
  root = _root()
  path = root / name
  before, manifest = path.read_bytes(), (root / bundle.MANIFEST).read_bytes()
  try:
    path.write_bytes(data)
    if name != bundle.MANIFEST:
      bundles.repair(root)
    try:
      findings = verification.verify_bundle(root)
    except _checks.ArgumentError as error:
      if '\n' in str(error):
        raise AssertionError(f'more than a line: {error}') from error
      return
    if not all(each.detail.isprintable() for each in findings):
      raise AssertionError(f'no line: {findings}')
  finally:
    path.write_bytes(before)
    (root / bundle.MANIFEST).write_bytes(manifest)


def _target(name: str) -> files.Target:
  return files.Target(
      functools.partial(_verified, name),
      lambda: [(bundles.kept() / name).read_bytes()],
  )


def _graph(data: bytes) -> None:
  """The graphs of a process, without all that comes before and after."""
  path = _root() / 'graph'
  path.write_bytes(data)
  try:
    operations.check_computation(process_files.read_proto(path))
  except (operations.NotAllowedError, *_undecodable()):
    pass
  finally:
    path.unlink()


def _saved_model(data: bytes) -> None:
  try:
    saved_models.check_proto(data)
  except (operations.NotAllowedError, *_undecodable()):
    pass


def _undecodable() -> tuple[type[Exception], ...]:
  from google.protobuf import message  # pylint: disable=g-import-not-at-top

  return (message.DecodeError,)


def _of_each(name: str) -> list[bytes]:
  return [(bundles.kept(system) / name).read_bytes() for system in _SYSTEMS]


def _seeds_of_manifest() -> list[bytes]:
  return [
      _root().joinpath(bundle.MANIFEST).read_bytes(),
      (json.dumps({'files': {}, 'absent': {}}) + '\n').encode(),
  ]


TARGETS = {
    'manifest': files.Target(
        functools.partial(_verified, bundle.MANIFEST), _seeds_of_manifest
    ),
    'bundle_events': _target(bundle.EVENTS),
    'bundle_statement': _target(bundle.STATEMENT),
    'bundle_weights': _target(bundle.WEIGHTS),
    'bundle_initialize': _target(bundle.INITIALIZE),
    'bundle_next': _target(bundle.NEXT),
    'bundle_form': _target('map_reduce/work.pb'),
    'bundle_saved_model': _target('saved_model/saved_model.pb'),
    'bundle_variables': _target(f'{_VARIABLES}.index'),
    'bundle_values': _target(f'{_VARIABLES}.data-00000-of-00001'),
    'bundle_task_config': _target(bundle.TASK_CONFIG),
    'graph': files.Target(
        _graph, lambda: _of_each(bundle.INITIALIZE) + _of_each(bundle.NEXT)
    ),
    'saved_model': files.Target(
        _saved_model,
        lambda: _of_each('saved_model/saved_model.pb')
        + [(bundles.kept() / 'functional_model/saved_model.pb').read_bytes()],
    ),
}
