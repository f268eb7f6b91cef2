# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the choice of devices, on made-up and on virtual ones."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import pytest
import tensorflow as tf

from tff_dp import _checks
from tff_dp.execution import devices

_ROOT = pathlib.Path(__file__).parents[2]
_PREFIX = '/job:localhost/replica:0/task:0/device:'
# Virtual devices can be made, and numbers of threads chosen, only before the
# runtime starts, so a new process tests the real ones. It loads TensorFlow once,
# which takes seconds; copies of it do first what a user may have done.
_CHILD = """
import json, os, sys
import tff_dp
import tensorflow as tf

for preparation in sys.argv[1:]:
  if not (copy := os.fork()):
    exec(preparation)
    from tff_dp import execution
    print(tf.config.threading.get_inter_op_parallelism_threads())
    sys.exit()
  if status := os.waitpid(copy, 0)[1]:
    sys.exit(status)

from tff_dp.execution import devices
# Raises once the runtime is up, which loading the module must leave alone.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices('CPU')[0],
    [tf.config.LogicalDeviceConfiguration()] * 3,
)
second = tf.config.list_logical_devices()[1]
chosen = devices.resolve(
    client_tf_devices=[second, 'cpu:2', second], server_tf_device='/cpu:1'
)
with tf.device(chosen.clients[1]):
  placed = tf.constant(1).device
try:
  devices.resolve(server_tf_device='CPU:3')
except ValueError as caught:
  error = str(caught)
print(json.dumps({
    'threads': tf.config.threading.get_inter_op_parallelism_threads(),
    'clients': chosen.clients,
    'server': chosen.server,
    'placed': placed,
    'error': error,
    'described': devices.describe(),
}))
"""


@contextlib.contextmanager
def _machine(*names: str, num_cores: int = 1):
  """Pretends that TensorFlow sees these logical devices."""
  seen = [
      tf.config.LogicalDevice(f'/device:{name}', name.partition(':')[0])
      for name in names
  ]
  with (
      mock.patch.object(
          tf.config, 'list_logical_devices', lambda kind=None: seen
      ),
      mock.patch.object(
          os, 'sched_getaffinity', lambda process: set(range(num_cores))
      ),
  ):
    yield


def _driver(*, is_there: bool):
  path = str(_ROOT if is_there else _ROOT / 'no such file')
  return mock.patch.multiple(
      devices, _DRIVER_FILE=path, _DRIVER_PROGRAM='no-such-program'
  )


class DefaultsTest(absltest.TestCase):

  def test_processor_without_a_gpu(self):
    for num_cores, num_workers in ((1, 1), (3, 3), (64, 8)):
      with _machine('CPU:0', 'CPU:1', num_cores=num_cores):
        chosen = devices.resolve()
      self.assertEqual(chosen.clients, (_PREFIX + 'CPU:0',) * num_workers)
      self.assertEqual(chosen.server, _PREFIX + 'CPU:0')

  def test_all_gpus_and_the_first_for_the_server(self):
    with _machine('CPU:0', 'GPU:0', 'GPU:1'):
      chosen = devices.resolve()
    self.assertEqual(chosen.clients, (_PREFIX + 'GPU:0', _PREFIX + 'GPU:1'))
    self.assertEqual(chosen.server, _PREFIX + 'GPU:0')

  def test_each_default_is_used_alone(self):
    with _machine('CPU:0', 'GPU:0', 'GPU:1'):
      chosen = devices.resolve(server_tf_device='CPU:0')
      self.assertEqual(chosen.clients, (_PREFIX + 'GPU:0', _PREFIX + 'GPU:1'))
      chosen = devices.resolve(client_tf_devices=['CPU:0'])
      self.assertEqual(chosen.server, _PREFIX + 'GPU:0')


