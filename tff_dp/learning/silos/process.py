# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Learning processes whose silos protect every record themselves."""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import dp_accounting
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import _failures
from tff_dp.accounting.silos import silo_events
from tff_dp.accounting.silos import silo_guarantee
from tff_dp.learning.silos import aggregation
from tff_dp.learning.silos import client_work as client_work_lib
from tff_dp.learning.silos import server
from tff_dp.learning.silos import terms as terms_lib
from tff_dp.ledger import silo_accountant

Result = Callable[
    [Any, tff.learning.models.ModelWeights], tff.learning.models.ModelWeights
]


class IsrlProcess(tff.learning.templates.LearningProcess):
  """A `LearningProcess` with inter-silo record-level privacy.

  Every message of a silo is clipped, averaged and noised inside of it, so that
  the whole transcript of a silo is (epsilon_i, delta_i)-indistinguishable for
  two data sets of it that differ in one replaced record, whatever the server
  and the other silos do with it (arXiv:2106.09779, definition of ISRL-DP).

  `get_model_weights` returns the result of the algorithm (an average, or w_ag),
  which is not the point that is sent out next, in `state.global_model_weights`.
  `set_model_weights` begins anew from a model; rounds and blocks of records
  that are used up stay so.

  Attributes:
    silos: Name -> `SiloBudget`.
    terms: Name -> `SiloTerms`, the constants that the silo brings.
    num_rounds: Rounds of the run.
    voids: Why there is no guarantee, as sentences; empty if there is one.
  """

  def __init__(
      self,
      process: tff.learning.templates.LearningProcess,
      *,
      silos: Mapping[str, silo_accountant.SiloBudget],
      terms: Mapping[str, terms_lib.SiloTerms],
      num_rounds: int,
      result: Optional[Result],
      voids: Sequence[str] = (),
      conservative: bool = False,
      releases_per_round: int = 1,
      insecure_seed: Optional[int] = None,
  ):
    """Builds it; see `planning`.

    Args:
      process: What runs.
      silos: See the attributes.
      terms: See the attributes.
      num_rounds: See the attributes.
      result: Makes the model of (finalizer's state, global weights); `None` for
        the latter.
      voids: See the attributes.
      conservative: As in `silo_sampling`.
      releases_per_round: Noised releases of a silo in a round; the local steps
        of local SGD.
      insecure_seed: For tests only.
    """
    get_weights = process.get_model_weights
    if result is not None:
      get_weights = build_getter(process, result)
    super().__init__(
        process.initialize,
        process.next,
        get_weights,
        build_setter(process),
        get_hparams_fn=process.get_hparams,
        set_hparams_fn=process.set_hparams,
    )
    self.silos = dict(silos)
    self.terms = dict(terms)
    self.num_rounds = num_rounds
    self.voids = tuple(voids)
    self._expected = {
        name: of_silo.events() for name, of_silo in self.terms.items()
    }
    self._conservative = conservative
    self._releases_per_round = releases_per_round
    self._insecure_seed = insecure_seed

  def client_data(self, silo: str, examples: Any) -> Mapping[str, Any]:
    """Returns what one silo brings to every round.

    Args:
      silo: Its name.
      examples: Its batched records, or a list of batches, always in the same
        order. They are read batch by batch, which bounds the memory.
    """
    _checks.one_of(tuple(self.terms), silo=silo)
    debug_key = None
    if self._insecure_seed is not None:
      # From the silo, so that silos differ even under one seed.
      position = list(self.terms).index(silo)
      debug_key = np.array([self._insecure_seed, position], np.int64)
    return terms_lib.silo_data(self.terms[silo], examples, debug_key)

  def open_ledger(self) -> silo_accountant.IsrlAccountant:
    """Returns an empty ledger of the silos. It must outlive every state."""
    return silo_accountant.IsrlAccountant(
        self.silos, conservative=self._conservative
    )

  def next_round(
      self,
      state: Any,
      examples: Mapping[str, Any],
      *,
      ledger: silo_accountant.IsrlAccountant,
      run: str = 'run',
  ) -> tff.learning.templates.LearningProcessOutput:
    """Charges a round to the silos that report, and runs it.

    `next` alone keeps no books. A silo that cannot be reached is left out, and
    neither pays nor delays the others; without any the round does nothing.

    Args:
      state: As for `next`.
      examples: Name -> records, of the silos that are there.
      ledger: Is charged before anything is computed, so a round that fails is
        paid for, and `skip_round` goes on after it.
      run: A name; going on from an earlier state is another run.

    Raises:
      PrivacyRefusedError: For a round or a block that was done before, and for
        one beyond a silo's budget. Nobody is charged then.
    """
    data = [self.client_data(name, part) for name, part in examples.items()]
    round_index = int(state.client_work[client_work_lib.ROUND])
    if round_index >= self.num_rounds:
      raise _checks.PrivacyRefusedError(
          f'all num_rounds={self.num_rounds} rounds are done',
          why='the noise of the silos is calibrated for no further round',
          way_out='plan a run with more rounds',
      )
    release = round_index * self._releases_per_round
    ledger.charge(
        {name: self.terms[name].event(release) for name in examples},
        round_index=round_index,
        run=run,
        num_messages=self._releases_per_round,
        expected=self._expected,
    )
    with _failures.naming_clients(list(examples)):
      return self.next(state, data)

  def skip_round(self, state: Any) -> Any:
    """Returns the state without its next round: see `skip_round` below."""
    return skip_round(state)

  def dp_event(
      self,
      silo: str,
      ledger: Optional[silo_accountant.IsrlAccountant] = None,
  ) -> dp_accounting.DpEvent:
    """Returns what one silo sends, to the record of it that pays most.

    Stated for replace-one of a record (`accounting.events.record_events`);
    `NonPrivateDpEvent` for a process that has `voids`.

    Args:
      silo: Its name.
      ledger: What was charged so far; `None` for the whole run.
    """
    _checks.one_of(tuple(self.terms), silo=silo)
    if self.voids:
      return dp_accounting.NonPrivateDpEvent()
    if ledger is not None:
      return ledger.dp_event(silo)
    return silo_events.dp_event_of(self._expected[silo])

  def guarantee(
      self, ledger: Optional[silo_accountant.IsrlAccountant] = None
  ) -> silo_guarantee.IsrlGuarantee:
    """Returns (epsilon_i, delta_i) of every silo, the worst, what it rests on.

    Args:
      ledger: What was charged so far; `None` for the whole run with all silos
        in every round.

    Raises:
      PrivacyRefusedError: If there is no guarantee.
    """
    if self.voids:
      raise _checks.PrivacyRefusedError(
          f'no ISRL-DP guarantee: {"; ".join(self.voids)}',
          why='one number that leaves a silo without secret noise voids it',
          way_out='build the process without that; private_metrics are noised',
      )
    if ledger is not None:
      return ledger.guarantee()
    facts = {}
    for name, silo in self.silos.items():
      terms = self.terms[name]
      sampling = dict.fromkeys(
          phase.sampling.describe() for phase in terms.phases
      )
      facts[name] = silo_guarantee.SiloFacts(
          epsilon=terms.epsilon(silo.delta, conservative=self._conservative),
          delta=silo.delta,
          num_records=silo.num_records,
          num_rounds=terms.num_rounds,
          sampling='; '.join(sampling),
          requested_epsilon=silo.epsilon,
      )
    return silo_guarantee.IsrlGuarantee(facts)


