# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Operations that may run for many clients at once.

For some operations `tf.vectorized_map` returns wrong values without an error: a
roll along a negative axis, padding with ones, a segment number out of range. So
it gets only the operations below. `tests/execution/vectorized_test.py` compares
each of them with a run for one client at a time: values, gradients, errors. A
new operation must be added there, too: a test compares the lists.
"""

from collections.abc import Set

import tensorflow as tf

# These operations move numbers, or compute each one from a few others by the
# rules of IEEE 754. So results for many clients at once equal those for one,
# bit by bit.
EXACT = frozenset([
    'Abs',
    'Add',
    'AddV2',
    'All',
    'Any',
    'ArgMax',
    'ArgMin',
    'BroadcastGradientArgs',
    'BroadcastTo',
    'Cast',
    'Ceil',
    'ConcatV2',
    'Const',
    'Div',
    'DivNoNan',
    # Only of values that all clients share, such as shapes. TensorFlow cannot
    # vectorise any other.
    'DynamicStitch',
    'Equal',
    'ExpandDims',
    'Fill',
    'Floor',
    'FloorDiv',
    'FloorMod',
    'GatherV2',
    'Greater',
    'GreaterEqual',
    'Identity',
    'IsFinite',
    'IsInf',
    'IsNan',
    'LeakyRelu',
    'LeakyReluGrad',
    'Less',
    'LessEqual',
    'LogicalAnd',
    'LogicalNot',
    'LogicalOr',
    'Max',
    'Maximum',
    'Min',
    'Minimum',
    'Mul',
    'MulNoNan',
    'Neg',
    'NotEqual',
    'OneHot',
    'Pack',
    'Range',
    'Rank',
    'RealDiv',
    'Relu',
    'Relu6',
    'Relu6Grad',
    'ReluGrad',
    'Reshape',
    'Round',
    'Select',
    'SelectV2',
    'Shape',
    'ShapeN',
    'Sign',
    'Size',
    'Slice',
    'Sqrt',
    'Square',
    'SquaredDifference',
    'Squeeze',
    'StopGradient',
    'StridedSlice',
    'Sub',
    'Tile',
    'Transpose',
    'Unpack',
    'ZerosLike',
])
# These operations add up or approximate a function. So the last bits depend on
# the number of clients that come together.
_ROUNDED = frozenset([
    'AddN',
    'BatchMatMulV2',
    'BiasAdd',
    'BiasAddGrad',
    'Conv2D',
    'Conv2DBackpropFilter',
    'Conv2DBackpropInput',
    'Elu',
    'EluGrad',
    'Erf',
    'Exp',
    'Expm1',
    'L2Loss',
    'Log',
    'Log1p',
    'LogSoftmax',
    'MatMul',
    'MaxPool',
    'MaxPoolGrad',
    'Mean',
    'Pow',
    'Prod',
    'Reciprocal',
    'Rsqrt',
    'RsqrtGrad',
    'Selu',
    'SeluGrad',
    'Sigmoid',
    'SigmoidGrad',
    'Softmax',
    'SoftmaxCrossEntropyWithLogits',
    'Softplus',
    'SoftplusGrad',
    'Softsign',
    'SoftsignGrad',
    'SparseSoftmaxCrossEntropyWithLogits',
    'SqrtGrad',
    'Sum',
    'Tanh',
    'TanhGrad',
])
OPERATIONS = EXACT | _ROUNDED


def is_listed(node, operations: Set[str]) -> bool:
  """Returns whether a node's operation is on a list, and its types are allowed.

  The allowed types are numbers and bools.

  Args:
    node: Node of a graph.
    operations: The list: names of operations, such as `EXACT`.
  """
  if node.op not in operations:
    return False
  types = [attribute.type for attribute in node.attr.values()]
  return all(
      tf.as_dtype(dtype).is_floating
      or tf.as_dtype(dtype).is_integer
      or tf.as_dtype(dtype).is_bool
      for dtype in types
      if dtype
  )
