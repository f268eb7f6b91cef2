# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Two silos with a quadratic objective, whose gradients are known exactly."""

import collections

import numpy as np
import tensorflow_federated as tff

from tests.systems.silos import toy

SIZE = 5
BLOCK = 3
ROUNDS = 7
CURVATURE = np.array([1.0, 0.5, 0.3, 0.2, 0.15])
START = np.array([1.0, -2.0, 0.5, 0.0, 3.0])
SILOS = ('a', 'b')


def records():
  rng = np.random.default_rng(0)
  return {
      name: rng.standard_normal([BLOCK * ROUNDS, SIZE]).astype(np.float32)
      for name in SILOS
  }


def gradient(records, r, point):
  """Returns the mean gradient of block r of the silos, at a point."""
  return np.mean([
      CURVATURE * (point - rows[r * BLOCK : (r + 1) * BLOCK].mean(axis=0))
      for rows in records.values()
  ], axis=0)


def arguments(**changes):
  return dict(
      silos={name: toy.free(BLOCK * ROUNDS) for name in SILOS},
      num_rounds=ROUNDS,
      l2_norm_clip=1e3,
      noise_stddev=0.0,
      model_aggregator=toy.Tap(),
  ) | changes


def model():
  return toy.build_model(SIZE, curvature=CURVATURE, initial=START)


def named_model(*names):
  """Returns the same model, whose batches are mappings with these names."""
  pairs = model()
  parts = dict(zip('xy', pairs.input_spec))
  return tff.learning.models.FunctionalModel(
      initial_weights=pairs.initial_weights,
      predict_on_batch_fn=pairs.predict_on_batch,
      loss_fn=pairs.loss,
      input_spec=collections.OrderedDict(
          (name, parts.get(name, parts['y'])) for name in names
      ),
  )


def data():
  return {name: toy.examples(rows) for name, rows in records().items()}
