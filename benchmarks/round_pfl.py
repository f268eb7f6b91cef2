# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The pfl-research rows of `benchmarks.round_time`, in a process of their own.

    python benchmarks/round_pfl.py CONFIG.json ARRAYS.npz

needs pfl and torch only, so that they may live in another environment than TFF.
Every line on stdin is a request, `round` or `weights PATH`; every line on
stdout says that one is done. The first line is a JSON object with versions and
threads. `benchmarks.round_pfl_row` is the other end.

A round consists of the public steps of pfl's own training loop on its simulated
backend, without evaluation, callbacks and metrics output.
"""

import asyncio
import json
import os
import sys

import numpy as np
import pfl
from pfl import algorithm as pfl_algorithm
from pfl import hyperparam
from pfl import privacy
from pfl.aggregate import simulate
from pfl.algorithm import algorithm_utils
from pfl.data import federated_dataset
from pfl.data import pytorch as pfl_data
from pfl.data import sampling
from pfl.model import pytorch as pfl_model
from pfl.privacy import ftrl_mechanism
import torch
from torch import nn
from torch.nn import functional

# What the banded matrix mechanism, pfl's DP-FTRL, is optimised for.
_NUM_ROUNDS = 256
_MIN_SEPARATION = 8


class _Cnn(nn.Module):
  """Has Keras' weights in Keras' order, in PyTorch's layout."""

  def __init__(self, sizes):
    super().__init__()
    first, second = sizes['filters']
    self._side = (sizes['side'] - 4) // 2
    self._channels = second
    self.conv1 = nn.Conv2d(1, first, 3)
    self.conv2 = nn.Conv2d(first, second, 3)
    self.dense1 = nn.Linear(second * self._side**2, sizes['dense'])
    self.dense2 = nn.Linear(sizes['dense'], sizes['classes'])

  def loss(self, inputs, labels):
    hidden = functional.relu(self.conv1(inputs))
    hidden = functional.relu(self.conv2(hidden))
    hidden = functional.max_pool2d(hidden, 2).flatten(1)
    hidden = functional.relu(self.dense1(hidden))
    return functional.cross_entropy(self.dense2(hidden), labels)

  def metrics(self, inputs, labels):
    raise NotImplementedError('pfl asks for it, but nothing is evaluated here')

  def inputs(self, array):
    return array.transpose(0, 3, 1, 2)  # One channel: only the shape changes.

  def from_keras(self, arrays):
    conv1, bias1, conv2, bias2, dense1, bias3, dense2, bias4 = arrays
    # Keras flattens with the channel last, PyTorch with the channel first.
    dense1 = dense1.reshape(self._side, self._side, self._channels, -1)
    dense1 = dense1.transpose(3, 2, 0, 1).reshape(len(bias3), -1)
    return [
        conv1.transpose(3, 2, 0, 1), bias1, conv2.transpose(3, 2, 0, 1), bias2,
        dense1, bias3, dense2.T, bias4,
    ]  # pyformat: disable

  def to_keras(self, arrays):
    conv1, bias1, conv2, bias2, dense1, bias3, dense2, bias4 = arrays
    dense1 = dense1.reshape(-1, self._channels, self._side, self._side)
    dense1 = dense1.transpose(2, 3, 1, 0).reshape(-1, len(bias3))
    return [
        conv1.transpose(2, 3, 1, 0), bias1, conv2.transpose(2, 3, 1, 0), bias2,
        dense1, bias3, dense2.T, bias4,
    ]  # pyformat: disable


class _Lstm(nn.Module):
  """As `_Cnn`. Gates come in the same order in Keras and PyTorch."""

  def __init__(self, sizes):
    super().__init__()
    vocabulary, width = sizes['vocabulary'], sizes['embedding']
    self.embedding = nn.Embedding(vocabulary, width)
    self.lstm = nn.LSTM(width, sizes['units'], batch_first=True)
    # Keras has one bias per gate. A second one would double its step size.
    nn.init.zeros_(self.lstm.bias_hh_l0)
    self.lstm.bias_hh_l0.requires_grad_(False)
    self.dense1 = nn.Linear(sizes['units'], width)
    self.dense2 = nn.Linear(width, vocabulary)

  def loss(self, inputs, labels):
    hidden, _ = self.lstm(self.embedding(inputs))
    logits = self.dense2(self.dense1(hidden))
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

  def metrics(self, inputs, labels):
    raise NotImplementedError('pfl asks for it, but nothing is evaluated here')

  def inputs(self, array):
    return array.astype(np.int64)

  def from_keras(self, arrays):
    embedding, kernel, recurrent, bias, dense1, bias1, dense2, bias2 = arrays
    return [
        embedding, kernel.T, recurrent.T, bias, dense1.T, bias1, dense2.T, bias2
    ]  # pyformat: disable

  to_keras = from_keras  # Transposing is its own inverse.


