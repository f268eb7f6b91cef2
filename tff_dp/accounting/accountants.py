# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Epsilon and delta of any `DpEvent`, by three accountants from one event.

    event = dp_accounting.ComposedDpEvent([plan.event(), evaluation])
    accountants.epsilon(event, delta=1e-6, method='pld')

| method | events | result |
|---|---|---|
| `exact` | compositions of Gaussian mechanisms | *Exact*, rounded upward |
| `pld` | also Laplace, Poisson-sampled, ... | *Upper bound*, usually tight |
| `rdp` | also Laplace, Poisson-sampled, ... | *Upper bound*, looser |

A composition of Gaussian mechanisms, adaptively chosen or not, is itself one
Gaussian mechanism: their 1 / sigma^2 add up (Dong, Roth and Su,
arXiv:1905.02383, corollary 3.3). All methods merge the Gaussian mechanisms
first, so the result does not depend on how Gaussian noise is split into events.

Neighbouring relations. Every event is stated for zero-out, except for the
events of protocols, which name their own relation. The multiplier of a Gaussian
event is its std over the bound C on the L2 norm of one contribution. The
parameter of a Laplace event is its scale over the bound on the L1 norm. Under
replace-one a contribution moves by up to 2 C. This module applies that factor
once, through `run_events.effective_sigma`. It does not ask dp_accounting to
convert: its Renyi accountant never does, and its PLD accountant does so only
from version 0.6 on and only for some events.

dp_accounting gets each event under a relation with the same pair of
distributions as ours:

* Our zero-out is REPLACE_SPECIAL in dp_accounting. Version 0.4 refuses that
  relation for Poisson-sampled sums, so they are accounted under
  ADD_OR_REMOVE_ONE. The pair of distributions is the same: a contribution of
  zeros changes neither the sum nor the divisor, and the divisor does not depend
  on who took part. So the release is the same whether a client is removed or
  contributes zeros.
* Replace-one of an unsampled Gaussian or Laplace mechanism is the pair "no
  contribution" against "a contribution of norm 2 C". Sampled mechanisms are
  mixtures under replace-one, which that pair does not describe. Under
  replace-one, 'pld' bounds Poisson-sampled sums by two hops
  (`curves.replace_one`), and 'rdp' refuses them.

