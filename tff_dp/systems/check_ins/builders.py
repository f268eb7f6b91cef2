# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Check-in SGD: learning processes in which clients decide when to take part.

The clients' own coins, in the data source, decide who takes part in a step. A
process trains the clients that it is given. There are four protocols, from
arXiv:2007.06605 and arXiv:2206.03151, with noise that the clients add:

*   random check-ins with a fixed window (A_fix) and a sliding one (A_sldw): one
  report per slot, from a winner or a dummy.
*   averaged random check-ins (A_avg) and shuffled check-in: all reports of a
  step. A step without reports does not change the model.
"""

import functools
from typing import Any, Optional

import tensorflow_federated as tff

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.aggregators import local_randomizers
from tff_dp.learning import averaging as averaging_lib
from tff_dp.learning import constraints
from tff_dp.learning import local_training
from tff_dp.learning import process as process_lib
from tff_dp.learning import protocol_training
from tff_dp.systems.check_ins import client_work as client_work_lib
from tff_dp.systems.check_ins import finalizers
from tff_dp.systems.check_ins import plan as plan_lib
from tff_dp.systems.check_ins import shuffled
from tff_dp.systems.check_ins import windows


@_calls.helpful
def build_check_in_sgd(
    model_fn: local_training.ModelFn,
    plan: Any,
    *,
    server_learning_rate: protocol_training.LearningRate,
    slots_per_update: int = 1,
    client_optimizer: Optional[tff.learning.optimizers.Optimizer] = None,
    momentum: float = 0.0,
    nesterov: bool = False,
    constraint: Optional[constraints.Constraint] = None,
    averaging: Optional[averaging_lib.Average] = None,
    allow_unprotected_metrics: bool = False,
) -> process_lib.PrivateLearningProcess:
  """Returns a process of SGD under random check-ins with a local randomizer.

  Let r_j be the reports of the slots of update i. For a fixed or sliding
  window, without momentum,

      theta_{i+1} = theta_i - eta_i / b * (sum over the b slots of r_j).

  For averaged check-ins the step uses the mean of all reports of slot i. An
  empty slot leaves model, momentum and averages as they are.

  A client's data is `client_data(examples, key)`. The dummy of an empty slot of
  a fixed or sliding window is a client with an empty dataset. Its update is
  zero and is randomized like any other, so nobody can tell that it is a dummy.
  With these two windows, a step is one slot and needs exactly one client. In
  the warm-up of a sliding window nobody is asked, and a report would not be
  used.

  Args:
    model_fn: Model, as for `tff.learning.algorithms.build_unweighted_fed_avg`.
    plan: A `CheckInPlan` of `FixedWindowCheckIn`, `AveragedCheckIn` or
      `SlidingWindowCheckIn` with a local randomizer.
    server_learning_rate: Learning rate eta, or a sequence with the eta_i of
      each update, such as in theorem 3.5 or 4.2 of arXiv:2007.06605.
    slots_per_update: Number b of slots per update of a sliding window. Keep 1
      for other protocols: a fixed window has its b in `plan.protocol`. The
      guarantee is the same for any b: a report is private when it arrives, and
      averaging is post-processing.
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
    ArgumentError: If a value is outside its range, or if the plan is of another
      kind.
  """
  protocol = protocol_training.protocol_of(
      plan,
      plan_lib.CheckInPlan,
      windows.FixedWindowCheckIn,
      windows.AveragedCheckIn,
      windows.SlidingWindowCheckIn,
  )
  num_updates = protocol_training.count_updates(plan)
  is_sliding = isinstance(protocol, windows.SlidingWindowCheckIn)
  _checks.integer_between(
      1, num_updates if is_sliding else 1, slots_per_update=slots_per_update
  )
  if isinstance(protocol, windows.AveragedCheckIn):
    rule = finalizers.Arrivals(num_updates)
  elif is_sliding:
    rule = finalizers.Winners(
        num_updates // slots_per_update,
        slots_per_update=slots_per_update,
        num_warm_up=protocol.window - 1,
    )
  else:
    rule = finalizers.Winners(
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


@_calls.helpful
def build_shuffled_check_in_sgd(
    model_fn: local_training.ModelFn,
    plan: Any,
    *,
    divisor: Optional[float] = None,
    **options,
) -> process_lib.PrivateLearningProcess:
  """Returns a process of SGD under shuffled check-in, with a local randomizer.

  Let r_j be the k_t shuffled reports of round t. Without momentum,

      theta_{t+1} = theta_t - eta_t / divisor * (sum of all r_j).

  The divisor is k_t, which the adversary sees anyway, or a public constant,
  such as the expected number of reports. A round without reports leaves model,
  momentum and averages as they are.

  Args:
    model_fn: Model, as for `build_check_in_sgd`.
    plan: A `CheckInPlan` of `ShuffledCheckIn` with a local randomizer.
    divisor: Public constant that divides the sum. `None` for k_t.
    **options: `server_learning_rate` and the other options of
      `build_check_in_sgd`, except `slots_per_update`.

  Raises:
    ArgumentError: If a value is outside its range, or if the plan is of another
      kind.
  """
  protocol_training.protocol_of(
      plan, plan_lib.CheckInPlan, shuffled.ShuffledCheckIn
  )
  rule = finalizers.Arrivals(
      protocol_training.count_updates(plan),
      local_randomizers.ARRIVED if divisor is None else divisor,
  )
  return _build(model_fn, plan, rule, **options)


@functools.partial(_calls.helpful, name='the builder')
def _build(
    model_fn,
    plan,
    rule,
    /,
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
  optimizer = protocol_training.build_optimizer(
      server_learning_rate,
      momentum=momentum,
      nesterov=nesterov,
      num_updates=rule.num_updates,
  )
  initial_weights = local_training.build_initial_weights(model_fn, constraint)
  weights_type = initial_weights.type_signature.result
  # What may refuse comes first, because the client work takes longest to trace.
  aggregator = _Keyed(plan.randomizer, weights_type.trainable, rule.divisor)
  finalizer = finalizers.build_check_in_finalizer(
      rule,
      optimizer,
      weights_type,
      constraint=constraint,
      average=averaging,
  )
  client_work = client_work_lib.build_check_in_client_work(
      protocol_training.build_training(
          model_fn, client_optimizer, allow_unprotected_metrics
      ),
      num_steps=plan.num_rounds,
      allow_unprotected_metrics=allow_unprotected_metrics,
  )
  return process_lib.assemble(
      plan,
      aggregator,
      initial_weights=initial_weights,
      client_work=client_work,
      finalizer=finalizer,
      averaging=averaging,
  )


class _Keyed(tff.aggregators.UnweightedAggregationFactory):
  """Calls `LocalRandomizerFactory.create_keyed` where TFF calls `create`."""

  def __init__(self, randomizer, trainable_type, mean_over):
    self._factory = local_randomizers.LocalRandomizerFactory(
        randomizer, mean_over=mean_over
    )
    self._trainable_type = trainable_type

  def create(self, value_type) -> tff.templates.AggregationProcess:
    del value_type  # `next` checks that the clients' values fit.
    return self._factory.create_keyed(self._trainable_type)
