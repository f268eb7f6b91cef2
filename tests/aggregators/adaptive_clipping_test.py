# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of adaptive clipping through the real TFF process."""

import collections
import functools
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_federated as tff

from tests.aggregators import releases
from tests.mechanisms import reference
from tff_dp import _checks
from tff_dp import execution
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp import streams
from tff_dp.aggregators import adaptive_clipping
from tff_dp.mechanisms import adaptive_clipping as adaptive_clipping_lib
from tff_dp.systems.dp_ftrl import plan as plan_lib

pytestmark = pytest.mark.once

_CLIENTS = 5
_TARGET, _RATE, _SHARE, _NOISE = 0.4, 0.7, 0.2, 1.5


def setUpModule():
  execution.set_default_context()


def _factory(mechanism=None, *, spec=None, **changes):
  arguments = dict(
      noise_multiplier=_NOISE,
      initial_l2_norm_clip=2.0,
      clients_per_round=_CLIENTS,
      insecure_seed=3,
  )
  arguments.update(changes)
  return adaptive_clipping.AdaptiveClippingFactory(
      mechanism or mechanisms.HonakerTree(12, restart_every=4),
      adaptive_clipping=spec
      or adaptive_clipping_lib.AdaptiveClipping(
          target_quantile=_TARGET, learning_rate=_RATE, budget_share=_SHARE
      ),
      **arguments,
  )


def _vectors(num_params):
  return tff.TensorType(np.float32, [num_params])


# What most tests share.
_HONAKER = mechanisms.HonakerTree(12, restart_every=4)


@functools.cache
def _process(mechanism):
  return _factory(mechanism).create(_vectors(4))


@functools.cache
def _without_noise():
  return _factory(noise_multiplier=0.0).create(_vectors(4))


def _run(process, rounds, state=None):
  """Returns the outputs of the process for the given lists of updates."""
  outputs, state = [], state or process.initialize()
  for updates in rounds:
    output = process.next(state, updates)
    state = output.state
    outputs.append(output)
  return outputs


def _noised_bits(outputs, rounds_per_tree):
  """Returns the released sums of bits, from the estimates that are released."""
  estimates = np.array(
      [output.measurements['quantile_estimate'] for output in outputs]
  ).reshape(-1, rounds_per_tree)
  sums = (estimates - 0.5) * np.arange(1, rounds_per_tree + 1) * _CLIENTS
  return np.diff(sums, axis=1, prepend=0.0).ravel()


def _statistic_and_limit(samples, covariance):
  """Returns the log-likelihood ratio of a covariance, and its 1e-6 quantile.

  Chi-square with d (d + 1) / 2 degrees of freedom where the covariance of the
  samples, normal and of shape [d, number], is right.
  """
  size, number = samples.shape
  ratio = np.linalg.solve(covariance, samples @ samples.T / number)
  _, log_determinant = np.linalg.slogdet(ratio)
  return (
      number * (np.trace(ratio) - log_determinant - size),
      scipy.stats.chi2.isf(1e-6, size * (size + 1) / 2),
  )


