# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Random check-ins: a client draws one step of a window and reports there.

Balle, Kairouz, McMahan, Thakkar, Thakurta, arXiv:2007.06605:
`FixedWindowCheckIn` (A_fix, algorithm 1), `AveragedCheckIn` (A_avg, algorithm
2) and `SlidingWindowCheckIn` (A_sldw, section 4.2), in which clients add noise
themselves.

Steps count from 1. Adjacency is replace-one.
"""

import dataclasses
from typing import Optional

import dp_accounting
import numpy as np

from tff_dp import _checks
from tff_dp.participation import protocol as protocol_lib
from tff_dp.systems.check_ins import check_in_events
from tff_dp.systems.check_ins import random_check_ins

_SECRET_CHECK_INS = (
    'the server and the channels to it, with who checked in, who won and which'
    ' steps were empty, all of which stays secret; clients are honest but'
    ' curious, and each draws its own coins'
)


@dataclasses.dataclass(frozen=True)
class FixedWindowCheckIn(protocol_lib.Slots):
  """A_fix: a client takes part with probability p0, in one uniform slot of m.

  A_fix is the name in arXiv:2007.06605. Each slot uses one report, of a client
  drawn uniformly among those that checked in. For a slot without clients the
  server uses a dummy report. The number of clients need not be known.

  Attributes:
    num_slots: Number of slots m.
    check_in_probability: Probability p0 of taking part, in [0, 1].
    slots_per_update: Number b of reports per model update, a divisor of
      `num_slots`. The guarantee does not depend on b, because averaging is
      post-processing.
  """

  num_slots: int
  check_in_probability: float = 1.0
  slots_per_update: int = 1

  has_one_winner = True
  occupancy_is_secret = True
  needs_population = False
  trust = _SECRET_CHECK_INS
  adversary = 'all models'

  def __post_init__(self):
    _checks.integer_at_least(1, num_slots=self.num_slots)
    _checks.probability(check_in_probability=self.check_in_probability)
    _checks.integer_at_least(1, slots_per_update=self.slots_per_update)
    if self.num_slots % self.slots_per_update:
      raise _checks.ArgumentError(
          'slots_per_update',
          self.slots_per_update,
          f'a divisor of num_slots={self.num_slots}',
      )

  @property
  def num_updates(self) -> int:
    return self.num_slots // self.slots_per_update

  @property
  def participation(self) -> str:
    return (
        f'with probability {self.check_in_probability:g} a client checks in at'
        f' one of {self.num_slots} slots, uniformly; of those in a slot one'
        ' reports, uniformly chosen'
    )

  def draw_pass(self, rng, num_clients):
    """See base class.

    Clients are exchangeable, so the winners of all steps with clients are a
    uniform ordered sample of the clients.
    """
    counts = self._counts(rng, num_clients)
    winners = np.full(self.num_slots, protocol_lib.DUMMY)
    is_taken = counts > 0
    winners[is_taken] = rng.choice(
        num_clients, int(is_taken.sum()), replace=False
    )
    return counts, winners

  def expected_dummy_updates(self, population):
    """See base class."""
    return random_check_ins.expected_dummies_fixed_window(
        population,
        num_slots=self.num_slots,
        check_in_probability=self.check_in_probability,
    )

  def dp_event(
      self, event: dp_accounting.DpEvent, *, num_rounds: Optional[int] = None
  ) -> check_in_events.FixedWindowCheckInDpEvent:
    """See base class. A run that stops after s slots counts as a window of s.

    A client draws one of these s slots with probability p0 s / m, and all of
    them are equally likely.
    """
    stopped = self._stopped_after(num_rounds)
    return check_in_events.FixedWindowCheckInDpEvent(
        event,
        num_slots=stopped,
        check_in_probability=protocol_lib.share_of(
            self.check_in_probability, part=stopped, whole=self.num_slots
        ),
    )


@dataclasses.dataclass(frozen=True)
class SlidingWindowCheckIn(protocol_lib.Protocol):
  """A_sldw: client j wakes at step j and draws one of steps j..j+m-1.

  A_sldw is the name in arXiv:2007.06605. Each step uses one report, of a
  randomly chosen client that drew the step, or a dummy if no client did. Steps
  1..m-1 are not used, and clients that drew them do not report. If there are
  more than n clients, client j wakes at step 1 + (j - 1) mod n. Wake-up times
  are public.

  Attributes:
    num_rounds: Number of steps n, of which n - m + 1 update the model.
    window: Window m, at most n.
  """

  num_rounds: int
  window: int

  has_one_winner = True
  occupancy_is_secret = True
  needs_population = False
  may_repeat = False
  trust = _SECRET_CHECK_INS
  adversary = 'all models'

  def __post_init__(self):
    _checks.integer_at_least(1, num_rounds=self.num_rounds)
    _checks.integer_between(1, self.num_rounds, window=self.window)

  @property
  def num_updates(self) -> int:
    return self.num_rounds - self.window + 1

  @property
  def num_warm_up(self) -> int:
    """Number of steps at the beginning of a pass in which nobody reports."""
    return self.window - 1

  @property
  def participation(self) -> str:
    return (
        f'a client checks in at one of the {self.window} steps from its public'
        ' wake-up time on, uniformly; of those in a step one reports, uniformly'
        f' chosen; the first {self.window - 1} steps are not used'
    )

  def windows(self, position, draw):
    """See base class."""
    del draw
    first = 1 + position % self.num_rounds
    return [((), range(first, first + self.window))]

  def draw_pass(self, rng, num_clients):
    """See base class."""
    order = rng.permutation(num_clients)
    slots = order % self.num_rounds
    slots += rng.integers(self.window, size=num_clients)
    # If several clients are assigned to one place, NumPy keeps the last. The
    # order is random, so that one is uniform.
    num_slots = self.num_rounds + self.window
    winners = np.full(num_slots, protocol_lib.DUMMY)
    winners[slots] = order
    return np.bincount(slots, minlength=num_slots), winners

  def expected_dummy_updates(self, population):
    """See base class."""
    return random_check_ins.expected_dummies_sliding_window(
        population, num_steps=self.num_rounds, window=self.window
    )

  def dp_event(
      self, event: dp_accounting.DpEvent, *, num_rounds: Optional[int] = None
  ) -> check_in_events.SlidingWindowCheckInDpEvent:
    """See base class. A run that stops early counts as the whole pass."""
    self._stopped_after(num_rounds)
    return check_in_events.SlidingWindowCheckInDpEvent(
        event, window=self.window
    )


@dataclasses.dataclass(frozen=True)
class AveragedCheckIn(protocol_lib.Slots):
  """A_avg: every client draws one of m slots. Each slot averages its reports.

  An empty slot leaves the model as it is. The guarantee needs every client to
  take part, and a lower bound on the number of clients. The adversary may see
  the number of reports in a slot.

  Attributes:
    num_slots: Number of slots m.
    min_num_clients: Number of clients that are sure to flip honest coins and to
      report.
  """

  num_slots: int
  min_num_clients: int

  has_one_winner = False
  occupancy_is_secret = False
  needs_population = True
  trust = (
      'the server and the channels to it, with who checked in; participants do'
      ' not collude, and each draws its own coins'
  )
  adversary = 'all models, and the number of reports of every slot'

  def __post_init__(self):
    _checks.integer_at_least(1, num_slots=self.num_slots)
    _checks.integer_at_least(1, min_num_clients=self.min_num_clients)

  @property
  def participation(self) -> str:
    return (
        f'a client checks in at one of {self.num_slots} slots, uniformly, and'
        ' reports there'
    )

  def dp_event(
      self, event: dp_accounting.DpEvent, *, num_rounds: Optional[int] = None
  ) -> check_in_events.AveragedCheckInDpEvent:
    """See base class. A run that stops early counts as the whole pass."""
    self._stopped_after(num_rounds)
    return check_in_events.AveragedCheckInDpEvent(
        event,
        num_slots=self.num_slots,
        min_num_clients=self.min_num_clients,
    )