class _Dense(nn.Module):
  """As `_Cnn`."""

  def __init__(self, sizes):
    super().__init__()
    widths = [sizes['features'], *sizes['hidden'], sizes['classes']]
    self.layers = nn.ModuleList(map(nn.Linear, widths, widths[1:]))

  def loss(self, inputs, labels):
    for layer in self.layers[:-1]:
      inputs = functional.relu(layer(inputs))
    return functional.cross_entropy(self.layers[-1](inputs), labels)

  def metrics(self, inputs, labels):
    raise NotImplementedError('pfl asks for it, but nothing is evaluated here')

  def inputs(self, array):
    return array

  def from_keras(self, arrays):
    return [array.T for array in arrays]

  to_keras = from_keras


class _KnownNoise:
  """Stands in for an accountant, since the noise is given."""

  def __init__(self, noise_multiplier):
    self.cohort_noise_parameter = noise_multiplier


def _postprocessors(config):
  clip, noise = config['clip'], config['noise_multiplier']
  if config['aggregation'] == 'mean':
    return []
  if config['aggregation'] == 'gaussian':
    mechanism = privacy.GaussianMechanism(clip, noise)
  else:
    # In pfl the L2 norm of C's columns is 1, as for one participation.
    mechanism = ftrl_mechanism.BandedMatrixFactorizationMechanism(
        clip, _NUM_ROUNDS, _MIN_SEPARATION, lambda _: _KnownNoise(noise)
    )
  return [privacy.CentrallyAppliedPrivacyMechanism(mechanism)]


class _Simulation:
  """Federated averaging in pfl's own words."""

  def __init__(self, config, arrays):
    build = {'cnn': _Cnn, 'lstm': _Lstm, 'dense': _Dense}[config['model']]
    self._network = build(config['sizes'])
    self._trained = [
        value for value in self._network.parameters() if value.requires_grad
    ]
    weights = [arrays[f'weight_{i}'] for i in range(len(self._trained))]
    with torch.no_grad():
      for value, array in zip(self._trained, self._network.from_keras(weights)):
        value.copy_(torch.tensor(np.ascontiguousarray(array)))
    self._model = pfl_model.PyTorchModel(
        self._network,
        torch.optim.SGD,
        torch.optim.SGD(self._network.parameters(), lr=1.0),
    )
    num_clients = config['num_clients']
    users = {}
    for index in range(num_clients):
      inputs = self._network.inputs(arrays[f'inputs_{index}'])
      labels = arrays[f'labels_{index}'].astype(np.int64)
      users[index] = pfl_data.PyTorchTensorDataset(
          [torch.tensor(inputs), torch.tensor(labels)], user_id=str(index)
      )
    data = federated_dataset.FederatedDataset(
        users.__getitem__,
        sampling.get_user_sampler('minimize_reuse', list(users)),
    )
    self._backend = simulate.SimulatedBackend(
        data, data, postprocessors=_postprocessors(config)
    )
    self._algorithm = pfl_algorithm.FederatedAveraging()
    self._parameters = pfl_algorithm.NNAlgorithmParams(
        central_num_iterations=10**9,
        evaluation_frequency=10**9,
        train_cohort_size=num_clients,
        val_cohort_size=None,
    )
    self._training = hyperparam.NNTrainHyperParams(
        local_num_epochs=1,
        local_learning_rate=config['learning_rate'],
        local_batch_size=config['batch_size'],
    )
    self._round = 0

  def run_round(self):
    self._round += 1  # Round 0 would evaluate every client twice.
    contexts, model, _ = self._algorithm.get_next_central_contexts(
        self._model, self._round, self._parameters, self._training
    )
    ((statistics, metrics),) = algorithm_utils.run_train_eval(
        self._algorithm, self._backend, model, contexts
    )
    self._algorithm.process_aggregated_statistics(
        contexts[0], metrics, model, statistics
    )

  def save(self, path):
    arrays = [value.detach().numpy() for value in self._trained]
    np.savez(path, *self._network.to_keras(arrays))


def main():
  # Whatever a library prints must not end up between the answers.
  answers = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)
  config_path, arrays_path = sys.argv[1:]
  with open(config_path, encoding='utf-8') as file:
    config = json.load(file)
  torch.set_num_threads(config['num_threads'])
  asyncio.set_event_loop(asyncio.new_event_loop())

  def answer(text):
    answers.write(text + '\n')
    answers.flush()

  with np.load(arrays_path) as arrays:
    simulation = _Simulation(config, arrays)
  answer(
      json.dumps({
          'pfl': pfl.__version__,
          'torch': torch.__version__,
          'python': sys.version.split()[0],
          'threads': torch.get_num_threads(),
      })
  )
  for line in sys.stdin:
    command, _, path = line.rstrip('\n').partition(' ')
    if command == 'weights':
      simulation.save(path)
    else:
      simulation.run_round()
    answer('done')


if __name__ == '__main__':
  main()