class ReleasedNoiseTest(parameterized.TestCase):
  """Both streams as released, over many trees with a clip norm each."""

  # 192 coordinates of 100 trees: a common scale of the updates that is wrong by
  # 3 % is found (non-centrality 4 * 19200 * 0.06^2 / 2 = 138 on 10 degrees, of
  # which the limit is 51). The bits have 100 samples only: 40 % is found
  # (4 * 100 * 0.8^2 / 2 = 128 on 36 degrees, of which the limit is 88).
  _TREES, _PARAMS = 100, 192

  def _streams(self, mechanism, rounds_per_tree):
    """Returns (updates, bits, clip norms, reported standard deviations).

    Updates and deviations are of the sum, over the clip norm. Shapes: [rounds
    per tree, trees, params], [rounds per tree, trees], [trees, rounds per
    tree], [trees, rounds per tree].
    """
    # At a target of 1/2 the clip norm has no drift without clients.
    spec = adaptive_clipping_lib.AdaptiveClipping(
        learning_rate=_RATE, budget_share=_SHARE
    )
    process = _factory(mechanism, spec=spec).create(_vectors(self._PARAMS))
    outputs = _run(process, [[]] * (rounds_per_tree * self._TREES))
    results = np.stack([output.result for output in outputs])
    clip_norms = np.array([o.measurements['clip_norm'] for o in outputs])
    stddevs = np.array([o.measurements['noise_stddev'] for o in outputs])
    bits = _noised_bits(outputs, rounds_per_tree)
    updates = results * _CLIENTS / clip_norms[:, np.newaxis]
    shape = (self._TREES, rounds_per_tree)
    return (
        np.moveaxis(updates.reshape(*shape, self._PARAMS), 1, 0),
        bits.reshape(shape).T,
        clip_norms.reshape(shape),
        (stddevs * _CLIENTS / clip_norms).reshape(shape),
    )

  @parameterized.named_parameters(
      ('honaker', mechanisms.HonakerTree),
      ('vanilla', mechanisms.Tree),
      ('blt', functools.partial(mechanisms.Blt, weights=(0.5,), decays=(0.7,))),
  )
  @pytest.mark.slow(but=['honaker'])
  def test_covariance_of_trees(self, make):
    mechanism = make(4 * self._TREES, restart_every=4)
    updates, bits, clip_norms, stddevs = self._streams(mechanism, 4)
    # One clip norm in a tree, another one in each.
    self.assertTrue(np.all(clip_norms == clip_norms[:, :1]))
    self.assertTrue(np.all(np.diff(clip_norms[:, 0])))
    unit = reference.covariance(make(4))
    value_variance = _NOISE**2 / (1 - _SHARE)
    bits_variance = _NOISE**2 / (4 * _SHARE)
    np.testing.assert_allclose(
        stddevs,
        np.broadcast_to(
            np.sqrt(np.diag(unit) * value_variance), stddevs.shape
        ),
        rtol=1e-5,
    )
    self.assertLess(
        *_statistic_and_limit(updates.reshape(4, -1), unit * value_variance)
    )
    # Together, so that a dependence between the two would show.
    both = np.concatenate([updates[..., 0], bits])
    covariance = np.kron(np.diag([value_variance, bits_variance]), unit)
    self.assertLess(*_statistic_and_limit(both, covariance))

  def test_independent_noise_has_a_clip_norm_every_round(self):
    mechanism = mechanisms.Independent(4 * self._TREES)
    updates, bits, clip_norms, _ = self._streams(mechanism, 1)
    self.assertTrue(np.all(np.diff(clip_norms[:, 0])))
    variances = [_NOISE**2 / (1 - _SHARE), _NOISE**2 / (4 * _SHARE)]
    self.assertLess(
        *_statistic_and_limit(updates.reshape(1, -1), np.diag(variances[:1]))
    )
    both = np.concatenate([updates[..., 0], bits])
    self.assertLess(*_statistic_and_limit(both, np.diag(variances)))

  def test_one_key_domain_for_both_streams_would_be_found(self):
    with mock.patch.object(adaptive_clipping, 'QUANTILE_DOMAIN', 'value'):
      updates, bits, *_ = self._streams(
          mechanisms.Independent(4 * self._TREES), 1
      )
    both = np.concatenate([updates[..., 0], bits])
    covariance = np.diag([_NOISE**2 / (1 - _SHARE), _NOISE**2 / (4 * _SHARE)])
    self.assertGreater(*_statistic_and_limit(both, covariance))

  def test_no_noise_where_none_was_asked_for(self):
    for output in _run(_without_noise(), [[]] * 12):
      self.assertAllZero(output.result)
      self.assertEqual(output.measurements['quantile_estimate'], 0.5)

  def assertAllZero(self, value):
    np.testing.assert_array_equal(value, np.zeros_like(value))


