# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Bundles as a stranger would forge them, digests repaired.

The kept bundles of `tests.export` are taken apart; nothing here trains.
"""

from collections.abc import Callable
import functools
import json
import pathlib
import tarfile
import tempfile
from typing import Any
from unittest import mock

import tensorflow as tf
import tensorflow_federated as tff

from tensorflow.core.protobuf import saved_model_pb2
from tests.export import small_bundle
from tff_dp.export import bundle
from tff_dp.export import isolation
from tff_dp.program.files import process_files

SAVED_MODEL_FILE = 'saved_model.pb'


@functools.cache
def _archive_folder() -> tempfile.TemporaryDirectory:
  folder = tempfile.TemporaryDirectory()
  with tarfile.open(small_bundle.archive(tf.__version__)) as packed:
    packed.extractall(folder.name, filter='data')
  return folder


def kept(name: str = 'dp_ftrl') -> pathlib.Path:
  """Returns a bundle of this stack, which is not to be changed."""
  return pathlib.Path(_archive_folder().name) / name


def in_this_process():
  """Returns a context in which `tff-dp export --verify` starts no child."""
  return mock.patch.object(
      isolation,
      '_call',
      # pylint: disable-next=protected-access
      lambda mode, root, **_: isolation._outcome(mode, root, 0),
  )


def repair(root: pathlib.Path) -> None:
  """Makes the digests in the manifest those of the files."""
  manifest = json.loads((root / bundle.MANIFEST).read_text())
  facts = {
      name: manifest[name] for name in ('plan_fingerprint', 'rounds', 'absent')
  }
  bundle.write_manifest(root, facts)


def change_json(path: pathlib.Path, **changes) -> None:
  """Changes fields of a JSON file."""
  path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def node(name: str, op: str, *inputs: str, **attributes) -> Any:
  """Returns a NodeDef; attributes are protos, types, strings or tensors."""
  made = tf.compat.v1.NodeDef(name=name, op=op, input=inputs)
  for key, value in attributes.items():
    place = made.attr[key]
    if isinstance(value, tf.DType):
      place.type = value.as_datatype_enum
    elif isinstance(value, bytes):
      place.s = value
    elif isinstance(value, bool):
      place.b = value
    elif isinstance(value, int):
      place.i = value
    elif isinstance(value, str):
      place.func.name = value
    elif isinstance(value, list):
      place.list.SetInParent()
      for each in value:
        if isinstance(each, tf.DType):
          place.list.type.append(each.as_datatype_enum)
        else:
          place.list.shape.add()
    else:
      place.tensor.CopyFrom(tf.make_tensor_proto(value.numpy()))
  return made


def const(name: str, value: Any) -> Any:
  """Returns the NodeDef of a constant."""
  value = tf.constant(value)
  return node(name, 'Const', dtype=value.dtype, value=value)


def thief(source: pathlib.Path, target: pathlib.Path) -> list[Any]:
  """Returns nodes that copy a file to another place; the last one is `evil`."""
  return [
      const('evil_from', str(source)),
      const('evil_to', str(target)),
      node('evil_read', 'ReadFile', 'evil_from'),
      node('evil', 'WriteFile', 'evil_to', 'evil_read'),
  ]


def packed_graphs(message: Any) -> list[Any]:
  """Returns the packed graphs in the proto of a TFF computation."""
  return [
      each
      for each in process_files.parts(message)
      if each.DESCRIPTOR.full_name == process_files.ANY
  ]


def change_graphs(
    path: pathlib.Path, change: Callable[[Any], bool | None]
) -> int:
  """Changes the TensorFlow graphs in a file; returns how many were.

  Args:
    path: A serialized computation, or a `saved_model.pb`.
    change: Gets a GraphDef; returns `False` to leave it as it was.
  """
  content, changed = path.read_bytes(), 0
  if path.name == SAVED_MODEL_FILE:
    model = saved_model_pb2.SavedModel.FromString(content)
    for meta_graph in model.meta_graphs:
      changed += change(meta_graph.graph_def) is not False
    path.write_bytes(model.SerializeToString(deterministic=True))
    return changed
  proto = proto_of(path)
  for packed in packed_graphs(proto):
    graph_def = tf.compat.v1.GraphDef()
    packed.Unpack(graph_def)
    if change(graph_def) is not False:
      packed.Pack(graph_def)
      changed += 1
  path.write_bytes(proto.SerializeToString(deterministic=True))
  return changed


def proto_of(path: pathlib.Path) -> Any:
  """Returns the proto of a serialized computation."""
  kind = type(tff.framework.serialize_computation(_nothing()))
  return kind.FromString(path.read_bytes())


@functools.cache
def _nothing() -> tff.Computation:
  return tff.tensorflow.computation(lambda: tf.constant(0))


def hook(path: pathlib.Path, nodes: list[Any]) -> None:
  """Lets every graph of a file run nodes before it ends."""

  def change(graph_def):
    sources = {tensor for each in graph_def.node for tensor in each.input}
    last = [
        each for each in graph_def.node
        if each.name not in sources and each.op != 'Placeholder'
    ]
    for each in last or list(graph_def.node)[-1:]:
      each.input.append(f'^{nodes[-1].name}')
    graph_def.node.extend(nodes)

  assert change_graphs(path, change)


def computations(root: pathlib.Path) -> list[pathlib.Path]:
  """Returns the files with serialized computations of a bundle."""
  return [
      *(root / name for name in (bundle.INITIALIZE, bundle.NEXT)),
      *sorted((root / bundle.MAP_REDUCE).glob('*.pb')),
      *sorted((root / bundle.DISTRIBUTE_AGGREGATE).glob('*.pb')),
  ]


def keep_process(root: pathlib.Path, run: pathlib.Path) -> None:
  """Puts the process of a bundle into a directory of a run, with the rest."""
  release = run / 'release'
  (release / process_files.FOLDER).mkdir(parents=True)
  for name in (
      bundle.STATEMENT, bundle.STATEMENT_PAGE, bundle.EVENTS, bundle.WEIGHTS
  ):
    (release / name).write_bytes((root / name).read_bytes())
  for name in (process_files.INITIALIZE, process_files.NEXT):
    (release / process_files.FOLDER / name).write_bytes(
        (root / name).read_bytes()
    )
