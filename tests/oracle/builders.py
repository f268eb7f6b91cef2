# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Oracle cases: every builder of `tff.learning.algorithms`.

The builders are not crossed with everything that they take. The cases cover all
models, optimizers, loops, aggregators, weightings and forms of client data, and
the pairs of them that share state in client work: variables of a model, of its
metrics and of an optimizer. All cases train two rounds, on cohorts of other
sizes, with a client without examples and short last batches. `builders_layers`
has more layers, and a large cohort.
"""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.oracle import builders_layers
from tests.oracle import models
from tests.oracle import oracle
from tff_dp import aggregators
from tff_dp import mechanisms

CASES: list[oracle.Case] = []
_case = oracle.adds(CASES, 'builder')

_algorithms = tff.learning.algorithms
_layers = tf.keras.layers
_optimizers = tff.learning.optimizers
_functional_model = models.functional_model
_train = models.train
_train_on = models.train_on
_variable_model = models.variable_model
_ITERATOR = tff.learning.LoopImplementation.DATASET_ITERATOR
_REDUCE = tff.learning.LoopImplementation.DATASET_REDUCE
_UNIFORM = tff.learning.ClientWeighting.UNIFORM
_SGD = _optimizers.build_sgdm(0.1)
_MOMENTUM = _optimizers.build_sgdm(0.1, momentum=0.9)


# Federated averaging: models, loops, metrics and forms of client data.

for _make, _kind, _loop, _form in (
    (models.softmax, 'table', _REDUCE, models.lists),
    (models.softmax, 'table', _ITERATOR, models.pipelines),
    (models.mlp, 'table', _REDUCE, models.pipelines),
    (models.mlp, 'table', _ITERATOR, models.of_many_kinds),
    (models.normalized, 'table', _REDUCE, models.batched),
    (models.normalized, 'table', _ITERATOR, models.lists),
    (models.convolution, 'image', _REDUCE, models.of_equal_sizes),
    (models.convolution, 'image', _ITERATOR, models.batched),
    (models.embedding, 'words', _REDUCE, models.batched),
    (models.embedding, 'words', _ITERATOR, models.lists),
    (models.lstm, 'words', _REDUCE, models.batched),
    (models.lstm, 'words', _ITERATOR, models.of_equal_sizes),
):

  @_case(f'fed_avg_{_make.__name__}_{_loop.name}_{_form.__name__}'.lower())
  def _average(make=_make, kind=_kind, loop=_loop, form=_form):
    process = _algorithms.build_weighted_fed_avg(
        _variable_model(make, kind, models.class_metrics()),
        client_optimizer_fn=_MOMENTUM,
        loop_implementation=loop,
    )
    return _train_on(kind, process, form)


for _make, _kind, _loop, _form in (
    (models.softmax, 'table', _REDUCE, models.of_many_kinds),
    (models.mlp, 'table', _ITERATOR, models.batched),
    (models.convolution, 'image', _ITERATOR, models.of_equal_sizes),
    (models.embedding, 'words', _REDUCE, models.lists),
    (models.lstm, 'words', _ITERATOR, models.batched),
):

  @_case(
      f'fed_avg_functional_{_make.__name__}_{_loop.name}'.lower()
      + f'_{_form.__name__}'
  )
  def _average_functional(make=_make, kind=_kind, loop=_loop, form=_form):
    process = _algorithms.build_weighted_fed_avg(
        _functional_model(make, kind, models.plain_metrics()),
        client_optimizer_fn=_MOMENTUM,
        loop_implementation=loop,
    )
    return _train_on(kind, process, form)


# Models that need more than a `make`.


@_case()
def fed_avg_of_a_seeded_initializer():
  def make():
    start = tf.keras.initializers.GlorotUniform(5)
    return tf.keras.Sequential(
        [_layers.InputLayer([4]), _layers.Dense(3, kernel_initializer=start)]
    )

  process = _algorithms.build_weighted_fed_avg(
      _variable_model(make, 'table'), client_optimizer_fn=_SGD
  )
  return _train_on('table', process)


def _average_text(is_stateful: bool, form):
  """The tutorial's way: a model is made once and cloned in `model_fn`."""
  original = models.text(is_stateful)
  num_rows = models.BATCH_SIZE if is_stateful else None

  def model_fn():
    return tff.learning.models.from_keras_model(
        tf.keras.models.clone_model(original),
        input_spec=models.spec('text', num_rows),
        loss=models.cross_entropy(),
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
    )

  process = _algorithms.build_weighted_fed_avg(
      model_fn, client_optimizer_fn=_optimizers.build_sgdm(0.5)
  )
  return _train_on('text', process, form)


