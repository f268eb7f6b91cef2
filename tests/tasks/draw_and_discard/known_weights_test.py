# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the task of known weights."""

import contextlib
import io
import json
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from tasks.common import engine
from tasks.draw_and_discard import known_weights
from tasks.draw_and_discard import known_weights_model as model
from tff_dp import draw_and_discard
from tff_dp.program.display import documents


class ModelTest(absltest.TestCase):

  def test_terms(self):
    self.assertLen(model.TERMS, 33)
    crosses = [set(term.split('*')) for term in model.TERMS if '*' in term]
    self.assertLen(crosses, 24)
    # Every pair of variables but those within one category, once.
    names = [term for term in model.TERMS if '*' not in term and term != '1']
    pairs = [
        {a, b}
        for i, a in enumerate(names)
        for b in names[:i]
        if a[:-1] != b[:-1] or len(a) == 1
    ]
    self.assertCountEqual(map(frozenset, crosses), map(frozenset, pairs))
    self.assertEqual(model.TRUE_WEIGHTS[model.TERMS.index('D*E23')], 1.65)

  def test_scaled_model_is_the_same_model(self):
    rng = np.random.default_rng(0)
    base = {
        name: rng.integers(2, size=50).astype(float)
        for name in ('B', 'E11', 'E12', 'E21', 'E22', 'E23', 'I')
    }
    value = rng.normal(size=50)
    stack = lambda columns: np.stack(columns, axis=-1)
    plain = model.design({**base, 'D': value}, stack)
    largest = model.LARGEST_D
    scaled = model.design(
        {**base, 'D': (value + largest) / (2 * largest)}, stack
    )
    weights = rng.normal(size=33)
    np.testing.assert_allclose(
        plain @ weights, scaled @ model.to_scaled(weights)
    )
    np.testing.assert_allclose(
        model.from_scaled(model.to_scaled(weights)), weights
    )

  def test_features_are_in_the_unit_interval(self):
    features, labels = model.draw(np.random.default_rng(0), 20_000)
    self.assertEqual(features.min(), 0)
    self.assertEqual(features.max(), 1)
    self.assertEqual(set(labels), {0, 1})
    # The paper: about 46 %, for features whose law it does not give.
    self.assertAlmostEqual(labels.mean(), 0.45, delta=0.04)

  def test_labels_have_the_law_of_the_truth(self):
    x, y = model.draw(np.random.default_rng(0), 40_000)
    # Given features, the score at the truth has mean 0.
    shares = 1 / (1 + np.exp(-x @ model.to_scaled(model.TRUE_WEIGHTS)))
    scores = (y - shares)[:, np.newaxis] * x
    z = scores.mean(axis=0) / (scores.std(axis=0) / np.sqrt(len(x)))
    self.assertLess(np.abs(z).max(), 6)

  def test_expected_error(self):
    arguments = {
        'num_clients': 10_000, 'noise_variance': 0.0, 'initial_variance': 0.0
    }
    start = np.sqrt(np.mean(model.TRUE_WEIGHTS**2))
    left, fluctuation, sample = model.expected_error(
        learning_rate=0.1, num_steps=0, **arguments
    )
    self.assertAlmostEqual(left, start)
    self.assertEqual((fluctuation, sample), (0, 0))
    left, fluctuation, sample = model.expected_error(
        learning_rate=0.1, num_steps=10**8, **arguments
    )
    self.assertLess(left, 1e-6)
    _, smaller, half = model.expected_error(
        learning_rate=0.025, num_steps=10**9, num_clients=40_000,
        noise_variance=0.0, initial_variance=2.0,
    )
    self.assertAlmostEqual(fluctuation / smaller, 2)
    self.assertAlmostEqual(sample / half, 2)

  def test_steps_of_updates_in_flight_are_those_of_a_simulation(self):
    # The gradient linearised, on one weight: what is left of the start.
    k, m, rounds, contraction = 4, 6, 40, 0.03
    rng = np.random.default_rng(0)
    pools = np.ones((4000, k))
    rows = np.arange(len(pools))
    for _ in range(rounds):
      before = pools.copy()
      for _ in range(m):
        given, place = rng.integers(k, size=(2, len(pools)))
        pools[rows, place] = (1 - contraction) * before[rows, given]
    steps = rounds * (1 - (1 - 1 / k) ** m)
    plan = known_weights.Settings(
        updates=rounds * m, clients_per_round=m, instances=k
    ).plan
    self.assertAlmostEqual(plan.steps_per_round * plan.num_rounds, steps)
    self.assertAlmostEqual(
        pools.mean() / np.exp(-contraction * steps), 1, delta=0.03
    )
    # One by one it would be 60 steps instead of 33.
    self.assertGreater(pools.mean(), 2 * np.exp(-contraction * rounds * m / k))


