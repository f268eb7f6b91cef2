# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the factories whose noise is added at the clients."""

import collections
import functools
import itertools
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats
import tensorflow as tf
import tensorflow_federated as tff

from tests.aggregators import flows
from tests.learning import small_model
from tff_dp import _checks
from tff_dp import execution
from tff_dp.aggregators import client_randomizers
from tff_dp.aggregators import local_randomizers
from tff_dp.mechanisms import randomizers

_VECTOR = tff.TensorType(np.float32, [4])
_STRUCT = tff.to_type(
    collections.OrderedDict(b=(np.float32, [2]), a=(np.float32, [3, 1]))
)
_GAUSSIAN = randomizers.Gaussian(2.0, 0.5)
_SPHERE = randomizers.Sphere(2.0, 0.5)
_LAPLACE = randomizers.Laplace(2.0, 0.5)
_ALL = (_GAUSSIAN, _SPHERE, _LAPLACE)
_FALSE_ALARM = 1e-6
# The deterministic generator that makes a direction out of a public seed.
_STATELESS = {
    'StatelessRandomGetKeyCounter',
    'StatelessRandomNormalV2',
    'StatelessRandomUniformFullIntV2',
}


def setUpModule():
  execution.set_default_context()


@functools.cache
def _create(spec, value_type=_VECTOR, **arguments):
  return local_randomizers.LocalRandomizerFactory(spec, **arguments).create(
      value_type
  )


def _next(spec, values, value_type=_VECTOR, **arguments):
  process = _create(spec, value_type, **arguments)
  return process.next(process.initialize(), values)


@functools.cache
def _keyed_process(spec):
  return local_randomizers.LocalRandomizerFactory(spec).create_keyed(_VECTOR)


def _keyed(spec, values, *, keys=None, round_index=0):
  """Returns the sum of reports of clients that bring their keys."""
  process = _keyed_process(spec)
  keys = keys or range(len(values))
  output = process.next(
      process.initialize(),
      [
          collections.OrderedDict(
              update=np.asarray(value, np.float32),
              key=np.array([key, 1], np.int64),
              round=np.int64(round_index),
          )
          for key, value in zip(keys, values)
      ],
  )
  return output.result['total']


class TypesTest(parameterized.TestCase):

  @parameterized.parameters(*_ALL)
  def test_type_signature(self, spec):
    for value_type in (_VECTOR, _STRUCT):
      tff.test.assert_types_equivalent(
          _create(spec, value_type).next.type_signature,
          tff.FunctionType(
              collections.OrderedDict(
                  state=tff.FederatedType((), tff.SERVER),
                  value=tff.FederatedType(value_type, tff.CLIENTS),
              ),
              tff.templates.MeasuredProcessOutput(
                  tff.FederatedType((), tff.SERVER),
                  tff.FederatedType(value_type, tff.SERVER),
                  tff.FederatedType(
                      collections.OrderedDict(
                          num_reports=np.int32, noise_stddev=np.float32
                      ),
                      tff.SERVER,
                  ),
              ),
          ),
      )

  def _processes(self, spec):
    return _create(spec), _keyed_process(spec)

  @parameterized.parameters(_GAUSSIAN, _LAPLACE)
  def test_server_gets_one_vector_and_draws_nothing(self, spec):
    shuffled = tff.to_type(
        collections.OrderedDict(total=(np.int64, [4]), num_reports=np.int32)
    )
    for process in self._processes(spec):
      # What leaves a client is one noised vector and a one, and no key.
      ((uri, sent),) = flows.to_server(process.next)
      self.assertEqual(uri, tff.framework.FEDERATED_SUM.uri)
      tff.test.assert_types_equivalent(sent, shuffled)
      inputs = flows.server_inputs(process.next)
      tff.test.assert_types_equivalent(inputs[0], shuffled)
      # The noise can only come from the clients: the server has no random
      # operation, and the shuffle step is a sum.
      self.assertEmpty(
          flows.random_operations(
              process.next, tff.framework.FEDERATED_APPLY.uri
          )
      )
      self.assertNotEmpty(
          flows.random_operations(
              process.next, tff.framework.FEDERATED_MAP.uri
          )
      )

  def test_server_gets_sorted_seeds_and_signs_of_the_sphere(self):
    for process in self._processes(_SPHERE):
      report = tff.TensorType(np.int64, [3])
      self.assertEqual(
          flows.to_server(process.next),
          [(tff.framework.FEDERATED_AGGREGATE.uri, report)],
      )
      inputs = flows.server_inputs(process.next)
      tff.test.assert_types_equivalent(
          inputs[0], tff.TensorType(np.int64, [None, 3])
      )
      self.assertContainsSubset(
          flows.random_operations(
              process.next, tff.framework.FEDERATED_APPLY.uri
          ),
          _STATELESS,
      )
      self.assertIn(
          'TopKV2',
          flows.operations(
              process.next, tff.framework.FEDERATED_AGGREGATE.uri
          ),
      )

  def test_histogram(self):
    spec = randomizers.RandomizedResponse(1.0, 5)
    process = local_randomizers.RandomizedResponseHistogramFactory(spec).create(
        tff.TensorType(np.int32)
    )
    tff.test.assert_types_equivalent(
        process.next.type_signature.result.result,
        tff.FederatedType(tff.TensorType(np.float32, [5]), tff.SERVER),
    )
    # A one in the place of the category that is reported.
    self.assertEqual(
        flows.to_server(process.next),
        [(tff.framework.FEDERATED_SUM.uri, tff.TensorType(np.int64, [5]))],
    )
    self.assertEqual(
        flows.server_inputs(process.next)[0], tff.TensorType(np.int64, [5])
    )
    self.assertEmpty(
        flows.random_operations(
            process.next, tff.framework.FEDERATED_APPLY.uri
        )
    )


