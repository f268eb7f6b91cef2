# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The facts a privacy statement is made of."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from tff_dp import _checks
from tff_dp.accounting.events import run_events
from tff_dp.ledger import participation_ledger

_NOT_ACCOUNTED = 'not accounted for: may have used the protected data'


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatementFacts:
  """What a run is and did; everything that follows from it is computed.

  Attributes:
    mechanism: Name of the noise mechanism.
    mechanism_parameters: Its parameters, plain types.
    participation: What is promised about every client, as a sentence.
    min_index_gap: Least difference of the indices of two rounds of one client,
      over the whole run.
    max_participations: Most rounds of one client, over the whole run.
    noise_multiplier: Std of one draw on the SUM, over the clip norm.
    l2_norm_clip: Bound on the L2 norm of one client's update, `None` where
      there is none, hence no noise either.
    clients_per_round: Expected cohort, the divisor of the mean.
    num_rounds: Planned rounds T.
    delta: In (0, 1).
    squared_sensitivity: S2 of all T rounds, in squared clip norms, zero-out.
    sensitivity_is_exact: Whether some client attains S2, or it is a bound.
    neighboring_relation: The relation of the headline.
    complete_trees: Whether finished trees are completed.
    squared_sensitivity_without_completion: S2 if they were not; required if
      they are.
    squared_sensitivity_so_far: S2 of the rounds begun, `None` before round 1.
    adaptive_clipping: What is said about the clip norm that adapts, plain
      types; `None` if it is fixed. `l2_norm_clip` is then the first one, and
      `noise_multiplier` that of all streams together.
    population: Number of clients, `None` if unknown.
    population_origin: Whether the population is public or an estimate.
    observed: What the ledger saw, `None` before round 1.
    insecure_seed: Whether the noise key came from a known seed. Voids the
      guarantee.
    The other attributes are sentences, or 'none'.
  """

  mechanism: str
  mechanism_parameters: Mapping[str, Any]
  participation: str
  min_index_gap: int
  max_participations: int
  noise_multiplier: float
  l2_norm_clip: float | None
  clients_per_round: int
  num_rounds: int
  delta: float
  squared_sensitivity: float
  sensitivity_is_exact: bool = True
  neighboring_relation: run_events.NeighboringRelation = (
      run_events.NeighboringRelation.ZERO_OUT
  )
  complete_trees: bool = False
  squared_sensitivity_without_completion: float | None = None
  squared_sensitivity_so_far: float | None = None
  adaptive_clipping: Mapping[str, Any] | None = None
  population: int | None = None
  population_origin: str = 'not stated whether public or estimated'
  observed: participation_ledger.Observed | None = None
  insecure_seed: bool = False
  not_covered: str = (
      'training metrics of TFF (loss, accuracy, example counts) and the columns'
      ' ending in .not_covered, which are kept in secret/'
  )
  delta_reason: str = 'chosen by the user'
  hyperparameters: str = _NOT_ACCOUNTED
  architecture: str = _NOT_ACCOUNTED
  early_stopping: str = 'none: the number of rounds follows from the plan'
  pretraining: str = 'none'
  public_data: str = 'none'
  preprocessing: str = 'none'
  audit: str = 'none was made'

  def __post_init__(self):
    for name in (
        'min_index_gap', 'max_participations', 'clients_per_round', 'num_rounds'
    ):
      _checks.integer_at_least(1, **{name: getattr(self, name)})
    _checks.non_negative(noise_multiplier=self.noise_multiplier)
    if self.l2_norm_clip is not None or self.noise_multiplier > 0:
      _checks.clip_norm(l2_norm_clip=self.l2_norm_clip)
    _checks.positive(squared_sensitivity=self.squared_sensitivity)
    _checks.delta(delta=self.delta)
    _checks.optional_integer_at_least(1, population=self.population)
    _checks.one_of((False, True), complete_trees=self.complete_trees)
    _checks.one_of(
        (False, True), sensitivity_is_exact=self.sensitivity_is_exact
    )
    _checks.one_of((False, True), insecure_seed=self.insecure_seed)
    _checks.one_of(
        tuple(run_events.NeighboringRelation),
        neighboring_relation=self.neighboring_relation,
    )
    object.__setattr__(
        self,
        'neighboring_relation',
        run_events.NeighboringRelation(self.neighboring_relation),
    )
    if self.complete_trees:
      self._require(
          'squared_sensitivity_without_completion',
          'the smaller S2 beside the larger one, because trees are completed',
      )
    if self.rounds_begun:
      self._require(
          'squared_sensitivity_so_far',
          f'S2 of the {self.rounds_begun} rounds that were begun',
      )

  @property
  def rounds_begun(self) -> int:
    """Rounds whose cohort was committed: they count as spent."""
    return self.observed.num_rounds if self.observed else 0

  def _require(self, name: str, allowed: str) -> None:
    if getattr(self, name) is None:
      raise _checks.ArgumentError(name, None, allowed)
    _checks.positive(**{name: getattr(self, name)})