class NamesTest(parameterized.TestCase):

  @parameterized.parameters(
      'GPU:1',
      'gpu:1',
      '/gpu:1',
      '/GPU:1',
      'device:GPU:1',
      '/device:GPU:1',
      '/DEVICE:gpu:1',
      '/job:localhost/replica:0/task:0/device:GPU:1',
      '/job:localhost/replica:0/task:0/gpu:1',
      (tf.config.LogicalDevice('/device:GPU:1', 'GPU'),),
  )
  def test_every_spelling_of_one_device(self, name):
    with _machine('CPU:0', 'GPU:0', 'GPU:1'):
      chosen = devices.resolve(client_tf_devices=[name], server_tf_device=name)
    self.assertEqual(chosen.clients, (_PREFIX + 'GPU:1',))
    self.assertEqual(chosen.server, _PREFIX + 'GPU:1')

  def test_order_and_repetition_are_kept(self):
    with _machine('CPU:0', 'CPU:1'):
      chosen = devices.resolve(client_tf_devices=('CPU:1', 'CPU:0', '/cpu:1'))
    self.assertEqual(
        [devices.short_name(name) for name in chosen.clients],
        ['CPU:1', 'CPU:0', 'CPU:1'],
    )

  @parameterized.parameters(
      '', 'CPU', '/CPU', 'CPU:', 'CPU:x', 'CPU:-1', 'CPU:0:1', '//CPU:0',
      ' CPU:0', 'CPU:0\n', '/job:localhost/CPU:0', 0, None, 1.5, b'CPU:0',
  )
  def test_malformed_name(self, name):
    with _machine('CPU:0', 'GPU:0'):
      with self.assertRaises(_checks.ArgumentError) as caught:
        devices.resolve(client_tf_devices=['CPU:0', name])
    self.assertEqual(caught.exception.argument, 'client_tf_devices')
    self.assertEqual(caught.exception.value, ['CPU:0', name])
    self.assertIn(
        f'such as CPU:0; {name!r} is not a name, the devices here are CPU:0,'
        ' GPU:0',
        str(caught.exception),
    )

  @parameterized.parameters(
      'GPU:0',
      'CPU:2',
      'XPU:0',
      '/job:worker/replica:0/task:0/device:CPU:0',
      (tf.config.LogicalDevice('/device:GPU:0', 'GPU'),),
  )
  def test_device_that_does_not_exist(self, device):
    name = getattr(device, 'name', device)
    with _machine('CPU:0', 'CPU:1'):
      with self.assertRaisesRegex(
          _checks.ArgumentError,
          rf"server_tf_device='{name}' .*sees here, CPU:0, CPU:1; .*not among",
      ):
        devices.resolve(server_tf_device=device)
      with self.assertRaisesRegex(
          _checks.ArgumentError,
          rf"client_tf_devices=\['CPU:0', '{name}'\] .*here, CPU:0, CPU:1;",
      ):
        devices.resolve(client_tf_devices=('CPU:0', device))

  @parameterized.parameters(
      'CPU:0',
      7,
      ({'CPU:0'},),
      (tf.config.LogicalDevice('/device:CPU:0', 'CPU'),),
  )
  def test_not_a_list(self, value):
    with _machine('CPU:0'):
      with self.assertRaisesRegex(
          _checks.ArgumentError, 'client_tf_devices=.*expected a list or tuple'
      ):
        devices.resolve(client_tf_devices=value)

  @parameterized.parameters([[]], [()])
  def test_no_device_at_all(self, value):
    with _machine('CPU:0', 'GPU:0'):
      with self.assertRaisesRegex(
          _checks.ArgumentError, 'at least one device, out of CPU:0, GPU:0'
      ):
        devices.resolve(client_tf_devices=value)

  def test_server_takes_one_device_only(self):
    with _machine('CPU:0'):
      with self.assertRaisesRegex(
          _checks.ArgumentError, r"server_tf_device=\['CPU:0'\]"
      ):
        devices.resolve(server_tf_device=['CPU:0'])


class RealDevicesTest(absltest.TestCase):

  @pytest.mark.slow
  def test_virtual_devices_and_numbers_of_threads(self):
    preparations = {
        'tf.config.threading.set_inter_op_parallelism_threads(3)': '3',
        "os.environ['TF_NUM_INTEROP_THREADS'] = '5'": '0',
        # Too late: the runtime is up.
        'tf.zeros([])': '0',
    }
    result = subprocess.run(
        [sys.executable, '-W', 'ignore:.*fork', '-c', _CHILD, *preparations],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=_ROOT,
        check=False,
    )
    self.assertEqual(result.returncode, 0, result.stderr)
    *numbers, last = result.stdout.splitlines()[-1 - len(preparations) :]
    self.assertEqual(numbers, list(preparations.values()))
    found = json.loads(last)
    # Twice as many as cores, unless somebody has chosen.
    self.assertEqual(found['threads'], 2 * len(os.sched_getaffinity(0)))
    second, third = _PREFIX + 'CPU:1', _PREFIX + 'CPU:2'
    self.assertEqual(found['clients'], [second, third, second])
    self.assertEqual(found['server'], second)
    self.assertEqual(found['placed'], third)
    self.assertIn('CPU:0, CPU:1, CPU:2', found['error'])
    self.assertEqual(
        [d for d in found['described']['devices'] if d['type'] == 'CPU'],
        [{'name': f'CPU:{i}', 'type': 'CPU'} for i in range(3)],
    )


