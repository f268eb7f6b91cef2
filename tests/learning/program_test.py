# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of least squares and of averages through `program.train`."""

import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest
import numpy as np
import pytest

from tests.learning import diabetes
from tests.learning import small_model
import tff_dp
from tff_dp import dp_ftrl
from tff_dp import execution
from tff_dp import learning
from tff_dp import mechanisms
from tff_dp import program
from tff_dp.program.display import documents
from tff_dp.systems.dp_ftrl import least_squares

pytestmark = pytest.mark.once

_BOUND = 1.5


class LeastSquaresTest(absltest.TestCase):

  def test_trains_on_diabetes_with_a_guarantee(self):
    x, y = diabetes.load()
    num_rounds = 8
    participation = tff_dp.participation.MinSeparation(
        num_rounds, min_index_gap=3, max_participations=2
    )
    plan = tff_dp.DpFtrlPlan(
        mechanism=mechanisms.Blt.optimized(participation, num_buffers=2),
        participation=participation,
        l2_norm_clip=least_squares.moments_norm_bound(_BOUND),
        clients_per_round=100,
    ).calibrated(epsilon=8.0, delta=1e-5)
    held_out, ids = np.arange(400, 442), [f'{i}' for i in range(400)]

    class Clients:
      client_ids = ids

      def create_tf_dataset_for_client(self, client_id):
        i = int(client_id)
        return diabetes.dataset(x[i : i + 1], y[i : i + 1])

    def evaluate(weights):
      errors = y[held_out] - x[held_out] @ weights.trainable[0]
      return {'test_loss': float(np.mean(errors**2))}

    with tempfile.TemporaryDirectory() as folder:
      root = pathlib.Path(folder) / 'run'
      result = program.train(
          dp_ftrl.build_least_squares(
              plan,
              num_features=11,
              feature_norm_bound=_BOUND,
              server_learning_rate=2.0,
              averaging=learning.UniformAverage(),
              insecure_seed=4,
          ),
          Clients(),
          output_dir=root,
          delta=1e-5,
          evaluate_fn=evaluate,
          rounds_per_eval=4,
          progress='quiet',
      )
      with np.load(root / 'release' / 'model_averaged.npz') as arrays:
        np.testing.assert_array_equal(
            arrays['trainable/0'], result.averaged_model_weights.trainable[0]
        )
    self.assertLessEqual(result.epsilon, 8.0)
    # The mean of the held-out labels, known without any data, is no better.
    self.assertLess(
        result.metrics[-1]['test_loss'], np.var(y[held_out])
    )
    self.assertEqual(
        result.metrics[-1]['averaged_test_loss'],
        evaluate(result.averaged_model_weights)['test_loss'],
    )
    self.assertIn('finalizer/num_raised_eigenvalues', result.metrics[-1])
    self.assertFalse(
        any('train' in name for name in result.metrics[-1])
    )


class AveragingTest(absltest.TestCase):

  def test_average_is_released_and_survives_a_resume(self):
    num_rounds = 6
    plan = small_model.build_plan(
        mechanisms.HonakerTree(num_rounds, restart_every=4)
    )
    process = small_model.build_process(
        plan, averaging=learning.UniformAverage(), momentum=0.5
    )
    sent = []

    class Clients:
      client_ids = [f'{i}' for i in range(8)]

      def create_tf_dataset_for_client(self, client_id):
        return small_model.client(int(client_id))

    def evaluate(weights):
      sent.append(small_model.flat(weights))
      return {'test_norm': float(np.linalg.norm(sent[-1]))}

    def train(root, total_rounds):
      return program.train(
          process,
          Clients(),
          output_dir=root,
          delta=1e-5,
          evaluate_fn=evaluate,
          rounds_per_eval=1,
          total_rounds=total_rounds,
          progress='quiet',
      )

    self.enter_context(mock.patch.object(documents, 'write'))
    names = ('model.npz', 'model_averaged.npz', 'metrics.csv')
    with (
        tempfile.TemporaryDirectory() as folder,
        execution.create_sync_in_process_context(max_concurrent_clients=1),
    ):
      whole, stopped = pathlib.Path(folder) / 'a', pathlib.Path(folder) / 'b'
      result = train(whole, num_rounds)
      # Evaluated are the model after a round, then the average.
      models, averages = sent[0:12:2], sent[1:12:2]
      initial = np.concatenate([np.ravel(w) for w in small_model.INITIAL])
      for t in range(num_rounds):
        np.testing.assert_allclose(
            averages[t],
            np.mean([initial, *models[:t]], axis=0),
            rtol=1e-5,
            atol=1e-6,
        )
      self.assertAlmostEqual(
          result.metrics[-1]['averaged_test_norm'],
          np.linalg.norm(averages[-1]),
      )
      for total_rounds in (3, num_rounds):
        train(stopped, total_rounds)
      for name in names:
        self.assertEqual(
            (whole / 'release' / name).read_bytes(),
            (stopped / 'release' / name).read_bytes(),
            name,
        )


def setUpModule():
  execution.set_default_context()


if __name__ == '__main__':
  absltest.main()
