# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The loop over the updates of draw and discard, and the process beside it."""

import dataclasses
import itertools
import pathlib
from unittest import mock

from absl.testing import absltest
import numpy as np

from tasks.draw_and_discard import known_weights
from tasks.draw_and_discard import known_weights_model as model
from tasks.draw_and_discard import known_weights_one_by_one as one_by_one
from tff_dp import _checks
from tff_dp import execution
from tff_dp import learning
from tff_dp.systems import draw_and_discard


def _features(rows, d) -> np.ndarray:
  fixed, slopes = one_by_one.tables()
  return fixed[rows] + d[:, np.newaxis] * slopes[rows]


class ExamplesTest(absltest.TestCase):

  def test_tables_have_the_features_of_the_model(self):
    features, _ = model.draw(np.random.default_rng(3), 500)
    column = {term: features[:, model.TERMS.index(term)] for term in model.TERMS}
    e1 = 2 - 2 * column['E11'] - column['E12']
    e2 = 3 - 3 * column['E21'] - 2 * column['E22'] - column['E23']
    rows = ((column['B'] * 3 + e1) * 4 + e2) * 2 + column['I']
    self.assertLen(set(rows), 48)
    np.testing.assert_allclose(
        _features(rows.astype(int), column['D']), features, atol=1e-12
    )

  def test_examples_have_the_law_of_the_model(self):
    settings = one_by_one.Settings(instances=5)
    rows, d, labels, drawn, written = one_by_one.chunk(settings, 2, 40_000)
    features, others = model.draw(np.random.default_rng(0), 40_000)
    own = np.column_stack([_features(rows, d), labels])
    other = np.column_stack([features, others])
    spread = np.sqrt(own.var(axis=0) + other.var(axis=0)) / 200
    difference = np.abs(own.mean(axis=0) - other.mean(axis=0))
    self.assertTrue(np.all(difference <= 6 * spread))
    # Given the features, the score at the truth has mean 0.
    shares = 1 / (1 + np.exp(-_features(rows, d) @ model.to_scaled(
        model.TRUE_WEIGHTS)))  # pyformat: disable
    scores = (labels - shares)[:, np.newaxis] * _features(rows, d)
    z = scores.mean(axis=0) / (scores.std(axis=0) / np.sqrt(len(rows)))
    self.assertLess(np.abs(z).max(), 6)
    for coins in (drawn, written):
      self.assertLess(np.abs(np.bincount(coins) / 8000 - 1).max(), 0.1)
    self.assertAlmostEqual(np.mean(drawn == written), 0.2, delta=0.02)

  def test_chunks_and_seeds_differ(self):
    settings = one_by_one.Settings()
    first = one_by_one.chunk(settings, 0, 50)
    again = one_by_one.chunk(settings, 0, 50)
    for other in (
        one_by_one.chunk(settings, 1, 50),
        one_by_one.chunk(dataclasses.replace(settings, seed=1), 0, 50),
    ):
      for own, repeated, differing in zip(first, again, other):
        np.testing.assert_array_equal(own, repeated)
        self.assertGreater(np.mean(own != differing), 0.2)


