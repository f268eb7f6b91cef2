# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What README and docs take as given: the reader's own model and clients."""

import functools
import secrets
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import small_model
from tff_dp import mechanisms
from tff_dp import program

_SGD = tff.learning.optimizers.build_sgdm


class ClientData:
  """2,000 clients of a linear model."""

  client_ids = [f'client {i}' for i in range(2000)]

  def create_tf_dataset_for_client(self, client_id: str) -> tf.data.Dataset:
    return small_model.client(int(client_id.removeprefix('client ')))


def _batches(num_records: int, num_features: int = 2) -> list:
  """Returns records in batches of at most 100."""
  rng = np.random.default_rng(num_records)
  features = rng.uniform(0, 1, [num_records, num_features]).astype(np.float32)
  labels = (features[:, 0] > 0.5).astype(np.float32)
  return [
      (features[start : start + 100], labels[start : start + 100])
      for start in range(0, num_records, 100)
  ]


class Banks:
  """Three silos of 1,000 records."""

  client_ids = ['bank 0', 'bank 1', 'bank 2']

  def create_tf_dataset_for_client(self, client_id: str) -> list:
    del client_id
    return _batches(1000)


class Phones:
  """100 clients with examples of three features."""

  client_ids = [f'phone {i}' for i in range(100)]

  def create_tf_dataset_for_client(self, client_id: str) -> tf.data.Dataset:
    num_records = 3 + int(client_id.removeprefix('phone ')) % 5
    (batch,) = _batches(num_records, 3)
    return tf.data.Dataset.from_tensor_slices(batch).batch(num_records)


def of(page: str) -> dict[str, Any]:
  """Returns the names that the blocks of a page may use without a definition.

  Args:
    page: Its path in the repository.
  """
  model = small_model.build()
  names = dict(
      client_data=ClientData(),
      client_optimizer_fn=_SGD(0.1),
      evaluate=lambda weights: {'bias': float(weights.trainable[1][0])},
      model=model,
      model_fn=model,
      server_optimizer_fn=_SGD(1.0),
  )
  match page:
    case 'docs/check_ins.md':
      names['those_who_came'] = [
          (small_model.client(i), secrets.token_bytes(16)) for i in range(3)
      ]
    case 'docs/draw_and_discard.md':
      names['arriving'] = [{f'phone {i}': _batches(4, 3)} for i in range(2)]
      names['phones'] = Phones()
    case 'docs/dp_ftrl.md':
      names['rounds'] = range(1, 3)
    case 'docs/isrl.md':
      names['cleveland_batches'] = _batches(303)
      names['hungary_batches'] = _batches(261)
      names['banks'] = {f'bank {i}': _batches(1000) for i in range(25)}
    case 'docs/sampling.md':
      features = np.random.default_rng(1).uniform(0, 1, [60_000, 2])
      names['features'] = features.astype(np.float32)
      names['labels'] = features[:, 0].astype(np.float32)
    case 'docs/training.md':
      plan = small_model.build_plan(
          mechanisms.Independent(200), noise_multiplier=20.0
      )
      names['banks'] = Banks()
      names['phones'] = Phones()
      names['plan'] = plan
      names['process'] = small_model.build_process(plan)
  return names


def write_files() -> None:
  """Writes the data files of the reader, into the working directory."""
  lines = [f'person {i % 9},{i % 5},{i % 3},{i % 2}\n' for i in range(30)]
  with open('people.csv', 'w') as file:
    file.writelines(['person,age,visits,bought\n', *lines])
  np.savez(
      'people.npz',
      person=np.arange(30) % 9,
      x=np.ones([30, 2], np.float32),
      y=np.ones([30, 1], np.float32),
  )


def few_rounds():
  """Returns a context in which the training program stops after one round."""
  return mock.patch.object(
      program, 'train', functools.partial(program.train, total_rounds=1)
  )
