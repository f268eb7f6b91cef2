# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draw and Discard as a TFF learning process.

A round has m clients. Each draws an instance from the pool as it stands,
returns it moved and noised, and the server writes what comes back: see `client`
for the former, `strategies` and `pool` for the latter. m = 1 is algorithm 1 of
arXiv:1807.04369; m > 1 is what happens when clients overlap.

The guarantee is local and holds against a server that sees every report: it is
that of `mechanisms.client_steps`, composed over a client's participations.
Neither the draw nor the discard makes it smaller.
"""

from collections.abc import Mapping
from typing import Any, Optional

import dp_accounting
import numpy as np
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import _failures
from tff_dp.accounting import draw_and_discard as accounting
from tff_dp.accounting import draw_and_discard_statement as statement
from tff_dp.learning import local_training
from tff_dp.learning.draw_and_discard import computations
from tff_dp.learning.draw_and_discard import models
from tff_dp.learning.draw_and_discard import participations as ledgers
from tff_dp.learning.draw_and_discard import pool as pool_lib
from tff_dp.learning.draw_and_discard import strategies
from tff_dp.mechanisms import client_steps
from tff_dp.mechanisms.instances import instance_pools
from tff_dp.mechanisms.instances import spam_filters

_INITIAL_VARIANCES = ('stationary', 'paper')


class DrawAndDiscardProcess(tff.learning.templates.LearningProcess):
  """A `LearningProcess` whose server has k models and whose clients add noise.

  `get_model_weights` returns the mean of the instances, `set_model_weights`
  spreads fresh instances around other weights. Metrics at the server are
  counts of reports and the spread of the instances, which come from noised
  reports and cost nothing.

  Attributes:
    step: What a client does, and its privacy.
    num_params: p.
    strategy: What the server does.
    max_participations: Cap of every client, for which `guarantee` speaks.
  """

  def __init__(
      self,
      process: tff.learning.templates.LearningProcess,
      *,
      model: models.FlatModel,
      step: client_steps.ClientStep,
      strategy: strategies.Strategy,
      max_participations: int,
      expected_concurrency: int,
      predict: str,
      has_spam_filter: bool,
      has_unnoised_metrics: bool,
  ):
    """Wraps what runs; see `build_draw_and_discard`."""
    super().__init__(
        process.initialize,
        process.next,
        process.get_model_weights,
        process.set_model_weights,
    )
    self.step = step
    self.num_params = model.num_params
    self.strategy = strategy
    self.max_participations = max_participations
    self._expected_concurrency = expected_concurrency
    self._has_spam_filter = has_spam_filter
    self._has_unnoised_metrics = has_unnoised_metrics
    self._predict = computations.build_predict(process, model, predict)

  def event(self, participations: int = 1) -> dp_accounting.DpEvent:
    """Returns the event of a client that takes part so often."""
    _checks.integer_at_least(0, participations=participations)
    return accounting.event(
        self.step, num_params=self.num_params, participations=participations
    )

  def predict(self, state: pool_lib.Pool, x: Any) -> np.ndarray:
    """Returns predictions for a batch, by what `predict` was built as.

    Args:
      state: Of the process.
      x: Features of a batch, as the model takes them.
    """
    return np.asarray(self._predict(state, x))

  def open_ledger(self) -> ledgers.ParticipationLedger:
    """Returns an empty count of participations, to be kept beside the state."""
    return ledgers.ParticipationLedger(self.max_participations)

  def next_round(
      self,
      state: pool_lib.Pool,
      clients: Mapping[str | bytes, Any],
      *,
      ledger: ledgers.ParticipationLedger,
  ) -> tff.learning.templates.LearningProcessOutput:
    """Charges a round to its clients, and runs it.

    `next` alone keeps no books.

    Args:
      state: As for `next`.
      clients: Id -> what the client brings.
      ledger: Is charged first, so a round that fails is paid for.

    Raises:
      PrivacyRefusedError: If a client would be over its cap. Nobody is charged
        then, and nothing runs.
    """
    ledger.charge(clients)
    with _failures.naming_clients(list(clients)):
      return self.next(state, list(clients.values()))

  def guarantee(
      self,
      participations: Optional[int] = None,
      *,
      delta: Optional[float] = None,
  ) -> statement.DdmlGuarantee:
    """Returns what holds for a client, with the analysis that is no guarantee.

    Args:
      participations: Of one client; `None` for the cap. The largest count that
        occurred is `max_observed` of the ledger.
      delta: Of the total, for a numeric composition; see
        `accounting.draw_and_discard`.

    Without noise, or with metrics that are not protected, it says so in `void`.
    """
    if participations is None:
      participations = self.max_participations
    _checks.integer_between(
        0, self.max_participations, participations=participations
    )
    return accounting.guarantee(
        self.step,
        num_params=self.num_params,
        num_instances=self.strategy.num_instances,
        participations=participations,
        delta=delta,
        concurrency=self._expected_concurrency,
        max_participations=self.max_participations,
        strategy=self.strategy.name,
        has_spam_filter=self._has_spam_filter,
        has_unnoised_metrics=self._has_unnoised_metrics,
        # Plain `federated_select` may show it to the server.
        server_learns_draw=True,
    )


def build_draw_and_discard(
    model: local_training.ModelFn,
    *,
    num_instances: int,
    learning_rate: float,
    clip: str = 'box',
    clip_norm: float = 1.0,
    mechanism: Optional[str] = 'laplace',
    epsilon: Optional[float] = None,
    delta: Optional[float] = None,
    privacy_unit: str = 'model',
    max_participations: int,
    strategy: str = strategies.DRAW_AND_DISCARD,
    server_batch: Optional[int] = None,
    batch_unit: str = 'client_updates',
    examples_per_client: Optional[int] = None,
    spam_filter: Optional[spam_filters.SpamFilter] = None,
    expected_concurrency: int = 1,
    initial_variance: str = 'stationary',
    predict: str = computations.MEAN_WEIGHTS,
    client_keys: bool = False,
    server_seed: Optional[int] = None,
    allow_unprotected_metrics: bool = False,
) -> DrawAndDiscardProcess:
  """Returns the process.

  Client data is a batched dataset, features within bounds that are public: see
  `linear_models`. With `client_keys` it is `learning.client_data(examples,
  key)`. A round without clients changes nothing but the count of rounds.

  Args:
    model: A `FunctionalModel`, or a function that returns a `VariableModel`.
    num_instances: k; for `accept_1_over_k` the inverse of the probability.
    learning_rate: Of the client; part of the sensitivity.
    clip: 'box', 'l1' or 'l2'; see `mechanisms.client_steps`, like the next.
    clip_norm: Bound of the clip.
    mechanism: 'laplace', 'gaussian', or `None` for no noise and no guarantee.
    epsilon: Of one participation.
    delta: Of one participation, for Gaussian noise.
    privacy_unit: What epsilon refers to: 'model', or 'coordinate' as in the
      paper, which is no guarantee for a client's data.
    max_participations: Cap of every client; see `next_round`.
    strategy: See `strategies`.
    server_batch: Updates in a batch of the strategy 'server_batch'.
    batch_unit: 'client_updates' or 'examples'.
    examples_per_client: Public constant, for a batch in examples.
    spam_filter: Refuses reports that are far from the instances; `None` for
      none. It was calibrated for num_instances, expected_concurrency, p and the
      law of the noise.
    expected_concurrency: m, for the initial spread.
    initial_variance: 'stationary' for that of k and m, 'paper' for k sigma^2/2.
    predict: 'mean_weights', or 'mean_predictions' of the instances.
    client_keys: Whether noise follows from a key that the client brings.
    server_seed: Seeds the server's coins; `None` for fresh ones. The coins
      protect nothing. Clients' noise has no seed.
    allow_unprotected_metrics: Whether to report loss, number of examples and
      refused labels without noise, under `not_covered`. It voids the guarantee.

  Raises:
    ArgumentError: For values that are not allowed or do not go together.
  """
  step = client_steps.ClientStep(
      learning_rate=learning_rate,
      clip=clip,
      clip_norm=clip_norm,
      mechanism=mechanism,
      epsilon=epsilon,
      delta=delta,
      privacy_unit=privacy_unit,
  )
  chosen = strategies.Strategy(
      strategy,
      num_instances,
      strategies.updates_per_batch(
          server_batch, batch_unit, examples_per_client
      ),
  )
  _checks.integer_at_least(1, max_participations=max_participations)
  _checks.integer_at_least(1, expected_concurrency=expected_concurrency)
  _checks.one_of(_INITIAL_VARIANCES, initial_variance=initial_variance)
  _checks.one_of(computations.PREDICTIONS, predict=predict)
  _checks.optional_integer_at_least(0, server_seed=server_seed)
  flat_model = models.FlatModel(model)
  _check_spam_filter(
      spam_filter,
      step,
      chosen,
      num_params=flat_model.num_params,
      concurrency=expected_concurrency,
  )
  process = computations.build_process(
      flat_model,
      step,
      _rules(
          chosen,
          step.spread_variance(flat_model.num_params),
          expected_concurrency if initial_variance == 'stationary' else 1,
          spam_filter,
      ),
      client_keys=client_keys,
      server_seed=server_seed,
      allow_unprotected_metrics=allow_unprotected_metrics,
  )
  return DrawAndDiscardProcess(
      process,
      model=flat_model,
      step=step,
      strategy=chosen,
      max_participations=max_participations,
      expected_concurrency=expected_concurrency,
      predict=predict,
      has_spam_filter=spam_filter is not None,
      has_unnoised_metrics=allow_unprotected_metrics,
  )


def _rules(strategy, variance, concurrency, spam_filter) -> pool_lib.Rules:
  return pool_lib.Rules(
      strategy=strategy,
      initial_variance=instance_pools.stationary_variance(
          strategy.num_models, noise_variance=variance, concurrency=concurrency
      ),
      spam_filter=spam_filter,
  )


def _check_spam_filter(
    spam_filter, step, strategy, *, num_params: int, concurrency: int
) -> None:
  """Raises if the filter would compare with a spread that means nothing."""
  if spam_filter is None:
    return
  here = {
      'num_params': num_params,
      'num_instances': strategy.num_instances,
      'concurrency': concurrency,
      'mechanism': step.mechanism,
  }
  # A filter that somebody wrote by hand has no facts.
  others = {
      name: spam_filter.facts[name]
      for name, value in here.items()
      if spam_filter.facts.get(name, value) != value
  }
  if not step.is_private:
    why = 'None without client noise: the spread then goes to zero'
  elif strategy.name != strategies.DRAW_AND_DISCARD:
    why = (
        f"None unless strategy='{strategies.DRAW_AND_DISCARD}': the spread of"
        ' the others is not stationary'
    )
  elif strategy.num_instances < spam_filters.LEAST_INSTANCES:
    why = f'None for num_instances below {spam_filters.LEAST_INSTANCES}'
  elif others:
    why = f'one that was calibrated for {here}, and not for {others}'
  else:
    return
  raise _checks.ArgumentError('spam_filter', spam_filter, why)
