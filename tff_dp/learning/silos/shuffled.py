# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""One-pass accelerated minibatch SGD whose silos hide in a secure sum (SDP).

    silo:    the clipped gradients of the next K records, each rounded to a
             grid; their sum, plus the silo's share of integer noise
    opened:  the sum over all silos, and nothing else
    server:  its decoded mean is the gradient of AC-SA, as in `accelerated`

The noise of all silos together protects a record, so there is far less of it
than where every silo protects its own records alone; the price is trust in the
secure summation and in the other silos. Every record is in one sum.

Sources: arXiv:2106.09779, algorithms 4 to 6, with exact calibration instead of
the printed constants; see `accounting.integers.integer_plans`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import dp_accounting
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import _failures
from tff_dp.accounting.integers import integer_plans
from tff_dp.accounting.silos import silo_sampling
from tff_dp.aggregators import integer_sum
from tff_dp.learning import constraints
from tff_dp.learning import local_training
from tff_dp.learning.silos import accelerated
from tff_dp.learning.silos import client_work
from tff_dp.learning.silos import gradients as gradients_lib
from tff_dp.learning.silos import process as process_lib
from tff_dp.learning.silos import server
from tff_dp.learning.silos import sum_work
from tff_dp.learning.silos import terms as terms_lib
from tff_dp.ledger import silo_sums
from tff_dp.mechanisms import minibatch_schedules


class ShuffledProcess(tff.learning.templates.LearningProcess):
  """A `LearningProcess` in which only sums over silos are opened.

  `get_model_weights` returns w_ag, `state.global_model_weights` is the w_md
  that is sent out next.

  Attributes:
    num_records: Of each silo, by its public name.
    plan: Noise, and how many silos are promised to be in every sum.
    num_rounds: Rounds of the run.
  """

  def __init__(
      self,
      process: tff.learning.templates.LearningProcess,
      *,
      num_records: Mapping[str, int],
      plan: integer_plans.SumPlan,
      num_rounds: int,
      l2_norm_clip: float,
      dimension: int,
      epsilon: float,
      delta: float,
  ):
    """Builds it.

    Args:
      process: What runs.
      num_records: See the attributes.
      plan: See the attributes.
      num_rounds: See the attributes.
      l2_norm_clip: C.
      dimension: Length of the vector of weights.
      epsilon: The budget.
      delta: Of the budget.
    """
    super().__init__(
        process.initialize,
        process.next,
        process_lib.build_getter(process, server.accelerated_result),
        process_lib.build_setter(process),
        get_hparams_fn=process.get_hparams,
        set_hparams_fn=process.set_hparams,
    )
    self.num_records = dict(num_records)
    self.plan = plan
    self.num_rounds = num_rounds
    self._l2_norm_clip = l2_norm_clip
    self._dimension = dimension
    self._epsilon = epsilon
    self._delta = delta

  def client_data(self, silo: str, examples: Any) -> Mapping[str, Any]:
    """Returns what one silo brings to every round.

    Args:
      silo: Its name.
      examples: Its batched records, or a list of batches, always in the same
        order.
    """
    _checks.one_of(tuple(self.num_records), silo=silo)
    phase = terms_lib.Phase(
        silo_sampling.DisjointBlocks(self.plan.records_per_silo),
        first_record=0,
        num_records=self.num_records[silo],
        num_rounds=self.num_rounds,
        noise_stddev=sum_work.share_stddev(self.plan, self._l2_norm_clip),
    )
    terms = terms_lib.SiloTerms(
        self.num_records[silo], self._l2_norm_clip, (phase,)
    )
    return terms_lib.silo_data(terms, examples)

  def open_ledger(self) -> silo_sums.SumLedger:
    """Returns an empty ledger. It must outlive every state."""
    return silo_sums.SumLedger(
        self.num_records, min_silos=self.plan.min_silos
    )

  def next_round(
      self,
      state: Any,
      examples: Mapping[str, Any],
      *,
      ledger: silo_sums.SumLedger,
  ) -> tff.learning.templates.LearningProcessOutput:
    """Charges a round to the silos that report, and runs it.

    `next` alone keeps no books.

    Args:
      state: As for `next`.
      examples: Name -> records, of the silos that are there.
      ledger: Is charged before anything is computed, so a round that fails is
        paid for; `skip_round` goes on from there.

    Raises:
      PrivacyRefusedError: With fewer silos than promised, and for a block that
        was used before. Nobody is charged then.
    """
    data = [self.client_data(name, part) for name, part in examples.items()]
    round_index = int(state.client_work[client_work.ROUND])
    if round_index >= self.num_rounds:
      raise _checks.PrivacyRefusedError(
          f'all num_rounds={self.num_rounds} rounds are done',
          why='there are no further records',
          way_out='plan a run with more rounds',
      )
    size = self.plan.records_per_silo
    ledger.charge(
        examples, first_record=round_index * size, num_records=size
    )
    with _failures.naming_clients(list(examples)):
      return self.next(state, data)

  def skip_round(self, state: Any) -> Any:
    """Returns the state without its next round: see `process.skip_round`."""
    return process_lib.skip_round(state)

  def dp_event(
      self, silo: str, ledger: Optional[silo_sums.SumLedger] = None
  ) -> dp_accounting.DpEvent:
    """Returns what is opened, to a record of one silo.

    One sum, because no record is in two, with the noise of all promised silos;
    stated for replace-one of a record (`accounting.events.record_events`).

    Args:
      silo: Its name.
      ledger: What was charged so far; `None` for the whole run.
    """
    _checks.one_of(tuple(self.num_records), silo=silo)
    if ledger is not None and not ledger.num_rounds(silo):
      return dp_accounting.NoOpDpEvent()
    return self.plan.dp_event(dimension=self._dimension)

  def guarantee(
      self, ledger: Optional[silo_sums.SumLedger] = None
  ) -> silo_sums.SumGuarantee:
    """Returns epsilon with trust in the sum, and by a silo's own noise.

    Args:
      ledger: What was charged so far; `None` for the whole run with all silos
        in every round.
    """
    rounds = {
        name: self.num_rounds if ledger is None else ledger.num_rounds(name)
        for name in self.num_records
    }
    return silo_sums.SumGuarantee(
        plan=self.plan,
        dimension=self._dimension,
        delta=self._delta,
        requested_epsilon=self._epsilon,
        rounds=rounds,
    )


