# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Simulation of clients that decide themselves in which steps they report.

There are two samplers. Their results have the same distribution, which is
tested:

* `literal` flips every coin of every client, as devices would (`coins`).
* `fast` draws how many clients come (binomial or multinomial counts) and then
  who they are (a uniform subset or permutation). It can simulate ten million
  clients.

A sampler is a function of a key. It keeps no state but a cache, and any step of
any pass can be drawn in any order. Its results are secret if the protocol says
so (`occupancy_is_secret`): who checked in, who won, and how many.

Late or lost reports: a report that is missing when its step ends is discarded.
It is never moved to another step or pass, because that would break the uniform
distribution of the slots. A random draw decides whether a report is lost. Data
have no influence on that.
"""

import abc
import hashlib
from typing import Any, NamedTuple

import numpy as np

from tff_dp import _checks
from tff_dp.participation import coins
from tff_dp.participation import protocol as protocol_lib

DUMMY = protocol_lib.DUMMY
LITERAL, FAST = 'literal', 'fast'
KINDS = (LITERAL, FAST)
DUMMY_FOR_LOST, REDRAW = 'dummy', 'redraw'
RULES_FOR_LOST = (DUMMY_FOR_LOST, REDRAW)


class Cohort(NamedTuple):
  """The outcome of one step.

  Attributes:
    clients: Positions of the clients whose reports are used, in random order,
      int64. `DUMMY` marks a dummy of the server.
    num_checked_in: Number of clients that came, including those whose report is
      late, lost or not used.
    num_arrived: Number of those clients whose report is neither late nor lost.
  """

  clients: np.ndarray
  num_checked_in: int
  num_arrived: int


class Sampler(abc.ABC):
  """Draws the cohorts of a protocol."""

  def __init__(
      self,
      protocol: protocol_lib.Protocol,
      *,
      root_key: bytes,
      num_clients: int,
      dropout_rate: float = 0.0,
      lost_winner: str = DUMMY_FOR_LOST,
  ):
    """Initializes the sampler.

    Args:
      protocol: Protocol to sample.
      root_key: Secret key of 128 bits.
      num_clients: Size of the simulated population. The protocol's `dp_event`
        does not depend on it.
      dropout_rate: Share of the check-ins whose report is lost or late, at
        least the share that the protocol's guarantee counts on.
      lost_winner: Rule for a step whose winner loses its report. 'dummy' uses a
        report without data. 'redraw' asks another client of the same step.
        Neither rule depends on clients' data.
    """
    _checks.integer_at_least(1, num_clients=num_clients)
    _checks.in_half_open(0, 1, dropout_rate=dropout_rate)
    # Losing more is post-processing, because losses are independent of
    # everything.
    credited = protocol.credited_loss
    if dropout_rate < credited:
      raise _checks.ArgumentError(
          'dropout_rate',
          dropout_rate,
          f'at least {credited:g}, the share of lost reports that the guarantee'
          ' counts on'
          ' (assume_independent_dropout)',
      )
    _checks.one_of(RULES_FOR_LOST, lost_winner=lost_winner)
    self._protocol = protocol
    self._protocol_id = protocol.protocol_id
    self._root_key = root_key
    self._num_clients = num_clients
    self._dropout_rate = float(dropout_rate)
    self._lost_winner = lost_winner
    self._pass_index: int | None = None
    self._drawn: Any = None

  def cohort(self, pass_index: int, step: int) -> Cohort:
    """Returns the outcome of a step, a function of the arguments and the key.

    Args:
      pass_index: Index of the pass, from 0. Every pass has its own coins.
      step: Step, from 1 to `protocol.num_rounds`.
    """
    _checks.integer_at_least(0, pass_index=pass_index)
    _checks.integer_between(1, self._protocol.num_rounds, step=step)
    if self._protocol.has_fresh_coins:
      return self._bernoulli(pass_index, step)
    if pass_index != self._pass_index:
      self._drawn = self._draw_pass(pass_index)
      self._pass_index = pass_index
    if not self._protocol.has_one_winner:
      return self._everybody(pass_index, step)
    if step <= self._protocol.num_warm_up:
      return Cohort(np.zeros(0, np.int64), 0, 0)
    return self._one_winner(pass_index, step)

  @abc.abstractmethod
  def _draw_pass(self, pass_index: int):
    """Returns the draws of a whole pass, for `_everybody` and `_one_winner`."""

  @abc.abstractmethod
  def _bernoulli(self, pass_index: int, step: int) -> Cohort:
    """Returns the cohort of a step in which every client flips a fresh coin."""

  @abc.abstractmethod
  def _everybody(self, pass_index: int, step: int) -> Cohort:
    """Returns the cohort of all clients that drew the step and arrive."""

  @abc.abstractmethod
  def _one_winner(self, pass_index: int, step: int) -> Cohort:
    """Returns the cohort of one client that drew the step, or of a dummy."""


class LiteralSampler(Sampler):
  """Flips every coin of every client, about two microseconds each."""

  def __init__(self, protocol, **options):
    super().__init__(protocol, **options)
    self._keys = [
        coins.subkey(self._root_key, 'client', position)
        for position in range(self._num_clients)
    ]
    self._server_key = coins.subkey(self._root_key, 'server')

  def _draw_pass(self, pass_index):
    """Returns a dict from a step to the positions of the clients that drew it.
    """
    members = {}
    protocol, id_ = self._protocol, self._protocol_id
    probability = protocol.check_in_probability
    for position, key in enumerate(self._keys):

      def draw(label, *, choices, key=key):
        return coins.draw(coins.coin(key, label, id_, pass_index), choices)

      for window, steps in protocol.windows(position, draw):
        time = (id_, pass_index, *window)
        if not coins.is_heads(
            coins.coin(key, 'participates', *time), probability
        ):
          continue
        taken = set()
        # The i-th of several slots is the i-th one that is not taken yet.
        for number in range(protocol.num_selected):
          slot = coins.draw(
              coins.coin(key, 'slot', *time, number), len(steps) - number
          )
          for other in sorted(taken):
            slot += other <= slot
          taken.add(slot)
          members.setdefault(steps[slot], []).append(position)
    return members

  def _bernoulli(self, pass_index, step):
    id_ = self._protocol_id
    members = [
        position
        for position, key in enumerate(self._keys)
        if coins.is_heads(
            coins.coin(key, 'checks in', id_, pass_index, step),
            self._protocol.check_in_rate,
        )
    ]
    return self._all_of(members, pass_index, step)

  def _everybody(self, pass_index, step):
    return self._all_of(self._drawn.get(step, []), pass_index, step)

  def _all_of(self, members, pass_index, step) -> Cohort:
    arrived = [p for p in members if self._arrives(p, pass_index, step)]
    arrived = self._shuffled(arrived, pass_index, step)
    return Cohort(np.array(arrived, np.int64), len(members), len(arrived))

  def _one_winner(self, pass_index, step):
    members = self._drawn.get(step, [])
    arrived = {p for p in members if self._arrives(p, pass_index, step)}
    asked = self._shuffled(members, pass_index, step)
    if self._lost_winner == DUMMY_FOR_LOST:
      asked = asked[:1]
    winner = next((p for p in asked if p in arrived), DUMMY)
    return _winner(winner, len(members), len(arrived))

  def _arrives(self, position: int, pass_index: int, step: int) -> bool:
    if not self._dropout_rate:
      return True
    value = coins.coin(
        self._keys[position],
        'is lost',
        self._protocol_id,
        pass_index,
        step,
    )
    return not coins.is_heads(value, self._dropout_rate)

  def _shuffled(self, members: list, pass_index: int, step: int) -> list:
    """Returns the members in an order that the server draws."""
    id_ = self._protocol_id
    return sorted(
        members,
        key=lambda position: coins.coin(
            self._server_key, 'order', id_, pass_index, step, position
        ),
    )


class FastSampler(Sampler):
  """Draws counts first, then a uniform subset or permutation of the clients."""

  def _draw_pass(self, pass_index):
    """Returns the result of `Protocol.draw_pass`."""
    rng = self._generator('pass', pass_index)
    return self._protocol.draw_pass(rng, self._num_clients)

  def _bernoulli(self, pass_index, step):
    rng = self._generator('step', pass_index, step)
    num_checked_in = int(
        rng.binomial(self._num_clients, self._protocol.check_in_rate)
    )
    num_arrived = self._num_arrived(rng, num_checked_in)
    clients = rng.choice(self._num_clients, num_arrived, replace=False)
    return Cohort(clients.astype(np.int64), num_checked_in, num_arrived)

  def _everybody(self, pass_index, step):
    order, starts = self._drawn
    members = order[starts[step - 1] : starts[step]]
    num_arrived = len(members)
    if self._dropout_rate:
      rng = self._generator('step', pass_index, step)
      num_arrived = self._num_arrived(rng, len(members))
    # The members are in random order, so the first ones are a uniform subset.
    return Cohort(
        members[:num_arrived].astype(np.int64), len(members), num_arrived
    )

  def _one_winner(self, pass_index, step):
    counts, winners = self._drawn
    count, winner = int(counts[step - 1]), int(winners[step - 1])
    if not count or not self._dropout_rate:
      return _winner(winner, count, count)
    rng = self._generator('step', pass_index, step)
    num_arrived = self._num_arrived(rng, count)
    # The asked client is uniform among the clients that came, and it has
    # arrived with probability num_arrived / count.
    has_winner = num_arrived > 0
    if has_winner and self._lost_winner == DUMMY_FOR_LOST:
      has_winner = rng.integers(count) < num_arrived
    return _winner(winner if has_winner else DUMMY, count, num_arrived)

  def _num_arrived(self, rng: np.random.Generator, count: int) -> int:
    if not self._dropout_rate:
      return count
    return int(rng.binomial(count, 1 - self._dropout_rate))

  def _generator(self, *labels) -> np.random.Generator:
    return coins.generator(self._root_key, 'fast', self._protocol_id, *labels)


_SAMPLERS = {LITERAL: LiteralSampler, FAST: FastSampler}


def check_protocol(protocol: protocol_lib.Protocol) -> None:
  """Raises unless `protocol` is one whose clients can be simulated."""
  _checks.instance_of(
      protocol_lib.Protocol,
      'a protocol in which clients decide, such as'
      ' tff_dp.check_ins.ShuffledCheckIn(...)',
      protocol=protocol,
  )
  protocol.check_simulated()


def build(
    protocol: protocol_lib.Protocol, *, kind: str = FAST, **options
) -> Sampler:
  """Returns a sampler.

  Args:
    protocol: Protocol to sample.
    kind: Kind of sampler, one of `KINDS`.
    **options: Arguments of `Sampler`.
  """
  check_protocol(protocol)
  _checks.one_of(KINDS, sampler=kind)
  return _SAMPLERS[kind](protocol, **options)


def probe(kind: str) -> str:
  """Returns a text that is equal on machines that draw equal cohorts.

  A run that resumes in the middle of a pass compares it. If the draws differed,
  the rest of the pass could take a client a second time.

  Args:
    kind: Kind of sampler, one of `KINDS`. For 'fast' the text is a hash of
      fixed draws of NumPy. For 'literal' it is constant, because these coins
      are the same on every machine.
  """
  if kind == LITERAL:
    return LITERAL
  rng = coins.generator(bytes(coins.KEY_BYTES), 'probe')
  drawn = (
      rng.binomial(1000, [0.01, 0.3, 0.9]),
      rng.multinomial(10_000, np.full(50, 0.02)),
      rng.permutation(100),
      rng.choice(100_000, 40, replace=False),
      rng.integers(7, size=50),
      rng.random(10),
  )
  content = b''.join(np.asarray(part).astype('<f8').tobytes() for part in drawn)
  return hashlib.sha256(content).hexdigest()[:16]


def _winner(winner: int, num_checked_in: int, num_arrived: int) -> Cohort:
  return Cohort(np.array([winner], np.int64), num_checked_in, num_arrived)
