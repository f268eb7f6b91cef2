# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports behind a shuffler, from everybody or from clients chosen by coins.

The aggregator sees the multiset of the reports of a round, and so their number,
but not whose they are. Shuffled check-in, in which every client flips a fresh
coin in every round: Liew, Hasegawa, Takahashi, arXiv:2206.03151.
"""

import dataclasses
from typing import Optional

import dp_accounting

from tff_dp import _checks
from tff_dp.participation import protocol as protocol_lib
from tff_dp.systems.check_ins import check_in_events


class _BehindShuffler(protocol_lib.Protocol):
  """Base class of the protocols whose reports go through a shuffler."""

  has_one_winner = False
  occupancy_is_secret = False
  needs_population = True
  may_repeat = False
  trust = (
      'the shuffler and the channels to it; the server that aggregates is not'
      ' trusted; clients draw their own coins and noise'
  )
  adversary = (
      'every report in random order, hence the number of reports, and all models'
  )

  @property
  def max_reports(self) -> int:
    return self.num_rounds


@dataclasses.dataclass(frozen=True)
class ShuffledReports(_BehindShuffler):
  """Every client reports in every round. Adjacency is replace-one.

  This protocol accounts for reports that exist already. No sampler simulates
  it. To train, use `ShuffledCheckIn` with rate 1.

  Attributes:
    num_rounds: Number of rounds T.
    min_num_clients: Number of clients that are sure to deliver: the crowd that
      the guarantee counts on.
  """

  num_rounds: int
  min_num_clients: int

  def __post_init__(self):
    _checks.integer_at_least(1, num_rounds=self.num_rounds)
    _checks.integer_at_least(1, min_num_clients=self.min_num_clients)

  @property
  def participation(self) -> str:
    return 'in every round every client reports'

  def check_simulated(self) -> None:
    """See base class."""
    raise _checks.PrivacyRefusedError(
        f'{self} has no coins to simulate',
        why='its guarantee is about reports from all clients in every round',
        way_out='ShuffledCheckIn(num_rounds, check_in_rate=1.0,'
        ' min_num_clients=...)',
    )

  def dp_event(
      self, event: dp_accounting.DpEvent, *, num_rounds: Optional[int] = None
  ) -> dp_accounting.SelfComposedDpEvent:
    """See base class. A run that stops early has fewer rounds."""
    return dp_accounting.SelfComposedDpEvent(
        check_in_events.ShuffledDpEvent(event, self.min_num_clients),
        self._stopped_after(num_rounds),
    )


@dataclasses.dataclass(frozen=True)
class ShuffledCheckIn(_BehindShuffler):
  """A client takes part in a round with probability p, by a coin of its own.

  Adjacency is replace-one. Under add-or-remove, the number of reports would
  show who is present.

  Attributes:
    num_rounds: Number of rounds T.
    check_in_rate: Probability p of heads, in [0, 1].
    min_num_clients: Number of clients that are sure to flip honest coins and to
      deliver, even in a mass outage: the crowd that the guarantee counts on.
    dropout_rate: Share p' in [0, 1) of the clients with heads whose report does
      not arrive in time, independently of who they are and of their data.
    assume_independent_dropout: Whether the guarantee may count on that share.
      If so, it uses the rate p (1 - p'), and the statement names the
      assumption. Otherwise the guarantee uses p, and independent dropout only
      improves it.
  """

  num_rounds: int
  check_in_rate: float
  min_num_clients: int
  dropout_rate: float = 0.0
  assume_independent_dropout: bool = False

  has_fresh_coins = True

  def __post_init__(self):
    _checks.integer_at_least(1, num_rounds=self.num_rounds)
    _checks.probability(check_in_rate=self.check_in_rate)
    _checks.integer_at_least(1, min_num_clients=self.min_num_clients)
    _checks.in_half_open(0, 1, dropout_rate=self.dropout_rate)
    _checks.one_of(
        (False, True),
        assume_independent_dropout=self.assume_independent_dropout,
    )

  @property
  def certified_rate(self) -> float:
    """The check-in rate g that the guarantee uses, rounded up."""
    if self.credited_loss:
      return protocol_lib.product(self.check_in_rate, 1 - self.credited_loss)
    return self.check_in_rate

  @property
  def credited_loss(self) -> float:
    """Share of lost reports that the guarantee counts on."""
    return self.dropout_rate if self.assume_independent_dropout else 0.0

  @property
  def expected_loss(self) -> float:
    """Share of lost reports that the protocol expects."""
    return self.dropout_rate

  @property
  def coin(self) -> str:
    """See base class."""
    rate, known = self.check_in_rate, self.certified_rate
    text = f'g = {known:g}, the probability of the coin that clients flip'
    if known == rate:
      return text
    return (
        f'{text} ({rate:g}) less a share of {self.dropout_rate:g} that is lost'
        ' independently of everything: assumed'
    )

  @property
  def expected_rate(self) -> float:
    """The expected share of clients whose report arrives in a round."""
    return self.check_in_rate * (1 - self.dropout_rate)

  @property
  def participation(self) -> str:
    return (
        'in every round a client reports with probability'
        f' {self.check_in_rate:g}, by a fresh coin of its own'
    )

  @property
  def assumptions(self) -> tuple[str, ...]:
    if not self.credited_loss:
      return ()
    return (
        f'A share of {self.credited_loss:g} of the reports is lost independently'
        ' of who sends them and of their data: the guarantee uses the rate'
        f' {self.certified_rate:g} instead of {self.check_in_rate:g}.',
    )

  def dp_event(
      self, event: dp_accounting.DpEvent, *, num_rounds: Optional[int] = None
  ) -> dp_accounting.SelfComposedDpEvent:
    """See base class. A run that stops early has fewer rounds."""
    return dp_accounting.SelfComposedDpEvent(
        check_in_events.ShuffledCheckInDpEvent(
            event,
            min_num_clients=self.min_num_clients,
            check_in_probability=self.certified_rate,
        ),
        self._stopped_after(num_rounds),
    )
