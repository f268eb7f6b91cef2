# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Each operation that many clients may do at once, against one at a time.

A case is a function of what a client has. It runs once for every client, and
once for all: with every input the client's own, and with each of them the same
for all, since TensorFlow treats these apart. A function and its gradient must
have the same values, and a client that fails alone must fail the others.
"""

import itertools
from typing import NamedTuple

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from tff_dp import _compat_tensorflow
from tff_dp.execution import errors
from tff_dp.execution.compiling import pure
from tff_dp.execution.compiling import vectorized
from tff_dp.execution.data import graph_defs

_NUM_CLIENTS = 5
_RAW = tf.raw_ops
_CASES = []  # (operation, function, inputs of all clients)


def _case(operation: str, function, *inputs) -> None:
  _CASES.append((operation, function, list(map(np.asarray, inputs))))


def _floats(*shape, low=-3.0, high=3.0, dtype=np.float32, seed=1):
  """Returns numbers of all clients, a few of them special."""
  random = np.random.default_rng(seed)
  found = random.uniform(low, high, [_NUM_CLIENTS, *shape]).astype(dtype)
  return found


def _specials():
  found = _floats(8)
  found[:, :6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40]
  found[2, :3] = [1e38, -1e38, 2.5]
  return found


def _integers(*shape, low=-9, high=9, dtype=np.int32, seed=2):
  random = np.random.default_rng(seed)
  return random.integers(low, high, [_NUM_CLIENTS, *shape]).astype(dtype)


def _bools(*shape, seed=3):
  return np.random.default_rng(seed).random([_NUM_CLIENTS, *shape]) > 0.5


def _same(value):
  """Returns a value that all clients have, as their inputs."""
  return np.stack([np.asarray(value)] * _NUM_CLIENTS)


def _unary(*names, argument='x', positive=False, kinds=('float',)):
  for name in names:
    raw = getattr(_RAW, name)

    def function(x, raw=raw):
      return raw(**{argument: x})

    if 'float' in kinds:
      low = 0.1 if positive else -3.0
      _case(name, function, _floats(low=low))
      _case(name, function, _floats(3, 2, low=low))
      _case(name, function, _floats(0, low=low))
      _case(name, function, _floats(2, 3, low=low, dtype=np.float64))
      _case(name, function, np.abs(_specials()) if positive else _specials())
    if 'int' in kinds:
      _case(name, function, _integers(4))
      _case(name, function, _integers(2, 2, dtype=np.int64))
    if 'bool' in kinds:
      _case(name, function, _bools(4))


_unary('Abs', 'Neg', 'Sign', 'Square', 'ZerosLike',
       kinds=('float', 'int'))
_unary('Ceil', 'Floor', 'Round', 'IsFinite', 'IsInf', 'IsNan', 'Reciprocal',
       'Exp', 'Expm1', 'Sigmoid', 'Tanh', 'Erf')
_unary('Sqrt', 'Rsqrt', 'Log', 'Log1p', positive=True)
_unary('Relu', 'Relu6', 'LeakyRelu', 'Elu', 'Selu', 'Softplus',
       'Softsign',
       argument='features')
_unary('LogicalNot', kinds=('bool',))
_unary('Identity', 'StopGradient', argument='input',
       kinds=('float', 'int', 'bool'))
_unary('Shape', 'Size', 'Rank', argument='input')
_case('ShapeN', lambda x: _RAW.ShapeN(input=[x, x[0]]), _floats(2, 3))


def _binary(*names, arguments=('x', 'y'), kinds=('float', 'int')):
  for name in names:
    raw = getattr(_RAW, name)

    def function(x, y, raw=raw):
      return raw(**dict(zip(arguments, (x, y))))

    nonzero = _floats(3, seed=4) + 4 * np.sign(_floats(3, seed=4))
    if 'float' in kinds:
      _case(name, function, _floats(), _floats(seed=4))
      _case(name, function, _floats(2, 3), nonzero)
      _case(name, function, nonzero, _floats(2, 3) + 10)
      _case(name, function, _floats(), _floats(2, 3) + 10)
      _case(name, function, _floats(2, 1), _floats(1, 3) + 10)
      _case(name, function, _floats(0), _floats(seed=4))
      _case(name, function, _specials(), _specials()[:, ::-1])
    if 'int' in kinds:
      _case(name, function, _integers(2, 3), _integers(3, low=1))
      _case(name, function, _integers(), _integers(3, low=1))


_binary('Add', 'AddV2', 'Sub', 'Mul', 'Maximum', 'Minimum',
        'SquaredDifference', 'Less', 'LessEqual', 'Greater', 'GreaterEqual',
        'Equal', 'NotEqual', 'Div', 'RealDiv', 'FloorDiv', 'FloorMod',
        kinds=('float',))
_binary('Add', 'AddV2', 'Sub', 'Mul', 'Maximum', 'Minimum', 'Less',
        'LessEqual', 'Greater', 'GreaterEqual', 'Equal', 'NotEqual',
        'FloorDiv', 'FloorMod', 'Div', kinds=('int',))
_binary('DivNoNan', 'MulNoNan', kinds=('float',))
_case('Pow', lambda x, y: _RAW.Pow(x=x, y=y), _floats(2, 3, low=0.1),
      _floats(3))
_case('Pow', lambda x: _RAW.Pow(x=x, y=2.0), _floats(2, 3))
_case('LogicalAnd', lambda x, y: _RAW.LogicalAnd(x=x, y=y), _bools(2, 3),
      _bools(3, seed=4))
_case('LogicalOr', lambda x, y: _RAW.LogicalOr(x=x, y=y), _bools(3),
      _bools(2, 3, seed=4))
for _name in ('ReluGrad', 'Relu6Grad', 'LeakyReluGrad', 'SoftplusGrad'):
  _case(
      _name,
      lambda x, y, raw=getattr(_RAW, _name): raw(gradients=x, features=y),
      _floats(2, 3),
      _floats(2, 3, seed=4),
  )
# In double precision, as TensorFlow cannot differentiate it. The gradient of a
# `Softsign` has it in single precision.
_case('SoftsignGrad', lambda x, y: _RAW.SoftsignGrad(gradients=x, features=y),
      _floats(2, 3, dtype=np.float64), _floats(2, 3, dtype=np.float64, seed=4))
for _name in ('EluGrad', 'SeluGrad'):
  _case(
      _name,
      lambda x, y, raw=getattr(_RAW, _name): raw(gradients=x, outputs=y),
      _floats(2, 3),
      _floats(2, 3, seed=4),
  )
for _name in ('SigmoidGrad', 'TanhGrad', 'SqrtGrad', 'RsqrtGrad'):
  _case(
      _name,
      lambda x, y, raw=getattr(_RAW, _name): raw(y=x, dy=y),
      _floats(2, 3, low=0.1),
      _floats(2, 3, seed=4),
  )
_case('AddN', lambda *x: _RAW.AddN(inputs=x), _floats(2), _floats(2, seed=4),
      _floats(2, seed=5))
_case('BiasAdd', lambda x, y: _RAW.BiasAdd(value=x, bias=y), _floats(4, 3),
      _floats(3))
_case('BiasAdd', lambda x, y: _RAW.BiasAdd(value=x, bias=y),
      _floats(2, 4, 3), _floats(3))
_case('BiasAddGrad', lambda x: _RAW.BiasAddGrad(out_backprop=x), _floats(4, 3))
_case('BiasAddGrad', lambda x: _RAW.BiasAddGrad(out_backprop=x),
      _floats(2, 4, 3))
# Images of a batch, filter, and what the convolution gets besides. The numbers are
# above 0, as sums that cancel would be left with their rounding.
_CONVOLUTIONS = (
    ((1, 7, 7, 1), (3, 3, 1, 2), dict(strides=[1, 2, 2, 1], padding='SAME')),
    ((2, 5, 6, 8), (2, 3, 8, 3), dict(strides=[1, 1, 1, 1], padding='VALID')),
    ((2, 6, 5, 9), (2, 2, 9, 1), dict(strides=[1, 3, 2, 1], padding='SAME')),
    ((1, 4, 5, 2), (4, 5, 2, 3), dict(strides=[1, 1, 1, 1], padding='VALID')),
    ((2, 4, 4, 3), (1, 1, 3, 2), dict(strides=[1, 2, 2, 1], padding='VALID')),
    ((2, 4, 4, 2), (3, 2, 2, 2), dict(
        strides=[1, 1, 2, 1], padding='EXPLICIT',
        explicit_paddings=[0, 0, 1, 2, 0, 1, 0, 0])),
    ((0, 5, 5, 1), (2, 2, 1, 3), dict(strides=[1, 1, 1, 1], padding='SAME')),
)  # pyformat: disable
for _images, _filter, _options in _CONVOLUTIONS:
  _case(
      'Conv2D',
      lambda x, y, options=_options: _RAW.Conv2D(input=x, filter=y, **options),
      _floats(*_images, low=0.5),
      _floats(*_filter, low=0.5, seed=4),
  )
  with tf.Graph().as_default():
    _places = _RAW.Conv2D(
        input=tf.zeros(_images), filter=tf.zeros(_filter), **_options
    ).shape
  _case(
      'Conv2DBackpropFilter',
      lambda x, y, sizes=_filter, options=_options: _RAW.Conv2DBackpropFilter(
          input=x, filter_sizes=sizes, out_backprop=y, **options
      ),
      _floats(*_images, low=0.5),
      _floats(*_places, low=0.5, seed=4),
  )
  _case(
      'Conv2DBackpropInput',
      lambda x, y, sizes=_images, options=_options: _RAW.Conv2DBackpropInput(
          input_sizes=sizes, filter=x, out_backprop=y, **options
      ),
      _floats(*_filter, low=0.5),
      _floats(*_places, low=0.5, seed=4),
  )
for _dilation in ([1, 2, 1, 1], [1, 1, 2, 1]):
  # TensorFlow has no gradient of it on a CPU.
  _case(
      'Conv2D',
      lambda x, y, dilation=_dilation: tf.stop_gradient(_RAW.Conv2D(
          input=x, filter=y, strides=[1, 1, 1, 1], dilations=dilation,
          padding='SAME',
      )),
      _floats(2, 5, 6, 2, low=0.5),
      _floats(2, 3, 2, 2, low=0.5, seed=4),
  )
for _size, _stride, _padding in ((2, 1, 'VALID'), (2, 2, 'SAME'), (3, 2, 'VALID')):
  _pooling = dict(
      ksize=[1, _size, 2, 1], strides=[1, _stride, 1, 1], padding=_padding
  )
  # Equal numbers come under one window, as after a ReLU.
  _images = np.maximum(_floats(2, 5, 4, 2), 0.0)
  _case('MaxPool', lambda x, own=_pooling: _RAW.MaxPool(input=x, **own), _images)
  _case(
      'MaxPoolGrad',
      lambda x, y, own=_pooling: _RAW.MaxPoolGrad(
          orig_input=x,
          orig_output=(pooled := _RAW.MaxPool(input=x, **own)),
          grad=pooled * y,
          **own,
      ),
      _images,
      _floats(seed=4),
  )
for _a, _b in itertools.product((False, True), repeat=2):
  _case(
      'MatMul',
      lambda x, y, a=_a, b=_b: _RAW.MatMul(
          a=x, b=y, transpose_a=a, transpose_b=b
      ),
      _floats(*((4, 2) if _a else (2, 4))),
      _floats(*((3, 4) if _b else (4, 3))),
  )
  _case(
      'BatchMatMulV2',
      lambda x, y, a=_a, b=_b: _RAW.BatchMatMulV2(x=x, y=y, adj_x=a, adj_y=b),
      _floats(2, *((4, 2) if _a else (2, 4))),
      _floats(*((3, 4) if _b else (4, 3))),
  )
_case('MatMul', lambda x, y: _RAW.MatMul(a=x, b=y), _floats(0, 4),
      _floats(4, 3))
_case('L2Loss', lambda x: _RAW.L2Loss(t=x), _floats(7))
_case('L2Loss', lambda x: _RAW.L2Loss(t=x), _floats(2, 3))
for _name in ('Sum', 'Mean', 'Max', 'Min', 'Prod', 'All', 'Any'):
  for _axis, _keeps in (
      *((axis, False) for axis in ([], 0, 1, -1, -2, [0, 2], [-1, 0])),
      *((axis, True) for axis in (1, [-1, 0], [0, 1, 2])),
  ):
    _case(
        _name,
        lambda x, raw=getattr(_RAW, _name), axis=_axis, keeps=_keeps: raw(
            input=x, axis=tf.constant(axis, tf.int32), keep_dims=keeps
        ),
        _bools(2, 3, 2) if _name in ('All', 'Any') else _floats(2, 3, 2),
    )
_not_finite = _floats(2, 2)
_not_finite[1:, 1, 0] = [np.nan, np.inf, -np.inf, 3e38]
for _axis, _keeps in itertools.product(([], 1, [0, 1], [-1, -2]), (False, True)):
  _case(
      'All',
      lambda x, axis=_axis, keeps=_keeps: _RAW.All(
          input=_RAW.IsFinite(x=x), axis=tf.constant(axis, tf.int32),
          keep_dims=keeps,
      ),
      _not_finite,
  )
_case('All', lambda x: tf.reduce_all(tf.math.is_finite(x)), _floats(0))
_case('All', lambda x: tf.reduce_all(tf.math.is_finite(x)), _floats())
_case('Sum', lambda x: _RAW.Sum(input=x, axis=0), _floats(0, 2))
_case('Max', lambda x: _RAW.Max(input=x, axis=0), _integers(3, 2))
for _name in ('ArgMax', 'ArgMin'):
  for _axis in (0, 1, -1, -2):
    _case(
        _name,
        lambda x, raw=getattr(_RAW, _name), axis=_axis: raw(
            input=x, dimension=axis
        ),
        _integers(3, 4),
    )
for _name in ('Softmax', 'LogSoftmax'):
  _case(_name, lambda x, raw=getattr(_RAW, _name): raw(logits=x),
        _floats(3, 4))
  _case(_name, lambda x, raw=getattr(_RAW, _name): raw(logits=x), _floats(4))
  _case(_name, lambda x, raw=getattr(_RAW, _name): raw(logits=x),
        _floats(2, 3, 4))
_case(
    'SoftmaxCrossEntropyWithLogits',
    lambda x, y: _RAW.SoftmaxCrossEntropyWithLogits(features=x, labels=y),
    _floats(3, 4),
    np.abs(_floats(3, 4, seed=4)),
)
_case(
    'SparseSoftmaxCrossEntropyWithLogits',
    lambda x, y: _RAW.SparseSoftmaxCrossEntropyWithLogits(
        features=x, labels=y
    ),
    _floats(3, 4),
    _integers(3, low=0, high=4),
)
for _to in (tf.int32, tf.float64, tf.bool, tf.int64, tf.float32):
  _case('Cast', lambda x, to=_to: _RAW.Cast(x=x, DstT=to), _floats(2, 3))
  _case('Cast', lambda x, to=_to: _RAW.Cast(x=x, DstT=to), _integers())
_case('Cast', lambda x: _RAW.Cast(x=x, DstT=tf.float32), _bools(3))
_case('Const', lambda x: x + _RAW.Identity(input=[1.0, 2.0]), _floats(2))
for _axis in (0, 1, -1):
  _case(
      'ConcatV2',
      lambda x, y, axis=_axis: _RAW.ConcatV2(values=[x, y], axis=axis),
      _floats(2, 3),
      _floats(2, 3, seed=4),
  )
  _case('Pack', lambda x, y, axis=_axis: _RAW.Pack(values=[x, y], axis=axis),
        _floats(3), _floats(3, seed=4))
  _case('Unpack', lambda x, axis=_axis: _RAW.Unpack(value=x, num=2, axis=axis),
        _floats(2, 2))
  _case('ExpandDims', lambda x, axis=_axis: _RAW.ExpandDims(
      input=x, axis=axis), _floats(2))
_case('Squeeze', lambda x: _RAW.Squeeze(input=x, axis=[]), _floats(1, 3, 1))
for _axis in ([0], [-1], [0, 2]):
  _case('Squeeze', lambda x, axis=_axis: _RAW.Squeeze(input=x, axis=axis),
        _floats(1, 3, 1))
for _shape in ([6], [3, 2], [-1, 1], [-1], [1, 2, 3]):
  _case('Reshape', lambda x, shape=_shape: _RAW.Reshape(
      tensor=x, shape=shape), _floats(2, 3))
_case('Reshape', lambda x, y: _RAW.Reshape(tensor=x, shape=_RAW.Shape(input=y)),
      _floats(2, 3), _floats(3, 2))


def _sum_with_kept_axis(x, axis):
  """Returns a sum in the shape that the gradient of a sum computes."""
  shape = _RAW.DynamicStitch(
      indices=[tf.range(_RAW.Rank(input=x)), [axis]],
      data=[_RAW.Shape(input=x), [1]],
  )
  return _RAW.Reshape(tensor=_RAW.Sum(input=x, axis=axis), shape=shape)


for _axis in (0, 1, 2):
  _case(
      'DynamicStitch',
      lambda x, axis=_axis: _sum_with_kept_axis(x, axis),
      _floats(2, 3, 2),
  )
for _perm in ([0, 1, 2], [2, 0, 1], [1, 0, 2], [2, 1, 0]):
  _case('Transpose', lambda x, perm=_perm: _RAW.Transpose(x=x, perm=perm),
        _floats(2, 3, 4))
_case('Tile', lambda x: _RAW.Tile(input=x, multiples=[2, 3]), _floats(2, 3))
_case('BroadcastTo', lambda x: _RAW.BroadcastTo(input=x, shape=[4, 2, 3]),
      _floats(2, 1))
_case('BroadcastGradientArgs', lambda x, y: _RAW.BroadcastGradientArgs(
    s0=_RAW.Shape(input=x), s1=_RAW.Shape(input=y)), _floats(2, 3), _floats(3))
_case('Fill', lambda x: _RAW.Fill(dims=[2, 3], value=x), _floats())
_case('Range', lambda x: _RAW.Range(start=0, limit=5, delta=2) + x,
      _integers())
_case('OneHot', lambda x: _RAW.OneHot(
    indices=x, depth=4, on_value=1.0, off_value=0.0), _integers(3, low=-1))
for _axis in (0, 1):
  _case('OneHot', lambda x, axis=_axis: _RAW.OneHot(
      indices=x, depth=4, on_value=2.0, off_value=0.5, axis=axis),
      _integers(2, 3, low=-1))
_case('SelectV2', lambda c, x, y: _RAW.SelectV2(condition=c, t=x, e=y),
      _bools(2, 3), _floats(2, 3), _floats(2, 3, seed=4))
_case('SelectV2', lambda c, x, y: _RAW.SelectV2(condition=c, t=x, e=y),
      _bools(), _floats(2, 3), _floats(2, 3, seed=4))
_case('SelectV2', lambda c, x, y: _RAW.SelectV2(condition=c, t=x, e=y),
      _bools(3), _floats(2, 3), _floats(seed=4))
for _shape, _other in (((2, 3), (2, 3)), ((), (2, 3)), ((2,), (2, 3))):
  _case('Select', lambda c, x, y: _RAW.Select(condition=c, x=x, y=y),
        _bools(*_shape), _floats(*_other), _floats(*_other, seed=4))
_case('Slice', lambda x: _RAW.Slice(input=x, begin=[1, 0], size=[1, -1]),
      _floats(2, 3))
for _index in (0, -1, slice(1, None), slice(None, None, -1), (..., 1),
               (slice(0, 2), None, 1), (1, slice(None, -1))):
  _case('StridedSlice', lambda x, index=_index: x[index], _floats(3, 4))
for _axis in (0, 1, -1):
  _case('GatherV2', lambda x, i, axis=_axis: _RAW.GatherV2(
      params=x, indices=i, axis=axis), _floats(3, 4),
      _integers(2, low=0, high=3))
_case('GatherV2', lambda x, i: _RAW.GatherV2(params=x, indices=i, axis=0),
      _floats(3, 4), _integers(low=0, high=3))
_case('GatherV2', lambda x, i: _RAW.GatherV2(
    params=x, indices=i, axis=1, batch_dims=1), _floats(3, 4),
    _integers(3, 2, low=0, high=4))

# Of these inputs, the third client's is one that fails alone.
_FAILING = [
    ('GatherV2', lambda x, i: _RAW.GatherV2(params=x, indices=i, axis=0),
     _floats(3, 4), _integers(2, low=0, high=3)),
    ('SparseSoftmaxCrossEntropyWithLogits',
     lambda x, y: _RAW.SparseSoftmaxCrossEntropyWithLogits(
         features=x, labels=y), _floats(3, 4), _integers(3, low=0, high=3)),
]  # pyformat: disable


def setUpModule():
  # As `chunks.at_once` does.
  _compat_tensorflow.broadcast_by_known_ranks()


class _Work:
  """The graph of one client's work.

  Attributes:
    values: Names of what the function returns.
    gradient: Names of its gradient by the inputs; empty if there is none.
  """

  def __init__(self, function, inputs, *, with_gradient: bool = False):
    self._graph = tf.Graph()
    with self._graph.as_default():
      arguments = [
          tf.compat.v1.placeholder(
              value.dtype, value.shape[1:], name=f'in_{index}'
          )
          for index, value in enumerate(inputs)
      ]
      found = tf.nest.flatten(function(*arguments))
      self.values = [tf.identity(part).name for part in found]
      gradient = _gradient(found, arguments) if with_gradient else []
      self.gradient = [tf.identity(part).name for part in gradient]
    self.graph_def = self._graph.as_graph_def()
    # One for all calls, which optimizes the graph once.
    self._session = tf.compat.v1.Session(graph=self._graph)

  def one_by_one(self, names, inputs) -> list[np.ndarray]:
    """Returns the tensors of these names, of each client."""
    found = [
        self._session.run(names, {f'in_{i}:0': v for i, v in enumerate(own)})
        for own in zip(*inputs)
    ]
    return [np.stack(parts) for parts in zip(*found)]


def _gradient(results, inputs) -> list[tf.Tensor]:
  """Returns the gradient of all results by all inputs that they depend on.

  Each part of a result weighs from 1 to 2, by its place. With equal weights the
  gradient of a softmax is a sum that cancels, so only its rounding is left.
  """

  def weighted(part):
    size = part.shape.num_elements()
    weights = 1.0 + np.arange(size, dtype=np.float32) / (size + 1)
    return tf.cast(part, tf.float32) * weights.reshape(part.shape)

  # Whole numbers, some of them of unknown shape, have no gradient.
  results = [part for part in results if not part.dtype.is_integer]
  if not results:
    return []
  gradients = tf.gradients(list(map(weighted, results)), list(inputs))
  return [gradient for gradient in gradients if gradient is not None]


class _Trial(NamedTuple):
  """Work of all clients; an input is a client's own, or everybody's."""

  work: _Work
  names: list[str]
  inputs: list[np.ndarray]
  is_own: tuple[bool, ...]

  @property
  def is_gradient(self) -> bool:
    return self.names is self.work.gradient

  def at_once(self, own, shared) -> list[tf.Tensor]:
    """Returns the results in a graph of all clients; none if it is refused."""
    own, shared = iter(own), iter(shared)
    given = {
        f'in_{index}': next(own if is_own else shared)
        for index, is_own in enumerate(self.is_own)
    }
    try:
      return pure.evaluate(
          self.work.graph_def, given, self.names, is_vectorized=True
      )
    except errors.NotPlainError:
      return []

  def one_by_one(self) -> list[np.ndarray]:
    given = [
        value if is_own else _same(value[0])
        for value, is_own in zip(self.inputs, self.is_own)
    ]
    return self.work.one_by_one(self.names, given)


def _at_once(trials) -> list[list[np.ndarray]]:
  """Returns the results of all clients in each trial, from a single graph."""
  own, shared = [], []
  for trial in trials:
    pairs = list(zip(trial.inputs, trial.is_own))
    own.append([tf.constant(value) for value, one in pairs if one])
    shared.append([tf.constant(value[0]) for value, one in pairs if not one])

  @tf.function(autograph=False)
  def work(own, shared):
    def of_client(own):
      return [
          trial.at_once(*given) for trial, *given in zip(trials, own, shared)
      ]

    return tf.vectorized_map(
        of_client, own, fallback_to_while_loop=False, warn=False
    )

  return [[part.numpy() for part in parts] for parts in work(own, shared)]


def _ways(inputs) -> list[tuple[bool, ...]]:
  """Returns which inputs may be the client's own; all of them first."""
  return list(itertools.product((True, False), repeat=len(inputs)))[:-1]


