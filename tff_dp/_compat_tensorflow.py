# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Private symbols of TensorFlow: of graphs, datasets and saved states."""

from collections.abc import Iterator
import functools
import importlib

# Private modules of TensorFlow: for calling a function that can be cancelled,
# for facts about its operations, and for the types that it can save. Checked
# against 2.14.1 and 2.21.0.
_PRIVATE_TENSORFLOW = {
    'cancellation': 'eager.cancellation',
    'context': 'eager.context',
    'data_structures': 'trackable.data_structures',
    'execute': 'eager.execute',
    'op_def_registry': 'framework.op_def_registry',
    'pfor': 'ops.parallel_for.pfor',
    'trace': 'types.trace',
}
# Words in the names of datasets whose elements come in a random order.
_NO_ORDER = ('Shuffle', 'Random')
# TensorFlow calls them stateful, but what they return follows from their
# arguments and from what variables and tables hold. Functions that they call
# are searched, too.
_STATEFUL_BUT_FIXED = frozenset([
    'AnonymousHashTable',
    'AnonymousMemoryCache',
    'Assert',
    'Case',
    'CheckNumerics',
    'CheckNumericsV2',
    'DummyMemoryCache',
    'HashTableV2',
    'If',
    'LookupTableFindV2',
    'LookupTableSizeV2',
    'Print',
    'PrintV2',
    'ReadVariableOp',
    'ResourceGather',
    'ResourceGatherNd',
    'StatefulPartitionedCall',
    'StatelessRandomGetAlg',
    'VarHandleOp',
    'VarIsInitializedOp',
    'VariableShape',
    'While',
])


def private_tensorflow(name: str):
  """Returns one of the private TensorFlow modules that we use, and loads it."""
  return importlib.import_module(
      f'tensorflow.python.{_PRIVATE_TENSORFLOW[name]}'
  )


def body_of_loop(loop):
  """Returns the graph of the body of a `While` operation.

  Checked against TensorFlow 2.14.1 and 2.21.0, which have no public way to get
  it.
  """
  name = loop.get_attr('body').name
  return loop.graph._get_function(name).graph  # pylint: disable=protected-access


def replace_input(operation, index: int, tensor) -> None:
  """Makes an operation of an unfinished graph take another tensor.

  Checked against TensorFlow 2.14.1 and 2.21.0, which have no public way to do
  it.
  """
  operation._update_input(index, tensor)  # pylint: disable=protected-access


@functools.cache
def broadcast_by_known_ranks() -> None:
  """Makes `tf.vectorized_map` broadcast by ranks that the graph knows.

  TensorFlow 2.14 computes the ranks of the inputs of each sum and product anew
  when the graph runs, and reshapes the inputs by them. That is a dozen
  operations, even where all ranks are known and equal. TensorFlow 2.21 does as
  this function does.
  """
  module = private_tensorflow('pfor')
  if hasattr(module, '_expand_dims'):  # As TensorFlow 2.21 has it.
    return
  inputs = module._PforInput  # pylint: disable=protected-access
  by_shapes = inputs.expanddim_inputs_for_broadcast

  @functools.wraps(by_shapes)
  def expanded(self):
    # pylint: disable=protected-access
    ranks = [
        one.t.shape.rank and one.t.shape.rank - one.is_stacked
        for one in self._inputs
    ]
    if None in ranks:
      by_shapes(self)
      return
    for index, (one, rank) in enumerate(zip(self._inputs, ranks)):
      if one.is_stacked and rank < max(ranks):
        place = (slice(None), *[None] * (max(ranks) - rank), ...)
        self._inputs[index] = module.wrap(one.t[place], True)
    # pylint: enable=protected-access

  inputs.expanddim_inputs_for_broadcast = expanded


@functools.cache
def let_wrapped_dicts_be_saved() -> None:
  """Lets TensorFlow 2.14 save states if a new typing_extensions is installed.

  Saving a module asks whether its dicts, which TensorFlow wraps, are instances
  of a protocol. Up to version 4.5, which TFF pins, typing_extensions answers
  that with `hasattr`. From 4.6 on, which Jupyter brings, it reads `__dict__`
  first, and the wrapper raises a TypeError there. So from 4.6 on, this function
  brings back the answer by `hasattr`. Checked with typing_extensions 4.5.0 and
  4.16.0.
  On Python 3.11 no other protocol that TensorFlow 2.14 checks comes from
  typing_extensions.
  """
  protocol = private_tensorflow('trace').SupportsTracingProtocol
  # pylint: disable-next=protected-access
  wrapped = private_tensorflow('data_structures')._DictWrapper({})
  try:
    isinstance(wrapped, protocol)
    return
  except TypeError:
    pass

  class Lenient(type(protocol)):

    def __instancecheck__(cls, instance):
      try:
        return super().__instancecheck__(instance)
      except TypeError:
        return hasattr(instance, '__tf_tracing_type__')

  protocol.__class__ = Lenient


