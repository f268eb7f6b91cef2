# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains a network on EMNIST."""

import collections
import functools
from typing import Any

from tasks.common import engine
from tasks.common import federated_run
from tasks.emnist import emnist_data
from tasks.emnist import emnist_models
from tasks.emnist import emnist_systems
from tff_dp import _waiting

# pylint: disable=g-bad-import-order
import numpy as np
import tensorflow as tf


def train(
    settings, plan, data: emnist_data.Emnist, **options
) -> dict[str, Any]:
  """Runs or resumes a training and returns its row of the report.

  Args:
    settings: `emnist.Settings`, the result of `federated_settings.filled`.
    plan: Plan of DP-FTRL. `None` for another system, whose plan depends on the
      number of writers.
    data: Writers and held-out characters.
    **options: Further arguments of `federated_run.train`.
  """
  build_model = functools.partial(
      emnist_models.build, settings.model, data.num_classes, seed=settings.seed
  )
  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  model = emnist_systems.Model(
      build_model, loss, data.train.element_type_structure
  )
  with _waiting.saying(engine.BUILDING, mode=options['progress']):
    process, of_system = emnist_systems.build(
        settings, plan, model, data.num_examples
    )
  labels = np.concatenate([labels for _, labels in data.test])
  noise = () if plan is None else (plan.mechanism.name,)
  return federated_run.train(
      process,
      data.participants,
      run='_'.join((settings.system, *noise)),
      settings=settings,
      most_frequent=float(np.bincount(labels).max() / labels.size),
      evaluate_fn=_evaluation(build_model(), loss, data.test),
      config=settings.config('emnist'),
      **of_system,
      **options,
  )


def _evaluation(model, loss, test):
  """Returns a function from weights to metrics on held-out characters.

  Args:
    model: Keras model. It must be built after the process, whose graphs change
      Keras' classes.
    loss: Loss, a mean over a batch.
    test: Batches (pixels, labels).
  """

  def evaluate(weights):
    weights.assign_weights_to(model)
    hits = total = losses = 0.0
    for pixels, labels in test:
      logits = model(pixels, training=False)
      hits += float(np.sum(np.argmax(logits, axis=1) == labels))
      losses += float(loss(labels, logits)) * len(labels)
      total += len(labels)
    return collections.OrderedDict(
        test_accuracy=hits / total, test_loss=losses / total
    )

  return evaluate