class ClipNormTest(parameterized.TestCase):

  def _updates(self, norms):
    """Returns one update of every norm, in changing directions."""
    directions = np.eye(4, dtype=np.float32)
    return [
        np.float32(norm) * directions[i % 4] for i, norm in enumerate(norms)
    ]

  @parameterized.named_parameters(
      ('honaker', _HONAKER, 4),
      ('independent', mechanisms.Independent(12), 1),
  )
  @pytest.mark.slow(cases=['independent'])
  def test_follows_from_what_was_released_when_a_tree_begins(
      self, mechanism, rounds_per_tree
  ):
    rng = np.random.default_rng(0)
    outputs = _run(
        _process(mechanism),
        [self._updates(rng.uniform(0, 4, _CLIENTS)) for _ in range(12)],
    )
    expected, estimate = 2.0, None
    for index, output in enumerate(outputs):
      if index and index % rounds_per_tree == 0:
        share = min(max(estimate, 0.0), 1.0)
        expected *= np.exp(-_RATE * (share - _TARGET))
      self.assertAlmostEqual(
          output.measurements['clip_norm'] / expected, 1.0, delta=1e-5
      )
      self.assertEqual(
          output.measurements['tree_id'],
          0 if rounds_per_tree == 1 else index // rounds_per_tree,
      )
      estimate = float(output.measurements['quantile_estimate'])

  def test_clients_are_clipped_to_the_norm_of_the_tree(self):
    process = _without_noise()
    # Nobody is within the clip norm: it grows by exp(rate * target) a tree.
    huge = [np.array([0, 3e4, 0, 4e4], np.float32)]
    for index, output in enumerate(_run(process, [_CLIENTS * huge] * 12)):
      clip_norm = 2.0 * np.exp(_RATE * _TARGET * (index // 4))
      norm = np.linalg.norm(output.result)
      self.assertBetween(norm, clip_norm * (1 - 3e-5), clip_norm * (1 + 1e-6))
      self.assertAlmostEqual(
          output.measurements['quantile_estimate'], 0.0, delta=1e-6
      )

  def test_a_tiny_update_is_within_and_the_clip_norm_shrinks(self):
    process = _without_noise()
    tiny = self._updates([1e-20] * _CLIENTS)
    clip_norms = [
        float(output.measurements['clip_norm'])
        for output in _run(process, [tiny] * 12)
    ]
    self.assertAlmostEqual(
        clip_norms[4] / clip_norms[0], np.exp(-_RATE * (1 - _TARGET)), places=5
    )

  def test_missing_clients_pull_the_estimate_to_one_half(self):
    process = _without_noise()
    (output,) = _run(process, [self._updates([1.0, 1.0])])
    # 2 bits of +1/2 over the 5 clients that were expected.
    self.assertAlmostEqual(output.measurements['quantile_estimate'], 0.7)
    np.testing.assert_allclose(output.result, [0.2, 0.2, 0, 0], rtol=1e-4)

  @parameterized.parameters(1e-15, 1.0, 1.75, 1e15)
  @pytest.mark.slow(cases=['0', '1', '3'])
  def test_one_client_moves_the_sum_by_its_own_update(self, clip_norm):
    size = 256
    scale = np.float32(clip_norm)
    cohort = [
        update * scale for update in releases.crossing_cohort(4_097, size)
    ]
    process = _factory(
        noise_multiplier=0.0,
        initial_l2_norm_clip=clip_norm,
        clients_per_round=1,
    ).create(_vectors(size))
    moved, resolution = releases.moved_by_first(process, cohort)
    self.assertLessEqual(moved, np.linalg.norm(cohort[0]) + resolution)
    self.assertGreater(moved, 0.9 * np.linalg.norm(cohort[0]))

  @parameterized.parameters(np.nan, np.inf, -np.inf, 3e38)
  def test_a_bad_client_counts_as_zero(self, entry):
    process = _without_noise()
    bad = np.array([entry, 0, entry, 0], np.float32)
    (output,) = _run(process, [self._updates([1.0, 5.0]) + [bad]])
    # Within: 1.0 and the bad one; beyond: 5.0.
    self.assertAlmostEqual(output.measurements['quantile_estimate'], 0.6)
    np.testing.assert_allclose(output.result, [0.2, 0.4, 0, 0], rtol=1e-4)
    counts = output.measurements['not_covered']
    self.assertEqual(
        [int(counts[name]) for name in ('num_zeroed', 'num_clipped')], [1, 1]
    )

  @parameterized.parameters(0.2, 0.5, 0.8)
  @pytest.mark.slow(but=['0'])
  def test_converges_to_the_quantile_of_the_norms(self, target):
    # A new clip norm in every round.
    rounds, clients = 40, 50
    process = _factory(
        mechanisms.Independent(rounds),
        spec=adaptive_clipping_lib.AdaptiveClipping(
            target_quantile=target, learning_rate=0.5, budget_share=0.1
        ),
        clients_per_round=clients,
        initial_l2_norm_clip=10.0,
        noise_multiplier=1.0,
    ).create(_vectors(4))
    rng = np.random.default_rng(int(10 * target))
    norms = rng.lognormal(0.3, 0.6, size=(rounds, clients))
    outputs = _run(process, map(self._updates, norms))
    late = [float(o.measurements['clip_norm']) for o in outputs[rounds // 2 :]]
    quantile = np.exp(0.3 + 0.6 * scipy.stats.norm.ppf(target))
    self.assertAlmostEqual(np.mean(late) / quantile, 1.0, delta=0.1)

  def test_stays_within_float32_whatever_the_clients_send(self):
    process = _factory(
        mechanisms.Independent(8),
        spec=adaptive_clipping_lib.AdaptiveClipping(learning_rate=1000.0),
    ).create(_vectors(4))
    for norms in ([1e18] * _CLIENTS, [1e-18] * _CLIENTS):
      for output in _run(process, [self._updates(norms)] * 8):
        self.assertTrue(np.all(np.isfinite(output.result)))
        self.assertBetween(output.measurements['clip_norm'], 1e-16, 1e16)


class StateTest(parameterized.TestCase):

  def test_nothing_in_it_is_without_noise_but_digests(self):
    with mock.patch.object(
        streams, 'digest', lambda _: tf.constant(0, tf.int64)
    ):
      process = _factory().create(_vectors(4))
    updates = [np.full(4, 0.25, np.float32)] * _CLIENTS
    full = _run(process, [updates] * 4)
    empty = _run(process, [[]] * 4)
    for index, (one, other) in enumerate(zip(full, empty)):
      # The noise is that of an empty round, and what differs is the sum.
      noise = float(other.state['quantile']['bits'])
      self.assertNotEqual(noise, 0.0)
      self.assertAlmostEqual(
          float(one.state['quantile']['bits']) - noise,
          0.5 * (index + 1),
          places=5,
      )
      for state in (one.state, other.state):
        state['quantile']['bits'] = None
      for leaf, leaf_of_other in zip(
          tf.nest.flatten(one.state), tf.nest.flatten(other.state)
      ):
        np.testing.assert_array_equal(leaf, leaf_of_other)

  @parameterized.named_parameters(
      ('honaker', _HONAKER),
      ('independent', mechanisms.Independent(12)),
  )
  @pytest.mark.slow(cases=['independent'])
  def test_a_resumed_process_continues_bit_for_bit(self, mechanism):
    process = _process(mechanism)
    # Another process, built anew and without the seed: the state decides.
    resumed = _factory(mechanism, insecure_seed=None).create(_vectors(4))
    updates = [np.array([1, 0, 2, 0], np.float32)] * 3
    state = process.initialize()
    for _ in range(12):
      saved = tf.nest.map_structure(np.copy, state)
      output = process.next(state, updates)
      again = resumed.next(saved, updates)
      for one, other in zip(
          tf.nest.flatten((output.result, output.state)),
          tf.nest.flatten((again.result, again.state)),
      ):
        np.testing.assert_array_equal(one, other)
      state = output.state

  def test_a_restart_never_replays_noise_of_either_stream(self):
    outputs = _run(_process(_HONAKER), [[]] * 12)
    results = np.stack([output.result for output in outputs])
    self.assertLen(np.unique(results, axis=0), 12)
    self.assertLen(np.unique(_noised_bits(outputs, 4)), 12)


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
            digests=(np.int64, [4]),
            buffers=((np.float32, [4]),) * 2,
            clip_norm=np.float32,
            quantile=collections.OrderedDict(
                bits=np.float32, buffers=((np.float32, [1]),) * 2
            ),
        )
    )
    measurements_type = tff.to_type(
        collections.OrderedDict(
            clip_norm=np.float32,
            quantile_estimate=np.float32,
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
        _process(_HONAKER).next.type_signature,
        tff.FunctionType(
            collections.OrderedDict(
                state=tff.FederatedType(state_type, tff.SERVER),
                value=tff.FederatedType(_vectors(4), tff.CLIENTS),
            ),
            tff.templates.MeasuredProcessOutput(
                tff.FederatedType(state_type, tff.SERVER),
                tff.FederatedType(_vectors(4), tff.SERVER),
                tff.FederatedType(measurements_type, tff.SERVER),
            ),
        ),
    )

  def test_structures_are_clipped_as_a_whole(self):
    value_type = tff.to_type(
        collections.OrderedDict(a=(np.float32, [1]), b=(np.float32, [2, 1]))
    )
    process = _factory(noise_multiplier=0.0, clients_per_round=1).create(
        value_type
    )
    update = collections.OrderedDict(
        a=np.array([3.0], np.float32), b=np.array([[0.0], [4.0]], np.float32)
    )
    (output,) = _run(process, [[update]])
    np.testing.assert_allclose(output.result['a'], [1.2], rtol=1e-4)
    np.testing.assert_allclose(output.result['b'], [[0], [1.6]], rtol=1e-4)

  def test_round_beyond_the_horizon_raises(self):
    with self.assertRaisesRegex(Exception, 'num_rounds=12 rounds are done'):
      _run(_process(_HONAKER), [[]] * 13)

  def test_the_plan_builds_it(self):
    plan = plan_lib.DpFtrlPlan(
        mechanism=mechanisms.HonakerTree(12, restart_every=4),
        participation=participation.MinSeparation(12, min_index_gap=4),
        l2_norm_clip=0.5,
        clients_per_round=7,
        noise_multiplier=0.0,
        adaptive_clipping=adaptive_clipping_lib.AdaptiveClipping(),
    )
    factory = plan.aggregator(insecure_seed=1)
    self.assertIsInstance(factory, adaptive_clipping.AdaptiveClippingFactory)
    process = factory.create(_vectors(1))
    (output,) = _run(process, [[np.array([9.0], np.float32)] * 7])
    self.assertAlmostEqual(float(output.result[0]), 0.5, delta=1e-4)

  @parameterized.named_parameters(
      ('noise', dict(noise_multiplier=-1.0), 'noise_multiplier=-1.0'),
      ('clip', dict(initial_l2_norm_clip=0.0), 'l2_norm_clip=0.0'),
      ('large', dict(initial_l2_norm_clip=1e20), 'initial_l2_norm_clip=1e'),
      ('cohort', dict(clients_per_round=2.5), 'clients_per_round=2.5'),
      ('seed', dict(insecure_seed=-4), 'insecure_seed=-4'),
  )
  def test_bad_arguments_are_named(self, changes, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      _factory(**changes)

  def test_a_single_tree_is_refused(self):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'restart_every'):
      _factory(mechanisms.HonakerTree(12))

  def test_integer_updates_are_refused(self):
    with self.assertRaisesRegex(TypeError, 'float32'):
      _factory().create(tff.TensorType(np.int32, [4]))


if __name__ == '__main__':
  absltest.main()
