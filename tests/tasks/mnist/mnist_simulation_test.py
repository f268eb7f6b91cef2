# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the simulation: the law of its sums, its order of clients.

`mnist_process_test` compares it with the TFF processes.
"""

import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats
import tensorflow as tf

from tasks.common import digits_data
from tasks.mnist import mnist_gradients
from tasks.mnist import mnist_model
from tasks.mnist import mnist_simulation as simulation
from tests.mechanisms import contract
from tff_dp import _checks
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.aggregators import client_randomizers
from tff_dp.mechanisms import randomizers

_FALSE_ALARM = 1e-7
_CLIP = 0.5
_NUM_CLIENTS = 12
_ARCHITECTURE = mnist_model.Architecture(
    (mnist_model.Convolution(2, 6, stride=5, padding='same'),), (4,)
)
_KEY = bytes(range(16))


def _with_gradients_once(reports):
  """Returns them, for draws from one model: its gradients are computed once."""
  compute, found = reports._gradients, {}

  def look_up(variables, x, y):
    key = (x.tobytes(), y.tobytes())
    if key not in found:
      found[key] = compute(variables, x, y)
    return found[key]

  reports._gradients = look_up
  return reports


def _population(num_clients=_NUM_CLIENTS):
  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, (num_clients, 28, 28)).astype(np.uint8)
  labels = rng.integers(0, 10, num_clients).astype(np.int32)
  digits = digits_data.Digits(images, labels)
  return simulation.Population(digits, np.arange(num_clients))


class LawTest(parameterized.TestCase):
  """Sums of reports against reports made one by one, as clients make them."""

  def _vectors(self, population, weights):
    compute = mnist_gradients.PerExampleGradients(_ARCHITECTURE)
    batch = population.digits.arrays()
    parts = simulation.split(weights, _ARCHITECTURE.shapes)
    return compute(parts, batch['x'], batch['y']).formed()

  @parameterized.named_parameters(
      # With the large clip norm, gradients are shorter than it.
      ('sphere', randomizers.Sphere(0.7, 0.1)),
      ('sphere_short', randomizers.Sphere(1.5, 30.0)),
      ('gaussian', randomizers.Gaussian(0.3, 0.1)),
      ('gaussian_short', randomizers.Gaussian(0.02, 30.0)),
  )
  def test_sum_of_reports(self, noise):
    population = _population()
    weights = simulation.State.initial(_ARCHITECTURE, seed=1).weights
    # In batches of two, with the same client in both: their noise is not shared.
    update = simulation.Update(np.array([1, 2, 2, 1]), 2)
    vectors = self._vectors(population, weights)[update.clients]
    vectors = np.concatenate([vectors, np.zeros((2, vectors.shape[1]))])
    client = client_randomizers.build(noise, vectors.shape[1])

    @tf.function
    def literal(seed):
      def one(index):
        key = tf.stack([seed, tf.cast(index, tf.int64)])
        vector = tf.constant(vectors, tf.float32)[index]
        return client.estimate(client.randomize(vector, key))

      return tf.add_n([one(index) for index in range(len(vectors))])

    theirs = np.array([
        literal(tf.constant(seed, tf.int64)).numpy() for seed in range(1, 401)
    ])
    reports = _with_gradients_once(
        simulation.Reports(_ARCHITECTURE, population, noise, batch_size=2)
    )
    ours = np.array([
        reports.total(weights, update, key=_KEY, number=number)
        for number in range(800)
    ])
    direction = vectors[0] / np.linalg.norm(vectors[0])
    statistics = {
        'length': lambda sums: np.sum(sums**2, axis=1),
        'signal': lambda sums: sums @ direction,
        'first': lambda sums: sums[:, 0],
        'last': lambda sums: sums[:, -1],
        'mean': lambda sums: sums @ vectors.mean(axis=0),
    }
    for name, statistic in statistics.items():
      p = stats.ks_2samp(statistic(theirs), statistic(ours)).pvalue
      self.assertGreater(p, _FALSE_ALARM, name)
    # Unbiased: the mean along the signal is that of the clipped vectors.
    norms = np.maximum(np.linalg.norm(vectors, axis=1), 1e-9)
    clipped = vectors * np.minimum(1, noise.l2_norm_clip / norms)[:, np.newaxis]
    along = ours @ direction
    error = abs(along.mean() - clipped.sum(axis=0) @ direction)
    self.assertLess(error, 6 * along.std() / math.sqrt(len(along)))

  def test_noise_of_the_server_does_not_depend_on_who_came(self):
    noise = simulation.ServerNoise(2.0, _CLIP, 5)
    reports = simulation.Reports(_ARCHITECTURE, _population(), noise)
    weights = np.zeros(_ARCHITECTURE.num_params, np.float32)
    nobody = simulation.Update(np.zeros(0, np.int64), 0)
    draws = np.concatenate([
        reports.total(weights, nobody, key=_KEY, number=number)
        for number in range(20)
    ])
    p = stats.kstest(draws / (2.0 * _CLIP), 'norm').pvalue
    self.assertGreater(p, _FALSE_ALARM)

  def test_correlated_noise_of_the_server_is_that_of_its_matrix(self):
    mechanism = mechanisms.Banded(8, (1.0, 0.5, -0.25))
    weights = np.zeros(_ARCHITECTURE.num_params, np.float32)
    nobody = simulation.Update(np.zeros(0, np.int64), 0)

    def released(mechanism, first=1):
      noise = simulation.ServerNoise(2.0, _CLIP, 5, mechanism)
      reports = simulation.Reports(_ARCHITECTURE, _population(), noise)
      return np.stack([
          reports.total(weights, nobody, key=_KEY, number=number)
          for number in range(first, 9)
      ])

    correlated = released(mechanism)
    encoder = np.linalg.inv(contract.noise_matrix(mechanism)[0])
    np.testing.assert_allclose(encoder @ correlated, released(None), atol=1e-9)
    # A run that goes on makes the same noise.
    np.testing.assert_array_equal(released(mechanism, first=6), correlated[5:])

  def test_noise_is_a_function_of_key_and_number(self):
    noise = randomizers.Sphere(2.0, 0.1)
    update = simulation.Update(np.arange(9), 1)
    weights = simulation.State.initial(_ARCHITECTURE, seed=1).weights
    make = lambda **options: simulation.Reports(
        _ARCHITECTURE, _population(), noise, batch_size=4, **options
    )
    first = make(num_threads=1).total(weights, update, key=_KEY, number=1)
    again = make(num_threads=3).total(weights, update, key=_KEY, number=1)
    np.testing.assert_allclose(first, again, atol=1e-9)
    for changed in ({'number': 2}, {'key': bytes(16)}):
      arguments = {'key': _KEY, 'number': 1, **changed}
      other = make().total(weights, update, **arguments)
      self.assertLess(abs(np.corrcoef(first, other)[0, 1]), 0.5)


class UpdatesTest(parameterized.TestCase):

  def _take(self, protocol, count, **options):
    updates = simulation.updates(
        protocol, num_clients=50, root_key=_KEY, **options
    )
    return [next(updates) for _ in range(count)]

  def test_dummies_fill_slots_and_everybody_reports_once(self):
    protocol = participation.FixedWindowCheckIn(60, slots_per_update=6)
    updates = self._take(protocol, 10, slots_per_update=6)
    self.assertEqual([u.num_reports for u in updates], [6] * 10)
    clients = np.concatenate([u.clients for u in updates])
    self.assertLen(set(clients), len(clients))
    self.assertGreater(sum(u.num_dummies for u in updates), 5)

  def test_passes_have_new_coins(self):
    protocol = participation.RandomAllocation(5)
    updates = self._take(protocol, 10)
    for first in (0, 5):
      clients = np.concatenate([u.clients for u in updates[first : first + 5]])
      np.testing.assert_array_equal(np.sort(clients), np.arange(50))
    self.assertFalse(np.array_equal(updates[0].clients, updates[5].clients))

  def test_warm_up_of_a_sliding_window_is_not_used(self):
    protocol = participation.SlidingWindowCheckIn(40, 11)
    updates = self._take(protocol, 10, slots_per_update=3)
    self.assertEqual([u.num_reports for u in updates], [3] * 10)

  @parameterized.named_parameters(
      ('shuffled', participation.ShuffledCheckIn(9, 0.2, 50), {}),
      (
          'fixed',
          participation.FixedWindowCheckIn(27, slots_per_update=3),
          {'slots_per_update': 3},
      ),
      ('allocation', participation.RandomAllocation(4), {}),
      ('cyclic', participation.CyclicAllocation(9, 2, 3), {}),
  )
  def test_from_the_middle_they_are_the_same(self, protocol, options):
    whole = self._take(protocol, 9, **options)
    rest = self._take(protocol, 4, first=6, **options)
    for expected, found in zip(whole[5:], rest):
      np.testing.assert_array_equal(expected.clients, found.clients)
      self.assertEqual(expected.num_dummies, found.num_dummies)


class ServerTest(parameterized.TestCase):

  def test_linear_decay_ends_above_zero(self):
    server = simulation.Server(2.0, decays=True)
    rates = [server.rate(number, 4) for number in (1, 2, 3, 4)]
    np.testing.assert_allclose(rates, [2.0, 1.5, 1.0, 0.5])
    self.assertEqual(simulation.Server(2.0).rate(4, 4), 2.0)

  def test_without_a_report_nothing_moves(self):
    noise = randomizers.Sphere(2.0, 0.1)
    state = simulation.State.initial(_ARCHITECTURE, seed=1)
    state.velocity = np.ones_like(state.velocity)
    after = simulation.step(
        state,
        simulation.Update(np.zeros(0, np.int64), 0),
        None,
        simulation.Server(1.0, momentum=0.9),
        noise=noise,
        num_updates=3,
        key=_KEY,
    )
    np.testing.assert_array_equal(after.weights, state.weights)
    np.testing.assert_array_equal(after.velocity, state.velocity)
    self.assertEqual(after.num_updates, 1)

  @parameterized.named_parameters(
      ('rate', lambda: simulation.Server(0), 'learning_rate=0'),
      ('momentum', lambda: simulation.Server(1, momentum=1), 'momentum=1'),
      (
          'noise',
          lambda: simulation.ServerNoise(-1, 1, 1),
          'noise_multiplier=-1',
      ),
      ('clip', lambda: simulation.ServerNoise(1, 0, 1), 'l2_norm_clip=0'),
      (
          'clients',
          lambda: simulation.ServerNoise(1, 1, math.nan),
          'clients_per_update=nan',
      ),
  )
  def test_bad_values_are_named(self, make, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      make()


class PopulationTest(absltest.TestCase):

  def test_own_images_fewer_and_more(self):
    digits = _population(20).digits
    own = simulation.Population.of(digits, 20)
    np.testing.assert_array_equal(own.rows, np.arange(20))
    fewer = simulation.Population.of(digits, 7, seed=1)
    self.assertLen(set(fewer.rows), 7)
    more = simulation.Population.of(digits, 20_000, seed=1)
    self.assertLen(more, 20_000)
    counts = np.bincount(more.rows, minlength=20)
    self.assertGreater(stats.chisquare(counts).pvalue, _FALSE_ALARM)
    other = simulation.Population.of(digits, 20_000, seed=2)
    self.assertFalse(np.array_equal(more.rows, other.rows))


if __name__ == '__main__':
  absltest.main()
