# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks foreign SavedModels by reading them, without loading them.

A SavedModel has graphs, a checkpoint, and an object graph that lists functions
and variables. Loading it runs an initializer, and serving it runs the functions
that save and restore.
"""

import functools
import pathlib

import tensorflow as tf

from tensorflow.core.protobuf import fingerprint_pb2
from tensorflow.core.protobuf import saved_model_pb2
from tff_dp.export import operations
from tff_dp.files import regular

_MODEL, _FINGERPRINT = 'saved_model.pb', 'fingerprint.pb'
_CHECKPOINT = 'variables/variables'
# The only allowed files. Loaders would use some other files in place of these,
# or run their content.
FILES = frozenset([
    _MODEL, _FINGERPRINT, f'{_CHECKPOINT}.index',
    f'{_CHECKPOINT}.data-00000-of-00001',
])
_SAVERS = frozenset([
    'MergeV2Checkpoints', 'RestoreV2', 'SaveV2', 'ShardedFilename'
])
_PREFIX = 'file_prefix'
_FILE_NAME = ('saver_filename', 'Placeholder')
_INITIALIZER = 'saved_model_main_op'
_KINDS = frozenset([
    'bare_concrete_function', 'captured_tensor', 'constant', 'function',
    'resource', 'user_object', 'variable',
])
# A loader makes instances of all other classes, which are Python classes.
_CLASSES = frozenset([
    '_generic_user_object', 'signature_map', 'trackable_dict_wrapper',
    'trackable_list_wrapper', 'trackable_tuple_wrapper',
])
_MOST_BYTES = 2**31
_MOST_FINGERPRINT_BYTES = 2**16


def check(folder: pathlib.Path) -> None:
  """Raises unless loading and using a SavedModel would only compute.

  Raises:
    NotAllowedError: If it might do anything else, such as write a file, or if
      it lacks `saved_model.pb`. The message names the part of the model.
    DecodeError: If one of its files is not a protocol buffer.
    OSError: If one of its files cannot be read or is too large.
  """
  found = {
      path.relative_to(folder).as_posix()
      for path in folder.rglob('*')
      if not path.is_dir()
  }
  if not found <= FILES:
    odd = sorted(found - FILES)[0]
    raise operations.NotAllowedError(f'{odd} is not a file that tff_dp writes')
  if _MODEL not in found:
    raise operations.NotAllowedError(f'{_MODEL} is missing')
  if _FINGERPRINT in found:
    content = regular.read(
        folder / _FINGERPRINT, most_bytes=_MOST_FINGERPRINT_BYTES
    )
    fingerprint_pb2.FingerprintDef.FromString(content)
  check_proto(regular.read(folder / _MODEL, most_bytes=_MOST_BYTES))


def check_proto(content: bytes) -> None:
  """Raises as `check` does, for the bytes of a `saved_model.pb`."""
  model = saved_model_pb2.SavedModel.FromString(content)
  if len(model.meta_graphs) != 1:
    raise operations.NotAllowedError(
        f'it has {len(model.meta_graphs)} graphs, not one'
    )
  (graph,) = model.meta_graphs
  if graph.asset_file_def:
    raise operations.NotAllowedError('it has files as assets')
  for name, collection in graph.collection_def.items():
    if name != _INITIALIZER or collection.WhichOneof('kind') != 'node_list':
      raise operations.NotAllowedError(f'it has the collection {name}')
  _check_objects(graph.object_graph_def)
  operations.check_graph(graph.graph_def, exempt=_savers(graph))


def _check_objects(object_graph) -> None:
  for each in object_graph.nodes:
    kind = each.WhichOneof('kind')
    if kind is not None and kind not in _KINDS:
      raise operations.NotAllowedError(f'it has an object of the kind {kind}')
    if each.registered_name or each.registered_saver:
      raise operations.NotAllowedError(
          f'it has an object of the class {each.registered_name}'
      )
    if kind == 'user_object' and each.user_object.identifier not in _CLASSES:
      raise operations.NotAllowedError(
          f'it has an object of the class {each.user_object.identifier}'
      )


def _savers(graph) -> frozenset[tuple[str, str]]:
  """Returns the nodes that save or restore a file that the caller names.

  The graph names two nodes as its saver. Only these two call the functions of
  the returned nodes, with a placeholder as the name of the file.
  """
  functions = {
      function.signature.name: function
      for function in graph.graph_def.library.function
      if any(node.op in _SAVERS for node in function.node_def)
  }
  nodes = {node.name: node for node in graph.graph_def.node}
  if not functions:
    return frozenset()
  named = {
      graph.saver_def.save_tensor_name.partition(':')[0],
      graph.saver_def.restore_op_name.partition(':')[0],
  }
  name, kind = _FILE_NAME
  if nodes.get(name) is None or nodes[name].op != kind:
    raise operations.NotAllowedError(
        'the name of the file that it saves is no placeholder'
    )
  for scope, node in operations.all_nodes(graph.graph_def):
    if not set(operations.named_functions(node)) & set(functions):
      continue
    is_saver = scope == '' and node.name in named
    if not is_saver or list(node.input)[:1] != [name]:
      raise operations.NotAllowedError(
          f'{node.name} saves or restores a file whose name does not come from'
          ' its caller'
      )
  if set(functions) & set(graph.object_graph_def.concrete_functions):
    raise operations.NotAllowedError(
        'a function that callers can call writes or reads a file'
    )
  expressions = operations.Expressions(graph.graph_def)
  found = set()
  for scope, function in functions.items():
    arguments = [each.name for each in function.signature.input_arg]
    if arguments[:1] != [_PREFIX]:
      raise operations.NotAllowedError(
          f'the function {scope} saves or restores a file, but its first'
          " argument is not the file's name"
      )
    for node in function.node_def:
      if node.op in _SAVERS:
        _check_file_names(expressions, scope, node)
        found.add((scope, node.name))
  return frozenset(found)


def _check_file_names(expressions, scope: str, node) -> None:
  """Raises unless file names come from the argument, as in our own models."""
  # An unused name does no harm.
  expected = _file_names().get(node.op, [])
  inputs = list(node.input)[: len(expected)]
  if [expressions.of(scope, tensor) for tensor in inputs] != expected:
    raise operations.NotAllowedError(
        f'{scope}/{node.name} uses another file than its caller names'
    )


@functools.cache
def _file_names() -> dict[str, list[str]]:
  """Returns the digests of the file names of a saver's operations."""

  @tf.function(
      autograph=False,
      input_signature=[tf.TensorSpec([], tf.string, name=_PREFIX)],
  )
  def names(file_prefix):
    raw = tf.raw_ops
    is_remote = raw.StaticRegexFullMatch(input=file_prefix, pattern='^s3://.*')
    part = raw.Select(condition=is_remote, x='.part', y='_temp/part')
    name = raw.StringJoin(inputs=[file_prefix, part])
    name = raw.ShardedFilename(basename=name, shard=0, num_shards=1)
    return name, raw.Pack(values=[name])

  graph = names.get_concrete_function().graph
  prefix = operations.argument(_PREFIX)
  expressions = operations.Expressions(graph.as_graph_def())
  shard, packed = [
      expressions.of('', output.name, {_PREFIX: prefix})
      for output in graph.outputs
  ]
  return {
      'MergeV2Checkpoints': [packed, prefix],
      'RestoreV2': [prefix],
      'SaveV2': [shard],
  }
