# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of Keras 3 models as functional models, where Keras 3 is installed."""

import collections
import warnings

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.program import protocol_run
from tff_dp import _checks
from tff_dp import _compat
from tff_dp import check_ins
from tff_dp import learning
from tff_dp.learning import keras3
from tff_dp.learning import keras3_draws
from tff_dp.learning import local_training
from tff_dp.program import computation_digests

# The reference stack has Keras 2 only.
pytestmark = pytest.mark.skipif(
    not _compat.COLUMN.needs_shim, reason='needs Keras 3: columns B and C'
)
if _compat.COLUMN.needs_shim:
  import keras  # pylint: disable=g-import-not-at-top

_NUM_CLASSES = 3
_LABELS = tf.TensorSpec([None], tf.int32)


def _loss():
  return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _features(*shape, dtype=tf.float32):
  return tf.TensorSpec([None, *shape], dtype)


def _convert(model, x_spec=None, **arguments):
  spec = (_features(4) if x_spec is None else x_spec, _LABELS)
  return learning.functional_model_from_keras3(
      model, _loss(), spec, **arguments
  )


def _dense(*middle):
  """Returns a model from 4 features to 3 classes, with layers in the middle."""
  keras.utils.set_random_seed(1)
  return keras.Sequential([
      keras.Input([4]),
      keras.layers.Dense(5, activation='relu', name='body'),
      *middle,
      keras.layers.Dense(_NUM_CLASSES, name='head'),
  ])


def _in_graph(function, *arguments):
  """Returns the values of a function in a graph like those of TFF."""
  with tf.Graph().as_default():
    result = tf.function(function)(
        *tf.nest.map_structure(tf.constant, arguments)
    )
    with tf.compat.v1.Session() as session:
      return session.run(result)


def _step(model, x, y):
  """Returns outputs, loss and gradient of a step, as clients compute them."""

  def step(trained, frozen, x, y):
    with tf.GradientTape() as tape:
      tape.watch(trained)
      outputs = model.predict_on_batch((trained, frozen), x, training=True)
      loss = model.loss(outputs, y)
    return outputs, loss, tape.gradient(loss, trained)

  return _in_graph(step, *map(tuple, model.initial_weights), x, y)


def _assert_same_bits(test, found, expected):
  found, expected = tf.nest.flatten(found), tf.nest.flatten(expected)
  test.assertLen(found, len(expected))
  for one, other in zip(found, expected):
    np.testing.assert_array_equal(one, other)


def _examples(x_spec, seed=0):
  """Returns a batch of 6 examples: words below 7, or normal numbers."""
  rng = np.random.default_rng(seed)

  def draw(spec):
    shape = [6, *spec.shape[1:]]
    if spec.dtype.is_integer:
      return rng.integers(0, 7, shape).astype(spec.dtype.as_numpy_dtype)
    return rng.standard_normal(shape).astype(spec.dtype.as_numpy_dtype)

  return (
      tf.nest.map_structure(draw, x_spec),
      rng.integers(0, _NUM_CLASSES, 6).astype(np.int32),
  )


# The same model in Keras 2 and in Keras 3.
def _convolution(k):
  return k.Sequential([
      k.layers.InputLayer((8, 8, 1)),
      k.layers.Rescaling(0.5),
      k.layers.Conv2D(4, 3, activation='relu'),
      k.layers.MaxPooling2D(),
      k.layers.Flatten(),
      k.layers.Dense(_NUM_CLASSES),
  ])


def _lstm(k):
  return k.Sequential([
      k.layers.InputLayer((5,)),
      k.layers.Embedding(7, 4, mask_zero=True),
      k.layers.LSTM(3),
      k.layers.Dense(_NUM_CLASSES),
  ])


def _gru_masking(k):
  return k.Sequential([
      k.layers.InputLayer((5, 2)),
      k.layers.Masking(),
      k.layers.GRU(3, reset_after=False),
      k.layers.Dense(_NUM_CLASSES),
  ])


def _dictionary(k):
  b, a = k.Input([2], name='b'), k.Input([3], name='a')
  y = k.layers.Concatenate()([a, k.layers.Dense(2)(b)])
  return k.Model({'b': b, 'a': a}, k.layers.Dense(_NUM_CLASSES)(y))


