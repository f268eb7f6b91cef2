# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fusion of a scan and a reduction of a dataset into one loop."""

import tensorflow as tf

from tff_dp.execution.data import graph_defs


def fuse_scans(graph_def) -> None:
  """Turns `dataset.scan(...).reduce(...)` into one `ReduceDataset`, in place.

  AutoGraph makes a scan and a reduction of a `for` loop over a dataset. The
  fused reduction has the states of both. Each of its steps does a step of the
  scan and then a step of the reduction.

  Args:
    graph_def: Graph to change.
  """
  functions = {f.signature.name: f for f in graph_def.library.function}
  for scope in [graph_def, *functions.values()]:
    nodes = scope.node if scope is graph_def else scope.node_def
    for node in [node for node in nodes if node.op == 'ReduceDataset']:
      scan = {n.name: n for n in nodes}.get(graph_defs.source(node.input[0])[0])
      if scan is None or scan.op != 'ScanDataset':
        continue
      users = [
          other
          for other in nodes
          if scan.name in (graph_defs.source(name)[0] for name in other.input)
      ]
      if users == [node]:
        function = None if scope is graph_def else scope
        _fuse(graph_def, function, scan, node)
        _drop(function, nodes, scan, node)


def _drop(function, nodes, scan, node) -> None:
  """Removes a scan that was fused into another node.

  Creating a dataset has no effect yet. So nodes that waited for the scan now
  wait for the nodes that the scan waited for.
  """
  control = [tensor for tensor in scan.input if tensor.startswith('^')]
  for other in nodes:
    kept = [tensor for tensor in other.input if tensor != f'^{scan.name}']
    if len(kept) < len(other.input):
      kept += [tensor for tensor in control if tensor not in kept]
      other.input[:] = kept
  if function is not None:
    for output, name in list(function.control_ret.items()):
      if name == scan.name:
        function.control_ret[output] = node.name
  nodes.remove(scan)


def _fuse(graph_def, scope, scan, node) -> None:
  """Makes a `ReduceDataset` also do the work of the scan before it."""
  functions = {f.signature.name: f for f in graph_def.library.function}
  first, second = scan.attr['f'].func, node.attr['f'].func
  scanned = functions[first.name].signature
  state = list(scan.attr['Tstate'].list.type)
  others = list(scan.attr['Targuments'].list.type)
  own_state = list(node.attr['Tstate'].list.type)
  own_others = list(node.attr['Targuments'].list.type)
  dtypes = [argument.type for argument in scanned.input_arg]
  elements = dtypes[len(state) : len(dtypes) - len(others)]
  results = [result.type for result in scanned.output_arg]
  step = type(functions[first.name])()
  names = []
  for kind, types in (
      ('state', state), ('own_state', own_state), ('element', elements),
      ('other', others), ('own_other', own_others),
  ):  # pyformat: disable
    names.append([f'{kind}_{index}' for index in range(len(types))])
    for name, dtype in zip(names[-1], types):
      step.signature.input_arg.add(name=name, type=dtype)
  state_names, own_names, element_names, other_names, own_other_names = names
  step.signature.name = f'{first.name}_{second.name}'
  step.signature.is_stateful = True

  def call(name, function, inputs, in_types, out_types):
    added = step.node_def.add(
        name=name, op='StatefulPartitionedCall', input=inputs
    )
    added.attr['f'].func.CopyFrom(function)
    added.attr['Tin'].list.type.extend(in_types)
    added.attr['Tout'].list.type.extend(out_types)
    step.control_ret[name] = name
    step.signature.control_output.append(name)

  call(
      'scan', first, state_names + element_names + other_names, dtypes, results
  )
  outputs = [f'scan:output:{index}' for index in range(len(results))]
  call(
      'reduce',
      second,
      own_names + outputs[len(state) :] + own_other_names + ['^scan'],
      own_state + results[len(state) :] + own_others,
      own_state,
  )
  outputs = outputs[: len(state)]
  outputs += [f'reduce:output:{index}' for index in range(len(own_state))]
  for index, (tensor, dtype) in enumerate(zip(outputs, state + own_state)):
    step.signature.output_arg.add(name=f'result_{index}', type=dtype)
    step.ret[f'result_{index}'] = tensor
  if step.signature.name not in functions:
    graph_def.library.function.add().CopyFrom(step)
  _shift_outputs(graph_def if scope is None else scope, node.name, len(state))
  data = [tensor for tensor in node.input if not tensor.startswith('^')]
  control = [t for t in [*scan.input, *node.input] if t.startswith('^')]
  size, own_size = 1 + len(state), 1 + len(own_state)
  node.input[:] = [
      *scan.input[:size], *data[1:own_size],
      *scan.input[size : size + len(others)], *data[own_size:], *control,
  ]  # pyformat: disable
  second = node.attr['f'].func
  second.Clear()
  second.name = step.signature.name
  node.attr['Tstate'].list.type[:] = state + own_state
  node.attr['output_types'].list.type[:] = state + own_state
  node.attr['Targuments'].list.type[:] = others + own_others
  shapes = list(node.attr['output_shapes'].list.shape)
  del node.attr['output_shapes'].list.shape[:]
  for _ in state:
    node.attr['output_shapes'].list.shape.add(unknown_rank=True)
  node.attr['output_shapes'].list.shape.extend(shapes)


def _shift_outputs(scope, name: str, size: int) -> None:
  """Adds `size` to the index of each use of an output of a node."""

  def moved(tensor):
    own, *rest = tensor.split(':')
    if own != name:
      return tensor
    *rest, index = rest or ['0']
    return ':'.join([own, *rest, str(int(index) + size)])

  is_graph = isinstance(scope, tf.compat.v1.GraphDef)
  for node in scope.node if is_graph else scope.node_def:
    node.input[:] = map(moved, node.input)
  for key, tensor in () if is_graph else scope.ret.items():
    scope.ret[key] = moved(tensor)