def parts_of_dataset(dataset) -> tuple[list, list]:
  """Returns the input datasets and the functions of a dataset's last step.

  Checked against TensorFlow 2.14.1 and 2.21.0, which have no public way to get
  them.

  Args:
    dataset: A `tf.data.Dataset`.
  """
  # pylint: disable=protected-access
  functions = [wrapper.function for wrapper in dataset._functions()]
  return dataset._inputs(), functions
  # pylint: enable=protected-access


def steps_of_dataset(dataset) -> tuple[list, list[tuple]] | None:
  """Returns (columns, steps) of a dataset made from tensor slices, or None.

  The columns are the eager tensors that the dataset cuts its rows from. The
  steps follow in order, each a name and its values: ('repeat', count), ('take',
  count), ('skip', count), ('shuffle', buffer size, seed, second seed, whether
  each reading has another order), ('batch', size, whether it drops a shorter
  last one), ('map', function), ('cache',), ('prefetch',), ('options',). A
  negative count means all, or for ever.

  The result is None for any other dataset. Checked against TensorFlow 2.14.1
  and 2.21.0, which have no public way to get them.

  Args:
    dataset: A `tf.data.Dataset`.
  """
  # pylint: disable=protected-access
  steps = []
  while (name := type(dataset).__name__) != '_TensorSliceDataset':
    if name in ('_OptionsDataset', '_PrefetchDataset'):
      step = (name[1:].removesuffix('Dataset').lower(),)
    elif name in ('_RepeatDataset', '_TakeDataset', '_SkipDataset'):
      step = (name[1:].removesuffix('Dataset').lower(), int(dataset._count))
    elif name == '_ShuffleDataset':
      numbers = dataset._buffer_size, dataset._seed, dataset._seed2
      step = 'shuffle', *map(int, numbers), bool(
          dataset._reshuffle_each_iteration
      )
    elif name in ('_BatchDataset', '_ParallelBatchDataset'):
      step = 'batch', int(dataset._batch_size), bool(dataset._drop_remainder)
    elif name in ('_MapDataset', '_ParallelMapDataset'):
      step = 'map', dataset._map_func.function
    elif name == 'CacheDataset' and not dataset._filename.numpy():
      step = ('cache',)
    else:
      return None
    steps.append(step)
    (dataset,) = dataset._inputs()
  return list(dataset._tensors), steps[::-1]
  # pylint: enable=protected-access


def shuffled_dataset(dataset, buffer_size, seed, seed2, reshuffles: bool):
  """Returns `dataset.shuffle` with both seeds of a step of `steps_of_dataset`.

  Only one of the seeds is an argument of the public `shuffle`.

  Args:
    dataset: A `tf.data.Dataset` of tensors.
    buffer_size: First number of the step, a scalar tensor.
    seed: Second number, a scalar tensor.
    seed2: Third number, a scalar tensor.
    reshuffles: Whether each reading has another order.
  """
  import tensorflow as tf  # pylint: disable=g-import-not-at-top

  spec = dataset.element_spec
  variant = tf.raw_ops.ShuffleDatasetV3(
      input_dataset=tf.data.experimental.to_variant(dataset),
      buffer_size=buffer_size,
      seed=seed,
      seed2=seed2,
      seed_generator=tf.raw_ops.DummySeedGenerator(),
      reshuffle_each_iteration=reshuffles,
      output_types=[spec.dtype],
      output_shapes=[spec.shape],
  )
  return tf.data.experimental.from_variant(variant, spec)


def has_repeat(dataset) -> bool:
  """Returns whether a step of a dataset repeats others.

  `repeat(1)` repeats nothing. Functions of the steps are not searched. Checked
  against TensorFlow 2.14.1 and 2.21.0.

  Args:
    dataset: A `tf.data.Dataset`.
  """
  if type(dataset).__name__ == '_RepeatDataset':
    # pylint: disable-next=protected-access
    if int(dataset._count) != 1:
      return True
  inputs, _ = parts_of_dataset(dataset)
  return any(map(has_repeat, inputs))