def build_shuffled_one_pass_accelerated_mb_sgd(
    model: tff.learning.models.FunctionalModel,
    *,
    num_records: Mapping[str, int],
    num_rounds: int,
    l2_norm_clip: float,
    epsilon: float,
    delta: float,
    min_silos: int,
    noise: str = 'skellam',
    grid: int = 128,
    label_range: gradients_lib.LabelRange = None,
    gamma: Optional[float] = None,
    stages: Optional[Sequence[minibatch_schedules.Stage]] = None,
    strong_convexity: float = 0.0,
    constraint: Optional[constraints.Constraint] = None,
    regularization: float = 0.0,
) -> ShuffledProcess:
  """Returns one-pass accelerated minibatch SGD on secure sums.

  Every silo uses K = floor(min_i n_i / R) fresh records in each round, so that
  the decoded sum is the mean over all records of the round. The noise is
  calibrated for `min_silos`, and rounds of fewer are refused; rounds of more
  have more noise than they need.

  Args:
    model: A `FunctionalModel`, see `planning`.
    num_records: Records of each silo, by its public name.
    num_rounds: R, at most the records of the smallest silo.
    l2_norm_clip: C, on the gradient of every record.
    epsilon: The budget of every record, by the noise of all silos together.
    delta: In (0, 1).
    min_silos: Honest silos that are promised to be in every sum.
    noise: 'skellam', 'binomial' or 'discrete-gaussian'.
    grid: h, steps of the grid from -C to C; at most 256 with binomial noise.
      Rounding costs privacy like sqrt(d) further steps.
    label_range: See `planning`.
    gamma: See `accelerated.build_accelerated_mb_sgd_erm`.
    stages: See `accelerated.build_accelerated_mb_sgd_erm`.
    strong_convexity: mu of the loss, without the regulariser.
    constraint: See `planning`.
    regularization: See `planning`.
  """
  dimension = gradients_lib.num_params(model)
  _check_records(num_records, num_rounds)
  _checks.integer_between(1, len(num_records), min_silos=min_silos)
  _checks.clip_norm(l2_norm_clip=l2_norm_clip)
  _checks.positive(epsilon=epsilon)
  _checks.non_negative(strong_convexity=strong_convexity)
  _checks.non_negative(regularization=regularization)
  gradients_lib.check_label_range(label_range)
  leg = server.Leg(
      accelerated.stages_of(num_rounds, gamma, stages),
      strong_convexity=strong_convexity,
      regularization=regularization,
  )
  plan = integer_plans.calibrate(
      noise,
      epsilon=epsilon,
      delta=delta,
      dimension=dimension,
      grid=grid,
      records_per_silo=min(num_records.values()) // num_rounds,
      min_silos=min_silos,
  )
  constraint = constraint or constraints.Unconstrained()
  initial_weights = local_training.build_initial_weights(model, constraint)
  weights_type = initial_weights.type_signature.result
  process = process_lib.compose(
      initial_weights=initial_weights,
      client_work=sum_work.build_rows_work(
          model,
          weights_type,
          plan,
          num_rounds=num_rounds,
          l2_norm_clip=float(l2_norm_clip),
          label_range=label_range,
      ),
      finalizer=server.build_accelerated_finalizer(
          weights_type,
          (leg,),
          num_params=dimension,
          constraint=constraint,
      ),
      model_aggregator=sum_work.MeanOfRowsFactory(
          integer_sum.IntegerVectorSumFactory(
              plan,
              l2_norm_clip=l2_norm_clip,
              max_silos=len(num_records),
          ),
          weights_type.trainable,
      ),
  )
  return ShuffledProcess(
      process,
      num_records=num_records,
      plan=plan,
      num_rounds=num_rounds,
      l2_norm_clip=float(l2_norm_clip),
      dimension=dimension,
      epsilon=epsilon,
      delta=delta,
  )


def _check_records(num_records: Mapping[str, int], num_rounds: int) -> None:
  if not num_records:
    raise _checks.ArgumentError(
        'num_records', num_records, 'the records of at least one silo'
    )
  _checks.integer_at_least(1, num_rounds=num_rounds)
  for name, count in num_records.items():
    _checks.integer_at_least(1, num_records=count)
    if count < num_rounds:
      raise _checks.ArgumentError(
          'num_rounds',
          num_rounds,
          f'at most {count}, the records of silo {name!r}: in one pass every'
          ' round uses others',
      )
