# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What goes wrong inside the in-process context, and what stays right."""

import collections
import importlib.util
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings

from absl.testing import absltest
from absl.testing import parameterized
from google.protobuf import any_pb2
import numpy as np
import scipy.stats
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution.conformance import at_clients
from tests.execution.conformance import at_server
from tff_dp import execution
from tff_dp.execution import errors
from tff_dp.execution import in_process

_ROOT = pathlib.Path(__file__).parents[2]
_FALSE_ALARM = 1e-6
_POINT = collections.OrderedDict(x=np.float32, y=tff.TensorType(np.int32, [2]))
_PAIR = np.array([1, 2], np.int32)

# Loads TFF once, which takes seconds. Then, for each line that it reads, it
# makes a copy of itself, before anything but the libraries has started. The copy
# does what the line says, and its parent tells how it ended, and when.
_CHILD = """
import os, pathlib, signal, sys, threading, time
import numpy as np
from tff_dp import execution
from tff_dp.execution import contexts
import tensorflow as tf
import tensorflow_federated as tff

for line in sys.stdin:
  if not (copy := os.fork()):
    signal.alarm(300)  # Kills a copy that does not end.
    what, *arguments = line.split()
    break
  _, status = os.waitpid(copy, 0)
  code = os.waitstatus_to_exitcode(status)
  print('ended', code, time.monotonic(), flush=True)
else:
  sys.exit()

def end(how):
  global context  # Lives until the interpreter ends.

  @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
  def add_up(values):
    return tff.federated_sum(values)

  of_tff = set(threading.enumerate())
  if how == 'async':
    import asyncio
    context = execution.create_async_in_process_context(
        max_concurrent_clients=2
    )
    with tff.framework.get_context_stack().install(context):
      async def call():
        return await add_up([1.0, 2.0])
      total = asyncio.run(call())
  else:
    context = contexts.set_sync_in_process_context(max_concurrent_clients=2)
    total = add_up([1.0, 2.0])
  assert total == 3.0, total
  if how == 'closed':
    context.close()
    left = set(threading.enumerate()) - of_tff
    assert not left, left
    # Open again, until the end.
    contexts.set_sync_in_process_context(max_concurrent_clients=2)
    assert add_up([2.0, 3.0]) == 5.0
  tasks = pathlib.Path('/proc/self/task').glob('*/children')
  children = ' '.join(task.read_text() for task in tasks).split()
  assert not children, children
  print('end', time.monotonic(), flush=True)
  if how == 'exception':
    raise RuntimeError('on purpose')

# Runs endless client work of several kinds, each until it is interrupted.
def be_interrupted(*jobs):
  @tff.tensorflow.computation(np.int64)
  def while_loop(n):
    return tf.while_loop(
        lambda i: i < n, lambda i: [i + 1], [tf.constant(0, tf.int64)]
    )[0]

  @tff.tensorflow.computation(np.int64)
  def reduce_dataset(n):
    return tf.data.Dataset.range(n).reduce(np.int64(0), lambda i, _: i + 1)

  @tff.tensorflow.computation(np.int64)
  def iterate_dataset(n):
    @tf.function
    def loop():
      count = tf.constant(0, tf.int64)
      for _ in tf.data.Dataset.range(n):
        count += 1
      return count
    return loop()

  functions = dict(
      while_loop=while_loop,
      reduce_dataset=reduce_dataset,
      iterate_dataset=iterate_dataset,
  )
  for job in jobs:
    kind, number = job.split(':')
    work = functions[kind]
    contexts.set_sync_in_process_context(max_concurrent_clients=int(number))
    @tff.federated_computation(tff.FederatedType(np.int64, tff.CLIENTS))
    def computation(values):
      return tff.federated_sum(tff.federated_map(work, values))

    assert computation([1, 2, 3]) == 6
    print('start', os.getpid(), flush=True)
    try:
      computation([10**15] * 3)
      print('never', flush=True)
    except KeyboardInterrupt:
      print('interrupted', time.monotonic(), flush=True)
    assert computation([3, 4]) == 7
  print('end', time.monotonic(), flush=True)

dict(end=end, be_interrupted=be_interrupted)[what](*arguments)
"""

# Seconds; not a speed but the end of waiting, on however busy a machine.
_SOON = 30.0


