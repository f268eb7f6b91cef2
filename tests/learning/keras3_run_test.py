# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A Keras 3 model with frozen weights and dropout, trained and verified."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from unittest import mock

from absl.testing import absltest
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import small_model
import tff_dp
from tff_dp import _compat
from tff_dp import execution
from tff_dp import export
from tff_dp import learning
from tff_dp import mechanisms
from tff_dp import program
from tff_dp.files import arrays as server_arrays
from tff_dp.integrations import noise
from tff_dp.integrations import server_rounds
from tff_dp.integrations import updates
from tff_dp.participation import coins
from tff_dp.program.display import plots
from tff_dp.program.display import progress

pytestmark = pytest.mark.skipif(
    not _compat.COLUMN.needs_shim, reason='needs Keras 3: columns B and C'
)
if _compat.COLUMN.needs_shim:
  import keras  # pylint: disable=g-import-not-at-top

_DELTA = 1e-5
_NUM_ROUNDS = 4


class _Killed(BaseException):
  """Stands for the end of the process."""


class _Clients:
  client_ids = [f'client {i}' for i in range(8)]

  def create_tf_dataset_for_client(self, client_id):
    rng = np.random.default_rng(self.client_ids.index(client_id))
    examples = (
        rng.standard_normal([6, 4]).astype(np.float32),
        rng.integers(0, 3, 6).astype(np.int32),
    )
    return tf.data.Dataset.from_tensor_slices(examples).batch(3)


def _keras_model(dropout_seed):
  keras.utils.set_random_seed(1)
  model = keras.Sequential([
      keras.Input([4]),
      keras.layers.Dense(5, activation='silu', name='body'),
      keras.layers.Dropout(0.5, seed=dropout_seed),
      keras.layers.Dense(3, name='head'),
  ])
  model.get_layer('body').trainable = False
  return model


def _functional(model, **arguments):
  return learning.functional_model_from_keras3(
      model,
      keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      (tf.TensorSpec([None, 4]), tf.TensorSpec([None], tf.int32)),
      metrics_constructor={'accuracy': keras.metrics.SparseCategoricalAccuracy},
      **arguments,
  )


def _plan():
  return small_model.build_plan(
      mechanisms.HonakerTree(_NUM_ROUNDS),
      participation=tff_dp.participation.MinSeparation(
          _NUM_ROUNDS, min_index_gap=2
      ),
      clients_per_round=3,
      noise_multiplier=4.0,
  )


def _process(model, **changes):
  return tff_dp.dp_ftrl.build_dp_ftrl(
      model,
      _plan(),
      client_optimizer=tff.learning.optimizers.build_sgdm(0.5),
      server_learning_rate=0.5,
      **dict(insecure_seed=3) | changes,
  )


def _train(process, root, **arguments):
  return program.train(
      process,
      _Clients(),
      output_dir=root,
      delta=_DELTA,
      checkpoint_every=1,
      progress='quiet',
      **arguments,
  )


def train_until_killed(root) -> None:
  """Trains until SIGKILL ends this process, in round 3."""

  def kill(weights):
    del weights
    os.kill(os.getpid(), signal.SIGKILL)

  process = _process(_functional(_keras_model(dropout_seed=6)))
  _train(process, root, evaluate_fn=kill, rounds_per_eval=3)


def setUpModule():
  execution.set_default_context()


