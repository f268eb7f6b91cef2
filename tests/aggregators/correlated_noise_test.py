# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the factory through the real TFF process."""

import collections
import fractions
import functools

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.aggregators import releases
from tff_dp import _checks
from tff_dp import execution
from tff_dp import mechanisms
from tff_dp.aggregators import clipping
from tff_dp.aggregators import correlated_noise
from tff_dp.aggregators import shuffle

pytestmark = pytest.mark.once

_VECTOR = tff.TensorType(np.float32, [4])


def setUpModule():
  execution.set_default_context()


def _factory(mechanism=None, **changes):
  arguments = dict(
      noise_multiplier=0.0, l2_norm_clip=1.0, clients_per_round=2
  )
  arguments.update(changes)
  return correlated_noise.CorrelatedNoiseFactory(
      mechanism or mechanisms.HonakerTree(8), **arguments
  )


@functools.cache
def _process(value_type, **arguments):
  return _factory(**arguments).create(value_type)


# Trees that restart and are completed.
_COMPLETED = mechanisms.HonakerTree(15, restart_every=7, complete_trees=True)


def _noised(insecure_seed=None):
  return _process(
      _VECTOR,
      mechanism=_COMPLETED,
      noise_multiplier=1.5,
      l2_norm_clip=0.5,
      clients_per_round=4,
      insecure_seed=insecure_seed,
  )


class KeysTest(absltest.TestCase):

  def test_every_initialize_draws_its_own_key(self):
    keys = {tuple(_noised().initialize()['key']) for _ in range(4)}
    self.assertLen(keys, 4)

  def test_a_restart_never_replays_noise_whatever_the_key(self):
    for seed in (None, 1):
      released = releases.release_noise(_COMPLETED, 4, _noised(seed))
      self.assertLen(np.unique(released, axis=0), 15)

  def test_a_state_without_a_key_is_refused(self):
    state = _noised().initialize()
    state['key'] = np.zeros_like(state['key'])
    with self.assertRaisesRegex(Exception, 'key of the noise is all zeros'):
      _noised().next(state, [])

  def test_insecure_seed_is_flagged_in_the_state(self):
    for seed, is_insecure in ((None, False), (1, True)):
      state = _noised(seed).initialize()
      self.assertEqual(bool(state['is_key_insecure']), is_insecure)

  def test_a_resumed_process_continues_bit_for_bit(self):
    # Another process, built without the seed: the state decides.
    process, resumed = _noised(insecure_seed=1), _noised()
    state = process.initialize()
    for _ in range(_COMPLETED.num_rounds):
      saved = tf.nest.map_structure(np.copy, state)
      output = process.next(state, [])
      np.testing.assert_array_equal(
          resumed.next(saved, []).result, output.result
      )
      state = output.state


class ClippingTest(parameterized.TestCase):

  def _next(self, values, value_type=_VECTOR, **changes):
    process = _process(value_type, **changes)
    return process.next(process.initialize(), values)

  def _clip(self, value, clip):
    """Returns (clipped update, counts) of a client, before the sum."""
    compiled = tf.function(lambda update: clipping.clip(update, float(clip)))
    clipped, counts = compiled(tf.constant(value))
    return clipped.numpy(), counts

  def test_sum_is_divided_by_the_expected_count(self):
    value = np.array([0.5, 0, 0, 0], np.float32)
    for num_clients in (0, 1, 3):
      output = self._next([value] * num_clients)
      np.testing.assert_allclose(output.result, value * num_clients / 2)
      self.assertEqual(
          output.measurements['not_covered']['num_clients'], num_clients
      )

  def test_whole_update_is_clipped_not_each_tensor(self):
    value_type = tff.to_type(
        collections.OrderedDict(a=(np.float32, [1]), b=(np.float32, [2, 1]))
    )
    output = self._next(
        [
            collections.OrderedDict(
                a=np.array([3.0], np.float32),
                b=np.array([[0.0], [4.0]], np.float32),
            )
        ],
        value_type,
        clients_per_round=1,
    )
    np.testing.assert_allclose(output.result['a'], [0.6], rtol=1e-4)
    np.testing.assert_allclose(output.result['b'], [[0], [0.8]], rtol=1e-4)
    self.assertEqual(output.measurements['not_covered']['num_clipped'], 1)

  def test_released_norm_never_exceeds_the_clip_norm(self):
    rng = np.random.default_rng(0)
    for scale in (1e-30, 1.0, 1.0000001, 3.0, 1e18, 1e30):
      value = rng.standard_normal(100_000).astype(np.float32)
      value = (value / np.linalg.norm(value) * scale).astype(np.float32)
      output = self._next(
          [value],
          tff.TensorType(np.float32, [100_000]),
          clients_per_round=1,
      )
      self.assertLessEqual(np.linalg.norm(output.result.astype(np.float64)), 1.0)

  def test_norm_that_only_seems_to_be_within_the_clip_norm_is_clipped(self):
    # In float32 the norm of many equal numbers comes out too small.
    size = 1_000_000
    value = np.full(size, (1 + 1e-7) / np.sqrt(size), np.float32)
    self.assertGreater(np.linalg.norm(value.astype(np.float64)), 1.0)
    self.assertLess(tf.norm(value), 1.0)
    clipped, _ = self._clip(value, 1.0)
    self.assertLessEqual(np.linalg.norm(clipped.astype(np.float64)), 1.0)

  @parameterized.parameters(1, 64)
  def test_norm_that_float32_loses_most_of_is_within_the_clip_norm(self, tiles):
    # In each of TensorFlow's running sums a one comes first, and then squares
    # that are a little too small to change it.
    run = np.full(4 * 2048, 2.0**-12 * (1 - 2.0**-11), np.float32)
    run[:4] = 1.0
    value = np.tile(run, tiles)
    norm = np.linalg.norm(value.astype(np.float64))
    self.assertLess(tf.norm(value), norm * (1 - 7e-6))
    counts = []
    for clip in (norm * (1 - 1e-9), norm / 2):
      clipped, found = self._clip(value, clip)
      counts.append(int(found['num_clipped']))
      self.assertLessEqual(np.linalg.norm(clipped.astype(np.float64)), clip)
    self.assertEqual(counts, [1, 1])

  @parameterized.named_parameters(
      ('nan', np.nan, 'num_zeroed'),
      ('infinite', np.inf, 'num_zeroed'),
      ('negative_infinite', -np.inf, 'num_zeroed'),
      ('norm_beyond_float32', 3e38, 'num_zeroed'),
      ('empty', 0.0, 'num_empty'),
  )
  def test_bad_clients_are_zeroed_and_counted(self, entry, counter):
    good = np.array([0.5, 0, 0, 0], np.float32)
    bad = np.array([entry, 0, entry, 0], np.float32)
    output = self._next([bad, good, bad])
    np.testing.assert_allclose(output.result, good / 2)
    counts = output.measurements['not_covered']
    self.assertEqual(counts[counter], 2)
    self.assertEqual(counts['num_clients'], 3)


