# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A real Flower SuperLink with two SuperNodes ends with the NumPy loop's weights.

Needs Flower, which cannot be installed beside TFF: `make test-flower`.
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

from absl.testing import absltest
import numpy as np
import pytest

from tests.integrations import plain_loop
from tff_dp.integrations import updates

pytest.importorskip('flwr', reason='Flower is not here: make test-flower')
from tests.integrations import flower_app  # pylint: disable=g-import-not-at-top

_ROOT = pathlib.Path(__file__).parents[2]
_SECONDS = 240
_APP = """
[project]
name = "tff-dp-test"
version = "1.0.0"
dependencies = []
[tool.flwr.app]
publisher = "tff_dp"
[tool.flwr.app.components]
serverapp = "flower_app:server_app"
clientapp = "flower_app:client_app"
"""
_CONFIG = """
[superlink]
default = "test"
[superlink.test]
address = "127.0.0.1:{}"
insecure = true
"""


def _free_ports(number):
  sockets = [socket.socket() for _ in range(number)]
  for each in sockets:
    each.bind(('127.0.0.1', 0))
  ports = [each.getsockname()[1] for each in sockets]
  for each in sockets:
    each.close()
  return ports


class FlowerTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir().full_path)
    self._app = self._folder / 'app'
    self._app.mkdir()
    (self._app / 'pyproject.toml').write_text(_APP)
    shutil.copy(flower_app.__file__, self._app / 'flower_app.py')
    self._bin = pathlib.Path(sys.executable).parent
    self._environment = os.environ | {
        'FLWR_HOME': str(self._folder / 'home'),
        'FLWR_TELEMETRY_ENABLED': '0',
        'PATH': f'{self._bin}:{os.environ["PATH"]}',
        'PYTHONPATH': str(_ROOT),
        'TFF_DP_TEST_FOLDER': str(self._folder),
    }

  def _start(self, *command) -> subprocess.Popen:
    log = open(self._folder / 'log', 'ab')
    self.addCleanup(log.close)
    process = subprocess.Popen(
        [self._bin / command[0], *command[1:]],
        env=self._environment, stdout=log, stderr=log, cwd=self._folder,
    )
    self.addCleanup(process.wait)
    self.addCleanup(process.terminate)
    return process

  def _run_app(self):
    if self._start('flwr', 'run', self._app).wait(_SECONDS):
      self.fail((self._folder / 'log').read_text()[-5000:])

  def _answers(self, port) -> bool:
    with socket.socket() as connection:
      return connection.connect_ex(('127.0.0.1', port)) == 0

  def _wait_until(self, is_so):
    end = time.monotonic() + _SECONDS
    while not is_so():
      if time.monotonic() > end:
        self.fail((self._folder / 'log').read_text()[-5000:])
      time.sleep(0.2)

  def test_killed_run_ends_with_the_weights_of_a_plain_loop(self):
    server, *nodes = _free_ports(3)
    home = self._folder / 'home'
    home.mkdir()
    (home / 'config.toml').write_text(_CONFIG.format(server))
    self._start(
        'flower-superlink', '--insecure',
        '--disable-runtime-dependency-installation',
        '--host', '127.0.0.1', '--port', str(server),
    )
    for index, port in enumerate(nodes):
      self._start(
          'flower-supernode', '--insecure',
          '--superlink', f'127.0.0.1:{server}', '--port', str(port),
          '--node-config', f'partition-id={index}',
      )
    self._wait_until(lambda: self._answers(server))
    self._run_app()
    self._wait_until((self._folder / 'killed').exists)
    self._run_app()
    self._wait_until((self._folder / 'weights.npz').exists)
    with np.load(self._folder / 'weights.npz') as arrays:
      found = {name: arrays[name] for name in plain_loop.initial_model()}
    expected = plain_loop.weights(lambda _: flower_app.CHANGES)
    np.testing.assert_array_equal(updates.flat(found), expected)
    secret = self._folder / 'run' / 'secret'
    complaints = (secret / 'clients.jsonl').read_text().splitlines()
    self.assertEqual(
        [json.loads(line)['problem'] for line in complaints],
        ['over the clip norm'] * plain_loop.NUM_ROUNDS,
    )
    statement = self._folder / 'run' / 'release' / 'privacy_statement.md'
    self.assertIn('Flower hands it the updates', statement.read_text())
    self.assertNotIn('tensorflow', sys.modules)


if __name__ == '__main__':
  absltest.main()
