# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every mechanism's noise as the real TFF process releases it."""

import dataclasses
import functools
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tests.aggregators import releases
from tests.mechanisms import contract
from tests.mechanisms import reference
from tff_dp import execution
from tff_dp import mechanisms
from tff_dp import streams
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.mechanisms.matrix import banded_inverse
from tff_dp.mechanisms.matrix import blt
from tff_dp.mechanisms.matrix import toeplitz

pytestmark = pytest.mark.once

_NUM_ROUNDS = 12
# As many samples of the 12 rounds. At a false alarm rate of 1e-6 a common scale
# that is wrong by 2 % is found with near certainty (non-centrality
# 12 * 20000 * 0.04^2 / 2 = 192 on 78 degrees of freedom, limit 146).
_NUM_PARAMS = 20_000
_FALSE_ALARM = 1e-6


_MECHANISMS = {
    'independent': mechanisms.Independent(_NUM_ROUNDS),
    'tree': mechanisms.Tree(_NUM_ROUNDS),
    'tree_cached': mechanisms.Tree(_NUM_ROUNDS, num_cached_levels=4),
    'tree_uncached': mechanisms.Tree(_NUM_ROUNDS, num_cached_levels=0),
    'honaker': mechanisms.HonakerTree(_NUM_ROUNDS),
    'toeplitz': toeplitz.Toeplitz.square_root(_NUM_ROUNDS),
    'banded': toeplitz.Banded(_NUM_ROUNDS, (1.0, 0.5, 0.375, 0.25)),
    # More terms than one walk over memory adds up.
    'banded_many': toeplitz.Banded.square_root(_NUM_ROUNDS, 10),
    'blt': blt.Blt(_NUM_ROUNDS, (0.25, 0.125, 0.1), (0.95, 0.5, 0.1)),
    'banded_inverse': banded_inverse.BandedInverse(
        _NUM_ROUNDS, (1.0, -0.5, -0.125)
    ),
    'banded_inverse_stored': banded_inverse.BandedInverse(
        _NUM_ROUNDS, (1.0, -0.5, -0.125), stores_draws=True
    ),
}
_RESTARTING = {
    name: dataclasses.replace(mechanism, restart_every=5)
    for name, mechanism in _MECHANISMS.items()
    if name != 'independent'
}
_COMPLETED = {
    name: dataclasses.replace(_RESTARTING[name], complete_trees=True)
    for name in ('tree', 'honaker')
}
_ALL = [
    *((name, mechanism) for name, mechanism in _MECHANISMS.items()),
    *((f'{name}_restarts', m) for name, m in _RESTARTING.items()),
]
# One of every kind, restarting or not, and of every way to store its draws.
_DEFAULT = [
    'independent',
    'tree',
    'tree_uncached_restarts',
    'honaker',
    'honaker_completed',
    'toeplitz_restarts',
    'banded_many',
    'blt_restarts',
    'banded_inverse_restarts',
    'banded_inverse_stored',
]


def setUpModule():
  execution.set_default_context()


@functools.cache
def _process(mechanism):
  return releases.build_process(
      mechanism, _NUM_PARAMS, insecure_seed=releases.SEED
  )


@functools.cache
def _released_noise(mechanism):
  return releases.release_noise(mechanism, _NUM_PARAMS, _process(mechanism))


def _statistic_and_limit(released, claimed):
  statistic = reference.covariance_statistic(
      released, reference.covariance(claimed) * releases.SCALE**2
  )
  degrees = _NUM_ROUNDS * (_NUM_ROUNDS + 1) / 2
  return statistic, scipy.stats.chi2.isf(_FALSE_ALARM, degrees)


@dataclasses.dataclass(frozen=True)
class _Quiet(mechanisms.Independent):
  """A mutant: three percent too little noise on every release."""

  def next_noise(self, buffers, round_in_tree, operations):
    noise, buffers = super().next_noise(buffers, round_in_tree, operations)
    return 0.97 * noise, buffers


