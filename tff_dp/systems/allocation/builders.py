# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""SGD under allocation, as a TFF learning process.

The clients' own coins, in the data source, decide who takes part in a slot. A
trusted server adds noise to the sum of *every* slot: arXiv:2502.08202.
"""

import collections
from typing import Any, Optional

import tensorflow_federated as tff

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.learning import averaging as averaging_lib
from tff_dp.learning import local_training
from tff_dp.learning import process as process_lib
from tff_dp.learning import protocol_training
from tff_dp.systems.allocation import plan as plan_lib
from tff_dp.systems.allocation import protocols


@_calls.helpful
def build_allocation_sgd(
    model_fn: local_training.ModelFn,
    plan: Any,
    *,
    clients_per_slot: int,
    server_learning_rate: protocol_training.LearningRate,
    client_optimizer: Optional[tff.learning.optimizers.Optimizer] = None,
    momentum: float = 0.0,
    nesterov: bool = False,
    averaging: Optional[averaging_lib.Average] = None,
    allow_unprotected_metrics: bool = False,
    insecure_seed: Optional[int] = None,
) -> process_lib.PrivateLearningProcess:
  """Returns a process of SGD under check-ins, with noise at a trusted server.

  Let x_j be the clipped updates (given minus trained weights) of all clients of
  slot t, and z_t standard normal. Without momentum *every* slot computes

      theta_{t+1} = theta_t - eta_t / clients_per_slot
                              * (sum of x_j + noise_multiplier * clip * z_t).

  An empty slot moves the model by its noise, because the accounting is for
  noised sums of all slots. The divisor is a constant, never the number of
  clients that came.

  A client's data is its dataset alone. Clients need no noise key, because the
  server adds the noise.

  Args:
    model_fn: Model, as for `check_ins.build_check_in_sgd`, which also explains
      the arguments that are not listed here.
    plan: An `AllocationPlan` of `RandomAllocation` or `CyclicAllocation`. With
      `CyclicAllocation` the noise may be banded. Then z_t above is the noise of
      the mechanism in round t, for draws of variance 1.
    clients_per_slot: Public divisor, such as the expected number of clients of
      a slot.
    allow_unprotected_metrics: Whether clients report metrics. If so, the exact
      number of clients of a slot is also released, although it is secret in
      this protocol.
    insecure_seed: Seed for tests only, see `CorrelatedNoiseFactory`.

  Raises:
    ArgumentError: If a value is outside its range, or if the plan is of another
      kind.
  """
  protocol_training.protocol_of(
      plan,
      plan_lib.AllocationPlan,
      protocols.RandomAllocation,
      protocols.CyclicAllocation,
  )
  _checks.integer_at_least(1, clients_per_slot=clients_per_slot)
  initial_weights = local_training.build_initial_weights(model_fn)
  weights_type = initial_weights.type_signature.result
  client_work = protocol_training.build_training(
      model_fn, client_optimizer, allow_unprotected_metrics
  )
  if allow_unprotected_metrics:
    client_work = protocol_training.with_measurements_not_covered(client_work)
  finalizer = tff.learning.templates.build_apply_optimizer_finalizer(
      protocol_training.build_optimizer(
          server_learning_rate,
          momentum=momentum,
          nesterov=nesterov,
          num_updates=protocol_training.count_updates(plan),
      ),
      weights_type,
  )
  if averaging is not None:
    finalizer = averaging_lib.build_averaging_finalizer(
        finalizer, averaging, num_rounds=plan.num_rounds
    )
  aggregator = plan.aggregator(
      clients_per_round=clients_per_slot, insecure_seed=insecure_seed
  )
  if not allow_unprotected_metrics:
    aggregator = _Covered(aggregator)
  return process_lib.assemble(
      plan,
      aggregator,
      initial_weights=initial_weights,
      client_work=client_work,
      finalizer=finalizer,
      averaging=averaging,
  )


class _Covered(tff.aggregators.UnweightedAggregationFactory):
  """Drops the measurements that tell the secret number of clients in a slot."""

  def __init__(self, inner: tff.aggregators.UnweightedAggregationFactory):
    self._inner = inner

  def create(self, value_type) -> tff.templates.AggregationProcess:
    inner = self._inner.create(value_type)
    measured = inner.next.type_signature.result.measurements.member

    @tff.federated_computation(*inner.next.type_signature.parameter)
    def next_fn(state, value):
      output = inner.next(state, value)
      covered = collections.OrderedDict(
          (name, output.measurements[name])
          for name in tff.structure.name_list(measured)
          if name != 'not_covered'
      )
      return tff.templates.MeasuredProcessOutput(
          output.state, output.result, tff.federated_zip(covered)
      )

    return tff.templates.AggregationProcess(inner.initialize, next_fn)
