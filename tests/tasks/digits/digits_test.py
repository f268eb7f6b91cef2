# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the digits task: its flags, its plans, and one small real run."""

import dataclasses
import json
import pathlib
import shutil
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import pytest

from tasks import __main__ as tasks_main
from tasks.common import engine
from tasks.digits import comparison
from tasks.digits import digits
from tests.cli import command


def _main(*argv):
  return command.run(tasks_main.main, *argv)


class FlagsTest(parameterized.TestCase):

  def test_help_teaches_every_setting(self):
    code, out, _ = _main('train', 'digits', '--help')
    self.assertEqual(code, 0)
    for settings in (digits.Settings, engine.EngineSettings):
      for field in dataclasses.fields(settings):
        if field.name != 'cluster_address':  # The task has no cluster.
          self.assertIn('--' + field.name.replace('_', '-'), out)
    self.assertNotIn('cluster', out)
    self.assertIn('examples:', out)

  def test_list_names_the_task(self):
    listed = _main('list')[1]
    self.assertIn('train digits', listed)
    self.assertIn('sweep heart', listed)

  @parameterized.named_parameters(
      ('task', ('train', 'letters'), 'TASK=letters', 2),
      (
          'other_command',
          ('train', 'heart'),
          'try: python -m tasks sweep heart\n',
          2,
      ),
      ('rounds', ('train', 'digits', '--total-rounds=0'), '--total-rounds=0', 2),
      ('buffers', ('train', 'digits', '--buffers=9'), '--buffers=9', 2),
      (
          'bands',
          ('train', 'digits', '--mechanism=banded', '--bands=0'),
          '--bands=0',
          2,
      ),
      ('command', ('paint',), 'no command paint', 2),
      ('noise', ('train', 'digits', '--epsilon=-1'), '--epsilon=-1.0', 2),
      ('delta', ('train', 'digits', '--delta=1'), '--delta=1.0', 2),
      (
          'cohort',
          ('train', 'digits', '--clients-per-round=5000'),
          '--clients-per-round=5000',
          2,
      ),
      (
          'separation',
          ('train', 'digits', '--min_index_gap=126'),
          '--min-index-gap=126 is not allowed: expected at most 125',
          2,
      ),
      ('clip', ('train', 'digits', '--l2-norm-clip=0'), '--l2-norm-clip', 2),
      ('word', ('train', 'digits', '--total-rounds=ten'), "'ten'", 2),
      ('flag', ('train', 'digits', '--colour=red'), '--colour', 2),
      ('context', ('train', 'digits', '--context=cloud'), "'cloud'", 2),
      (
          'workers',
          ('train', 'digits', '--max-concurrent-clients=0'),
          '--max-concurrent-clients=0 is not allowed: expected an integer of',
          2,
      ),
      (
          'client_device',
          ('train', 'digits', '--client-devices=CPU:0,GPU:77'),
          '--client-devices=CPU:0,GPU:77 is not allowed: expected devices that'
          ' TensorFlow sees here, CPU:0',
          2,
      ),
      (
          'server_device',
          ('train', 'digits', '--server_device=processor'),
          '--server-device=processor is not allowed: expected names such as',
          2,
      ),
      (
          'native_device',
          ('train', 'digits', '--context=native', '--client-devices=CPU:0'),
          '--client-devices=CPU:0 is not allowed: expected no value with'
          ' --context=native: its workers choose their devices themselves. Leave'
          ' the flag out, or use --context=in_process',
          2,
      ),
  )
  def test_a_bad_value_is_one_line_and_nothing_is_written(
      self, argv, named, status
  ):
    folder = pathlib.Path(self.create_tempdir()) / 'run'
    if 'digits' in argv:
      argv += ('--output-dir', folder)
    code, out, err = _main(*argv)
    self.assertEqual(code, status)
    self.assertEqual(out, '')
    self.assertStartsWith(err, 'error: ')
    self.assertIn(named, err)
    self.assertFalse(folder.exists())


class PlansTest(absltest.TestCase):

  def test_rows_share_everything_but_the_noise(self):
    settings = digits.Settings()
    plans = digits.build_plans(settings)
    spent = {
        name: plan.epsilon(delta=settings.delta) for name, plan in plans.items()
    }
    self.assertBetween(
        spent['dp_ftrl'], 0.9999 * settings.epsilon, settings.epsilon
    )
    self.assertBetween(
        spent['independent'], 0.9999 * settings.epsilon, settings.epsilon
    )
    self.assertEqual(spent['non_private'], float('inf'))
    for plan in plans.values():
      self.assertEqual(plan.participation, plans['dp_ftrl'].participation)
      self.assertEqual(plan.l2_norm_clip, settings.l2_norm_clip)

  def test_clients_that_draw_their_rounds_come_as_often(self):
    settings = digits.Settings(
        rows=('allocation', 'cyclic'), total_rounds=12, min_index_gap=6
    )
    allocation, cyclic = digits.build_plans(settings).values()
    self.assertEqual(allocation.protocol.stride, 1)
    self.assertEqual(allocation.mechanism.name, 'independent')
    self.assertGreater(cyclic.protocol.stride, 1)
    self.assertEqual(cyclic.mechanism.name, 'banded')
    for plan in (allocation, cyclic):
      self.assertBetween(
          plan.epsilon(delta=settings.delta),
          0.999 * settings.epsilon,
          settings.epsilon,
      )
      self.assertEqual(plan.l2_norm_clip, settings.l2_norm_clip)
      self.assertEqual(plan.protocol.max_reports, 2)
      expected = plan.protocol.check_in_probability * 2 * settings.num_clients
      self.assertAlmostEqual(expected / 12, settings.clients_per_round)


class ComparisonTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.create_tempdir())
    row = comparison.Row('a', 'tree', 1.0, 2.0, 2.0, 1e-5, 3, ((3, 0.5),))
    self.rows = [row]

  def test_counts_as_written_only_with_its_picture(self):
    with mock.patch.object(comparison, '_plot', side_effect=KeyboardInterrupt):
      with self.assertRaises(KeyboardInterrupt):
        comparison.write(self.rows, self.folder)
    self.assertIsNone(comparison.names(self.folder))
    comparison.write(self.rows, self.folder)
    self.assertEqual(comparison.names(self.folder), ['a'])

  def test_a_run_takes_the_earlier_one_back(self):
    comparison.write(self.rows, self.folder)
    settings = digits.Settings(
        output_dir=str(self.folder), rows=('non_private',)
    )
    with mock.patch.object(
        digits.digits_data, 'load_clients', side_effect=KeyboardInterrupt
    ), self.assertRaises(KeyboardInterrupt):
      digits.run(settings, where=engine.EngineSettings(), progress='quiet')
    self.assertIsNone(comparison.names(self.folder))


# The task of MNIST trains on each stack.
@pytest.mark.once
class RunTest(absltest.TestCase):

  _ROWS = ('dp_ftrl', 'cyclic', 'non_private')
  _FLAGS = (
      '--total-rounds=4', '--clients-per-round=8', '--min-index-gap=2',
      '--rounds-per-eval=2', '--epsilon=3', '--progress=plain',
  )

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    # Tracing a process takes longer than its rounds.
    built = {}
    for module, name in (
        (digits.dp_ftrl, 'build_dp_ftrl'),
        (digits.allocation, 'build_allocation_sgd'),
    ):
      build = getattr(module, name)

      def build_once(model_fn, plan, *, build=build, **options):
        if repr(plan) not in built:
          built[repr(plan)] = build(model_fn, plan, **options)
        return built[repr(plan)]

      cls.enterClassContext(mock.patch.object(module, name, build_once))
    # So does calibrating the plans.
    build_plans, plans = digits.build_plans, {}

    def build_plans_once(settings):
      if repr(settings) not in plans:
        plans[repr(settings)] = build_plans(settings)
      return plans[repr(settings)]

    cls.enterClassContext(
        mock.patch.object(digits, 'build_plans', build_plans_once)
    )
    cls.folder = pathlib.Path(
        cls.enterClassContext(tempfile.TemporaryDirectory())
    )
    cls.flags = (
        'train', 'digits', '--output-dir', cls.folder, *cls._FLAGS, '--rows',
        *cls._ROWS,
    )
    cls.code, cls.out, cls.err = _main(*cls.flags)

  def test_small_run_compares_and_states(self):
    self.assertEqual(self.code, 0, self.err)
    self.assertRegex(
        self.err, r'clients on .PU:0, \d+ at a time; server on .PU:0'
    )
    self.assertIn('without amplification, but for cyclic,', self.out)
    for row in self._ROWS:
      self.assertIn(f'| {row} |', self.out)
      self.assertTrue(
          (self.folder / row / 'release' / 'privacy_statement.md').exists()
      )
    self.assertIn('NO PRIVACY', self.out)
    content = json.loads((self.folder / 'comparison.json').read_text())
    self.assertEqual([row['num_rounds'] for row in content['rows']], [4, 4, 4])
    for row in content['rows'][:2]:
      self.assertBetween(row['epsilon'], 2.99, 3)
    self.assertIsNone(content['rows'][1]['epsilon_rdp'])
    self.assertGreater((self.folder / 'comparison.png').stat().st_size, 5000)

  def test_the_same_command_again_finds_everything_done(self):
    code, out, err = _main(*self.flags)
    self.assertEqual((code, out), (0, self.out))
    self.assertIn('already finished', err)

  @pytest.mark.reference_only(reason="needs TFF's worker")
  def test_the_worker_trains_the_same_model(self):
    folder = pathlib.Path(self.create_tempdir()) / 'run'
    code, _, err = _main(
        'train', 'digits', '--output-dir', folder, *self._FLAGS, '--rows',
        'non_private', '--context=native', '--max-concurrent-clients=1',
    )
    self.assertEqual(code, 0, err)
    (row,) = json.loads((folder / 'comparison.json').read_text())['rows']
    *_, here = json.loads((self.folder / 'comparison.json').read_text())['rows']
    # Of 1,000 held-out digits, rounding may turn one or two.
    self.assertAlmostEqual(
        row['test_accuracy'], here['test_accuracy'], delta=0.002
    )

  def test_another_run_in_the_same_folder_is_refused(self):
    folder = pathlib.Path(self.create_tempdir()) / 'run'
    shutil.copytree(self.folder, folder)
    before = (folder / 'dp_ftrl/release/metrics.csv').read_bytes()
    code, _, err = _main(
        *self.flags, '--output-dir', folder, '--client-learning-rate=3'
    )
    self.assertEqual(code, 2)
    self.assertIn('--output-dir', err)
    self.assertIn('client_learning_rate', err)
    self.assertEqual(
        before, (folder / 'dp_ftrl/release/metrics.csv').read_bytes()
    )


if __name__ == '__main__':
  absltest.main()