@_case()
def fed_avg_of_a_cloned_gru():
  return _average_text(False, models.batched)


@_case()
def fed_avg_of_a_cloned_gru_that_keeps_its_state():
  return _average_text(True, models.of_equal_sizes)


@_case()
def fed_avg_of_own_variables():
  process = _algorithms.build_weighted_fed_avg(
      models.OwnVariables, client_optimizer_fn=_optimizers.build_adam(0.05)
  )
  return _train_on('table', process)


@_case()
def fed_avg_of_own_variables_iterator():
  process = _algorithms.build_unweighted_fed_avg(
      models.OwnVariables,
      client_optimizer_fn=_MOMENTUM,
      loop_implementation=_ITERATOR,
  )
  return _train_on('table', process, models.lists)


@_case()
def fed_avg_of_a_functional_model_by_hand():
  process = _algorithms.build_weighted_fed_avg(
      models.regression(), client_optimizer_fn=_MOMENTUM
  )
  return _train(process, models.pairs)


@_case()
def fed_avg_of_a_functional_model_made_variables():
  def model_fn():
    return tff.learning.models.model_from_functional(
        models.regression(), [tf.keras.metrics.MeanSquaredError]
    )

  process = _algorithms.build_weighted_fed_avg(
      model_fn, client_optimizer_fn=_SGD, loop_implementation=_ITERATOR
  )
  return _train(process, models.pairs)


@_case()
def fed_avg_of_two_outputs_and_losses():
  def make():
    inputs = tf.keras.Input([4])
    hidden = models.dense(3, 1, 'tanh')(inputs)
    outputs = [models.dense(1, seed)(hidden) for seed in (2, 3)]
    return tf.keras.Model(inputs, outputs)

  def model_fn():
    return tff.learning.models.from_keras_model(
        make(),
        loss=[tf.keras.losses.MeanSquaredError(), tf.keras.losses.Huber()],
        loss_weights=[0.3, 0.7],
        input_spec=(
            tf.TensorSpec([None, 4]),
            (tf.TensorSpec([None, 1]), tf.TensorSpec([None, 1])),
        ),
    )

  def clients(round_num):
    def split(batch):
      return batch['x'], (batch['y'][:, :1], batch['y'][:, 1:])

    clients = models.batched('numbers', round_num)
    return [client.map(split) for client in clients]

  process = _algorithms.build_weighted_fed_avg(
      model_fn, client_optimizer_fn=_SGD
  )
  return _train(process, clients)


@_case()
def fed_avg_with_thresholds_as_metrics():
  metrics = [
      tf.keras.metrics.AUC,
      tf.keras.metrics.Precision,
      lambda: tf.keras.metrics.Recall([0.3, 0.6]),
  ]
  process = _algorithms.build_weighted_fed_avg(
      _variable_model(
          models.binary,
          'binary',
          metrics,
          loss=tf.keras.losses.BinaryCrossentropy,
      ),
      client_optimizer_fn=_SGD,
  )
  return _train_on('binary', process)


@_case()
def fed_avg_without_a_client_that_is_not_finite():
  """TFF gives such a client weight 0 and forgets its metrics."""

  def clients(round_num):
    rows = models.examples('table', 6, round_num, 99)
    rows['x'][4, 1] = np.inf if round_num else np.nan
    found = models.batched('table', round_num)
    return found[:2] + [models.slices(rows).batch(4)] + found[2:]

  process = _algorithms.build_weighted_fed_avg(
      _variable_model(models.softmax, 'table', models.class_metrics()),
      client_optimizer_fn=_MOMENTUM,
  )
  return _train(process, clients)