class SensitivityTest(parameterized.TestCase):
  """Sums of adversarial cohorts, with and without one client."""

  @parameterized.named_parameters(
      ('4097_clients_256_weights', 4_097, 256, 1.2),
      ('2049_clients_100000_weights', 2_049, 100_000, 0.65),
  )
  @pytest.mark.slow(cases=['2049_clients_100000_weights'])
  def test_one_client_moves_the_release_by_its_own_update(
      self, num_clients, size, moved_in_float32
  ):
    cohort = releases.crossing_cohort(num_clients, size)
    process = _factory(clients_per_round=1).create(
        tff.TensorType(np.float32, [size])
    )
    moved, resolution = releases.moved_by_first(process, cohort)
    self.assertLessEqual(moved, np.linalg.norm(cohort[0]) + resolution)
    # In float32 it would be more, so the cohort is a hard one.
    self.assertGreater(
        releases.moved_by_first_in_float32(cohort), moved_in_float32
    )

  @parameterized.product(
      size=(1, 3, 1_000), clip=(1e-15, 0.3, 1.0, 1.9999999, 1e15)
  )
  @pytest.mark.slow(cases=['0', '2', '4', '11', '12', '13'])
  def test_sum_moves_by_at_most_the_clip_norm_exactly(self, size, clip):
    clip = float(np.float32(clip))
    cohort = _hard_updates(size, clip)
    # Pairs that cancel leave only what rounding has to say.
    cohort += [-update for update in cohort[::-1]]
    step = shuffle.grid_step(clip)
    add_up = _build_sum_of_clipped(size, clip, step)
    total = add_up(cohort)
    for index in range(len(cohort)):
      others = cohort[:index] + cohort[index + 1 :]
      moved = [int(unit) for unit in total - add_up(others)]
      # Python's integers and fractions have no rounding.
      self.assertLessEqual(
          sum(unit**2 for unit in moved) * fractions.Fraction(step) ** 2,
          fractions.Fraction(clip) ** 2,
      )
      np.testing.assert_array_equal(moved, add_up([cohort[index]]))

  def test_neither_order_nor_workers_change_the_noised_release(self):
    cohort = _hard_updates(50, 1.0)
    process = _factory(
        noise_multiplier=1e-6, insecure_seed=5, clients_per_round=3
    ).create(tff.TensorType(np.float32, [50]))
    results = []
    for num_workers in (1, 3):
      with execution.create_sync_in_process_context(
          max_concurrent_clients=num_workers
      ):
        for order in (cohort, cohort[::-1]):
          state = process.initialize()
          results.append(process.next(state, order).result)
    for result in results[1:]:
      np.testing.assert_array_equal(result, results[0])

  def test_noise_is_added_before_anything_is_rounded_to_float32(self):
    # 2^24 + 1 is no float32 number; with noise of -2^24 the 1 is left.
    for total in (2**24 + 1, 2**40 + 1):
      result = correlated_noise.noised_mean(
          tf.constant([total], tf.int64),
          1.0,
          tf.constant([1.0]),
          float(1 - total),
          1,
      )
      np.testing.assert_array_equal(result, [1.0])


