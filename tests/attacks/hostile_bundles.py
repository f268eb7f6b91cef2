# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Bundles that somebody has made to do harm, or to break what reads them.

`ALL` has a function for each, by name, that changes a bundle. Digests are
repaired afterwards, so that the change itself is what has to be found.
"""

from collections.abc import Callable
import functools
import io
import json
import os
import pathlib
import socket
import zipfile

import numpy as np
import tensorflow as tf

from tensorflow.core.protobuf import saved_model_pb2
from tests.attacks import bundles
from tff_dp.export import bundle
from tff_dp.program.files import process_files

Change = Callable[[pathlib.Path], None]
ALL: dict[str, Change] = {}
# Those that change what is in the manifest, which is not repaired then.
OF_MANIFEST: set[str] = set()
ESCAPE = '\x1b]0;owned\x07\x1b[2J\u202e\nok  files'
# By what they do to a machine.
OPERATIONS = (
    'Abort', 'CSVDataset', 'CacheDataset', 'CollectiveBcastSend', 'Copy',
    'CreateSummaryFileWriter', 'DataServiceDatasetV4', 'DatasetFromGraph',
    'DatasetToTFRecord', 'DebugIdentityV2', 'DecodeProtoV2', 'EagerPyFunc',
    'EncodeProto', 'FixedLengthRecordDatasetV2', 'FixedUnigramCandidateSampler',
    'GenerateVocabRemapping', 'GeneratorDataset', 'ImmutableConst',
    'InitializeTableFromTextFileV2', 'LMDBDataset', 'LoadAndRemapMatrix',
    'LoadDataset', 'MatchingFiles', 'MergeV2Checkpoints', 'MyOwnOperation',
    'OneShotIterator', 'Print', 'PrintV2', 'PyFunc', 'PyFuncStateless',
    'ReadFile', 'Recv', 'RegisterDatasetV2', 'RemoteCall', 'Restore',
    'RestoreV2', 'SaveDatasetV2', 'SaveV2', 'Send', 'SnapshotDatasetV2',
    'SqlDataset', 'SymbolicGradient', 'TFRecordDataset', 'TFRecordDatasetV2',
    'TextLineDataset', 'TextLineReaderV2', 'WholeFileReaderV2', 'WriteFile',
    'WriteSummary', 'XlaCallModule', '_Send', 'Tf>Custom',
)


def _named(name: str):
  def register(change: Change) -> Change:
    assert name not in ALL, name
    ALL[name] = change
    return change

  return register


def _each(prefix: str, variants, change) -> None:
  for name, variant in variants.items():
    ALL[f'{prefix}: {name}'] = functools.partial(change, variant=variant)


# Bytes in the place of a file.

_DEEP = b'[' * 100_000
_BYTES = {
    'empty': b'',
    'zeros': bytes(1000),
    'noise': np.random.default_rng(0).bytes(4000),
    'deep lists': _DEEP + b']' * 100_000,
    'an open list': _DEEP,
    'a number': b'7',
    'utf-16': '{}'.encode('utf-16'),
    'an escape': json.dumps(ESCAPE).encode(),
}
for _file in (
    bundle.STATEMENT, bundle.EVENTS, bundle.PLAN, bundle.CARD, bundle.WEIGHTS,
    bundle.INITIALIZE, bundle.NEXT, bundle.STATEMENT_PAGE, bundle.TASK_CONFIG,
    'map_reduce/work.pb', 'saved_model/saved_model.pb',
    'saved_model/variables/variables.index',
    'saved_model/variables/variables.data-00000-of-00001',
    'functional_model/fingerprint.pb',
):
  for _name, _content in _BYTES.items():
    # A fingerprint may be of no bytes, or of fields that nobody knows.
    if _file.endswith('fingerprint.pb') and _name != 'noise':
      continue
    ALL[f'{_file}: {_name}'] = functools.partial(
        lambda root, file, content: (root / file).write_bytes(content),
        file=_file, content=_content,
    )


# The manifest.

def _change_manifest(root: pathlib.Path, variant) -> None:
  path = root / bundle.MANIFEST
  content = json.loads(path.read_text())
  changed = variant(content)
  if not isinstance(changed, bytes):
    changed = (json.dumps(changed, indent=2) + '\n').encode()
  path.write_bytes(changed)


_MANIFESTS = {
    'a list': lambda m: [m],
    'no field': lambda m: {},
    'a field more': lambda m: m | {'more': 1},
    'another schema': lambda m: m | {'schema': ESCAPE},
    'another version': lambda m: m | {'schema_version': 2},
    'files of a list': lambda m: m | {'files': list(m['files'])},
    'digests of numbers': lambda m: m | {'files': dict.fromkeys(m['files'], 1)},
    'a path out': lambda m: m | {'files': m['files'] | {'../x': 'a' * 64}},
    'an absolute path': lambda m: m | {'files': m['files'] | {'/etc/passwd': ''}},
    'a name of escapes': lambda m: m | {'files': m['files'] | {ESCAPE: ''}},
    'half a character': lambda m: m | {'files': m['files'] | {'\ud800': ''}},
    'reasons of numbers': lambda m: m | {'absent': {bundle.NEXT: 1}},
    'a reason of escapes': lambda m: m | {'absent': {'x': ESCAPE}},
    'everything absent': lambda m: m | {
        'absent': dict.fromkeys(bundle.PARTS, ''), 'files': {}
    },
    'rounds of text': lambda m: m | {'rounds': ESCAPE},
    'rounds of a billion': lambda m: m | {'rounds': 10**9},
    'rounds of a bool': lambda m: m | {'rounds': True},
    'rounds of NaN': lambda m: m | {'rounds': float('nan')},
    'the next round': lambda m: m | {'rounds': m['rounds'] + 1},
    'another plan': lambda m: m | {'plan_fingerprint': ESCAPE},
    'a name twice': lambda m: json.dumps(m, indent=2).replace(
        '"rounds": 2', '"rounds": 1,\n  "rounds": 2'
    ).encode() + b'\n',
    'deep lists': lambda m: _BYTES['deep lists'],
    'noise': lambda m: _BYTES['noise'],
    'empty': lambda m: b'',
    'zeros': lambda m: bytes(10),
}
_each('manifest', _MANIFESTS, _change_manifest)
OF_MANIFEST.update(f'manifest: {_name}' for _name in _MANIFESTS)


# Events, and the statement made from them.

def _change_events(root: pathlib.Path, variant) -> None:
  path = root / bundle.EVENTS
  content = json.loads(path.read_text())
  variant(content)
  path.write_text(json.dumps(content, indent=2) + '\n')


def _set(*where):
  *path, value = where

  def change(content):
    for key in path[:-1]:
      content = content[key]
    content[path[-1]] = value

  return change


_each('events', {
    'a billion rounds': _set('plan', 'mechanism', 'num_rounds', 10**9),
    'a billion rounds done': _set('events', 0, 'rounds', 10**9),
    'rounds below zero': _set('events', 0, 'rounds', -1),
    'rounds of a bool': _set('events', 0, 'rounds', True),
    'rounds of text': _set('events', 0, 'rounds', ESCAPE),
    'noise below zero': _set('plan', 'noise_multiplier', -1.0),
    'noise of NaN': _set('plan', 'noise_multiplier', float('nan')),
    'noise without end': _set('plan', 'noise_multiplier', float('inf')),
    'noise of text': _set('plan', 'noise_multiplier', '4'),
    'no clip norm': _set('plan', 'l2_norm_clip', 0.0),
    'no clients': _set('plan', 'clients_per_round', 0),
    'clients beyond int64': _set('plan', 'clients_per_round', 2**80),
    'another mechanism': _set('plan', 'mechanism', 'name', ESCAPE),
    'a mechanism of a list': _set('plan', 'mechanism', []),
    'another participation': _set('plan', 'participation', 'name', '__class__'),
    'a gap of a billion': _set('plan', 'participation', 'min_index_gap', 10**9),
    'another kind': _set('plan', 'kind', ESCAPE),
    'no kind': _set('plan', 'kind', None),
    'a delta of two': _set('delta', 2.0),
    'a delta of NaN': _set('delta', float('nan')),
    'no events': _set('events', []),
    'events of a text': _set('events', ESCAPE),
    'another sensitivity': _set('events', 0, 'squared_sensitivity', 1e-9),
    'a field more': _set('plan', ESCAPE, 1),
    'warnings of escapes': _set('warnings', [ESCAPE]),
}, _change_events)


def _change_statement(root: pathlib.Path, variant) -> None:
  path = root / bundle.STATEMENT
  content = json.loads(path.read_text())
  variant(content)
  path.write_text(json.dumps(content, indent=2) + '\n')


_each('statement', {
    'a small epsilon': _set('epsilon', 0.1),
    'an epsilon of NaN': _set('epsilon', float('nan')),
    'an epsilon of text': _set('epsilon', ESCAPE),
    'another trust': _set('trust', ESCAPE),
    'no points': _set('points', None),
    'a delta of one': _set('delta', 1.0),
    'warnings of a number': _set('warnings', 3),
}, _change_statement)


# Weights.

def _npy(shape, descr="'<f4'", fortran=False) -> bytes:
  header = (
      f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}"
  )
  header = header.ljust(117) + '\n'
  return b'\x93NUMPY\x01\x00' + len(header).to_bytes(2, 'little') + header.encode()


def _change_weights(root: pathlib.Path, variant) -> None:
  content = io.BytesIO()
  with zipfile.ZipFile(content, 'w') as packed:
    for name, data, compression in variant:
      packed.writestr(name, data, compression)
  (root / bundle.WEIGHTS).write_bytes(content.getvalue())


_STORED, _PACKED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
_FEW = _npy('(1,)') + bytes(4)
_each('weights', {
    'none': [],
    'a bomb': [('trainable/0.npy', bytes(50_000_000), _PACKED)],
    'packed': [('trainable/0.npy', _FEW, _PACKED)],
    'a shape beyond memory': [('trainable/0.npy', _npy('(10**0, 1 << 50)'), 0)],
    'a large shape': [('trainable/0.npy', _npy(f'({2**50},)'), _STORED)],
    'a shape below zero': [('trainable/0.npy', _npy('(-1,)'), _STORED)],
    'a shape of text': [('trainable/0.npy', _npy("'x'"), _STORED)],
    'a pickle': [('trainable/0.npy', _npy('(1,)', "'|O'") + b'cos\nsystem\n', 0)],
    'another type': [('trainable/0.npy', _npy('(1,)', "'<f8'") + bytes(8), 0)],
    'records': [
        ('trainable/0.npy', _npy('(1,)', "[('x', '<f4')]") + bytes(4), 0)
    ],
    'code as header': [
        ('trainable/0.npy', _npy('(__import__("os").abort(),)'), _STORED)
    ],
    'a path out': [('../../x.npy', _FEW, _STORED)],
    'a name of escapes': [(f'{ESCAPE}.npy', _FEW, _STORED)],
    'a name twice': [('trainable/0.npy', _FEW, _STORED)] * 2,
    'no array': [('trainable/0.npy', b'', _STORED)],
    'another file': [('evil.sh', b'id', _STORED)],
}, _change_weights)


# The folder.

@_named('folder: a link out')
def _link_out(root):
  (root / bundle.CARD).unlink()
  (root / bundle.CARD).symlink_to('/etc/passwd')


@_named('folder: a link inside')
def _link_inside(root):
  (root / bundle.PLAN).rename(root.parent / 'plan')
  (root / bundle.PLAN).symlink_to(root.parent / 'plan')


@_named('folder: a link to zeros')
def _link_to_zeros(root):
  (root / bundle.WEIGHTS).unlink()
  (root / bundle.WEIGHTS).symlink_to('/dev/zero')


@_named('folder: a linked folder')
def _linked_folder(root):
  (root / bundle.SAVED_MODEL).rename(root.parent / 'model')
  (root / bundle.SAVED_MODEL).symlink_to(root.parent / 'model')


@_named('folder: a link to nothing')
def _link_to_nothing(root):
  (root / 'x').symlink_to(root / 'nothing')


@_named('folder: a link to itself')
def _link_to_itself(root):
  (root / 'x').symlink_to(root)


@_named('folder: a pipe')
def _pipe(root):
  (root / bundle.EVENTS).unlink()
  os.mkfifo(root / bundle.EVENTS)


@_named('folder: a pipe as manifest')
def _manifest_pipe(root):
  (root / bundle.MANIFEST).unlink()
  os.mkfifo(root / bundle.MANIFEST)


@_named('folder: zeros as manifest')
def _manifest_zeros(root):
  (root / bundle.MANIFEST).unlink()
  (root / bundle.MANIFEST).symlink_to('/dev/zero')


OF_MANIFEST.update({'folder: a pipe as manifest', 'folder: zeros as manifest'})


@_named('folder: a socket')
def _socket(root):
  here = os.getcwd()
  os.chdir(root)  # The path of a socket has to be short.
  try:
    with socket.socket(socket.AF_UNIX) as listening:
      listening.bind('x')
  finally:
    os.chdir(here)


@_named('folder: a folder as file')
def _folder_as_file(root):
  (root / bundle.EVENTS).unlink()
  (root / bundle.EVENTS).mkdir()


@_named('folder: far too many files')
def _many(root):
  for number in range(1001):
    (root / str(number)).touch()


@_named('folder: a file too large')
def _large(root):
  with open(root / bundle.EVENTS, 'wb') as file:
    file.truncate(2**34)


OF_MANIFEST.add('folder: a file too large')  # To repair it means to read it.


@_named('folder: a file of code')
def _code(root):
  (root / 'map_reduce' / 'sitecustomize.py').write_text('raise SystemExit')


@_named('folder: a name of escapes')
def _escapes(root):
  (root / ESCAPE.replace('/', '')).touch()


@_named('folder: a name of no text')
def _no_text(root):
  (root / os.fsdecode(b'\xff\x1b[2J')).touch()


@_named('folder: forms without process')
def _forms_alone(root):
  (root / bundle.INITIALIZE).unlink()
  (root / bundle.NEXT).unlink()


# Graphs.

def _add_operation(root: pathlib.Path, variant) -> None:
  bundles.change_graphs(
      root / bundle.NEXT,
      lambda graph_def: graph_def.node.extend([bundles.node('x', variant)]),
  )


_each('operation', {name: name for name in OPERATIONS}, _add_operation)


def _change_next(root: pathlib.Path, variant) -> None:
  assert bundles.change_graphs(root / bundle.NEXT, variant)


def _in_unused_function(graph_def):
  function = graph_def.library.function.add()
  function.signature.name = 'nobody_calls_it'
  function.node_def.extend([bundles.node('x', 'ReadFile')])


def _in_nested_attribute(graph_def):
  node = bundles.node('x', 'NoOp')
  inner = node.attr['a'].func
  inner.name = ''
  inner.attr['b'].func.name = 'ReadFile'
  graph_def.node.extend([node])


def _in_listed_attribute(graph_def):
  node = bundles.node('x', 'Case')
  node.attr['branches'].list.func.add(name='WriteFile')
  graph_def.node.extend([node])


def _named_as_operation(graph_def):
  function = graph_def.library.function.add()
  function.signature.name = 'MatMul'


def _twice(graph_def):
  for _ in range(2):
    graph_def.library.function.add().signature.name = 'x'


def _gradient(graph_def):
  graph_def.library.gradient.add(function_name='x', gradient_func='ReadFile')


def _variant(graph_def):
  node = bundles.const('x', 1)
  node.attr['value'].tensor.dtype = tf.variant.as_datatype_enum
  graph_def.node.extend([node])


def _resource(graph_def):
  node = bundles.const('x', 1)
  node.attr['value'].tensor.dtype = tf.resource.as_datatype_enum
  graph_def.node.extend([node])


def _elsewhere(graph_def):
  node = bundles.node('x', 'NoOp')
  node.device = '/job:evil/replica:0/task:0/device:CPU:0'
  graph_def.node.extend([node])


def _call(graph_def):
  graph_def.node.extend([bundles.node('x', 'PartitionedCall', f='ReadFile')])


def _large_constant(graph_def):
  node = bundles.const('x', 1)
  node.attr['value'].tensor.tensor_shape.dim.add(size=2**40)
  node.attr['value'].tensor.dtype = tf.int64.as_datatype_enum
  graph_def.node.extend([node])


_each('graph', {
    'in an unused function': _in_unused_function,
    'in an attribute of an attribute': _in_nested_attribute,
    'in a list of functions': _in_listed_attribute,
    'as a called function': _call,
    'a function named as an operation': _named_as_operation,
    'a function twice': _twice,
    'in a gradient': _gradient,
    'a constant of a variant': _variant,
    'a constant of a resource': _resource,
    'a constant beyond memory': _large_constant,
    'on another machine': _elsewhere,
}, _change_next)


# The file that keys are read from.

def _change_initialize(root: pathlib.Path, variant) -> None:
  changed = []

  def change(graph_def):
    if 'TextLineDataset' in str(graph_def):
      variant(graph_def)
      changed.append(True)

  bundles.change_graphs(root / bundle.INITIALIZE, change)
  assert changed


def _nodes(graph_def, op: str) -> list:
  return [
      node
      for nodes in (
          graph_def.node, *(f.node_def for f in graph_def.library.function)
      )
      for node in nodes
      if node.op == op
  ]


def _other_file(graph_def):
  for node in _nodes(graph_def, 'Const'):
    strings = node.attr['value'].tensor.string_val
    for index, text in enumerate(strings):
      if text.startswith(b'/proc'):
        strings[index] = b'/etc/passwd'


def _read_again(graph_def):
  """Lets another data set of files use the function that reads."""
  (reading,) = [
      f for f in graph_def.library.function
      if any(n.op == 'TextLineDataset' for n in f.node_def)
  ]
  (caller,) = [
      f for f in graph_def.library.function
      if any(n.op == 'FlatMapDataset' for n in f.node_def)
  ]
  caller.node_def.extend([
      bundles.const('evil', ['/etc/passwd']),
      bundles.node('evil_slices', 'TensorSliceDataset', 'evil:output:0'),
      bundles.node(
          'evil_lines', 'FlatMapDataset', 'evil_slices:handle:0',
          f=reading.signature.name,
      ),
  ])


def _call_reader(graph_def):
  (reading,) = [
      f for f in graph_def.library.function
      if any(n.op == 'TextLineDataset' for n in f.node_def)
  ]
  graph_def.node.extend([
      bundles.const('evil', '/etc/passwd'),
      bundles.node(
          'evil_call', 'PartitionedCall', 'evil', f=reading.signature.name
      ),
  ])


def _by_own_name(graph_def):
  (reading,) = [
      f for f in graph_def.library.function
      if any(n.op == 'TextLineDataset' for n in f.node_def)
  ]
  graph_def.node.extend([
      bundles.const('evil', '/etc/passwd'),
      bundles.node('evil_call', reading.signature.name, 'evil'),
  ])


def _swapped(graph_def):
  for function in graph_def.library.function:
    if any(node.op == 'TextLineDataset' for node in function.node_def):
      function.attr['api_implements'].s = b'x'


def _packed_lines(graph_def):
  for function in graph_def.library.function:
    for node in function.node_def:
      if node.name == 'compression_type':
        node.attr['value'].tensor.string_val[:] = [b'GZIP']


def _fewer_bits(graph_def):
  (shift,) = _nodes(graph_def, 'LeftShift')
  scopes = [graph_def.node, *(f.node_def for f in graph_def.library.function)]
  for nodes in scopes:
    for node in nodes:
      if node.op == 'Const' and shift.input[1].startswith(f'{node.name}:'):
        zeros = np.zeros([1, 16], np.int64)
        node.attr['value'].tensor.CopyFrom(tf.make_tensor_proto(zeros))


_each('key', {
    'of another file': _other_file,
    'a file read beside': _read_again,
    'the reader called': _call_reader,
    'the reader called by its name': _by_own_name,
    'the reader put in the place of another': _swapped,
    'of other lines': _packed_lines,
    'of ten bits': _fewer_bits,
}, _change_initialize)


# SavedModels.

def _change_saved_model(root: pathlib.Path, variant) -> None:
  path = root / bundle.SAVED_MODEL / bundles.SAVED_MODEL_FILE
  model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
  variant(model, model.meta_graphs[0])
  path.write_bytes(model.SerializeToString())


def _function_with(graph, op: str):
  return next(
      f for f in graph.graph_def.library.function
      if any(node.op == op for node in f.node_def)
  )


def _file_name_of_its_own(_, graph):
  function = _function_with(graph, 'SaveV2')
  function.node_def.extend([bundles.const('evil', '/home/user/.bashrc')])
  for node in function.node_def:
    if node.op == 'SaveV2':
      node.input[0] = 'evil:output:0'


def _merges_elsewhere(_, graph):
  function = _function_with(graph, 'MergeV2Checkpoints')
  function.node_def.extend([bundles.const('evil', '/home/user/.bashrc')])
  for node in function.node_def:
    if node.op == 'MergeV2Checkpoints':
      node.input[1] = 'evil:output:0'


def _another_suffix(_, graph):
  for node in _function_with(graph, 'SaveV2').node_def:
    if node.op == 'Const' and b'_temp/part' in node.attr['value'].tensor.string_val:
      node.attr['value'].tensor.string_val[:] = [b'/../../../home/user/.bashrc']


def _restores_elsewhere(_, graph):
  function = _function_with(graph, 'RestoreV2')
  function.node_def.extend([bundles.const('evil', '/etc/passwd')])
  for node in function.node_def:
    if node.op == 'RestoreV2':
      node.input[0] = 'evil:output:0'


def _saves_while_it_serves(_, graph):
  saving = _function_with(graph, 'SaveV2').signature.name
  for function in graph.graph_def.library.function:
    if 'signature_wrapper' in function.signature.name:
      function.node_def.extend([
          bundles.const('evil', '/home/user/.bashrc'),
          bundles.node(
              'evil_save', 'StatefulPartitionedCall', 'evil:output:0', f=saving
          ),
      ])


def _offers_to_save(_, graph):
  saving = _function_with(graph, 'SaveV2').signature.name
  graph.object_graph_def.concrete_functions[saving].SetInParent()


def _name_that_is_set(_, graph):
  for node in graph.graph_def.node:
    if node.name == 'saver_filename':
      node.CopyFrom(bundles.const('saver_filename', '/home/user/.bashrc'))


def _other_name(_, graph):
  graph.graph_def.node.extend([bundles.const('evil', '/home/user/.bashrc')])
  for node in graph.graph_def.node:
    if list(node.input)[:1] == ['saver_filename']:
      node.input[0] = 'evil'


def _asset(_, graph):
  graph.asset_file_def.add(filename='/etc/passwd')


def _collection(_, graph):
  graph.collection_def['saved_model_assets'].any_list.value.add()


def _bytes_as_initializer(_, graph):
  graph.collection_def['saved_model_main_op'].bytes_list.value.append(b'x')


def _class_of_python(_, graph):
  graph.object_graph_def.nodes[0].registered_name = 'Keras>Lambda'


def _keras(_, graph):
  graph.object_graph_def.nodes[0].user_object.identifier = '_tf_keras_layer'


def _asset_object(_, graph):
  graph.object_graph_def.nodes.add().asset.asset_file_def_index = 0


def _two_graphs(model, graph):
  model.meta_graphs.add().CopyFrom(graph)


def _no_graph(model, _):
  del model.meta_graphs[:]


def _reads_in_a_function(_, graph):
  graph.graph_def.library.function[0].node_def.extend(
      [bundles.node('x', 'ReadFile')]
  )


def _reads_in_the_graph(_, graph):
  graph.graph_def.node.extend([bundles.node('x', 'ReadFile')])


_each('SavedModel', {
    'a file name of its own': _file_name_of_its_own,
    'merges elsewhere': _merges_elsewhere,
    'another suffix': _another_suffix,
    'restores elsewhere': _restores_elsewhere,
    'saves while it serves': _saves_while_it_serves,
    'offers to save': _offers_to_save,
    'a name that is set': _name_that_is_set,
    'another name': _other_name,
    'an asset': _asset,
    'a collection': _collection,
    'bytes as initializer': _bytes_as_initializer,
    'a class of Python': _class_of_python,
    'a layer of Keras': _keras,
    'an asset as object': _asset_object,
    'two graphs': _two_graphs,
    'no graph': _no_graph,
    'reads in a function': _reads_in_a_function,
    'reads in the graph': _reads_in_the_graph,
}, _change_saved_model)


def _add_file(root: pathlib.Path, variant: str) -> None:
  path = root / bundle.SAVED_MODEL / variant
  path.parent.mkdir(exist_ok=True)
  path.write_bytes(b'x')


_each('SavedModel, a file', {
    name: name
    for name in (
        'assets/vocabulary.txt', 'assets.extra/tf_serving_warmup_requests',
        'saved_model.cpb', 'saved_model.pbtxt', 'keras_metadata.pb',
        'variables/variables.data-00001-of-00002',
    )
}, _add_file)


@_named('SavedModel: other weights')
def _other_weights(root):
  other = bundles.kept('fixed-window') / bundle.SAVED_MODEL / 'variables'
  for path in other.iterdir():
    target = root / bundle.SAVED_MODEL / 'variables' / path.name
    target.write_bytes(path.read_bytes())


# Messages of TFF.

def _change_proto(root: pathlib.Path, variant) -> None:
  proto = bundles.proto_of(root / bundle.NEXT)
  variant(proto)
  (root / bundle.NEXT).write_bytes(proto.SerializeToString())


def _another_message(proto):
  for packed in bundles.packed_graphs(proto):
    packed.type_url = 'type.googleapis.com/tensorflow.SavedModel'


def _data(proto):
  proto.data.content.type_url = 'file:///etc/passwd'


def _another_operator(proto):
  for part in process_files.parts(proto):
    if part.DESCRIPTOR.name == 'Intrinsic':
      part.uri = ESCAPE


def _no_computation(proto):
  proto.ClearField(proto.WhichOneof('computation'))


_each('TFF', {
    'another message': _another_message,
    'data': _data,
    'another operator': _another_operator,
    'no computation': _no_computation,
}, _change_proto)


def _mark(root: pathlib.Path, variant) -> None:
  changed = []

  def change(graph_def):
    for function in graph_def.library.function:
      for node in function.node_def:
        if 'tff_dp_release_' in node.name and node.op == 'Identity':
          changed.append(variant(node))

  bundles.change_graphs(root / bundle.NEXT, change)
  assert changed


def _of_no_copy(node):
  node.op = 'Neg'


_each('mark', {'of another operation': _of_no_copy}, _mark)
