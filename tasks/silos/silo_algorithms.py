# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The algorithms that the silos' tasks compare.

All step sizes come from numbers c, whose grid is the same for every task:

    minibatch SGD                 eta = c / beta
    accelerated                   gamma = 8 beta / c
    localised                     lambda = beta / (8 c), four phases
    local SGD, steps of a silo    eta = c / (beta * local steps)

where beta is the declared smoothness of the loss for records of norm 1. A silo
of n records uses K = floor(n sqrt(E / (4 R))) of them in each of R rounds of
several passes, where E is the largest epsilon that is compared
(arXiv:2106.09779, experiments). In a round of a single pass it uses floor(n /
R).
"""

from collections.abc import Callable, Mapping
import dataclasses
import math
from typing import Any, Optional

from tasks.reproduce.published import silo_noise
from tasks.silos import silo_models
from tasks.silos import silo_preprocessing
from tff_dp import _checks
from tff_dp.systems.silos import silo_budget
from tff_dp.systems.silos import silo_sampling

NOISY_MB_SGD = 'noisy_mb_sgd'
ISRL_LOCAL_SGD = 'isrl_local_sgd'
# Name of an error that is 1 for who predicts the mean label.
RELATIVE_RMSE = 'relative RMSE'
# Beyond what any record of these tasks has, so that nothing is clipped.
_NO_CLIP = 1e6
EQUAL, BY_RECORDS = 'equal', 'records'
WEIGHTINGS = (EQUAL, BY_RECORDS)
_PHASES = 4
# Of the loss, for records of norm 1.
_SMOOTHNESS = {
    silo_models.LOGISTIC: 0.25,
    silo_models.SQUARED: 1.0,
    silo_models.SOFTMAX: 0.5,
}
Silos = Mapping[str, silo_budget.SiloBudget]


@dataclasses.dataclass(frozen=True)
class Problem:
  """A task's data and model.

  Attributes:
    name: Name of the folder.
    title: Name in words.
    loss: Name of a loss of `silo_models`.
    split: Function seed -> `silo_preprocessing.Split`. The sizes do not depend
      on the seed.
    num_features: Length of a record, the constant included.
    num_classes: Number of classes, for softmax.
    silos_per_round: Number of silos that can be reached in a round, `None` for
      all.
    notes: Sentences about data and preprocessing, for the report.
  """

  name: str
  title: str
  loss: str
  split: Callable[[int], silo_preprocessing.Split]
  num_features: int
  num_classes: int = 1
  silos_per_round: Optional[int] = None
  notes: tuple[str, ...] = ()

  @property
  def smoothness(self) -> float:
    """The declared smoothness beta, for records of norm 1."""
    return _SMOOTHNESS[self.loss]

  @property
  def error_name(self) -> str:
    if self.loss == silo_models.SQUARED:
      return RELATIVE_RMSE
    return 'test error'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
  """The settings of the algorithms besides the problem.

  Attributes:
    rounds: Number of rounds R of several passes.
    one_pass_rounds: Number of rounds R of a single pass.
    local_steps: Number of steps of a silo between two messages of local SGD.
    l2_norm_clip: Bound C on the norm of each record's gradient. Runs without
      privacy clip nothing.
    epsilon_factors: Budget of each silo, in order, divided by the row's
      epsilon. `None` for equal budgets.
    weighting: Weights of the silos in training, 'equal' or by 'records'.
    largest_epsilon: Epsilon E that sets the number of records of a round.
  """

  rounds: int
  one_pass_rounds: int
  local_steps: int
  l2_norm_clip: float
  epsilon_factors: Optional[tuple[float, ...]] = None
  weighting: str = EQUAL
  largest_epsilon: float = 16.0

  def __post_init__(self):
    _checks.positive(largest_epsilon=self.largest_epsilon)
    _checks.integer_at_least(1, rounds=self.rounds)
    _checks.integer_at_least(1, one_pass_rounds=self.one_pass_rounds)
    _checks.integer_at_least(1, local_steps=self.local_steps)
    _checks.positive(l2_norm_clip=self.l2_norm_clip)
    for factor in self.epsilon_factors or ():
      _checks.positive(epsilon_factors=factor)
    _checks.one_of(WEIGHTINGS, weighting=self.weighting)


@dataclasses.dataclass(frozen=True)
class Algorithm:
  """One row of the comparison.

  Attributes:
    name: Name as a flag's value.
    title: Name in tables.
    is_private: Whether silos add noise.
  """

  name: str
  title: str
  is_private: bool = True

  def budgets(
      self, num_records: Mapping[str, int], epsilon: float, sizes: Sizes
  ) -> Silos:
    """Returns the budget and weight of each silo, with delta 1 / n^2.

    Args:
      num_records: Number of training records by silo.
      epsilon: Epsilon of the row, infinity for no privacy.
      sizes: Settings with the factors and the weighting.
    """
    factors = sizes.epsilon_factors or (1.0,) * len(num_records)
    if len(factors) != len(num_records):
      raise _checks.ArgumentError(
          'epsilon_factors',
          list(factors),
          f'a factor for each of {", ".join(num_records)}',
      )
    has_weights = sizes.weighting == BY_RECORDS
    total = sum(num_records.values())
    return {
        name: silo_budget.SiloBudget(
            count,
            epsilon=None if epsilon == math.inf else epsilon * factor,
            weight=count / total if has_weights else None,
        )
        for factor, (name, count) in zip(factors, num_records.items())
    }

  def sampling(self, silos: Silos, sizes: Sizes) -> dict[str, Any]:
    """Returns the sampling of each silo's records in a round.

    This is not for the localised algorithm, whose phases have samplings of
    their own.
    """
    if self._is_local:
      return {name: silo_sampling.FixedSize(1) for name in silos}
    if self._is_one_pass:
      return {
          name: silo_sampling.DisjointBlocks(
              max(1, silo.num_records // sizes.one_pass_rounds)
          )
          for name, silo in silos.items()
      }
    return {
        name: silo_sampling.PoissonSampling(
            silo_noise.paper_moments_batch(
                num_records=silo.num_records,
                num_rounds=sizes.rounds,
                largest_epsilon=sizes.largest_epsilon,
            )
        )
        for name, silo in silos.items()
    }

  def num_rounds(self, sizes: Sizes) -> int:
    if self._is_localized:
      return sum(_rounds_per_phase(sizes))
    return sizes.one_pass_rounds if self._is_one_pass else sizes.rounds

  def num_releases(self, sizes: Sizes) -> int:
    """Returns the number of noised releases of a silo, with all local steps."""
    return self.num_rounds(sizes) * (sizes.local_steps if self._is_local else 1)

  def facts(self, sizes: Sizes) -> dict[str, Any]:
    """Returns the settings in `sizes` on which this algorithm depends."""
    facts = {'rounds': self.num_rounds(sizes)}
    if self.is_private:
      facts['l2_norm_clip'] = sizes.l2_norm_clip
      if sizes.epsilon_factors is not None:
        facts['epsilon_factors'] = list(sizes.epsilon_factors)
    if sizes.weighting != EQUAL:
      facts['weighting'] = sizes.weighting
    if self._is_local:
      facts['local_steps'] = sizes.local_steps
    if sizes.largest_epsilon != Sizes.largest_epsilon:
      facts['largest_epsilon'] = sizes.largest_epsilon
    return facts

  def clip(self, sizes: Sizes) -> float:
    return sizes.l2_norm_clip if self.is_private else _NO_CLIP

  def build(
      self, problem: Problem, silos: Silos, sizes: Sizes, *, scale: float
  ):
    """Returns a `SiloProcess` that is compiled once for all epsilons.

    Its noise is a stand-in, which `with_terms` replaces: the noise of a silo is
    not part of the graph, but comes with its data.

    Args:
      problem: Problem with model and loss.
      silos: Name -> budget.
      sizes: Settings of the algorithm.
      scale: Number c that sets the step size.
    """
    from tff_dp import silos as silos_lib  # pylint: disable=g-import-not-at-top

    _checks.positive(scale=scale)
    model = silo_models.build(
        problem.loss, problem.num_features, problem.num_classes
    )
    arguments = dict(
        silos=silos,
        l2_norm_clip=self.clip(sizes),
        noise_stddev=1.0 if self.is_private else 0.0,
    )
    beta = problem.smoothness
    if self._is_localized:
      return silos_lib.build_localized_mb_sgd(
          model,
          lipschitz=self.clip(sizes),
          regularization=beta / (8.0 * scale),
          rounds_per_phase=_rounds_per_phase(sizes),
          smoothness=beta,
          batch_share=_batch_share(sizes),
          **arguments,
      )
    arguments['num_rounds'] = self.num_rounds(sizes)
    if self._is_local:
      return silos_lib.build_isrl_local_sgd(
          model,
          num_local_steps=sizes.local_steps,
          learning_rate=scale / (beta * sizes.local_steps),
          averaging='last_8',
          **arguments,
      )
    arguments['sampling'] = self.sampling(silos, sizes)
    if self._is_accelerated:
      return silos_lib.build_accelerated_mb_sgd_erm(
          model, gamma=8.0 * beta / scale, **arguments
      )
    return silos_lib.build_noisy_mb_sgd(
        model, learning_rate=scale / beta, averaging='last_8', **arguments
    )

  def terms(self, silos: Silos, sizes: Sizes) -> dict[str, Any]:
    """Returns name -> `SiloTerms`, with the least noise for the budgets.

    Args:
      silos: Name -> budget.
      sizes: Settings as for `build`.
    """
    # pylint: disable=g-import-not-at-top
    from tff_dp.systems.silos import accelerated
    from tff_dp.systems.silos import planning

    # pylint: enable=g-import-not-at-top

    if self._is_localized:
      return accelerated.localized_terms(
          silos,
          _rounds_per_phase(sizes),
          batch_share=_batch_share(sizes),
          l2_norm_clip=self.clip(sizes),
          options=planning.Options(),
      )
    return planning.one_phase_terms(
        silos,
        self.sampling(silos, sizes),
        self.num_releases(sizes),
        self.clip(sizes),
        planning.Options(),
    )

  def with_terms(self, process, silos: Silos, terms: Mapping[str, Any]):
    """Returns the process for other budgets, without compiling anew.

    Args:
      process: Result of `build`.
      silos: Name -> budget.
      terms: Result of `terms` for these budgets.
    """
    return process.with_plan(
        dataclasses.replace(process.plan, silos=silos, terms=terms)
    )

  @property
  def _is_local(self) -> bool:
    return self.name in (ISRL_LOCAL_SGD, 'local_sgd')

  @property
  def _is_localized(self) -> bool:
    return self.name == 'localized'

  @property
  def _is_accelerated(self) -> bool:
    return self.name in ('one_pass_accelerated', 'accelerated_erm')

  @property
  def _is_one_pass(self) -> bool:
    return self.name in ('one_pass_accelerated', 'one_pass_mb_sgd')


_ALL = (
    Algorithm('mb_sgd', 'MB-SGD without noise', is_private=False),
    Algorithm('local_sgd', 'local SGD without noise', is_private=False),
    Algorithm(NOISY_MB_SGD, 'noisy MB-SGD'),
    Algorithm('accelerated_erm', 'accelerated, several passes'),
    Algorithm('one_pass_accelerated', 'accelerated, one pass'),
    Algorithm('one_pass_mb_sgd', 'noisy MB-SGD, one pass'),
    Algorithm('localized', 'localised, four phases'),
    Algorithm(ISRL_LOCAL_SGD, 'ISRL local SGD'),
)
BY_NAME = {algorithm.name: algorithm for algorithm in _ALL}
# One pass without acceleration is for those who ask.
DEFAULT = tuple(name for name in BY_NAME if name != 'one_pass_mb_sgd')


def _rounds_per_phase(sizes: Sizes) -> tuple[int, ...]:
  """Returns the rounds of the localised algorithm's phases, all equal."""
  return (max(1, sizes.rounds // _PHASES),) * _PHASES


def _batch_share(sizes: Sizes) -> float:
  """Returns K / n of a phase, as for several passes with as many rounds."""
  rounds = _rounds_per_phase(sizes)[0]
  return min(1.0, math.sqrt(sizes.largest_epsilon / (4 * rounds)))