@_case()
def fed_avg_with_metrics_of_every_client():
  process = _algorithms.build_weighted_fed_avg(
      _variable_model(models.mlp, 'table', models.class_metrics()),
      client_optimizer_fn=_SGD,
      metrics_aggregator=_metrics_of_all,
  )
  found = _train_on('table', process)
  # In which order the server has them is nobody's promise.
  return {
      name: np.sort(value, axis=None) if '/train/' in name else value
      for name, value in found.items()
  }


@_case(is_random=True)
def fed_avg_with_dropout():
  """Losses of 60 equal clients: each draws its own rows to drop."""

  def make():
    return tf.keras.Sequential([
        _layers.InputLayer([4]),
        _layers.Dropout(0.5),
        models.dense(3, 1),
    ])

  process = _algorithms.build_unweighted_fed_avg(
      _variable_model(make, 'table'),
      client_optimizer_fn=_SGD,
      metrics_aggregator=_metrics_of_all,
  )
  rows = models.examples('table', 12, 1)
  clients = [models.slices(rows).batch(models.BATCH_SIZE)] * 60
  metrics = process.next(process.initialize(), clients).metrics
  return {'loss': np.asarray(metrics['client_work']['train']['loss'])}


@_case(is_random=True)
def fed_avg_with_orders_without_a_seed():
  process = _algorithms.build_unweighted_fed_avg(
      _functional_model(models.softmax, 'table', [models.MeanLoss]),
      client_optimizer_fn=_optimizers.build_sgdm(0.7),
      metrics_aggregator=_metrics_of_all,
  )
  rows = models.slices(models.examples('table', 12, 1))
  clients = [rows.shuffle(12).batch(models.BATCH_SIZE) for _ in range(60)]
  metrics = process.next(process.initialize(), clients).metrics
  return {'loss': np.asarray(metrics['client_work']['train']['loss'])}


def _metrics_of_all(finalizers, unused_type=None):
  return tff.learning.metrics.finalize_then_sample(finalizers, sample_size=100)


# Optimizers: each on clients once and on the server once. No builder of TFF
# 0.87 takes its Adafactor, whose state changes its type: it works by itself.

_BY_NAME = {
    'sgd': lambda rate: _optimizers.build_sgdm(rate),
    'momentum': lambda rate: _optimizers.build_sgdm(rate, momentum=0.8),
    'adam': _optimizers.build_adam,
    'adamw': _optimizers.build_adamw,
    'adagrad': _optimizers.build_adagrad,
    'rmsprop': _optimizers.build_rmsprop,
    'yogi': _optimizers.build_yogi,
}

for _index, _name in enumerate(_BY_NAME):
  _server = list(_BY_NAME)[(_index + 3) % len(_BY_NAME)]

  @_case(f'fed_avg_{_name}_on_clients_{_server}_on_server')
  def _optimize(name=_name, server=_server, index=_index):
    if index % 3 == 2:
      model = _functional_model(models.softmax, 'table')
    else:
      model = _variable_model(models.mlp, 'table')
    process = _algorithms.build_weighted_fed_avg(
        model,
        client_optimizer_fn=_BY_NAME[name](0.05),
        server_optimizer_fn=_BY_NAME[server](0.1),
        loop_implementation=_ITERATOR if index % 2 else _REDUCE,
    )
    return _train_on('table', process)


@_case()
def adafactor_on_clients():
  optimizer = _optimizers.build_adafactor(0.1)
  weights_type = tff.to_type([(np.float32, [4, 3]), (np.float32, [3])])

  @tff.tensorflow.computation(weights_type)
  def two_steps(gradients):
    gradients = tuple(gradients)
    weights = tuple(map(tf.ones_like, gradients))
    state = optimizer.initialize(
        tuple(tf.TensorSpec(g.shape, g.dtype) for g in gradients)
    )
    for _ in range(2):
      state, weights = optimizer.next(state, weights, gradients)
    return weights

  @tff.federated_computation(tff.FederatedType(weights_type, tff.CLIENTS))
  def mean(gradients):
    return tff.federated_mean(tff.federated_map(two_steps, gradients))

  rng = np.random.default_rng(1)
  shapes = [type_spec.shape for type_spec in weights_type]
  return oracle.flat(
      mean([
          [rng.standard_normal(shape, np.float32) for shape in shapes]
          for _ in range(6)
      ])
  )