def _tuple(k):
  a, b = k.Input([3]), k.Input([2])
  y = k.layers.Concatenate()([b, k.layers.Dense(2)(a)])
  return k.Model((a, b), k.layers.Dense(_NUM_CLASSES)(y))


def _plain(k):
  return k.Sequential([
      k.layers.InputLayer((4,)),
      k.layers.Dense(5, activation='swish'),
      k.layers.Dense(_NUM_CLASSES),
  ])


class SameBitsTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('lstm', _lstm, _features(5, dtype=tf.int32)),
      ('convolution', _convolution, _features(8, 8, 1)),
      ('gru_masking', _gru_masking, _features(5, 2)),
      ('tuple', _tuple, (_features(3), _features(2))),
      ('plain', _plain, _features(4)),
      (
          'dictionary',
          _dictionary,
          collections.OrderedDict(b=_features(2), a=_features(3)),
      ),
  )
  @pytest.mark.slow(cases=['gru_masking'])
  def test_equals_keras_2(self, build, x_spec):
    model, older = build(keras), build(tf.keras)
    older.set_weights(model.get_weights())
    spec = (x_spec, _LABELS)
    expected = tff.learning.models.functional_model_from_keras(
        older,
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        spec,
    )
    batch = _examples(x_spec)
    _assert_same_bits(
        self,
        _step(_convert(model, x_spec), *batch),
        _step(expected, *batch),
    )

  def _assert_equals_handwritten(self, model, features, x_spec):
    """Compares with a matrix product of features that a function computes.

    Args:
      model: Model whose last layer is dense.
      features: Function from a batch and the trained weights of all other
        layers.
      x_spec: Spec of a batch.
    """
    trained = tuple(each.numpy() for each in model.trainable_variables)

    @tf.function
    def predict(weights, x, training):
      del training
      (*body, kernel, bias), _ = weights
      return tf.matmul(features(x, *body), kernel) + bias

    def loss(output, label, sample_weight=None):
      del sample_weight
      return tf.reduce_mean(
          tf.nn.sparse_softmax_cross_entropy_with_logits(label, output)
      )

    expected = tff.learning.models.FunctionalModel(
        initial_weights=(trained, ()),
        predict_on_batch_fn=predict,
        loss_fn=loss,
        input_spec=(x_spec, _LABELS),
    )
    batch = _examples(x_spec)
    _assert_same_bits(
        self, _step(_convert(model, x_spec), *batch), _step(expected, *batch)
    )

  def test_equals_a_handwritten_model_with_attention(self):
    # Keras 2 computes the same in another order: it scales the queries, not
    # their products with the keys, and normalizes with the fused kernel of
    # batch normalization. Its numbers differ in the last bits, up to 2e-6.
    x = keras.Input([5, 4])
    y = keras.layers.MultiHeadAttention(2, 3)(x, x)
    y = keras.layers.LayerNormalization()(keras.layers.Add()([x, y]))
    y = keras.layers.GlobalAveragePooling1D()(y)
    model = keras.Model(x, keras.layers.Dense(_NUM_CLASSES)(y))
    for each in model.trainable_variables:
      # No bias is zero, and no scale is one.
      each.assign_add(0.1 * np.arange(each.shape[-1]))

    def attended(x, of_query, of_key, of_value, of_output):
      query, key, value = (
          tf.reshape(tf.matmul(x, tf.reshape(kernel, [4, 6])), [-1, 5, 2, 3])
          + bias
          for kernel, bias in (of_query, of_key, of_value)
      )
      scores = tf.einsum('btnh,bsnh->bnts', query, key)
      scores = tf.nn.softmax(scores * tf.constant(1 / np.sqrt(3), tf.float32))
      heads = tf.einsum('bnts,bsnh->btnh', scores, value)
      kernel, bias = of_output
      heads = tf.reshape(heads, [-1, 5, 6])
      return tf.matmul(heads, tf.reshape(kernel, [6, 4])) + bias

    def features(x, *weights):
      *pairs, (scale, center) = zip(weights[::2], weights[1::2])
      y = x + attended(x, *pairs)
      mean, variance = tf.nn.moments(y, [-1], keepdims=True)
      factor = tf.math.rsqrt(variance + 1e-3) * scale
      return tf.reduce_mean(y * factor + (center - mean * factor), axis=1)

    self._assert_equals_handwritten(model, features, _features(5, 4))

  def test_equals_a_handwritten_model_with_an_adapted_normalization(self):
    norm = keras.layers.Normalization()
    norm.adapt(np.random.default_rng(0).normal(2.0, 3.0, [50, 4]))
    model = keras.Sequential(
        [keras.Input([4]), norm, keras.layers.Dense(_NUM_CLASSES)]
    )

    def features(x):
      scale = tf.maximum(tf.sqrt(norm.variance.numpy()), 1e-7)
      return (x - norm.mean.numpy()) / scale

    self._assert_equals_handwritten(model, features, _features(4))

  def test_equals_a_handwritten_model_with_preprocessing(self):
    bins = [-0.5, 0.0, 0.5]
    model = keras.Sequential([
        keras.Input([8, 8, 1]),
        keras.layers.CenterCrop(2, 2),
        keras.layers.Flatten(),
        keras.layers.Discretization(bins),
        keras.layers.CategoryEncoding(4, output_mode='multi_hot'),
        keras.layers.Dense(_NUM_CLASSES),
    ])

    def features(x):
      inside = tf.reshape(x[:, 3:5, 3:5, :], [-1, 4, 1])
      numbers = tf.reduce_sum(tf.cast(inside >= bins, tf.int32), axis=2)
      return tf.reduce_max(tf.one_hot(numbers, 4), axis=1)

    self._assert_equals_handwritten(model, features, _features(8, 8, 1))

  def test_padding_does_not_count_in_loss_and_metrics_as_in_keras(self):
    model = keras.Sequential([
        keras.Input([5]),
        keras.layers.Embedding(7, 4, mask_zero=True),
        keras.layers.Dense(_NUM_CLASSES),
    ])
    x = np.array([[1, 2, 0, 0, 0], [3, 4, 5, 6, 0]], np.int32)
    y = np.array([[0, 1, 2, 2, 2], [0, 0, 1, 2, 2]], np.int32)
    made = learning.functional_model_from_keras3(
        model,
        _loss(),
        (_features(5, dtype=tf.int32), _features(5, dtype=tf.int32)),
        metrics_constructor=keras.metrics.SparseCategoricalAccuracy,
    )

    def step(trained, x, y):
      outputs = made.predict_on_batch((trained, ()), x, training=True)
      state = made.update_metrics_state(
          made.initialize_metrics_state(),
          y,
          tff.learning.models.BatchOutput(predictions=outputs),
      )
      return made.loss(outputs, y), state

    loss, state = _in_graph(step, made.initial_weights[0], x, y)
    model.compile(loss=_loss())
    self.assertAlmostEqual(
        loss, model.evaluate(x, y, verbose=0, batch_size=2), places=6
    )
    outputs = model.predict(x, verbose=0)
    right = (np.argmax(outputs, axis=-1) == y)[x != 0]
    total, count = state['sparse_categorical_accuracy']
    self.assertAlmostEqual(total / count, np.mean(right), places=6)

  def test_an_output_without_a_mask_leaves_the_other_its_own(self):
    x = keras.Input([5], dtype='int32')
    words = keras.layers.Embedding(7, 4, mask_zero=True)(x)
    each = keras.layers.Dense(_NUM_CLASSES)(words)
    mean = keras.layers.GlobalAveragePooling1D()(words)
    spec = (_features(5, dtype=tf.int32), _features(5, dtype=tf.int32))
    batch = (
        np.array([[1, 2, 0, 0, 0], [3, 4, 5, 6, 0]], np.int32),
        np.array([[0, 1, 2, 2, 2], [0, 0, 1, 2, 2]], np.int32),
    )
    losses = [
        _step(
            learning.functional_model_from_keras3(
                keras.Model(x, outputs), loss, spec
            ),
            *batch,
        )[1]
        for outputs, loss in (
            (each, _loss()),
            ([mean, each], lambda y, outputs: _loss()(y, outputs[1])),
        )
    ]
    self.assertEqual(*losses)

  def test_later_changes_of_the_keras_model_do_not_matter(self):
    model = _dense()
    made = _convert(model)
    batch = _examples(_features(4))
    before = _step(made, *batch)
    model.set_weights([0 * each for each in model.get_weights()])
    model.get_layer('body').trainable = False
    model.get_layer('body').activation = keras.activations.tanh
    _assert_same_bits(self, _step(made, *batch), before)