def _hard_updates(size: int, clip: float) -> list[np.ndarray]:
  """Returns updates around the clip norm, and around ties of the grid."""
  step = shuffle.grid_step(clip)
  rng = np.random.default_rng(size)
  random = rng.standard_normal(size)
  random /= np.linalg.norm(random)
  even = np.full(size, size**-0.5)
  return [
      np.asarray(update, np.float32)
      for direction in (even, random)
      for update in (
          direction * clip * (1 - 1e-5),
          direction * clip,
          direction * clip * 3,
          direction * clip * 2.0**-20,
          (np.round(direction * clip / step) + 0.5) * step,
          np.sign(direction) * step * 0.5,
          np.sign(direction) * step * (1 - 2.0**-20),
      )
  ]


def _build_sum_of_clipped(size: int, clip: float, step: float):
  """Returns what the factory does up to the noise: clients to a total."""
  value_type = tff.TensorType(np.float32, [size])

  @tff.tensorflow.computation(value_type)
  @tf.function(autograph=False)
  def clip_one(update):
    return clipping.clip(update, clip)[0]

  add_up = shuffle.build_sum(size, step=step)

  @tff.federated_computation(tff.FederatedType(value_type, tff.CLIENTS))
  def run(values):
    return add_up(tff.federated_map(clip_one, values))['total']

  return run


class ContractTest(parameterized.TestCase):

  def test_type_signature(self):
    state_type = tff.to_type(
        collections.OrderedDict(
            release_id=np.int64,
            key=(np.int64, [2]),
            is_key_insecure=np.bool_,
            round=np.int64,
            tree_id=np.int64,
            round_in_tree=np.int64,
            digests=(np.int64, [7]),
            buffers=((np.float32, [4]),) * 3,
        )
    )
    measurements_type = tff.to_type(
        collections.OrderedDict(
            clip_norm=np.float32,
            noise_stddev=np.float32,
            round=np.int64,
            tree_id=np.int64,
            snr=np.float32,
            not_covered=collections.OrderedDict(
                num_clients=np.int32,
                num_zeroed=np.int32,
                num_empty=np.int32,
                num_clipped=np.int32,
            ),
        )
    )
    tff.test.assert_types_equivalent(
        _noised().next.type_signature,
        tff.FunctionType(
            collections.OrderedDict(
                state=tff.FederatedType(state_type, tff.SERVER),
                value=tff.FederatedType(_VECTOR, tff.CLIENTS),
            ),
            tff.templates.MeasuredProcessOutput(
                tff.FederatedType(state_type, tff.SERVER),
                tff.FederatedType(_VECTOR, tff.SERVER),
                tff.FederatedType(measurements_type, tff.SERVER),
            ),
        ),
    )

  def test_round_beyond_the_horizon_raises(self):
    with self.assertRaisesRegex(Exception, 'num_rounds=15 rounds are done'):
      releases.release_noise(_COMPLETED, 4, _noised(), num_rounds=16)

  @parameterized.parameters(False, True)
  def test_state_of_other_noise_raises(self, eagerly):
    # Noise of the same draws and another scale would give the data away.
    tf.config.run_functions_eagerly(eagerly)
    self.addCleanup(tf.config.run_functions_eagerly, False)
    quiet, loud = (
        _factory(noise_multiplier=noise).create(_VECTOR) for noise in (1.0, 8.0)
    )
    state, update = quiet.initialize(), np.ones(4, np.float32)
    quiet.next(state, [update])
    with self.assertRaisesRegex(Exception, 'adds other noise'):
      loud.next(state, [update])

  def test_reported_stddev_and_snr_are_those_of_the_release(self):
    process = _factory(noise_multiplier=2.0, clients_per_round=1).create(
        tff.TensorType(np.float32, [20_000])
    )
    state = process.initialize()
    for _ in range(8):
      output = process.next(state, [])
      state = output.state
      stddev = output.measurements['noise_stddev']
      # Relative std of a standard deviation from 20,000 samples: 0.5 %.
      self.assertAlmostEqual(np.std(output.result) / stddev, 1.0, delta=0.03)
      self.assertLess(output.measurements['snr'], 0.3)

  @parameterized.named_parameters(
      ('noise', dict(noise_multiplier=-1.0), 'noise_multiplier=-1.0'),
      ('nan', dict(noise_multiplier=float('nan')), 'noise_multiplier=nan'),
      ('clip', dict(l2_norm_clip=0.0), 'l2_norm_clip=0.0'),
      ('tiny_clip', dict(l2_norm_clip=1e-20), 'l2_norm_clip=1e-20'),
      ('huge_clip', dict(l2_norm_clip=1e300), 'l2_norm_clip=1e.300'),
      ('cohort', dict(clients_per_round=2.5), 'clients_per_round=2.5'),
      ('seed', dict(insecure_seed=-4), 'insecure_seed=-4'),
  )
  def test_bad_arguments_are_named(self, changes, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      _factory(**changes)

  def test_integer_updates_are_refused(self):
    with self.assertRaisesRegex(TypeError, 'float32.*model decide dtype'):
      _factory().create(tff.TensorType(np.int32, [4]))


if __name__ == '__main__':
  absltest.main()
