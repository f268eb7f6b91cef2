# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The event of a random allocation, with noise that the server adds."""

import math

import attr
import dp_accounting

from tff_dp import _checks
from tff_dp.accounting.events import run_events
from tff_dp.systems.system import At


@attr.s(frozen=True)
class RandomAllocationDpEvent(run_events.ProtocolDpEvent):
  """One pass of check-ins at a server that is trusted to add Gaussian noise.

  Each client takes part with probability `participation_probability` and then
  in `num_selected` of `num_steps` steps, drawn uniformly without repetition.
  Every step, even an empty one, releases the sum of the contributions plus the
  noise of `event`. `event` is a `dp_accounting.GaussianDpEvent` whose noise
  multiplier is the noise std over the bound on the norm of one contribution.
  Both events are stated for zero-out. The adversary sees every noised sum but
  not who took part when (arXiv:2502.08202). Several passes with new draws are a
  `SelfComposedDpEvent` of this event.
  """

  rules = At('tff_dp.systems.allocation.event_bounds', 'RULES')

  event: dp_accounting.DpEvent = attr.ib()
  num_steps: int = run_events.count_field(1)
  num_selected: int = run_events.count_field(1, default=1)
  participation_probability: float = run_events.real_field(
      _checks.in_closed, 0.0, 1.0, default=1.0
  )

  @event.validator
  def _check_event(self, unused_attribute, value):
    if not isinstance(value, dp_accounting.GaussianDpEvent):
      raise TypeError(
          f'event={value!r} is not allowed: expected a'
          ' dp_accounting.GaussianDpEvent, noise on the sum of a step.'
      )
    multiplier = value.noise_multiplier
    if multiplier != math.inf:
      _checks.non_negative(noise_multiplier=multiplier)

  def __attrs_post_init__(self):
    _checks.integer_between(1, self.num_steps, num_selected=self.num_selected)
