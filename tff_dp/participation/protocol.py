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

Time is counted in steps ("slots" of random check-ins, "rounds" of shuffled
check-in). One step is one `next` of a learning process, even if nobody came.
"""

import abc
from collections.abc import Callable, Iterable
import dataclasses
import json
import math
from typing import Any, Optional, Union

import dp_accounting

from tff_dp import _checks
from tff_dp.mechanisms import randomizers


class CheckInProtocol(abc.ABC):
  """The public facts about a protocol.

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
    trust: Sentence that says who is trusted with which data.
    adversary: Phrase that lists everything the adversary sees.
  """

  num_rounds: int
  has_one_winner: bool
  occupancy_is_secret: bool
  needs_population: bool
  noise_is_central: bool = False
  may_repeat: bool = True
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
    """Returns the steps among which a client draws, for each of its draws.

    Args:
      position: Position of the client in the population, from 0.
      draw: Function `draw(label, choices=n)` that returns one of 0, ..., n - 1
        by a coin of the client, separate for each label and pass.

    Returns:
      One pair per window: a label that separates its coins from other windows',
        and its steps.
    """
    del position, draw
    return [((), range(1, self.num_rounds + 1))]

  def expected_check_ins(self, num_rounds: int) -> float:
    """Returns the mean number of the first steps in which a client checks in.

    Args:
      num_rounds: Number of first steps of a pass, for a client that always
        takes part.
    """
    return self.max_reports * num_rounds / self.num_rounds

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
    """Assumptions beyond the ones of the accounting, one sentence each."""
    return ()

  def describe(self) -> dict[str, Any]:
    """Returns name and fields as plain JSON types."""
    return {'name': self.name, **dataclasses.asdict(self)}

  @property
  def protocol_id(self) -> bytes:
    """Bytes that separate the coins of one protocol from another's."""
    return json.dumps(self.describe(), sort_keys=True).encode()

  def _stopped_after(self, num_rounds: Optional[int]) -> int:
    if num_rounds is None:
      return self.num_rounds
    _checks.integer_between(1, self.num_rounds, num_rounds=num_rounds)
    return num_rounds


class CentralCheckIn(CheckInProtocol):
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


def share_of(probability: float, *, part: int, whole: int) -> float:
  """Returns `probability * part / whole`, rounded up."""
  if part == whole:
    return probability
  return min(probability, _up(_up(probability * part) / whole))


def product(first: float, second: float) -> float:
  """Returns the product of two probabilities, rounded up."""
  return min(first, second, _up(first * second))


def _up(value: float) -> float:
  return math.nextafter(value, math.inf) if value else value


@dataclasses.dataclass(frozen=True)
class CentralGaussian:
  """Gaussian noise that a trusted server adds to the sum of every step.

  Attributes:
    noise_multiplier: Standard deviation on the SUM, over the clip norm.
    l2_norm_clip: Bound on the L2 norm of one client's update.
  """

  noise_multiplier: float
  l2_norm_clip: float

  name = 'central-gaussian'

  def __post_init__(self):
    _checks.positive(noise_multiplier=self.noise_multiplier)
    _checks.clip_norm(l2_norm_clip=self.l2_norm_clip)

  @property
  def event(self) -> dp_accounting.GaussianDpEvent:
    """The event of the sum of one step, for zero-out."""
    return dp_accounting.GaussianDpEvent(self.noise_multiplier)

  def describe(self) -> dict[str, Any]:
    """Returns name and fields as plain JSON types."""
    return {'name': self.name, **dataclasses.asdict(self)}


def check(
    protocol: CheckInProtocol,
    randomizer: Union[randomizers.LocalRandomizer, CentralGaussian],
) -> None:
  """Raises unless the noise is where the protocol's guarantee needs it.

  Args:
    protocol: Protocol of the clients.
    randomizer: Noise for the reports, or for their sum.

  Raises:
    ArgumentError: If `randomizer` is neither of the two.
    PrivacyRefusedError: If `protocol` does not take this kind.
  """
  is_central = isinstance(randomizer, CentralGaussian)
  if not is_central and not isinstance(randomizer, randomizers.LocalRandomizer):
    raise _checks.ArgumentError(
        'randomizer',
        randomizer,
        'a local randomizer of tff_dp.mechanisms.randomizers, or'
        ' CentralGaussian(noise_multiplier, l2_norm_clip)',
    )
  if is_central == protocol.noise_is_central:
    return
  if is_central:
    raise _checks.PrivacyRefusedError(
        f'{protocol.name} is not defined with noise at the server',
        why=(
            'who wins a slot depends on who else came, so replacing one client'
            ' changes more than its own contribution'
            if protocol.has_one_winner
            else 'its guarantee is about reports that are randomized before'
            ' they are seen'
        ),
        way_out='RandomAllocation or CyclicAllocation, which sum all check-ins'
        ' of a slot, or a local randomizer',
    )
  raise _checks.PrivacyRefusedError(
      f'{protocol.name} is not defined with a local randomizer',
      why='its guarantee is about one Gaussian draw on the sum of every slot',
      way_out='CentralGaussian(noise_multiplier, l2_norm_clip), or'
      ' FixedWindowCheckIn or AveragedCheckIn with the local randomizer',
  )
