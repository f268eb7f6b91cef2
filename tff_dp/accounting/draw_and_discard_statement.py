# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The statement of what a client is guaranteed: its numbers and its words.

`draw_and_discard.guarantee` computes it.
"""

import dataclasses
import json
import math
from typing import Any, Optional

from tff_dp.accounting import rounding

UNIT = "one client's whole local data set"
ADJACENCY = 'replace_one_client'
COVERS = (
    'everything that is sent to and from the client: local model, the server is'
    ' not trusted'
)
FEATURE_LEVEL = "feature-level; not a guarantee for the client's data"
ASSUMPTIONS = (
    "Neighbours: one client's whole local data set is replaced by any other;"
    ' that the client takes part, when and how often, is public.',
    'Covered: the models sent to and returned by the client, whoever reads'
    ' them, the server included; the rest of the run follows from them.',
    'The clip and the noise are applied on the device, to the whole model, with'
    ' randomness that nobody outside can seed, replay or learn.',
    'Nothing else leaves the device: no metrics without noise, no refusals that'
    ' depend on the data.',
    'Other runs and tuning on the same clients are participations too: they add'
    ' up unless they were counted here.',
    'Floating-point noise is not exactly Laplace or Gaussian (Mironov, 2012).',
)
NO_NOISE = 'no privacy: the clients add no noise'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnostic:
  """A number about a weaker observer, which is no guarantee.

  Attributes:
    name: Of the number.
    epsilon: Its value.
    delta: At which it holds, None if the number knows of none.
    unit: 'model' or 'coordinate': what epsilon is about.
    why_not: Why it is no guarantee of the client's data.
    facts: What else the number depends on.
  """

  name: str
  epsilon: float
  unit: str
  why_not: str
  delta: Optional[float] = None
  facts: dict[str, Any] = dataclasses.field(default_factory=dict)

  def to_json(self) -> dict[str, Any]:
    """Returns JSON types."""
    described = dataclasses.asdict(self)
    described['epsilon'] = rounding.to_json_number(self.epsilon)
    return described


@dataclasses.dataclass(frozen=True, kw_only=True)
class DdmlGuarantee:
  """The guarantee of one client in a run of draw and discard.

  Attributes:
    model_epsilon: Of one participation, at `delta`, for the whole model.
    delta: Of one participation; 0 for pure epsilon.
    total_epsilon: Of all participations of a client. The headline.
    total_delta: Of all participations.
    pure_total_epsilon: Without any delta; infinite for Gaussian noise.
    coordinate_epsilon: Of one weight and one participation. Feature-level.
    participations: For which the total is stated: the largest number that
      occurred, or the cap.
    max_participations: The cap that the clients enforce, None if there is none.
    num_params: p.
    num_instances: k.
    concurrency: m.
    strategy: Of the server; no part of the guarantee.
    noise_scale: Laplace's b or the Gaussian's standard deviation, on weights.
    step: The client's step, as JSON types.
    void: Why there is no guarantee at all, None if there is one.
    assumptions: Sentences on which the guarantee rests.
    non_dp_diagnostics: Numbers that are no guarantee.
  """

  model_epsilon: float
  delta: float
  total_epsilon: float
  total_delta: float
  pure_total_epsilon: float
  coordinate_epsilon: float
  participations: int
  max_participations: Optional[int]
  num_params: int
  num_instances: int
  concurrency: int
  strategy: str
  noise_scale: float
  step: dict[str, Any]
  void: Optional[str]
  assumptions: tuple[str, ...] = ASSUMPTIONS
  non_dp_diagnostics: tuple[Diagnostic, ...] = ()

  @property
  def total(self) -> tuple[float, float]:
    """(total_epsilon, total_delta)."""
    return self.total_epsilon, self.total_delta

  def to_json(self) -> dict[str, Any]:
    """Returns JSON types; infinity as 'inf'."""
    result = {
        'unit': UNIT,
        'adjacency': ADJACENCY,
        'covers': COVERS,
        'void': self.void,
    }
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if isinstance(value, float):
        value = rounding.to_json_number(value)
      result[field.name] = value
    result['coordinate_epsilon_is'] = FEATURE_LEVEL
    result['assumptions'] = list(self.assumptions)
    result['non_dp_diagnostics'] = [
        diagnostic.to_json() for diagnostic in self.non_dp_diagnostics
    ]
    return result

  def to_text(self) -> str:
    """Returns the report in lines, the composed total first."""
    up = rounding.rounded_up
    if self.void is not None:
      lines = [self.void]
    else:
      lines = [
          f'epsilon {up(self.total_epsilon)}{_at(self.total_delta)}, for'
          f" {UNIT}, over {_times(self.participations)}",
          f'  one participation: {up(self.model_epsilon)}{_at(self.delta)}',
      ]
      if self.total_delta > 0 and self.pure_total_epsilon < math.inf:
        lines.append(f'  without any delta: {up(self.pure_total_epsilon)}')
      lines.append(
          f'  one weight ({FEATURE_LEVEL}): {up(self.coordinate_epsilon)}'
      )
    step = self.step
    cap = self.max_participations
    lines += [
        f'neighbours  {UNIT} is replaced by any other',
        f'covers      {COVERS}',
        f'mechanism   {step["mechanism"] or "no noise"},'
        f' scale {self.noise_scale:.6g} on every weight of the model as sent',
        f'clip        {step["clip"]}, {step["clip_norm"]:g}, of the mean'
        f' gradient; learning rate {step["learning_rate"]:g};'
        f' {self.num_params} weights',
        f'server      {self.strategy}, {self.num_instances} instances,'
        f' {self.concurrency} at a time: no part of the guarantee',
        'cap         '
        + (
            'none is enforced: stated for the number given'
            if cap is None
            else f'{_times(cap)} of one client'
        ),
        'draw        the server may see which instance a client drew',
        'assumed',
    ]
    lines += [f'- {sentence}' for sentence in self.assumptions]
    if self.non_dp_diagnostics:
      lines.append('non_dp_diagnostics (none of them is a guarantee)')
    for diagnostic in self.non_dp_diagnostics:
      at = '' if diagnostic.delta is None else _at(diagnostic.delta)
      lines.append(
          f'- {diagnostic.name}, one {diagnostic.unit}: epsilon'
          f' {up(diagnostic.epsilon)}{at}. {diagnostic.why_not}'
      )
    return '\n'.join(lines)

  def __str__(self) -> str:
    return json.dumps(self.to_json(), allow_nan=False)


def _at(delta: float) -> str:
  return '' if delta == 0 else f' at delta {rounding.rounded_up(delta)}'


def _times(count: int) -> str:
  return '1 participation' if count == 1 else f'{count} participations'