@_case()
def fed_avg_with_a_schedule_of_each_optimizer():
  """A client counts batches, the server counts rounds."""
  process = _algorithms.build_weighted_fed_avg(
      _variable_model(models.softmax, 'table'),
      client_optimizer_fn=_optimizers.schedule_learning_rate(
          _MOMENTUM, lambda step: 0.3 / (1.0 + tf.cast(step, tf.float32))
      ),
      server_optimizer_fn=_optimizers.schedule_learning_rate(
          _SGD, lambda step: tf.where(step < 1, 1.0, 0.25)
      ),
  )
  return _train_on('table', process)


@_case()
def fed_avg_with_other_hyperparameters_and_weights():
  process = _algorithms.build_weighted_fed_avg(
      _variable_model(models.softmax, 'table'),
      client_optimizer_fn=_SGD,
      server_optimizer_fn=_MOMENTUM,
  )
  state = process.initialize()
  hparams = process.get_hparams(state)
  found = oracle.flat(hparams, 'hparams')
  hparams['client_work']['learning_rate'] = 0.3
  hparams['finalizer']['momentum'] = 0.5
  state = process.set_hparams(state, hparams)
  found.update(oracle.flat(state, 'changed'))
  output = process.next(state, models.batched('table', 0))
  found.update(oracle.flat(output, 'next'))
  weights = tff.learning.models.ModelWeights(
      [np.ones([4, 3], np.float32), np.zeros([3], np.float32)], []
  )
  state = process.set_model_weights(output.state, weights)
  output = process.next(state, models.batched('table', 1))
  found.update(oracle.flat(output, 'last'))
  return found


# Federated averaging: weightings and aggregators.


@_case()
def fed_avg_of_equal_weights():
  process = _algorithms.build_weighted_fed_avg(
      _variable_model(models.normalized, 'table', models.class_metrics()),
      client_optimizer_fn=_SGD,
      client_weighting=_UNIFORM,
  )
  return _train_on('table', process, models.pipelines)


@_case()
def unweighted_fed_avg():
  process = _algorithms.build_unweighted_fed_avg(
      _functional_model(models.embedding, 'words', models.plain_metrics()),
      client_optimizer_fn=_MOMENTUM,
      server_optimizer_fn=_MOMENTUM,
  )
  return _train_on('words', process)


for _name, _make_factory in {
    'robust_aggregator': lambda: tff.learning.robust_aggregator(
        debug_measurements_fn=tff.learning.add_debug_measurements
    ),
    'compression_aggregator': tff.learning.compression_aggregator,
    'concatenated_mean': lambda: tff.aggregators.concat_factory(
        tff.aggregators.MeanFactory(no_nan_division=True)
    ),
    'discretization': lambda: tff.aggregators.MeanFactory(
        tff.aggregators.discretization.DiscretizationFactory(
            tff.aggregators.SumFactory(), scale_factor=64.0
        )
    ),
}.items():

  @_case(f'fed_avg_with_{_name}')
  def _aggregate(make_factory=_make_factory):
    process = _algorithms.build_weighted_fed_avg(
        _variable_model(models.mlp, 'table', models.class_metrics()),
        client_optimizer_fn=_optimizers.build_sgdm(0.8),
        model_aggregator=make_factory(),
    )
    return _train_on('table', process)


for _name, _make_factory in {
    'gaussian_fixed': lambda: (
        tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
            noise_multiplier=0.0, clients_per_round=5, clip=0.3
        )
    ),
    'gaussian_adaptive': lambda: (
        tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(
            noise_multiplier=0.0, clients_per_round=5, clipped_count_stddev=0.0
        )
    ),
}.items():

  @_case(f'unweighted_fed_avg_with_{_name}')
  def _aggregate_privately(make_factory=_make_factory):
    process = _algorithms.build_unweighted_fed_avg(
        _functional_model(models.mlp, 'table', models.plain_metrics()),
        client_optimizer_fn=_optimizers.build_sgdm(0.8),
        model_aggregator=make_factory(),
    )
    return _train_on('table', process)


