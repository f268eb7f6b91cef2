# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Cyclic allocation: check-ins at a server whose noise is correlated.

A client keeps to one residue class of the rounds mod p. In each of E windows of
its class it draws one slot with its own coins. Two of its rounds are then at
least p apart, so the columns that they touch in a matrix with at most p bands
have no row in common. The argument that hides the slot under independent noise
therefore holds under this noise, too (docs/proofs_check_ins.md, section 4.9).

The server is trusted, also with the noise. Adjacency: zero-out.
"""

import dataclasses
from typing import Optional

import dp_accounting

from tff_dp import _checks
from tff_dp.accounting.events import run_events
from tff_dp.participation import protocol as protocol_lib


@dataclasses.dataclass(frozen=True)
class CyclicAllocation(protocol_lib.CentralCheckIn):
  """One fresh uniform slot per window, always in the client's residue class.

  Class r has the rounds r, r + p, r + 2p, ... Its slots are cut into E windows
  of B = floor(floor(T / p) / E) slots, and the last window also gets the
  remaining slots. A client that cannot come in its slot drops out of the
  window. It is never moved: moving it would make later slots likelier and cost
  privacy.

  Attributes:
    num_rounds: Number of rounds T.
    num_windows: Number of windows E, the most participations of a client.
    stride: Stride p, the smallest difference of the indices of two rounds of a
      client.
    check_in_probability: Probability of taking part in a window, in [0, 1].
  """

  num_rounds: int
  num_windows: int
  stride: int = 1
  check_in_probability: float = 1.0

  may_repeat = False

  def __post_init__(self):
    _checks.integer_at_least(1, num_rounds=self.num_rounds)
    _checks.integer_between(1, self.num_rounds, stride=self.stride)
    _checks.integer_between(
        1, self.num_rounds // self.stride, num_windows=self.num_windows
    )
    _checks.in_closed(0, 1, check_in_probability=self.check_in_probability)

  @property
  def slots_per_window(self) -> int:
    """Number of slots B of every window but the last, which may have more."""
    return self.num_rounds // self.stride // self.num_windows

  @property
  def max_reports(self) -> int:
    return self.num_windows

  @property
  def participation(self) -> str:
    windows = 'one window'
    if self.num_windows > 1:
      windows = f'{self.num_windows} windows'
    return (
        f'with probability {self.check_in_probability:g} a client takes part in'
        f' one of {self.slots_per_window} or more slots of a window, uniformly'
        f' drawn; {windows}, with slots {self.stride} rounds apart'
    )

  @property
  def assumptions(self) -> tuple[str, ...]:
    return (
        'A client draws anew in every window, and comes in that slot or not at'
        ' all: it is never moved to another one.',
        'Whether a client can come may depend on the slot, on its data and on'
        ' the models, not on what it drew.',
        'The server stops, or repeats a round, only for causes that do not'
        ' depend on who came; a repeated round has the same clients and noise.',
    )

  def steps(self, residue: int, window: int) -> range:
    """Returns the rounds of a window of a residue class, counted from 1.

    Args:
      residue: Residue class, from 0 to p - 1.
      window: Window, from 0 to E - 1.
    """
    per_window = self.slots_per_window
    first = 1 + residue + self.stride * per_window * window
    end = self.num_rounds + 1
    if window + 1 < self.num_windows:
      end = first + self.stride * per_window
    return range(first, end, self.stride)

  def expected_check_ins(self, num_rounds: int) -> float:
    """See base class. The slots of longer last windows are less likely."""
    windows = [
        self.steps(residue, window)
        for residue in range(self.stride)
        for window in range(self.num_windows)
    ]
    shares = [
        len(range(steps.start, min(steps.stop, num_rounds + 1), steps.step))
        / len(steps)
        for steps in windows
    ]
    return sum(shares) / self.stride

  def windows(self, position, draw):
    """See base class. A coin of the client also draws its class."""
    del position
    residue = draw('residue', choices=self.stride)
    return [
        ((window,), self.steps(residue, window))
        for window in range(self.num_windows)
    ]

  def dp_event(
      self, event: dp_accounting.DpEvent, *, num_rounds: Optional[int] = None
  ) -> dp_accounting.DpEvent:
    """Returns E passes of random allocation, 1 of B each. See base class.

    Upper bound if windows have more than B slots, or classes fewer slots than
    the first. If the run stops within a window, only the slots that have begun
    count, and a client is in them with their share of the probability.

    Args:
      event: Event of the noise over the bound on one contribution *after* the
        mechanism: noise_multiplier / |c|, where c is a column of C.
      num_rounds: Number of rounds after which the run stops, `None` for all.
    """
    per_window = self.slots_per_window
    # Number of slots of the first class that have begun. No class has more.
    begun = -(-self._stopped_after(num_rounds) // self.stride)
    whole, rest = divmod(min(begun, self.num_windows * per_window), per_window)
    parts = []
    if whole:
      window = self._window(event, per_window, self.check_in_probability)
      parts.append(
          window
          if whole == 1
          else dp_accounting.SelfComposedDpEvent(window, whole)
      )
    if rest:
      share = protocol_lib.share_of(
          self.check_in_probability, part=rest, whole=per_window
      )
      parts.append(self._window(event, rest, share))
    return parts[0] if len(parts) == 1 else dp_accounting.ComposedDpEvent(parts)

  def _window(self, event, slots: int, probability: float):
    return run_events.RandomAllocationDpEvent(
        event, num_steps=slots, participation_probability=probability
    )
