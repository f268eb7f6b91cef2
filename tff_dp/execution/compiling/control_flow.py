# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Branches and loops of pure code, including loops over sequences.

The body of a branch or loop is a function of values. It takes the variables and
iterators that it may change as tensors, and returns their new values. Each
function here takes the library of functions from `pure`, a node, and the node's
inputs.
"""

from collections.abc import Sequence
import itertools

import tensorflow as tf

from tff_dp.execution import errors
from tff_dp.execution.compiling import columns
from tff_dp.execution.compiling import lanes
from tff_dp.execution.compiling import variables

# Operations that cannot fail, and that take no longer than a choice between two
# results.
_CHEAP = frozenset([
    'Abs', 'Add', 'AddV2', 'Cast', 'Const', 'DivNoNan', 'Equal', 'Fill',
    'Greater', 'GreaterEqual', 'Identity', 'IsFinite', 'Less', 'LessEqual',
    'LogicalAnd', 'LogicalNot', 'LogicalOr', 'Maximum', 'Minimum', 'Mul',
    'MulNoNan', 'Neg', 'NoOp', 'NotEqual', 'RealDiv', 'Select', 'SelectV2',
    'Sign', 'Sqrt', 'Square', 'Sub', 'ZerosLike',
])  # fmt: skip
_BRANCHES = ('then_branch', 'else_branch')


def are_values(values: Sequence) -> bool:
  """Returns whether all values are tensors, not variables or sequences."""
  return all(isinstance(value, tf.Tensor) for value in values)


class _State:
  """Variables and iterators among the values of a loop or a branch.

  Inside the loop or branch, copies replace them. The tensors of the copies are
  results of the loop or branch.
  """

  def __init__(self, values: Sequence):
    self._objects = {}
    for value in values:
      if isinstance(value, (columns.Iterator, variables.Variable)):
        self._objects[id(value)] = value
      if isinstance(value, columns.Iterator) and value.sequence is None:
        raise errors.NotPlainError('an iterator is set up later')
      if isinstance(value, columns.Scan):
        # Its variables would not be copies.
        raise errors.NotPlainError('a branch or loop takes a scan')

  @property
  def tensors(self) -> list[tf.Tensor]:
    """Tensors that the variables and iterators hold now."""
    return [value.tensor for value in self._objects.values()]

  @property
  def shapes(self) -> list[tf.TensorShape]:
    """Shapes of the tensors, which do not change."""
    return [value.shape for value in self._objects.values()]

  def inside(self, values: Sequence, tensors: Sequence[tf.Tensor]):
    """Returns the values with copies that hold `tensors`, and the new state."""
    copies = {
        key: value.with_value(tensor)
        for (key, value), tensor in zip(
            self._objects.items(), tensors, strict=True
        )
    }
    found = [copies.get(id(value), value) for value in values]
    return found, _State(found)

  def update(self, tensors: Sequence[tf.Tensor]) -> None:
    """Sets the variables and iterators to the final tensors of their copies."""
    for value, tensor in zip(self._objects.values(), tensors, strict=True):
      value.value = _shaped(tensor, value.shape)


def _shaped(tensor: tf.Tensor, shape: tf.TensorShape) -> tf.Tensor:
  """Returns the tensor with a static shape that it may have lost on the way.
  """
  if shape.rank is None or tensor.shape == shape:
    return tensor
  return tf.ensure_shape(tensor, shape)


def _check_are_values(node, values: Sequence) -> None:
  if not are_values(values):
    raise errors.NotPlainError(f'{node.name} ({node.op}) returns a sequence')


def conditional(library, node, predicate, inputs: list) -> list:
  """Returns the outputs of an `If`.

  Updates the variables and iterators in `inputs`.

  Raises:
    NotPlainError: The condition is not a boolean scalar, a branch returns a
      sequence, or a branch has something that is not supported here.
  """
  _check_are_values(node, [predicate])
  if predicate.dtype != tf.bool or predicate.shape.rank != 0:
    raise errors.NotPlainError(f'the condition of {node.name} is no boolean')
  state, returned, regions = _State(inputs), [], []
  # Read outside of the branches, because the first read of a variable makes its
  # initial value.
  before = state.tensors

  if library.is_vectorized:
    found = _chosen(library, node, predicate, inputs, state, before)
    if found is not None:
      return found

  def branch(attribute):
    def run():
      with library.region() as region:
        own, inner = state.inside(inputs, before)
        if attribute == 'then_branch':
          own = [
              value.if_true(predicate)
              if isinstance(value, columns.Optional)
              else value
              for value in own
          ]
        results = library.call(node.attr[attribute].func.name, own)
        _check_are_values(node, results)
        returned.append(results)
        regions.append(region)
        tensors = [*results, *inner.tensors] or [tf.constant(0)]
        return region.closed(list(map(tf.identity, tensors)))

    return run

  with library.current_region.next():
    found = tf.cond(predicate, *map(branch, _BRANCHES))
  found = list(found) if isinstance(found, (list, tuple)) else [found]
  if any(region.has_order for region in regions):
    library.current_region.follow(found[0].op)
  size = len(returned[0])
  state.update(found[size : size + len(before)])
  # A value that both branches pass through unchanged stays itself. An example
  # is the flag of whether a loop goes on, which is the same for all clients.
  return [
      one if one is other else result
      for one, other, result in zip(*returned, found[:size], strict=True)
  ]


def _chosen(library, node, predicate, inputs, state, before) -> list | None:
  """Returns the outputs of an `If` whose branches are cheap, else None.

  Where clients take different branches, TensorFlow sorts them, and copies their
  values there and back. To compute both branches takes less.
  """
  calls = [node.attr[attribute].func.name for attribute in _BRANCHES]
  if not all(_is_cheap(library, name) for name in calls):
    return None
  both, size = [], 0
  for name in calls:
    own, inner = state.inside(inputs, before)
    results = library.call(name, own)
    _check_are_values(node, results)
    size = len(results)
    both.append([*results, *inner.tensors])
  pairs = list(zip(*both, strict=True))
  if not all(
      one.shape == other.shape and one.shape.is_fully_defined()
      for one, other in pairs
  ):
    # The choice would broadcast.
    return None
  # `tf.where` would broadcast the choices of the clients, which takes longer.
  found = [
      one
      if one is other
      else tf.raw_ops.Select(condition=predicate, x=one, y=other)
      for one, other in pairs
  ]
  state.update(found[size:])
  return found[:size]


def _is_cheap(library, name: str) -> bool:
  """Returns whether a function has cheap operations only, see `_CHEAP`."""
  for node in library.functions[name].node_def:
    if node.op in ('If', 'StatelessIf'):
      if not all(_is_cheap(library, node.attr[b].func.name) for b in _BRANCHES):
        return False
    elif node.op not in _CHEAP:
      return False
  return True


def while_loop(library, node, inputs: list) -> list:
  """Returns the outputs of a `While`.

  Updates the variables and iterators in `inputs`.

  Raises:
    NotPlainError: The loop has something that is not supported here.
  """
  if any(isinstance(value, columns.Optional) for value in inputs):
    raise errors.NotPlainError(
        f'{node.name} is a loop with a dataset element among its variables'
    )
  state = _State(inputs)
  places = [i for i, value in enumerate(inputs) if are_values([value])]

  def inside(tensors):
    own = list(inputs)
    for place, tensor in zip(places, tensors):
      own[place] = tensor
    return state.inside(own, tensors[len(places) :])

  def cond(*tensors):
    own, inner = inside(tensors)
    results = library.call(node.attr['cond'].func.name, own)
    if any(a is not b for a, b in zip(inner.tensors, tensors[len(places) :])):
      raise errors.NotPlainError(
          f'the condition of the loop {node.name} changes a variable'
      )
    return results

  def body(*tensors):
    own, inner = inside(tensors)
    results = library.call(node.attr['body'].func.name, own)
    for value, result in zip(own, results, strict=True):
      if not are_values([value]) and result is not value:
        raise errors.NotPlainError(
            f'the loop {node.name} replaces a sequence or a variable'
        )
    found = [results[place] for place in places]
    _check_are_values(node, found)
    return [*found, *inner.tensors]

  given = list(node.attr['output_shapes'].list.shape)
  shapes = [
      tf.TensorShape(given[place]) if given else inputs[place].shape
      for place in places
  ]
  found = _loop(
      library,
      cond,
      body,
      [*(inputs[place] for place in places), *state.tensors],
      [*shapes, *state.shapes],
  )
  state.update(found[len(places) :])
  results = list(inputs)
  for place, tensor in zip(places, found):
    results[place] = tensor
  return results


def _loop(library, cond, body, start: list, shapes: list) -> list:
  """Returns the tensors after a loop. Each step has a `pure._Region`."""
  regions = []

  def in_region(function):
    def run(*tensors):
      with library.region() as region:
        regions.append(region)
        return region.closed(function(*tensors))

    return run

  def shaped_body(*tensors):
    return list(map(_shaped, body(*tensors), shapes))

  run_cond = in_region(cond)
  with library.current_region.next():
    found = tf.while_loop(
        lambda *tensors: run_cond(*tensors)[0],
        in_region(shaped_body),
        start,
        shape_invariants=shapes,
        parallel_iterations=1,
    )
  found = list(found) if isinstance(found, (list, tuple)) else [found]
  if library.own_zero is not None:
    lanes.separate(_loop_of(found[0]), library.own_zero)
  if any(region.has_order for region in regions):
    library.current_region.follow(found[0].op)
  return found


def _loop_of(result: tf.Tensor) -> tf.Operation:
  """Returns the operation whose result TensorFlow returned as a loop's."""
  if result.op.type == 'Identity':
    result = result.op.inputs[0]
  return result.op