@_case()
def unweighted_fed_avg_with_correlated_noise():
  # Noise far below the digits that are compared.
  factory = aggregators.CorrelatedNoiseFactory(
      mechanisms.HonakerTree(8),
      noise_multiplier=1e-9,
      l2_norm_clip=0.3,
      clients_per_round=5,
      insecure_seed=7,
  )
  process = _algorithms.build_unweighted_fed_avg(
      _functional_model(models.softmax, 'table'),
      client_optimizer_fn=_optimizers.build_sgdm(0.8),
      model_aggregator=factory,
  )
  found = _train_on('table', process)
  # These follow from the last bits of what clients sent.
  return {
      name: value
      for name, value in found.items()
      if not name.startswith(
          ('state/aggregator/digests', 'state/aggregator/buffers')
      )
  }


@_case()
def fed_avg_with_secure_sums():
  """Of updates and of metrics."""
  process = _algorithms.build_weighted_fed_avg(
      _variable_model(models.softmax, 'table'),
      client_optimizer_fn=_MOMENTUM,
      model_aggregator=tff.learning.secure_aggregator(zeroing=False),
      metrics_aggregator=tff.learning.metrics.secure_sum_then_finalize,
  )
  return _train_on('table', process)


# Other forms of client data.


@_case()
def fed_avg_on_the_same_datasets_in_both_rounds():
  """Orders with a seed begin anew in each round."""
  process = _algorithms.build_weighted_fed_avg(
      _functional_model(models.softmax, 'table'), client_optimizer_fn=_MOMENTUM
  )
  clients = models.pipelines('table', 0)
  return _train(process, lambda unused_round_num: clients)


@_case()
def fed_avg_on_prepared_client_data():
  data = tff.simulation.datasets.TestClientData({
      f'client_{number}': models.examples('table', size, number)
      for number, size in enumerate((7, 4, 1, 9, 5))
  })
  data = data.preprocess(
      lambda rows: rows.repeat(2).shuffle(20, seed=4).batch(3).prefetch(1)
  )
  process = _algorithms.build_weighted_fed_avg(
      _variable_model(models.mlp, 'table', models.class_metrics()),
      client_optimizer_fn=_MOMENTUM,
  )
  return _train(
      process,
      lambda round_num: [
          data.create_tf_dataset_for_client(client)
          for client in data.client_ids[round_num : round_num + 4]
      ],
  )


@_case()
def fed_avg_that_makes_its_data_from_ids():
  """Data is made in client work, so nothing of it passes the arguments."""

  @tff.tensorflow.computation(np.str_)
  def make(client_id):
    number = tf.strings.to_number(client_id, tf.int32)
    rows = tf.data.Dataset.range(tf.cast(number, tf.int64))

    def example(row):
      x = tf.sin(tf.cast(row, tf.float32) * tf.range(1.0, 5.0))
      return collections.OrderedDict(x=x, y=tf.cast(row % 3, tf.int32))

    return rows.map(example).shuffle(10, seed=2).batch(models.BATCH_SIZE)

  process = tff.simulation.compose_dataset_computation_with_learning_process(
      make,
      _algorithms.build_weighted_fed_avg(
          _variable_model(models.mlp, 'table', models.class_metrics()),
          client_optimizer_fn=_MOMENTUM,
      ),
  )
  return _train(process, lambda round_num: ['7', '0', '12', str(round_num + 4)])


# The other builders that train.


@_case()
def fed_sgd():
  process = _algorithms.build_fed_sgd(
      _variable_model(models.normalized, 'table', models.class_metrics()),
      server_optimizer_fn=_MOMENTUM,
  )
  return _train_on('table', process)


@_case()
def fed_sgd_iterator():
  process = _algorithms.build_fed_sgd(
      _variable_model(models.lstm, 'words', models.class_metrics()),
      loop_implementation=_ITERATOR,
  )
  return _train_on('words', process, models.lists)


@_case()
def fed_sgd_functional():
  process = _algorithms.build_fed_sgd(
      _functional_model(models.convolution, 'image', models.plain_metrics()),
      server_optimizer_fn=_optimizers.build_adam(0.05),
  )
  return _train_on('image', process, models.of_many_kinds)