class OrderTest(parameterized.TestCase):

  @parameterized.parameters(*_ALL)
  def test_permuting_clients_changes_no_bit(self, spec):
    values = np.random.default_rng(0).standard_normal([4, 4]).astype(np.float32)
    keys = [3, 1, 4, 2]
    results = [
        _keyed(spec, [values[i] for i in order], keys=[keys[i] for i in order])
        for order in itertools.permutations(range(4))
    ]
    for result in results:
      np.testing.assert_array_equal(result, results[0])
    # While another client, or another key, does change it.
    other = _keyed(spec, values, keys=[3, 1, 4, 5])
    self.assertTrue(np.any(other != results[0]))


class NoiseTest(parameterized.TestCase):

  @parameterized.parameters(*_ALL)
  def test_every_client_and_round_has_its_own_noise(self, spec):
    process = _create(spec)
    value = np.full(4, 0.1, np.float32)
    released = [process.next(process.initialize(), [value]).result
                for _ in range(6)]
    self.assertLen(np.unique(np.stack(released), axis=0), 6)
    # Two clients with the same noise would release twice the one.
    both = process.next(process.initialize(), [value, value]).result
    self.assertGreater(
        min(np.abs(both - single).max() for single in released), 1e-3
    )

  @parameterized.parameters(*_ALL)
  def test_keyed_report_is_repeated_bit_for_bit(self, spec):
    values = [[0.1, 0.2, 0.0, 0.0]]
    first = _keyed(spec, values, round_index=3)
    np.testing.assert_array_equal(_keyed(spec, values, round_index=3), first)
    self.assertTrue(np.any(_keyed(spec, values, round_index=4) != first))
    self.assertTrue(
        np.any(_keyed(spec, values, keys=[9], round_index=3) != first)
    )

  def test_released_noise_has_the_stated_standard_deviation(self):
    size, num_clients = 50_000, 4
    output = _next(
        _GAUSSIAN,
        [np.zeros(size, np.float32)] * num_clients,
        tff.TensorType(np.float32, [size]),
    )
    # Four draws of std 1, averaged. The relative std of the statistic is 0.6 %.
    self.assertAlmostEqual(
        output.measurements['noise_stddev'], 0.5, places=6
    )
    statistic = np.sum(output.result.astype(np.float64) ** 2) / 0.25
    self.assertBetween(
        statistic,
        stats.chi2.isf(1 - _FALSE_ALARM / 2, size),
        stats.chi2.isf(_FALSE_ALARM / 2, size),
    )

  @parameterized.parameters(*_ALL)
  def test_stated_stddev_bounds_that_of_the_result(self, spec):
    size, num_clients = 2000, 30
    output = _next(
        spec,
        [np.zeros(size, np.float32)] * num_clients,
        tff.TensorType(np.float32, [size]),
        mean_over=7.0,
    )
    # Kurtosis of Laplace is 6: the relative std of the estimate is below 4 %.
    self.assertAlmostEqual(
        np.std(output.result) / output.measurements['noise_stddev'],
        1.0,
        delta=0.2,
    )

  def test_all_tensors_of_a_client_are_one_vector(self):
    value = collections.OrderedDict(
        b=np.array([3.0, 0.0], np.float32),
        a=np.array([[0.0], [4.0], [0.0]], np.float32),
    )
    result = _next(_SPHERE, [value], _STRUCT).result
    flat = np.concatenate([np.ravel(part) for part in result.values()])
    # A report for each tensor would have the norm of two of them.
    self.assertAlmostEqual(
        np.linalg.norm(flat), _SPHERE.scale(5), delta=1e-4
    )
    self.assertEqual([part.shape for part in result.values()], [(2,), (3, 1)])

  def test_tensors_come_back_in_their_places(self):
    value = collections.OrderedDict(
        b=np.array([1.0, 2.0], np.float32),
        a=np.array([[3.0], [4.0], [5.0]], np.float32),
    )
    result = _next(randomizers.Gaussian(1e-6, 100.0), [value], _STRUCT).result
    np.testing.assert_allclose(result['b'], value['b'], atol=0.01)
    np.testing.assert_allclose(result['a'], value['a'], atol=0.01)


