# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Check-in SGD at a server that is trusted to add Gaussian noise.

Clients decide by their own coins in which slots they take part, and the server
adds noise to the sum of *every* slot: random allocation, arXiv:2502.08202.
"""

import collections
from typing import Any, Optional

import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.learning import averaging as averaging_lib
from tff_dp.learning import local_training
from tff_dp.learning import process as process_lib
from tff_dp.learning.check_ins import builders as check_ins
from tff_dp.learning.check_ins import check_in_finalizers
from tff_dp.learning.check_ins import check_in_work
from tff_dp.mechanisms import randomizers
from tff_dp.participation import check_ins as protocols


def build_allocation_sgd(
    model_fn: local_training.ModelFn,
    plan: Any,
    *,
    clients_per_slot: int,
    server_learning_rate: check_ins.LearningRate,
    client_optimizer: Optional[tff.learning.optimizers.Optimizer] = None,
    momentum: float = 0.0,
    nesterov: bool = False,
    averaging: Optional[averaging_lib.Average] = None,
    allow_unprotected_metrics: bool = False,
    insecure_seed: Optional[int] = None,
) -> process_lib.PrivateLearningProcess:
  """Returns SGD under check-ins with Gaussian noise at a trusted server.

  With the clipped updates x_j of all clients of slot t, z_t standard normal,

      theta_{t+1} = theta_t - eta_t / clients_per_slot
                              * (sum of x_j + noise_multiplier * clip * z_t)

  in *every* slot: an empty one moves the model by its noise, since the
  accounting is about noised sums of all slots. The divisor is a constant, and
  never the number of clients that came.

  A client's data is its dataset, without a key: the noise is the server's.

  Args:
    model_fn: As for `tff.learning.algorithms.build_unweighted_fed_avg`.
    plan: A `ProtocolPlan` of `RandomAllocation` with noise at the server.
    clients_per_slot: Public divisor, such as the expected number of clients.
    server_learning_rate: See `build_check_in_sgd`.
    client_optimizer: See `build_check_in_sgd`.
    momentum: See `build_check_in_sgd`.
    nesterov: See `build_check_in_sgd`.
    averaging: Average of the models to keep beside the last one.
    allow_unprotected_metrics: See `build_check_in_sgd`. Here it also adds the
      exact numbers of clients in a slot, which are secret in this protocol.
    insecure_seed: For tests only, see `CorrelatedNoiseFactory`.
  """
  check_ins.protocol_of(plan, protocols.RandomAllocation)
  if isinstance(plan.randomizer, randomizers.LocalRandomizer):
    raise _checks.ArgumentError(
        'plan.randomizer',
        plan.randomizer,
        'noise at the server, such as CentralGaussian(...); for noise at the'
        ' clients take a plan of FixedWindowCheckIn or AveragedCheckIn',
    )
  _checks.integer_at_least(1, clients_per_slot=clients_per_slot)
  initial_weights = local_training.build_initial_weights(model_fn)
  weights_type = initial_weights.type_signature.result
  client_work = check_ins.build_training(
      model_fn, client_optimizer, allow_unprotected_metrics
  )
  if allow_unprotected_metrics:
    client_work = check_in_work.with_measurements_not_covered(client_work)
  finalizer = tff.learning.templates.build_apply_optimizer_finalizer(
      check_in_finalizers.build_optimizer(
          server_learning_rate,
          momentum=momentum,
          nesterov=nesterov,
          num_updates=check_ins.count_updates(plan),
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
  return check_ins.compose(
      plan,
      initial_weights=initial_weights,
      client_work=client_work,
      aggregator=tff.aggregators.as_weighted_aggregator(aggregator),
      finalizer=finalizer,
      averaging=averaging,
  )


class _Covered(tff.aggregators.UnweightedAggregationFactory):
  """Drops measurements that are not covered: who is in a slot is secret."""

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