@_case()
def weighted_fed_prox():
  process = _algorithms.build_weighted_fed_prox(
      _variable_model(models.mlp, 'table', models.class_metrics()),
      proximal_strength=0.8,
      client_optimizer_fn=_MOMENTUM,
      server_optimizer_fn=_MOMENTUM,
  )
  return _train_on('table', process, models.of_many_kinds)


@_case()
def unweighted_fed_prox_functional():
  process = _algorithms.build_unweighted_fed_prox(
      _functional_model(models.embedding, 'words', models.plain_metrics()),
      proximal_strength=0.8,
      client_optimizer_fn=_optimizers.build_adagrad(0.1),
      loop_implementation=_ITERATOR,
  )
  return _train_on('words', process)


@_case()
def weighted_mime_lite():
  process = _algorithms.build_weighted_mime_lite(
      _variable_model(models.normalized, 'table', models.class_metrics()),
      base_optimizer=_MOMENTUM,
  )
  return _train_on('table', process)


@_case()
def weighted_mime_lite_functional():
  process = _algorithms.build_weighted_mime_lite(
      _functional_model(models.convolution, 'image', models.plain_metrics()),
      base_optimizer=_optimizers.build_adagrad(0.1),
      client_weighting=_UNIFORM,
      loop_implementation=_ITERATOR,
  )
  return _train_on('image', process)


@_case()
def unweighted_mime_lite():
  process = _algorithms.build_unweighted_mime_lite(
      _variable_model(models.lstm, 'words'),
      base_optimizer=_optimizers.build_rmsprop(0.02),
      server_optimizer=_MOMENTUM,
      loop_implementation=_ITERATOR,
  )
  return _train_on('words', process, _in_the_same_order)


def _in_the_same_order(kind: str, round_num: int) -> list:
  """Returns clients that are shuffled once.

  A client of `mime_lite` goes through its data twice at the same time. With
  `reshuffle_each_iteration`, even TFF's own runtime gives each pass either
  order.
  """
  return [
      client.unbatch().shuffle(5, seed=3, reshuffle_each_iteration=False)
      .batch(3)
      .prefetch(1)
      for client in models.batched(kind, round_num)
  ]


@_case()
def mime_lite_with_a_schedule():
  process = _algorithms.build_mime_lite_with_optimizer_schedule(
      _variable_model(models.mlp, 'table', models.class_metrics()),
      learning_rate_fn=lambda round_num: tf.where(round_num < 1, 0.3, 0.1),
      base_optimizer=_MOMENTUM,
  )
  return _train_on('table', process, models.lists)


@_case()
def fed_avg_with_a_schedule():
  process = _algorithms.build_weighted_fed_avg_with_optimizer_schedule(
      _variable_model(models.mlp, 'table', models.class_metrics()),
      client_learning_rate_fn=lambda round_num: tf.where(
          round_num < 1, 0.3, 0.1
      ),
      client_optimizer_fn=lambda rate: _optimizers.build_sgdm(rate, 0.9),
  )
  return _train_on('table', process, models.of_many_kinds)


@_case()
def fed_avg_with_a_schedule_functional():
  process = _algorithms.build_weighted_fed_avg_with_optimizer_schedule(
      _functional_model(models.embedding, 'words', models.plain_metrics()),
      client_learning_rate_fn=lambda round_num: 0.3 / (
          1.0 + tf.cast(round_num, tf.float32)
      ),
      client_optimizer_fn=lambda rate: _optimizers.build_sgdm(rate, 0.9),
  )
  return _train_on('words', process)


# Reconstruction, whose clients have weights of their own.


def _matrix_model(has_local_norm: bool = False):
  """Returns a `model_fn`: the first layer is the client's own."""

  def model_fn():
    local = [models.dense(4, 1, 'tanh')]
    if has_local_norm:
      local.append(_layers.BatchNormalization(momentum=0.7))
    shared = [models.dense(3, 2)]
    model = tf.keras.Sequential([_layers.InputLayer([4]), *local, *shared])
    return tff.learning.models.ReconstructionModel.from_keras_model_and_layers(
        model,
        global_layers=shared,
        local_layers=local,
        input_spec=models.spec('table'),
    )

  return model_fn


