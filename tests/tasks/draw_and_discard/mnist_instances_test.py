# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the sweeps of Draw and Discard, on a few made digits."""

import argparse
import json
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from tasks.common import digits_data
from tasks.common import engine
from tasks.draw_and_discard import mnist_instances
from tasks.draw_and_discard import mnist_instances_rows
from tasks.mnist import mnist_data
from tff_dp.program.display import documents


def _digits(count, seed):
  """Returns digits whose class is which rows of pixels are bright."""
  rng = np.random.default_rng(seed)
  labels = (np.arange(count) % 10).astype(np.int32)
  images = rng.integers(0, 60, [count, 28, 28]).astype(np.uint8)
  for image, label in zip(images, labels):
    image[2 * label : 2 * label + 3] = 255
  return digits_data.Digits(images, labels)


def _run(settings):
  return mnist_instances.run(settings, where=_WHERE, progress='quiet')


_WHERE = engine.EngineSettings()


@pytest.mark.once  # A training on each stack is in `tasks/digits`.
class MnistInstancesTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    data = mnist_data.Mnist(_digits(160, 1), _digits(80, 2), name='made')
    self.enter_context(
        mock.patch.object(mnist_data, 'load', lambda source, is_full_size: data)
    )
    self.enter_context(mock.patch.object(documents, 'write'))
    self._folder = pathlib.Path(self.create_tempdir())

  def _settings(self, **changes):
    return mnist_instances.Settings(
        **dict(
            output_dir=str(self._folder),
            experiments=('epsilon',),
            epsilons=(0.5,),
            images_per_client=4,
            passes=1,
            learning_rate=0.02,
        )
        | changes
    )

  def test_sweep_writes_reports_and_is_resumed(self):
    settings = self._settings()
    self.assertEqual(
        mnist_instances.main(settings, where=_WHERE, progress='quiet'), 0
    )
    rows = json.loads((self._folder / 'results.json').read_text())['rows']
    plain, noised = rows
    # Of 160 updates with secret coins one in eight has an accuracy below 0.3.
    self.assertBetween(plain['accuracy'], 0.0, 1.0)
    self.assertLess(plain['loss'], noised['loss'])
    self.assertEqual(plain['points'][-1][0], 160)
    self.assertIsNone(plain['model_epsilon'])
    # 785 * 10 weights, each with 0.5.
    self.assertAlmostEqual(noised['model_epsilon'], 3925.0, places=6)
    # Beyond some hundreds no epsilon is stated, since draws end.
    self.assertIsNone(noised['total_epsilon'])
    self.assertIn('| 0.5 | 3.9', (self._folder / 'results.md').read_text())
    self.assertGreater((self._folder / 'results.png').stat().st_size, 1000)
    with mock.patch.object(mnist_instances_rows, 'run_row') as run_row:
      again = _run(settings)
    run_row.assert_not_called()
    self.assertEqual(json.loads(json.dumps(again)), rows)
    with mock.patch.object(
        mnist_instances_rows, 'run_row', side_effect=KeyboardInterrupt
    ), self.assertRaises(KeyboardInterrupt):
      _run(self._settings(seed=1))

  def test_rows(self):
    rows = mnist_instances_rows.rows_of(
        mnist_instances.Settings(
            instances=(1, 2), batches=(3,), epsilons=(1.5,),
            strategy_instances=4, low_rate_instances=(7,),
        )
    )
    self.assertEqual(
        [row.name for row in rows],
        [
            'draw_and_discard_k1', 'draw_and_discard_k2', 'server_batch_n3',
            'draw_and_discard_k10', 'draw_and_discard_k20',
            'draw_and_discard_k10', 'draw_and_discard_k10_eps1.5',
            'draw_and_discard_k4', 'same_k4', 'accept_1_over_k_k4',
            'average_random_k4', 'average_same_k4',
            'draw_and_discard_k7_rate0.0001', 'same_k7_rate0.0001',
            'accept_1_over_k_k7_rate0.0001', 'average_random_k7_rate0.0001',
            'average_same_k7_rate0.0001',
        ],
    )
    settings = self._settings(learning_rate=0.5)
    rates = [row.plan(settings, 9).step.learning_rate for row in rows]
    self.assertEqual((rates[0], rates[-1]), (0.5, 0.0001))

  def test_full_fills_what_was_not_given(self):
    filled = mnist_instances.Settings(full=True, instances=(3,)).filled()
    self.assertEqual(filled.instances, (3,))
    self.assertEqual(filled.passes, 20)
    self.assertEqual(filled.batches, (10, 100, 1000, 10_000))
    self.assertEqual(mnist_instances.Settings().filled().passes, 5)

  def test_batches_come_in_rounds_that_they_are_made_of(self):
    settings = self._settings(passes=20).filled()
    for batch, of_round in ((10, 10), (1000, 100), (10_000, 100), (30, 10)):
      row = mnist_instances_rows.Row('batches', 'server_batch', 1, batch)
      plan = row.plan(settings, 6000)
      self.assertEqual(plan.clients_per_round, of_round)
      self.assertEqual(plan.server_batch, batch)
      self.assertEqual(plan.num_rounds, 120_000 // of_round)
    pool = mnist_instances_rows.Row('instances', 'same', 20).plan(settings, 50)
    self.assertEqual((pool.clients_per_round, pool.num_rounds), (1, 1000))

  @parameterized.parameters(
      (dict(experiments=('other',)), 'experiments='),
      (dict(instances=(0,)), 'instances=0'),
      (dict(batches=(0,)), 'batches=0'),
      (dict(epsilons=(-1.0,)), 'epsilons=-1.0'),
      (dict(passes=0), 'passes=0'),
      (dict(low_rate_instances=(0,)), 'low_rate_instances=0'),
      (dict(low_learning_rate=0.0), 'low_learning_rate=0'),
      (dict(learning_rate=0.0), 'learning_rate=0'),
  )
  def test_bad_flags_name_themselves(self, changes, message):
    with self.assertRaisesRegex(ValueError, message):
      self._settings(**changes)

  def test_a_batch_beyond_the_run_is_refused(self):
    with self.assertRaisesRegex(ValueError, 'batches=1000'):
      _run(self._settings(experiments=('batches',), batches=(1000,)))

  def test_flags_have_the_defaults_of_the_settings(self):
    parser = argparse.ArgumentParser()
    mnist_instances.add_arguments(parser)
    self.assertEqual(
        mnist_instances.Settings(**vars(parser.parse_args([]))),
        mnist_instances.Settings(),
    )


if __name__ == '__main__':
  absltest.main()