@tff.tensorflow.computation(np.float32)
def _root(x):
  check = tf.debugging.assert_non_negative(x, 'no root', name='root_check')
  with tf.control_dependencies([check]):
    return tf.sqrt(x)


@tff.federated_computation(at_clients(np.float32))
def _sum_of_roots(values):
  return tff.federated_sum(tff.federated_map(_root, values))


@tff.federated_computation(
    at_clients(_POINT), at_clients(np.float32), at_server(_POINT), np.int32
)
def _typed(points, values, point, number):
  del point, number
  return tff.federated_sum(points), tff.federated_sum(values)


def _point(x=1.0, y=_PAIR):
  return collections.OrderedDict(x=x, y=y)


class _ContextTest(parameterized.TestCase):

  def _enter(self, num_workers: int = 1) -> in_process.InProcessContext:
    context = execution.create_sync_in_process_context(
        max_concurrent_clients=num_workers
    )
    return self.enter_context(context)


class ClientErrorTest(_ContextTest):

  @parameterized.product(
      num_workers=(1, 2, 3), failing=([0], [2], [4], [3, 1], [2, 3], [4, 0, 2])
  )
  def test_names_the_lowest_failing_client(self, num_workers, failing):
    self._enter(num_workers)
    values = [-1.0 if i in failing else 4.0 for i in range(5)]
    with self.assertRaises(execution.ClientComputationError) as caught:
      _sum_of_roots(values)
    self.assertEqual(caught.exception.client_index, min(failing))
    self.assertRegex(str(caught.exception), rf'\bclient {min(failing)}\b')
    self.assertIn('root_check', caught.exception.operation)
    self.assertEqual(caught.exception.kind, 'InvalidArgumentError')
    # TensorFlow quotes the data, so a message and a trace do without it.
    self.assertIn('no root', caught.exception.details)
    self.assertIn('-1', caught.exception.details)
    shown = ''.join(traceback.format_exception(caught.exception))
    self.assertNotIn('no root', shown)
    self.assertNotIn('\n', str(caught.exception))

  @parameterized.parameters(1, 2)
  def test_next_call_works(self, num_workers):
    context = self._enter(num_workers)
    self.assertEqual(_sum_of_roots([4.0, 9.0]), 5.0)
    for attempt in range(3):
      with self.assertRaises(execution.ClientComputationError):
        _sum_of_roots([4.0, -1.0, 9.0])
      if not attempt:  # The clients of a chunk that fails come one by one.
        num_traces = context.num_traces
      self.assertEqual(_sum_of_roots([4.0, 9.0, 1.0]), 6.0)
    self.assertEqual(context.num_traces, num_traces)

  def test_error_while_accumulating(self):
    @tff.tensorflow.computation(np.float32, np.float32)
    def accumulate(total, value):
      return total + _root(value)

    add = tff.tensorflow.computation(lambda x, y: x + y, (np.float32,) * 2)
    same = tff.tensorflow.computation(lambda x: x, np.float32)

    @tff.federated_computation(at_clients(np.float32))
    def computation(values):
      return tff.federated_aggregate(values, 0.0, accumulate, add, same)

    self._enter()
    with self.assertRaisesRegex(execution.ClientComputationError, 'client 2'):
      computation([1.0, 1.0, -1.0])

  def test_error_in_the_second_level(self):
    @tff.federated_computation(at_clients(np.float32))
    def computation(values):
      mean = tff.federated_broadcast(tff.federated_mean(values))
      less = tff.tensorflow.computation(lambda x, y: x - y, (np.float32,) * 2)
      return _sum_of_roots(tff.federated_map(less, (values, mean)))

    self._enter(2)
    with self.assertRaisesRegex(execution.ClientComputationError, 'client 1'):
      computation([5.0, 1.0, 6.0, 2.0])

  def test_error_on_the_server_names_no_client(self):
    @tff.federated_computation(at_server(np.float32), at_clients(np.float32))
    def computation(value, values):
      return tff.federated_map(_root, value), tff.federated_sum(values)

    self._enter()
    with self.assertRaisesRegex(tf.errors.InvalidArgumentError, 'no root'):
      computation(-1.0, [1.0])
    self.assertEqual(computation(4.0, [1.0]), (2.0, 1.0))

  def test_state_of_the_caller_is_unchanged(self):
    self._enter()  # First, as TFF computes constants while it builds this.
    update = tff.TensorType(np.float32, [3])
    factory = tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(
        noise_multiplier=0.0, clients_per_round=3, clipped_count_stddev=0.0
    )
    process = factory.create(update)

    @tff.federated_computation(
        process.next.type_signature.parameter[0], at_clients(update)
    )
    def next_round(state, values):
      refuse = tff.tensorflow.computation(
          lambda x: tf.debugging.check_numerics(x, 'not finite'), update
      )
      return process.next(state, tff.federated_map(refuse, values))

    good = [np.full(3, x, np.float32) for x in (1.0, 2.0, 3.0)]
    state = next_round(process.initialize(), good).state
    before = [np.array(leaf) for leaf in tf.nest.flatten(state)]
    expected = next_round(state, good).result
    with self.assertRaisesRegex(execution.ClientComputationError, 'client 1'):
      next_round(state, [good[0], good[1] * np.nan, good[2]])
    for leaf, old in zip(tf.nest.flatten(state), before, strict=True):
      np.testing.assert_array_equal(leaf, old)
    np.testing.assert_array_equal(next_round(state, good).result, expected)


