# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Facts that a privacy statement needs and no plan can know."""

import dataclasses
from typing import Optional

from tff_dp import _checks

NOT_DECLARED = 'not declared'
_NOT_ACCOUNTED = 'not accounted for: may have used the protected data'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declarations:
  """Facts that the person who runs the training declares.

  All but the population are sentences in one line, or 'none'. By default they
  say that nothing is declared or accounted for. Two say more by default:
  `delta_reason`, that the user chose delta, and `not_covered`, that TFF's
  training metrics have no noise.

  Attributes:
    population: Number of clients, `None` if unknown.
    population_origin: Whether the number of clients is public or an estimate.
    delta_reason: Why this delta was chosen.
    hyperparameters: How the hyperparameters were chosen, and whether that is
      accounted for.
    architecture: How the model was chosen.
    early_stopping: Whether results decided when to stop.
    pretraining: Where the initial weights come from, above all frozen ones.
    public_data: Data outside the protected population that was used.
    preprocessing: Whether vocabularies or normalisers saw private data.
    not_covered: Values that are released but not covered by epsilon.
    audit: What attacks on the model have shown.
    model_name: Name of the model.
    data_name: Name of the data that are protected.
    responsible: Name of the person who answers for the training.
  """

  population: Optional[int] = None
  population_origin: str = 'not stated whether public or estimated'
  delta_reason: str = 'chosen by the user'
  hyperparameters: str = _NOT_ACCOUNTED
  architecture: str = _NOT_ACCOUNTED
  early_stopping: str = NOT_DECLARED
  pretraining: str = NOT_DECLARED
  public_data: str = NOT_DECLARED
  preprocessing: str = NOT_DECLARED
  not_covered: str = (
      'training metrics of TFF (loss, accuracy, example counts) and columns that'
      ' end in .not_covered: tff_dp.program.train keeps them in secret/; whoever'
      ' prints or publishes them releases them without noise'
  )
  audit: str = NOT_DECLARED
  model_name: str = NOT_DECLARED
  data_name: str = NOT_DECLARED
  responsible: str = NOT_DECLARED

  @property
  def says_pretraining(self) -> bool:
    """Whether somebody has declared where the initial weights come from."""
    return not self.pretraining.startswith(NOT_DECLARED)

  def __post_init__(self):
    for name, value in vars(self).items():
      if name == 'population':
        _checks.optional_integer_at_least(1, population=value)
      elif (
          not isinstance(value, str)
          or not value.strip()
          or not value.isprintable()
      ):
        raise _checks.ArgumentError(
            name,
            value,
            "a line of printable text that is not blank, such as 'none'",
        )
