# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the split between updates and bits: what a worst neighbour costs."""

import itertools
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tff_dp import _checks
from tff_dp import mechanisms
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import adaptive_clipping

_AdaptiveClipping = adaptive_clipping.AdaptiveClipping


def _messages(clip_norm):
  """Returns (update, bit) pairs that a client may send, one update per row.

  The updates have norms up to the clip norm; a client that is beyond it sends
  the norm itself, and the other bit.
  """
  angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
  unit = np.stack([np.cos(angles), np.sin(angles)], axis=1)
  return [
      (scale * clip_norm * direction, bit)
      for direction in unit
      for scale, bit in ((0.0, 0.5), (0.6, 0.5), (1.0, 0.5), (1.0, -0.5))
  ]


def _noised(mechanism):
  """Returns what gets independent noise, as a matrix on the rounds."""
  num_rounds = mechanism.num_rounds
  if isinstance(mechanism, mechanisms.Independent):
    return np.eye(num_rounds)
  nodes = []
  for start in range(0, num_rounds, mechanism.restart_every):
    length = min(mechanism.restart_every, num_rounds - start)
    for level in range(length.bit_length()):
      for index in range(length >> level):
        node = np.zeros(num_rounds)
        node[start + (index << level) : start + ((index + 1) << level)] = 1
        nodes.append(node)
  return np.stack(nodes)


class BudgetTest(parameterized.TestCase):

  @parameterized.product(
      share=(0.01, 0.3, 0.5, 0.9), noise_multiplier=(0.7, 4.0), clip=(0.1, 3.0)
  )
  def test_joint_message_moves_by_one_multiplier(
      self, share, noise_multiplier, clip
  ):
    spec = _AdaptiveClipping(budget_share=share)
    value_std = spec.value_noise_multiplier(noise_multiplier) * clip
    bits_std = spec.quantile_noise_multiplier(noise_multiplier) * 0.5

    def cost(one, other):
      update = np.sum((one[0] - other[0]) ** 2) / value_std**2
      return update + (one[1] - other[1]) ** 2 / bits_std**2

    messages = _messages(clip)
    nothing = (np.zeros(2), 0.0)
    zeroed = max(cost(message, nothing) for message in messages)
    replaced = max(
        cost(one, other) for one, other in itertools.product(messages, repeat=2)
    )
    self.assertAlmostEqual(zeroed * noise_multiplier**2, 1.0)
    self.assertAlmostEqual(replaced * noise_multiplier**2, 4.0)

  @parameterized.product(
      mechanism=(
          mechanisms.HonakerTree(9, restart_every=4),
          mechanisms.Tree(9, restart_every=3),
          mechanisms.Independent(9),
      ),
      gap=(2, 4),
  )
  def test_a_whole_run_costs_what_the_plan_says(self, mechanism, gap):
    # Over all patterns of one client and all directions of what it sends, in
    # units of the noise on both streams, with another clip norm in each tree.
    spec, nm = _AdaptiveClipping(budget_share=0.2), 1.7
    pattern = patterns.MinSeparationPattern(9, min_index_gap=gap)
    noised = _noised(mechanism)
    rounds = adaptive_clipping.rounds_per_clip_norm(mechanism)
    clip = 0.3 * 1.9 ** (np.arange(9) // rounds)
    value_std = spec.value_noise_multiplier(nm) * clip
    bits_std = spec.quantile_noise_multiplier(nm) * 0.5
    zeroed = replaced = 0.0
    # A round without the client, or with its largest move, either way.
    for moves in itertools.product((0, 1, -1), repeat=9):
      where = np.flatnonzero(moves)
      if len(where) > 1 and np.diff(where).min() < gap:
        continue
      moves = np.array(moves)
      for factor in (1, 2):  # A replaced client moves by twice as much.
        # Updates and bits have noise of their own, so their costs add up.
        cost = np.sum((noised @ (factor * moves * clip / value_std)) ** 2)
        cost += np.sum((noised @ (factor * moves * 0.5 / bits_std)) ** 2)
        if factor == 1:
          zeroed = max(zeroed, cost)
        else:
          replaced = max(replaced, cost)
    total = mechanism.squared_sensitivity(pattern) / nm**2
    self.assertAlmostEqual(zeroed, total)
    self.assertAlmostEqual(replaced, 4 * total)

  def test_the_usual_noise_of_the_paper(self):
    # Andrew et al., theorem 1: z_delta = (z^-2 - (2 sigma_b)^-2)^-1/2.
    spec, z = _AdaptiveClipping(budget_share=0.04), 1.3
    sigma_b = spec.quantile_noise_multiplier(z) * adaptive_clipping.BIT
    self.assertAlmostEqual(
        spec.value_noise_multiplier(z),
        (z**-2 - (2 * sigma_b) ** -2) ** -0.5,
    )

  def test_no_noise_stays_no_noise(self):
    spec = _AdaptiveClipping()
    self.assertEqual(spec.value_noise_multiplier(0), 0.0)
    self.assertEqual(spec.quantile_noise_multiplier(0), 0.0)


class ValidationTest(parameterized.TestCase):

  @parameterized.parameters(
      ('target_quantile', 0.0),
      ('target_quantile', 1.0),
      ('target_quantile', math.nan),
      ('learning_rate', 0.0),
      ('learning_rate', math.inf),
      ('budget_share', 0.0),
      ('budget_share', 1.0),
      ('budget_share', True),
  )
  def test_names_the_argument(self, name, value):
    with self.assertRaisesRegex(_checks.ArgumentError, f'^{name}={value}'):
      _AdaptiveClipping(**{name: value})

  @parameterized.parameters(
      (mechanisms.HonakerTree(8), 'one tree.*restart_every'),
      (mechanisms.Tree(8, restart_every=8), 'one tree.*restart_every'),
      (
          mechanisms.Tree(8, restart_every=3, complete_trees=True),
          'complete_trees=True.*complete_trees=False',
      ),
  )
  def test_mechanisms_without_a_second_clip_norm_are_refused(
      self, mechanism, message
  ):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, f'(?s){message}'):
      adaptive_clipping.rounds_per_clip_norm(mechanism)

  def test_rounds_per_clip_norm(self):
    for mechanism, rounds in (
        (mechanisms.HonakerTree(8, restart_every=3), 3),
        (mechanisms.Independent(8), 1),
    ):
      self.assertEqual(
          adaptive_clipping.rounds_per_clip_norm(mechanism), rounds
      )


if __name__ == '__main__':
  absltest.main()
