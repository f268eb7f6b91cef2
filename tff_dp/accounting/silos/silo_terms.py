# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The constants of a silo: how it samples, clips and noises, and what it costs.

A run has one phase, or several that use disjoint records (localisation).
"""

import collections
from collections.abc import Mapping, Sequence
import dataclasses
import functools
from typing import Any, Optional

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.silos import silo_events
from tff_dp.accounting.silos import silo_sampling


@dataclasses.dataclass(frozen=True)
class Phase:
  """Rounds of a silo that draw from one range of its records.

  Attributes:
    sampling: How a round chooses records.
    first_record: Where the range begins; positions are 0-based.
    num_records: Length of the range.
    num_rounds: Rounds of the phase; steps, for local SGD.
    noise_stddev: sigma, per coordinate of the silo's mean gradient, before
      `SiloTerms.scale`.
    accounted_stddev: The sigma that is accounted: smaller where metrics are
      released beside the gradient, see `metrics`; `None` for `noise_stddev`.
  """

  sampling: silo_sampling.Sampling
  first_record: int
  num_records: int
  num_rounds: int
  noise_stddev: float
  accounted_stddev: Optional[float] = None

  def __post_init__(self):
    _checks.take_python_numbers(self)
    _checks.integer_at_least(0, first_record=self.first_record)
    _checks.integer_at_least(1, num_records=self.num_records)
    _checks.integer_at_least(1, num_rounds=self.num_rounds)
    _checks.non_negative(noise_stddev=self.noise_stddev)
    self.sampling.check(
        num_records=self.num_records, num_rounds=self.num_rounds
    )

  @property
  def batch_size(self) -> float:
    """K of its sampling, by which sums over a batch are divided."""
    return self.sampling.batch_size

  def event(
      self, round_in_phase: int, l2_norm_clip: float, scale: float
  ) -> silo_events.SiloEvent:
    """Returns what one round costs the silo.

    Args:
      round_in_phase: 0-based.
      l2_norm_clip: C.
      scale: Of the message.
    """
    first = self.first_record
    if isinstance(self.sampling, silo_sampling.DisjointBlocks):
      first += round_in_phase * self.sampling.batch
    return silo_events.SiloEvent(
        sampling=self.sampling,
        num_records=self.num_records,
        l2_norm_clip=l2_norm_clip,
        sigma=self.sigma,
        scale=scale,
        first_record=first,
    )

  @property
  def sigma(self) -> float:
    """The noise that is accounted."""
    if self.accounted_stddev is None:
      return self.noise_stddev
    return self.accounted_stddev

  def describe(self) -> dict[str, Any]:
    """Returns the phase as plain JSON types, for `from_description`."""
    facts = {
        field.name: getattr(self, field.name)
        for field in dataclasses.fields(self)
    }
    return facts | {'sampling': self.sampling.to_json()}

  @classmethod
  def from_description(cls, described: Mapping[str, Any]) -> 'Phase':
    """Returns the phase whose `describe()` this is."""
    sampling = silo_sampling.from_json(described['sampling'])
    return cls(**dict(described) | {'sampling': sampling})


@dataclasses.dataclass(frozen=True)
class SiloTerms:
  """The constants of one silo. Public: they follow from sizes and budgets.

  Attributes:
    num_records: Training records n_i.
    l2_norm_clip: C, to which the silo clips the gradient of every record.
    phases: In order.
    scale: Factor on the whole message, noise included: N p_i for an objective
      sum p_i F_i.
    metric_stddevs: Noise on the silo's mean of each private metric, by phase.
  """

  num_records: int
  l2_norm_clip: float
  phases: tuple[Phase, ...]
  scale: float = 1.0
  metric_stddevs: tuple[tuple[float, ...], ...] = ()

  def __post_init__(self):
    _checks.take_python_numbers(self)
    _checks.integer_at_least(1, num_records=self.num_records)
    _checks.clip_norm(l2_norm_clip=self.l2_norm_clip)
    _checks.positive(scale=self.scale)
    end = 0
    for phase in self.phases:
      if phase.first_record < end:
        raise _checks.ArgumentError(
            'first_record', phase.first_record, f'at least {end}: phases use'
            ' disjoint records'
        )
      end = phase.first_record + phase.num_records
    if not 0 < end <= self.num_records:
      raise _checks.ArgumentError(
          'phases', end, f'phases within the {self.num_records} records'
      )

  @property
  def num_rounds(self) -> int:
    """Rounds of all phases."""
    return sum(phase.num_rounds for phase in self.phases)

  def event(self, round_index: int) -> silo_events.SiloEvent:
    """Returns what one round of the run costs the silo.

    Args:
      round_index: 0-based.
    """
    _checks.integer_between(0, self.num_rounds - 1, round_index=round_index)
    phase_of, round_in_phase = phase_table(self.phases)
    phase = self.phases[phase_of[round_index]]
    return phase.event(
        int(round_in_phase[round_index]), self.l2_norm_clip, self.scale
    )

  def events(
      self, messages: Optional[Sequence[int] | np.ndarray] = None
  ) -> dict[silo_events.SiloEvent, int]:
    """Returns how often each event occurs in the run, or in a part of it.

    Args:
      messages: Which rounds of the run (of local SGD, steps), 0-based and in
        order; `None` for all of them.
    """
    phase_of, round_in_phase = phase_table(self.phases)
    if messages is not None:
      chosen = np.asarray(messages, np.int64)
      phase_of, round_in_phase = phase_of[chosen], round_in_phase[chosen]
    counts = collections.Counter()
    for index, phase in enumerate(self.phases):
      rounds = round_in_phase[phase_of == index]
      if not rounds.size:
        continue
      if isinstance(phase.sampling, silo_sampling.DisjointBlocks):
        counts.update(
            phase.event(int(r), self.l2_norm_clip, self.scale) for r in rounds
        )
      else:
        event = phase.event(0, self.l2_norm_clip, self.scale)
        counts[event] += rounds.size
    return dict(counts)

  def num_messages(self, messages: Sequence[int] | np.ndarray) -> tuple:
    """Returns how many of some rounds of the run are in each phase."""
    phase_of, _ = phase_table(self.phases)
    counts = np.bincount(
        phase_of[np.asarray(messages, np.int64)], minlength=len(self.phases)
    )
    return tuple(counts.tolist())

  @functools.lru_cache(maxsize=4096)
  def epsilon(
      self,
      delta: float,
      *,
      published_proofs: bool = False,
      num_messages: Optional[tuple[int, ...]] = None,
  ) -> float:
    """Returns what the run costs a record. Upper bound.

    Phases use disjoint records, so it is the maximum over them.

    Args:
      delta: In (0, 1).
      published_proofs: As in `silo_sampling`.
      num_messages: How many rounds of each phase count; `None` for all.
    """
    if num_messages is None:
      num_messages = tuple(phase.num_rounds for phase in self.phases)
    return max(
        (
            silo_sampling.account_noise(
                phase.sampling,
                num_records=phase.num_records,
                num_rounds=count,
                l2_norm_clip=self.l2_norm_clip,
                sigma=phase.sigma,
                delta=delta,
                published_proofs=published_proofs,
            )
            for phase, count in zip(self.phases, num_messages, strict=True)
            if count
        ),
        default=0.0,
    )

  def describe(self) -> dict[str, Any]:
    """Returns the constants as plain JSON types, for `from_description`."""
    return {
        'num_records': self.num_records,
        'l2_norm_clip': self.l2_norm_clip,
        'phases': [phase.describe() for phase in self.phases],
        'scale': self.scale,
        'metric_stddevs': [list(stddevs) for stddevs in self.metric_stddevs],
    }

  @classmethod
  def from_description(cls, described: Mapping[str, Any]) -> 'SiloTerms':
    """Returns the constants whose `describe()` this is."""
    return cls(**dict(described) | {
        'phases': tuple(map(Phase.from_description, described['phases'])),
        'metric_stddevs': tuple(map(tuple, described['metric_stddevs'])),
    })


@functools.lru_cache(maxsize=64)
def phase_table(phases: tuple[Phase, ...]) -> tuple[np.ndarray, np.ndarray]:
  """Returns (phase, round within it) of every round of a run, both 0-based."""
  lengths = [phase.num_rounds for phase in phases]
  return (
      np.repeat(np.arange(len(lengths)), lengths),
      np.concatenate([np.arange(length) for length in lengths]),
  )
