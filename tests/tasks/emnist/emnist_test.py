# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the EMNIST task on a stand-in of 10 writers."""

import dataclasses
import functools
import json
import pathlib
import shutil
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from tasks import __main__ as tasks_main
from tasks.common import engine
from tasks.common import federated_settings
from tasks.emnist import emnist
from tasks.emnist import emnist_data
from tasks.emnist import emnist_models
from tasks.emnist import emnist_systems
from tests.cli import command
from tests.program import kills
from tff_dp.files import write_ahead
from tff_dp.program.display import documents
from tff_dp.systems.check_ins import windows

_WRITERS = 10
_SMALL = (
    '--stand-in', f'--writers={_WRITERS}', '--only-digits', '--model=linear',
    '--total-rounds=2', '--rounds-per-eval=2', '--client-batch-size=32',
)


def _main(*argv):
  return command.run(tasks_main.main, 'train', 'emnist', *argv)


class FlagsTest(parameterized.TestCase):

  def test_help_teaches_every_setting(self):
    code, out, _ = _main('--help')
    self.assertEqual(code, 0)
    for settings in (emnist.Settings, engine.EngineSettings):
      for field in dataclasses.fields(settings):
        self.assertIn('--' + field.name.replace('_', '-'), out)
    self.assertIn('48, 330 in run_emnist, 4 in', ' '.join(out.split()))

  @parameterized.named_parameters(
      ('both', ('--epsilon=1', '--noise-multiplier=1'), (
          '--noise-multiplier=1.0 is not allowed: expected nothing beside'
      )),
      ('unused', ('--system=isrl', '--mechanism=tree'), (
          '--mechanism=tree is not allowed: expected no value with isrl'
      )),
      ('published', ('--published', '--system=isrl'), '--system=isrl is not'),
      ('gap', ('--min-index-gap=0',), '--min-index-gap=0 is not allowed'),
      ('bands', ('--bands=3',), '--bands=3 is not allowed: expected no value'),
      ('epsilon', ('--system=isrl', '--epsilon=-1'), '--epsilon=-1.0 is not'),
      ('writers', ('--stand-in', '--writers=0'), '--writers=0 is not allowed'),
  )
  def test_a_bad_value_is_one_line(self, argv, named):
    code, out, err = _main(*argv)
    self.assertEqual((code, out), (2, ''))
    self.assertStartsWith(err, f'error: {named}')

  def test_published_settings_are_stated_without_data(self):
    folder = self.create_tempdir().full_path
    code, out, err = _main('--published', '--data-dir', folder)
    self.assertEqual(code, 3)
    self.assertIn('planned: epsilon', out)
    self.assertIn('noise multiplier: 0.01000000', out)
    self.assertIn('at most 10 times in 330 rounds', out)
    self.assertEqual(
        err.splitlines()[:2],
        [
            f'error: {folder}/emnist_all.sqlite is missing',
            'why: found in its folder: nothing',
        ],
    )
    self.assertStartsWith(err.splitlines()[2], 'try: name the folder')


class ModelTest(parameterized.TestCase):

  @parameterized.parameters(
      (emnist_models.CNN, 10, 1_663_370),
      (emnist_models.CNN, 62, 1_690_046),
      (emnist_models.SMALL, 10, 4_810),
      (emnist_models.SMALL, 62, 25_662),
      (emnist_models.LINEAR, 10, 250),
      (emnist_models.LINEAR, 62, 1_550),
  )
  def test_number_of_weights(self, name, num_classes, expected):
    model = emnist_models.build(name, num_classes, seed=0)
    self.assertEqual(model.count_params(), expected)


class RunTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.data = pathlib.Path(
        cls.enterClassContext(tempfile.TemporaryDirectory())
    )
    emnist_data.look(cls.data, stand_in_writers=_WRITERS)

  def setUp(self):
    super().setUp()
    self.enterContext(mock.patch.object(documents, 'write'))

  def _run(self, folder, *argv):
    return _main(
        '--output-dir', folder, '--data-dir', self.data, *_SMALL, *argv
    )

  def test_stand_in_has_what_the_loader_reads(self):
    contents = emnist_data.look(self.data, stand_in_writers=_WRITERS)
    for only_digits, num_classes in ((False, 62), (True, 10)):
      data = emnist_data.load(
          self.data,
          contents,
          only_digits=only_digits,
          batch_size=50,
          num_epochs=1,
      )
      self.assertEqual(data.num_classes, num_classes)
      self.assertLen(data.num_examples, _WRITERS)
      for writer, number in list(data.num_examples.items())[:2]:
        batches = list(
            data.train.create_tf_dataset_for_client(
                writer
            ).as_numpy_iterator()
        )
        pixels = np.concatenate([x for x, _ in batches])
        self.assertEqual(pixels.shape, (number, 28, 28, 1))
        # Ink on paper, and paper is 1.
        self.assertEqual((pixels.min(), pixels.max()), (0, 1))
        self.assertBetween(pixels.mean(), 0.7, 0.97)
      labels = np.concatenate([labels for _, labels in data.test])
      self.assertBetween(len(set(labels)), 0.8 * num_classes, num_classes)
      self.assertLess(max(labels), num_classes)

  def _plan(self, system, build):
    """Returns the plan that a system gives to the builder of its process."""
    settings = federated_settings.filled(
        emnist.Settings(system=system, total_rounds=3),
        emnist.COLUMNS[system],
        name=system,
    )
    model = mock.Mock()
    model.build.return_value.count_params.return_value = 250
    writers = dict.fromkeys(map(str, range(_WRITERS)), 50)
    process, _ = emnist_systems.build(settings, None, model, writers)
    self.assertIs(process, build.return_value)
    plan = build.call_args.args[1]
    self.assertEqual(plan.num_rounds, 3)
    return plan

  @mock.patch.object(emnist_systems.check_ins, 'build_check_in_sgd')
  def test_averaged_check_ins_have_their_plan(self, build):
    # The randomizer and the rest are those of the shuffled check-ins below.
    plan = self._plan('check-ins', build)
    self.assertIsInstance(plan.protocol, windows.AveragedCheckIn)
    self.assertBetween(plan.epsilon(delta=1e-4), 7, 8)

  @mock.patch.object(emnist_systems.draw_and_discard, 'build_draw_and_discard')
  def test_instances_have_their_plan(self, build):
    plan = self._plan('draw-and-discard', build)
    self.assertEqual(plan.step.clip_norm, 0.05)
    self.assertBetween(plan.epsilon(delta=1e-4), 7, 8)

  @parameterized.parameters(*emnist.SYSTEMS[2:])
  # `tasks/silos` trains with ISRL-DP, `tasks/draw_and_discard` with instances.
  @pytest.mark.slow(cases=['1', '2'])
  def test_every_system_trains_and_states(self, system):
    folder = pathlib.Path(self.create_tempdir()) / 'run'
    code, out, err = self._run(folder, '--system', system)
    self.assertEqual(code, 0, err)
    lines = err.splitlines()
    planned = next(i for i, line in enumerate(lines) if 'planned' in line)
    first = next(i for i, line in enumerate(lines) if 'round=1/2' in line)
    self.assertLess(planned, first)
    self.assertIn('planned: epsilon ', lines[planned])
    self.assertIn(f'| {system} |', out)
    row = json.loads((folder / 'results.json').read_text())['rows'][system]
    self.assertLessEqual(row['epsilon'], 8)
    self.assertGreater(row['epsilon'], 4)
    self.assertEqual(row['unit'], 'record' if system == 'isrl' else 'client')
    for text in (
        out, (folder / system / 'release/privacy_statement.md').read_text()
    ):
      self.assertIn('a stand-in for EMNIST: 10 invented writers', text)

  def test_a_killed_run_comes_to_the_same_files(self):
    parent = pathlib.Path(self.create_tempdir())
    flags = (
        '--total-rounds=3', '--clients-per-round=3', '--min-index-gap=3',
        '--mechanism=tree', '--progress=quiet',
    )
    begin = write_ahead.WriteAheadRecord.begin
    # Tracing takes longer than the rounds.
    build, arguments = emnist_systems.build, []
    built = functools.cache(lambda: build(*arguments))

    def build_once(*given):
      arguments[:] = given
      return built()

    self.enter_context(
        mock.patch.object(emnist_systems, 'build', build_once)
    )
    # And what is compiled belongs to a context.
    start = functools.partial(
        engine.start, engine.EngineSettings(), progress='quiet'
    )
    started = functools.cache(start)
    self.enter_context(
        mock.patch.object(engine, 'start', lambda *_, **__: started())
    )

    def run(name, killed_at=None):
      patch = mock.patch.object(
          write_ahead.WriteAheadRecord,
          'begin',
          kills.at_call(begin, killed_at, is_after=True),
      )
      with patch:
        return self._run(parent / name, *flags)

    with self.assertRaises(kills.Killed):
      run('whole', killed_at=1)
    # The same key of the noise.
    shutil.copytree(parent / 'whole', parent / 'parts')
    self.assertEqual(run('whole')[0], 0)
    with self.assertRaises(kills.Killed):
      run('parts', killed_at=2)
    code, out, err = run('parts')
    self.assertEqual(code, 0, err)
    kills.check_same_files(
        self, parent / 'whole/dp-ftrl_tree', parent / 'parts/dp-ftrl_tree'
    )


if __name__ == '__main__':
  absltest.main()
