# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Engines on this machine let in nobody who lacks their certificate or token.

Needs the engines: `make test-cluster` runs it. The attacker is another process,
as one of another user is: it has the address, and not our environment.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _checks
from tff_dp.execution import cluster
from tff_dp.execution.cluster import dask_engine
from tff_dp.execution.cluster import engine

_ROOT = pathlib.Path(__file__).parents[2]
_HAS_ENGINES = all(map(importlib.util.find_spec, ('distributed', 'ray')))
# Arguments: an address. Each runs code on a worker, and prints what it returned.
_DASK_ATTACK = """
import os, sys
import distributed
client = distributed.Client(sys.argv[1], timeout=10)
print('code ran:', client.run(os.getpid))
os._exit(0)
"""
_RAY_ATTACK = """
import sys
import ray
ray.init(address=sys.argv[1], log_to_driver=False)
print('code ran:', ray.get(ray.remote(lambda: 1).remote()))
"""
# In a process of its own, since Ray reads its settings once.
_RAY_DRIVER = """
import os, subprocess, sys
attack, how = sys.argv[1:]
if how == 'ray first':
  import ray
from tff_dp.execution.cluster import ray_engine
try:
  engine = ray_engine.RayEngine(num_workers=1)
except Exception as error:
  print(type(error).__name__, error)
  sys.exit()
import ray
print('ours:', engine.submit(lambda data: data, [], b'7').result(60))
address = ray.get_runtime_context().gcs_address
ray_engine.RayEngine(address)
try:
  ray_engine.RayEngine('10.0.0.1:6379')
except Exception as error:
  print('elsewhere:', type(error).__name__, error)
environment = {
    k: v for k, v in os.environ.items()
    if 'RAY_AUTH' not in k or how == 'our token'
}
if how == 'guess':
  environment |= {'RAY_AUTH_MODE': 'token', 'RAY_AUTH_TOKEN': '0' * 64}
done = subprocess.run([sys.executable, '-c', attack, address], env=environment,
                      capture_output=True, text=True, timeout=120)
print('attack:', done.stdout)
engine.close()
"""


def _ray(how: str) -> str:
  environment = {k: v for k, v in os.environ.items() if 'RAY_AUTH' not in k}
  done = subprocess.run(
      [sys.executable, '-c', _RAY_DRIVER, _RAY_ATTACK, how],
      cwd=_ROOT,
      env=environment,
      stdin=subprocess.DEVNULL,
      capture_output=True,
      text=True,
      timeout=300,
      check=True,
  )
  return done.stdout


def _dask_attack(address: str) -> subprocess.CompletedProcess:
  return subprocess.run(
      [sys.executable, '-c', _DASK_ATTACK, address],
      capture_output=True,
      text=True,
      timeout=120,
      check=False,
  )


@absltest.skipUnless(_HAS_ENGINES, 'needs Ray and Dask: make test-cluster')
class LocalEnginesTest(parameterized.TestCase):

  def test_dask(self):
    engine = dask_engine.DaskEngine(num_workers=1)
    self.addCleanup(engine.close)
    self.assertEqual(engine.submit(max, [], b'7').result(60), ord('7'))
    address = engine._cluster.scheduler_address  # pylint: disable=protected-access
    self.assertStartsWith(address, 'tls://127.0.0.1:')
    for attacked in (address, address.replace('tls', 'tcp')):
      done = _dask_attack(attacked)
      self.assertNotIn('code ran', done.stdout)
      self.assertNotEqual(done.returncode, 0)

  def test_dask_without_certificates(self):
    # So the attack fails for want of the certificate alone.
    import distributed  # pylint: disable=g-import-not-at-top

    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None
    ) as unguarded:
      done = _dask_attack(unguarded.scheduler_address)
    self.assertIn('code ran', done.stdout)

  @parameterized.parameters('no token', 'guess')
  def test_ray(self, how):
    found = _ray(how)
    self.assertIn("ours: b'7'", found)
    self.assertIn('attack:', found)
    self.assertNotIn('code ran', found)

  def test_ray_with_the_token(self):
    # So the attack fails for want of the token alone.
    found = _ray('our token')
    self.assertIn('code ran: 1', found)
    # Work meant for one cluster does not go to another.
    self.assertRegex(found, "elsewhere: ClusterError address='10.0.0.1:6379'")

  def test_ray_that_would_be_open_is_refused(self):
    found = _ray('ray first')
    self.assertRegex(found, '^ClusterError .*RAY_AUTH_MODE=token')


@absltest.skipUnless(_HAS_ENGINES, 'needs Ray and Dask: make test-cluster')
class SecurityTest(absltest.TestCase):

  def test_certificates_of_the_caller(self):
    import distributed  # pylint: disable=g-import-not-at-top

    security = distributed.Security.temporary()
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        dashboard_address=None,
        security=security,
    ) as theirs:
      engine = dask_engine.DaskEngine(
          theirs.scheduler_address, security=security
      )
      self.addCleanup(engine.close)
      self.assertEqual(engine.submit(max, [], b'7').result(60), ord('7'))
      with self.assertRaises(Exception):
        dask_engine.DaskEngine(
            theirs.scheduler_address,
            security=distributed.Security.temporary(),
        )

  def test_certificates_that_would_not_be_used(self):
    import distributed  # pylint: disable=g-import-not-at-top

    security = distributed.Security.temporary()
    for arguments in (
        dict(engine='dask', security=security, address='tcp://host:8786'),
        dict(engine='dask', security=security, address='host:8786'),
        dict(engine='dask', security=True),
        dict(engine='ray', security=security),
        dict(engine=engine.LocalEngine(), security=security),
    ):
      with self.assertRaises(_checks.ArgumentError):
        cluster.create_cluster_context(num_shards=1, **arguments)


if __name__ == '__main__':
  absltest.main()
