# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the flags that say where a task computes."""

import argparse
import contextlib
import io
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tasks.common import engine
from tff_dp import _checks
from tff_dp import execution
from tff_dp.execution import cluster
from tff_dp.execution import contexts

_PREFIX = '/job:localhost/replica:0/task:0/device:'


def _parsed(*words: str, with_clusters=True) -> dict[str, object]:
  parser = argparse.ArgumentParser()
  parser.add_argument('--other', default='untouched')
  engine.add_arguments(parser, with_clusters=with_clusters)
  return vars(parser.parse_args(words))


def _start(settings, *, progress='plain', error=None):
  """Returns (arguments of `set_default_context`, stderr)."""
  context = mock.Mock(
      client_devices=(_PREFIX + 'GPU:1', _PREFIX + 'CPU:0', _PREFIX + 'GPU:1'),
      server_device=_PREFIX + 'CPU:0',
      num_workers=3,
  )
  err = io.StringIO()
  with (
      mock.patch.object(
          execution, 'set_default_context', return_value=context
      ) as make,
      contextlib.redirect_stderr(err),
  ):
    make.side_effect = error
    engine.start(settings, progress=progress)
  return make.call_args, err.getvalue()


class FlagsTest(parameterized.TestCase):

  def test_defaults_leave_the_choice_to_the_context(self):
    values = _parsed()
    self.assertEqual(engine.take_settings(values), engine.EngineSettings())
    self.assertEqual(values, {'other': 'untouched'})

  def test_flags_are_the_fields(self):
    values = _parsed(
        '--client-devices', 'GPU:0, cpu:0', '--server-device=CPU:0',
        '--max-concurrent-clients=3', '--context=in_process',
    )
    settings = engine.take_settings(values)
    self.assertEqual(settings.client_device_names, ['GPU:0', 'cpu:0'])
    self.assertEqual(settings.server_device, 'CPU:0')
    self.assertEqual(settings.max_concurrent_clients, 3)

  def test_tasks_that_cannot_run_there_offer_no_cluster(self):
    words = ('--context=dask', '--cluster-address=tcp://h:1')
    settings = engine.take_settings(_parsed(*words))
    self.assertEqual(
        settings,
        engine.EngineSettings(context='dask', cluster_address='tcp://h:1'),
    )
    with (
        contextlib.redirect_stderr(io.StringIO()) as err,
        self.assertRaises(SystemExit),
    ):
      _parsed('--context=dask', with_clusters=False)
    self.assertIn("invalid choice: 'dask'", err.getvalue())
    values = _parsed(with_clusters=False)
    self.assertEqual(engine.take_settings(values), engine.EngineSettings())

  @parameterized.product(
      field=('client_devices', 'server_device'),
      context=('native', 'dask', 'ray'),
  )
  def test_only_in_process_takes_devices(self, field, context):
    with self.assertRaisesRegex(
        _checks.ArgumentError, f"{field}='CPU:0' .*use --context=in_process"
    ):
      engine.EngineSettings(context=context, **{field: 'CPU:0'})

  @parameterized.parameters('native', 'in_process')
  def test_only_a_cluster_has_an_address(self, context):
    with self.assertRaisesRegex(_checks.ArgumentError, 'cluster_address='):
      engine.EngineSettings(context=context, cluster_address='host:1')

  @parameterized.parameters(0, -1, 1.5, True)
  def test_number_of_clients_at_a_time(self, value):
    with self.assertRaisesRegex(
        _checks.ArgumentError, f'max_concurrent_clients={value!r} '
    ):
      engine.EngineSettings(max_concurrent_clients=value)

  def test_unknown_context(self):
    with self.assertRaisesRegex(_checks.ArgumentError, "context='gpu' .*nativ"):
      engine.EngineSettings(context='gpu')


class StartTest(parameterized.TestCase):

  def test_cluster_gets_shards_and_loader(self):
    with (
        mock.patch.object(cluster, 'create_cluster_context') as create,
        mock.patch.object(contexts, 'install_default') as install,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
      install.return_value = mock.Mock(num_workers=5, num_shards=3)
      engine.start(
          engine.EngineSettings(
              context='ray', cluster_address='h:1', max_concurrent_clients=3
          ),
          progress='plain',
      )
    self.assertEqual(create.call_args.args, ('ray',))
    self.assertEqual(
        create.call_args.kwargs,
        {
            'address': 'h:1',
            'load_clients': 'tasks.common.cluster_clients:load',
            'num_shards': 3,
        },
    )
    self.assertIn('5 workers of ray, in 3 shards', err.getvalue())

  def test_in_process_gets_the_devices(self):
    arguments, _ = _start(
        engine.EngineSettings(
            client_devices='GPU:1,CPU:0,GPU:1',
            server_device='CPU:0',
            max_concurrent_clients=3,
        )
    )
    self.assertEqual(
        arguments,
        mock.call(
            'in_process',
            client_tf_devices=['GPU:1', 'CPU:0', 'GPU:1'],
            server_tf_device='CPU:0',
            max_concurrent_clients=3,
        ),
    )

  def test_native_gets_no_devices(self):
    arguments, err = _start(
        engine.EngineSettings(context='native', max_concurrent_clients=2)
    )
    self.assertEqual(
        arguments, mock.call('native', max_concurrent_clients=2)
    )
    self.assertEqual(err, '')

  def test_says_once_where_it_computes(self):
    self.assertEqual(
        _start(engine.EngineSettings())[1],
        'clients on GPU:1, CPU:0, 3 at a time; server on CPU:0\n',
    )
    self.assertEqual(
        _start(engine.EngineSettings(), progress='quiet')[1], ''
    )

  @parameterized.parameters(
      ('client_tf_devices', 'client_devices', 'CPU:0,GPU:9'),
      ('server_tf_device', 'server_device', 'GPU:9'),
  )
  def test_error_names_the_flag_and_what_was_typed(self, argument, flag, typed):
    error = _checks.ArgumentError(argument, ['x'], 'devices that exist')
    with self.assertRaises(_checks.ArgumentError) as caught:
      _start(engine.EngineSettings(**{flag: typed}), error=error)
    self.assertEqual(
        str(caught.exception),
        f"{flag}='{typed}' is not allowed: expected devices that exist.",
    )

  def test_another_error_stays_as_it_is(self):
    error = _checks.ArgumentError('kind', 'x', 'something')
    with self.assertRaises(_checks.ArgumentError) as caught:
      _start(engine.EngineSettings(), error=error)
    self.assertIs(caught.exception, error)


if __name__ == '__main__':
  absltest.main()