class FrozenTest(parameterized.TestCase):

  @parameterized.parameters('broadcast', 'constants')
  def test_only_what_is_trainable_is_trained(self, frozen_as):
    model = _dense()
    batch = _examples(_features(4))
    everything = _step(_convert(model), *batch)
    model.get_layer('body').trainable = False
    made = _convert(model, frozen_as=frozen_as)
    trained, frozen = made.initial_weights
    self.assertEqual([each.shape for each in trained], [(5, 3), (3,)])
    self.assertEqual((made.num_trained, made.num_frozen), (18, 25))
    self.assertIn('trains 18 numbers; 25 are frozen', repr(made))
    self.assertEqual(
        [each.shape for each in frozen],
        [(4, 5), (5,)] if frozen_as == 'broadcast' else [(32,)],
    )
    outputs, loss, gradient = _step(made, *batch)
    _assert_same_bits(
        self, (outputs, loss, gradient), (*everything[:2], everything[2][2:])
    )

  def test_lora_trains_b_alone(self):
    model = _dense()
    layer = model.get_layer('body')
    layer.enable_lora(2)
    layer.bias.trainable = False
    with self.assertWarnsRegex(UserWarning, 'product of their means'):
      _convert(model)
    layer.lora_kernel_a.trainable = False
    with warnings.catch_warnings():
      warnings.simplefilter('error')
      made = _convert(model)
    self.assertEqual(
        [each.shape for each in made.initial_weights[0]],
        [(2, 5), (5, 3), (3,)],
    )
    gradient = _step(made, *_examples(_features(4)))[2]
    self.assertGreater(np.abs(gradient[0]).max(), 0)

  def test_an_int8_body_passes_gradients_on(self):
    model = _dense(keras.layers.Dense(5, name='middle'))
    model.get_layer('middle').quantize('int8')
    made = _convert(model)
    self.assertIn(np.int8, [each.dtype for each in made.initial_weights[1]])
    gradient = _step(made, *_examples(_features(4)))[2]
    self.assertGreater(np.abs(gradient[0]).max(), 0)

  def test_float16_says_that_it_has_no_loss_scaling(self):
    model = _dense(keras.layers.Dense(5, dtype='mixed_float16'))
    with self.assertWarnsRegex(UserWarning, 'without loss scaling'):
      made = _convert(model)
    loss = _step(made, *_examples(_features(4)))[1]
    self.assertEqual(loss.dtype, np.float32)

  @parameterized.parameters('broadcast', 'constants')
  def test_weights_go_back_into_the_model(self, frozen_as):
    model = _dense()
    model.get_layer('body').trainable = False
    made = _convert(model, frozen_as=frozen_as)
    trained, frozen = made.initial_weights
    weights = tff.learning.models.ModelWeights(
        [each + 1 for each in trained], list(frozen)
    )
    before = model.get_layer('body').kernel.numpy()
    learning.assign_to_keras3(model, weights)
    np.testing.assert_array_equal(
        model.get_layer('head').bias.numpy(), trained[1] + 1
    )
    np.testing.assert_array_equal(model.get_layer('body').kernel, before)
    with self.assertRaisesRegex(_checks.ArgumentError, '2 trained and'):
      model.get_layer('body').trainable = True
      learning.assign_to_keras3(model, weights)
    if frozen_as == 'constants':
      model.get_layer('body').trainable = False
      model.get_layer('body').kernel.assign_add(np.ones([4, 5]))
      with self.assertRaisesRegex(_checks.ArgumentError, 'weights of the run'):
        learning.assign_to_keras3(model, weights)


  def test_an_adapted_normalization_goes_back_into_another_model(self):
    models = []
    for _ in range(2):
      keras.utils.set_random_seed(1)
      models.append(
          keras.Sequential([
              keras.Input([4]),
              keras.Sequential([keras.layers.Normalization()]),
              keras.layers.Dense(_NUM_CLASSES),
          ])
      )
    x = np.random.default_rng(0).normal(2.0, 3.0, [50, 4]).astype(np.float32)
    models[0].layers[0].layers[0].adapt(x)
    trained, frozen = _convert(models[0]).initial_weights
    with self.assertWarnsRegex(UserWarning, 'was the same layer frozen'):
      learning.assign_to_keras3(
          models[1], tff.learning.models.ModelWeights(trained, frozen)
      )
    _assert_same_bits(self, *(model(x).numpy() for model in models))

  def test_blocks_of_equal_shapes_do_not_swap_in_silence(self):
    model = _dense(keras.layers.Dense(5, name='a'), keras.layers.Dense(5))
    a, b = model.layers[1:3]
    a.trainable = False
    trained, frozen = _convert(model).initial_weights
    weights = tff.learning.models.ModelWeights(trained, frozen)
    with warnings.catch_warnings():
      warnings.simplefilter('error')
      learning.assign_to_keras3(model, weights)
    a.trainable, b.trainable = True, False
    with self.assertWarnsRegex(UserWarning, 'was the same layer frozen'):
      learning.assign_to_keras3(model, weights)

  def test_a_bfloat16_body_is_a_constant(self):
    model = _dense(keras.layers.Dense(5, dtype='bfloat16', name='low'))
    model.get_layer('low').trainable = False
    # NumPy reads no bfloat16 from files.
    with self.assertRaisesRegex(
        _checks.ArgumentError, "low/kernel: bfloat16.*'constants'"
    ):
      _convert(model)
    made = _convert(model, frozen_as='constants')
    gradient = _step(made, *_examples(_features(4)))[2]
    self.assertGreater(np.abs(gradient[0]).max(), 0)


