# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Local randomizers: how one client noises its report before sending it.

A randomizer is a frozen dataclass of public facts. It knows its event, and so
its (epsilon, delta) or its whole privacy profile. It also knows the variance of
the server's unbiased estimate from one report, and the size of a report on the
wire. The operations are in `aggregators.client_randomizers`.

All randomizers are stated for replace-one: the client's whole vector (or
category) may change to any other. So the unit is *one* vector per client, with
all variables of a model concatenated. Randomizing each variable separately
would cost epsilon once per variable.

A coin is a 64-bit integer that is compared with a threshold. Thresholds are
rounded so that no likelihood ratio exceeds exp(epsilon). Debiasing uses the
probabilities of the rounded thresholds, so rounding causes no bias.
"""

import abc
import dataclasses
import decimal
import fractions
import hashlib
import math
from typing import Any, ClassVar

import numpy as np
from scipy import special

from tff_dp import _checks
from tff_dp.accounting.events import run_events

_KEY_TAG = b'tff_dp client noise key 1'
_BYTES_PER_FLOAT = 4
# Bytes of the direction's seed in the sphere's report, which also has a sign.
_SEED_BYTES = 16
# Below this epsilon the biases of coins, about epsilon / 2, lose digits in 64
# bits.
_LEAST_EPSILON = 1e-9
# A coin is an integer, uniform over this many values, that is compared with a
# threshold, rounded to the private side. A floating-point probability would be
# slightly off, and a bound on likelihood ratios does not allow that.
_VALUES = 2**64
_DIGITS = 100


class LocalRandomizer(abc.ABC):
  """The contract of a local randomizer.

  Attributes:
    local_epsilon: Epsilon0 of one report at delta0. Infinite if the report has
      no finite epsilon at this delta.
    local_delta: Delta0 of one report.
  """

  # Subclasses are dataclasses.
  __dataclass_fields__: ClassVar[dict[str, Any]]

  local_epsilon: float
  local_delta: float = 0.0

  @property
  @abc.abstractmethod
  def name(self) -> str:
    """The name that command lines and statements use."""

  @property
  @abc.abstractmethod
  def event(self) -> run_events.LocalRandomizerDpEvent:
    """The event of one report, which determines its privacy profile."""

  @abc.abstractmethod
  def variance(self, num_params: int) -> float:
    """Returns E|estimate - input|^2 of one report, summed over coordinates.

    The input is the *clipped* vector. The estimate is the server's unbiased
    estimate, computed from the report.

    Args:
      num_params: Number of coordinates d of the vector.
    """

  @abc.abstractmethod
  def wire_bytes(self, num_params: int) -> int:
    """Returns the bytes of one report, without transport or encryption."""

  def describe(self) -> dict[str, Any]:
    """Returns all public facts as plain JSON types."""
    return {'name': self.name, **dataclasses.asdict(self)}


@dataclasses.dataclass(frozen=True)
class Gaussian(LocalRandomizer):
  """x clipped to L2 norm C, plus N(0, (noise_multiplier C)^2 I).

  No finite epsilon holds at delta 0. Replace-one moves the clipped vector by up
  to 2 C, so a report has the privacy profile of a Gaussian mechanism with
  sigma = noise_multiplier / 2.

  Attributes:
    noise_multiplier: Standard deviation per coordinate, over the clip norm.
    l2_norm_clip: Clip norm C.
  """

  noise_multiplier: float
  l2_norm_clip: float

  name = 'local-gaussian'

  def __post_init__(self):
    _checks.positive(noise_multiplier=self.noise_multiplier)
    _checks.clip_norm(l2_norm_clip=self.l2_norm_clip)

  @property
  def stddev(self) -> float:
    """The standard deviation tau per coordinate."""
    return float(self.noise_multiplier) * float(self.l2_norm_clip)

  @property
  def local_epsilon(self) -> float:
    return math.inf

  @property
  def event(self) -> run_events.GaussianLocalDpEvent:
    return run_events.GaussianLocalDpEvent(self.noise_multiplier)

  def variance(self, num_params: int) -> float:
    """Returns d tau^2, where tau is `stddev`. Exact for any input."""
    _checks.integer_at_least(1, num_params=num_params)
    return num_params * self.stddev**2

  def wire_bytes(self, num_params: int) -> int:
    _checks.integer_at_least(1, num_params=num_params)
    return _BYTES_PER_FLOAT * num_params


@dataclasses.dataclass(frozen=True)
class Sphere(LocalRandomizer):
  """The one-bit randomizer of LDP-SGD: a public direction and one random sign.

  With x clipped to L2 norm C: z = `C x/|x|` with probability `1/2 + |x|/(2 C)`,
  else `-C x/|x|` (a fixed direction and a fair sign for x = 0). A direction v
  is drawn uniformly from the unit sphere, and s = sign `<z, v>` is kept with
  probability p = exp(epsilon)/(exp(epsilon) + 1), else flipped. The report is
  the seed of v and the sign. `scale * sign * v` estimates x without bias.

  v does not depend on x, and given v and any x the sign has probability p or 1
  - p. So the report is exactly epsilon-DP, for any rounding of floats in z, v
  and their product.

  Sources: Duchi, Jordan, Wainwright, "Minimax optimal procedures for locally
  private estimation", section 4.2.3, and arXiv:2001.03618, algorithm 3.

  Attributes:
    local_epsilon: Epsilon0 of one report, above 0.
    l2_norm_clip: Clip norm C.
  """

  local_epsilon: float
  l2_norm_clip: float

  name = 'sphere'

  def __post_init__(self):
    _check_epsilon(self.local_epsilon)
    _checks.clip_norm(l2_norm_clip=self.l2_norm_clip)

  @property
  def event(self) -> run_events.SphereLocalDpEvent:
    return run_events.SphereLocalDpEvent(self.local_epsilon)

  @property
  def flip_threshold(self) -> int:
    """Number of the 2^64 values of a coin that flip the sign.

    The smallest integer for which (1 - q)/q <= exp(epsilon), where q is the
    share of these values.
    """
    return _change_threshold(self.local_epsilon, num_others=1)

  def scale(self, num_params: int) -> float:
    """Returns B, for which E[B s v] = x: the estimate of x has no bias.

        B = C (e^eps + 1)/(e^eps - 1) sqrt(pi) Gamma((d + 1)/2) / Gamma(d/2)

    Here s is the sign in the report and v its direction. Exact up to float
    rounding. The fraction is computed from `flip_threshold`, so the rounding of
    the coin causes no bias. B grows like sqrt(d pi / 2), and is C (e^eps +
    1)/(e^eps - 1) for d = 1. Another form in the literature is equal: it has
    sqrt(pi)/2 d Gamma((d - 1)/2 + 1) / Gamma(d/2 + 1) after the fraction. Where
    that form is printed without the factor d, it is wrong.

    Args:
      num_params: Number of coordinates d.
    """
    _checks.integer_at_least(1, num_params=num_params)
    half = num_params / 2
    # 1/E|<u, v>| for unit vectors u, in logarithms because Gamma overflows at
    # 172.
    log_inverse = (
        0.5 * math.log(math.pi)
        + special.gammaln(half + 0.5)
        - special.gammaln(half)
    )
    kept_minus_flipped = 1 - fractions.Fraction(
        2 * self.flip_threshold, _VALUES
    )
    return float(
        self.l2_norm_clip * math.exp(log_inverse) / float(kept_minus_flipped)
    )

  def variance(self, num_params: int) -> float:
    """Returns B^2, where B is `scale`.

    Upper bound: the exact value for input x is `B^2 - |x|^2`.
    """
    return self.scale(num_params) ** 2

  def wire_bytes(self, num_params: int) -> int:
    """Returns 17 in any dimension: a seed of 128 bits and one bit."""
    _checks.integer_at_least(1, num_params=num_params)
    return _SEED_BYTES + 1


@dataclasses.dataclass(frozen=True)
class Laplace(LocalRandomizer):
  """x clipped to L1 norm C, plus Laplace noise of scale 2 C / epsilon.

  Attributes:
    local_epsilon: Epsilon0 of one report, above 0.
    l1_norm_clip: Clip norm C, for the L1 norm.
  """

  local_epsilon: float
  l1_norm_clip: float

  name = 'local-laplace'

  def __post_init__(self):
    _check_epsilon(self.local_epsilon)
    _checks.clip_norm(l1_norm_clip=self.l1_norm_clip)

  @property
  def scale(self) -> float:
    """Scale b = 2 C / epsilon. The variance per coordinate is 2 b^2."""
    return 2.0 * self.l1_norm_clip / self.local_epsilon

  @property
  def event(self) -> run_events.LaplaceLocalDpEvent:
    return run_events.LaplaceLocalDpEvent(self.local_epsilon)

  def variance(self, num_params: int) -> float:
    """Returns 2 d b^2, where b is `scale`. Exact for any input."""
    _checks.integer_at_least(1, num_params=num_params)
    return 2.0 * num_params * self.scale**2

  def wire_bytes(self, num_params: int) -> int:
    _checks.integer_at_least(1, num_params=num_params)
    return _BYTES_PER_FLOAT * num_params


@dataclasses.dataclass(frozen=True)
class RandomizedResponse(LocalRandomizer):
  """One of k categories, kept w.p. exp(epsilon) / (exp(epsilon) + k - 1).

  Otherwise the report is one of the other k - 1 categories, uniformly.
  (dp_accounting keeps the category w.p. 1 - q, and otherwise draws among all k.
  Then epsilon is ln(1 + k (1 - q) / q).)

  The estimated vector is the category's indicator, with k coordinates.

  Attributes:
    local_epsilon: Epsilon0 of one report, above 0.
    num_categories: Number of categories k. 2 is Warner's randomized response.
  """

  local_epsilon: float
  num_categories: int = 2

  name = 'randomized-response'

  def __post_init__(self):
    _check_epsilon(self.local_epsilon)
    _checks.integer_at_least(2, num_categories=self.num_categories)

  @property
  def event(self) -> run_events.RandomizedResponseLocalDpEvent:
    return run_events.RandomizedResponseLocalDpEvent(
        self.local_epsilon, self.num_categories
    )

  @property
  def change_threshold(self) -> int:
    """Number of the 2^64 values of a coin that change the category.

    The smallest integer for which no likelihood ratio exceeds exp(epsilon). The
    other category is a second 64-bit integer modulo k - 1, which slightly
    favours some categories. The bound accounts for that.
    """
    return _change_threshold(
        self.local_epsilon, num_others=self.num_categories - 1
    )

  @property
  def keep_probability(self) -> float:
    """The probability p to report the true category."""
    return float(1 - self._change_share)

  @property
  def other_probability(self) -> float:
    """The mean probability q of the other categories.

    The probabilities of two of them differ by at most 2^-64.
    """
    return float(self._change_share / (self.num_categories - 1))

  @property
  def kept_minus_other(self) -> float:
    """The difference p - q, computed without cancellation."""
    share = self._change_share
    return float(1 - share - share / (self.num_categories - 1))

  def variance(self, num_params: int) -> float:
    """Returns (p (1 - p) + (k - 1) q (1 - q)) / (p - q)^2. Exact.

    Here p is `keep_probability`, q is `other_probability`.

    Args:
      num_params: Number of coordinates, which must be k.
    """
    self._check_size(num_params)
    p, q = self.keep_probability, self.other_probability
    spread = p * (1 - p) + (self.num_categories - 1) * q * (1 - q)
    return spread / self.kept_minus_other**2

  def wire_bytes(self, num_params: int) -> int:
    self._check_size(num_params)
    return -(-(self.num_categories - 1).bit_length() // 8)

  @property
  def _change_share(self) -> fractions.Fraction:
    return fractions.Fraction(self.change_threshold, _VALUES)

  def _check_size(self, num_params: int) -> None:
    if num_params != self.num_categories:
      raise _checks.ArgumentError(
          'num_params', num_params, f'{self.num_categories}, the num_categories'
      )


@dataclasses.dataclass(frozen=True)
class Declared(LocalRandomizer):
  """A randomizer of which only (epsilon0, delta0) is known.

  It is for plans that account for somebody else's reports. Nothing here runs
  it.

  Attributes:
    local_epsilon: Epsilon0 of one report, above 0.
    local_delta: Delta0 of one report, in [0, 1).
  """

  local_epsilon: float
  local_delta: float = 0.0

  def __post_init__(self):
    _check_epsilon(self.local_epsilon)
    _checks.in_half_open(0, 1, local_delta=self.local_delta)

  @property
  def name(self) -> str:
    return 'any'

  @property
  def event(self) -> run_events.LocalDpEvent:
    return run_events.LocalDpEvent(self.local_epsilon, self.local_delta)

  def variance(self, num_params: int) -> float:
    """Raises `PrivacyRefusedError`, because the variance is unknown."""
    raise self._unknown('variance')

  def wire_bytes(self, num_params: int) -> int:
    """Raises `PrivacyRefusedError`, because the size is unknown."""
    raise self._unknown('size')

  def _unknown(self, what: str) -> _checks.PrivacyRefusedError:
    return _checks.PrivacyRefusedError(
        f'a declared randomizer has no {what}',
        why='only its epsilon and delta are known',
        way_out='a concrete randomizer, such as randomizers.Sphere',
    )


BY_NAME = {
    'any': Declared,
    'local-gaussian': Gaussian,
    'sphere': Sphere,
    'local-laplace': Laplace,
    'randomized-response': RandomizedResponse,
}


def from_description(description: dict[str, Any]) -> LocalRandomizer:
  """Returns the randomizer from the output of `describe`."""
  fields = dict(description)
  name = fields.pop('name', None)
  _checks.one_of(BY_NAME, name=name)
  return BY_NAME[name](**fields)


def noise_key(secret: bytes) -> np.ndarray:
  """Returns the noise key that belongs to a secret, int64 of shape [2].

  Different secrets give unrelated keys, and the key reveals nothing about the
  secret (SHA-256, with its own tag). So a client may derive both its noise and
  the coins of its protocol from one secret.

  Args:
    secret: Secret of at least 128 bits that only the client knows.
  """
  if not isinstance(secret, bytes) or len(secret) < 16:
    # Do not print the value: it is a secret.
    raise _checks.ArgumentError(
        'secret', type(secret).__name__, 'a secret of at least 16 bytes'
    )
  digest = hashlib.sha256(_KEY_TAG + b'|' + secret).digest()
  return np.frombuffer(digest[:16], '<i8').astype(np.int64)


def _check_epsilon(local_epsilon: float) -> None:
  _checks.positive(local_epsilon=local_epsilon)
  if local_epsilon < _LEAST_EPSILON:
    raise _checks.ArgumentError(
        'local_epsilon',
        local_epsilon,
        f'a number of at least {_LEAST_EPSILON:g}, because below that, coins of'
        ' 64 bits are too coarse, and reports say almost nothing',
    )


def _change_threshold(local_epsilon: float, *, num_others: int) -> int:
  """Returns the least f with (1 - f/N) / (f/N * u) <= exp(local_epsilon).

  Given a change, each other category has a probability of at least u. For an
  integer that is uniform over N = `_VALUES` values and taken modulo
  `num_others`, u = floor(N / num_others) / N.
  """
  least_share = _VALUES // num_others
  with decimal.localcontext() as context:
    context.prec = _DIGITS
    context.Emax = decimal.MAX_EMAX
    # exp is rounded correctly. Make it a little smaller, the safe side.
    ratio = decimal.Decimal(float(local_epsilon)).exp()
    ratio *= 1 - decimal.Decimal(10) ** (5 - _DIGITS)
    if ratio > decimal.Decimal(_VALUES) ** 3:
      return 1
    odds = decimal.Decimal(_VALUES) + ratio * least_share
    exact = decimal.Decimal(_VALUES) ** 2 / odds
    return max(1, int(exact.to_integral_value(rounding=decimal.ROUND_CEILING)))