class ArgumentTest(_ContextTest):

  @parameterized.named_parameters(
      ('string_for_float', dict(x='1'), 'float32'),
      ('float_for_int', dict(y=np.array([1.5, 2.5])), 'int32.*float64'),
      ('rank', dict(y=np.array([[1, 2]], np.int32)), r'int32\[2\].*\(1, 2\)'),
      ('size', dict(y=np.array([1, 2, 3], np.int32)), r'int32\[2\].*\(3,\)'),
      ('none', dict(x=None), 'float32'),
      ('structure_for_tensor', dict(x=(1.0, 2.0)), 'float32'),
  )
  def test_leaf_of_another_type(self, change, pattern):
    self._enter()
    arguments = ([_point(), _point(**change)], [1.0, 2.0], _point(), 3)
    with self.assertRaisesRegex(TypeError, pattern) as caught:
      _typed(*arguments)
    # Says where: the client and the leaf.
    self.assertRegex(str(caught.exception), r"client 1.*points.*\[[xy]\]")
    with self.assertRaisesRegex(TypeError, rf"'?point'?\W.*{pattern}"):
      _typed([_point()], [1.0], _point(**change), 3)
    self.assertEqual(_typed([_point()], [1.5], _point(), 3)[1], 1.5)

  @parameterized.named_parameters(
      ('missing_key', collections.OrderedDict(x=1.0), 'keys'),
      ('other_key', collections.OrderedDict(x=1.0, z=_PAIR), 'keys'),
      ('extra_key', collections.OrderedDict(x=1.0, y=_PAIR, z=1), 'keys'),
      ('tuple_too_short', (1.0,), '1 elements'),
      ('number', 1.0, 'float'),
  )
  def test_structure_of_another_type(self, value, pattern):
    self._enter()
    with self.assertRaisesRegex(TypeError, pattern):
      _typed([value], [1.0], _point(), 3)
    with self.assertRaisesRegex(TypeError, pattern):
      _typed([_point()], [1.0], value, 3)

  @parameterized.named_parameters(
      ('number', 1.0), ('array', np.ones(2, np.float32)), ('mapping', {0: 1.0})
  )
  def test_clients_are_a_list(self, values):
    self._enter()
    with self.assertRaisesRegex(TypeError, 'list'):
      _sum_of_roots(values)

  def test_numbers_of_clients_differ(self):
    self._enter()
    with self.assertRaisesRegex(ValueError, '2 in .*points.*3 in .*values'):
      _typed([_point()] * 2, [1.0] * 3, _point(), 3)

  @parameterized.named_parameters(
      ('dtype', tf.data.Dataset.from_tensors(1.5), 'float32'),
      ('rank', tf.data.Dataset.from_tensors([1]), r'int32\[1\]'),
      ('structure', tf.data.Dataset.from_tensors((1, 2)), '<int32,int32>'),
      ('element_of_list', [1, 'a'], r'\[1\]'),
      ('no_sequence', 1, 'int'),
  )
  def test_sequence_of_another_type(self, value, pattern):
    @tff.federated_computation(at_clients(tff.SequenceType(np.int32)))
    def computation(values):
      count = tff.tensorflow.computation(
          lambda x: x.reduce(0, tf.add), tff.SequenceType(np.int32)
      )
      return tff.federated_sum(tff.federated_map(count, values))

    self._enter()
    with self.assertRaisesRegex(TypeError, f'client 1.*{pattern}'):
      computation([[1], value])

  @parameterized.named_parameters(
      ('fraction', np.int32, np.array(1.5)),
      ('fraction_of_tensor', np.int32, tf.constant([1.5])[0]),
      ('python_fraction', np.int32, 1.5),
      ('not_a_number', np.int64, np.array(np.nan)),
      ('large', np.int32, np.array(2**40)),
      ('negative', np.uint8, np.array(-1)),
      ('infinite', np.float32, np.array(1e300)),
      ('two', np.bool_, np.array(2)),
      ('missing', np.float32, None),
      ('text', np.float32, '1.5'),
      ('key', (np.int32, np.int32), dict(a=1, b=2)),
  )
  def test_element_that_tff_would_change(self, dtype, value):
    # TFF takes all but the last two of them, and says nothing.
    @tff.federated_computation(tff.SequenceType(dtype))
    def same(values):
      return values

    self._enter()
    with self.assertRaisesRegex(TypeError, r'the argument\[1\]: expected'):
      same([(1, 1) if isinstance(dtype, tuple) else dtype(1), value])

  def test_none_is_no_empty_structure(self):
    # As in TFF.
    @tff.federated_computation(tff.FederatedType((), tff.SERVER))
    def same(value):
      return value

    self._enter()
    self.assertEqual(same({}), ())
    with self.assertRaisesRegex(TypeError, 'type <>, found.*NoneType'):
      same(None)

  def test_results_and_arguments_do_not_share_memory(self):
    @tff.federated_computation(at_server(tff.TensorType(np.int32, [2])))
    def computation(value):
      return value, value

    self._enter()
    given = np.array([1, 2], np.int32)
    first, second = computation(given)
    given[0] = 10
    np.testing.assert_array_equal(first, [1, 2])
    if first.flags.writeable:
      first[0] = 20
      np.testing.assert_array_equal(second, [1, 2])
    np.testing.assert_array_equal(computation(given)[0], [10, 2])