def _split(**properties):
  return tff.learning.models.ReconstructionModel.build_dataset_split_fn(
      **properties
  )


def _recon_metrics():
  return [tf.keras.metrics.SparseCategoricalAccuracy(), models.NumLarge()]


for _name, _recon in {
    'default': {},
    'halves': dict(
        dataset_split_fn=_split(split_dataset=True, recon_epochs=2),
        client_optimizer_fn=_MOMENTUM,
        reconstruction_optimizer_fn=_optimizers.build_adagrad(0.1),
        server_optimizer_fn=_MOMENTUM,
        client_weighting=_UNIFORM,
    ),
    'own_weights': dict(
        dataset_split_fn=_split(post_recon_epochs=2, recon_steps_max=1),
        client_weighting=lambda metrics: 1.0 + metrics['share_large'][1],
    ),
    'keras_sgd': dict(
        client_optimizer_fn=lambda: tf.keras.optimizers.SGD(0.1, 0.9),
        reconstruction_optimizer_fn=lambda: tf.keras.optimizers.SGD(0.2),
    ),
    'keras_adam': dict(
        client_optimizer_fn=lambda: tf.keras.optimizers.Adam(0.02),
        reconstruction_optimizer_fn=lambda: tf.keras.optimizers.Adagrad(0.1),
    ),
    'keras_legacy_adam': dict(
        client_optimizer_fn=lambda: tf.keras.optimizers.legacy.Adam(0.02),
        reconstruction_optimizer_fn=lambda: (
            tf.keras.optimizers.legacy.SGD(0.1, 0.9)
        ),
    ),
}.items():

  @_case(f'fed_recon_{_name}')
  def _reconstruct(name=_name, properties=_recon):
    process = _algorithms.build_fed_recon(
        _matrix_model(has_local_norm='keras' not in name),
        loss_fn=models.cross_entropy,
        metrics_fn=_recon_metrics,
        **properties,
    )
    return _train_on(
        'table', process, models.lists if name == 'default' else models.batched
    )


def _evaluate(process, clients, weights=None) -> dict[str, np.ndarray]:
  """Returns what an evaluation gives on two rounds' clients."""
  state, found = process.initialize(), {}
  if weights is not None:
    state = process.set_model_weights(state, weights)
  for round_num in range(2):
    output = process.next(state, clients(round_num))
    state = output.state
    found.update(oracle.flat(output.metrics, f'metrics_{round_num}'))
  found.update(oracle.flat(state, 'state'))
  return found


for _name, _recon in {
    'default': {},
    'keras_momentum': dict(
        reconstruction_optimizer_fn=lambda: tf.keras.optimizers.SGD(0.2, 0.9),
        dataset_split_fn=_split(split_dataset=True, recon_epochs=2),
    ),
    'keras_legacy_adam': dict(
        reconstruction_optimizer_fn=lambda: (
            tf.keras.optimizers.legacy.Adam(0.1)
        ),
    ),
}.items():

  @_case(f'fed_recon_eval_{_name}')
  def _evaluate_reconstruction(properties=_recon):
    process = _algorithms.build_fed_recon_eval(
        _matrix_model(has_local_norm=True),
        loss_fn=models.cross_entropy,
        metrics_fn=_recon_metrics,
        **properties,
    )
    return _evaluate(process, lambda n: models.batched('table', n))


# Evaluation.


@_case()
def fed_eval():
  process = _algorithms.build_fed_eval(
      _variable_model(models.normalized, 'table', models.class_metrics())
  )
  weights = process.get_model_weights(process.initialize())
  weights.trainable[0] = 1.5 * np.asarray(weights.trainable[0])
  weights.non_trainable[0] = 0.1 + np.asarray(weights.non_trainable[0])
  return _evaluate(process, lambda n: models.of_many_kinds('table', n), weights)


@_case()
def fed_eval_iterator():
  process = _algorithms.build_fed_eval(
      _variable_model(models.lstm, 'words', models.class_metrics()),
      loop_implementation=_ITERATOR,
  )
  return _evaluate(process, lambda n: models.lists('words', n))


@_case()
def fed_eval_functional():
  process = _algorithms.build_fed_eval(
      _functional_model(models.convolution, 'image', models.plain_metrics())
  )
  return _evaluate(process, lambda n: models.batched('image', n))


