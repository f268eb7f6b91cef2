# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Private symbols of dp_accounting: of privacy-loss distributions."""

import importlib
import math


def loss_distribution(accountant):
  """Returns the privacy-loss distribution of all that was composed.

  Checked against dp_accounting 0.4.3 and 0.6.0, which have no public way to get
  it.

  Args:
    accountant: A `PLDAccountant` of dp_accounting.
  """
  return accountant._pld  # pylint: disable=protected-access


def invert_losses_at_once() -> None:
  """Makes dp_accounting invert the losses of Gaussian noise all at once.

  Its own code inverts them one grid point after the other, which takes most of
  the time of an epsilon. The distributions stay the same, up to rounding.
  Checked against dp_accounting 0.4.3 and 0.6.0.
  """
  pld = importlib.import_module('dp_accounting.pld.privacy_loss_mechanism')
  kind = pld.GaussianPrivacyLoss
  if 'get_delta_for_epsilon' in vars(kind):
    return
  one_by_one = kind.get_delta_for_epsilon

  def get_delta_for_epsilon(self, epsilon):
    both = pld.AdjacencyType.ADD, pld.AdjacencyType.REMOVE
    if self.adjacency_type not in both or not getattr(epsilon, 'shape', ()):
      return one_by_one(self, epsilon)
    is_plain, x = _inverted(self, epsilon, self.adjacency_type is both[0])
    np = importlib.import_module('numpy')
    deltas = np.empty(len(epsilon))
    deltas[is_plain] = self.mu_upper_cdf(x) - np.exp(
        epsilon[is_plain] + self.mu_lower_log_cdf(x)
    )
    deltas[~is_plain] = one_by_one(self, epsilon[~is_plain])
    return np.clip(deltas, 0, 1)

  kind.get_delta_for_epsilon = get_delta_for_epsilon


def _inverted(loss, losses, is_add: bool) -> tuple:
  """Returns (which losses are inverted, the largest x with each of these).

  It leaves out what dp_accounting treats on its own: the loss 0, losses near
  the end of the range, and those beyond.

  Args:
    loss: A `GaussianPrivacyLoss` of dp_accounting.
    losses: Float64 array of losses.
    is_add: Whether the loss is for adding a contribution, not for removing one.
  """
  np = importlib.import_module('numpy')
  sign = -1.0 if is_add else 1.0
  share = loss.sampling_prob
  is_plain, without = np.full(losses.shape, True), losses
  if share < 1:
    # The loss l without sampling solves exp(sign l) = exp(first) - exp(second)
    # = 1 + (exp(sign loss) - 1) / share.
    second = np.log(1 / share - 1)
    is_plain = (
        (losses != 0)
        & (np.log(1 / share) + sign * losses > second)
        & ~np.isclose(losses, sign * np.log1p(-share), rtol=1e-6, atol=0)
    )
    first = np.log(1 / share) + sign * losses[is_plain]
    without = sign * (first + np.log1p(-np.exp(second - first)))
  middle = -sign * 0.5 * loss.sensitivity
  found = middle - without * loss.standard_deviation**2 / loss.sensitivity
  return is_plain, found


def bound_convolutions_at_once() -> None:
  """Makes dp_accounting take one exponential for all of Chernoff's bounds.

  Its own code takes 40 exponentials of each loss before it composes a mechanism
  with itself. The bounds stay the same, up to rounding. Checked against
  dp_accounting 0.4.3 and 0.6.0.
  """
  common = importlib.import_module('dp_accounting.pld.common')
  one_by_one = common.compute_self_convolve_bounds
  if one_by_one.__module__ == __name__:
    return

  def compute_self_convolve_bounds(
      input_list, num_times, tail_mass_truncation=0, orders=None
  ):
    if orders is not None or not tail_mass_truncation:
      return one_by_one(input_list, num_times, tail_mass_truncation, orders)
    np = importlib.import_module('numpy')
    probs, size = np.asarray(input_list), len(input_list)
    low, high = 0, (size - 1) * num_times
    rest = np.log(2 / tail_mass_truncation)
    growth = np.exp(np.arange(size) / size)
    powers = np.ones(size)
    for order in range(1, 21):  # The orders of dp_accounting, times the size.
      powers *= growth
      above, below = (
          (num_times * np.log(probs @ each) + rest) * size / order
          for each in (powers, 1 / powers)
      )
      if np.isfinite(above):
        high = min(high, math.ceil(above))
      if np.isfinite(below):
        low = max(low, math.floor(-below))
    return low, high

  common.compute_self_convolve_bounds = compute_self_convolve_bounds


def loss_directions(distribution) -> tuple:
  """Returns the PMFs of a privacy-loss distribution: (remove, add).

  The result is (remove,) alone if both directions have the same PMF. Checked
  against dp_accounting 0.4.3 and 0.6.0, which have no public way to get them.

  Args:
    distribution: A `PrivacyLossDistribution` of dp_accounting.
  """
  # pylint: disable=protected-access
  if distribution._symmetric:
    return (distribution._pmf_remove,)
  return (distribution._pmf_remove, distribution._pmf_add)
  # pylint: enable=protected-access


def loss_masses(distribution) -> tuple:
  """Returns (lower, probs, infinite mass) of the losses, for each direction.

  `probs[i]` is the probability of a loss of `(lower + i)` grid intervals, and
  the infinite mass is the probability of an infinite loss. For the
  directions see `loss_directions`.

  Args:
    distribution: A `PrivacyLossDistribution` of dp_accounting.
  """
  # pylint: disable=protected-access
  dense = [pmf.to_dense_pmf() for pmf in loss_directions(distribution)]
  return tuple(
      (pmf._lower_loss, pmf._probs, pmf._infinity_mass) for pmf in dense
  )
  # pylint: enable=protected-access


def losses_of(pmf) -> tuple:
  """Returns (interval, points, probs, infinite mass) of a `PLDPmf`.

  Points and probs are arrays: `probs[i]` is the probability of a loss of
  `points[i]` grid intervals. The points increase. Checked against dp_accounting
  0.4.3 and 0.6.0.
  """
  np = importlib.import_module('numpy')
  # pylint: disable=protected-access
  if hasattr(pmf, '_loss_probs'):  # Its dense form may have very many points.
    pairs = sorted(pmf._loss_probs.items())
    points = np.array([point for point, _ in pairs], np.int64)
    probs = np.array([prob for _, prob in pairs], np.float64)
  else:
    probs = pmf._probs
    points = pmf._lower_loss + np.arange(len(probs))
  return pmf._discretization, points, probs, pmf._infinity_mass
  # pylint: enable=protected-access