def compose(
    *,
    initial_weights: tff.Computation,
    client_work: tff.learning.templates.ClientWorkProcess,
    finalizer: tff.learning.templates.FinalizerProcess,
    model_aggregator: Optional[
        tff.aggregators.UnweightedAggregationFactory
    ] = None,
) -> tff.learning.templates.LearningProcess:
  """Returns what runs, without any books.

  Args:
    initial_weights: Returns the initial `ModelWeights`.
    client_work: What silos do.
    finalizer: What the server does with the mean of their messages.
    model_aggregator: How that mean is computed; see `ReportedMeanFactory`.
  """
  update_type = client_work.next.type_signature.result.result.member.update
  aggregator = tff.aggregators.as_weighted_aggregator(
      aggregation.ReportedMeanFactory(model_aggregator)
  ).create(update_type, tff.TensorType(np.float32))
  return tff.learning.templates.compose_learning_process(
      initial_weights,
      tff.learning.templates.build_broadcast_process(
          initial_weights.type_signature.result
      ),
      client_work,
      aggregator,
      finalizer,
  )


def skip_round(state: Any) -> tff.learning.templates.LearningAlgorithmState:
  """Returns the state with one more round behind it, and nothing else changed.

  After a round that failed, since a silo disappeared or had bad data: what the
  others sent in it is paid for, and its records are used up.

  Args:
    state: Of the process, from before the round.
  """
  name = client_work_lib.ROUND
  done = collections.OrderedDict(state.client_work)
  done[name] = np.int64(int(done[name]) + 1)
  return tff.learning.templates.LearningAlgorithmState(
      global_model_weights=state.global_model_weights,
      distributor=state.distributor,
      client_work=done,
      aggregator=state.aggregator,
      finalizer=state.finalizer,
  )


def build_getter(process, result: Result) -> tff.Computation:
  """Returns `get_model_weights` for the result of an algorithm."""
  state_type = process.initialize.type_signature.result.member

  @tff.tensorflow.computation(state_type)
  @tf.function(autograph=False)
  def get_model_weights(state):
    return result(state.finalizer, state.global_model_weights)

  return get_model_weights


def build_setter(process) -> tff.Computation:
  """Returns `set_model_weights`, which leaves used-up rounds alone."""
  state_type = process.initialize.type_signature.result.member

  @tff.tensorflow.computation(
      state_type, state_type.global_model_weights
  )
  @tf.function(autograph=False)
  def set_model_weights(state, weights):
    finalizer = type(state.finalizer)(state.finalizer)
    # At step 0 nothing else of the state counts. The rounds that silos have
    # done are in the state of the client work, and stay.
    finalizer[server.STEP] = tf.zeros([], tf.int64)
    return tff.learning.templates.LearningAlgorithmState(
        global_model_weights=weights,
        distributor=state.distributor,
        client_work=state.client_work,
        aggregator=state.aggregator,
        finalizer=finalizer,
    )

  return set_model_weights
