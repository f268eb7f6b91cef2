# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of a run that are written as a whole: model, environment and others."""

import datetime
import functools
import io
import math
import os
import pathlib
import platform
import time

import numpy as np
import tensorflow_federated as tff
import tree

from tff_dp import _compat
from tff_dp.files import arrays
from tff_dp.files import run_directory


def write_model(path: os.PathLike, model_weights: object) -> None:
  """Writes model weights as an `.npz` file, equal bytes for equal weights.

  Args:
    path: The file.
    model_weights: Any structure of arrays. An entry is named by its path, for
      example `trainable/0`.
  """
  content = io.BytesIO()
  np.savez(content, **_by_path(model_weights))
  run_directory.write_atomically(path, content.getvalue())


def read_model(path: os.PathLike, *, like: object = None) -> object:
  """Returns the model weights that `write_model` wrote.

  Args:
    path: The file, or the directory of a run that has ended.
    like: A structure of arrays of the same shapes and types. The result has its
      structure. Default: a `tff.learning.models.ModelWeights` of flat lists.
      The entries of the file must then be named trainable/... or
      non_trainable/...

  Raises:
    OSError: If the file cannot be opened, or is not a regular file.
    ValueError: If the file does not hold the weights of a model in this form.
  """
  path = pathlib.Path(path)
  if path.is_dir():
    path = path / 'release' / 'model.npz'
  if like is None:
    return _as_model_weights(arrays.read(path))
  found = arrays.read(path, like=_by_path(like))
  return tree.map_structure_with_path(
      lambda path, _: found[_name(path)], like
  )


def _as_model_weights(found: dict[str, np.ndarray]) -> object:
  """Returns the weights in the order of the file, trainable ones apart."""
  weights: dict[str, list[np.ndarray]] = {'trainable': [], 'non_trainable': []}
  for name, value in found.items():
    kind, _, rest = name.partition('/')
    if kind not in weights or not rest:
      raise ValueError(
          f'the entry {name} is neither trainable/... nor non_trainable/...;'
          ' pass like='
      )
    weights[kind].append(value)
  return tff.learning.models.ModelWeights(**weights)


def _by_path(structure: object) -> dict[str, np.ndarray]:
  return {
      _name(path): np.asarray(value)
      for path, value in tree.flatten_with_path(structure)
  }


def _name(path: tuple) -> str:
  return '/'.join(map(str, path))


def num_params(model_weights: object) -> int:
  """Returns the number of trainable weights of a model."""
  trained = getattr(model_weights, 'trainable', model_weights)
  return sum(np.size(value) for value in tree.flatten(trained))


def frozen_weights(process: object, state: object) -> str | None:
  """Returns a phrase about the frozen weights, `None` if there are none.

  No update changes frozen weights. The phrase has their number, or the start of
  their digest if the graph holds them.

  Args:
    process: A `tff.learning.templates.LearningProcess`.
    state: State of the process.
  """
  digest = digest_of_frozen(process, state)
  if digest is not None:
    return f'weights (kept in the graph; digest {digest[:16]})'
  tensors = _frozen_types(process)
  if not tensors:
    return None
  return f'{sum(math.prod(tensor.shape) for tensor in tensors):,} weights'


def digest_of_frozen(process: object, state: object) -> str | None:
  """Returns the hexadecimal digest of frozen weights that the graph holds.

  A model of `learning.keras3` can have its frozen weights as constants of the
  graph. Its state then has their digest in their place. For all other models
  the result is `None`.

  Args:
    process: A `tff.learning.templates.LearningProcess`.
    state: State of the process.
  """
  if _frozen_types(process) != [tff.TensorType(np.uint8, [32])]:
    return None
  weights = process.get_model_weights(state)
  (digest,) = tree.flatten(weights.non_trainable)
  return np.asarray(digest).tobytes().hex()


def _frozen_types(process: object) -> list[tff.TensorType]:
  signature = getattr(process.get_model_weights, 'type_signature', None)
  frozen = getattr(getattr(signature, 'result', None), 'non_trainable', ())
  return tff.structure.flatten(frozen)


def averaged_weights(process: object, state: object) -> object | None:
  """Returns the average of the models, `None` if the process keeps none.

  The average is computed from models that were sent to clients, so the
  guarantee covers it too.

  Args:
    process: A `PrivateLearningProcess`, or a process without averages.
    state: State of the process.
  """
  if getattr(process, 'averaging', None) is None:
    return None
  return process.get_averaged_model_weights(state)


def write_environment(path: os.PathLike) -> None:
  """Writes versions, processors, devices and the date, but no host or path.

  The time of day is left out: two times would tell how long the rounds took.
  """
  run_directory.write_json(
      path,
      {
          'written_on': str(datetime.datetime.now(datetime.timezone.utc).date()),
          'python': platform.python_version(),
          'platform': platform.platform(),
          'tensorflow_federated': tff.__version__,
          'num_cores': len(os.sched_getaffinity(0)),
          'execution': _describe_context(),
          'packages': _packages(),
      },
  )


@functools.cache  # Every run asks.
def _packages() -> dict[str, str]:
  """Returns the versions of Python's packages, and what else TFF needs."""
  return {
      finding.name: finding.found for finding in _compat.check_environment()
  }


def level_times(folder: pathlib.Path) -> None:
  """Sets the modification time of a directory and all its content to now.

  The earlier times of the files tell how long the rounds between them took.

  Args:
    folder: Directory, for example `release/` of a run that has ended.
  """
  now = int(time.time())
  for path in [*folder.rglob('*'), folder]:
    os.utime(path, (now, now), follow_symlinks=False)


def _describe_context() -> dict[str, object]:
  """Returns the kind of the current TFF context, and its devices or workers."""
  context = tff.framework.get_context_stack().current
  found = {'context': type(context).__name__}
  # TFF's own contexts do not have these attributes.
  for name in ('client_devices', 'server_device', 'num_workers'):
    if hasattr(context, name):
      found[name] = getattr(context, name)
  return found


def current_cluster():
  """Returns the current context if clients run on a cluster, else `None`."""
  context = tff.framework.get_context_stack().current
  return context if hasattr(context, 'reporting_to') else None


def resident_megabytes() -> float:
  """Returns the resident memory of this process, in MB of 10**6 bytes."""
  with open('/proc/self/statm', encoding='ascii') as file:
    pages = int(file.read().split()[1])
  return pages * os.sysconf('SC_PAGE_SIZE') / 1e6