@_case()
def fed_eval_of_own_variables():
  process = _algorithms.build_fed_eval(models.OwnVariables)
  return _evaluate(process, lambda n: models.batched('table', n))


# Personalization.


def _loss_of(model, rows) -> tf.Tensor:
  def add(state, batch):
    output = model.forward_pass(batch, training=False)
    num = tf.cast(tf.shape(output.predictions)[0], tf.float32)
    return state[0] + num * output.loss, state[1] + num

  total, num = rows.batch(3).reduce((0.0, 0.0), add)
  return tf.math.divide_no_nan(total, num)


def _tuned(make_optimizer, num_epochs: int):
  """Returns a strategy as in TFF's tutorial: some epochs with an optimizer."""

  def build():
    optimizer = make_optimizer()

    @tf.function
    def tune(model, train_data, test_data):
      def step(count, batch):
        with tf.GradientTape() as tape:
          output = model.forward_pass(batch)
        weights = model.trainable_variables
        gradients = tape.gradient(output.loss, weights)
        optimizer.apply_gradients(zip(gradients, weights))
        return count + 1

      if hasattr(optimizer, 'build'):
        with tf.init_scope():
          optimizer.build(model.trainable_variables)
      count = train_data.repeat(num_epochs).batch(3).reduce(0, step)
      return collections.OrderedDict(
          num_batches=count, loss=_loss_of(model, test_data)
      )

    return tune

  return build


@tf.function
def _baseline(model, rows):
  return collections.OrderedDict(loss=_loss_of(model, rows))


for _name, _make, _kind, _strategies in (
    (
        'sgd',
        models.mlp,
        'table',
        dict(
            plain=lambda: tf.keras.optimizers.SGD(0.2),
            momentum=lambda: tf.keras.optimizers.SGD(0.1, 0.9),
        ),
    ),
    (
        'adam',
        models.normalized,
        'table',
        dict(adam=lambda: tf.keras.optimizers.Adam(0.02)),
    ),
    (
        'legacy',
        models.embedding,
        'words',
        dict(adam=lambda: tf.keras.optimizers.legacy.Adam(0.02)),
    ),
):

  @_case(f'personalization_eval_{_name}')
  def _personalize(make=_make, kind=_kind, strategies=_strategies):
    model_fn = _variable_model(make, kind, models.class_metrics())
    evaluate = _algorithms.build_personalization_eval_computation(
        model_fn,
        collections.OrderedDict(
            (name, _tuned(strategy, epochs + 1))
            for epochs, (name, strategy) in enumerate(strategies.items())
        ),
        _baseline,
    )
    weights = _algorithms.build_fed_eval(model_fn).initialize()

    def data(size, *seed):
      return models.slices(models.examples(kind, size, *seed))

    found = {}
    for round_num, sizes in enumerate(models.SIZES):
      clients = [
          collections.OrderedDict(
              train_data=data(size, round_num, number),
              test_data=data(size + 2, round_num, number + 10),
          )
          for number, size in enumerate(sizes)
      ]
      found.update(
          oracle.flat(
              evaluate(weights.global_model_weights, clients),
              f'round_{round_num}',
          )
      )
    # In no order, as above.
    return {name: np.sort(value, axis=None) for name, value in found.items()}


# Clusters.


def _points(round_num: int, shape) -> list:
  rng = np.random.default_rng(round_num)
  return [
      models.slices(np.float32(rng.normal(number % 3, 1.0, [size, *shape])))
      for number, size in enumerate(models.SIZES[round_num])
  ]


@_case()
def fed_kmeans():
  process = _algorithms.build_fed_kmeans(3, (2,), random_seed=(1, 2))
  return _train(process, lambda n: _points(n, (2,)))


@_case()
def fed_kmeans_of_images():
  process = _algorithms.build_fed_kmeans(
      4,
      (2, 3),
      random_seed=(3, 4),
      sum_aggregator=tff.aggregators.SumFactory(),
  )
  return _train(
      process, lambda n: [list(points) for points in _points(n, (2, 3))]
  )


CASES += builders_layers.CASES
