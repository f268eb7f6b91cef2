# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the task on odd and even digits, with the packaged digits."""

from absl.testing import absltest
import numpy as np

from tasks.mnist import mnist_data
from tasks.silos import mnist_odd_even
from tasks.silos import silo_models
from tests.tasks.silos import silo_tables


class MnistOddEvenTest(absltest.TestCase):

  def test_the_problem_on_packaged_digits(self):
    problem = mnist_odd_even.problem(mnist_data.PACKAGED)
    self.assertEqual(problem.num_features, 51)
    self.assertEqual(problem.silos_per_round, 12)
    split = problem.split(0)
    # 400 training digits of each class, dealt to five silos.
    self.assertEqual(
        sorted(split.num_records.values()), [128] * 25
    )
    self.assertLen(split.test, 25 * 32)
    rows = np.concatenate([part.features for part in split.train.values()])
    rows = np.concatenate([rows, split.test.features])
    # No image is in two places.
    self.assertLen(np.unique(rows, axis=0), 25 * 160)
    self.assertBetween(np.mean(np.sum(rows**2, axis=1)), 0.9, 1.1)
    for name, records in split.train.items():
      self.assertBetween(np.mean(records.labels == 1.0), 0.3, 0.7, name)
    # The components keep what a linear model needs.
    pooled = silo_models.pooled(split.train)
    weights, *_ = np.linalg.lstsq(pooled.features, pooled.labels, rcond=None)
    error = silo_models.error(
        'logistic', weights[:, np.newaxis], split.test, split.train
    )
    self.assertLess(error, 0.16)

  def test_defaults_are_the_published_setting(self):
    settings = silo_tables.settings_of(mnist_odd_even)
    self.assertEqual(settings, mnist_odd_even.Settings())
    self.assertEqual(settings.rounds, 35)


if __name__ == '__main__':
  absltest.main()