def _only_masks(*shapes):
  """Returns a model whose outputs are dropout masks, one for each shape."""
  x = keras.Input([4])
  ones = keras.layers.Lambda(keras.ops.ones_like)(x)
  outputs = [keras.layers.Dropout(0.5, seed=7)(ones) for _ in shapes]
  unused = keras.layers.Dense(1)(x)
  outputs[0] = keras.layers.Add()(
      [outputs[0], keras.layers.Lambda(lambda x: 0 * x)(unused)]
  )
  return keras.Model(x, outputs)


class DropoutTest(absltest.TestCase):

  def _masks(self, x, shift=0.0, training=True):
    model = self.model.predict_on_batch
    trained = tuple(
        each + np.float32(shift) for each in self.model.initial_weights[0]
    )
    return _in_graph(
        lambda trained, x: model((trained, ()), x, training=training),
        trained,
        np.asarray(x, np.float32),
    )

  def setUp(self):
    super().setUp()
    self.model = learning.functional_model_from_keras3(
        _only_masks(1, 2),
        lambda y, outputs: keras.ops.mean(outputs[0]),
        (_features(4), _LABELS),
    )
    self.x = np.arange(400).reshape([100, 4])

  def test_masks_follow_from_features_and_weights(self):
    first = self._masks(self.x)
    _assert_same_bits(self, self._masks(self.x), first)
    others = {
        'weights': self._masks(self.x, shift=0.5),
        'features': self._masks(self.x + 1),
        'the order of features': self._masks(self.x[::-1]),
        'one feature': self._masks(self.x + (self.x == 399)),
    }
    for name, masks in others.items():
      with self.subTest(name):
        for mask, other in zip(first, masks):
          # Each of 400 coins differs with a chance of one half.
          self.assertBetween(np.mean(mask != other), 0.3, 0.7)

  def test_layers_have_masks_of_their_own_whatever_their_seed(self):
    one, other = self._masks(self.x)
    self.assertBetween(np.mean(one != other), 0.3, 0.7)

  def test_masks_keep_as_much_as_they_should(self):
    for mask in self._masks(self.x):
      self.assertBetween(np.mean(mask), 0.7, 1.3)
      self.assertEqual(set(np.unique(mask)), {0.0, 2.0})

  def test_inference_has_no_masks(self):
    for mask in self._masks(self.x, training=False):
      np.testing.assert_array_equal(mask, np.ones([100, 4]))

  def test_features_of_all_types_count(self):
    variables = [keras.Variable([1, 2])]
    for x in (
        np.array([['a', 'b'], ['c', 'd']]),
        np.array([[True, False]]),
        np.array([[1, 2]], np.int64),
        np.array([[1, 2]], np.float16),
        np.array([[1, 2]], np.float64),
    ):
      states = []
      for value in (x, x[:, ::-1]):
        states.append(
            _in_graph(
                lambda x: keras3_draws.seeds(variables, [], x)[0], value
            )
        )
      self.assertFalse(np.array_equal(*states), x)


