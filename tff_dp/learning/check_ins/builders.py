# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Check-in SGD: learning processes in which clients decide when to take part.

The clients' own coins, in the data source, decide who takes part in a step. A
process trains the clients that it is given. Four protocols of arXiv:2007.06605
and arXiv:2206.03151 add noise at the clients:

*   random check-ins with a fixed window (A_fix) and a sliding one (A_sldw): one
  report per slot, from a winner or a dummy.
*   averaged random check-ins (A_avg) and shuffled check-in: all reports of a
  step. A step without reports does not change the model.

In a fifth protocol the server is trusted to add noise to the sum of *every*
slot: random allocation, arXiv:2502.08202.
"""

import collections
from collections.abc import Sequence
from typing import Any, Optional, Union

import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.aggregators import local_randomizers
from tff_dp.learning import averaging as averaging_lib
from tff_dp.learning import constraints
from tff_dp.learning import local_training
from tff_dp.learning import process as process_lib
from tff_dp.learning.check_ins import check_in_finalizers
from tff_dp.learning.check_ins import check_in_work
from tff_dp.participation import check_ins
from tff_dp.participation import cyclic_allocation
from tff_dp.participation import protocol as protocol_lib
from tff_dp.participation import shuffled_check_in

LearningRate = Union[float, Sequence[float]]


def build_check_in_sgd(
    model_fn: local_training.ModelFn,
    plan: Any,
    *,
    server_learning_rate: LearningRate,
    slots_per_update: int = 1,
    client_optimizer: Optional[tff.learning.optimizers.Optimizer] = None,
    momentum: float = 0.0,
    nesterov: bool = False,
    constraint: Optional[constraints.Constraint] = None,
    averaging: Optional[averaging_lib.Average] = None,
    allow_unprotected_metrics: bool = False,
) -> process_lib.PrivateLearningProcess:
  """Returns SGD under random check-ins with a local randomizer.

  With the reports r_j of the clients in the slots of update i,

      theta_{i+1} = theta_i - eta_i / b * (sum over the b slots of r_j)

  for a fixed or sliding window. For averaged check-ins the step uses the mean
  of all reports of slot i, and an empty slot leaves model, momentum and
  averages as they are.

  A client's data is `client_data(examples, key)`. The dummy of an empty slot of
  a fixed or sliding window is a client with an empty dataset. Its update is
  zero and is randomized like any other, so nothing tells the two apart. A step
  is one slot, and needs exactly one client. In the warm-up of a sliding window
  nobody is asked, and a report would not be used.

  Args:
    model_fn: Model, as for `tff.learning.algorithms.build_unweighted_fed_avg`.
    plan: A `CheckInPlan` of `FixedWindowCheckIn`, `AveragedCheckIn` or
      `SlidingWindowCheckIn` with a local randomizer.
    server_learning_rate: Learning rate eta, or eta_i of every update of the
      model, such as in theorem 3.5 or 4.2 of arXiv:2007.06605.
    slots_per_update: Number b of slots per update of a sliding window, 1 for
      other protocols. (A fixed window has its own b.) The guarantee is the same
      for any b: a report is private when it arrives, and averaging is
      post-processing.
    client_optimizer: Local optimizer. `None` means SGD with learning rate 1, so
      that a client with one batch sends the gradient of its mean loss.
    momentum: Server momentum in [0, 1).
    nesterov: Whether the momentum looks ahead.
    constraint: Set in which the model has to stay, such as the ball of the
      theorems. The initial model is projected into it.
    averaging: Average of the models to keep in addition to the last one.
    allow_unprotected_metrics: Whether clients report their training metrics,
      which then appear under `not_covered`. They are computed from data without
      noise, and the privacy statement does not cover them. If the server is not
      trusted, they void the statement.

  Raises:
    ArgumentError: If a value is outside its range.
    PrivacyRefusedError: If the plan has noise at the server.
  """
  protocol = _protocol_of(
      plan,
      check_ins.FixedWindowCheckIn,
      check_ins.AveragedCheckIn,
      check_ins.SlidingWindowCheckIn,
  )
  num_updates = _count_updates(plan)
  is_sliding = isinstance(protocol, check_ins.SlidingWindowCheckIn)
  _checks.integer_between(
      1, num_updates if is_sliding else 1, slots_per_update=slots_per_update
  )
  if isinstance(protocol, check_ins.AveragedCheckIn):
    rule = check_in_finalizers.Arrivals(num_updates)
  elif is_sliding:
    rule = check_in_finalizers.Winners(
        num_updates // slots_per_update,
        slots_per_update=slots_per_update,
        num_warm_up=protocol.window - 1,
    )
  else:
    rule = check_in_finalizers.Winners(
        num_updates, slots_per_update=protocol.slots_per_update
    )
  return _build(
      model_fn,
      plan,
      rule,
      server_learning_rate=server_learning_rate,
      client_optimizer=client_optimizer,
      momentum=momentum,
      nesterov=nesterov,
      constraint=constraint,
      averaging=averaging,
      allow_unprotected_metrics=allow_unprotected_metrics,
  )


def build_shuffled_check_in_sgd(
    model_fn: local_training.ModelFn,
    plan: Any,
    *,
    divisor: Optional[float] = None,
    **options,
) -> process_lib.PrivateLearningProcess:
  """Returns SGD under shuffled check-in with a local randomizer.

  With the k_t reports r_j of round t, shuffled,

      theta_{t+1} = theta_t - eta_t / divisor * (sum over the reports of r_j)

  The divisor is k_t, which the adversary sees anyway, or a public constant,
  such as the expected number of reports. A round without reports leaves model,
  momentum and averages as they are.

  Args:
    model_fn: Model, as for `build_check_in_sgd`.
    plan: A `CheckInPlan` of `ShuffledCheckIn` with a local randomizer.
    divisor: Public constant, `None` for the number of reports.
    **options: Options of `build_check_in_sgd`, including
      `server_learning_rate`.
  """
  _protocol_of(plan, shuffled_check_in.ShuffledCheckIn)
  rule = check_in_finalizers.Arrivals(
      _count_updates(plan),
      local_randomizers.ARRIVED if divisor is None else divisor,
  )
  return _build(model_fn, plan, rule, **options)


def build_allocation_sgd(
    model_fn: local_training.ModelFn,
    plan: Any,
    *,
    clients_per_slot: int,
    server_learning_rate: LearningRate,
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

  in *every* slot. An empty slot moves the model by its noise, because the
  accounting is for noised sums of all slots. The divisor is a constant, never
  the number of clients that came.

  A client's data is its dataset, without a key, because the server adds the
  noise.

  Args:
    model_fn: Model, as for `build_check_in_sgd`, which also explains the
      arguments that are not listed here.
    plan: A `CheckInPlan` of `RandomAllocation` or `CyclicAllocation`, with
      noise at the server. With `CyclicAllocation` the noise may be banded, and
      z_t above is then its increment.
    clients_per_slot: Public divisor, such as the expected number of clients.
    allow_unprotected_metrics: Whether clients report metrics. Here it also adds
      the exact numbers of clients in a slot, which are secret in this protocol.
    insecure_seed: Seed for tests only, see `CorrelatedNoiseFactory`.
  """
  _protocol_of(
      plan, check_ins.RandomAllocation, cyclic_allocation.CyclicAllocation
  )
  protocol_lib.check(plan.protocol, plan.randomizer)
  _checks.integer_at_least(1, clients_per_slot=clients_per_slot)
  initial_weights = local_training.build_initial_weights(model_fn)
  weights_type = initial_weights.type_signature.result
  client_work = _build_training(
      model_fn, client_optimizer, allow_unprotected_metrics
  )
  if allow_unprotected_metrics:
    client_work = check_in_work.with_measurements_not_covered(client_work)
  finalizer = tff.learning.templates.build_apply_optimizer_finalizer(
      check_in_finalizers.build_optimizer(
          server_learning_rate,
          momentum=momentum,
          nesterov=nesterov,
          num_updates=_count_updates(plan),
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


def _protocol_of(plan, *allowed):
  """Returns the plan's protocol if it is one of the allowed classes."""
  protocol = getattr(plan, 'protocol', None)
  if not isinstance(protocol, allowed):
    names = ' or '.join(cls.__name__ for cls in allowed)
    raise _checks.ArgumentError(
        'plan', plan, f'a CheckInPlan with a protocol of class {names}'
    )
  return protocol


def _build_training(
    model_fn, client_optimizer, allow_unprotected_metrics
) -> tff.learning.templates.ClientWorkProcess:
  """Returns local training, whose metrics stay at the clients by default."""
  if client_optimizer is None:
    client_optimizer = tff.learning.optimizers.build_sgdm(1.0)
  metrics_aggregator = local_training.without_metrics
  if allow_unprotected_metrics:
    metrics_aggregator = tff.learning.metrics.sum_then_finalize
  return local_training.build_client_work(
      model_fn, client_optimizer, metrics_aggregator=metrics_aggregator
  )


def _build(
    model_fn,
    plan,
    rule,
    *,
    server_learning_rate,
    client_optimizer=None,
    momentum=0.0,
    nesterov=False,
    constraint=None,
    averaging=None,
    allow_unprotected_metrics=False,
) -> process_lib.PrivateLearningProcess:
  """Returns the process with noise at the clients."""
  # The plan refuses it, too. Do not rely on that.
  protocol_lib.check(plan.protocol, plan.randomizer)
  optimizer = check_in_finalizers.build_optimizer(
      server_learning_rate,
      momentum=momentum,
      nesterov=nesterov,
      num_updates=rule.num_updates,
  )
  initial_weights = local_training.build_initial_weights(model_fn, constraint)
  weights_type = initial_weights.type_signature.result
  client_work = check_in_work.build_check_in_client_work(
      _build_training(
          model_fn, client_optimizer, allow_unprotected_metrics
      ),
      num_steps=plan.num_rounds,
      allow_unprotected_metrics=allow_unprotected_metrics,
  )
  finalizer = check_in_finalizers.build_check_in_finalizer(
      rule,
      optimizer,
      weights_type,
      constraint=constraint,
      average=averaging,
  )
  return process_lib.assemble(
      plan,
      _Keyed(plan.randomizer, weights_type.trainable, rule.divisor),
      initial_weights=initial_weights,
      client_work=client_work,
      finalizer=finalizer,
      averaging=averaging,
  )


def _count_updates(plan) -> int:
  """Returns the largest number of model updates in a run of all steps."""
  passes = plan.num_rounds // plan.protocol.num_rounds
  return passes * plan.protocol.num_updates


class _Keyed(tff.aggregators.UnweightedAggregationFactory):
  """Lets `as_weighted_aggregator` wrap `create_keyed`."""

  def __init__(self, randomizer, trainable_type, mean_over):
    self._factory = local_randomizers.LocalRandomizerFactory(
        randomizer, mean_over=mean_over
    )
    self._trainable_type = trainable_type

  def create(self, value_type) -> tff.templates.AggregationProcess:
    del value_type  # `next` checks that the clients' values fit.
    return self._factory.create_keyed(self._trainable_type)


class _Covered(tff.aggregators.UnweightedAggregationFactory):
  """Drops measurements that are not covered, because occupancy is secret."""

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