@pytest.mark.once  # A training on each stack is in `tasks/digits`.
class RunTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.enterContext(mock.patch.object(documents, 'write'))

  def _settings(self, **fields):
    return known_weights.Settings(
        **{
            'output_dir': self.create_tempdir().full_path, 'updates': 1200,
            'clients': 400, 'clients_per_round': 24, 'instances': 4, **fields,
        }
    )

  def _main(self, settings):
    with contextlib.redirect_stdout(io.StringIO()) as out:
      code = known_weights.main(
          settings, where=engine.EngineSettings(), progress='quiet'
      )
    self.assertEqual(code, 0)
    path = pathlib.Path(settings.output_dir) / 'results.json'
    return out.getvalue(), json.loads(path.read_text())

  def test_error_is_as_expected_and_a_second_run_goes_on(self):
    settings = self._settings()
    # To trace a process takes longer than its rounds.
    build, built = draw_and_discard.build_draw_and_discard, []

    def build_once(*arguments, **options):
      if not built:
        built.append(build(*arguments, **options))
      return built[0]

    self.enterContext(
        mock.patch.object(
            draw_and_discard, 'build_draw_and_discard', build_once
        )
    )
    text, content = self._main(settings)
    self.assertIn('| D*E23 | 1.65 |', text)
    self.assertIn('about 50 steps', text)
    self.assertIn('No privacy', text)
    self.assertLen(content['estimated'], 33)
    self.assertEqual(content['errors'][-1], [1200, content['error']])
    expected = np.linalg.norm([
        content['expected_left_of_start'],
        content['expected_fluctuation'],
        content['expected_of_sample'],
    ])
    self.assertAlmostEqual(content['error'] / expected, 1, delta=0.4)
    self.assertEqual(content['guarantee']['epsilon'], 'inf')
    folder = pathlib.Path(settings.output_dir)
    self.assertGreater((folder / 'known_weights.png').stat().st_size, 5000)
    self.assertEqual(self._main(settings), (text, content))
    with self.assertRaisesRegex(ValueError, 'output_dir'):
      self._main(self._settings(output_dir=settings.output_dir, seed=4))

  def test_noise(self):
    settings = self._settings(
        updates=48, clients=24, epsilon_per_coordinate=3.47
    )
    text, content = self._main(settings)
    self.assertIn('Epsilon of one participation: 114.6', text)
    self.assertIn('feature-level', text)
    self.assertLessEqual(content['guarantee']['epsilon'], 2 * 114.6)
    self.assertGreater(content['guarantee']['epsilon'], 114.6)

  @parameterized.parameters(
      ({'updates': 0}, 'updates=0'),
      ({'instances': 0}, 'instances=0'),
      ({'clients_per_round': 401}, 'clients_per_round=401'),
      ({'epsilon_per_coordinate': -1.0}, 'epsilon_per_coordinate=-1.0'),
  )
  def test_arguments(self, fields, message):
    with self.assertRaisesRegex(ValueError, message):
      self._settings(**fields)


if __name__ == '__main__':
  absltest.main()
