# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of Fig. 1a: noise at equal epsilon, a small run, the verdict."""

import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import pytest

from tasks.mnist import mnist_data
from tasks.mnist import mnist_model
from tasks.reproduce import dp_ftrl_mnist
from tasks.reproduce import rows
from tests.execution import conformance
from tff_dp import program
from tff_dp.program.display import documents

pytestmark = pytest.mark.once
_TREE, _BLT, _AMPLIFIED, _UNAMPLIFIED = dp_ftrl_mnist.METHODS


class CellTest(parameterized.TestCase):

  @parameterized.parameters(*dp_ftrl_mnist.METHODS)
  def test_every_method_keeps_the_same_epsilon(self, method):
    found = dp_ftrl_mnist.cell(method, 2.0, steps=480, records=60_000)
    epsilon = found.plan.epsilon(delta=1e-5)
    self.assertBetween(epsilon, 1.99, 2.0)
    self.assertEqual(found.plan.num_rounds, 480)
    self.assertEqual(found.plan.clients_per_round, 250)
    # The noise that the step is chosen by is the noise that is drawn.
    rmse, _ = found.plan.mechanism.prefix_errors(found.plan.noise_multiplier)
    self.assertAlmostEqual(found.noise / rmse, 1.0, places=4)
    if method == _AMPLIFIED:
      self.assertEqual(found.plan.sampling_rate, 250 / 60_000)
      self.assertEqual(found.plan.unit, 'example')
    norm = found.learning_rate * found.noise / 250 * 26_010**0.5
    self.assertLessEqual(norm, 5.0001)
    self.assertLessEqual(found.learning_rate, 1.0)

  @parameterized.parameters((4800, 20), (480, 2), (100, 1))
  def test_an_example_comes_once_in_a_pass(self, steps, passes):
    plan = dp_ftrl_mnist.cell(
        _UNAMPLIFIED, 8.0, steps=steps, records=60_000
    ).plan
    self.assertEqual(plan.squared_sensitivity, passes)
    members = [str(each) for each in range(60_000)]
    cohorts = [
        plan.participation.select(
            round_index=index,
            client_ids=members,
            clients_per_round=250,
            ledger=None,
            seed=3,
        )
        for index in range(1, min(steps, 240) + 1)
    ]
    seen = [each for cohort in cohorts for each in cohort]
    self.assertLen(set(seen), len(seen))


class RunTest(absltest.TestCase):

  def test_two_steps_of_a_tree_and_of_sampling_and_again_from_the_folder(self):
    folder, given = pathlib.Path(self.create_tempdir()), []

    def compared(found, cells):
      given.append((found, cells))
      return rows.Result(lines=[], verdict=rows.NO_NUMBER, why='')

    def network(seed):
      return mnist_model.build_keras_model(
          mnist_model.Architecture((), (4,)), seed=seed, activation='tanh'
      )

    self.enterContext(mock.patch.object(documents, 'write'))
    self.enterContext(conformance.in_loops())
    for name, value in dict(
        METHODS=(_TREE, _AMPLIFIED),
        EPSILONS=(8.0,),
        compared=compared,
        _network=network,
    ).items():
      self.enterContext(mock.patch.object(dp_ftrl_mnist, name, value))
    run = rows.Run(
        scale=2 / 4800, seeds=1, output_dir=folder, data=mnist_data.PACKAGED
    )
    result = dp_ftrl_mnist.run(run)
    self.assertEqual(result.rounds_share, 2 / 4800)
    self.assertAlmostEqual(result.population_share, 4000 / 60_000)
    self.assertFalse(result.is_setting_of_paper)
    self.assertIn('not 20. At epsilon 8 the tree has', result.why)
    ((found, cells),) = given
    for accuracies in found.values():
      self.assertLen(accuracies, 1)
      self.assertBetween(accuracies[0], 0.0, 1.0)
    for cell in cells.values():
      self.assertLessEqual(cell.plan.epsilon(delta=1e-5), 8.0)
    with mock.patch.object(program, 'train') as train:
      dp_ftrl_mnist.run(run)
    train.assert_not_called()
    self.assertEqual(given[1][0], found)


class VerdictTest(parameterized.TestCase):

  @parameterized.parameters(
      (0.9, 0.8, 0.85, rows.HOLDS),
      (0.9, 0.8, 0.95, rows.IN_PART),
      (0.7, 0.8, 0.6, rows.IN_PART),
      (0.7, 0.8, 0.75, rows.FAILS),
      # No more than chance.
      (0.9, 0.8, 0.899, rows.IN_PART),
      (0.9, 0.899, 0.899, rows.FAILS),
  )
  def test_of_tree_unamplified_amplified(
      self, tree, unamplified, amplified, expected
  ):
    means = {
        _TREE: tree, _BLT: 0.9, _AMPLIFIED: amplified, _UNAMPLIFIED: unamplified
    }
    cell = dp_ftrl_mnist.Cell(plan=None, noise=10.0)
    found = {
        (method, epsilon): [mean - 0.01, mean + 0.01]
        for method, mean in means.items()
        for epsilon in (1.0, 8.0)
    }
    result = dp_ftrl_mnist.compared(found, dict.fromkeys(found, cell))
    self.assertEqual(result.verdict, expected)
    self.assertLen(result.lines, 8)
    near = tree > amplified and tree - amplified < 0.01
    self.assertEqual(
        f'{_TREE} above amplified at epsilon 1, 8 (within chance at 1, 8)'
        in result.why,
        near,
    )
    self.assertAlmostEqual(result.lines[0].ours, tree)
    self.assertAlmostEqual(result.lines[0].spread, 0.01 * 2**0.5)


if __name__ == '__main__':
  absltest.main()
