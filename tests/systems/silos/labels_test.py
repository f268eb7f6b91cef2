# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Labels outside of their range: they count as zero, and nobody can tell."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.systems.silos import toy
from tff_dp import _checks
from tff_dp import execution
from tff_dp import silos
from tff_dp.systems.silos import gradients as gradients_lib
from tff_dp.systems.silos import silo_sampling

_FEATURES, _CLASSES = 4, 3


def setUpModule():
  execution.set_default_context()


def _softmax():
  """Returns a model that TensorFlow refuses to give other classes to."""

  @tf.function
  def predict(weights, x, training=True):
    del training
    ((matrix,), _) = weights
    return x @ matrix

  def loss(output, label, sample_weight=None):
    del sample_weight
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(label, output)
    )

  return tff.learning.models.FunctionalModel(
      initial_weights=(
          (np.full([_FEATURES, _CLASSES], 0.1, np.float32),),
          (),
      ),
      predict_on_batch_fn=predict,
      loss_fn=loss,
      input_spec=(
          tf.TensorSpec([None, _FEATURES], tf.float32),
          tf.TensorSpec([None], tf.int32),
      ),
  )


def _records(labels):
  rng = np.random.default_rng(5)
  rows = rng.standard_normal([6, _FEATURES]).astype(np.float32)
  return rows, np.asarray(labels, np.int32)


class LabelsTest(parameterized.TestCase):

  def test_a_record_with_another_label_counts_as_zero(self):
    per_example = gradients_lib.build_per_example(
        _softmax(),
        [lambda output, label: tf.ones_like(output[:, 0])],
        label_range=(0, _CLASSES - 1),
    )
    trainable = (tf.constant(_softmax().initial_weights[0][0]),)
    good = per_example(trainable, _records([0, 1, 2, 0, 1, 2]))
    mixed = per_example(trainable, _records([0, 7, 2, -1, 1, 2]))
    for all_of_them, some in zip(good, mixed):
      expected = np.array(all_of_them)
      self.assertTrue(np.all(expected[[1, 3]] != 0))
      expected[[1, 3]] = 0
      np.testing.assert_array_equal(some, expected)

  def test_real_labels_and_nans(self):
    model = toy.build_model(2)
    per_example = gradients_lib.build_per_example(
        model, label_range=(-1.0, 2.5)
    )
    labels = np.array([2.5, 2.6, np.nan, -np.inf, -1.0], np.float32)
    rows, _, _ = per_example(
        (tf.zeros([1, 1]), tf.zeros([1])),
        (tf.ones([5, 2]), tf.constant(labels)),
    )
    np.testing.assert_array_equal(
        rows, np.float32([1, 0, 0, 0, 1])[:, np.newaxis] * [1, 1]
    )

  def test_a_round_goes_on_as_if_nothing_were_wrong(self):
    process = toy.build_sgd(
        _softmax(),
        silos={'only': toy.free(6)},
        num_rounds=1,
        sampling=silo_sampling.DisjointBlocks(6),
        noise_stddev=0.0,
        label_range=(0, _CLASSES - 1),
    )
    sent = []
    for labels in ([0, 1, 2, 0, 1, 2], [0, 7, 2, -1, 1, 2]):
      runner = toy.Runner(process)
      sent.append(runner.round({'only': [_records(labels)]})[0])
    self.assertTrue(np.all(np.isfinite(sent)))
    # Two of six records moved it by C / K each, and no more.
    self.assertBetween(np.linalg.norm(sent[0] - sent[1]), 1e-3, 2 / 6)

  @parameterized.parameters(((1, 0),), ((0,),), (3,), ((0.0, float('nan')),))
  def test_bad_ranges_are_named(self, label_range):
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'label_range='
    ):
      silos.build_noisy_mb_sgd(
          _softmax(),
          silos={'only': toy.free(6)},
          num_rounds=1,
          sampling=silo_sampling.DisjointBlocks(6),
          l2_norm_clip=1.0,
          learning_rate=1.0,
          label_range=label_range,
      )


if __name__ == '__main__':
  absltest.main()
