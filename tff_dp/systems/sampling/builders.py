# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""DP-FedAvg and DP-SGD as TFF learning processes."""

from typing import Optional

import tensorflow_federated as tff

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.learning import averaging as averaging_lib
from tff_dp.learning import local_training
from tff_dp.learning import optimizers
from tff_dp.learning import process as process_lib
from tff_dp.systems.sampling import plan as plan_lib


@_calls.helpful
def build_dp_fedavg(
    model_fn: local_training.ModelFn,
    plan: plan_lib.SamplingPlan,
    *,
    client_optimizer: tff.learning.optimizers.Optimizer,
    server_learning_rate: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    averaging: Optional[averaging_lib.Average] = None,
    insecure_seed: Optional[int] = None,
) -> process_lib.PrivateLearningProcess:
  """Returns federated averaging with noise, for cohorts drawn by coins.

  Let x_j be the clipped updates (trained minus given weights) of the clients
  that were drawn in round t, and z_t standard normal. Without momentum every
  round, even one without clients, computes

      theta_{t+1} = theta_t + server_learning_rate / clients_per_round
                              * (sum of x_j + noise_multiplier * clip * z_t).

  Args:
    model_fn: Model, as for `tff.learning.algorithms.build_unweighted_fed_avg`.
    plan: Plan with population, sampling, clipping and noise.
    client_optimizer: Local optimizer of the clients.
    server_learning_rate: Learning rate of the server, applied to the noised
      mean update.
    momentum: Server momentum in [0, 1).
    nesterov: Whether the momentum looks ahead.
    averaging: Average of the models to keep in addition to the last one.
    insecure_seed: Seed for tests only, see `CorrelatedNoiseFactory`.

  Raises:
    ArgumentError: If a value is outside its range.
  """
  _checks.instance_of(
      plan_lib.SamplingPlan, 'a tff_dp.SamplingPlan', plan=plan
  )
  _checks.positive(server_learning_rate=server_learning_rate)
  initial_weights = local_training.build_initial_weights(model_fn)
  return process_lib.compose(
      plan,
      initial_weights=initial_weights,
      client_work=local_training.build_client_work(model_fn, client_optimizer),
      finalizer=tff.learning.templates.build_apply_optimizer_finalizer(
          optimizers.build_momentum(
              learning_rate=server_learning_rate,
              momentum=momentum,
              nesterov=nesterov,
              num_rounds=plan.num_rounds,
          ),
          initial_weights.type_signature.result,
      ),
      averaging=averaging,
      insecure_seed=insecure_seed,
  )


@_calls.helpful
def build_dp_sgd(
    model_fn: local_training.ModelFn,
    plan: plan_lib.SamplingPlan,
    *,
    learning_rate: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    averaging: Optional[averaging_lib.Average] = None,
    insecure_seed: Optional[int] = None,
) -> process_lib.PrivateLearningProcess:
  """Returns DP-SGD for the `Examples` of one holder.

  Every example is a client with one local step, so its update is minus its
  gradient. Gradients are clipped one by one. The in-process context
  (`execution.set_default_context`) gives a worker many examples at once. A
  worker with at least 64 examples computes the gradients together, unless an
  operation of the model forbids that (docs/execution.md).

  Args:
    model_fn: Model, as for `build_dp_fedavg`. A batch has one example.
    plan: A plan with `unit='example'`.
    learning_rate: Learning rate, applied to the noised mean gradient.
    momentum: See `build_dp_fedavg`.
    nesterov: See `build_dp_fedavg`.
    averaging: See `build_dp_fedavg`.
    insecure_seed: See `build_dp_fedavg`.

  Raises:
    ArgumentError: If the unit is not the example, or a value is outside its
      range.
  """
  _checks.instance_of(
      plan_lib.SamplingPlan, 'a tff_dp.SamplingPlan', plan=plan
  )
  if plan.unit != 'example':
    raise _checks.ArgumentError(
        'plan.unit', plan.unit, "'example': each example has its own coin"
    )
  return build_dp_fedavg(
      model_fn,
      plan,
      client_optimizer=tff.learning.optimizers.build_sgdm(1.0),
      server_learning_rate=learning_rate,
      momentum=momentum,
      nesterov=nesterov,
      averaging=averaging,
      insecure_seed=insecure_seed,
  )