class _Stateful(keras.layers.Layer if _compat.COLUMN.needs_shim else object):
  """A layer that does what a function given to it does."""

  def __init__(self, function, **arguments):
    super().__init__(**arguments)
    self._function = function

  def call(self, x):
    return self._function(self, x)


class _InTraining(_Stateful):
  """The same, in training alone."""

  def call(self, x, training=False):
    return self._function(self, x) if training else x


class _Assigning(keras.layers.Dense if _compat.COLUMN.needs_shim else object):
  """A layer that changes its own weights."""

  def call(self, x):
    self.kernel.assign(self.kernel * 0.5)
    return super().call(x)


def _behind_a_dropout(function):
  return keras.Sequential([
      keras.layers.Dropout(0.5),
      _InTraining(function, name='behind'),
  ])


def _loop_of_noise(layer, x):
  del layer
  return tf.while_loop(
      lambda i, y: i < 2,
      lambda i, y: (i + 1, y + tf.random.stateless_normal(tf.shape(y), [1, 2])),
      [tf.constant(0), x],
  )[1]


def _looked_up(layer, x):
  del layer
  words = keras.layers.StringLookup(vocabulary=['1', '2'])
  return x + tf.cast(words(tf.strings.as_string(x)), tf.float32)


class _Counting(keras.layers.Layer if _compat.COLUMN.needs_shim else object):
  """A layer that counts its calls."""

  def build(self, shape):
    del shape
    self.calls = self.add_weight(shape=[], trainable=False, name='calls')

  def call(self, x):
    self.calls.assign_add(1.0)
    return x


