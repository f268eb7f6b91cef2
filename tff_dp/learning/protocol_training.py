# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts of learning processes whose clients decide when to take part."""

import collections
from collections.abc import Sequence
import dataclasses
from typing import Any, Optional, Union

import numpy as np
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.learning import local_training
from tff_dp.learning import optimizers

LearningRate = Union[float, Sequence[float]]


def protocol_of(plan: Any, plan_class: type[Any], *allowed: type[Any]) -> Any:
  """Returns the plan's protocol if it is one of the allowed classes.

  Args:
    plan: Plan of a process.
    plan_class: Class that the plan must have.
    *allowed: Classes of protocols.

  Raises:
    ArgumentError: If plan or protocol is of another class.
  """
  protocol = getattr(plan, 'protocol', None)
  if not isinstance(plan, plan_class) or not isinstance(protocol, allowed):
    names = ' or '.join(cls.__name__ for cls in allowed)
    name = plan_class.__name__
    article = 'an' if name[0] in 'AEIOU' else 'a'
    raise _checks.ArgumentError(
        'plan', plan, f'{article} {name} with a protocol of class {names}'
    )
  return protocol


def build_training(
    model_fn: local_training.ModelFn,
    client_optimizer: Optional[tff.learning.optimizers.Optimizer],
    allow_unprotected_metrics: bool,
) -> tff.learning.templates.ClientWorkProcess:
  """Returns the client work of local training.

  The metrics stay at the clients unless `allow_unprotected_metrics`.

  Args:
    model_fn: Model, as for `tff.learning.algorithms.build_unweighted_fed_avg`.
    client_optimizer: Local optimizer, `None` for SGD with learning rate 1.
    allow_unprotected_metrics: Whether clients report metrics without noise.
  """
  if client_optimizer is None:
    client_optimizer = tff.learning.optimizers.build_sgdm(1.0)
  metrics_aggregator = local_training.without_metrics
  if allow_unprotected_metrics:
    metrics_aggregator = tff.learning.metrics.sum_then_finalize
  return local_training.build_client_work(
      model_fn, client_optimizer, metrics_aggregator=metrics_aggregator
  )


def build_optimizer(
    learning_rate: Union[float, Sequence[float]],
    *,
    momentum: float,
    nesterov: bool,
    num_updates: int,
) -> tff.learning.optimizers.Optimizer:
  """Returns the server's optimizer, see `optimizers.build_momentum`.

  Args:
    learning_rate: One number, or one for each update of the run.
    momentum: Momentum in [0, 1), above 0 with `nesterov`.
    nesterov: Whether the momentum looks ahead.
    num_updates: Number of updates of the run.

  Raises:
    ArgumentError: If a learning rate is not finite and above 0, if their number
      is not `num_updates`, or if the momentum is outside its range.
  """
  if np.ndim(learning_rate) == 0:
    _checks.positive(server_learning_rate=learning_rate)
    return optimizers.build_momentum(
        learning_rate=float(learning_rate),
        momentum=momentum,
        nesterov=nesterov,
    )
  rates = np.asarray(learning_rate, np.float64)
  if rates.shape != (num_updates,) or not np.all(
      (rates > 0) & np.isfinite(rates)
  ):
    raise _checks.ArgumentError(
        'server_learning_rate',
        f'array of shape {rates.shape}',
        f'a number, or {num_updates} finite numbers above 0, one for each'
        ' update of the model',
    )
  return optimizers.build_momentum(
      learning_rate=1.0,
      momentum=momentum,
      nesterov=nesterov,
      cooldown=_Rates(rates),
      num_rounds=num_updates,
  )


def count_updates(plan: Any) -> int:
  """Returns the largest number of model updates that a full run can make."""
  return plan.num_passes * plan.protocol.num_updates


def with_measurements_not_covered(
    inner: tff.learning.templates.ClientWorkProcess,
) -> tff.learning.templates.ClientWorkProcess:
  """Returns the client work with its measurements under `not_covered`.

  The name says that they have no noise, so the guarantee does not cover them.
  """

  @tff.federated_computation(*inner.next.type_signature.parameter)
  def next_fn(state, weights, data):
    output = inner.next(state, weights, data)
    return tff.templates.MeasuredProcessOutput(
        output.state, output.result, not_covered(output.measurements)
    )

  return tff.learning.templates.ClientWorkProcess(
      inner.initialize,
      next_fn,
      get_hparams_fn=inner.get_hparams,
      set_hparams_fn=inner.set_hparams,
  )


def not_covered(measurements: tff.Value) -> tff.Value:
  """Returns measurements under the name `not_covered`.

  The name says that they have no noise, so the guarantee does not cover them.
  """
  return tff.federated_zip(
      collections.OrderedDict(not_covered=measurements)
  )


@dataclasses.dataclass(frozen=True)
class _Rates:
  """A schedule given as an array, with the interface of `workloads.Cooldown`.
  """

  rates: np.ndarray

  def factors(self, num_rounds: int) -> np.ndarray:
    del num_rounds
    return self.rates
