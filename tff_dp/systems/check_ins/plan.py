# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The plan of a run whose clients decide when to report, and add the noise.

The plan holds participation, noise and accounting in one object, so that they
cannot drift apart:

    plan = tff_dp.CheckInPlan(
        tff_dp.check_ins.ShuffledCheckIn(
            num_rounds=6800, check_in_rate=0.1, min_num_clients=60_000),
        tff_dp.mechanisms.randomizers.Sphere(2.0, l2_norm_clip=0.1),
    )
    plan.epsilon(delta=1e-5)

Making a plan and reading its epsilon needs no TensorFlow.
"""

import dataclasses
from typing import Any, Optional

import dp_accounting

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.accounting.events import run_events
from tff_dp.mechanisms import randomizers
from tff_dp.participation import protocol as protocol_lib
from tff_dp.plans import protocol_plan
from tff_dp.statement import builder
from tff_dp.systems.check_ins import shuffled
from tff_dp.systems.check_ins import statement
from tff_dp.systems.check_ins import windows

_PROTOCOLS = (
    shuffled.ShuffledCheckIn,
    shuffled.ShuffledReports,
    windows.AveragedCheckIn,
    windows.FixedWindowCheckIn,
    windows.SlidingWindowCheckIn,
)


@_calls.helpful
@dataclasses.dataclass(frozen=True)
class CheckInPlan(protocol_plan.ProtocolPlan):
  """Protocol and local randomizer of one run. Adjacency is replace-one.

  Attributes:
    randomizer: Randomizer that a client applies to its report before sending
      it.
  """

  randomizer: randomizers.LocalRandomizer

  kind = 'check_ins'
  is_local = True
  neighboring_relation = run_events.NeighboringRelation.REPLACE_ONE

  def __post_init__(self):
    _checks.instance_of(
        protocol_lib.Protocol,
        'a protocol, such as tff_dp.check_ins.ShuffledCheckIn(...)',
        protocol=self.protocol,
    )
    _checks.instance_of(
        randomizers.LocalRandomizer,
        'a local randomizer of tff_dp.mechanisms.randomizers',
        randomizer=self.randomizer,
    )
    if self.protocol.noise_is_central:
      raise _checks.PrivacyRefusedError(
          f'{self.protocol.name} is not defined with a local randomizer',
          why='the guarantee of this protocol is about one Gaussian draw on the'
          ' sum of every slot',
          way_out='tff_dp.AllocationPlan(protocol, noise_multiplier=...,'
          ' l2_norm_clip=...), or FixedWindowCheckIn or AveragedCheckIn with'
          ' the local randomizer',
      )
    self._check_protocol()
    self._check_bound()

  @property
  def built_by(self) -> str:
    """See base class."""
    name = 'build_check_in_sgd'
    behind_shuffler = shuffled.ShuffledCheckIn, shuffled.ShuffledReports
    if isinstance(self.protocol, behind_shuffler):
      name = 'build_shuffled_check_in_sgd'
    return f'tff_dp.check_ins.{name}(model, plan, ...)'

  @property
  def noise_multiplier(self) -> Optional[float]:
    """Std of Gaussian noise over the clip norm. `None` for other noise."""
    return getattr(self.randomizer, 'noise_multiplier', None)

  @property
  def l2_norm_clip(self) -> Optional[float]:
    """Bound on the L2 norm of a report before its noise. `None` without one."""
    return getattr(self.randomizer, 'l2_norm_clip', None)

  @property
  def report_event(self) -> dp_accounting.DpEvent:
    """See base class."""
    return self.randomizer.event

  def aggregator(self, **options: Any) -> None:
    """Raises `PrivacyRefusedError`: the clients add the noise, see `built_by`.
    """
    del options
    raise _checks.PrivacyRefusedError(
        f'{self.protocol.name} has no noise at the server',
        why='its clients randomize their reports before they send them',
        way_out=self.built_by,
    )

  @property
  def _start_noise(self) -> float:
    return self.noise_multiplier or 1 / self.randomizer.local_epsilon

  def _with_noise(self, noise: float) -> 'CheckInPlan':
    # In the randomizer only `noise_multiplier` or `local_epsilon` changes.
    change = (
        {'local_epsilon': 1 / noise}
        if self.noise_multiplier is None
        else {'noise_multiplier': noise}
    )
    randomizer = dataclasses.replace(self.randomizer, **change)
    return dataclasses.replace(self, randomizer=randomizer)

  def epsilon(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      neighboring_relation: Optional[run_events.NeighboringRelation] = None,
  ) -> float:
    """Returns epsilon of everything that the run releases.

    Args:
      delta: Target delta, in (0, 1). It may also be 0 if the randomizer has
        delta 0 and its draws are not bounded (`draws_end` is false). Then the
        result is the sum of the local epsilons, without amplification.
      num_rounds: Number of rounds after which the run stops, `None` for all.
      neighboring_relation: Relation of epsilon. Default: the relation of the
        plan.
    """
    if delta == 0 and self._is_pure:
      return self._pure_epsilon(num_rounds, neighboring_relation)
    return super().epsilon(
        delta=delta,
        num_rounds=num_rounds,
        neighboring_relation=neighboring_relation,
    )

  @property
  def _is_pure(self) -> bool:
    is_declared = isinstance(self.randomizer, randomizers.Declared)
    return not self.draws_end and not (
        is_declared and self.randomizer.local_delta
    )

  def _pure_epsilon(self, num_rounds, relation) -> float:
    """Returns the local epsilon times a client's largest number of reports.

    For replace-one.
    """
    replace_one = run_events.NeighboringRelation.REPLACE_ONE
    _checks.one_of((None, replace_one), neighboring_relation=relation)
    num_rounds = self._stops_at(num_rounds)
    passes_begun = -(-num_rounds // self.protocol.num_rounds)
    reports = min(num_rounds, passes_begun * self.protocol.max_reports)
    return reports * self.randomizer.local_epsilon

  @property
  def draws_end(self) -> bool:
    """See base class."""
    # Only the bound of a declared randomizer is known, and it may be exact.
    finite = (
        randomizers.Sphere,
        randomizers.RandomizedResponse,
        randomizers.Declared,
    )
    return not isinstance(self.randomizer, finite)

  def details(
      self, *, delta: float, num_rounds: Optional[int] = None, **options
  ) -> dict[str, Any]:
    """See base class."""
    found = super().details(delta=delta, num_rounds=num_rounds, **options)
    return found | {'randomizer': self.randomizer.describe()}

  def _facts(self) -> dict[str, Any]:
    return super()._facts() | {'randomizer': self.randomizer.describe()}

  @classmethod
  def _from_facts(cls, facts: dict[str, Any]) -> 'CheckInPlan':
    protocol = protocol_lib.from_description(facts.pop('protocol'), _PROTOCOLS)
    randomizer = randomizers.from_description(facts.pop('randomizer'))
    return cls(protocol, randomizer, **facts)

  def _points(self, about: builder.Occasion) -> dict[str, Any]:
    return super()._points(about) | statement.points(self)
