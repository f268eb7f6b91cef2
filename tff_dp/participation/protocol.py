# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The contract of protocols in which clients decide whether to take part.

A protocol is a frozen description of public facts. Who takes part follows from
coins that each client flips itself (`samplers` simulates them), the server only
sees who arrived. `dp_event` is what an accountant may assume, made from the
same fields that the samplers read, so that the two cannot diverge.

Where the noise is belongs to that: what a protocol guarantees holds for noise
in each report, before it leaves its client (`mechanisms.randomizers`), or for
noise that a trusted server adds to their sum.

Time is counted in steps ("slots" of random check-ins, "rounds" of shuffled
check-in). One step is one `next` of a learning process, also if nobody came.
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
  """What is public about a protocol.

  Attributes:
    num_rounds: Steps T of one pass.
    has_one_winner: Whether one report of those in a step is used. An empty step
      then gets a dummy: a client without data, so that nobody sees the gap.
    occupancy_is_secret: Whether the guarantee rests on nobody learning how many
      came in which step. Otherwise the adversary is assumed to know it.
    needs_population: Whether the guarantee rests on a lower bound on the number
      of clients. None of the protocols needs it in order to run.
    noise_is_central: Whether a trusted server adds the noise, or each client.
    may_repeat: Whether several passes, each with new coins, make sense.
    trust: Who is trusted with what, as a sentence.
    adversary: What the adversary sees, as a sentence.
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
    """Most model updates of one pass."""
    return self.num_rounds

  @property
  def max_reports(self) -> int:
    """Most reports of one client in one pass."""
    return 1

  @property
  @abc.abstractmethod
  def participation(self) -> str:
    """How a client takes part, as a sentence."""

  def windows(
      self, position: int, draw: Callable[..., int]
  ) -> Iterable[tuple[tuple[int, ...], range]]:
    """Returns the steps among which a client draws, for each of its draws.

    Args:
      position: Of the client in the population, from 0.
      draw: `draw(label, choices=n)` returns one of 0, ..., n - 1 by a coin of
        the client, its own for that label and the pass.

    Returns:
      For each window what tells its coins from those of others, and its steps.
    """
    del position, draw
    return [((), range(1, self.num_rounds + 1))]

  def expected_check_ins(self, num_rounds: int) -> float:
    """Returns in how many of the first steps a client checks in, on average.

    Args:
      num_rounds: Steps of a pass, of a client that always takes part.
    """
    return self.max_reports * num_rounds / self.num_rounds

  @abc.abstractmethod
  def dp_event(
      self, event: dp_accounting.DpEvent, *, num_rounds: Optional[int] = None
  ) -> dp_accounting.DpEvent:
    """Returns the event of one pass.

    Args:
      event: What is done to one report: a local event of
        `accounting.events.run_events`, or where the server adds the noise
        a `GaussianDpEvent`.
      num_rounds: Steps after which the pass stopped, `None` for all. Never more
        costly than the whole pass, of which it is post-processing.
    """

  @property
  def assumptions(self) -> tuple[str, ...]:
    """What has to hold beyond what the accounting says, one sentence each."""
    return ()

  def describe(self) -> dict[str, Any]:
    """Returns name and fields as plain JSON types."""
    return {'name': self.name, **dataclasses.asdict(self)}

  @property
  def protocol_id(self) -> bytes:
    """What tells the coins of one protocol from those of another."""
    return json.dumps(self.describe(), sort_keys=True).encode()

  def _stopped_after(self, num_rounds: Optional[int]) -> int:
    if num_rounds is None:
      return self.num_rounds
    _checks.integer_between(1, self.num_rounds, num_rounds=num_rounds)
    return num_rounds


class CentralCheckIn(CheckInProtocol):
  """A protocol whose server is trusted, and noises the sum of every step.

  There is no winner, because who wins would depend on others.
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
    protocol: Who takes part.
    randomizer: What is to be done to reports, or to their sum.

  Raises:
    ArgumentError: If `randomizer` is neither of the two.
    PrivacyRefusedError: If it is not the one that `protocol` takes.
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
