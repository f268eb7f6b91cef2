# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clients' data in a form that travels, and a small process that trains on it."""

import collections
import os
import pathlib
import time

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import aggregators
from tff_dp import mechanisms

INPUT = collections.OrderedDict(
    x=tf.TensorSpec([None, 3], tf.float32), y=tf.TensorSpec([None], tf.int32)
)

# Environment variable: the folder through which tests talk to workers.
FOLDER = 'TFF_DP_TEST_CLUSTER'
_loaded = []


class ListsContext(tff.framework.SyncContext):
  """Hands on to another context, with lists where clients have datasets."""

  def __init__(self, context):
    self._context = context

  def invoke(self, comp, arg):
    return self._context.invoke(comp, _with_lists(arg, is_client=False))

  def __getattr__(self, name):
    return getattr(self._context, name)


def _with_lists(value, *, is_client: bool):
  if isinstance(value, tff.structure.Struct):
    return tff.structure.Struct([
        (name, _with_lists(part, is_client=is_client))
        for name, part in tff.structure.iter_elements(value)
    ])
  if isinstance(value, list):
    return [_with_lists(part, is_client=True) for part in value]
  if isinstance(value, dict) and is_client:
    return type(value)(
        (name, _with_lists(part, is_client=True))
        for name, part in value.items()
    )
  if isinstance(value, tf.data.Dataset) and is_client:
    return list(value)
  return value


def model_fn():
  start = tf.keras.initializers.GlorotUniform
  model = tf.keras.Sequential([
      tf.keras.layers.Dense(
          4, 'relu', kernel_initializer=start(1), input_shape=(3,)
      ),
      tf.keras.layers.Dense(2, kernel_initializer=start(2)),
  ])
  return tff.learning.models.from_keras_model(
      model,
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=INPUT,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
  )


def build_process():
  """Returns federated averaging with noise of trees."""
  return tff.learning.algorithms.build_unweighted_fed_avg(
      model_fn,
      tff.learning.optimizers.build_sgdm(0.1),
      model_aggregator=aggregators.CorrelatedNoiseFactory(
          mechanisms.HonakerTree(8, restart_every=2),
          noise_multiplier=1.3,
          l2_norm_clip=0.5,
          clients_per_round=4,
          insecure_seed=7,
      ),
  )


def load(client_id: str) -> list:
  """Returns the batches of a client; what `load_clients` names in tests."""
  kind, number = client_id.split('_')
  if kind != 'client':
    raise FileNotFoundError(client_id)
  rng = np.random.default_rng(int(number))
  batches = []
  for size in (3, 2):
    x = rng.standard_normal((size, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int32)
    batches.append(collections.OrderedDict(x=x, y=y))
  return batches


def load_dataset(client_id: str) -> tf.data.Dataset:
  """The same data as a dataset that cannot go into a chunk."""
  rows = {
      name: np.concatenate([batch[name] for batch in load(client_id)])
      for name in INPUT
  }
  dataset = tf.data.Dataset.from_tensor_slices(collections.OrderedDict(rows))
  return dataset.filter(lambda row: True).batch(3)


def load_when_allowed(client_id: str) -> list:
  """The same; waits while the folder of the test asks it to."""
  _loaded.append(client_id)
  folder = pathlib.Path(os.environ[FOLDER])
  if (folder / f'hold_{client_id}').exists():
    (folder / f'held_{client_id}').write_text(str(os.getpid()))
    while (folder / f'hold_{client_id}').exists():
      time.sleep(0.02)
    time.sleep(1)  # To be killed in.
  return load(client_id)


def num_loaded() -> int:
  """Returns how many clients this process has loaded."""
  return len(_loaded)


def train(process, clients: list, num_rounds: int = 2):
  """Returns what the server knows after some rounds, and their metrics."""
  state, metrics = process.initialize(), []
  for _ in range(num_rounds):
    output = process.next(state, clients)
    state = output.state
    metrics.append(output.metrics)
  return state, metrics
