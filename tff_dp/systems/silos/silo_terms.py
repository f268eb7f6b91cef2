# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The constants of a silo: its sampling, clipping, noise and privacy loss.

A run has one phase, or several phases that use disjoint records (localisation).
"""

import collections
from collections.abc import Mapping, Sequence
import dataclasses
import functools
from typing import Any, Optional

import numpy as np

from tff_dp import _checks
from tff_dp.systems.silos import silo_events
from tff_dp.systems.silos import silo_sampling


@dataclasses.dataclass(frozen=True)
class Phase:
  """Rounds of a silo that draw from one range of its records.

  Attributes:
    sampling: Rule that chooses the records of a round.
    first_record: First position of the range, 0-based.
    num_records: Length of the range.
    num_rounds: Number of rounds of the phase, or of steps for local SGD.
    noise_stddev: Noise std sigma per coordinate of the silo's mean gradient,
      before `SiloTerms.scale`.
    accounted_stddev: Noise std that is accounted for. It is smaller than
      `noise_stddev` if metrics are released next to the gradient, see
      `metrics`. `None` means `noise_stddev`.
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
    """The batch size K, by which sums over a batch are divided."""
    return self.sampling.batch_size

  def event(
      self, round_in_phase: int, l2_norm_clip: float, scale: float
  ) -> silo_events.SiloEvent:
    """Returns the event of one round of the silo.

    Args:
      round_in_phase: Index of the round in the phase, 0-based.
      l2_norm_clip: Clip norm C.
      scale: Factor on the message.
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
    """The noise std that is accounted for."""
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
    """Returns the phase from the output of `describe`."""
    sampling = silo_sampling.from_json(described['sampling'])
    return cls(**dict(described) | {'sampling': sampling})


@dataclasses.dataclass(frozen=True)
class SiloTerms:
  """The constants of one silo. They are public, and do not depend on records.

  Attributes:
    num_records: Number of training records n_i.
    l2_norm_clip: Clip norm C of the gradient of every record.
    phases: Phases in order.
    scale: Factor on the whole message, noise included: N p_i if the objective
      of N silos is the sum of p_i F_i, with weights p_i. Else 1.
    metric_stddevs: One tuple for each phase, with the noise std on the silo's
      mean of each private metric. Empty without metrics.
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
          'phases',
          f'phases over {end} records',
          f'phases within the {self.num_records} records of the silo',
      )

  @property
  def num_rounds(self) -> int:
    """Number of rounds of all phases."""
    return sum(phase.num_rounds for phase in self.phases)

  def event(self, round_index: int) -> silo_events.SiloEvent:
    """Returns the event of one round of the run.

    Args:
      round_index: Index of the round, 0-based.
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
    """Returns how often each event occurs in some rounds of the run.

    Args:
      messages: Rounds of the run (steps, for local SGD), 0-based and in order.
        `None` means all of them.
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
    """Returns for each phase how many of the given rounds belong to it."""
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
    """Returns the epsilon of the run for a record. Upper bound.

    Phases use disjoint records, so this is the maximum over the phases.

    Args:
      delta: Target delta, in (0, 1).
      published_proofs: Whether to use only published bounds, as in
        `silo_sampling`.
      num_messages: Number of rounds to count in each phase. `None` means all.
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
    """Returns the constants from the output of `describe`."""
    return cls(**dict(described) | {
        'phases': tuple(map(Phase.from_description, described['phases'])),
        'metric_stddevs': tuple(map(tuple, described['metric_stddevs'])),
    })


@functools.lru_cache(maxsize=64)
def phase_table(phases: tuple[Phase, ...]) -> tuple[np.ndarray, np.ndarray]:
  """Returns (phase, round within it) of every round of a run, both 0-based."""
  lengths = [phase.num_rounds for phase in phases]
  found = (
      np.repeat(np.arange(len(lengths)), lengths),
      np.concatenate([np.arange(length) for length in lengths]),
  )
  for each in found:
    each.setflags(write=False)
  return found
