# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains an LSTM to predict the next word."""

import collections
import itertools
from typing import Any

from tasks.common import cluster_clients
from tasks.common import federated_run
from tasks.stackoverflow import stackoverflow_data
from tff_dp import dp_ftrl

# pylint: disable=g-bad-import-order
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

_EVALUATED_AT_ONCE = 200


def build_model(
    vocabulary_size: int,
    *,
    embedding_size: int,
    lstm_size: int,
    embedding_range: float = 0.05,
    seed: int,
) -> tf.keras.Model:
  """Returns the network of TFF's baseline, with logits as outputs.

  It has 4,050,748 weights for 10,004 ids, an embedding of 96 and an LSTM of
  670.

  Args:
    vocabulary_size: Number of ids. Id 0 is padding, and is masked.
    embedding_size: Size of the embedding of a word, and of the layer after the
      LSTM.
    lstm_size: Number of units of the LSTM.
    embedding_range: Bound on the initial embedding. TFF has 0.05.
    seed: Seed of the initial weights, which are public.
  """
  layers, initializers = tf.keras.layers, tf.keras.initializers
  seeds = (1000 * seed + number for number in range(5))
  ids = layers.Input([None], dtype=tf.int64)
  outputs = layers.Embedding(
      vocabulary_size,
      embedding_size,
      mask_zero=True,
      embeddings_initializer=initializers.RandomUniform(
          -embedding_range, embedding_range, seed=next(seeds)
      ),
  )(ids)
  outputs = layers.LSTM(
      lstm_size,
      return_sequences=True,
      kernel_initializer=initializers.GlorotUniform(next(seeds)),
      recurrent_initializer=initializers.Orthogonal(seed=next(seeds)),
  )(outputs)
  for size in (embedding_size, vocabulary_size):
    outputs = layers.Dense(
        size, kernel_initializer=initializers.GlorotUniform(next(seeds))
    )(outputs)
  return tf.keras.Model(ids, outputs)


def train(
    settings, plan, vocabulary: stackoverflow_data.Vocabulary, **options
) -> dict[str, Any]:
  """Runs or resumes a training and returns its row of the report.

  Args:
    settings: `stackoverflow.Settings`, the result of
      `federated_settings.filled`.
    plan: Plan of the run.
    vocabulary: Map from words to ids.
    **options: Further arguments of `federated_run.train`.
  """
  train_data, test_data = stackoverflow_data.load(settings.folder)
  batches = {
      'batch_size': settings.client_batch_size,
      'num_epochs': settings.client_epochs_per_round,
      'most_examples': settings.examples_per_client,
  }
  users = cluster_clients.at_workers(
      stackoverflow_data.Users(train_data, vocabulary, **batches),
      stackoverflow_data.__name__,
      folder=str(settings.folder.resolve()),
      num_words=settings.words,
      sequence_length=settings.sequence_length,
      is_stand_in=settings.stand_in,
      **batches,
  )
  spec = tf.TensorSpec([None, vocabulary.sequence_length], tf.int64)

  def build():
    return build_model(
        vocabulary.size,
        embedding_size=settings.embedding_size,
        lstm_size=settings.lstm_size,
        embedding_range=settings.embedding_range,
        seed=settings.seed,
    )

  def model_fn():
    return tff.learning.models.from_keras_model(
        build(),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=(spec, spec),
    )

  process = dp_ftrl.build_dp_ftrl(
      model_fn,
      plan,
      client_optimizer=tff.learning.optimizers.build_sgdm(
          settings.client_learning_rate
      ),
      server_learning_rate=settings.server_learning_rate,
      momentum=settings.momentum,
      cooldown=settings.cooldown,
      insecure_seed=settings.insecure_seed,
  )
  sentences = stackoverflow_data.sentences(
      test_data.create_tf_dataset_from_all_clients(seed=0)
  )
  ids, targets = vocabulary.ids(
      list(itertools.islice(sentences, settings.test_examples))
  )
  counted = targets[vocabulary.is_counted(targets)]
  return federated_run.train(
      process,
      users,
      run=f'dp-ftrl_{plan.mechanism.name}',
      settings=settings,
      most_frequent=float(np.bincount(counted).max() / counted.size),
      # Built after the process, whose graphs change Keras' classes.
      evaluate_fn=_evaluation(build(), vocabulary, ids, targets),
      schedule_seed=settings.seed,
      config=settings.config('stackoverflow'),
      **options,
  )


def _evaluation(model, vocabulary, ids, targets):
  """Returns a function from weights to the accuracy of the next word."""

  def evaluate(weights):
    weights.assign_weights_to(model)
    hits = total = 0
    for start in range(0, len(ids), _EVALUATED_AT_ONCE):
      rows = slice(start, start + _EVALUATED_AT_ONCE)
      is_counted = vocabulary.is_counted(targets[rows])
      # Of the words alone, whose ids begin with 1.
      logits = model(ids[rows], training=False)[..., 1 : vocabulary.unknown]
      said = 1 + np.argmax(logits, axis=-1)
      hits += int(np.sum((said == targets[rows]) & is_counted))
      total += int(np.sum(is_counted))
    return collections.OrderedDict(test_accuracy=hits / total)

  return evaluate