# A variable that no layer tracks.
_FOREIGN = []
# Layers that are refused, and what the message says.
_LAYERS = {
    'batch_normalization': (
        lambda: keras.layers.BatchNormalization(name='norm'),
        r'norm/moving_mean.*trainable = False',
    ),
    'regularizer': (
        lambda: keras.layers.Dense(5, kernel_regularizer='l2', name='reg'),
        'reg/kernel: regularizer.*leave it out',
    ),
    'constraint': (
        lambda: keras.layers.Dense(5, bias_constraint='non_neg', name='con'),
        'con/bias: constraint.*leave it out',
    ),
    'activity_regularizer': (
        lambda: keras.layers.Dense(5, activity_regularizer='l2', name='act'),
        "='act' .*an output of the model",
    ),
    'add_loss': (
        lambda: _Stateful(
            lambda layer, x: layer.add_loss(tf.reduce_sum(x)) or x, name='add'
        ),
        "='add' .*an output of the model",
    ),
    'float64': (
        lambda: keras.layers.Dense(5, dtype='float64', name='wide'),
        'wide/kernel: float64.*float32',
    ),
    'float16': (
        lambda: keras.layers.Dense(5, dtype='float16', name='half'),
        'half/kernel: float16.*mixed_float16',
    ),
    'foreign_variable': (
        lambda: _Stateful(
            lambda layer, x: x * tf.convert_to_tensor(_FOREIGN[0]), name='own'
        ),
        "='own' .*add_weight",
    ),
    'global_seed': (
        lambda: _Stateful(
            lambda layer, x: keras.random.dropout(x, 0.5), name='rand'
        ),
        "='rand' .*SeedGenerator",
    ),
    'constant_seed': (
        lambda: _Stateful(
            lambda layer, x: keras.random.dropout(x, 0.5, seed=3), name='same'
        ),
        "='same' .*SeedGenerator",
    ),
    'constant_seed_in_a_loop': (
        lambda: _Stateful(_loop_of_noise, name='loop'),
        "='loop' .*SeedGenerator",
    ),
    'constant_seed_behind_a_dropout': (
        lambda: _behind_a_dropout(
            lambda layer, x: x
            + keras.ops.cast(keras.random.categorical(x, 1, seed=3), x.dtype)
        ),
        "='behind' .*SeedGenerator",
    ),
    'loop_behind_a_dropout': (
        lambda: _behind_a_dropout(_loop_of_noise),
        "='behind' .*SeedGenerator",
    ),
    'assigned_weight': (
        lambda: _Assigning(5, name='assigning'),
        'assigning/kernel.*no layer that assigns its weights',
    ),
    'spectral_normalization': (
        lambda: keras.layers.SpectralNormalization(
            keras.layers.Dense(5, name='wrapped')
        ),
        'wrapped/kernel.*leave it out',
    ),
    'python': (
        lambda: _Stateful(
            lambda layer, x: tf.ensure_shape(
                tf.py_function(lambda x: x, [x], tf.float32), x.shape
            ),
            name='python',
        ),
        "='python' .*py_function",
    ),
    'python_without_a_shape': (
        lambda: _InTraining(
            lambda layer, x: tf.numpy_function(lambda x: x, [x], tf.float32),
            name='shapeless',
        ),
        "='shapeless' .*numpy_function",
    ),
    'an_array_of_a_tensor': (
        lambda: _InTraining(lambda layer, x: x + np.asarray(x), name='array'),
        "='array' .*keras.ops.where.*NotImplementedError",
    ),
    'python_if_on_a_tensor': (
        lambda: _InTraining(
            lambda layer, x: x if tf.reduce_sum(x) > 0 else -x, name='choice'
        ),
        "='choice' .*keras.ops.where.*OperatorNotAllowed",
    ),
    'lookup': (
        lambda: _Stateful(_looked_up, name='words'),
        "='words' .*in the clients' datasets",
    ),
    'state': (lambda: _Counting(name='counting'), 'counting/calls.*its state'),
    'stateful_noise': (
        lambda: _Stateful(
            lambda layer, x: x + tf.random.normal(tf.shape(x)), name='noise'
        ),
        "='noise' .*SeedGenerator",
    ),
}


