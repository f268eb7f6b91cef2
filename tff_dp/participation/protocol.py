# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The contract of protocols in which clients decide whether to take part.

A protocol is a frozen description of public facts. Each client flips its own
coins to decide when it takes part (`samplers` simulates them). The server only
sees who arrived. `dp_event` is the event for an accountant. It is built from
the fields that the samplers read, so the two cannot diverge.

The place of the noise is part of a protocol. Its guarantee is either for noise
in each report, before it leaves its client (`mechanisms.randomizers`), or for
noise that a trusted server adds to the sum of reports.

Time is counted in steps, which papers call slots or rounds. One step is one
`next` of a learning process, even if nobody came.
"""

import abc
from collections.abc import Callable, Iterable, Mapping
import dataclasses
import json
import math
from typing import Any, ClassVar, Optional

import dp_accounting
import numpy as np

from tff_dp import _checks

# Stands for a dummy of the server among the positions of clients.
DUMMY = -1


class Protocol(abc.ABC):
  """The public facts about a protocol in which clients decide when to come.

  A run has one or more passes of the protocol, and a pass has several steps.

  Attributes:
    num_rounds: Number of steps T of one pass.
    has_one_winner: Whether only one report of each step is used. An empty step
      then gets a dummy, a client without data, so that nobody sees the gap.
    occupancy_is_secret: Whether the guarantee needs the number of reports of
      each step to stay secret. If not, the adversary is assumed to know it.
    needs_population: Whether the guarantee needs a lower bound on the number of
      clients. No protocol needs it to run.
    noise_is_central: Whether a trusted server adds the noise, not each client.
    may_repeat: Whether several passes, each with new coins, make sense.
    has_fresh_coins: Whether a client flips a coin in every step, instead of
      drawing its steps once for a whole pass. Such a protocol has a
      `check_in_rate`, the probability of the coin.
    check_in_probability: Probability that a client takes part in a window (see
      `windows`).
    num_selected: Number of steps that a client draws in each window in which it
      takes part.
    num_warm_up: Number of first steps of a pass in which nobody reports.
    expected_rate: Expected share of the clients that report in a step, for
      protocols whose realised rate is public. Otherwise `None`.
    expected_loss: Share of lost reports that the protocol expects.
    credited_loss: Share of lost reports that the guarantee counts on.
    trust: Phrase that names who is trusted, and with which data, such as 'the
      server and the channels to it, with who checked in'.
    adversary: Phrase that lists everything the adversary sees, such as 'all
      models, and the number of reports of every slot'.
  """

  # Subclasses are dataclasses.
  __dataclass_fields__: ClassVar[dict[str, Any]]

  num_rounds: int
  has_one_winner: bool
  occupancy_is_secret: bool
  needs_population: bool
  noise_is_central: bool = False
  may_repeat: bool = True
  has_fresh_coins: ClassVar[bool] = False
  check_in_probability: float = 1.0
  num_selected: int = 1
  num_warm_up: int = 0
  expected_rate: Optional[float] = None
  expected_loss: float = 0.0
  credited_loss: float = 0.0
  trust: str
  adversary: str

  @property
  def name(self) -> str:
    """The name of the class."""
    return type(self).__name__

  @property
  def num_updates(self) -> int:
    """Largest number of model updates of one pass."""
    return self.num_rounds

  @property
  def max_reports(self) -> int:
    """Largest number of reports of one client in one pass."""
    return 1

  @property
  @abc.abstractmethod
  def participation(self) -> str:
    """Sentence that says how a client takes part."""

  def windows(
      self, position: int, draw: Callable[..., int]
  ) -> Iterable[tuple[tuple[int, ...], range]]:
    """Returns the windows of a client in a pass.

    If the client takes part in a window, it draws `num_selected` of the steps
    of the window. By default there is one window, with all steps of the pass.

    Args:
      position: Position of the client in the population, from 0.
      draw: Function `draw(label, choices=n)` that returns one of 0, ..., n - 1
        by a coin of the client, separate for each label and pass. It serves
        protocols whose windows are random.

    Returns:
      One pair (label, steps) for each window. The label separates the coins of
        this window from the coins of other windows.
    """
    del position, draw
    return [((), range(1, self.num_rounds + 1))]

  @property
  def coin(self) -> str:
    """Phrase that says with which probability a client takes part."""
    return (
        f'p0 = {self.check_in_probability:g}, the probability of the coin that'
        ' clients flip'
    )

  def check_simulated(self) -> None:
    """Raises `PrivacyRefusedError` if the protocol has no coins to simulate."""

  def draw_pass(
      self, rng: np.random.Generator, num_clients: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the outcome of all steps of a pass, drawn without clients' coins.

    The outcome has the distribution that all clients' coins give with
    `windows`. By default there is one window, with all steps of the pass, and
    each client that takes part draws one of these steps uniformly.

    Args:
      rng: Generator of the pass.
      num_clients: Size of the simulated population.

    Returns:
      Two arrays. With one winner a step, they have an entry for each step:

      * the number of clients of the step,
      * its winner, or `DUMMY`.

      Otherwise they are:

      * `order`, the positions of all clients that come, ordered by step and
        random within a step,
      * `starts`, with `num_rounds + 1` entries. The clients of step t are
        `order[starts[t - 1]:starts[t]]`.

      Entries of `order` beyond the last step have no meaning.
    """
    counts = self._counts(rng, num_clients)
    order = rng.permutation(num_clients)
    return order, np.concatenate([[0], np.cumsum(counts)])

  def _counts(
      self, rng: np.random.Generator, num_clients: int
  ) -> np.ndarray:
    """Returns the number of clients in each step, for `draw_pass`."""
    taking_part = rng.binomial(num_clients, self.check_in_probability)
    return rng.multinomial(
        taking_part, np.full(self.num_rounds, 1 / self.num_rounds)
    )

  @abc.abstractmethod
  def dp_event(
      self, event: dp_accounting.DpEvent, *, num_rounds: Optional[int] = None
  ) -> dp_accounting.DpEvent:
    """Returns the event of one pass.

    Args:
      event: Event of one report: a local event of
        `accounting.events.run_events`, or a `GaussianDpEvent` if the server
        adds the noise.
      num_rounds: Number of steps after which the pass stopped, `None` for all.
        A stopped pass never costs more than the whole pass, because it is
        post-processing of it.
    """

  @property
  def assumptions(self) -> tuple[str, ...]:
    """Assumptions that the accounting does not state, one sentence each."""
    return ()

  def describe(self) -> dict[str, Any]:
    """Returns name and fields as plain JSON types."""
    return {'name': self.name, **dataclasses.asdict(self)}

  @property
  def protocol_id(self) -> bytes:
    """Bytes that separate the protocol's coins from other protocols' coins."""
    return json.dumps(self.describe(), sort_keys=True).encode()

  def expected_clients_per_step(self, population: int) -> Optional[float]:
    """Returns the expected number of clients that come in one step.

    Exact, as a mean over all steps of a pass. Lost reports are not subtracted.
    `None` if the protocol does not say.

    Args:
      population: Number of clients.
    """
    del population
    return None

  def expected_dummy_updates(self, population: int) -> Optional[float]:
    """Returns the expected number of steps of a pass that use a dummy's report.

    Exact, if no report is lost. `None` without dummies.

    Args:
      population: Number of clients.
    """
    del population
    return None

  def _stopped_after(self, num_rounds: Optional[int]) -> int:
    if num_rounds is None:
      return self.num_rounds
    _checks.integer_between(1, self.num_rounds, num_rounds=num_rounds)
    return num_rounds