class Keras3RunTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.parent = pathlib.Path(
        cls.enterClassContext(tempfile.TemporaryDirectory())
    )
    cls.enterClassContext(mock.patch.object(plots, 'write_curves'))
    cls.model = _keras_model(dropout_seed=5)
    cls.functional = _functional(cls.model)
    cls.process = _process(cls.functional)
    cls.result = _train(cls.process, cls.parent / 'whole')

  def _npz(self, name):
    return (self.parent / name / 'release' / 'model.npz').read_bytes()

  def test_a_resumed_run_has_the_same_bytes_whatever_keras_draws(self):
    def kill(weights):
      del weights
      raise _Killed

    root = self.parent / 'two'
    with self.assertRaises(_Killed):
      _train(self.process, root, evaluate_fn=kill, rounds_per_eval=3)
    # What follows from the seeds of the Keras model would differ.
    second = _process(_functional(_keras_model(dropout_seed=7)))
    _train(second, root, evaluate_fn=lambda _: {}, rounds_per_eval=3)
    self.assertEqual(self._npz('two'), self._npz('whole'))

  def test_model_goes_back_into_keras(self):
    model = _keras_model(dropout_seed=8)
    body = model.get_layer('body').kernel.numpy()
    head = model.get_layer('head').kernel.numpy()
    weights = program.read_model(self.parent / 'whole')
    learning.assign_to_keras3(model, weights)
    np.testing.assert_array_equal(model.get_layer('body').kernel, body)
    self.assertGreater(
        np.abs(model.get_layer('head').kernel.numpy() - head).max(), 0
    )
    x = np.ones([2, 4], np.float32)
    expected = self.functional.predict_on_batch(
        (weights.trainable, weights.non_trainable), tf.constant(x), False
    )
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, atol=1e-6)

  def test_statement_says_that_the_body_is_public(self):
    said = self.result.statement.points['public_data']['pretraining']
    self.assertStartsWith(said, 'not declared; 25 weights are frozen')
    self.assertIn('nothing is claimed for the data', said)

  def test_run_says_what_is_trained_and_asks_where_the_body_is_from(self):
    for declared, asks in ((None, True), ('a body of public photos', False)):
      lines = []
      with mock.patch.object(
          progress.Progress, 'say', lambda self, text: lines.append(text)
      ):
        result = _train(
            self.process,
            self.parent / f'asked_{asks}',
            total_rounds=1,
            declarations=declared
            and tff_dp.accounting.Declarations(pretraining=declared),
        )
      (line,) = [line for line in lines if line.startswith('weights:')]
      self.assertIn('18 are trained; 25 weights are frozen', line)
      self.assertEqual('Declarations(pretraining=' in line, asks)
    said = result.statement.points['public_data']['pretraining']
    self.assertStartsWith(said, 'a body of public photos; 25 weights')

  def test_constants_give_the_same_model_and_resume_on_their_own_body(self):
    process = _process(_functional(self.model, frozen_as='constants'))
    root = self.parent / 'constants'
    _train(process, root, total_rounds=1)
    other = _keras_model(1)
    other.get_layer('body').kernel.assign_add(np.ones([4, 5]))
    with self.assertRaisesRegex(
        tff_dp.PrivacyRefusedError, 'other frozen weights'
    ):
      _train(_process(_functional(other, frozen_as='constants')), root)
    result = _train(process, root)
    for one, other in zip(
        result.model_weights.trainable, self.result.model_weights.trainable
    ):
      np.testing.assert_allclose(one, other, atol=1e-6)
    (digest,) = result.model_weights.non_trainable
    self.assertEqual((digest.dtype, digest.shape), (np.uint8, (32,)))
    learning.assign_to_keras3(_keras_model(1), result.model_weights)
    self.assertIn(
        f'(kept in the graph; digest {digest.tobytes().hex()[:16]}) are frozen',
        result.statement.points['public_data']['pretraining'],
    )

  def test_bundle_is_verified(self):
    process = _process(self.functional, insecure_seed=None)
    _train(process, self.parent / 'exported')
    export.export_bundle(
        self.parent / 'exported',
        output=self.parent / 'bundle',
        process=process,
        model=self.functional,
    )
    found = {
        finding.check: finding.status
        for finding in export.verify_bundle(self.parent / 'bundle')
    }
    for check in ('files', 'graphs', 'guarantee', 'weights', 'process'):
      self.assertEqual(found[check], 'ok', check)
    self.assertNotIn('FAILED', found.values())
    self._assert_adapters_go_on_from(self.parent / 'bundle' / 'model.npz')

  def _assert_adapters_go_on_from(self, path):
    """One round as Flower and NVFlare make it, with clients of plain Keras."""
    arguments = dict(
        output_dir=self.parent / 'served', delta=_DELTA, stack='Flower',
        insecure_seed=3,
    )
    plan, bundled = _plan(), server_arrays.read(path)
    with self.assertRaisesRegex(
        ValueError, r"non_trainable/0.*a frozen weight.*trained weights alone"
    ):
      server_rounds.ServerRounds(plan, bundled, **arguments)
    before = {
        name: value
        for name, value in bundled.items()
        if name.startswith('trainable/')
    }
    model = _keras_model(dropout_seed=8)
    model.compile(
        keras.optimizers.SGD(0.5),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    with server_rounds.ServerRounds(plan, before, **arguments) as rounds:
      replies = []
      for client in rounds.select(_Clients.client_ids):
        for variable, value in zip(model.trainable_variables, before.values()):
          variable.assign(value)
        for batch in _Clients().create_tf_dataset_for_client(client):
          model.train_on_batch(*batch)
        trained = [each.numpy() for each in model.trainable_variables]
        replies.append((client, dict(zip(before, trained))))
      after = rounds.finish(replies)
    # The same in a plain loop.
    like = updates.flat(before)
    step = updates.grid_step(plan.l2_norm_clip)
    total = np.zeros(like.size, np.int64)
    for _, reply in replies:
      update, _ = updates.clip(updates.flat(reply) - like, plan.l2_norm_clip)
      total += updates.on_grid(update, plan.l2_norm_clip)
    state = noise.initialize(
        plan.mechanism, like.size, key=coins.insecure_root_key(3)
    )
    unit, _ = noise.next_noise(plan.mechanism, state, total)
    scaled = plan.noise_multiplier * plan.l2_norm_clip * unit
    expected = like + (total * step + scaled) / plan.clients_per_round
    np.testing.assert_allclose(updates.flat(after), expected, rtol=1e-6)
    frozen = [bundled[name] for name in bundled if name not in after]
    learning.assign_to_keras3(
        model,
        tff.learning.models.ModelWeights(list(after.values()), frozen),
    )

  def test_two_clients_in_two_rounds_have_four_masks(self):
    x = keras.Input([2])
    y = keras.layers.Dense(64, use_bias=False, kernel_initializer='zeros')(x)
    functional = learning.functional_model_from_keras3(
        keras.Model(x, keras.layers.Dropout(0.5, seed=5)(y)),
        lambda y, outputs: keras.ops.sum(outputs),
        (tf.TensorSpec([None, 2]), tf.TensorSpec([None], tf.int32)),
    )
    process = tff.learning.algorithms.build_unweighted_fed_avg(
        functional,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.25),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
    )
    # The client i moves the row i of the kernel alone, by its mask.
    clients = [
        tf.data.Dataset.from_tensors((row[np.newaxis], np.zeros(1, np.int32)))
        for row in np.eye(2, dtype=np.float32)
    ]
    state, kernels = process.initialize(), [np.zeros([2, 64])]
    for _ in range(2):
      state = process.next(state, clients).state
      (kernel,) = process.get_model_weights(state).trainable
      kernels.append(np.array(kernel))
    masks = [mask for step in np.diff(kernels, axis=0) for mask in step]
    for index, mask in enumerate(masks):
      # A mask is 0 or 2, the step size 1/4, and the mean of two clients.
      self.assertEqual(set(np.unique(mask)), {-0.25, 0.0})
      for other in masks[:index]:
        # 64 coins: the chance of a false alarm is below 1e-4.
        self.assertBetween(np.mean(mask != other), 0.25, 0.75)

  @pytest.mark.slow
  def test_a_run_that_sigkill_ends_resumes_with_the_same_bytes(self):
    root = self.parent / 'sigkill'
    code = (
        'import sys; import tff_dp; from tests.learning import'
        ' keras3_run_test as test; test.train_until_killed(sys.argv[1])'
    )
    ended = subprocess.run(
        [sys.executable, '-c', code, str(root)], check=False,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )
    self.assertEqual(ended.returncode, -signal.SIGKILL, ended.stderr[-2000:])
    process = _process(_functional(_keras_model(dropout_seed=9)))
    _train(process, root, evaluate_fn=lambda _: {}, rounds_per_eval=3)
    self.assertEqual(self._npz('sigkill'), self._npz('whole'))

  def test_fed_avg_with_the_aggregator_of_the_plan_is_certified(self):
    process = tff.learning.algorithms.build_unweighted_fed_avg(
        self.functional,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.5),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
        model_aggregator=_plan().aggregator(),
    )
    certificate = program.certify(process)
    self.assertIn(
        'accuracy', [str(path[-1]) for path in certificate.not_covered]
    )


if __name__ == '__main__':
  absltest.main()
