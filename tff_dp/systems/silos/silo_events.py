# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The event of one message of a silo, and the joint loss of messages."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import math
from typing import Any

import dp_accounting
import numpy as np

from tff_dp import _checks
from tff_dp.accounting.curves import composition as parts_lib
from tff_dp.accounting.curves import gaussian
from tff_dp.systems.silos import record_events
from tff_dp.systems.silos import silo_sampling

# (kind of sampling, rate, noise multiplier): everything that the loss of a
# message depends on.
Use = tuple[str, float, float]
# Pairs (kind of message, number of such messages that use a record).
Uses = tuple[tuple[Use, int], ...]


@dataclasses.dataclass(frozen=True)
class SiloEvent:
  """One message of a silo: the sum of clipped vectors, divided by K, and noise.

  Attributes:
    sampling: Rule that chose the batch. K is its (expected) size.
    num_records: Number of records n that the batch was chosen from: the whole
      silo, or a phase's part of it.
    l2_norm_clip: Clip norm C. For several noised means over one batch, see
      `joint_noise_multiplier`.
    sigma: Standard deviation of the noise on the sum divided by K.
    scale: Factor by which sum and noise were then both multiplied. It costs no
      privacy.
    first_record: Position of the first record that the batch was chosen from,
      in the silo's order. With `DisjointBlocks`, position of the first record
      of the block, which is K records long.
  """

  sampling: silo_sampling.Sampling
  num_records: int
  l2_norm_clip: float
  sigma: float
  scale: float = 1.0
  first_record: int = 0

  def __post_init__(self):
    if not isinstance(self.sampling, silo_sampling.Sampling):
      raise TypeError(
          f'sampling={self.sampling!r} is not allowed: expected a'
          ' silo_sampling.Sampling.'
      )
    self.sampling.check(num_records=self.num_records)
    _checks.clip_norm(l2_norm_clip=self.l2_norm_clip)
    _checks.non_negative(sigma=self.sigma)
    _checks.positive(scale=self.scale)
    _checks.integer_at_least(0, first_record=self.first_record)

  @property
  def noise_multiplier(self) -> float:
    """Multiplier sigma K / C: noise std on the sum, over the clip norm."""
    return self.sigma * (float(self.sampling.batch_size) / self.l2_norm_clip)

  @property
  def is_block(self) -> bool:
    """Whether the batch is a block, whose records no other message may use."""
    return isinstance(self.sampling, silo_sampling.DisjointBlocks)

  @property
  def end_record(self) -> int:
    """Position after the last record that the message may have used."""
    size = self.num_records
    if isinstance(self.sampling, silo_sampling.DisjointBlocks):
      size = self.sampling.batch
    return self.first_record + size

  @property
  def use(self) -> Use:
    """Kind, rate and multiplier. At rate 1 the kind is 'gaussian'."""
    rate = self.sampling.rate(self.num_records)
    kind = 'gaussian' if rate == 1 else self.sampling.name
    return kind, rate, self.noise_multiplier

  @property
  def dp_event(self) -> dp_accounting.DpEvent:
    """The event of the message for a record that may be in its batch."""
    multiplier = self.noise_multiplier
    if multiplier == 0:
      return dp_accounting.NonPrivateDpEvent()
    if self.sampling.rate(self.num_records) == 1:
      return record_events.GaussianRecordDpEvent(multiplier)
    if isinstance(self.sampling, silo_sampling.PoissonSampling):
      return record_events.PoissonRecordDpEvent(
          multiplier, self.sampling.rate(self.num_records)
      )
    return record_events.FixedSizeRecordDpEvent(
        multiplier, self.num_records, self.sampling.batch_size
    )

  def to_json(self) -> dict[str, Any]:
    """Returns the fields as JSON types, for `from_json`."""
    return self.sampling.to_json() | {
        'num_records': self.num_records,
        'l2_norm_clip': self.l2_norm_clip,
        'sigma': self.sigma,
        'scale': self.scale,
        'first_record': self.first_record,
    }

  @classmethod
  def from_json(cls, described: Mapping[str, Any]) -> 'SiloEvent':
    """Returns the event from the output of `to_json`."""
    fields = {field.name for field in dataclasses.fields(cls)} - {'sampling'}
    return cls(
        sampling=silo_sampling.from_json(described),
        **{name: described[name] for name in fields},
    )


