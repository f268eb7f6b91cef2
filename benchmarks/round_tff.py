# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The rows of `benchmarks.round_time` that run on TFF."""

import contextlib
import dataclasses
import math
from typing import Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import round_tasks
from tff_dp import dp_ftrl
from tff_dp import execution
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.systems.dp_ftrl import plan as plan_lib

# Noise costs the same whatever its size. This small it disappears in the
# comparison of results, so that the very process that is timed is checked.
NOISE_MULTIPLIER = 1e-9
# Above the norm of every update here, so clipping changes nothing. It is
# computed and multiplied all the same.
FIXED_CLIP = 1.0
# Where `tff.learning.dp_aggregator` starts in round 1; it adapts from there.
_ADAPTIVE_CLIP = 0.1
_HORIZON = 2048


@dataclasses.dataclass(frozen=True)
class Engine:
  """A context, and the loop over batches that is asked for.

  Attributes:
    name: First part of the names of its rows.
    kind: 'in_process' or 'native'.
    loop: TFF's name of the loop implementation.
    max_concurrent_clients: Passed to the context.
    server_device: The same, for the in-process context.
  """

  name: str
  kind: str
  loop: str
  max_concurrent_clients: Optional[int] = None
  server_device: Optional[str] = None

  @property
  def aggregations(self) -> tuple[str, ...]:
    # This package's builder chooses the loop itself.
    is_own_choice = self.loop == 'DATASET_ITERATOR'
    return AGGREGATIONS if is_own_choice else AGGREGATIONS[:-1]

  def create_context(self):
    """Returns a new context, or None if this version has no such kind."""
    if self.kind == 'native':
      create = execution.create_native_context
      return create(max_concurrent_clients=self.max_concurrent_clients)
    create = getattr(execution, 'create_sync_in_process_context', None)
    if create is None:
      return None
    return create(
        max_concurrent_clients=self.max_concurrent_clients,
        server_tf_device=self.server_device,
    )


def engines(workers=(None,), server_device=None) -> list[Engine]:
  """Returns all engines on TFF, the in-process one per number of workers."""
  in_process = [
      Engine(
          'in_process' if number is None else f'in_process_{number}',
          'in_process',
          'DATASET_ITERATOR',
          number,
          server_device,
      )
      for number in workers
  ]
  return in_process + [
      Engine('in_process_default', 'in_process', 'DATASET_REDUCE'),
      Engine('native_iterator', 'native', 'DATASET_ITERATOR'),
      Engine('native_default', 'native', 'DATASET_REDUCE'),
  ]


AGGREGATIONS = ('mean', 'tree', 'dp_aggregator', 'dp_ftrl')


def clip_of(aggregation: str) -> float:
  """Returns the norm to which round 1 clips a client's update."""
  return {
      'mean': math.inf,
      'tree': FIXED_CLIP,
      'dp_ftrl': FIXED_CLIP,
      'dp_aggregator': _ADAPTIVE_CLIP,
  }[aggregation]


def _aggregator(aggregation: str, num_clients: int):
  if aggregation == 'mean':
    return None
  if aggregation == 'dp_aggregator':
    return tff.learning.dp_aggregator(NOISE_MULTIPLIER, num_clients)
  return _plan(num_clients).aggregator()


def _plan(num_clients: int) -> plan_lib.DpFtrlPlan:
  return plan_lib.DpFtrlPlan(
      mechanism=mechanisms.HonakerTree(_HORIZON),
      participation=participation.MinSeparation(_HORIZON, min_index_gap=64),
      l2_norm_clip=FIXED_CLIP,
      clients_per_round=num_clients,
      noise_multiplier=NOISE_MULTIPLIER,
  )


def build_process(
    task: round_tasks.Task, aggregation: str, loop: str
) -> tff.learning.templates.LearningProcess:
  """Returns unweighted federated averaging as a user would build it.

  `dp_ftrl` is what this package's builder makes of a functional model; it takes
  the plan of `tree` and the same loop whatever is asked for.
  """
  optimizer = tff.learning.optimizers.build_sgdm(task.learning_rate)
  if aggregation == 'dp_ftrl':
    return dp_ftrl.build_dp_ftrl(
        tff.learning.models.functional_model_from_keras(
            task.model.keras_model(),
            loss_fn=round_tasks.loss_fn(),
            input_spec=task.model.element_spec(),
        ),
        _plan(task.num_clients),
        client_optimizer=optimizer,
        server_learning_rate=1.0,
    )

  def model_fn():
    return tff.learning.models.from_keras_model(
        task.model.keras_model(),
        loss=round_tasks.loss_fn(),
        input_spec=task.model.element_spec(),
    )

  return tff.learning.algorithms.build_unweighted_fed_avg(
      model_fn,
      client_optimizer_fn=optimizer,
      server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
      model_aggregator=_aggregator(aggregation, task.num_clients),
      loop_implementation=tff.learning.LoopImplementation[loop],
  )


class TffRow:
  """A learning process on a context."""

  def __init__(self, task: round_tasks.Task, context, process):
    self._context = context
    self._process = process
    self._clients = [
        tf.data.Dataset.from_tensor_slices(client).batch(task.batch_size)
        for client in task.clients()
    ]
    with self._installed():
      self._state = process.set_model_weights(
          process.initialize(),
          tff.learning.models.ModelWeights(task.initial_weights(), []),
      )

  def _installed(self) -> contextlib.AbstractContextManager:
    return tff.framework.get_context_stack().install(self._context)

  def run_round(self) -> None:
    with self._installed():
      self._state = self._process.next(self._state, self._clients).state

  def weights(self) -> list[np.ndarray]:
    with self._installed():
      weights = self._process.get_model_weights(self._state)
    return [np.asarray(weight) for weight in weights.trainable]

  def close(self) -> None:
    """Nothing: the context belongs to whoever made it."""