class DigestTest(absltest.TestCase):

  def test_model_that_is_built_again_has_the_same_digest(self):
    # Else a run that was killed could not repeat its round.
    def digest(*middle):
      process = check_ins.build_check_in_sgd(
          _convert(_dense(*middle)),
          protocol_run.build_plan(protocol_run.FIXED_WINDOW),
          server_learning_rate=0.1,
      )
      return computation_digests.digest(process.next)

    first = digest(keras.layers.Dropout(0.2))
    self.assertEqual(digest(keras.layers.Dropout(0.2)), first)
    self.assertNotEqual(digest(keras.layers.Dropout(0.3)), first)


class RefusalsTest(parameterized.TestCase):

  def _assert_refused(self, pattern, model, **arguments):
    with self.assertRaisesRegex(_checks.ArgumentError, pattern) as caught:
      _convert(model, **arguments)
    self.assertNotIn('\n', str(caught.exception))

  def test_of_layers(self):
    for name, (build, pattern) in _LAYERS.items():
      with self.subTest(name):
        _FOREIGN[:] = [tf.Variable(2.0)]
        self._assert_refused(pattern, _dense(build()))

  def test_of_float8(self):
    model = _dense(keras.layers.Dense(5, name='middle'))
    model.get_layer('middle').quantize('float8')
    self._assert_refused('middle/.*: float8', model)

  def test_of_a_state_from_batch_to_batch(self):
    model = keras.Sequential([
        keras.Input(batch_shape=(6, 5, 2)),
        keras.layers.LSTM(3, stateful=True, name='words'),
        keras.layers.Dense(_NUM_CLASSES),
    ])
    with self.assertRaisesRegex(
        _checks.ArgumentError, "='words' .*leave out stateful=True"
    ):
      _convert(model, tf.TensorSpec([6, 5, 2]))

  def test_a_frozen_batch_normalization_is_allowed(self):
    model = _dense(keras.layers.BatchNormalization(trainable=False))
    self.assertEqual(_convert(model).num_frozen, 20)

  def test_of_a_model(self):
    frozen = _dense()
    frozen.trainable = False
    self._assert_refused('a model with a weight to train', frozen)
    unbuilt = keras.Sequential([keras.layers.Dense(3)])
    self._assert_refused(r'build it: model\(batch\)', unbuilt)
    self._assert_refused('of Keras 3', tf.keras.Sequential())
    self._assert_refused("'broadcast', 'constants'", _dense(), frozen_as='no')
    with absltest.mock.patch.object(keras.backend, 'backend', lambda: 'jax'):
      self._assert_refused("the backend 'tensorflow'", _dense())

  def test_of_sizes(self):
    model = _dense()
    model.get_layer('body').trainable = False
    with absltest.mock.patch.object(keras3, '_MOST_CONSTANT_BYTES', 99):
      self._assert_refused("'broadcast'", model, frozen_as='constants')
      _convert(model)
    with absltest.mock.patch.object(keras3, '_MOST_BYTES', 171):
      self._assert_refused('172 bytes', model)

  def test_of_metrics(self):
    self._assert_refused(
        'tf.keras is Keras 2',
        _dense(),
        metrics_constructor={'a': tf.keras.metrics.SparseCategoricalAccuracy},
    )
    self._assert_refused(
        "metrics_constructor='late'.*at its first batch|variables exist once",
        _dense(),
        metrics_constructor={'late': lambda: keras.metrics.F1Score()},
    )

    self._assert_refused(
        'a metric class, or a dictionary',
        _dense(),
        metrics_constructor=[keras.metrics.SparseCategoricalAccuracy()],
    )

  def test_of_features(self):
    for spec, pattern in (
        (_features(3), "its layer body fails .*ValueError: Input 0 .*'body'"),
        (_features(4, 4), 'ValueError'),
        (tf.TensorSpec([4]), 'ValueError'),
        ({'a': _features(4)}, '; [a-z_0-9]+ fails on these .*structure'),
        (_features(4, dtype=tf.string), 'numbers where sequential'),
    ):
      self._assert_refused('input_spec=.*' + pattern, _dense(), x_spec=spec)
    self.assertTrue(keras.config.is_traceback_filtering_enabled())
    for spec in (
        tf.RaggedTensorSpec([None, None], tf.float32),
        tf.SparseTensorSpec([None, 4], tf.float32),
    ):
      self._assert_refused('tf.TensorSpec alone', _dense(), x_spec=spec)

  def test_of_losses(self):
    model = _dense()
    kernel = model.get_layer('head').kernel
    for loss, pattern in (
        (
            keras.losses.SparseCategoricalCrossentropy(reduction=None),
            'a scalar',
        ),
        ('sparse_categorical_crossentropy', 'an instance'),
        (keras.losses.SparseCategoricalCrossentropy, 'an instance'),
        (
            lambda y, outputs: _loss()(y, outputs) + keras.ops.sum(kernel),
            'cannot read weights',
        ),
        (lambda y, outputs: outputs[:, 5], 'it fails on these .ValueError'),
    ):
      with self.assertRaisesRegex(_checks.ArgumentError, pattern) as caught:
        learning.functional_model_from_keras3(
            model, loss, (_features(4), _LABELS)
        )
      self.assertNotIn('\n', str(caught.exception))

  def test_functions_for_keras_2_name_the_one_to_use(self):
    for function in (
        tff.learning.models.from_keras_model,
        tff.learning.models.functional_model_from_keras,
    ):
      with self.assertRaisesRegex(TypeError, 'functional_model_from_keras3'):
        function(_dense(), _loss(), (_features(4), _LABELS))
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'functional_model_from_keras3'
    ):
      local_training.build_initial_weights(_dense())


if __name__ == '__main__':
  absltest.main()
