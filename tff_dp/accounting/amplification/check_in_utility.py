# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What random check-ins cost in utility: dummy updates and learning rates.

From arXiv:2007.06605. Nothing here says anything about privacy. Steps are
counted from 1, as in the paper; arrays hold step i at index i - 1.
"""

import math

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.curves import privacy_profiles


def expected_dummies_fixed_window(
    num_clients: int, *, num_slots: int, check_in_probability: float = 1.0
) -> float:
  """Returns the expected number of slots in which nobody checks in.

  Exact: m (1 - p0 / m)^n (proposition 3.4).
  """
  _checks.integer_at_least(0, num_clients=num_clients)
  _checks.integer_at_least(1, num_slots=num_slots)
  _checks.in_closed(0.0, 1.0, check_in_probability=check_in_probability)
  return num_slots * _power(1 - check_in_probability / num_slots, num_clients)


def expected_dummies_sliding_window(num_clients: int, *, window: int) -> float:
  """Returns the expected number of updates for which nobody checks in.

  Exact: (n - m + 1) (1 - 1/m)^m, over the n - m + 1 steps from m on that update
  the model (proposition 4.4).
  """
  _checks.integer_at_least(1, window=window)
  _checks.integer_at_least(window, num_clients=num_clients)
  return (num_clients - window + 1) * _power(1 - 1 / window, window)


def learning_rates_theorem_3_5(
    *,
    num_slots: int,
    num_clients: int,
    check_in_probability: float,
    radius: float,
    lipschitz: float,
    num_params: int,
    noise_std: float,
) -> np.ndarray:
  """Returns the learning rates of A_fix, shape [m], float64.

  eta_i = R (1 - 2 exp(-n p0 / m)) / sqrt((d tau^2 + G^2) i), for a convex loss
  (theorem 3.5).

  Args:
    num_slots: m.
    num_clients: n, or a lower bound; wrong, it costs accuracy only.
    check_in_probability: p0.
    radius: R, diameter of the set of parameters.
    lipschitz: G, bound on the norm of a gradient.
    num_params: d.
    noise_std: tau, of the local Gaussian noise in each coordinate.

  Raises:
    NotApplicableError: If n p0 / m is not above ln 2.
  """
  _check(num_slots, num_clients, radius, lipschitz, num_params, noise_std)
  _checks.in_closed(0.0, 1.0, check_in_probability=check_in_probability)
  load = num_clients * check_in_probability / num_slots
  if not load > math.log(2):
    raise privacy_profiles.NotApplicableError(
        f'num_clients * check_in_probability / num_slots is {load:g}, and'
        ' theorem 3.5 needs more than ln 2: too many slots would be empty'
    )
  scale = radius * (1 - 2 * math.exp(-load))
  squared = num_params * noise_std**2 + lipschitz**2
  return scale / np.sqrt(squared * np.arange(1, num_slots + 1))


def learning_rates_theorem_4_2(
    *,
    num_slots: int,
    num_clients: int,
    radius: float,
    lipschitz: float,
    num_params: int,
    noise_std: float,
    smoothness: float | None = None,
) -> np.ndarray:
  """Returns the learning rates of A_avg, shape [m], float64.

  eta_i = R sqrt(n) / sqrt((m d tau^2 + n G^2) i), for a convex loss; for a
  beta-smooth one, and the average of all iterates, the constant
  R sqrt(n) / (beta R sqrt(n) + m sqrt(G^2 + d tau^2)) (theorem 4.2).

  Args:
    num_slots: m.
    num_clients: n.
    radius: R.
    lipschitz: G.
    num_params: d.
    noise_std: tau.
    smoothness: beta, or None.
  """
  _check(num_slots, num_clients, radius, lipschitz, num_params, noise_std)
  variance = num_params * noise_std**2
  numerator = radius * math.sqrt(num_clients)
  if smoothness is not None:
    _checks.positive(smoothness=smoothness)
    rate = numerator / (
        smoothness * numerator + num_slots * math.sqrt(lipschitz**2 + variance)
    )
    return np.full(num_slots, rate)
  squared = num_slots * variance + num_clients * lipschitz**2
  return numerator / np.sqrt(squared * np.arange(1, num_slots + 1))


def _check(
    num_slots, num_clients, radius, lipschitz, num_params, noise_std
) -> None:
  _checks.integer_at_least(1, num_slots=num_slots)
  _checks.integer_at_least(1, num_clients=num_clients)
  _checks.positive(radius=radius)
  _checks.positive(lipschitz=lipschitz)
  _checks.integer_at_least(1, num_params=num_params)
  _checks.non_negative(noise_std=noise_std)


def _power(base: float, exponent: int) -> float:
  """Returns base ** exponent for a base next to 1 or 0."""
  if base == 0:
    return 1.0 if exponent == 0 else 0.0
  return math.exp(exponent * math.log1p(base - 1))