class MemoryGrowthTest(parameterized.TestCase):

  def _grown(self, *, growths, splits=None, error=None):
    """Returns the cards that are told to grow, given the cards' settings."""
    cards = [
        tf.config.PhysicalDevice(f'/physical_device:GPU:{i}', 'GPU')
        for i in range(len(growths))
    ]
    splits = splits or [None] * len(growths)
    grown = []

    def grow(card, enable):
      if error is not None:
        raise error
      self.assertTrue(enable)
      grown.append(cards.index(card))

    with (
        _machine('CPU:0', 'GPU:0'),
        mock.patch.object(
            tf.config, 'list_physical_devices', lambda kind: cards
        ),
        mock.patch.object(
            tf.config,
            'get_logical_device_configuration',
            lambda card: splits[cards.index(card)],
        ),
        mock.patch.multiple(
            tf.config.experimental,
            get_memory_growth=lambda card: growths[cards.index(card)],
            set_memory_growth=grow,
        ),
    ):
      devices.resolve()
    return grown

  def test_all_cards_grow(self):
    self.assertEqual(self._grown(growths=[None, None]), [0, 1])

  @parameterized.parameters(True, False)
  def test_a_choice_for_one_card_is_left_alone(self, choice):
    self.assertEmpty(self._grown(growths=[None, choice]))

  def test_split_cards_are_left_alone(self):
    part = tf.config.LogicalDeviceConfiguration(memory_limit=100)
    self.assertEmpty(self._grown(growths=[None, None], splits=[None, [part]]))

  @parameterized.parameters(RuntimeError('is up'), ValueError('is split'))
  def test_a_runtime_that_is_up_is_no_error(self, error):
    self.assertEmpty(self._grown(growths=[None], error=error))


class AdviceTest(parameterized.TestCase):

  def _advice(self, *, variables=(), cards=(), has_driver=True, has_cuda=True):
    with (
        _driver(is_there=has_driver),
        mock.patch.dict('os.environ', dict(variables)),
        mock.patch.object(
            tf.config, 'list_physical_devices', lambda kind: list(cards)
        ),
        mock.patch.object(tf.test, 'is_built_with_cuda', lambda: has_cuda),
        mock.patch.dict('os.environ') as environment,
    ):
      if not variables:
        environment.pop('CUDA_VISIBLE_DEVICES', None)
      return devices.unused_gpu_advice()

  def test_nothing_to_say_without_a_driver_or_with_a_gpu(self):
    self.assertEqual(self._advice(has_driver=False), '')
    self.assertEqual(self._advice(cards=['GPU:0']), '')

  def test_missing_libraries(self):
    self.assertRegex(self._advice(), 'sees no GPU: .* requirements.cuda.lock')

  @parameterized.parameters('', '-1')
  def test_hidden_by_the_environment(self, value):
    advice = self._advice(variables={'CUDA_VISIBLE_DEVICES': value})
    self.assertIn(f'CUDA_VISIBLE_DEVICES={value!r} hides it', advice)

  def test_tensorflow_without_cuda(self):
    self.assertIn('built without CUDA', self._advice(has_cuda=False))

  def test_description_names_the_defaults_and_the_reason(self):
    with (
        _machine('CPU:0'),
        mock.patch.object(devices, 'unused_gpu_advice', lambda: 'because'),
    ):
      self.assertEqual(
          devices.describe(),
          {
              'devices': [{'name': 'CPU:0', 'type': 'CPU'}],
              'clients': ['CPU:0'],
              'server': 'CPU:0',
              'advice': 'because',
          },
      )


if __name__ == '__main__':
  absltest.main()