@dataclasses.dataclass(frozen=True)
class _ForgetfulTree(mechanisms.Tree):
  """A mutant: never takes back what lies below a new node."""

  def next_noise(self, buffers, round_in_tree, operations):
    return operations.draw(0, round_in_tree - 1), buffers


@dataclasses.dataclass(frozen=True)
class _ForgetfulBlt(blt.Blt):
  """A mutant: forgets its buffers after every round."""

  def next_noise(self, buffers, round_in_tree, operations):
    noise, _ = super().next_noise(buffers, round_in_tree, operations)
    return noise, buffers


@dataclasses.dataclass(frozen=True)
class _LastingBlt(blt.Blt):
  """A mutant: keeps its buffers across a restart."""

  @property
  def overwrites_buffers(self):
    return True


class CovarianceTest(parameterized.TestCase):
  """Released noise on zero data against C^-1 C^-T and the trees' analogue."""

  @parameterized.named_parameters(
      *_ALL, *((f'{name}_completed', m) for name, m in _COMPLETED.items())
  )
  @pytest.mark.slow(but=_DEFAULT)
  def test_equals_the_definition(self, mechanism):
    released = _released_noise(mechanism)
    statistic, limit = _statistic_and_limit(released, mechanism)
    self.assertLess(statistic, limit)

  @parameterized.named_parameters(
      (
          'wrong_scale',
          _Quiet(_NUM_ROUNDS),
          _MECHANISMS['independent'],
      ),
      ('never_takes_back', _ForgetfulTree(_NUM_ROUNDS), _MECHANISMS['tree']),
      ('other_estimator', _MECHANISMS['tree'], _MECHANISMS['honaker']),
      ('not_completed', _RESTARTING['tree'], _COMPLETED['tree']),
      (
          'forgotten_buffers',
          _ForgetfulBlt(_NUM_ROUNDS, (0.25,), (0.5,)),
          blt.Blt(_NUM_ROUNDS, (0.25,), (0.5,)),
      ),
      (
          'not_restarted',
          _LastingBlt(_NUM_ROUNDS, (0.5,), (0.9,), restart_every=5),
          blt.Blt(_NUM_ROUNDS, (0.5,), (0.9,), restart_every=5),
      ),
      (
          'one_band_missing',
          toeplitz.Banded(_NUM_ROUNDS, (1.0, 0.5, 0.375)),
          _MECHANISMS['banded'],
      ),
  )
  @pytest.mark.slow(but=['wrong_scale', 'other_estimator', 'not_restarted'])
  def test_mutants_fail(self, mutant, claimed):
    released = _released_noise(mutant)
    statistic, limit = _statistic_and_limit(released, claimed)
    self.assertGreater(statistic, limit)

  @pytest.mark.reference_only(reason="needs TFF's worker")
  def test_through_the_worker(self):
    mechanism = _RESTARTING['blt']
    process = _process(mechanism)
    with execution.create_native_context():
      released = releases.release_noise(mechanism, _NUM_PARAMS, process)
    statistic, limit = _statistic_and_limit(released, mechanism)
    self.assertLess(statistic, limit)


