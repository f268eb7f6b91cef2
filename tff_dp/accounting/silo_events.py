# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""What a silo sends in one round, and what messages cost together."""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import math
from typing import Any

from tff_dp import _checks
from tff_dp.accounting import gaussian
from tff_dp.accounting import local_profiles
from tff_dp.accounting import parts as parts_lib
from tff_dp.accounting import silo_sampling

# (kind of sampling, rate, noise multiplier): all that a message costs by.
Use = tuple[str, float, float]


@dataclasses.dataclass(frozen=True)
class SiloEvent:
  """One message of a silo: a noised K-mean of clipped vectors.

  Attributes:
    sampling: How its batch was chosen.
    num_records: n, the records that it was chosen among: all of the silo, or a
      phase's part of it.
    l2_norm_clip: C. Of several noised means over one batch, see
      `joint_noise_multiplier`.
    sigma: Standard deviation of the noise on the K-mean.
    scale: What mean and noise were both multiplied with; costs nothing.
    first_record: Position of the first of these records in the silo's order;
      with `DisjointBlocks` that of the block, which is K records long.
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
    _checks.positive(l2_norm_clip=self.l2_norm_clip)
    _checks.non_negative(sigma=self.sigma)
    _checks.positive(scale=self.scale)
    _checks.integer_at_least(0, first_record=self.first_record)

  @property
  def noise_multiplier(self) -> float:
    """sigma K / C, on the sum over the clip norm, as users see it."""
    return self.sigma * (float(self.sampling.batch_size) / self.l2_norm_clip)

  @property
  def is_block(self) -> bool:
    """Whether no other message may use its records."""
    return isinstance(self.sampling, silo_sampling.DisjointBlocks)

  @property
  def end_record(self) -> int:
    """Position behind the last record that it may have used."""
    size = self.sampling.batch_size if self.is_block else self.num_records
    return self.first_record + size

  @property
  def use(self) -> Use:
    """What the message costs by; a sure batch is a Gaussian release."""
    rate = self.sampling.rate(self.num_records)
    kind = 'gaussian' if rate == 1 else self.sampling.name
    return kind, rate, self.noise_multiplier

  def to_json(self) -> dict[str, Any]:
    """Returns JSON types, for `from_json`."""
    return self.sampling.to_json() | {
        'num_records': self.num_records,
        'l2_norm_clip': self.l2_norm_clip,
        'sigma': self.sigma,
        'scale': self.scale,
        'first_record': self.first_record,
    }

  @classmethod
  def from_json(cls, described: Mapping[str, Any]) -> 'SiloEvent':
    """Returns the event that `to_json` described."""
    fields = {field.name for field in dataclasses.fields(cls)} - {'sampling'}
    return cls(
        sampling=silo_sampling.from_json(described),
        **{name: described[name] for name in fields},
    )


def joint_noise_multiplier(noise_multipliers: Sequence[float]) -> float:
  """Returns (sum of m^-2)^(-1/2), of several noised sums over one batch.

  Exact for Gaussian noise: the sums, each over its own clip norm and noise, are
  one vector. Example: the gradient, and a metric clipped to [-B, B] with noise
  sigma_B on its K-mean, of multiplier sigma_B K / B.
  """
  for noise_multiplier in noise_multipliers:
    _checks.non_negative(noise_multiplier=noise_multiplier)
  if not noise_multipliers or min(noise_multipliers) == 0:
    return 0.0 if noise_multipliers else math.inf
  return 1 / math.sqrt(math.fsum(m**-2 for m in noise_multipliers))


def uses_of(
    counts: Mapping[SiloEvent, int],
) -> set[tuple[tuple[Use, int], ...]]:
  """Returns what each stretch of records has been used for.

  Args:
    counts: How often each message was sent.
  """
  found = set()
  # What covers a stretch covers the last start before it as well.
  for edge in {event.first_record for event in counts}:
    uses = {}
    for event, count in counts.items():
      if event.first_record <= edge < event.end_record:
        uses[event.use] = uses.get(event.use, 0) + count
    found.add(tuple(sorted(uses.items())))
  return found


def worst_epsilon(
    counts: Mapping[SiloEvent, int], delta: float, conservative: bool
) -> float:
  """Returns what the messages cost the worst record. Upper bound.

  Args:
    counts: How often each message was sent.
    delta: In (0, 1).
    conservative: As in `silo_sampling`.
  """
  return max(
      (epsilon_of(uses, delta, conservative) for uses in uses_of(counts)),
      default=0.0,
  )


@functools.lru_cache(maxsize=4096)
def epsilon_of(
    uses: tuple[tuple[Use, int], ...], delta: float, conservative: bool
) -> float:
  """Returns epsilon of all messages together, for one record. Upper bound.

  Args:
    uses: Of each kind of message how many there are.
    delta: In (0, 1).
    conservative: As in `silo_sampling`.
  """
  if any(multiplier == 0 for (_, _, multiplier), _ in uses):
    return math.inf
  inverse_squares = []
  parts = []
  for (kind, rate, multiplier), count in uses:
    if kind == 'gaussian':
      inverse_squares.append(count / multiplier**2)
      continue
    if kind == 'poisson' and not conservative:
      build = silo_sampling.poisson_profile
    else:
      build = silo_sampling.convex_profile
    parts.append(
        parts_lib.Part(build(noise_multiplier=multiplier, rate=rate), count)
    )
  if len(uses) == 1 and inverse_squares:
    # By the same arithmetic as what calibrated the noise, to the last bit.
    (((_, _, multiplier), count),) = uses
    return silo_sampling.gaussian_epsilon(
        noise_multiplier=multiplier, count=count, delta=delta
    )
  if inverse_squares:
    together = 1 / math.sqrt(math.fsum(inverse_squares))
    if not parts:
      return gaussian.exact_epsilon(sigma=together / 2, delta=delta)
    parts.append(parts_lib.Part(local_profiles.gaussian(together)))
  return parts_lib.epsilon(parts, delta)


def unsampled_epsilon_of(
    uses: tuple[tuple[Use, int], ...], delta: float, num_records: int
) -> float:
  """Returns epsilon of k records, all in every batch. Upper bound.

  Records that were used at different times, k_e of them in event e, move the
  messages by sum_e (2 k_e / m_e)^2 <= k^2 max over records of sum_e (2/m_e)^2.
  """
  if any(multiplier == 0 for (_, _, multiplier), _ in uses):
    return math.inf
  total = math.fsum(
      count / multiplier**2 for (_, _, multiplier), count in uses
  )
  sigma = 1 / math.sqrt(total) / (2 * num_records)
  return gaussian.exact_epsilon(sigma=sigma, delta=delta)