class UnsupportedTest(_ContextTest):

  @absltest.skipIf(importlib.util.find_spec('jax') is None, 'jax is not here')
  def test_jax(self):
    add_one = tff.jax.computation(lambda x: x + 1, np.float32)

    @tff.federated_computation(at_clients(np.float32))
    def computation(values):
      return tff.federated_sum(tff.federated_map(add_one, values))

    self._enter()
    for call in (lambda: add_one(1.0), lambda: computation([1.0])):
      with self.assertRaisesRegex(
          errors.UnsupportedComputationError,
          '(?i)(xla|jax).*tff.tensorflow.computation',
      ):
        call()
    self.assertEqual(_sum_of_roots([4.0]), 2.0)

  @parameterized.parameters(True, False)
  def test_function_as_a_result(self, is_alone):
    add_one = tff.tensorflow.computation(lambda x: x + 1, np.int32)

    @tff.federated_computation(np.int32)
    def computation(x):
      return add_one if is_alone else (x, add_one)

    self._enter()
    with self.assertRaisesRegex(
        errors.UnsupportedComputationError,
        r"returns a function \(its type is .*\(int32 -> int32\)",
    ):
      computation(1)

  def test_data_block(self):
    data = tff.framework.Data(any_pb2.Any(), tff.TensorType(np.int32))
    computation = tff.framework.ConcreteComputation(
        computation_proto=tff.framework.Lambda(None, None, data).proto,
        context_stack=tff.framework.get_context_stack(),
    )
    self._enter()
    with self.assertRaisesRegex(
        errors.UnsupportedComputationError, '(?i)data.*argument'
    ):
      computation()

  @parameterized.parameters(tf.numpy_function, tf.py_function)
  def test_python_functions(self, call_python):
    # Known to its process by a number, as long as nobody collects it.
    @tff.tensorflow.computation(np.int32)
    def add_one(x):
      result = call_python(lambda y: y + 1, [x], tf.int32)
      result.set_shape([])
      return result

    self._enter()
    with self.assertRaisesRegex(
        errors.UnsupportedComputationError,
        r'Python function in a TensorFlow computation of type \(int32 -> int32',
    ):
      add_one(1)

  def test_python_functions_below_a_dataset(self):
    @tff.tensorflow.computation(np.int32)
    def count(x):
      ones = tf.data.Dataset.from_generator(
          lambda: iter([1, 1]), output_signature=tf.TensorSpec([], tf.int32)
      )
      return ones.reduce(x, tf.add)

    self._enter()
    with self.assertRaisesRegex(
        errors.UnsupportedComputationError, 'Python function.*from_generator'
    ):
      count(1)

  def test_data_descriptor(self):
    descriptor = tff.framework.CreateDataDescriptor(
        arg_uris=['uri'], arg_type=tff.TensorType(np.int32)
    )

    @tff.federated_computation(at_clients(np.int32))
    def computation(values):
      return tff.federated_sum(values)

    self._enter()
    with self.assertRaisesRegex(
        (errors.UnsupportedComputationError, TypeError), '(?i)descriptor'
    ):
      computation(descriptor)