class MeanTest(parameterized.TestCase):

  def _mean(self, num_clients, **arguments):
    value = np.array([1.0, 0.0, 2.0, 0.0], np.float32)
    return _next(
        randomizers.Gaussian(1e-6, 10.0), [value] * num_clients, **arguments
    )

  @parameterized.parameters(0, 1, 3)
  def test_mean_over_those_that_arrived(self, num_clients):
    output = self._mean(num_clients)
    expected = [1.0, 0.0, 2.0, 0.0] if num_clients else np.zeros(4)
    np.testing.assert_allclose(output.result, expected, atol=1e-3)
    self.assertEqual(output.measurements['num_reports'], num_clients)

  @parameterized.parameters(0, 1, 3)
  def test_mean_over_a_constant(self, num_clients):
    output = self._mean(num_clients, mean_over=2.5)
    np.testing.assert_allclose(
        output.result,
        np.array([1.0, 0.0, 2.0, 0.0]) * num_clients / 2.5,
        atol=1e-3,
    )

  @parameterized.parameters(0, 1, 7, 8, 9, 17)
  def test_directions_are_added_in_the_order_of_the_reports(self, num_reports):
    randomizer = client_randomizers.build(randomizers.Sphere(2.0, 1.0), 50)
    rng = np.random.default_rng(num_reports)
    reports = rng.integers(2**62, size=[num_reports, 3])
    reports[:, 2] = rng.choice([-1, 1], size=num_reports)
    expected = tf.zeros([50])
    for report in reports:
      expected += randomizer.estimate(tf.constant(report))
    total, found = tf.function(
        local_randomizers._sum_estimates, autograph=False
    )(
        randomizer, tf.constant(reports)
    )
    self.assertEqual(found, num_reports)
    np.testing.assert_array_equal(total, expected)

  @parameterized.parameters(np.nan, np.inf, 3e38)
  def test_bad_clients_count_as_zero(self, entry):
    good = np.array([1.0, 0.0, 2.0, 0.0], np.float32)
    bad = np.array([entry, 1.0, entry, 1.0], np.float32)
    output = _next(randomizers.Gaussian(1e-6, 10.0), [good, bad])
    np.testing.assert_allclose(output.result, good / 2, atol=1e-3)
    self.assertEqual(output.measurements['num_reports'], 2)

  @parameterized.parameters(*_ALL)
  def test_nobody_gives_zero(self, spec):
    output = _next(spec, [])
    np.testing.assert_array_equal(output.result, np.zeros(4))
    self.assertEqual(output.measurements['noise_stddev'], 0.0)

  def test_plugs_into_federated_averaging(self):
    process = tff.learning.algorithms.build_unweighted_fed_avg(
        small_model.build(),
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
        model_aggregator=local_randomizers.LocalRandomizerFactory(_SPHERE),
    )
    state = process.initialize()
    output = process.next(state, [small_model.client(1), small_model.client(2)])
    self.assertEqual(output.metrics['aggregator']['num_reports'], 2)
    moved = small_model.flat(process.get_model_weights(output.state))
    moved -= small_model.flat(process.get_model_weights(state))
    self.assertBetween(np.linalg.norm(moved), 1e-3, _SPHERE.scale(5) + 1e-4)


