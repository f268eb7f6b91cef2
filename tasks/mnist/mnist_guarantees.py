# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The guarantee of a row of the MNIST task, and the formulas of papers.

Certified and published numbers are kept apart: a published formula that does not
hold is marked so wherever its value is shown, and is never taken for an epsilon.
"""

from collections.abc import Iterator
import dataclasses
import math
from typing import Any
import warnings

import dp_accounting

from tasks.mnist import mnist_rows
from tasks.reproduce.published import check_ins as published
from tff_dp.accounting import accountants
from tff_dp.accounting import rounding
from tff_dp.accounting.events import run_events
from tff_dp.mechanisms import randomizers
from tff_dp.systems.check_ins import shuffled

_POISSON = 'poisson'
_NO_BOUND = 'none'


@dataclasses.dataclass(frozen=True)
class Published:
  """The value of a paper's formula.

  Attributes:
    formula: Paper and number of the formula.
    value: Value of the formula, infinity if it is vacuous.
    flaw: Reason why the formula does not hold. Empty if it holds.
  """

  formula: str
  value: float
  flaw: str = ''

  @property
  def holds(self) -> bool:
    return not self.flaw

  def __str__(self) -> str:
    value = 'vacuous' if math.isinf(self.value) else f'{self.value:.3g}'
    return f'{value} ({"holds" if self.holds else "UNCERTIFIED"})'


@dataclasses.dataclass(frozen=True)
class Guarantee:
  """The privacy cost of one run of a row for a client.

  Attributes:
    delta: Delta at which the epsilons hold.
    epsilon: Smallest certified epsilon, infinity if there is none.
    bound: Name of the bound that gives epsilon.
    epsilon_no_amplification: Epsilon without amplification.
    neighboring_relation: Relation of epsilon, empty without a guarantee.
    candidates: Pairs (bound, epsilon) of all bounds that were tried.
    published: Values of formulas in papers.
  """

  delta: float
  epsilon: float
  bound: str
  epsilon_no_amplification: float
  neighboring_relation: str
  candidates: tuple[tuple[str, float], ...] = ()
  published: tuple[Published, ...] = ()

  def to_json(self) -> dict[str, Any]:
    """Returns everything as JSON types; infinity is 'inf'."""
    number = rounding.to_json_number
    return {
        'delta': self.delta,
        'epsilon': number(self.epsilon),
        'bound': self.bound,
        'epsilon_no_amplification': number(self.epsilon_no_amplification),
        'neighboring_relation': self.neighboring_relation,
        'unit': 'client',
        'candidates': {name: number(value) for name, value in self.candidates},
        'published': [
            {
                'formula': found.formula,
                'value': number(found.value),
                'certified': found.holds,
                'flaw': found.flaw,
            }
            for found in self.published
        ],
    }

  @classmethod
  def from_json(cls, content: dict[str, Any]) -> 'Guarantee':
    """Returns the guarantee that `to_json` was called on."""
    number = rounding.from_json_number
    return cls(
        delta=content['delta'],
        epsilon=number(content['epsilon']),
        bound=content['bound'],
        epsilon_no_amplification=number(content['epsilon_no_amplification']),
        neighboring_relation=content['neighboring_relation'],
        candidates=tuple(
            (name, number(value))
            for name, value in content['candidates'].items()
        ),
        published=tuple(
            Published(found['formula'], number(found['value']), found['flaw'])
            for found in content['published']
        ),
    )


def of(row: mnist_rows.Row, *, delta: float) -> Guarantee:
  """Returns the guarantee of a whole run of a row.

  Args:
    row: Row of the run.
    delta: Target delta, in (0, 1).
  """
  if row.plan is not None:
    certificate = row.plan.certificate(delta=delta)
    return Guarantee(
        delta=delta,
        epsilon=certificate.epsilon,
        bound=certificate.bound,
        epsilon_no_amplification=certificate.epsilon_no_amplification,
        neighboring_relation=certificate.neighboring_relation.value,
        candidates=tuple(
            (found.bound, found.epsilon) for found in certificate.candidates
        ),
        published=tuple(_published(row, certificate, delta)),
    )
  if row.event is None:
    return nothing(delta)
  epsilon = accountants.epsilon(row.event, delta=delta, method='pld')
  unsampled = accountants.epsilon(_unsampled(row.event), delta=delta)
  return Guarantee(
      delta=delta,
      epsilon=min(epsilon, unsampled),
      bound=_POISSON if epsilon < unsampled else _NO_BOUND,
      epsilon_no_amplification=unsampled,
      neighboring_relation='zero_out',
      candidates=((_NO_BOUND, unsampled), (_POISSON, epsilon)),
  )


def nothing(delta: float) -> Guarantee:
  """Returns the infinite cost of a run without noise, or with known noise."""
  return Guarantee(
      delta=delta,
      epsilon=math.inf,
      bound=_NO_BOUND,
      epsilon_no_amplification=math.inf,
      neighboring_relation='',
  )


def _unsampled(event: dp_accounting.DpEvent) -> dp_accounting.DpEvent:
  """Returns the event of Poisson-sampled rounds if everybody is in each."""
  (leaf, count), = run_events.leaves(event)
  return dp_accounting.SelfComposedDpEvent(leaf.event, count)


def _published(row, certificate, delta: float) -> Iterator[Published]:
  """Yields the values of the formulas in the protocol's paper."""
  for found in certificate.candidates:
    # The closed forms of arXiv:2007.06605 for pure epsilon0.
    if found.bound == 'rci':
      yield Published(found.source, found.epsilon)
  if not isinstance(row.plan.protocol, shuffled.ShuffledCheckIn):
    return
  settings = dict(
      local_epsilon=_local_epsilon(row),
      num_clients=row.num_clients,
      check_in_rate=row.plan.protocol.check_in_rate,
      num_rounds=row.num_updates,
      delta=delta,
  )
  formulas = [
      published.published_sci_approach_1,
      published.published_sci_approach_2,
      published.published_sci_baseline,
  ]
  if isinstance(row.noise, randomizers.Sphere):
    formulas.insert(0, published.published_sci_theorem_2_epsilon)
  for formula in formulas:
    with warnings.catch_warnings():
      # The row says UNCERTIFIED wherever the value is shown.
      warnings.simplefilter('ignore', published.PublishedFormulaWarning)
      found = formula(**settings)
    yield Published(found.formula, found.insecure_float(), found.flaw)


def _local_epsilon(row) -> float:
  """Returns epsilon0. For Gaussian noise it holds at delta0 = n^-1.5."""
  if isinstance(row.noise, randomizers.Sphere):
    return row.noise.local_epsilon
  return mnist_rows.federated_local_epsilon(
      row.noise.noise_multiplier, row.num_clients
  )