def _has_gradient(inputs) -> bool:
  return all(
      value.dtype == np.float32 and not np.isnan(value.sum())
      for value in inputs
  )


def _works(operation: str) -> list[tuple[_Work, list[np.ndarray]]]:
  """Returns the graphs of all cases of an operation, and their inputs."""
  return [
      (_Work(function, inputs, with_gradient=_has_gradient(inputs)), inputs)
      for name, function, inputs in _CASES
      if name == operation
  ]


class VectorizedTest(parameterized.TestCase):

  def assert_alike(self, operation, trials):
    """Compares clients at once with clients one by one."""
    for trial, actual in zip(trials, _at_once(trials), strict=True):
      if trial.is_gradient and not actual:
        continue  # Refused: clients then go one after the other.
      expected = trial.one_by_one()
      with self.subTest(
          shapes=[value.shape[1:] for value in trial.inputs],
          is_own=trial.is_own,
          is_gradient=trial.is_gradient,
      ):
        for want, got in zip(expected, actual, strict=True):
          # What depends on no client comes once, or for each.
          want = want if got.shape == want.shape else want[0]
          self.assertEqual(got.shape, want.shape)
          self.assertEqual(got.dtype, want.dtype)
          is_exact = operation in vectorized.EXACT and not trial.is_gradient
          if want.dtype.kind == 'f' and not is_exact:
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)
          else:
            np.testing.assert_array_equal(got, want)
            if want.dtype.kind == 'f':
              np.testing.assert_array_equal(
                  np.signbit(got[want == 0]), np.signbit(want[want == 0])
              )

  @parameterized.named_parameters(
      (name, name) for name in sorted({name for name, _, _ in _CASES})
  )
  def test_values_and_gradients(self, operation):
    trials = []
    for work, inputs in _works(operation):
      nodes = graph_defs.all_nodes(work.graph_def)
      self.assertIn(operation, {node.op for node in nodes})
      own, *others = _ways(inputs)
      trials += [
          _Trial(work, work.values, inputs, way) for way in (own, *others)
      ]
      if work.gradient:
        trials.append(_Trial(work, work.gradient, inputs, own))
    self.assert_alike(operation, trials)

  # What gradients consist of has cases of its own, in all ways.
  @parameterized.named_parameters(
      (name, name)
      for name in sorted({name for name, _, inputs in _CASES if inputs[1:]})
  )
  @pytest.mark.slow
  def test_gradients_where_clients_share_an_input(self, operation):
    trials = [
        _Trial(work, work.gradient, inputs, way)
        for work, inputs in _works(operation)
        if work.gradient
        for way in _ways(inputs)[1:]
    ]
    if not trials:
      self.skipTest('it has no gradient')
    self.assert_alike(operation, trials)

  @parameterized.parameters(*_FAILING)
  def test_errors(self, operation, function, data, numbers):
    self.assertIn(operation, vectorized.OPERATIONS)
    work = _Work(function, [data, numbers])
    for wrong in (-5, 4, 10_000):
      numbers = numbers.copy()
      numbers[2, -1] = wrong
      inputs = [data, numbers]
      with self.assertRaises(tf.errors.OpError):
        work.one_by_one(work.values, inputs)
      for is_own in ((True, True), (False, True)):
        with self.assertRaises(tf.errors.OpError):
          _at_once([_Trial(work, work.values, inputs, is_own)])

  def test_all_listed_operations_have_a_case(self):
    self.assertEqual({name for name, _, _ in _CASES}, vectorized.OPERATIONS)

  @parameterized.parameters(
      (lambda x, i: _RAW.DynamicStitch(indices=[i, [3]], data=[x, [1.0]]),
       _floats(3), _integers(3, low=0, high=4)),
      (lambda x: _RAW.DynamicStitch(indices=[[0, 1, 2], [1]], data=[x, [1.0]]),
       _floats(3)),
  )  # pyformat: disable
  def test_values_of_clients_cannot_be_stitched(self, function, *inputs):
    work, is_own = _Work(function, inputs), (True,) * len(inputs)
    with self.assertRaisesRegex(ValueError, 'DynamicStitch'):
      _at_once([_Trial(work, work.values, inputs, is_own)])

  @parameterized.named_parameters(
      ('roll', lambda x: tf.roll(x, 1, -1)),
      ('pad', lambda x: tf.pad(x, [[1, 1]], constant_values=3.0)),
      ('format', lambda x: tf.strings.format('{}', x)),
      ('segments', lambda x: tf.math.unsorted_segment_sum(x, [0, 1, 5], 2)),
      ('sort', tf.sort),
      ('slice', lambda x: tf.slice(x, [tf.argmax(x)], [-1])),
      ('draw', lambda x: x + tf.random.normal([3])),
  )
  def test_all_others_are_refused(self, function):
    work = _Work(function, [_floats(3)])
    with tf.Graph().as_default():
      given = {'in_0': tf.zeros([3])}
      with self.assertRaises(errors.NotPlainError):
        pure.evaluate(work.graph_def, given, work.values, is_vectorized=True)


if __name__ == '__main__':
  absltest.main()
