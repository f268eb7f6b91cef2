# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sampling inside a silo: the loss of a record in R noised batch means.

In each round a silo sends `(1/K) sum over the batch of clipped gradients`, plus
Gaussian noise of standard deviation sigma on every coordinate. C is the clip
norm, K the (expected) batch size and n the public number of records. Adjacency:
one record of the silo is replaced by another one. Everything here is in units
of C/K: `noise_multiplier` is `sigma K / C`, the standard deviation on the sum
divided by the clip norm, and a record adds a vector of norm at most 1.

docs/proofs_silos.md derives the pairs of distributions behind the profiles.
Each pair bounds the hockey-stick divergence H_E (see `privacy_profiles`) for
all data, all dimensions and both directions, so rounds compose even when they
are chosen adaptively.
"""

import abc
from collections.abc import Callable, Mapping
import dataclasses
import functools
import math
from typing import Any

import numpy as np
from scipy import special

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles

_ROUNDING = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)
_MOST_NOISE = 1e12


class Sampling(abc.ABC):
  """The rule by which a silo chooses the batch of a round. It is public."""

  @property
  @abc.abstractmethod
  def name(self) -> str:
    """Name on the command line."""

  @property
  @abc.abstractmethod
  def batch_size(self) -> float:
    """The batch size K by which the sum over the batch is always divided."""

  @abc.abstractmethod
  def num_releases(self, num_rounds: int) -> int:
    """Returns in how many of `num_rounds` rounds one record can be used."""

  @abc.abstractmethod
  def profile(
      self,
      *,
      num_records: int,
      noise_multiplier: float,
      published_proofs: bool = False,
  ) -> privacy_profiles.Profile:
    """Returns the profile of one round in which a record can take part.

    Upper bound for both directions.

    Args:
      num_records: Number of records n.
      noise_multiplier: Noise std on the sum over a batch, over the clip norm.
      published_proofs: Whether to use the bound from joint convexity alone.
    """

  @abc.abstractmethod
  def describe(self) -> str:
    """Returns a phrase that tells people how a batch is chosen."""

  def rate(self, num_records: int) -> float:
    """Returns the probability that a record is in the batch of its round."""
    return float(self.batch_size) / num_records

  def check(self, *, num_records: int, num_rounds: int = 1) -> None:
    """Raises `ArgumentError` unless a silo of n records can do R rounds."""
    _checks.integer_at_least(1, num_records=num_records)
    _checks.integer_at_least(1, num_rounds=num_rounds)
    if num_records < self.batch_size:
      raise _checks.ArgumentError(
          'num_records',
          num_records,
          f'at least the batch of {self.batch_size:g} records',
      )

  def to_json(self) -> dict[str, Any]:
    """Returns the fields as JSON types, for `from_json`."""
    return {'sampling': self.name, 'batch_size': self.batch_size}


@_calls.helpful
@dataclasses.dataclass(frozen=True)
class PoissonSampling(Sampling):
  """Each of a silo's n records enters a batch independently, with rate K/n.

  The sum is always divided by K, for any size of the batch. With an empty batch
  the silo sends pure noise.

  Attributes:
    expected_batch: Expected batch size K, at least 1, not necessarily an integer.
  """

  expected_batch: float

  name = 'poisson'

  def __post_init__(self):
    _checks.take_python_numbers(self)
    _checks.positive(expected_batch=self.expected_batch)
    if self.expected_batch < 1:
      raise _checks.ArgumentError(
          'expected_batch',
          self.expected_batch,
          'a number of records, at least 1',
          way_out='for a rate, rate * num_records',
      )

  @property
  def batch_size(self) -> float:
    return self.expected_batch

  def num_releases(self, num_rounds: int) -> int:
    return num_rounds

  def profile(self, *, num_records, noise_multiplier, published_proofs=False):
    self.check(num_records=num_records)
    rate = self.rate(num_records)
    if published_proofs:
      return convex_profile(noise_multiplier=noise_multiplier, rate=rate)
    return poisson_profile(noise_multiplier=noise_multiplier, rate=rate)

  def describe(self) -> str:
    return f'Poisson sampling, {self.expected_batch:g} records expected a round'


@dataclasses.dataclass(frozen=True)
class _WholeBatches(Sampling):
  """Batches of exactly K records.

  Attributes:
    batch: Batch size K, an integer.
  """

  batch: int

  def __post_init__(self):
    _checks.take_python_numbers(self)
    _checks.integer_at_least(1, batch=self.batch)

  @property
  def batch_size(self) -> float:
    return self.batch


@dataclasses.dataclass(frozen=True)
class FixedSize(_WholeBatches):
  """K distinct records, drawn anew in every round."""

  name = 'fixed'

  def num_releases(self, num_rounds: int) -> int:
    return num_rounds

  def profile(self, *, num_records, noise_multiplier, published_proofs=False):
    self.check(num_records=num_records)
    # This pair is already the one from joint convexity.
    return convex_profile(
        noise_multiplier=noise_multiplier, rate=self.rate(num_records)
    )

  def describe(self) -> str:
    return f'{self.batch} distinct records drawn anew in every round'


@dataclasses.dataclass(frozen=True)
class DisjointBlocks(_WholeBatches):
  """One pass: round r = 0, 1, .. uses records rK..(r+1)K-1 in a fixed order.

  No record is in two rounds, so a whole pass costs a record as much as one
  Gaussian release, even if later rounds depend on earlier messages. This
  holds even if the blocks are public.
  """

  name = 'one-pass'

  def num_releases(self, num_rounds: int) -> int:
    return 1

  def rate(self, num_records: int) -> float:
    return 1.0

  def check(self, *, num_records, num_rounds=1):
    super().check(num_records=num_records, num_rounds=num_rounds)
    if num_rounds * self.batch > num_records:
      raise _checks.ArgumentError(
          'num_rounds',
          num_rounds,
          f'at most {num_records // self.batch}, the disjoint blocks of'
          f' {self.batch} among {num_records} records',
      )

  def profile(self, *, num_records, noise_multiplier, published_proofs=False):
    self.check(num_records=num_records)
    return local_profiles.gaussian(noise_multiplier)

  def describe(self) -> str:
    return f'one pass over disjoint blocks of {self.batch} records'


_BY_NAME: dict[str, Callable[[Any], Sampling]] = {
    'poisson': PoissonSampling,
    'fixed': FixedSize,
    'one-pass': DisjointBlocks,
}
NAMES = tuple(_BY_NAME)


def build(name: str, batch_size: float) -> Sampling:
  """Returns the sampling of that name: 'poisson', 'fixed' or 'one-pass'."""
  _checks.one_of(NAMES, sampling=name)
  return _BY_NAME[name](batch_size)


def from_json(described: Mapping[str, Any]) -> Sampling:
  """Returns the sampling from the output of `Sampling.to_json`."""
  return build(described['sampling'], described['batch_size'])


@functools.lru_cache(maxsize=64, typed=True)
def poisson_profile(
    *, noise_multiplier: float, rate: float
) -> privacy_profiles.Profile:
  """Returns the profile of one Poisson-sampled round.

  Exact, rounded up. The profile is the hockey-stick divergence H_E of P from Q,
  with E = exp(epsilon), for

      P = (1 - q) N(0, s^2) + q N(1, s^2),
      Q = (1 - q) N(0, s^2) + q N(-1, s^2).

  The ratio P(y) / Q(y) grows in y, so the worst set is {y >= c}. Here
  t = exp(c / s^2) solves

      q a t^2 - (1 - q) (E - 1) t - E q a = 0,   a = exp(-1 / (2 s^2)).

  y -> -y swaps P and Q, so one profile serves both directions. No other data
  have a larger H_E (docs/proofs_silos.md, proposition 1).

  Results are cached: see `privacy_profiles.composed_epsilon`.

  Args:
    noise_multiplier: Std s of the noise on the sum of a batch, divided by the
      clip norm.
    rate: Sampling probability q, in (0, 1].
  """
  _checks.positive(noise_multiplier=noise_multiplier)
  _check_rate(rate)
  # More noise never makes the divergence larger. Its cut would be rounded by
  # whole standard deviations.
  s, q = min(float(noise_multiplier), _MOST_NOISE), float(rate)
  with np.errstate(divide='ignore'):
    log_rest = float(np.log1p(-q)) if q < 1 else -math.inf
  log_a = -0.5 / s / s

  def sampled(epsilons):
    log_excess = epsilons + np.log(-np.expm1(-epsilons)) + log_rest
    log_product = math.log(2 * q) + log_a + 0.5 * epsilons
    root = 0.5 * np.logaddexp(2 * log_excess, 2 * log_product)
    log_t = np.logaddexp(log_excess, root) - math.log(2 * q) - log_a
    cut = s * log_t
    # Any cut gives a lower bound on H_E. At the best cut the derivative
    # vanishes, so rounding of the cut is of second order.
    arguments = [-cut, 1 / s - cut, -1 / s - cut]
    logs = [log_excess, np.full_like(cut, math.log(q)), epsilons + math.log(q)]
    terms = [
        np.exp(log + special.log_ndtr(argument))
        for log, argument in zip(logs, arguments)
    ]
    # Relative errors of the tails are the errors of their exponents.
    spread = np.abs(epsilons) + (np.abs(cut) + 1 / s) ** 2
    slack = 16 * _ROUNDING * sum(terms) * (4 + spread)
    return np.maximum(terms[1] - terms[0] - terms[2], 0.0) + slack + _TINY

  def profile(epsilons):
    epsilons = np.asarray(epsilons, np.float64)
    # NaN occurs only for a noise near the smallest float. P and Q share all but
    # the mass q, so q is a bound as well.
    with np.errstate(divide='ignore', over='ignore', invalid='ignore'):
      return np.fmin(sampled(epsilons), q)

  return profile


@functools.lru_cache(maxsize=64, typed=True)
def convex_profile(
    *, noise_multiplier: float, rate: float
) -> privacy_profiles.Profile:
  """Returns q times the profile of two Gaussians, at E'' = 1 + (E - 1) / q.

  The two Gaussians have std s and means 2 apart, and E = exp(epsilon).

  Upper bound for Poisson and for fixed-size batches, in both directions
  (docs/proofs_silos.md, proposition 2, and for fixed size also
  arXiv:2106.08567). For E >= 1 the result is the profile of (1 - q) N(0, z^2) +
  q N(1, z^2) against N(0, z^2) with z = s / 2. This is the worse of the two
  directions, and it is used for both. So the bound also holds for a composition
  in which some rounds have one direction and some have the other.

  Results are cached: see `privacy_profiles.composed_epsilon`.

  Args:
    noise_multiplier: Std s of the noise on the sum of a batch, divided by the
      clip norm.
    rate: Sampling probability q, in (0, 1].
  """
  _checks.positive(noise_multiplier=noise_multiplier)
  _check_rate(rate)
  single = local_profiles.gaussian(noise_multiplier)
  return privacy_profiles.subsampled(single, float(rate))


def epsilon(
    sampling: Sampling,
    *,
    num_records: int,
    num_rounds: int,
    noise_multiplier: float,
    delta: float,
    published_proofs: bool = False,
) -> float:
  """Returns epsilon of R rounds for every record of a silo. Upper bound.

  Args:
    sampling: Rule that chooses the batch of each round.
    num_records: Number of records n.
    num_rounds: Number of rounds R.
    noise_multiplier: Noise std on the sum over a batch, over the clip norm. 0
      gives infinity.
    delta: Target delta, in (0, 1).
    published_proofs: Whether to use only published bounds, as in
      `Sampling.profile`.
  """
  sampling.check(num_records=num_records, num_rounds=num_rounds)
  _checks.non_negative(noise_multiplier=noise_multiplier)
  _checks.in_open(0.0, 1.0, delta=delta)
  count = sampling.num_releases(num_rounds)
  if noise_multiplier == 0:
    return math.inf
  if sampling.rate(num_records) == 1:
    return gaussian_epsilon(
        noise_multiplier=noise_multiplier, count=count, delta=delta
    )
  profile = sampling.profile(
      num_records=num_records,
      noise_multiplier=noise_multiplier,
      published_proofs=published_proofs,
  )
  # The same computation as in any composition, so that ledgers get the same
  # number.
  return composition.epsilon([composition.Part(profile, count)], delta)


def account_noise(
    sampling: Sampling,
    *,
    num_records: int,
    num_rounds: int,
    l2_norm_clip: float,
    sigma: float,
    delta: float,
    published_proofs: bool = False,
) -> float:
  """Returns epsilon of one silo's messages of R rounds. Upper bound.

  Args:
    sampling: Rule that chooses the batch of each round, of size K.
    num_records: Number of records n.
    num_rounds: Number of rounds R in which the silo sends.
    l2_norm_clip: Clip norm C on the gradient of one record.
    sigma: Standard deviation of the noise on the sum divided by K. 0 gives
      infinity.
    delta: Target delta, in (0, 1).
    published_proofs: Whether to use only published bounds, as in
      `Sampling.profile`.
  """
  _checks.clip_norm(l2_norm_clip=l2_norm_clip)
  _checks.non_negative(sigma=sigma)
  return epsilon(
      sampling,
      num_records=num_records,
      num_rounds=num_rounds,
      noise_multiplier=sigma * (float(sampling.batch_size) / l2_norm_clip),
      delta=delta,
      published_proofs=published_proofs,
  )


def gaussian_epsilon(
    *, noise_multiplier: float, count: int, delta: float
) -> float:
  """Returns epsilon of messages whose batches are sure to contain a record.

  Exact: `count` Gaussian releases cost as much as one release whose noise is
  smaller by the factor sqrt(count).

  Args:
    noise_multiplier: Noise std on the sum over a batch, over the clip norm,
      above 0.
    count: Number of messages.
    delta: Target delta, in (0, 1).
  """
  sigma = float(noise_multiplier) / 2 / math.sqrt(count)
  return gaussian.exact_epsilon(sigma=sigma, delta=delta)


def _check_rate(rate) -> None:
  _checks.in_closed(0.0, 1.0, rate=rate)
  _checks.positive(rate=rate)