class Slots(Protocol):
  """Protocols in which a step of a pass is one of `num_slots` slots."""

  num_slots: int

  @property
  def num_rounds(self) -> int:
    """Number of steps of one pass, which are the slots."""
    return self.num_slots

  def expected_clients_per_step(self, population: int) -> float:
    """See base class."""
    share = self.check_in_probability * self.max_reports / self.num_slots
    return population * share


def by_step(
    rng: np.random.Generator,
    slots: np.ndarray,
    owners: np.ndarray,
    num_rounds: int,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the result of `Protocol.draw_pass` from the slot of each report.

  Args:
    rng: Generator of the pass.
    slots: Slot of each report, from 0.
    owners: Position of the client of each report.
    num_rounds: Number of steps of the pass.
  """
  counts = np.bincount(slots, minlength=num_rounds)
  # Shuffle first. Otherwise the order within a slot follows the ids.
  shuffle = rng.permutation(len(slots))
  order = owners[shuffle][np.argsort(slots[shuffle], kind='stable')]
  return order, np.concatenate([[0], np.cumsum(counts)])


def from_description(
    description: Mapping[str, Any], classes: Iterable[type[Protocol]]
) -> Protocol:
  """Returns the protocol whose `describe()` returned `description`.

  Args:
    description: Name and fields.
    classes: Classes of the protocols that may be described.

  Raises:
    ArgumentError: If the description names none of them.
  """
  fields = dict(description)
  known = {each.__name__: each for each in classes}
  name = fields.pop('name', None)
  _checks.one_of(tuple(known), protocol=name)
  return known[name](**fields)


def share_of(probability: float, *, part: int, whole: int) -> float:
  """Returns `probability * part / whole`, rounded up.

  A client draws one of `whole` steps with `probability`, and none otherwise.
  The result is the probability that it draws one of `part` of these steps. It
  is never above `probability`.
  """
  if part == whole:
    return probability
  return min(probability, _up(_up(probability * part) / whole))


def product(first: float, second: float) -> float:
  """Returns the product of two probabilities, rounded up."""
  return min(first, second, _up(first * second))


def _up(value: float) -> float:
  return math.nextafter(value, math.inf) if value else value