Events of protocols are accounted for by 'pld', through `protocol_accountant`.
Each event names the rules that bound it (`protocols.bounds`).
"""

from collections.abc import Callable
import math

import dp_accounting
from dp_accounting import pld
from dp_accounting import rdp
import numpy as np

from tff_dp import _checks
from tff_dp import _compat_losses
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import replace_one
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import protocol_accountant

METHODS = ('exact', 'pld', 'rdp')

_ZERO_OUT = run_events.NeighboringRelation.ZERO_OUT

_ROUNDING = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)
# Losses are rounded to a grid. Its interval is at most the first share of the
# std of all losses together, and at most the second share of the std of any
# mechanism that occurs at least _MANY times. Rounding costs about the square of
# the share. No mechanism gets more than _MOST_POINTS points.
_GRID_SHARE = 1e-3
_GRID_SHARE_OF_MANY = 0.1
_MANY = 100
_MOST_POINTS = 1 << 20
# Tails that dp_accounting cuts reach this many standard deviations.
_TAIL = 10.0
# Sums of probabilities and their convolutions by Fourier transform leave errors
# of this size in delta, absolute and relative; dp_accounting does not add them.
# The power that composes t mechanisms multiplies the rounding of the transform,
# and of the law of one mechanism, by t. The share of t is measured, not proved:
# compositions whose delta is known show smaller errors.
_PLD_ERROR = 1e-14
_PLD_ERROR_OF_POWER = 5e-16
_PLD_RELATIVE_ERROR = 1e-12
# Orders are 1 + exp(grid).
_ORDERS = np.linspace(-4.5, 9.0, 64)
_MOST_MOVES = 12
_REFINEMENTS = 3
_RDP_ROUNDING = 1e-12
# Floats do not resolve the loss of much noise or of a small sampling
# probability. More noise never makes delta larger, and a smaller probability
# does not either. So more noise than this counts as this much.
_MOST_NOISE = 1e6
# For sampled sums, by method: the same, and the smallest probability that
# counts. If the noise is above 1, this probability is for noise 1 and grows
# with the noise.
_RESOLVED = {'pld': (_MOST_NOISE, 1e-9), 'rdp': (1e3, 1e-7)}
# Less noise counts as none, because exp(loss) overflows.
_LEAST_NOISE = 1e-3


def epsilon(
    event: dp_accounting.DpEvent,
    *,
    delta: float,
    method: str = 'exact',
    neighboring_relation: run_events.NeighboringRelation = _ZERO_OUT,
) -> float:
  """Returns the epsilon of an event at delta, infinity if it has no noise.

  Exact for method 'exact', an upper bound for the other methods. Method 'pld'
  may return infinity for a delta at which double precision is exhausted: below
  about 1e-14 plus 5e-16 for each sampled or Laplace mechanism. For sampled
  sums under replace-one this also happens at larger deltas, if epsilon is
  large.

  Args:
    event: The event. The noise multipliers in it are for zero-out: noise std
      over the bound on one contribution. Only events of protocols name another
      relation.
    delta: Target delta, in the open interval (0, 1).
    method: Accountant to use: 'exact', 'pld' or 'rdp'.
    neighboring_relation: Relation to account under. Events stated for zero-out
      are converted to it here.

  Raises:
    PrivacyRefusedError: If the method cannot account for the event under the
      relation.
    TypeError: If `event` is not a `DpEvent`, or if there are no rules for an
      event of a protocol in it.
  """
  _checks.in_open(0.0, 1.0, delta=delta)
  if protocol_accountant.has_protocol_events(event):
    _checks.one_of(METHODS, method=method)
    return protocol_accountant.epsilon(
        event, delta=delta, method=method, asked=neighboring_relation
    )
  if _takes_two_hops(event, method, neighboring_relation):
    return replace_one.epsilon_of_loss(loss(event), float(delta))
  parts = _parts(event, method, neighboring_relation)
  if parts.sigma == 0:
    return math.inf
  if parts.is_empty:
    return 0.0
  if method == 'exact':
    return gaussian.exact_epsilon(sigma=parts.sigma, delta=delta)
  if method == 'pld':
    accountant = _pld_accountant(parts)
    remaining = float(delta) * (1 - _PLD_RELATIVE_ERROR) - _pld_error(parts)
    if remaining <= 0:
      return math.inf
    return float(accountant.get_epsilon(remaining))
  best = _best_order(
      parts, lambda accountant: accountant.get_epsilon_and_optimal_order(delta)
  )
  return best + _RDP_ROUNDING * (1 + best)


def delta(
    event: dp_accounting.DpEvent,
    *,
    epsilon: float,  # pylint: disable=redefined-outer-name
    method: str = 'exact',
    neighboring_relation: run_events.NeighboringRelation = _ZERO_OUT,
) -> float:
  """Returns the delta of an event at epsilon, 1 if it has no noise.

  Exact for method 'exact', an upper bound for the other methods.

  Args:
    event: The event. The noise multipliers in it are for zero-out: noise std
      over the bound on one contribution. Only events of protocols name another
      relation.
    epsilon: Target epsilon, finite and at least 0.
    method: Accountant to use: 'exact', 'pld' or 'rdp'.
    neighboring_relation: Relation to account under. Events stated for zero-out
      are converted to it here.

  Raises:
    PrivacyRefusedError: If the method cannot account for the event under the
      relation.
    TypeError: If `event` is not a `DpEvent`, or if there are no rules for an
      event of a protocol in it.
  """
  _checks.non_negative(epsilon=epsilon)
  if protocol_accountant.has_protocol_events(event):
    _checks.one_of(METHODS, method=method)
    return protocol_accountant.delta(
        event, epsilon=epsilon, method=method, asked=neighboring_relation
    )
  if _takes_two_hops(event, method, neighboring_relation):
    profiles = loss(event).profiles()
    hops = replace_one.Hops(profiles[0], profiles[-1])
    return float(hops.profile()(np.array([float(epsilon)]))[0])
  parts = _parts(event, method, neighboring_relation)
  if parts.sigma == 0:
    return 1.0
  if parts.is_empty:
    return 0.0
  if method == 'exact':
    return gaussian.exact_delta(sigma=parts.sigma, epsilon=epsilon)
  if method == 'pld':
    found = float(_pld_accountant(parts).get_delta(float(epsilon)))
    found = max(0.0, found) * (1 + _PLD_RELATIVE_ERROR)
    return min(1.0, found + _pld_error(parts))
  best = _best_order(
      parts, lambda accountant: accountant.get_delta_and_optimal_order(epsilon)
  )
  # The rounding error is in the exponent, which is at most some thousands for a
  # delta above 0.
  return min(1.0, best * (1 + 1000 * _RDP_ROUNDING) + _TINY)


def loss(event: dp_accounting.DpEvent) -> composition.Loss:
  """Returns the privacy loss of an event under zero-out.

  Upper bound. One result serves many deltas: up to rounding,
  `loss(event).epsilon(delta)` is the `epsilon` of the method 'pld'.

  Args:
    event: The event, without events of protocols. The noise multipliers in it
      are for zero-out.

  Raises:
    PrivacyRefusedError: If method 'pld' cannot account for the event.
  """
  parts = _parts(event, 'pld', _ZERO_OUT)
  if parts.is_empty:
    return composition.together([])
  if parts.sigma == 0:
    return composition.Loss(None, 0.0)
  return composition.Loss(
      _compat_losses.loss_distribution(_pld_accountant(parts)),
      _pld_error(parts),
  )


class _Parts:
  """The parts of an event: one Gaussian mechanism and everything else.

  Attributes:
    sigma: Effective noise of all Gaussian mechanisms together, under the
      relation. Infinity if there are none, 0 if some part has no noise.
    others: Pairs (event, number of occurrences) of the events that are neither
      Gaussian nor compositions.
    relation: Neighbouring relation that dp_accounting is given for `others`.
  """

  def __init__(self, sigma: float, others: run_events.Leaves, relation):
    self.sigma = sigma
    self.others = others
    self.relation = relation

  @property
  def is_empty(self) -> bool:
    """Whether nothing is released."""
    return self.sigma == math.inf and not self.others

  def compose_into(self, accountant) -> None:
    """Composes everything into one accountant of dp_accounting."""
    if self.sigma < math.inf:
      accountant.compose(dp_accounting.GaussianDpEvent(self.sigma))
    for leaf, count in self.others:
      accountant.compose(leaf, count)


def _parts(event, method: str, neighboring_relation) -> _Parts:
  _checks.one_of(METHODS, method=method)
  relation = run_events.NeighboringRelation(neighboring_relation)
  gaussians, others = [], []
  for leaf, count in run_events.leaves(event):
    if isinstance(leaf, dp_accounting.NonPrivateDpEvent):
      gaussians.append((0.0, 1))
    elif isinstance(leaf, dp_accounting.GaussianDpEvent):
      gaussians.append((_multiplier(leaf, relation), count))
    elif isinstance(leaf, dp_accounting.LaplaceDpEvent):
      parameter = _multiplier(leaf, relation)
      if parameter == 0:
        gaussians.append((0.0, 1))
      else:
        others.append((dp_accounting.LaplaceDpEvent(parameter), count))
    else:
      others.append((leaf, count))
  if others and method == 'exact':
    raise _checks.PrivacyRefusedError(
        f'no exact epsilon is known for {run_events.kinds(others)}',
        why='only Gaussian mechanisms compose to one Gaussian mechanism, for'
        ' which epsilon is exact',
        way_out="method='pld', an upper bound that is usually tight, or"
        " method='rdp'",
    )
  sigma = _combined(gaussians)
  if method != 'exact':
    others = [(_resolved(leaf, method), count) for leaf, count in others]
    if sigma < _LEAST_NOISE or any(
        isinstance(leaf, dp_accounting.NonPrivateDpEvent) for leaf, _ in others
    ):
      sigma, others = 0.0, []
    elif sigma < math.inf:
      sigma = min(sigma, _MOST_NOISE)
  parts = _Parts(sigma, others, _relation(relation, others))
  for leaf, _ in others:
    _check_supported(leaf, parts.relation, relation, method)
  return parts


def _resolved(leaf, method: str):
  """Returns an event with at least the loss of a leaf, which floats resolve.

  Without noise, the whole event is a `NonPrivateDpEvent`, even if it is
  sampled: the distributions of dp_accounting leave such an event out.
  """
  most_noise, least_share = _RESOLVED[method]
  if isinstance(leaf, dp_accounting.PoissonSampledDpEvent):
    share, inner = leaf.sampling_probability, _resolved(leaf.event, method)
    if share == 0 or isinstance(inner, dp_accounting.NonPrivateDpEvent):
      return inner if share else leaf
    least = least_share * max(1.0, getattr(inner, 'noise_multiplier', 1.0))
    return dp_accounting.PoissonSampledDpEvent(max(share, least), inner)
  if isinstance(
      leaf, (dp_accounting.GaussianDpEvent, dp_accounting.LaplaceDpEvent)
  ):
    if leaf.noise_multiplier < _LEAST_NOISE:
      return dp_accounting.NonPrivateDpEvent()
    return type(leaf)(min(leaf.noise_multiplier, most_noise))
  return leaf


def _multiplier(leaf, relation) -> float:
  if leaf.noise_multiplier == math.inf:
    return math.inf
  return run_events.effective_sigma(
      noise_multiplier=leaf.noise_multiplier,
      squared_sensitivity=1.0,
      neighboring_relation=relation,
  )


def _combined(gaussians: list[tuple[float, int]]) -> float:
  """Returns the sigma of Gaussian mechanisms together, rounded downward."""
  if any(sigma == 0 for sigma, _ in gaussians):
    return 0.0
  if len(gaussians) == 1 and gaussians[0][1] == 1:
    return gaussians[0][0]
  # Divide by the smallest sigma first, so that no square overflows.
  least = min((sigma for sigma, _ in gaussians), default=math.inf)
  if least == math.inf:
    return math.inf
  total = math.fsum(count * (least / sigma) ** 2 for sigma, count in gaussians)
  return least / math.sqrt(total) * (1 - 8 * _ROUNDING)


def _relation(
    relation, others: run_events.Leaves
) -> dp_accounting.NeighboringRelation:
  """Returns the relation to pass to dp_accounting (see the module docstring).
  """
  nr = dp_accounting.NeighboringRelation
  if relation is not _ZERO_OUT or all(_is_sum(leaf) for leaf, _ in others):
    return nr.ADD_OR_REMOVE_ONE
  return nr.REPLACE_SPECIAL


def _takes_two_hops(event, method: str, neighboring_relation) -> bool:
  """Whether replace-one is bounded by removing a client and adding another.

  No pair of distributions is known here that dominates the replacement of a
  contribution to a Poisson-sampled sum.
  """
  relation = run_events.NeighboringRelation(neighboring_relation)
  found = [leaf for leaf, _ in run_events.leaves(event)]
  return (
      method == 'pld'
      and relation is run_events.NeighboringRelation.REPLACE_ONE
      and any(
          isinstance(leaf, dp_accounting.PoissonSampledDpEvent)
          for leaf in found
      )
      and all(
          _is_sum(leaf) or isinstance(leaf, dp_accounting.NonPrivateDpEvent)
          for leaf in found
      )
  )


def _is_sum(leaf) -> bool:
  """Whether a leaf is a noised sum, Poisson-sampled or not."""
  if isinstance(leaf, dp_accounting.PoissonSampledDpEvent):
    return all(_is_sum(part) for part, _ in run_events.leaves(leaf.event))
  return isinstance(
      leaf, (dp_accounting.GaussianDpEvent, dp_accounting.LaplaceDpEvent)
  )


def _check_supported(leaf, their_relation, relation, method: str) -> None:
  """Raises unless dp_accounting can account for a leaf under the relation."""
  if relation is not _ZERO_OUT and not isinstance(
      leaf, dp_accounting.LaplaceDpEvent
  ):
    raise _checks.PrivacyRefusedError(
        f'{run_events.kinds([(leaf, 1)])} is not accounted for under'
        f' {relation} adjacency',
        why='replacing a sampled contribution changes the distribution in'
        ' another way than zeroing it',
        way_out='neighboring_relation=zero_out, or state the event without'
        ' sampling',
    )
  if method == 'pld' and run_events.is_composed_once(leaf):
    raise _checks.PrivacyRefusedError(
        f"method='pld' does not know {run_events.kinds([(leaf, 1)])}",
        why='dp_accounting composes it once, whatever the count is',
        way_out="method='rdp', or RandomizedResponseLocalDpEvent and"
        ' ProtocolAccountant under replace_one',
    )
  maker = {'pld': pld.PLDAccountant, 'rdp': rdp.RdpAccountant}[method]
  if not maker(neighboring_relation=their_relation).supports(leaf):
    other = {'pld': 'rdp', 'rdp': 'pld'}[method]
    raise _checks.PrivacyRefusedError(
        f"dp_accounting's accountant for method={method!r} does not know"
        f' {run_events.kinds([(leaf, 1)])} under {relation} adjacency',
        why='without its distribution, no epsilon can be computed',
        way_out=f'method={other!r}, or another event that is an upper bound.'
        ' For a noise tree this is'
        ' GaussianDpEvent(noise_multiplier / sqrt(squared_sensitivity))',
    )


def _pld_accountant(parts: _Parts):
  _compat_losses.invert_losses_at_once()
  _compat_losses.bound_convolutions_at_once()
  accountant = pld.PLDAccountant(parts.relation, _interval(parts))
  parts.compose_into(accountant)
  return accountant


def _interval(parts: _Parts) -> float:
  """Returns the interval of the grid of losses.

  Any interval gives an upper bound. This one gives a tight bound: it is fine
  relative to the loss of everything together and to each loss that occurs
  often, because the rounding errors of repeated losses add up. It is never so
  fine that the losses would not fit into one array.
  """
  scales = [(*_scales(leaf), count) for leaf, count in parts.others]
  if parts.sigma < math.inf:
    scales.append((1 / parts.sigma, 2 * _TAIL / parts.sigma, 1))
  total = math.sqrt(sum(count * std**2 for std, _, count in scales))
  wished = [_GRID_SHARE * total] + [
      _GRID_SHARE_OF_MANY * std for std, _, count in scales if count >= _MANY
  ]
  widest = max(width for _, width, _ in scales)
  return max(min(wished), widest / _MOST_POINTS)


def _scales(leaf) -> tuple[float, float]:
  """Returns rough values: (std, width) of a leaf's privacy loss."""
  share = 1.0
  if isinstance(leaf, dp_accounting.PoissonSampledDpEvent):
    share, leaf = leaf.sampling_probability, leaf.event
  multiplier = getattr(leaf, 'noise_multiplier', None) or 1.0
  width = 2 / multiplier
  if isinstance(leaf, dp_accounting.GaussianDpEvent):
    width = 2 * _TAIL / multiplier + 1 / multiplier**2
  spread = math.sqrt(math.expm1(min(multiplier**-2, 100.0)))
  return min(1 / multiplier, max(share, 1e-9) * spread), width


