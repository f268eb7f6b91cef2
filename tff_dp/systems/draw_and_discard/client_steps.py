# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The step of one client on a model, before it sends the whole model back.

    B - learning_rate * clip(G) + noise

B is the instance that the client was given, and G is the mean gradient over its
data. The noise is independent in every weight. The server sees only the result.
Source: arXiv:1807.04369, section 3, where the clip is a box, the noise is
Laplace, and epsilon holds for one weight. The other pairs of clip and noise are
ours.

Adjacency: the client's whole local data set is replaced by any other. The mean
is clipped, so the number of examples does not matter. Anyone who sees the
report knows B, so a step is a noise mechanism on `learning_rate * clip(G)`.

| clip | per weight | L1 | L2 |
|---|---|---|---|
| box, every weight in [-C, C] | 2 g C | 2 g C p | 2 g C sqrt(p) |
| l1, radius C | 2 g C | 2 g C | 2 g C |
| l2, radius C | 2 g C | 2 g C sqrt(p) | 2 g C |

The table lists the largest distances between the steps of neighbours, for
learning rate g and p weights.
"""

import dataclasses
import functools
import math
from typing import Any, Optional

import dp_accounting

from tff_dp import _checks
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events

CLIPS = ('box', 'l1', 'l2')
MECHANISMS = ('laplace', 'gaussian', None)
UNITS = ('model', 'coordinate')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClientStep:
  """Public facts about the step of one client.

  Attributes:
    learning_rate: Learning rate g, above 0. It is part of the sensitivity,
      because the noise is on the weights and not on the gradient.
    clip: Clip of a client's mean gradient: 'box', 'l1' or 'l2'.
    clip_norm: Bound C on every weight of the mean gradient, or on its norm.
    mechanism: 'laplace', 'gaussian', or None for no noise and no privacy.
    epsilon: Epsilon of one participation, for `privacy_unit`. None without
      noise.
    delta: Delta of one participation, for Gaussian noise only.
    privacy_unit: Unit of epsilon when the noise scale is computed: 'model' for
      all weights together, 'coordinate' for one weight, as in the paper.
      'coordinate' does not guarantee the privacy of the client's data.
  """

  learning_rate: float
  clip: str = 'box'
  clip_norm: float = 1.0
  mechanism: Optional[str] = 'laplace'
  epsilon: Optional[float] = None
  delta: Optional[float] = None
  privacy_unit: str = 'model'

  def __post_init__(self):
    _checks.take_python_numbers(self)
    _checks.positive(learning_rate=self.learning_rate)
    _checks.one_of(CLIPS, clip=self.clip)
    _checks.clip_norm(clip_norm=self.clip_norm)
    _checks.one_of(MECHANISMS, mechanism=self.mechanism)
    _checks.one_of(UNITS, privacy_unit=self.privacy_unit)
    if self.mechanism is None:
      if self.epsilon is not None:
        raise _checks.ArgumentError(
            'epsilon', self.epsilon, 'None if mechanism is None'
        )
    else:
      _checks.positive(epsilon=self.epsilon)
    if self.mechanism == 'gaussian':
      _checks.delta(delta=self.delta)
    elif self.delta is not None:
      raise _checks.ArgumentError(
          'delta', self.delta, "None unless mechanism='gaussian'"
      )

  @property
  def is_private(self) -> bool:
    """Whether noise is added at all."""
    return self.mechanism is not None

  def coordinate_sensitivity(self) -> float:
    """Returns the largest distance of one weight in neighbouring steps. Exact.

    It is 2 g C for learning rate g and clip norm C.
    """
    return 2.0 * float(self.learning_rate) * float(self.clip_norm)

  def l1_sensitivity(self, num_params: int) -> float:
    """Returns the largest L1 distance of neighbouring steps. Exact."""
    return self.coordinate_sensitivity() * self._l1_factor(num_params)

  def l2_sensitivity(self, num_params: int) -> float:
    """Returns the largest L2 distance of neighbouring steps. Exact."""
    return self.coordinate_sensitivity() * self._l2_factor(num_params)

  def noise_scale(self, num_params: int) -> float:
    """Returns Laplace's b or the Gaussian's standard deviation, 0 for no noise.

    The scale applies to the weights as sent, so it includes the learning rate.
    The scale of Laplace noise is exact: the L1 sensitivity over epsilon. For
    the unit 'coordinate' it is `coordinate_sensitivity()` over epsilon. The
    scale of Gaussian noise is the least one by the analytic mechanism, rounded
    up.

    Args:
      num_params: Number of weights p, bias included.
    """
    _checks.integer_at_least(1, num_params=num_params)
    if self.mechanism is None:
      return 0.0
    is_laplace = self.mechanism == 'laplace'
    if self.privacy_unit == 'coordinate':
      distance = self.coordinate_sensitivity()
    elif is_laplace:
      distance = self.l1_sensitivity(num_params)
    else:
      distance = self.l2_sensitivity(num_params)
    if is_laplace:
      scale = distance / float(self.epsilon)
    else:
      scale = distance * _gaussian_sigma(
          float(self.epsilon), float(self.delta)
      )
    if not scale < math.inf:
      raise _checks.ArgumentError(
          'epsilon',
          self.epsilon,
          'a larger epsilon, a smaller learning rate or a smaller clip norm,'
          ' because the scale of the noise is infinite',
      )
    return scale

  def noise_variance(self, num_params: int) -> float:
    """Returns the variance of the noise of one weight: 2 b^2, sigma^2 or 0."""
    scale = self.noise_scale(num_params)
    return (2.0 if self.mechanism == 'laplace' else 1.0) * scale * scale

  def spread_variance(self, num_params: int) -> float:
    """Returns the noise variance from which the initial spread is computed.

    With noise, the result is `noise_variance`. The instances have to differ
    without noise, too. Then the result is the variance of Laplace noise with
    epsilon 1 per weight: twice the square of `coordinate_sensitivity()`
    (arXiv:1807.04369, section 3.2, for clip norm 1).

    Args:
      num_params: Number of weights p.
    """
    if self.mechanism is not None:
      return self.noise_variance(num_params)
    _checks.integer_at_least(1, num_params=num_params)
    return 2.0 * self.coordinate_sensitivity() ** 2

  def model_epsilon(self, num_params: int) -> float:
    """Returns the pure epsilon of one participation, for the whole model.

    Exact for Laplace noise: the L1 sensitivity over b. Infinite for Gaussian
    noise, which has no pure epsilon, and without noise.

    Args:
      num_params: Number of weights p.
    """
    _checks.integer_at_least(1, num_params=num_params)
    if self.mechanism != 'laplace':
      return math.inf
    if self.privacy_unit == 'model':
      return float(self.epsilon)
    return float(self.epsilon) * self._l1_factor(num_params)

  def coordinate_epsilon(self, num_params: int) -> float:
    """Returns the epsilon of one weight, at `delta` for Gaussian noise.

    Exact, rounded up. Infinite without noise. It does not bound the loss of a
    client's data, which moves all weights at once.

    Args:
      num_params: Number of weights p.
    """
    _checks.integer_at_least(1, num_params=num_params)
    if self.mechanism is None:
      return math.inf
    if self.privacy_unit == 'coordinate':
      return float(self.epsilon)
    if self.mechanism == 'laplace':
      return float(self.epsilon) / self._l1_factor(num_params)
    sigma = self.noise_scale(num_params) / self.coordinate_sensitivity()
    return gaussian.exact_epsilon(sigma=sigma, delta=self.delta)

  def event(self, num_params: int) -> dp_accounting.DpEvent:
    """Returns the event of one participation, stated for replace-one.

    The event is for the whole model. Gaussian noise is one Gaussian mechanism.
    Laplace noise with the clip 'l1' or 'l2' is one Laplace mechanism. Laplace
    noise with the clip 'box' is a composition of p Laplace mechanisms, one for
    each weight. Without noise it is a `NonPrivateDpEvent`.

    Args:
      num_params: Number of weights p.
    """
    _checks.integer_at_least(1, num_params=num_params)
    if self.mechanism is None:
      return dp_accounting.NonPrivateDpEvent()
    if self.mechanism == 'gaussian':
      # The event takes the noise over the radius, half the L2 distance.
      multiplier = 2.0 * (
          self.noise_scale(num_params) / self.l2_sensitivity(num_params)
      )
      return run_events.GaussianLocalDpEvent(multiplier)
    if self.clip != 'box':
      return run_events.LaplaceLocalDpEvent(self.model_epsilon(num_params))
    one = run_events.LaplaceLocalDpEvent(
        self.coordinate_epsilon(num_params)
    )
    return dp_accounting.SelfComposedDpEvent(one, int(num_params))

  def describe(self) -> dict[str, Any]:
    """Returns the fields as plain JSON types."""
    return dataclasses.asdict(self)

  def _l1_factor(self, num_params: int) -> float:
    _checks.integer_at_least(1, num_params=num_params)
    if self.clip == 'l2':
      return math.sqrt(num_params)
    return float(num_params) if self.clip == 'box' else 1.0

  def _l2_factor(self, num_params: int) -> float:
    _checks.integer_at_least(1, num_params=num_params)
    return math.sqrt(num_params) if self.clip == 'box' else 1.0


@functools.lru_cache(maxsize=64)
def _gaussian_sigma(epsilon: float, delta: float) -> float:
  return gaussian.sigma_for(epsilon=epsilon, delta=delta)
