# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A real Flower SuperLink with two SuperNodes ends as a NumPy loop does.

Needs Flower, which cannot be installed beside TFF: `make test-flower`.
"""

import datetime
import ipaddress
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
# Flower asks for cryptography.
# pylint: disable=g-import-not-at-top
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.integrations import flower_app
# pylint: enable=g-import-not-at-top

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
root-certificates = "{}"
"""


def _private_key(
    path: pathlib.Path, form: serialization.PrivateFormat
) -> ec.EllipticCurvePrivateKey:
  """Makes a key, and writes it into a file."""
  key = ec.generate_private_key(ec.SECP384R1())
  path.write_bytes(
      key.private_bytes(
          serialization.Encoding.PEM,
          form,
          serialization.NoEncryption(),
      )
  )
  return key


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
    self._running = []
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
    self._running.append(process)
    self.addCleanup(process.wait)
    self.addCleanup(process.terminate)
    return process

  def _run_app(self):
    self._finish('flwr', 'run', self._app)

  def _finish(self, *command):
    if self._start(*command).wait(_SECONDS):
      self.fail((self._folder / 'log').read_text()[-5000:])

  def _certificate(self) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes the certificate and the key of the SuperLink."""
    certificate, key = self._folder / 'link.pem', self._folder / 'link.key'
    private = _private_key(key, serialization.PrivateFormat.PKCS8)
    name = x509.Name(
        [x509.NameAttribute(x509.NameOID.COMMON_NAME, 'localhost')]
    )
    now = datetime.datetime.now(datetime.timezone.utc)
    host = x509.IPAddress(ipaddress.ip_address('127.0.0.1'))
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([host]), critical=False)
        .add_extension(x509.BasicConstraints(True, None), critical=True)
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    return certificate, key

  def _register(self, key: pathlib.Path):
    """Makes the key of a SuperNode and registers it."""
    public = key.with_suffix('.pub')
    public.write_bytes(
        _private_key(key, serialization.PrivateFormat.OpenSSH)
        .public_key()
        .public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
    )
    self._finish('flwr', 'supernode', 'register', public, 'test')

  def _answers(self, port) -> bool:
    with socket.socket() as connection:
      return connection.connect_ex(('127.0.0.1', port)) == 0

  def _wait_until(self, is_so):
    end = time.monotonic() + _SECONDS
    while not is_so():
      if time.monotonic() > end or any(each.poll() for each in self._running):
        self.fail((self._folder / 'log').read_text()[-5000:])
      time.sleep(0.2)

  def test_killed_run_ends_with_the_weights_of_a_plain_loop(self):
    server, *nodes = _free_ports(3)
    home = self._folder / 'home'
    home.mkdir()
    certificate, key = self._certificate()
    (home / 'config.toml').write_text(_CONFIG.format(server, certificate))
    self._start(
        'flower-superlink', '--enable-supernode-auth',
        '--ssl-certfile', certificate, '--ssl-keyfile', key,
        '--ssl-ca-certfile', certificate,
        '--disable-runtime-dependency-installation',
        '--host', '127.0.0.1', '--port', str(server),
    )
    self._wait_until(lambda: self._answers(server))

    def connect(index):
      return self._start(
          'flower-supernode', '--root-certificates', certificate,
          '--auth-supernode-private-key', self._folder / f'node{index}',
          '--superlink', f'127.0.0.1:{server}', '--port', str(nodes[index]),
          '--node-config', f'partition-id={index}',
      )

    for index in range(2):
      self._register(self._folder / f'node{index}')
    supernodes = [connect(index) for index in range(2)]
    self._run_app()
    self._wait_until((self._folder / 'killed').exists)
    # A node that comes back with its key is the same client.
    supernodes[1].terminate()
    supernodes[1].wait()
    self._running.remove(supernodes[1])
    connect(1)
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