class RandomnessTest(_ContextTest):

  def _assert_fresh(self, samples):
    """Checks standard normal samples: none repeats, none goes with another."""
    for one, other in itertools.combinations(samples, 2):
      # No value in common, wherever it stands: they are float64.
      self.assertEmpty(np.intersect1d(one, other))
    num_pairs = len(samples) * (len(samples) - 1) / 2
    limit = scipy.stats.norm.isf(_FALSE_ALARM / num_pairs / 2)
    correlation = np.corrcoef(samples) * np.sqrt(len(samples[0]))
    np.fill_diagonal(correlation, 0)
    self.assertLess(np.abs(correlation).max(), limit)
    fit = scipy.stats.kstest(np.ravel(samples), 'norm')
    self.assertGreater(fit.pvalue, _FALSE_ALARM)

  @parameterized.parameters(1, 2)
  def test_every_client_and_call_draws_anew(self, num_workers):
    @tff.tensorflow.computation
    def draw():
      return tf.random.normal([400], dtype=tf.float64)

    @tff.federated_computation(at_clients(np.int32))
    def computation(values):
      drawn = tff.federated_eval(draw, tff.CLIENTS)
      # Aggregated too, so that the draw is fused with the accumulation, and
      # kept, so that it must be one draw, not two.
      return drawn, tff.federated_sum(drawn), tff.federated_sum(values)

    self._enter(num_workers)
    samples = []
    for _ in range(3):
      drawn, total, _ = computation([0] * 5)
      np.testing.assert_allclose(np.sum(drawn, axis=0), total, atol=1e-12)
      samples.extend(drawn)
    self._assert_fresh(samples)

  def test_two_draws_of_a_client_differ(self):
    @tff.tensorflow.computation
    def draw():
      return tf.random.normal([400], dtype=tf.float64)

    @tff.federated_computation(at_clients(np.int32))
    def computation(values):
      return (
          tff.federated_eval(draw, tff.CLIENTS),
          tff.federated_eval(draw, tff.CLIENTS),
          tff.federated_eval(draw, tff.SERVER),
          values,
      )

    self._enter()
    first, second, server, _ = computation([0, 0])
    self._assert_fresh([*first, *second, server])

  def test_a_global_seed_makes_no_context_predictable(self):
    @tff.tensorflow.computation
    def draw():
      return tf.random.normal([400], dtype=tf.float64)

    @tff.federated_computation(at_clients(np.int32))
    def computation(values):
      return tff.federated_eval(draw, tff.CLIENTS), values

    samples = []
    try:
      for _ in range(2):
        tf.random.set_seed(1)
        with execution.create_sync_in_process_context():
          samples.extend(computation([0, 0])[0])
    finally:
      tf.random.set_seed(None)
    self._assert_fresh(samples)

  @parameterized.parameters(1, 2)
  def test_unseeded_shuffle_and_generator(self, num_workers):
    @tff.tensorflow.computation
    def draw():
      order = tf.data.Dataset.range(100).shuffle(100).batch(100)
      generator = tf.random.Generator.from_non_deterministic_state()
      sample = generator.normal([400], dtype=tf.float64)
      return order.get_single_element(), sample

    @tff.federated_computation(at_clients(np.int32))
    def computation(values):
      return tff.federated_eval(draw, tff.CLIENTS), values

    self._enter(num_workers)
    drawn = [*computation([0] * 4)[0], *computation([0] * 4)[0]]
    orders = [tuple(order) for order, _ in drawn]
    self.assertLen(set(orders), 8)
    self._assert_fresh([sample for _, sample in drawn])

  def test_seeded_client_op_warns(self):
    seeded = tff.tensorflow.computation(lambda: tf.random.normal([2], seed=5))

    @tff.federated_computation(at_clients(np.int32))
    def computation(values):
      drawn = tff.federated_eval(seeded, tff.CLIENTS)
      return tff.federated_sum(drawn), tff.federated_sum(values)

    self._enter(2)
    with self.assertWarnsRegex(errors.SeededClientOpWarning, '(?i)seed'):
      computation([0, 0])

  def test_what_is_harmless_does_not_warn(self):
    @tff.tensorflow.computation(tff.TensorType(np.int32, [2]))
    def draw(seed):
      return tf.random.stateless_normal([2], seed) + tf.random.normal([2])

    seeded = tff.tensorflow.computation(lambda: tf.random.normal([2], seed=5))

    @tff.federated_computation(at_clients(tff.TensorType(np.int32, [2])))
    def computation(seeds):
      # On the server it is one draw per call, which nobody else repeats.
      once = tff.federated_eval(seeded, tff.SERVER)
      return tff.federated_sum(tff.federated_map(draw, seeds)), once

    self._enter()
    with warnings.catch_warnings():
      warnings.simplefilter('error', errors.SeededClientOpWarning)
      computation([_PAIR, _PAIR])