def joint_noise_multiplier(noise_multipliers: Sequence[float]) -> float:
  """Returns (sum of m^-2)^(-1/2) for the noise multipliers m.

  This is the noise multiplier of several noised sums over one batch, taken
  together. Exact for Gaussian noise: the sums, each divided by its own noise,
  form one vector. The result is infinity without sums, and 0 if one sum has no
  noise.

  Example: a gradient, and a metric that is clipped to [-B, B]. If the metric's
  sum divided by K has noise sigma_B, the metric has the multiplier
  sigma_B K / B.
  """
  for noise_multiplier in noise_multipliers:
    _checks.non_negative(noise_multiplier=noise_multiplier)
  if not noise_multipliers or min(noise_multipliers) == 0:
    return 0.0 if noise_multipliers else math.inf
  return 1 / math.sqrt(math.fsum(m**-2 for m in noise_multipliers))


def uses_of(counts: Mapping[SiloEvent, int]) -> set[Uses]:
  """Returns the different `Uses` of the records.

  A `Uses` says how often each kind of message uses a record. All records that
  are in the ranges of the same messages have the same `Uses`.

  Args:
    counts: Number of times that each message was sent.
  """
  return {
      tuple(sorted(uses.items()))
      for uses in _stretches(counts, lambda event: event.use)
  }


def dp_event_of(counts: Mapping[SiloEvent, int]) -> dp_accounting.DpEvent:
  """Returns the event of the messages for the record with the largest loss.

  Blocks and phases on disjoint records become a `DisjointRecordsDpEvent`.
  Records that surely cost no more than other records are left out. A message
  without noise gives a `NonPrivateDpEvent`, and no message a `NoOpDpEvent`.

  Args:
    counts: Number of times that each message was sent.
  """
  stretches: list[dict] = []
  for messages in _stretches(counts, lambda event: event.dp_event):
    if any(
        isinstance(one, dp_accounting.NonPrivateDpEvent) for one in messages
    ):
      return dp_accounting.NonPrivateDpEvent()
    if any(_is_part(messages, other) for other in stretches):
      continue
    stretches = [one for one in stretches if not _is_part(one, messages)]
    stretches.append(messages)
  if not stretches:
    return dp_accounting.NoOpDpEvent()
  found = [_composed(messages) for messages in stretches]
  if len(found) == 1:
    return found[0]
  return record_events.DisjointRecordsDpEvent(tuple(found))


def _stretches(counts, key: Callable[[SiloEvent], Any]) -> list[dict]:
  """Returns for each stretch of records: key of an event -> number of uses."""
  found: list[dict] = []
  # A message that covers a stretch also covers the last start before it.
  for edge in sorted({event.first_record for event in counts}):
    uses: dict[Any, int] = {}
    for event, count in counts.items():
      if event.first_record <= edge < event.end_record:
        uses[key(event)] = uses.get(key(event), 0) + count
    if uses not in found[-1:]:
      found.append(uses)
  return found


def _is_part(messages, others) -> bool:
  """Returns whether messages surely cost no more than others, at any delta.

  All Gaussian messages count as one, with sum_e count_e / m_e^2.
  """
  totals = []
  for uses in (messages, others):
    totals.append(
        math.fsum(
            count / event.noise_multiplier**2
            for event, count in uses.items()
            if isinstance(event, record_events.GaussianRecordDpEvent)
        )
    )
  return totals[0] <= totals[1] and all(
      count <= others.get(event, 0)
      for event, count in messages.items()
      if not isinstance(event, record_events.GaussianRecordDpEvent)
  )


def _composed(messages) -> dp_accounting.DpEvent:
  found = [
      event
      if count == 1
      else dp_accounting.SelfComposedDpEvent(event, int(count))
      for event, count in messages.items()
  ]
  return found[0] if len(found) == 1 else dp_accounting.ComposedDpEvent(found)


def worst_epsilon(
    counts: Mapping[SiloEvent, int], delta: float, published_proofs: bool
) -> float:
  """Returns the epsilon of the record with the largest loss. Upper bound.

  Args:
    counts: Number of times that each message was sent.
    delta: Target delta, in (0, 1).
    published_proofs: Whether to use only published bounds, as in
      `silo_sampling`.
  """
  return max(
      (epsilon_of(uses, delta, published_proofs) for uses in uses_of(counts)),
      default=0.0,
  )