def unordered_datasets(dataset) -> Iterator[str]:
  """Yields the names of operations that may change the order of a dataset.

  These are shuffles, random choices, Python code, and operations that need not
  keep the order: those with `deterministic=False`, as an argument or as an
  option. The search covers the steps of the dataset, and the graphs of the
  functions that the steps call, such as the function of a `map`. Operations in
  these functions that work on tensors are left to `stateful_operations`. Two
  kinds of steps are always named, because they cannot be searched:

  * a parallel `interleave`. TensorFlow 2.14.1 and 2.21.0 do not keep its
    argument `deterministic`.
  * a step whose function uses a dataset from outside of the function.

  Checked against these two versions.

  Args:
    dataset: A `tf.data.Dataset`.
  """
  # The options of the datasets that it is made of are in it, too.
  if dataset.options().deterministic is False:
    yield 'Options.deterministic=False'
  for step in _all_steps(dataset):
    yield from _unordered_step(step)


def stateful_operations(dataset) -> Iterator[str]:
  """Yields the names of operations with state in functions of a dataset.

  Such as `RandomShuffle` in the function of a `map`. They may give other values
  in each reading, so they may also change the order: of the rows of a batch, or
  of the groups that a function makes. A seed does not help, because a second
  reading goes on with the numbers of the first one. Operations that only read a
  variable or a table are not named. Datasets and Python code are left to
  `unordered_datasets`.

  Args:
    dataset: A `tf.data.Dataset`.
  """
  registry = private_tensorflow('op_def_registry')
  for step in _all_steps(dataset):
    for node in _nodes_of_functions(step):
      definition = registry.get(node.op)  # None for a function of the graph.
      if (
          definition is not None
          and definition.is_stateful
          and not any(word in node.op for word in ('Dataset', 'PyFunc'))
          and node.op not in _STATEFUL_BUT_FIXED
      ):
        yield f'{type(step).__name__} with {node.op}'


def _all_steps(dataset) -> Iterator:
  """Yields a dataset and all datasets that it is made of."""
  yield dataset
  for part in parts_of_dataset(dataset)[0]:
    yield from _all_steps(part)


def _unordered_step(dataset) -> Iterator[str]:
  name = type(dataset).__name__
  unknown = 'false' if 'ParallelInterleave' in name else ''
  if (
      any(word in name for word in _NO_ORDER)
      # pylint: disable-next=protected-access
      or getattr(dataset, '_deterministic', unknown) == 'false'
  ):
    yield name
  for function in parts_of_dataset(dataset)[1]:
    if any(tensor.dtype.name == 'variant' for tensor in function.captured_inputs):
      yield f'{name} with a dataset from outside of its function'
  for node in _nodes_of_functions(dataset):
    if 'PyFunc' in node.op:
      yield f'{name} with Python code'
    elif 'Dataset' in node.op and (
        any(word in node.op for word in _NO_ORDER)
        or node.attr['deterministic'].s == b'false'
        or _gives_up_order(node.attr['serialized_options'].s)
    ):
      yield node.op


def _nodes_of_functions(dataset) -> Iterator:
  """Yields the nodes of the functions of a dataset's last step.

  If Python does not know the steps of the dataset, as for the first argument of
  `choose_from_datasets`, the nodes of all its steps are among them.
  """
  graphs = []
  for function in parts_of_dataset(dataset)[1]:
    graphs.append(function.graph.as_graph_def())
    yield from graphs[-1].node
  if type(dataset).__name__ == '_VariantDataset':
    graphs.append(_graph_of_dataset(dataset))
    # The other nodes make constants, variables and tables.
    yield from (node for node in graphs[-1].node if 'Dataset' in node.op)
  for graph in graphs:
    for inner in graph.library.function:
      yield from inner.node_def


def _graph_of_dataset(dataset):
  import tensorflow as tf  # pylint: disable=g-import-not-at-top

  with tf.device('/device:CPU:0'):
    serialized = tf.raw_ops.DatasetToGraphV2(
        input_dataset=tf.data.experimental.to_variant(dataset),
        external_state_policy=1,  # Do not warn of state, which is no matter.
    )
  return tf.compat.v1.GraphDef.FromString(serialized.numpy())


def _gives_up_order(serialized: bytes) -> bool:
  protos = importlib.import_module(
      'tensorflow.core.framework.dataset_options_pb2'
  )
  options = protos.Options.FromString(serialized)
  return options.HasField('deterministic') and not options.deterministic
