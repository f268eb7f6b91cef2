# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""DP-FTRL as a TFF learning process."""

from collections.abc import Callable
from typing import Optional, Union

import dp_accounting
import numpy as np
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import plan as plan_lib
from tff_dp.learning import constraints
from tff_dp.learning import finalizers
from tff_dp.learning import ftrl
from tff_dp.learning import optimizers

ModelFn = Union[
    Callable[[], tff.learning.models.VariableModel],
    tff.learning.models.FunctionalModel,
]

# TFF's default loop is the largest single cost of a round.
_LOOP = tff.learning.LoopImplementation.DATASET_ITERATOR


class PrivateLearningProcess(tff.learning.templates.LearningProcess):
  """A `LearningProcess` that knows the plan it was built from.

  Attributes:
    plan: The plan that built its aggregator.
    event: The `DpEvent` of a full run.
  """

  def __init__(
      self,
      process: tff.learning.templates.LearningProcess,
      plan: plan_lib.PrivacyPlan,
  ):
    super().__init__(
        process.initialize,
        process.next,
        process.get_model_weights,
        process.set_model_weights,
        get_hparams_fn=process.get_hparams,
        set_hparams_fn=process.set_hparams,
    )
    self.plan = plan

  @property
  def event(self) -> dp_accounting.DpEvent:
    return self.plan.event()


def build_dp_ftrl(
    model_fn: ModelFn,
    plan: plan_lib.PrivacyPlan,
    *,
    client_optimizer: tff.learning.optimizers.Optimizer,
    server_learning_rate: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    l1: float = 0.0,
    constraint: Optional[constraints.Constraint] = None,
    server_optimizer: Optional[tff.learning.optimizers.Optimizer] = None,
    insecure_seed: Optional[int] = None,
) -> PrivateLearningProcess:
  """Returns federated learning under the plan's noise (DP-FTRL).

  Clients run local SGD from the current model; the server clips, sums and
  noises their updates as the plan says and takes one step. Without `l1` and
  `constraint` the server is an ordinary optimizer on the residuals; with one of
  them it is `ftrl.Ftrl` on their prefix sum, which restarts with the plan's
  trees. Both are post-processing and cost no privacy.

  Args:
    model_fn: As for `tff.learning.algorithms.build_unweighted_fed_avg`.
    plan: Mechanism, participation, clipping, noise and cohort.
    client_optimizer: Local optimizer of the clients.
    server_learning_rate: eta, applied to the mean update.
    momentum: Server momentum in [0, 1).
    nesterov: Whether the momentum looks ahead.
    l1: Weight of |theta|_1 per round; gives exact zeros.
    constraint: Set in which the model has to stay.
    server_optimizer: Any TFF optimizer, instead of the arguments from
      `momentum` on; `server_learning_rate` must then be 1.0, unused.
    insecure_seed: For tests only, see `CorrelatedNoiseFactory`.

  Raises:
    ArgumentError: If a value is outside its range.
  """
  aggregator = plan.aggregator(insecure_seed=insecure_seed)
  uses_ftrl = l1 != 0 or constraint is not None
  if server_optimizer is not None:
    if uses_ftrl or momentum or nesterov or server_learning_rate != 1.0:
      raise _checks.ArgumentError(
          'server_optimizer',
          server_optimizer,
          'either an optimizer of your own with server_learning_rate=1.0, or '
          'momentum, nesterov, l1 and constraint, not both',
      )
  elif not uses_ftrl:
    server_optimizer = _residual_optimizer(
        server_learning_rate, momentum, nesterov
    )
  if uses_ftrl:
    spec = ftrl.Ftrl(
        learning_rate=server_learning_rate,
        momentum=momentum,
        nesterov=nesterov,
        l1=l1,
        constraint=constraint or constraints.Unconstrained(),
        restart_every=plan.mechanism.restart_every,
    )
    process = _build_cumulative(model_fn, aggregator, client_optimizer, spec)
  else:
    process = tff.learning.algorithms.build_unweighted_fed_avg(
        model_fn,
        client_optimizer_fn=client_optimizer,
        server_optimizer_fn=server_optimizer,
        model_aggregator=aggregator,
        loop_implementation=_LOOP,
    )
  return PrivateLearningProcess(process, plan)


def _build_cumulative(
    model_fn: ModelFn,
    aggregator: tff.aggregators.UnweightedAggregationFactory,
    client_optimizer: tff.learning.optimizers.Optimizer,
    spec: ftrl.Ftrl,
) -> tff.learning.templates.LearningProcess:
  """Returns the process whose finalizer works on the prefix sum."""
  if isinstance(model_fn, tff.learning.models.FunctionalModel):
    raise _checks.ArgumentError(
        'model_fn',
        type(model_fn).__name__,
        'a function that returns a tff.learning.models.VariableModel, with l1 '
        'or constraint',
    )

  @tff.tensorflow.computation
  def initial_weights():
    return tff.learning.models.ModelWeights.from_model(model_fn())

  weights_type = initial_weights.type_signature.result
  return tff.learning.templates.compose_learning_process(
      initial_weights,
      tff.learning.templates.build_broadcast_process(weights_type),
      tff.learning.templates.build_model_delta_client_work(
          model_fn,
          client_optimizer,
          client_weighting=tff.learning.ClientWeighting.UNIFORM,
          metrics_aggregator=tff.learning.metrics.sum_then_finalize,
          loop_implementation=_LOOP,
      ),
      tff.aggregators.as_weighted_aggregator(aggregator).create(
          weights_type.trainable, tff.TensorType(np.float32)
      ),
      finalizers.build_ftrl_finalizer(spec, weights_type),
  )


def _residual_optimizer(
    learning_rate: float, momentum: float, nesterov: bool
) -> tff.learning.optimizers.Optimizer:
  """Returns the server optimizer for updates that it adds up itself."""
  _checks.positive(server_learning_rate=learning_rate)
  _checks.in_half_open(0.0, 1.0, momentum=momentum)
  if nesterov:
    return optimizers.build_nesterov(
        learning_rate=learning_rate, momentum=momentum
    )
  return tff.learning.optimizers.build_sgdm(learning_rate, momentum)
