# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draw and Discard as a TFF learning process.

A round has m clients. Each draws an instance from the pool and returns it moved
and noised. Then the server writes the returned models. See `client` for the
first part and `strategies` and `pool` for the second. m = 1 is algorithm 1 of
arXiv:1807.04369, and m > 1 is the case of overlapping clients.

A process is built from a `DrawAndDiscardPlan` and carries it. The plan's
guarantee is local: it holds against a server that sees every report. It is the
guarantee of one `client_steps.ClientStep`, composed over a client's
participations. Epsilon gets no smaller by the draw or the discard.
"""

from collections.abc import Mapping
from typing import Any, Optional

import numpy as np
import tensorflow_federated as tff

from tff_dp import _calls
from tff_dp import _checks
from tff_dp import _failures
from tff_dp.learning import local_training
from tff_dp.ledger import participation_ledger
from tff_dp.systems.draw_and_discard import client as client_lib
from tff_dp.systems.draw_and_discard import computations
from tff_dp.systems.draw_and_discard import models
from tff_dp.systems.draw_and_discard import plan as plan_lib
from tff_dp.systems.draw_and_discard import pool as pool_lib
from tff_dp.systems.draw_and_discard import strategies

_INITIAL_VARIANCES = ('stationary', 'paper')


class DrawAndDiscardProcess(tff.learning.templates.LearningProcess):
  """A `LearningProcess` whose server has k models and whose clients add noise.

  `get_model_weights` returns the mean of the instances. `set_model_weights`
  spreads fresh instances around other weights. Metrics at the server are counts
  of reports, and how far apart the instances are. They come from noised reports
  and cost nothing.

  Attributes:
    plan: Plan that the process was built from. The plan's numbers are void if
      the process reports metrics without noise.
  """

  def __init__(
      self,
      process: tff.learning.templates.LearningProcess,
      plan: plan_lib.DrawAndDiscardPlan,
      *,
      predict: tff.Computation,
  ):
    """Wraps a TFF process, see `build_draw_and_discard`."""
    super().__init__(
        process.initialize,
        process.next,
        process.get_model_weights,
        process.set_model_weights,
    )
    self.plan = plan
    self._predict = predict

  def predict(self, state: pool_lib.Pool, x: Any) -> np.ndarray:
    """Returns predictions for a batch, by the rule `predict` of the builder.

    Args:
      state: State of the process.
      x: Features of a batch, as the model takes them.
    """
    return np.asarray(self._predict(state, x))

  def next_round(
      self,
      state: pool_lib.Pool,
      clients: Mapping[str | bytes, Any],
      *,
      ledger: participation_ledger.ParticipationLedger,
  ) -> tff.learning.templates.LearningProcessOutput:
    """Charges a round to its clients, and runs it.

    `next` alone does not charge anybody. `program.train` has its own ledger.

    Args:
      state: State, as for `next`.
      clients: Mapping from id to the client's data.
      ledger: `process.plan.participation_ledger(...)`. It is charged before the
        round runs, so a round that fails counts too.

    Raises:
      ArgumentError: If the ledger is of a plan with another cap or another
        number of rounds.
      PrivacyRefusedError: If a client would exceed its cap or is named twice
        ('a' and b'a' are one client), if the ledger has not seen all rounds of
        the state, or if the plan has no further round. Then nobody is charged,
        and nothing runs.
    """
    expected = self.plan.participation.pattern
    if ledger.pattern != expected:
      raise _checks.ArgumentError(
          'ledger.pattern',
          ledger.pattern,
          f'the pattern of the plan, {expected}',
          way_out="ledger = process.plan.participation_ledger('a name')",
      )
    # The ledger is ahead if a round failed after it was charged.
    ledger.commit(clients, max(ledger.num_rounds, int(state.round)) + 1)
    with _failures.naming_clients(list(clients)):
      return self.next(state, list(clients.values()))


@_calls.helpful
def build_draw_and_discard(
    model: local_training.ModelFn,
    plan: plan_lib.DrawAndDiscardPlan,
    *,
    initial_variance: str = 'stationary',
    predict: str = computations.MEAN_WEIGHTS,
    client_keys: bool = False,
    server_seed: Optional[int] = None,
    allow_unprotected_metrics: bool = False,
) -> DrawAndDiscardProcess:
  """Returns the process of a plan.

  Client data is a batched dataset, with features within public bounds: see
  `linear_models`. With `client_keys` it is
  `learning.client_data(examples, key)`. A round without clients changes only
  the count of rounds.

  Args:
    model: A `FunctionalModel`, or a function that returns a `VariableModel`.
    plan: Plan of clients and server. Calibrate it first.
    initial_variance: Variance of the instances at the start. 'stationary' is
      the spread that lasts with k instances and m = `clients_per_round`
      clients at once. 'paper' is the value of this spread at m = 1: k
      sigma^2/2, with noise std sigma of one weight. Both values are 0 for one
      model. For a step without noise, `ClientStep.spread_variance` takes the
      place of sigma^2.
    predict: 'mean_weights', or 'mean_predictions' of the instances.
    client_keys: Whether a client derives its instance and its noise from a key
      in its data. A repeated round then gives the same reports, which
      `program.train` needs.
    server_seed: Seed of the server's coins, `None` for fresh coins. The coins
      protect nothing. Clients' noise has no seed.
    allow_unprotected_metrics: Whether to report loss, number of examples and
      refused labels without noise, under `not_covered`. It voids the plan's
      guarantee.

  Raises:
    ArgumentError: If values are not allowed or do not go together.
  """
  _checks.instance_of(
      plan_lib.DrawAndDiscardPlan,
      'a tff_dp.DrawAndDiscardPlan, with step, instances and participations',
      plan=plan,
  )
  _checks.one_of(_INITIAL_VARIANCES, initial_variance=initial_variance)
  _checks.one_of(computations.PREDICTIONS, predict=predict)
  _checks.optional_integer_at_least(0, server_seed=server_seed)
  flat_model = models.FlatModel(model)
  if plan.num_params != flat_model.num_params:
    raise _checks.ArgumentError(
        'plan.num_params',
        plan.num_params,
        f'the number of weights of the model, {flat_model.num_params}',
    )
  is_stationary = initial_variance == 'stationary'
  rules = pool_lib.Rules(
      strategy=plan.server,
      initial_variance=strategies.stationary_variance(
          plan.server.num_models,
          noise_variance=plan.step.spread_variance(plan.num_params),
          concurrency=plan.clients_per_round if is_stationary else 1,
      ),
      spam_filter=plan.spam_filter,
      release_id=client_lib.release_of(plan).number,
  )
  process = computations.build_process(
      flat_model,
      plan,
      rules,
      client_keys=client_keys,
      server_seed=server_seed,
      allow_unprotected_metrics=allow_unprotected_metrics,
  )
  return DrawAndDiscardProcess(
      process,
      plan,
      predict=computations.build_predict(process, flat_model, predict),
  )