@functools.lru_cache(maxsize=4096)
def epsilon_of(uses: Uses, delta: float, published_proofs: bool) -> float:
  """Returns epsilon of all messages together, for one record. Upper bound.

  Args:
    uses: Number of messages of each kind.
    delta: Target delta, in (0, 1).
    published_proofs: Whether to use only published bounds, as in
      `silo_sampling`.
  """
  if any(multiplier == 0 for (_, _, multiplier), _ in uses):
    return math.inf
  if len(uses) == 1 and uses[0][0][0] == 'gaussian':
    # The same arithmetic as in the calibration of the noise, to the last bit.
    (((_, _, multiplier), count),) = uses
    return silo_sampling.gaussian_epsilon(
        noise_multiplier=multiplier, count=count, delta=delta
    )
  return parts_lib.epsilon(parts_of(uses, published_proofs), delta)


@functools.lru_cache(maxsize=4096)
def delta_of(uses: Uses, epsilon: float) -> float:
  """Returns delta of all messages together, for one record. Upper bound.

  Args:
    uses: Number of messages of each kind.
    epsilon: Target epsilon, at least 0.
  """
  if any(multiplier == 0 for (_, _, multiplier), _ in uses):
    return 1.0
  parts = parts_of(uses, False)
  if len(parts) == 1 and parts[0].sigma is not None:
    return gaussian.exact_delta(sigma=parts[0].sigma, epsilon=epsilon)
  if len(parts) == 1 and parts[0].count == 1:
    return float(parts[0].profile(np.array([epsilon]))[0])
  return parts_lib.together(parts).delta(epsilon)


def parts_of(uses: Uses, published_proofs: bool) -> list[parts_lib.Part]:
  """Returns the messages as parts of a composition.

  All messages without sampling, of the kind 'gaussian', are one part.

  Args:
    uses: Number of messages of each kind, all with noise.
    published_proofs: Whether to use only published bounds, as in
      `silo_sampling`.
  """
  gaussians = []
  parts = []
  for (kind, rate, multiplier), count in uses:
    if kind == 'gaussian':
      gaussians.append((multiplier, count))
      continue
    if kind == 'poisson' and not published_proofs:
      build = silo_sampling.poisson_profile
    else:
      build = silo_sampling.convex_profile
    parts.append(
        parts_lib.Part(build(noise_multiplier=multiplier, rate=rate), count)
    )
  if gaussians:
    sigma = 0.5 * _together(gaussians)
    profile = gaussian.profile(sigma)
    # Next to other parts it is used by its profile. Alone, its epsilon is
    # exact.
    parts.append(parts_lib.Part(profile, sigma=None if parts else sigma))
  return parts


def unsampled_epsilon_of(
    uses: Uses, delta: float, num_records: int
) -> float:
  """Returns epsilon of k records as if all of them were in every batch.

  Upper bound, also for records that were used in different messages. Let
  message e use k_e of them and have noise multiplier m_e. The squared shift of
  all messages, sum_e (2 k_e / m_e)^2, is at most k^2 times the largest sum of
  (2 / m_e)^2 over the messages of one record.

  Args:
    uses: Number of messages of each kind that use one record. If the records
      were used in different messages, take the largest result over their uses.
    delta: Target delta, in (0, 1).
    num_records: Number of records k.
  """
  if any(multiplier == 0 for (_, _, multiplier), _ in uses):
    return math.inf
  noise = _together([(multiplier, count) for (_, _, multiplier), count in uses])
  return gaussian.exact_epsilon(sigma=noise / (2 * num_records), delta=delta)


def _together(messages: list[tuple[float, int]]) -> float:
  """Returns the noise multiplier of Gaussian messages that are seen together.

  It is 1 / sqrt(sum count / multiplier^2), exact up to rounding.

  Args:
    messages: Pairs (noise multiplier of a message, how many such messages).
  """
  # Divide by the smallest first, so that no square overflows.
  least = min(multiplier for multiplier, _ in messages)
  total = math.fsum(
      count * (least / multiplier) ** 2 for multiplier, count in messages
  )
  return least / math.sqrt(total)