def _pld_error(parts: _Parts) -> float:
  counts = [count for _, count in parts.others]
  return _PLD_ERROR * (1 + len(counts)) + _PLD_ERROR_OF_POWER * sum(counts)


def _best_order(parts: _Parts, value_and_order: Callable) -> float:
  """Returns the smallest value over the orders tried. Upper bound.

  Every order gives a valid bound. The grid moves up until its best order is not
  its last one, and is then refined around that order. For sampled mechanisms
  the grid does not move, and only whole orders are tried, where the divergence
  is a finite sum. For a fractional order dp_accounting 0.4 truncates the series
  so early that the result can lie below the true value.

  Args:
    parts: Parts of the event.
    value_and_order: Function from an accountant of dp_accounting to (value,
      best order of the accountant).
  """
  is_sampled = any(
      not isinstance(leaf, dp_accounting.LaplaceDpEvent)
      for leaf, _ in parts.others
  )
  grid, refinements, best = _ORDERS, 0, math.inf
  for _ in range(_MOST_MOVES):
    orders = 1 + np.exp(grid)
    if is_sampled:
      orders = np.unique(np.maximum(np.round(orders), 2.0))
    accountant = rdp.RdpAccountant(orders.tolist(), parts.relation)
    parts.compose_into(accountant)
    value, order = value_and_order(accountant)
    best = min(best, float(value))
    centre = math.log(max(order - 1, 1e-9))
    step = grid[1] - grid[0]
    # A whole order needs as many terms as its value, so these grids stay put.
    if order == orders[-1] and not is_sampled:
      grid = grid[-1] + step * np.arange(-2, len(grid) - 2)
      continue
    if refinements == _REFINEMENTS:
      break
    refinements += 1
    grid = centre + np.linspace(-2 * step, 2 * step, len(grid))
  return best