class ContinuationTest(parameterized.TestCase):
  """One state that is continued twice."""

  @parameterized.named_parameters(
      *_ALL, *((f'{name}_completed', m) for name, m in _COMPLETED.items())
  )
  @pytest.mark.slow(but=_DEFAULT)
  def test_other_data_have_other_noise_and_equal_data_the_same(self, mechanism):
    # The fork is within the first tree of those that restart after 5 rounds.
    num_common = 2
    process = _process(mechanism)
    usual, other = np.zeros([2, _NUM_PARAMS], np.float32)
    other[0] = 0.25
    state = process.initialize()
    for _ in range(num_common):
      state = process.next(state, [usual]).state
    # All later rounds are on equal data: neither they, nor their sum with the
    # first, may give away what that protects.
    later = [usual] * (mechanism.num_rounds - num_common - 1)
    usual_run, other_run, repeated = (
        _release(process, state, [first, *later])
        for first in (usual, other, usual)
    )
    np.testing.assert_array_equal(repeated, usual_run)
    difference = (other_run - usual_run).astype(np.float64)
    difference[0] -= other / releases.ARGUMENTS['clients_per_round']
    fresh = _fresh_noise(mechanism, num_common)
    statistic = reference.covariance_statistic(
        difference, 2 * fresh @ fresh.T * releases.SCALE**2
    )
    degrees = len(fresh) * (len(fresh) + 1) / 2
    self.assertLess(statistic, scipy.stats.chi2.isf(_FALSE_ALARM, degrees))


def _release(process, state, rounds) -> np.ndarray:
  released = []
  for value in rounds:
    output = process.next(state, [value])
    state = output.state
    released.append(output.result)
  return np.stack(released)


def _fresh_noise(mechanism, num_common: int) -> np.ndarray:
  """Returns the noise of the later rounds in draws of their own, as rows."""
  residuals, nodes = contract.noise_matrix(mechanism)
  length = mechanism.rounds_per_tree
  # Virtual rounds are caught up on by the round that opens the next tree.
  drawn_in = np.array([
      tree * length + min(mechanism_lib.round_of_draw(*node), length + 1)
      for tree, *node in nodes
  ])
  return residuals[num_common:, drawn_in > num_common]


class TelescopingTest(parameterized.TestCase):

  @parameterized.named_parameters(*_ALL)
  @pytest.mark.slow(but=_DEFAULT)
  def test_prefix_sums_are_the_noise_of_the_definition(self, mechanism):
    released = _released_noise(mechanism)
    np.testing.assert_allclose(
        np.cumsum(released.astype(np.float64), axis=0) / releases.SCALE,
        releases.expected_prefix_noise(mechanism, _NUM_PARAMS),
        rtol=0,
        # Twelve rounds of float32 arithmetic on numbers of a few units.
        atol=1e-5,
    )


class StateTest(parameterized.TestCase):

  @parameterized.named_parameters(*_ALL)
  @pytest.mark.slow(but=['honaker', 'banded_inverse_stored'])
  def test_static_types_one_trace_and_no_data(self, mechanism):
    calls = []
    next_noise = type(mechanism).next_noise

    def counted(*arguments):
      calls.append(None)
      return next_noise(*arguments)

    # Data reach the state through digests only.
    with mock.patch.object(
        streams, 'digest', lambda _: tf.constant(0, tf.int64)
    ), mock.patch.object(type(mechanism), 'next_noise', counted):
      process = releases.build_process(mechanism, 8)
      num_traces = len(calls)
      self.assertGreater(num_traces, 0)
      initial = empty = full = process.initialize()
      self.assertLen(initial['buffers'], mechanism.state_copies)
      for round_index in range(mechanism.num_rounds):
        value = np.full(8, 0.01 * (round_index + 1), np.float32)
        empty = process.next(empty, []).state
        full = process.next(full, [value]).state
        for leaf, other, first in zip(
            *map(tf.nest.flatten, (full, empty, initial)), strict=True
        ):
          # What data never changes is no sum of data, noised or not.
          np.testing.assert_array_equal(leaf, other)
          self.assertEqual(np.shape(leaf), np.shape(first))
          self.assertEqual(np.asarray(leaf).dtype, np.asarray(first).dtype)
        for leaf in full['buffers']:
          self.assertEqual(leaf.shape, (8,))
      # TFF cannot trace `next` again; the mechanism must not be called again.
      self.assertLen(calls, num_traces)
    with self.assertRaisesRegex(
        Exception, f'num_rounds={_NUM_ROUNDS} rounds are done'
    ):
      process.next(full, [])


if __name__ == '__main__':
  absltest.main()