class HistogramTest(parameterized.TestCase):

  def test_debiased_counts(self):
    spec = randomizers.RandomizedResponse(2.0, 4)
    process = local_randomizers.RandomizedResponseHistogramFactory(spec).create(
        tff.TensorType(np.int32)
    )
    truth = np.array([600, 0, 300, 100])
    values = list(np.repeat(np.arange(4), truth).astype(np.int32))
    output = process.next(process.initialize(), values)
    self.assertEqual(output.measurements['num_reports'], 1000)
    self.assertAlmostEqual(output.result.sum(), 1000, delta=0.01)
    # Each count is a sum of 1000 independent terms.
    spread = math.sqrt(1000 * spec.variance(4))
    self.assertLess(
        np.abs(output.result - truth).max(),
        stats.norm.isf(_FALSE_ALARM / 8) * spread,
    )
    # Without debiasing, 600 would be about 429 of them.
    self.assertGreater(output.result[0], 500)

  def test_nobody(self):
    process = local_randomizers.RandomizedResponseHistogramFactory(
        randomizers.RandomizedResponse(2.0, 3)
    ).create(tff.TensorType(np.int64))
    np.testing.assert_array_equal(
        process.next(process.initialize(), []).result, np.zeros(3)
    )

  @parameterized.parameters(
      (tff.TensorType(np.float32),),
      (tff.TensorType(np.int32, [2]),),
      (_STRUCT,),
  )
  def test_only_scalar_integers_are_categories(self, value_type):
    factory = local_randomizers.RandomizedResponseHistogramFactory(
        randomizers.RandomizedResponse(2.0, 3)
    )
    with self.assertRaisesRegex(TypeError, 'scalar integer'):
      factory.create(value_type)

  def test_randomizers_of_vectors_are_refused(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'RandomizedResponse'):
      local_randomizers.RandomizedResponseHistogramFactory(_SPHERE)


class ArgumentsTest(parameterized.TestCase):

  @parameterized.parameters(
      ('all', "mean_over='all'"), (0.0, 'mean_over=0.0'), (-2, 'mean_over=-2')
  )
  def test_bad_divisors_are_named(self, mean_over, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      local_randomizers.LocalRandomizerFactory(_SPHERE, mean_over=mean_over)

  def test_randomized_response_is_refused_for_vectors(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'HistogramFactory'):
      local_randomizers.LocalRandomizerFactory(
          randomizers.RandomizedResponse(1.0)
      )

  @parameterized.parameters(
      tff.TensorType(np.int32, [4]),
      tff.TensorType(np.float32, [None]),
      tff.SequenceType(_VECTOR),
  )
  def test_other_updates_are_refused(self, value_type):
    with self.assertRaisesRegex(TypeError, 'float32.*model decide dtype'):
      _create(_SPHERE, value_type)


if __name__ == '__main__':
  absltest.main()
