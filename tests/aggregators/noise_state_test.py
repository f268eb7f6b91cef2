# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests that buffers are rebuilt bit for bit from key and position."""

import dataclasses
import functools
from typing import Any, NamedTuple

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from tff_dp import mechanisms
from tff_dp import streams
from tff_dp.aggregators import noise_state
from tff_dp.mechanisms.matrix import banded_inverse
from tff_dp.mechanisms.matrix import blt
from tff_dp.mechanisms.matrix import toeplitz

pytestmark = pytest.mark.once

# Three trees of those that restart, and a tree of five levels.
_NUM_ROUNDS = 20
_NUM_PARAMS = 33
_KEY = streams.insecure_root_key(3)

_MECHANISMS = {
    'independent': mechanisms.Independent(_NUM_ROUNDS),
    'tree': mechanisms.Tree(_NUM_ROUNDS),
    'tree_uncached': mechanisms.Tree(_NUM_ROUNDS, num_cached_levels=0),
    'tree_all_cached': mechanisms.Tree(_NUM_ROUNDS, num_cached_levels=9),
    'tree_completed': mechanisms.Tree(
        _NUM_ROUNDS, restart_every=9, complete_trees=True, num_cached_levels=3
    ),
    'honaker': mechanisms.HonakerTree(_NUM_ROUNDS),
    'honaker_completed': mechanisms.HonakerTree(
        _NUM_ROUNDS, restart_every=9, complete_trees=True
    ),
    'toeplitz': toeplitz.Toeplitz.square_root(_NUM_ROUNDS, restart_every=9),
    'banded': toeplitz.Banded.square_root(_NUM_ROUNDS, 4),
    'banded_many': toeplitz.Banded.square_root(_NUM_ROUNDS, 17),
    'banded_restarts': toeplitz.Banded.square_root(
        _NUM_ROUNDS, 4, restart_every=9
    ),
    'blt': blt.Blt(_NUM_ROUNDS, (0.3, 0.2, 0.1), (0.97, 0.6, 0.0)),
    'blt_restarts': blt.Blt(_NUM_ROUNDS, (0.3,), (0.97,), restart_every=9),
    'banded_inverse': banded_inverse.BandedInverse.square_root(_NUM_ROUNDS, 5),
    'banded_inverse_stored': banded_inverse.BandedInverse.square_root(
        _NUM_ROUNDS, 5, stores_draws=True, restart_every=9
    ),
}


class _Run(NamedTuple):
  """A run of all rounds.

  Attributes:
    noises: The bytes of each round's noise.
    states: Before round 1 and after each.
    step: From a digest and a state to noise and the next state.
    digests: Of the rounds.
  """

  noises: list[bytes]
  states: list
  step: Any
  digests: tf.Tensor


@functools.cache
def _straight_run(mechanism, is_compiled: bool = True) -> _Run:
  """Returns a run in which every round has a digest of its own.

  Args:
    mechanism: Mechanism that adds the noise.
    is_compiled: Whether a round is a graph, as in a process. To trace one takes
      longer than 20 rounds without.
  """

  def step(digest, tree_id, round_in_tree, digests, buffers):
    noise, buffers = noise_state.next_noise(
        mechanism,
        key=_KEY,
        domain='value',
        tree_id=tree_id,
        round_in_tree=round_in_tree,
        digests=digests,
        digest=digest,
        buffers=buffers,
        num_params=_NUM_PARAMS,
    )
    _, tree_id, round_in_tree = noise_state.advance(
        mechanism, tree_id, round_in_tree
    )
    digests = noise_state.with_digest(digests, round_in_tree, digest)
    return noise, (tree_id, round_in_tree, digests, buffers)

  if is_compiled:
    step = tf.function(step, autograph=False)
  round_digests = tf.random.stateless_uniform(
      [_NUM_ROUNDS], [1, 2], minval=None, maxval=None, dtype=tf.int64
  )
  zero = tf.constant(0, tf.int64)
  states = [(
      zero,
      zero,
      noise_state.no_digests(mechanism),
      mechanism.initialize(tf.zeros([_NUM_PARAMS])),
  )]
  noises = []
  for digest in round_digests:
    noise, state = step(digest, *states[-1])
    noises.append(noise.numpy().tobytes())
    states.append(state)
  return _Run(noises, states, step, round_digests)


def _is_rebuilt(mechanism, rebuilt_as=None) -> bool:
  """Returns whether all noises are equal after resuming at each round.

  Args:
    mechanism: Mechanism of the run.
    rebuilt_as: Mechanism that rebuilds the buffers, if it is another one.
  """

  @tf.function(autograph=False)
  def rebuild(tree_id, round_in_tree, digests):
    return noise_state.rebuild_buffers(
        rebuilt_as or mechanism,
        key=_KEY,
        domain='value',
        tree_id=tree_id,
        round_in_tree=round_in_tree,
        digests=digests,
        num_params=_NUM_PARAMS,
    )

  run = _straight_run(mechanism)
  for round_index, (*position, _) in enumerate(run.states):
    state = (*position, rebuild(*position))
    for digest, expected in zip(
        run.digests[round_index:], run.noises[round_index:]
    ):
      noise, state = run.step(digest, *state)
      if noise.numpy().tobytes() != expected:
        return False
  return True