def scanned(node, sequence, *rest) -> list:
  """Returns the output of a `ScanDataset`, which runs when it is reduced."""
  return [columns.Scan(sequence, node, rest)]


def reduce(library, node, sequence, *rest) -> list:
  """Returns the outputs of a `ReduceDataset`.

  AutoGraph makes a scan and a reduction of a `for` loop. A step of the loop
  here is a step of the scan and then a step of the reduction. Updates the
  variables and iterators that the two take.

  Raises:
    NotPlainError: The reduction has something that is not supported here.
  """
  loops = [(node, rest)]
  while isinstance(sequence, columns.Scan):
    loops.insert(0, (sequence.node, sequence.inputs))
    sequence = sequence.sequence
  columns.check_is_columns(node, sequence)
  sizes = [len(each.attr['Tstate'].list.type) for each, _ in loops]
  start, others = [], []
  for size, (_, inputs) in zip(sizes, loops):
    start += inputs[:size]
    others += inputs[size:]
  _check_are_values(node, start)
  state = _State(others)
  shapes = [tf.TensorShape(None)] * sum(sizes[:-1])
  shapes += map(tf.TensorShape, node.attr['output_shapes'].list.shape)

  def body(index, *tensors):
    own, inner = state.inside(others, tensors[len(start) :])
    before, own, after = iter(tensors), iter(own), []
    element = sequence.element(index)
    for size, (each, inputs) in zip(sizes, loops):
      states = list(itertools.islice(before, size))
      rest = itertools.islice(own, len(inputs) - size)
      name = each.attr['f'].func.name
      results = library.call(name, [*states, *element, *rest])
      _check_are_values(each, results)
      after += results[:size]
      element = results[size:]
    return [index + 1, *after, *inner.tensors]

  index = sequence.begin()
  _, *found = _loop(
      library,
      lambda index, *_: [index < sequence.end],
      body,
      [index, *start, *state.tensors],
      [index.shape, *shapes, *state.shapes],
  )
  state.update(found[len(start) :])
  return found[: len(start)][-sizes[-1] :]


def mapped(library, node, sequence, *others) -> list:
  """Returns the output of a `MapDataset`, whose elements are mapped when read.
  """
  columns.check_is_columns(node, sequence)
  if node.op.startswith('Parallel'):
    others = others[:-1]  # Number of parallel calls.
  # A variable may have changed by the time an element is read, so none may be
  # passed on. An element that is read twice, or from a cache, must not draw
  # twice, so the function must be stateless.
  _check_are_values(node, others)
  function = node.attr['f'].func.name
  if not library.is_plain(function):
    raise errors.NotPlainError(f'{node.name} maps a function with a state')

  def map_parts(parts, in_rows):
    call = library.call_on_rows if in_rows else library.call
    return call(function, [*parts, *others])

  return [sequence.mapped(map_parts)]
