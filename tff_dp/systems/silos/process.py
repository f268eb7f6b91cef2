# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Learning processes that protect every record of silos."""

import collections
from collections.abc import Callable, Mapping
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import _failures
from tff_dp.systems.silos import client_work as client_work_lib
from tff_dp.systems.silos import plan_base
from tff_dp.systems.silos import server
from tff_dp.systems.silos import silo_budget
from tff_dp.systems.silos import terms as terms_lib

Result = Callable[
    [Any, tff.learning.models.ModelWeights], tff.learning.models.ModelWeights
]


class SiloProcess(tff.learning.templates.LearningProcess):
  """A `LearningProcess` that protects every record of silos, by its plan.

  With a `SiloPlan`, a silo clips, averages and noises every message inside the
  silo. So the silo's whole transcript is (epsilon_i, delta_i)-indistinguishable
  for two of its data sets that differ in one replaced record. This holds for
  any behaviour of the server and the other silos (arXiv:2106.09779, definition
  of ISRL-DP). With a `SecureSumPlan`, only sums over silos are opened.

  `get_model_weights` returns the result of the algorithm: an average, the w_ag
  of an accelerated method, or the last model. The model that is sent out next
  may be another one. It is in `state.global_model_weights`. `set_model_weights`
  restarts from a model, but finished rounds and used blocks of records stay
  used.

  Attributes:
    plan: Plan with every silo's data sizes, noise and limits.
  """

  def __init__(
      self,
      process: tff.learning.templates.LearningProcess,
      *,
      plan: plan_base.PlanOfSilos,
      result: Optional[Result],
      insecure_seed: Optional[int] = None,
  ):
    """Initializes the process, see `planning`.

    Args:
      process: TFF process to run.
      plan: Plan, see the attributes.
      result: Function that makes the model from (finalizer's state, global
        weights). `None` means the model of `process`.
      insecure_seed: Seed for tests only.
    """
    get_weights = process.get_model_weights
    if result is not None:
      get_weights = _build_getter(process, result)
    super().__init__(
        process.initialize,
        process.next,
        get_weights,
        _build_setter(process),
        get_hparams_fn=process.get_hparams,
        set_hparams_fn=process.set_hparams,
    )
    self.plan = plan
    self._insecure_seed = insecure_seed

  def with_plan(self, plan: plan_base.PlanOfSilos) -> 'SiloProcess':
    """Returns the process with another plan, without recompiling.

    Noise and batch sizes come with the data of each silo, so the new plan may
    change them. For secure sums they are part of the graph, so the new plan
    must keep them.

    Args:
      plan: Plan with the same `release_facts`, such as the result of
        `SiloPlan.calibrated`.

    Raises:
      ArgumentError: If the plan has other `release_facts`.
    """
    if plan.release_facts != self.plan.release_facts:
      raise _checks.ArgumentError(
          'plan',
          plan.release_facts,
          f'a plan with the facts of the process, {self.plan.release_facts}',
      )
    return SiloProcess(
        self, plan=plan, result=None, insecure_seed=self._insecure_seed
    )

  def client_data(self, silo: str, examples: Any) -> Mapping[str, Any]:
    """Returns the data of one silo for every round.

    Args:
      silo: Name of the silo.
      examples: Batched records, or a list of batches, always in the same order.

    Raises:
      ArgumentError: If there is no such silo, or if `terms.silo_data` refuses
        the examples.
    """
    terms = self.plan.terms
    _checks.one_of(tuple(terms), silo=silo)
    key = None
    if self._insecure_seed is not None:
      # The key depends on the silo, so that silos differ even under one seed.
      position = list(terms).index(silo)
      key = np.array([self._insecure_seed, 1 + position], np.int64)
    return terms_lib.silo_data(terms[silo], examples, key)

  def next_round(
      self,
      state: Any,
      examples: Mapping[str, Any],
      *,
      ledger: silo_budget.SiloLedger,
  ) -> tff.learning.templates.LearningProcessOutput:
    """Charges a round to the silos that report, and runs it.

    `next` alone does not charge anybody. A silo that cannot be reached is left
    out. It does not pay and does not delay the others.

    Args:
      state: State as for `next`, after as many rounds as the ledger has.
      examples: Mapping from name to records, for the silos that are present.
      ledger: `process.plan.ledger(...)`. It is charged before anything is
        computed, so a round that fails is paid for. After a failed round,
        continue with `skip_round`.

    Raises:
      PrivacyRefusedError: If the ledger has another number of rounds than the
        state, or another plan than the process. Also if the round is beyond a
        silo's budget or the plan, or if a secure sum has fewer silos than
        promised. Nobody is charged then.
    """
    data = [self.client_data(name, part) for name, part in examples.items()]
    recorded = ledger.rounds_recorded
    done = int(state.client_work[client_work_lib.ROUND])
    known = ledger.plan.rounds_trained(recorded)
    if done != known or ledger.plan.fingerprint != self.plan.fingerprint:
      raise _checks.PrivacyRefusedError(
          f'the state has done {done} rounds, and the ledger has {known}. The'
          f' ledger is of the plan {ledger.plan.fingerprint}, and the process'
          f' of {self.plan.fingerprint}',
          why='a round that runs again from an earlier state is a new release,'
          ' which the ledger would miss',
          way_out='go on from the latest state with the ledger of its plan;'
          ' after a round that failed, from process.skip_round(state)',
      )
    ledger.record(recorded + 1, members=examples)
    with _failures.naming_clients(list(examples)):
      return self.next(state, data)

  def skip_round(
      self, state: Any
  ) -> tff.learning.templates.LearningAlgorithmState:
    """Returns the state after one more round that changed only the count.

    Use it after a round that failed because a silo disappeared or had bad data.
    The messages of the other silos are paid for, and their records are used up.

    Args:
      state: State before the round.
    """
    name = client_work_lib.ROUND
    done = collections.OrderedDict(state.client_work)
    done[name] = np.int64(int(done[name]) + 1)
    return state._replace(client_work=done)


def _build_getter(process, result: Result) -> tff.Computation:
  """Returns `get_model_weights` for the result of an algorithm."""
  state_type = process.initialize.type_signature.result.member

  @tff.tensorflow.computation(state_type)
  @tf.function(autograph=False)
  def get_model_weights(state):
    return result(state.finalizer, state.global_model_weights)

  return get_model_weights


def _build_setter(process) -> tff.Computation:
  """Returns `set_model_weights`, which keeps the count of finished rounds."""
  state_type = process.initialize.type_signature.result.member

  @tff.tensorflow.computation(
      state_type, state_type.global_model_weights
  )
  @tf.function(autograph=False)
  def set_model_weights(state, weights):
    finalizer = type(state.finalizer)(state.finalizer)
    # At step 0 the rest of the finalizer's state does not matter. The rounds
    # that silos have done are in the state of the client work, and stay.
    finalizer[server.STEP] = tf.zeros([], tf.int64)
    return state._replace(global_model_weights=weights, finalizer=finalizer)

  return set_model_weights
