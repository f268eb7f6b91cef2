# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Releasing noised counts of check-ins beside a protocol that hides them.

How many clients checked in at a step says something about the step that a
client drew, and the amplification of a protocol with secret occupancy rests on
nobody knowing it. So the protocol and a Gaussian mechanism on its counts do not
simply compose: the counts and the models share the client's coins.

[derived] Let z be the noised counts of all steps. In two hops, replace z by
z', the counts without the client, which know nothing of its coins:

    (z, models)(x)  ~  (z', models)(x)  ~  (z', models)(x')  ~  (z, models)(x')

The outer hops are Gaussian mechanisms whatever the coins, hence also on average
over them (a hockey-stick divergence is convex), and the models may depend on
z, as a kernel applied to it. The middle one is the protocol given z'. With
(e, d) of the protocol and (e_c, d_c) of the counts:

    epsilon = e + 2 e_c,   delta = e^{e_c} d + (1 + e^{e_c + e}) d_c

The relation is the protocol's, as its clients' coins are the same under both
neighbours.
"""

from collections.abc import Callable
import math
from typing import NamedTuple

from tff_dp import _checks
from tff_dp.accounting.curves import gaussian

_MOST_STEPS = 60
# Of the target delta, for float rounding in the sum below.
_MARGIN = 1e-12


class CountedGuarantee(NamedTuple):
  """A guarantee of models and noised counts together.

  Attributes:
    epsilon: Of both.
    protocol_epsilon: e, of the models alone, at `protocol_delta`.
    protocol_delta: d.
    count_epsilon: e_c of one hop, at `count_delta`.
    count_delta: d_c.
  """

  epsilon: float
  protocol_epsilon: float
  protocol_delta: float
  count_epsilon: float
  count_delta: float


def guarantee(
    epsilon_of: Callable[[float], float],
    *,
    count_stddev: float,
    max_reports: int,
    delta: float,
) -> CountedGuarantee:
  """Returns the guarantee of a protocol whose noised counts are released.

  Upper bound. Half of delta goes to the protocol, half to the counts.

  Args:
    epsilon_of: Maps a delta to the protocol's epsilon, never increasing.
    count_stddev: Of the independent Gaussian noise on the count of each step.
    max_reports: Most steps at which one client checks in, over the whole run:
      their counts move by 1 each, so the L2 sensitivity is its square root.
    delta: In (0, 1), of both together.
  """
  _checks.positive(count_stddev=count_stddev)
  _checks.integer_at_least(1, max_reports=max_reports)
  _checks.in_open(0, 1, delta=delta)
  sigma = count_stddev / math.sqrt(max_reports)
  half = delta / 2 * (1 - _MARGIN)
  count_delta = half / 4
  for _ in range(_MOST_STEPS):
    count_epsilon = gaussian.exact_epsilon(sigma=sigma, delta=count_delta)
    protocol_delta = half * math.exp(-count_epsilon)
    if not protocol_delta:
      break
    protocol_epsilon = epsilon_of(protocol_delta)
    if not protocol_epsilon < math.inf:
      break
    exponent = count_epsilon + protocol_epsilon
    most = half * math.exp(-exponent) / (1 + math.exp(-exponent))
    if count_delta <= most:
      return CountedGuarantee(
          protocol_epsilon + 2 * count_epsilon,
          protocol_epsilon,
          protocol_delta,
          count_epsilon,
          count_delta,
      )
    # A smaller one raises both epsilons a little, so aim below.
    count_delta = most / 2
    if not count_delta:
      break
  return CountedGuarantee(math.inf, math.inf, 0.0, math.inf, 0.0)