def _keeping(mechanism, num_digests: int):
  """Returns the mechanism with another number of digests."""

  @dataclasses.dataclass(frozen=True)
  class Keeping(type(mechanism)):

    @property
    def rounds_drawn(self):
      return num_digests

  return Keeping(**{
      field.name: getattr(mechanism, field.name)
      for field in dataclasses.fields(mechanism)
      if field.init
  })


class RebuildTest(parameterized.TestCase):

  @parameterized.named_parameters(*_MECHANISMS.items())
  @pytest.mark.slow(
      cases=[
          # Without a state.
          'independent',
          'tree',
          'tree_uncached',
          'tree_all_cached',
          'honaker',
          'banded',
          'banded_restarts',
          'blt',
      ]
  )
  def test_every_later_noise_is_equal_bit_for_bit(self, mechanism):
    self.assertTrue(_is_rebuilt(mechanism))

  @parameterized.named_parameters(
      (name, mechanism)
      for name, mechanism in _MECHANISMS.items()
      if mechanism.rounds_remembered and mechanism.state_copies
  )
  @pytest.mark.slow(but=['tree_completed', 'banded_inverse_stored'])
  def test_no_round_is_remembered_in_vain(self, mechanism):
    """One round less, and some later noise comes out differently."""

    @dataclasses.dataclass(frozen=True)
    class Forgetful(type(mechanism)):

      @property
      def rounds_remembered(self):
        return super().rounds_remembered - 1

    shorter = Forgetful(**{
        field.name: getattr(mechanism, field.name)
        for field in dataclasses.fields(mechanism)
        if field.init
    })
    self.assertFalse(_is_rebuilt(mechanism, rebuilt_as=shorter))

  def test_rebuilding_may_go_on_from_what_was_rebuilt(self):
    mechanism = _MECHANISMS['blt']
    arguments = dict(
        key=_KEY,
        domain='value',
        tree_id=tf.constant(0, tf.int64),
        digests=tf.range(_NUM_ROUNDS, dtype=tf.int64),
        num_params=_NUM_PARAMS,
    )
    five, twelve = tf.constant(5, tf.int64), tf.constant(12, tf.int64)
    at_once = noise_state.rebuild_buffers(
        mechanism, round_in_tree=twelve, **arguments
    )
    half_way = noise_state.rebuild_buffers(
        mechanism, round_in_tree=five, **arguments
    )
    in_two_steps = noise_state.rebuild_buffers(
        mechanism, round_in_tree=twelve, start=(five, half_way), **arguments
    )
    for found, expected in zip(in_two_steps, at_once, strict=True):
      np.testing.assert_array_equal(found, expected)

  @parameterized.named_parameters(*_MECHANISMS.items())
  @pytest.mark.slow(
      but=['tree_uncached', 'honaker_completed', 'toeplitz', 'banded_inverse']
  )
  def test_as_many_digests_as_needed_are_kept(self, mechanism):
    noises = _straight_run(mechanism, is_compiled=False).noises
    longer = _keeping(mechanism, _NUM_ROUNDS + 7)
    self.assertEqual(
        _straight_run(longer, is_compiled=False).noises, noises
    )
    if mechanism.redraws:
      shorter = _keeping(mechanism, mechanism.rounds_drawn - 1)
      self.assertNotEqual(
          _straight_run(shorter, is_compiled=False).noises, noises
      )


def _digest(seed, last, *sums):
  return noise_state.digest_of(
      streams.insecure_root_key(seed),
      tf.constant([0, last, 0], tf.int64),
      tf.constant(2, tf.int64),
      *sums,
  )


class DigestTest(absltest.TestCase):

  def test_every_number_and_the_key_count(self):
    total = np.arange(1000)
    counts = np.array([3, 0], np.int32)
    other_total, other_counts = total.copy(), counts.copy()
    other_total[-1] += 2**40
    other_counts[1] += 1
    digests = {
        int(_digest(seed, last, *sums))
        for seed, last in ((0, 0), (1, 0), (0, 1))
        for sums in (
            (total, counts),
            (other_total, counts),
            (total, other_counts),
            (total,),
            (counts, total),
        )
    }
    self.assertLen(digests, 15)
    self.assertIn(int(_digest(0, 0, total.copy(), counts.copy())), digests)


if __name__ == '__main__':
  absltest.main()
