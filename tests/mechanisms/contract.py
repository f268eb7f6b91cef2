# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What every mechanism must hold to, as tests that each one's tests inherit.

The noise of a whole run, restarts and completion included, is a linear map of
its draws. Feeding unit vectors as draws reads it off, so every claim about
variances and sensitivities can be compared with plain matrices.
"""

import dataclasses
import json

import numpy as np

from tests.accounting import brute_force
from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import mechanism as mechanism_lib


def noise_matrix(spec, drawn=None) -> tuple[np.ndarray, list]:
  """Returns (M, nodes): the noise of a run is M z, z the draws of the nodes.

  Rows are rounds; nodes are (tree, level, index).

  Args:
    spec: The mechanism.
    drawn: List to which every draw is appended, repeated ones too.
  """
  drawn = [] if drawn is None else drawn
  run(spec, lambda *node: drawn.append(node) or np.zeros(1))
  nodes = sorted(set(drawn))
  units = dict(zip(nodes, np.eye(len(nodes))))
  residuals = run(spec, lambda *node: units[node], len(nodes))
  return np.stack(residuals), nodes


def run(spec, draw, num_params=1) -> list[np.ndarray]:
  """Returns the residual noise of rounds 1..T, as an aggregator adds it.

  Args:
    spec: The mechanism.
    draw: From (tree, level, index) to a vector.
    num_params: Its length.
  """

  def step(tree, round_in_tree, buffers):
    def draw_node(level, index):
      if index < 0:
        raise ValueError(f'node ({level}, {index}) does not exist')
      return draw(tree, level, int(index))

    return spec.next_noise(
        buffers, round_in_tree, mechanism_lib.numpy_operations(draw_node)
    )

  residuals = []
  buffers = spec.initialize(np.zeros(num_params))
  for round_index in range(spec.num_rounds):
    tree, position = divmod(round_index, spec.rounds_per_tree)
    completion = 0.0
    if tree and not position:
      for virtual in range(1, spec.virtual_rounds + 1):
        noise, buffers = step(tree - 1, spec.rounds_per_tree + virtual, buffers)
        completion = completion + noise
      if not spec.overwrites_buffers:
        buffers = spec.initialize(np.zeros(num_params))
    noise, buffers = step(tree, position + 1, buffers)
    residuals.append(noise + completion)
  return residuals


def inner_patterns(num_rounds):
  """Yields patterns of all kinds, small enough for brute force."""
  for gap, most in ((1, None), (2, 3), (3, 2), (4, None), (5, 1)):
    yield patterns.MinSeparationPattern(
        num_rounds, min_index_gap=gap, max_participations=most
    )
  for epoch in (1, 3, 5, num_rounds):
    yield patterns.FixedOrderPattern(num_rounds, rounds_per_epoch=epoch)
  yield patterns.OncePerTreePattern(num_rounds)


class MechanismContract:
  """Mixin: tests of one class of mechanisms; needs absltest's assertions."""

  # Instances of 9 to 12 rounds, with and without restarts.
  SPECS = ()
  # Whether C is the inverse of the map from draws to noise.
  IS_MATRIX = True

  def served(self, spec):
    """Yields the patterns that the mechanism does not refuse."""
    for pattern in inner_patterns(spec.num_rounds):
      try:
        spec.squared_sensitivity(pattern)
      except _checks.ArgumentError as error:
        self.assertEqual(error.argument, 'num_bands')
        continue
      yield pattern

  def encoder(self, spec) -> np.ndarray:
    """Returns the matrix whose columns a client moves."""
    return np.linalg.inv(noise_matrix(spec)[0])

  def test_encoder_is_block_diagonal_and_lower_triangular(self):
    if not self.IS_MATRIX:
      return
    for spec in self.SPECS:
      residuals, nodes = noise_matrix(spec)
      self.assertEqual(
          nodes,
          [
              (t // spec.rounds_per_tree, 0, t % spec.rounds_per_tree)
              for t in range(spec.num_rounds)
          ],
      )
      self.assertFalse(np.triu(residuals, 1).any())
      encoder = self.encoder(spec)
      tree = np.arange(spec.num_rounds) // spec.rounds_per_tree
      between = tree[:, np.newaxis] != tree
      np.testing.assert_allclose(encoder[between], 0, atol=1e-12)

  def test_variances_are_those_of_the_covariance(self):
    for spec in self.SPECS:
      residuals, _ = noise_matrix(spec)
      prefixes = np.cumsum(residuals, axis=0)
      in_tree = slice(spec.rounds_per_tree)
      np.testing.assert_allclose(
          spec.round_variances(), np.sum(residuals[in_tree] ** 2, axis=1)
      )
      np.testing.assert_allclose(
          spec.prefix_variances(), np.sum(prefixes[in_tree] ** 2, axis=1)
      )
      np.testing.assert_allclose(
          spec.run_prefix_variances(), np.sum(prefixes**2, axis=1)
      )

  def test_sensitivity_equals_brute_force(self):
    num_exact = 0
    for spec in self.SPECS:
      encoder = self.encoder(spec)
      for pattern in self.served(spec):
        value = spec.squared_sensitivity(pattern)
        worst = brute_force.worst_aligned(encoder, pattern, spec.restart_every)
        if spec.sensitivity_is_exact(pattern):
          num_exact += 1
          if np.all(encoder.T @ encoder > -1e-9):
            np.testing.assert_allclose(value, worst, rtol=1e-9)
        if np.any(encoder < -1e-9) and spec.num_rounds <= 10:
          worst = brute_force.worst_signed(
              encoder, pattern, spec.restart_every
          )
          if spec.sensitivity_is_exact(pattern):
            np.testing.assert_allclose(value, worst, rtol=1e-9)
        self.assertGreaterEqual(value, worst * (1 - 1e-9))
    self.assertGreater(num_exact, 0)

  def test_sensitivity_covers_what_is_released(self):
    # Whatever the mechanism says of itself: the distance, in the metric of the
    # covariance of what leaves the server, between a stream with a client and
    # without it.
    for spec in self.SPECS:
      residuals, _ = noise_matrix(spec)
      precision = np.linalg.inv(residuals @ residuals.T)
      root = np.linalg.cholesky(precision).T
      for pattern in self.served(spec):
        value = spec.squared_sensitivity(pattern)
        worst = brute_force.worst_aligned(root, pattern, spec.restart_every)
        self.assertGreaterEqual(value, worst * (1 - 1e-9))

  def test_sensitivity_by_round_is_that_of_a_truncated_run(self):
    for spec in self.SPECS:
      for pattern in self.served(spec):
        by_round = spec.squared_sensitivity_by_round(pattern)
        self.assertLen(by_round, spec.num_rounds)
        for stop in range(1, spec.num_rounds + 1):
          truncated = spec.truncated(stop)
          self.assertEqual(truncated.num_rounds, stop)
          np.testing.assert_allclose(
              by_round[stop - 1],
              truncated.squared_sensitivity(pattern.truncated(stop)),
              rtol=1e-12,
          )
          # A longer pattern is cut to the run.
          np.testing.assert_allclose(
              by_round[stop - 1], truncated.squared_sensitivity(pattern)
          )

  def test_truncated_runs_add_the_same_noise(self):
    for spec in self.SPECS:
      whole, nodes = noise_matrix(spec)
      for stop in range(1, spec.num_rounds + 1):
        first, first_nodes = noise_matrix(spec.truncated(stop))
        columns = [nodes.index(node) for node in first_nodes]
        np.testing.assert_allclose(first, whole[:stop, columns], atol=1e-12)

  def test_sensitivity_is_monotone(self):
    for spec in self.SPECS:
      values = {}
      for gap in range(1, spec.num_rounds + 1):
        for most in range(1, spec.num_rounds + 1):
          pattern = patterns.MinSeparationPattern(
              spec.num_rounds, min_index_gap=gap, max_participations=most
          )
          try:
            values[gap, most] = spec.squared_sensitivity(pattern)
          except _checks.ArgumentError:
            continue
      for (gap, most), value in values.items():
        for looser in ((gap - 1, most), (gap, most + 1)):
          if looser in values:
            self.assertLessEqual(value, values[looser] * (1 + 1e-12))

  def test_no_client_of_the_pattern_responds_more(self):
    for spec in self.SPECS:
      encoder = self.encoder(spec)
      gram = np.abs(encoder.T @ encoder)
      for pattern in self.served(spec):
        worst = max(
            bits @ gram @ bits
            for bits in brute_force.allowed(pattern, spec.restart_every)
        )
        value = spec.squared_sensitivity(pattern)
        self.assertLessEqual(worst, value * (1 + 1e-9))
        if spec.sensitivity_is_exact(pattern):
          np.testing.assert_allclose(worst, value, rtol=1e-9)

  def test_draws_and_buffers_are_as_declared(self):
    for spec in self.SPECS:
      one_tree = spec.truncated(spec.rounds_per_tree)
      drawn = []
      noise_matrix(one_tree, drawn)
      self.assertAlmostEqual(
          one_tree.draws_per_round, len(drawn) / one_tree.num_rounds
      )
      drawn = []
      noise_matrix(spec, drawn)
      self.assertEqual(spec.redraws, len(set(drawn)) < len(drawn))
      buffers = spec.initialize(np.zeros(3))
      self.assertIsInstance(buffers, tuple)
      self.assertLen(buffers, spec.state_copies)
      operations = mechanism_lib.numpy_operations(lambda *_: np.ones(3))
      _, after = spec.next_noise(buffers, 1, operations)
      self.assertIsInstance(after, tuple)
      self.assertLen(after, spec.state_copies)

  def test_nodes_are_drawn_first_in_the_round_that_they_belong_to(self):
    for spec in self.SPECS:
      known = set()

      def draw(level, index):
        belongs_to = mechanism_lib.round_of_draw(level, int(index))
        # pylint: disable=cell-var-from-loop
        if (level, index) in known:
          self.assertBetween(belongs_to, t - spec.rounds_drawn + 1, t - 1)
        else:
          self.assertEqual(belongs_to, t)
          fresh.add((level, index))
        return np.zeros(1)

      operations = mechanism_lib.numpy_operations(draw)
      buffers = spec.initialize(np.zeros(1))
      for t in range(1, spec.rounds_per_tree + spec.virtual_rounds + 1):
        fresh = set()
        _, buffers = spec.next_noise(buffers, t, operations)
        # What tells one round's noise from that of the same round on other data.
        self.assertNotEmpty(fresh)
        known |= fresh

  def test_buffers_come_back_from_the_rounds_remembered(self):
    rng = np.random.default_rng(0)
    for spec in self.SPECS:
      draws = {}

      def draw(level, index, draws=draws):
        return draws.setdefault((level, int(index)), rng.standard_normal(2))

      operations = mechanism_lib.numpy_operations(draw)
      buffers = spec.initialize(np.zeros(2))
      for t in range(1, spec.rounds_per_tree):
        _, buffers = spec.next_noise(buffers, t, operations)
        first = 1
        if spec.rounds_remembered is not None:
          first = max(t - spec.rounds_remembered + 1, 1)
        rebuilt = spec.initialize(np.zeros(2))
        for again in range(first, t + 1):
          _, rebuilt = spec.next_noise(rebuilt, again, operations)
        noise, _ = spec.next_noise(buffers, t + 1, operations)
        same, _ = spec.next_noise(rebuilt, t + 1, operations)
        np.testing.assert_array_equal(noise, same)

  def test_description_survives_json(self):
    for spec in self.SPECS:
      written = json.loads(json.dumps(dataclasses.asdict(spec)))
      arguments = {
          field.name: written[field.name]
          for field in dataclasses.fields(spec)
          if field.init
      }
      again = type(spec)(**arguments)
      self.assertEqual(again, spec)
      self.assertEqual(hash(again), hash(spec))
      self.assertEqual(dataclasses.asdict(again), dataclasses.asdict(spec))

  def test_common_arguments_are_named(self):
    for spec in self.SPECS[:1]:
      for name, value in (
          ('num_rounds', 0), ('num_rounds', 2.5), ('num_rounds', True),
          ('restart_every', 0), ('restart_every', 1.5),
      ):
        fields = {field.name: field for field in dataclasses.fields(spec)}
        if not fields[name].init:
          continue
        with self.assertRaisesRegex(
            _checks.ArgumentError, f'^{name}={value} is not allowed'
        ):
          dataclasses.replace(spec, **{name: value})
      longer = patterns.MinSeparationPattern(spec.num_rounds - 1)
      with self.assertRaisesRegex(_checks.ArgumentError, '^num_rounds='):
        spec.squared_sensitivity(longer)
      with self.assertRaisesRegex(_checks.ArgumentError, '^num_rounds='):
        spec.truncated(spec.num_rounds + 1)