class EndTest(_ContextTest):

  def test_use_after_close(self):
    context = execution.create_sync_in_process_context()
    with context:
      self.assertEqual(_sum_of_roots([4.0]), 2.0)
    context.close()
    with tff.framework.get_context_stack().install(context):
      with self.assertRaisesRegex(errors.ContextClosedError, 'closed'):
        _sum_of_roots([4.0])

  def test_close_before_use_and_twice(self):
    context = execution.create_sync_in_process_context()
    context.close()
    context.close()

  def test_block_closes_on_an_error(self):
    with self.assertRaisesRegex(RuntimeError, 'on purpose'):
      with execution.create_sync_in_process_context() as context:
        raise RuntimeError('on purpose')
    self.assertIsNot(tff.framework.get_context_stack().current, context)
    with tff.framework.get_context_stack().install(context):
      with self.assertRaises(errors.ContextClosedError):
        _sum_of_roots([4.0])


class EndOfProcessTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    # A file, for AutoGraph reads the source.
    folder = cls.enterClassContext(tempfile.TemporaryDirectory())
    path = pathlib.Path(folder, 'child.py')
    path.write_text(_CHILD)
    cls.child = cls.enterClassContext(
        subprocess.Popen(
            [sys.executable, '-W', 'ignore:.*fork', path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ, PYTHONPATH=str(_ROOT)),
        )
    )

  def ask(self, line: str) -> None:
    print(line, file=self.child.stdin, flush=True)

  def read(self) -> list[str]:
    return self.child.stdout.readline().split()

  def assert_ends(self, code: int) -> None:
    what, at_the_end = self.read()
    self.assertEqual(what, 'end')
    *how, ended = self.read()
    self.assertEqual(how, ['ended', str(code)])
    self.assertLess(float(ended) - float(at_the_end), _SOON)

  @parameterized.parameters(
      ('closed', 0), ('exception', 1), ('async', 0)
  )
  def test_nothing_is_left_behind_at_exit(self, how, code):
    self.ask(f'end {how}')
    self.assert_ends(code)

  def test_interrupt_stops_loops_that_would_not_end(self):
    jobs = (
        'while_loop:1', 'while_loop:2', 'reduce_dataset:2', 'iterate_dataset:2'
    )
    self.ask(f'be_interrupted {" ".join(jobs)}')
    for job in jobs:
      with self.subTest(job):
        what, pid = self.read()
        self.assertEqual(what, 'start')
        time.sleep(0.3)  # Into the loop of the first clients.
        sent = time.monotonic()
        os.kill(int(pid), signal.SIGINT)
        what, told = self.read()
        self.assertEqual(what, 'interrupted')
        self.assertLess(float(told) - sent, _SOON)
    self.assert_ends(0)


if __name__ == '__main__':
  absltest.main()
