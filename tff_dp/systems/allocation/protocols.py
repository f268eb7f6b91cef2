# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Allocation: a client draws its own slots, and a trusted server adds noise.

`RandomAllocation` is from Feldman and Shenfeld, arXiv:2502.08202.
`CyclicAllocation` is ours: its noise may be correlated over rounds.

Steps count from 1. The server is trusted, also to add the noise. Adjacency is
zero-out.
"""

import dataclasses
from typing import Optional

import dp_accounting
import numpy as np

from tff_dp import _checks
from tff_dp.participation import protocol as protocol_lib
from tff_dp.systems.allocation import allocation_events


class _Allocation(protocol_lib.Protocol):
  """A protocol whose trusted server adds noise to the sum of every step.

  There is no winner, because the winner would depend on other clients.
  """

  has_one_winner = False
  occupancy_is_secret = True
  needs_population = False
  noise_is_central = True
  trust = (
      'the server and the channels to it, with who checked in, the updates and'
      ' the noise'
  )
  adversary = 'all models'


@dataclasses.dataclass(frozen=True)
class RandomAllocation(_Allocation, protocol_lib.Slots):
  """Check-ins at a trusted server that adds Gaussian noise to every sum.

  A client takes part with some probability, then in k of m slots, drawn
  uniformly without repetition. Every slot, even an empty one, releases its
  noised sum divided by a constant.

  Attributes:
    num_slots: Number of slots m.
    num_selected: Number of slots k of a participating client.
    check_in_probability: Probability of taking part, in [0, 1].
  """

  num_slots: int
  num_selected: int = 1
  check_in_probability: float = 1.0

  def __post_init__(self):
    _checks.integer_at_least(1, num_slots=self.num_slots)
    _checks.integer_between(1, self.num_slots, num_selected=self.num_selected)
    _checks.probability(check_in_probability=self.check_in_probability)

  @property
  def max_reports(self) -> int:
    return self.num_selected

  @property
  def participation(self) -> str:
    return (
        f'with probability {self.check_in_probability:g} a client takes part in'
        f' {self.num_selected} of {self.num_slots} slots, uniformly drawn'
    )

  def draw_pass(self, rng, num_clients):
    """See base class."""
    if self.num_selected == 1:
      return super().draw_pass(rng, num_clients)
    taking_part = np.flatnonzero(
        rng.random(num_clients) < self.check_in_probability
    )
    slots = np.empty((len(taking_part), self.num_selected), np.int64)
    # As in the literal sampler, the i-th draw counts only slots not yet taken.
    for number in range(self.num_selected):
      slot = rng.integers(self.num_slots - number, size=len(taking_part))
      for other in range(number):
        slot += slots[:, other] <= slot
      slots[:, number] = slot
      slots[:, : number + 1].sort(axis=1)
    owners = np.repeat(taking_part, self.num_selected)
    return protocol_lib.by_step(rng, slots.ravel(), owners, self.num_slots)

  def dp_event(
      self, event: dp_accounting.DpEvent, *, num_rounds: Optional[int] = None
  ) -> allocation_events.RandomAllocationDpEvent:
    """See base class.

    For a run that stops early, the event covers the slots so far. With
    `num_selected` above 1 it covers the whole pass instead.
    """
    stopped = self._stopped_after(num_rounds)
    if self.num_selected > 1:
      stopped = self.num_slots
    return allocation_events.RandomAllocationDpEvent(
        event,
        num_steps=stopped,
        num_selected=self.num_selected,
        participation_probability=protocol_lib.share_of(
            self.check_in_probability, part=stopped, whole=self.num_slots
        ),
    )


@dataclasses.dataclass(frozen=True)
class CyclicAllocation(_Allocation):
  """A client draws one slot of every window, always in its own residue class.

  A client first draws a residue class r from 0 to p - 1 and keeps it. The
  slots of the class are the rounds 1 + r, 1 + r + p, 1 + r + 2p, ... They are
  cut into E windows of B = floor(floor(T / p) / E) slots. The last window also
  gets the remaining slots. In every window the client draws one slot uniformly.
  A client that cannot come in its slot drops out of the window. It never gets
  another slot instead: that would make later slots likelier and cost privacy.

  The noise of the server may be correlated over rounds, by a matrix with at
  most p bands. Two rounds of a client are at least p apart, so their columns of
  the matrix have no row in common. The proof for independent noise therefore
  holds for this noise, too (docs/proofs_check_ins.md, section 4.9).

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
    _checks.probability(check_in_probability=self.check_in_probability)

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
    """Returns the rounds of one residue class in one window.

    Rounds count from 1.

    Args:
      residue: Residue class, from 0 to `stride` - 1.
      window: Window, from 0 to `num_windows` - 1.
    """
    per_window = self.slots_per_window
    first = 1 + residue + self.stride * per_window * window
    end = self.num_rounds + 1
    if window + 1 < self.num_windows:
      end = first + self.stride * per_window
    return range(first, end, self.stride)

  def windows(self, position, draw):
    """See base class. The client also draws its residue class."""
    del position
    residue = draw('residue', choices=self.stride)
    return [
        ((window,), self.steps(residue, window))
        for window in range(self.num_windows)
    ]

  def draw_pass(self, rng, num_clients):
    """See base class."""
    residues = rng.integers(self.stride, size=num_clients)
    slots, owners = [], []
    for window in range(self.num_windows):
      come = np.flatnonzero(
          rng.random(num_clients) < self.check_in_probability
      )
      steps = [self.steps(residue, window) for residue in range(self.stride)]
      lengths = np.array([len(each) for each in steps])[residues[come]]
      firsts = np.array([each.start for each in steps])[residues[come]]
      slots.append(firsts - 1 + self.stride * rng.integers(lengths))
      owners.append(come)
    return protocol_lib.by_step(
        rng, np.concatenate(slots), np.concatenate(owners), self.num_rounds
    )

  def expected_clients_per_step(self, population):
    """See base class."""
    share = self.check_in_probability * self.num_windows / self.num_rounds
    return population * share

  def dp_event(
      self, event: dp_accounting.DpEvent, *, num_rounds: Optional[int] = None
  ) -> dp_accounting.DpEvent:
    """Returns a composition of random allocations, one for each window.

    See base class. Each allocation draws 1 of `slots_per_window` slots. The
    last window may have more slots. The event is then an upper bound. If the
    run stops within a window, the last allocation has only the slots that have
    begun, and its probability of taking part falls in proportion. Begun slots
    are counted in residue class 0, which has the most. The event is an upper
    bound for clients of the other classes.

    Args:
      event: Gaussian event with noise multiplier `noise_multiplier / |c|`,
        where c is the column of the mechanism's matrix C with the largest norm:
        the effect of one report on all rounds.
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
    return allocation_events.RandomAllocationDpEvent(
        event, num_steps=slots, participation_probability=probability
    )