class UpdatesTest(absltest.TestCase):

  def test_updates_are_those_of_a_plain_loop(self):
    settings = one_by_one.Settings(instances=3)
    arguments = one_by_one.chunk(settings, 0, 300)
    pool = one_by_one.first_pool(settings)
    found = one_by_one.build_updates(0.5)(pool, *arguments)
    expected = pool.astype(np.float64)
    for row, d, label, drawn, written in zip(*arguments):
      features = _features(row[None], d[None])[0]
      share = 1 / (1 + np.exp(-features @ expected[drawn]))
      expected[written] = expected[drawn] - 0.5 * (share - label) * features
    self.assertGreater(np.abs(found - pool).max(), 0.5)
    np.testing.assert_allclose(found, expected, atol=1e-4)

  def test_each_round_of_the_process_is_one_update(self):
    settings = known_weights.Settings(
        updates=60, clients=60, clients_per_round=1, instances=2,
        learning_rate=0.3,
    )  # pyformat: disable
    process = draw_and_discard.build_draw_and_discard(
        learning.build_generalized_linear_model(
            'logistic', num_features=model.NUM_WEIGHTS - 1
        ),
        settings.plan,
        server_seed=3,
    )
    rows, d, labels, _, _ = one_by_one.chunk(one_by_one.Settings(), 0, 24)
    features = _features(rows, d).astype(np.float32)
    updates = one_by_one.build_updates(0.3)
    coins = list(itertools.product(range(2), range(2)))
    seen = set()

    def pool_of(state):
      # The process has the bias last, the model has it first.
      return np.roll(np.asarray(state.instances), 1, axis=1)

    with execution.create_sync_in_process_context() as context:
      del context
      state = process.initialize()
      for n in range(24):
        before = pool_of(state)
        client = [(features[n : n + 1, 1:], labels[n : n + 1])]
        state = process.next(state, [client]).state
        after = pool_of(state)
        one = np.s_[n : n + 1]
        fitting = [
            (drawn, written)
            for drawn, written in coins
            if np.allclose(
                updates(
                    before, rows[one], d[one], labels[one],
                    np.array([drawn], np.int32), np.array([written], np.int32),
                ),
                after,
                atol=2e-6,
            )
        ]  # pyformat: disable
        self.assertLen(fitting, 1)
        seen.update(fitting)
    self.assertLen(seen, 4)

  def test_first_pool_has_the_spread_of_the_process(self):
    settings = known_weights.Settings(instances=400, learning_rate=0.3)
    process = draw_and_discard.build_draw_and_discard(
        learning.build_generalized_linear_model(
            'logistic', num_features=model.NUM_WEIGHTS - 1
        ),
        dataclasses.replace(settings.plan, clients_per_round=1),
        server_seed=3,
    )
    with execution.create_sync_in_process_context() as context:
      del context
      other = np.asarray(process.initialize().instances)
    own = one_by_one.first_pool(
        one_by_one.Settings(instances=400, learning_rate=0.3)
    )
    self.assertEqual(own.shape, other.shape)
    # 13,200 normals each: six standard deviations.
    self.assertAlmostEqual(own.var() / other.var(), 1, delta=0.11)
    self.assertAlmostEqual(own.mean() / own.std(), 0, delta=0.06)


class RunTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.enter_context(mock.patch.object(one_by_one, '_CHUNK', 50))
    self._settings = one_by_one.Settings(updates=430, instances=3, points=4)
    self._folder = pathlib.Path(self.create_tempdir())

  def test_a_stopped_run_goes_on(self):
    whole = one_by_one.run(self._settings, self._folder / 'whole')
    self.assertEqual(whole.updates, 430)
    self.assertEqual([100, 200, 300, 400, 430], whole.errors[:, 0].tolist())
    self.assertAlmostEqual(whole.errors[-1, 1], model.error(whole.weights))

    def stopping(settings, number, size, chunk=one_by_one.chunk):
      if number == 5:
        raise KeyboardInterrupt
      return chunk(settings, number, size)

    with mock.patch.object(one_by_one, 'chunk', stopping):
      with self.assertRaises(KeyboardInterrupt):
        one_by_one.run(self._settings, self._folder / 'stopped')
    found = one_by_one.run(self._settings, self._folder / 'stopped')
    np.testing.assert_array_equal(found.pool, whole.pool)
    np.testing.assert_array_equal(found.errors, whole.errors)

  def test_another_run(self):
    one_by_one.run(self._settings, self._folder)
    other = dataclasses.replace(self._settings, seed=1)
    with self.assertRaisesRegex(_checks.ArgumentError, 'output_dir.*seed=0'):
      one_by_one.run(other, self._folder)


if __name__ == '__main__':
  absltest.main()
