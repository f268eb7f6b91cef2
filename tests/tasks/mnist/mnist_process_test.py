# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the simulation against the TFF processes, on a small model.

Update by update without noise, and in law with it.
"""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats
import tensorflow as tf
import tensorflow_federated as tff

from tasks.common import digits_data
from tasks.mnist import mnist_model
from tasks.mnist import mnist_simulation as simulation
from tff_dp import execution
from tff_dp import learning
from tff_dp import participation
from tff_dp.mechanisms import randomizers
from tff_dp.plans import check_ins as protocol_plan

_FALSE_ALARM = 1e-7
_CLIP = 0.5
_NUM_CLIENTS = 12
# So little that it is lost in the rounding of the weights.
_NO_NOISE = 1e-9
_ARCHITECTURE = mnist_model.Architecture(
    (mnist_model.Convolution(2, 6, stride=5, padding='same'),), (4,)
)
_KEY = bytes(range(16))


def _population(num_clients=_NUM_CLIENTS):
  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, (num_clients, 28, 28)).astype(np.uint8)
  labels = rng.integers(0, 10, num_clients).astype(np.int32)
  digits = digits_data.Digits(images, labels)
  return simulation.Population(digits, np.arange(num_clients))


def _model_fn():
  return tff.learning.models.from_keras_model(
      mnist_model.build_keras_model(_ARCHITECTURE, seed=1),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec={
          'x': tf.TensorSpec([None, 28, 28, 1], tf.float32),
          'y': tf.TensorSpec([None], tf.int32),
      },
  )


def _examples(population, client):
  """Returns the one batch of a client, an empty dataset for `None`."""
  digits = population.digits.rows([0 if client is None else client])
  dataset = digits.tf_dataset(1)
  return dataset.take(0) if client is None else dataset


def _flat(process, state):
  weights = process.get_model_weights(state).trainable
  return np.concatenate([np.asarray(w).ravel() for w in weights])


def _client_data(population, update, number, seed=0):
  members = [*update.clients, *([None] * update.num_dummies)]
  rng = np.random.default_rng([seed, number])
  return [
      learning.client_data(
          _examples(population, client),
          randomizers.noise_key(rng.bytes(16)),
      )
      for client in members
  ]


class ProcessTest(parameterized.TestCase):
  """Without noise, update by update, the models are the same."""

  def setUp(self):
    super().setUp()
    execution.set_default_context('in_process')

  def _simulate(self, protocol, noise, server, num_updates, **options):
    """Yields (update, weights after it)."""
    population = _population()
    reports = simulation.Reports(
        _ARCHITECTURE, population, noise, batch_size=5
    )
    state = simulation.State.initial(_ARCHITECTURE, seed=1)
    updates = simulation.updates(
        protocol, num_clients=_NUM_CLIENTS, root_key=_KEY, **options
    )
    for _ in range(num_updates):
      update = next(updates)
      state = simulation.step(
          state,
          update,
          reports,
          server,
          noise=noise,
          num_updates=num_updates,
          key=_KEY,
      )
      yield update, state.weights

  @parameterized.named_parameters(
      (
          'shuffled_check_in',
          participation.ShuffledCheckIn(5, 0.3, _NUM_CLIENTS),
          {},
      ),
      (
          'shuffled_check_in_mostly_empty',
          participation.ShuffledCheckIn(6, 0.05, _NUM_CLIENTS),
          {},
      ),
      (
          'fixed_window',
          participation.FixedWindowCheckIn(16, slots_per_update=4),
          {'slots_per_update': 4},
      ),
      ('sliding_window', participation.SlidingWindowCheckIn(8, 4), {}),
      ('averaged', participation.AveragedCheckIn(6, _NUM_CLIENTS), {}),
  )
  def test_local_noise(self, protocol, options):
    noise = randomizers.Gaussian(_NO_NOISE, _CLIP)
    server = simulation.Server(0.7, momentum=0.5)
    plan = protocol_plan.CheckInPlan(protocol, noise)
    build = learning.build_check_in_sgd
    if isinstance(protocol, participation.ShuffledCheckIn):
      build = learning.build_shuffled_check_in_sgd
    process = build(
        _model_fn, plan, server_learning_rate=0.7, momentum=0.5
    )
    state = process.initialize()
    num_updates = protocol.num_updates
    if isinstance(protocol, participation.SlidingWindowCheckIn):
      for _ in range(protocol.window - 1):  # Of the warm-up nobody reports.
        state = process.next(state, []).state
    population = _population()
    start = _flat(process, state)
    num_clipped = 0
    for number, (update, weights) in enumerate(
        self._simulate(protocol, noise, server, num_updates, **options)
    ):
      data = _client_data(population, update, number)
      # With winners, a step of the process is one slot.
      steps = [[one] for one in data] if protocol.has_one_winner else [data]
      for step in steps:
        state = process.next(state, step).state
      np.testing.assert_allclose(_flat(process, state), weights, atol=2e-6)
      num_clipped += len(update.clients)
    self.assertGreater(np.abs(weights - start).max(), 0.01)
    self.assertGreater(num_clipped, 0)

  def test_noise_at_the_server(self):
    protocol = participation.RandomAllocation(4)
    plan = protocol_plan.CheckInPlan(
        protocol,
        protocol_plan.CentralGaussian(_NO_NOISE, _CLIP),
        num_passes=2,
    )
    process = learning.build_allocation_sgd(
        _model_fn,
        plan,
        clients_per_slot=3,
        server_learning_rate=0.7,
        momentum=0.5,
        insecure_seed=1,
    )
    state = process.initialize()
    population = _population()
    seen = 0
    for update, weights in self._simulate(
        protocol,
        simulation.ServerNoise(_NO_NOISE, _CLIP, 3),
        simulation.Server(0.7, momentum=0.5),
        8,
    ):
      data = [_examples(population, client) for client in update.clients]
      state = process.next(state, data).state
      np.testing.assert_allclose(_flat(process, state), weights, atol=2e-6)
      seen += len(update.clients)
    self.assertEqual(seen, 2 * _NUM_CLIENTS)

  def test_sphere_steps_have_the_same_law(self):
    """One round with fixed clients, many times: TFF against the simulation."""
    protocol = participation.ShuffledCheckIn(1, 0.5, _NUM_CLIENTS)
    noise = randomizers.Sphere(2.0, _CLIP)
    process = learning.build_shuffled_check_in_sgd(
        _model_fn,
        protocol_plan.CheckInPlan(protocol, noise),
        server_learning_rate=1.0,
    )
    population = _population()
    update = simulation.Update(np.array([0, 3, 5, 8]), 1)
    initial = process.initialize()
    start = _flat(process, initial)
    theirs = np.array([
        _flat(
            process,
            process.next(
                initial, _client_data(population, update, number, seed=1)
            ).state,
        )
        for number in range(40)
    ]) - start
    reports = simulation.Reports(_ARCHITECTURE, population, noise)
    ours = []
    for number in range(600):
      total = reports.total(start, update, key=_KEY, number=number)
      ours.append(-total / update.num_reports)
    ours = np.array(ours)
    # The signal, and two directions that are as good as any other.
    directions = {
        'mean': ours.mean(axis=0),
        'first': np.eye(len(start))[0],
        'last': np.eye(len(start))[-1],
    }
    for name, direction in directions.items():
      p = stats.ks_2samp(theirs @ direction, ours @ direction).pvalue
      self.assertGreater(p, _FALSE_ALARM, name)
    lengths = [np.sum(found**2, axis=1) for found in (theirs, ours)]
    self.assertGreater(stats.ks_2samp(*lengths).pvalue, _FALSE_ALARM)
    # The mean length alone is known well enough to see a wrong scale.
    self.assertAlmostEqual(
        lengths[0].mean() / lengths[1].mean(), 1, delta=0.15
    )


if __name__ == '__main__':
  absltest.main()
