# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Learning processes that know their plan, composed from TFF's four parts."""

from typing import Any, Optional

import dp_accounting
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.learning import averaging as averaging_lib
from tff_dp.learning import late_weights
from tff_dp.mechanisms import workloads
from tff_dp.plans import base


class PrivateLearningProcess(tff.learning.templates.LearningProcess):
  """A `LearningProcess` that knows the plan it was built from.

  Attributes:
    plan: Plan that built its aggregator.
    event: The `DpEvent` of a full run.
    workload: Linear map that the server applies to the released sums, for which
      a mechanism can be optimised. `None` if it is not known.
    averaging: The `Average` that the process keeps, `None` if it keeps none.
  """

  def __init__(
      self,
      process: tff.learning.templates.LearningProcess,
      plan: base.Plan,
      *,
      workload: Optional[workloads.Workload] = None,
      averaging: Optional[averaging_lib.Average] = None,
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
    self.workload = workload
    self.averaging = averaging
    if averaging is not None:
      self._get_averaged_model_weights = _build_get_averaged(process)

  @property
  def event(self) -> dp_accounting.DpEvent:
    """The event of a full run, for every client."""
    return self.plan.event()

  def get_averaged_model_weights(self, state) -> Any:
    """Returns the average of the models sent out so far.

    It has the structure of `get_model_weights`. Before round 1 it is the
    initial model.

    Args:
      state: State of the process.

    Raises:
      ArgumentError: If the process was built without `averaging`.
    """
    if self.averaging is None:
      raise _checks.ArgumentError(
          'averaging', None, 'an average, given when the process is built'
      )
    return self._get_averaged_model_weights(state)


def compose(
    plan: base.Plan,
    *,
    initial_weights: tff.Computation,
    client_work: tff.learning.templates.ClientWorkProcess,
    finalizer: tff.learning.templates.FinalizerProcess,
    workload: Optional[workloads.Workload] = None,
    averaging: Optional[averaging_lib.Average] = None,
    insecure_seed: Optional[int] = None,
) -> PrivateLearningProcess:
  """Returns the process around the plan's aggregator.

  Args:
    plan: Plan that builds the aggregator of the clients' updates.
    initial_weights: Computation that returns the initial
      `tff.learning.models.ModelWeights`.
    client_work: Work of the clients. The weights of their updates are ignored.
    finalizer: Server step that applies the noised mean.
    workload: Linear map of the finalizer, see `PrivateLearningProcess`.
    averaging: Average of the models to keep, `None` to keep none.
    insecure_seed: Seed for tests only, see `CorrelatedNoiseFactory`.
  """
  if averaging is not None:
    finalizer = averaging_lib.build_averaging_finalizer(
        finalizer, averaging, num_rounds=plan.num_rounds
    )
  return assemble(
      plan,
      plan.aggregator(insecure_seed=insecure_seed),
      initial_weights=initial_weights,
      client_work=client_work,
      finalizer=finalizer,
      workload=workload,
      averaging=averaging,
  )


def assemble(
    plan,
    aggregator: tff.aggregators.UnweightedAggregationFactory,
    *,
    initial_weights: tff.Computation,
    client_work: tff.learning.templates.ClientWorkProcess,
    finalizer: tff.learning.templates.FinalizerProcess,
    **facts,
) -> PrivateLearningProcess:
  """Returns the process of four parts.

  Args:
    plan: Plan that the aggregator was built from.
    aggregator: Aggregator of the results of `client_work`.
    initial_weights: Initial model, as for `compose`.
    client_work: Work of the clients, as for `compose`.
    finalizer: Server step. It must keep the average itself, if there is one.
    **facts: `workload` and `averaging`, as for `PrivateLearningProcess`.
  """
  process = of_parts(aggregator, initial_weights, client_work, finalizer)
  return PrivateLearningProcess(process, plan, **facts)


def of_parts(
    aggregator: tff.aggregators.UnweightedAggregationFactory,
    initial_weights: tff.Computation,
    client_work: tff.learning.templates.ClientWorkProcess,
    finalizer: tff.learning.templates.FinalizerProcess,
) -> tff.learning.templates.LearningProcess:
  """Returns the parts as a plain TFF process, without an attribute `plan`.

  For the arguments see `assemble`.
  """
  update_type = client_work.next.type_signature.result.result.member.update
  aggregation = tff.aggregators.as_weighted_aggregator(aggregator).create(
      update_type, tff.TensorType(np.float32)
  )

  def compose_with(initial) -> tff.learning.templates.LearningProcess:
    return tff.learning.templates.compose_learning_process(
        initial,
        tff.learning.templates.build_broadcast_process(
            initial.type_signature.result
        ),
        client_work,
        aggregation,
        finalizer,
    )

  if not isinstance(initial_weights, late_weights.LateWeights):
    return compose_with(initial_weights)
  process, initialize = initial_weights.initialize(compose_with)
  return tff.learning.templates.LearningProcess(
      initialize,
      process.next,
      process.get_model_weights,
      process.set_model_weights,
      get_hparams_fn=process.get_hparams,
      set_hparams_fn=process.set_hparams,
  )


def _build_get_averaged(process) -> tff.Computation:
  state_type = process.initialize.type_signature.result.member

  @tff.tensorflow.computation(state_type)
  @tf.function(autograph=False)
  def get_averaged(state):
    return averaging_lib.averaged_weights(
        state.finalizer, state.global_model_weights
    )

  return get_averaged
