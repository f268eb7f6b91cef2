# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the task of known weights."""

import contextlib
import io
import json
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats

from tasks.draw_and_discard import known_weights
from tasks.draw_and_discard import known_weights_model as model
from tasks.draw_and_discard import known_weights_report
from tasks.draw_and_discard import known_weights_run
from tff_dp import streams


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

  def test_both_generators_have_one_law(self):
    theirs, their_labels = model.draw(np.random.default_rng(0), 40_000)
    ours, labels = known_weights_run.draw(streams.insecure_root_key(1), 40_000)
    difference = ours.numpy().mean(axis=0) - theirs.mean(axis=0)
    error = np.sqrt(theirs.var(axis=0) * 2 / 40_000) + 1e-12
    self.assertLess(np.abs(difference / error).max(), 6)
    second = np.abs(
        ours.numpy().T @ ours.numpy() - theirs.T @ theirs
    ) / 40_000
    self.assertLess(second.max(), 6 * 0.5 * np.sqrt(2 / 40_000))
    # Labels given features: the score at the truth has mean 0.
    for x, y in ((theirs, their_labels), (ours.numpy(), labels.numpy())):
      shares = 1 / (1 + np.exp(-x @ model.to_scaled(model.TRUE_WEIGHTS)))
      scores = (y - shares)[:, np.newaxis] * x
      z = scores.mean(axis=0) / (scores.std(axis=0) / np.sqrt(len(x)))
      self.assertLess(np.abs(z).max(), 6)
    self.assertGreater(
        stats.ks_2samp(
            ours.numpy()[:, model.TERMS.index('D')],
            theirs[:, model.TERMS.index('D')],
        ).pvalue,
        1e-6,
    )

  def test_expected_error(self):
    arguments = {'num_instances': 10, 'noise_variance': 0.0}
    start = np.sqrt(np.mean(model.TRUE_WEIGHTS**2))
    left, _ = model.expected_error(
        learning_rate=0.1, num_updates=0, **arguments
    )
    self.assertAlmostEqual(left, start)
    left, fluctuation = model.expected_error(
        learning_rate=0.1, num_updates=10**9, **arguments
    )
    self.assertLess(left, 1e-6)
    _, smaller = model.expected_error(
        learning_rate=0.025, num_updates=10**9, **arguments
    )
    self.assertAlmostEqual(fluctuation / smaller, 2)


class RunTest(parameterized.TestCase):

  def _settings(self, folder, **fields):
    return known_weights.Settings(
        **{
            'output_dir': str(folder), 'updates': 100_000, 'instances': 4,
            'learning_rate': 0.1, **fields,
        }
    )

  def test_error_is_as_expected_and_results_are_written(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    settings = self._settings(folder, updates=500_000)
    with contextlib.redirect_stdout(io.StringIO()) as out:
      code = known_weights.main(settings, where=None, progress='quiet')
    self.assertEqual(code, 0)
    self.assertIn('| D*E23 | 1.65 |', out.getvalue())
    content = json.loads((folder / 'results.json').read_text())
    self.assertLen(content['estimated'], 33)
    self.assertEqual(content['errors'][-1], [500_000, content['error']])
    expected = np.hypot(
        content['expected_left_of_start'], content['expected_fluctuation']
    )
    self.assertLess(expected, 0.4)
    self.assertAlmostEqual(content['error'] / expected, 1, delta=0.6)
    self.assertEqual(content['guarantee']['model_epsilon'], 'inf')
    self.assertGreater(content['quality']['accuracy'], 0.75)
    self.assertGreater((folder / 'known_weights.png').stat().st_size, 5000)

  def test_resumed_run_is_the_same(self):
    whole = known_weights.run(
        self._settings(self.create_tempdir().full_path, seed=3),
        progress='quiet',
    )
    folder = self.create_tempdir().full_path
    settings = self._settings(folder, seed=3)
    known_weights.run(
        self._settings(folder, seed=3, updates=50_000), progress='quiet'
    )
    resumed = known_weights.run(settings, progress='quiet')
    np.testing.assert_array_equal(whole.estimated, resumed.estimated)
    self.assertEqual(resumed.errors[-1], whole.errors[-1])
    with self.assertRaisesRegex(ValueError, 'of other settings'):
      known_weights.run(
          self._settings(folder, seed=4), progress='quiet'
      )
    with self.assertRaisesRegex(ValueError, 'at least the 100000'):
      known_weights.run(
          self._settings(folder, seed=3, updates=1000), progress='quiet'
      )

  def test_noise(self):
    settings = self._settings(
        self.create_tempdir().full_path, updates=50_000,
        epsilon_per_coordinate=3.47,
    )
    result = known_weights.run(settings, progress='quiet')
    text = known_weights_report.report(settings, result)
    self.assertIn('Epsilon of one participation: 114.6', text)
    self.assertIn('feature-level', text)

  @parameterized.parameters(
      ({'updates': 0}, 'updates=0'),
      ({'instances': 0}, 'instances=0'),
      ({'epsilon_per_coordinate': -1.0}, 'epsilon_per_coordinate=-1.0'),
  )
  def test_arguments(self, fields, message):
    with self.assertRaisesRegex(ValueError, message):
      self._settings('unused', **fields)


if __name__ == '__main__':
  absltest.main()
