# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The contract of every noise mechanism: public facts and pure functions.

A mechanism describes the noise that is added to a stream of sums, one vector
per round. It is a frozen dataclass of public facts. Anything that depends on a
key, on data or on the size of the model is an argument. The same `next_noise`
works on NumPy arrays in a test and on tensors in a TensorFlow graph. Some
operations differ between the two: making a draw, taking a branch, combining
vectors. The caller passes them as `Operations`.

The run computes in float32, so a mechanism rounds its parameters to float32
(`rounded`). Sensitivities and variances are then exact for the noise that is
really added.
"""

import abc
from collections.abc import Callable, Sequence
import dataclasses
from typing import Any, ClassVar, NamedTuple, Optional, Protocol

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns

# A vector of shape [num_params]: a NumPy array or a tensor.
Vector = Any
# The state that a mechanism keeps from round to round: one vector per slot.
Buffers = tuple[Vector, ...]


class Draw(Protocol):
  """A function that returns the standard normal vector of one node.

  It must depend on its arguments alone: within a tree, the same (level, index)
  always gives the same vector, and another pair gives an independent vector. No
  node is drawn before its round, see `round_of_draw`. In a graph, level and
  index may be scalar tensors.
  """

  def __call__(self, level, index) -> Vector:
    ...


def round_of_draw(level, index):
  """Returns the round in which the noise of a node is first drawn.

  It is round (index + 1) 2^level of the tree, counted from 1. Every mechanism
  numbers its nodes in this way. The node is complete after this round, and its
  noise protects this round.
  """
  return (index + 1) * 2**level


class Operations(NamedTuple):
  """The operations that differ between NumPy arrays and tensors.

  Attributes:
    draw: Function that returns standard normals of one node of the current
      tree.
    cond: Function of (predicate, then, otherwise) that returns `then()` or
      `otherwise()`: `tf.cond`, or a Python `if`.
    combine: Function of (coefficients, vectors) that returns the linear
      combination sum of c_i v_i, in the given order. Coefficients are numbers
      or scalars.
    take: Function of (table, index) that returns the numbers in one row of a
      constant table. The table is a NumPy array of numbers that float32 holds
      exactly. `index` counts from 0 and may be a tensor.
  """

  draw: Draw
  cond: Callable[[Any, Callable[[], Any], Callable[[], Any]], Any]
  combine: Callable[[Sequence[Any], Sequence[Vector]], Vector]
  take: Callable[[np.ndarray, Any], Sequence[Any]]


def numpy_operations(draw: Draw) -> Operations:
  """Returns the operations on NumPy arrays, for tests and references."""
  return Operations(
      draw=draw,
      cond=lambda predicate, then, otherwise: (
          then() if predicate else otherwise()
      ),
      combine=lambda coefficients, vectors: sum(
          c * v for c, v in zip(coefficients, vectors, strict=True)
      ),
      take=lambda table, index: tuple(table[index]),
  )


class Mechanism(abc.ABC):
  """Noise for a stream of `num_rounds` sums, in residual form.

  Residual form means that round t gets the *increment* of the noise on the
  prefix sum. The consumer adds up the rounds, as any server optimizer does.
  Every draw has unit standard deviation per coordinate. The aggregator scales
  it by `noise_multiplier * l2_norm_clip`.

  A mechanism may restart every `restart_every` rounds, with fresh draws and
  empty state. The rounds between two restarts are called a tree, for every
  mechanism.

  Attributes:
    num_rounds: Horizon T. The aggregator refuses round T + 1.
    restart_every: Number of rounds per tree, or `None` for one tree over all
      rounds.
    complete_trees: Whether a tree that is followed by another one is extended
      with virtual rounds of zeros up to the next power of two.
  """

  # Subclasses are dataclasses.
  __dataclass_fields__: ClassVar[dict[str, Any]]

  num_rounds: int
  restart_every: Optional[int]
  complete_trees: bool

  @property
  @abc.abstractmethod
  def name(self) -> str:
    """The name that command lines and statements use."""

  def describe(self) -> dict[str, Any]:
    """Returns name and fields as plain JSON types.

    A class from outside of tff_dp is also named. It may inherit the name of a
    mechanism of tff_dp and add other noise.
    """
    described = {'name': self.name, **dataclasses.asdict(self)}
    kind = type(self)
    if kind.__module__.partition('.')[0] != 'tff_dp':
      described['class'] = f'{kind.__module__}.{kind.__qualname__}'
    return described

  @property
  def rounds_per_tree(self) -> int:
    """Number of rounds of the longest tree."""
    return min(self.restart_every or self.num_rounds, self.num_rounds)

  @property
  def virtual_rounds(self) -> int:
    """Number of zero rounds that complete a tree before the next one starts."""
    if not self.complete_trees or self.rounds_per_tree == self.num_rounds:
      return 0
    return (1 << (self.rounds_per_tree - 1).bit_length()) - self.rounds_per_tree

  @property
  def overwrites_buffers(self) -> bool:
    """Whether a tree writes every buffer before it reads it.

    If not, the buffers are set to zero at the start of each tree.
    """
    return False

  @property
  def rounds_remembered(self) -> Optional[int]:
    """Number of latest rounds of a tree that later noise depends on.

    `None` means all. Replaying these rounds from zeros rebuilds the buffers,
    except for entries that are written before they are read.
    """
    return None

  @property
  def redraws(self) -> bool:
    """Whether a round repeats a draw that an earlier round has used.

    If so, a run cannot resume on a machine whose draws come out differently,
    even with all buffers. The run would subtract noise that it had never added.
    """
    return False

  @property
  def rounds_drawn(self) -> int:
    """Number of latest rounds of a tree whose draws a round may need.

    This counts the current round, and covers `next_noise` and rebuilding the
    buffers.
    """
    if self.rounds_remembered is None:
      return self.rounds_per_tree
    return self.rounds_remembered + 1

  @property
  def state_copies(self) -> int:
    """Number of model-sized vectors that are kept from round to round."""
    return len(self.initialize(np.zeros(1)))

  @property
  @abc.abstractmethod
  def draws_per_round(self) -> float:
    """Mean number of standard normal vectors that a round draws.

    The mean is over the real rounds of the longest tree.
    """

  @abc.abstractmethod
  def squared_sensitivity(self, pattern: patterns.ParticipationPattern) -> float:
    """Returns the squared sensitivity of the run, in squared clip norms.

    It is for zero-out adjacency. Exact if `sensitivity_is_exact`, otherwise an
    upper bound.

    Args:
      pattern: Rounds in which one client may take part.
    """

  def sensitivity_is_exact(
      self, pattern: patterns.ParticipationPattern
  ) -> bool:
    """Whether `squared_sensitivity(pattern)` is known to be attained."""
    del pattern
    return True

  @abc.abstractmethod
  def squared_sensitivity_by_round(
      self, pattern: patterns.ParticipationPattern
  ) -> np.ndarray:
    """Returns `squared_sensitivity` of a run that stops after 1..T rounds.

    Args:
      pattern: Rounds in which one client may take part.

    Returns:
      An array of shape [num_rounds].
    """

  @abc.abstractmethod
  def initialize(self, zeros: Vector) -> Buffers:
    """Returns the buffers before round 1. `zeros` has shape [num_params]."""

  @abc.abstractmethod
  def next_noise(
      self, buffers: Buffers, round_in_tree, operations: Operations
  ) -> tuple[Vector, Buffers]:
    """Returns (noise, buffers) of one round.

    Args:
      buffers: Buffers from the previous round of the same tree, or from
        `initialize` in its first round.
      round_in_tree: Index of the round in its tree, from 1, a Python integer or
        an integer tensor.
      operations: Draws of this tree, and the operations to compute with.

    Returns:
      The residual noise `b_t - b_{t-1}`, shape [num_params], and the buffers.
    """

  @abc.abstractmethod
  def round_variances(self) -> np.ndarray:
    """Returns the variance of the noise that each round of one tree adds.

    Exact: Var(b_t - b_{t-1}) of one coordinate, for draws of variance 1, shape
    [rounds_per_tree]. b_t is the noise on the sum of the tree's first t rounds.
    """

  @abc.abstractmethod
  def prefix_variances(self) -> np.ndarray:
    """Returns the variance of the noise on each prefix sum of one tree.

    Exact: Var(b_t) of one coordinate, for draws of variance 1, shape
    [rounds_per_tree]. b_t is the noise on the sum of the tree's first t rounds.
    """

  def run_prefix_variances(self) -> np.ndarray:
    """Returns the variance of the noise on each prefix sum, [num_rounds].

    Exact, for one coordinate and draws of variance 1. A restart begins a new
    tree. The noise of every finished tree stays in the model, so the variances
    at the ends of the finished trees add to the variance of the current tree
    (`prefix_variances`).
    """
    rounds = np.arange(self.num_rounds)
    finished, position = divmod(rounds, self.rounds_per_tree)
    in_tree = self.prefix_variances()[position]
    return in_tree + finished * self._variance_left_behind()

  def prefix_errors(self, noise_multiplier: float) -> tuple[float, float]:
    """Returns (rmse, largest error) of the noise on the sums so far.

    The error of a round is the standard deviation of the noise on the prefix
    sum of one coordinate, in clip norms. The first number is the root mean
    square over all rounds. Exact.

    Args:
      noise_multiplier: Standard deviation of one draw, over the clip norm.
    """
    variances = self.run_prefix_variances()
    return (
        noise_multiplier * float(np.sqrt(np.mean(variances))),
        noise_multiplier * float(np.sqrt(np.max(variances))),
    )

  def truncated(self, num_rounds: int) -> 'Mechanism':
    """Returns the same mechanism for a run that stops after `num_rounds`."""
    _checks.integer_between(1, self.num_rounds, num_rounds=num_rounds)
    return dataclasses.replace(self, num_rounds=num_rounds)

  def _variance_left_behind(self) -> float:
    """Returns the variance that a finished tree leaves in the model."""
    return float(self.prefix_variances()[-1])

  def _check(self) -> None:
    """Validates the common attributes. Subclasses call it at construction."""
    _checks.take_python_numbers(self)
    _checks.integer_at_least(1, num_rounds=self.num_rounds)
    _checks.optional_integer_at_least(1, restart_every=self.restart_every)
    if self.complete_trees and self.restart_every is None:
      raise _checks.ArgumentError(
          'complete_trees',
          True,
          'False without restart_every: the last tree is never completed, and'
          ' without restarts it is the only one',
      )


def pattern_of(participation: Any) -> patterns.ParticipationPattern:
  """Returns the pattern of a schedule, or a pattern itself.

  Args:
    participation: A `sampling.Schedule` or a `ParticipationPattern`.
  """
  pattern = getattr(participation, 'pattern', participation)
  if not isinstance(pattern, patterns.ParticipationPattern):
    raise TypeError(
        f'participation={participation!r} is not allowed: expected a schedule'
        ' of tff_dp.participation or a pattern of tff_dp.accounting.'
    )
  return pattern


def rounded(**argument: Sequence[float]) -> tuple[float, ...]:
  """Returns numbers rounded to float32. They must be finite.

  Args:
    **argument: One keyword argument: the numbers, under the name that an error
      message gives them.
  """
  ((name, values),) = argument.items()
  try:
    numbers = np.asarray(tuple(values), np.float64)
  except (TypeError, ValueError) as error:
    raise _checks.ArgumentError(name, values, 'a list of numbers') from error
  with np.errstate(over='ignore'):
    as_run = numbers.astype(np.float32)
  if numbers.ndim != 1 or not len(numbers) or not np.all(np.isfinite(as_run)):
    raise _checks.ArgumentError(
        name, values, 'one or more numbers that are finite in float32'
    )
  return tuple(as_run.astype(np.float64).tolist())


def rounded_down(**argument: Sequence[float]) -> tuple[float, ...]:
  """Like `rounded`, but rounds towards 0, so a sum of weights does not grow."""
  ((_, values),) = argument.items()
  result = rounded(**argument)
  return tuple(
      float(np.nextafter(np.float32(after), np.float32(0)))
      if abs(after) > abs(before)
      else after
      for before, after in zip(values, result, strict=True)
  )


def check_leading_one(**argument: Sequence[float]) -> None:
  """Raises unless the sequence, given by its name, begins with 1."""
  ((name, values),) = argument.items()
  if values[0] != 1.0:
    raise _checks.ArgumentError(
        f'{name}[0]',
        values[0],
        '1, so that the noise multiplier is the standard deviation of a'
        " round's own draw",
    )


@dataclasses.dataclass(frozen=True)
class Independent(Mechanism):
  """A fresh draw per round: the Gaussian mechanism, composed.

  The baseline for correlated noise: after t rounds the noise of the running sum
  has variance t.

  Attributes:
    num_rounds: Horizon T. The aggregator refuses round T + 1.
  """

  num_rounds: int
  # Independent noise has no trees to restart or complete.
  restart_every: Optional[int] = dataclasses.field(default=None, init=False)
  complete_trees: bool = dataclasses.field(default=False, init=False)

  name = 'independent'

  def __post_init__(self):
    self._check()

  def squared_sensitivity(self, pattern: patterns.ParticipationPattern) -> float:
    """Returns the largest number of rounds of one client. Exact."""
    return float(pattern.truncated(self.num_rounds).max_participations)

  def squared_sensitivity_by_round(
      self, pattern: patterns.ParticipationPattern
  ) -> np.ndarray:
    return np.array([
        pattern.truncated(rounds).max_participations
        for rounds in range(1, self.num_rounds + 1)
    ])

  @property
  def rounds_remembered(self) -> int:
    return 0

  @property
  def draws_per_round(self) -> float:
    return 1.0

  def initialize(self, zeros):
    del zeros
    return ()

  def next_noise(self, buffers, round_in_tree, operations):
    return operations.draw(0, round_in_tree - 1), buffers

  def round_variances(self) -> np.ndarray:
    return np.ones(self.num_rounds)

  def prefix_variances(self) -> np.ndarray:
    return np.arange(1, self.num_rounds + 1, dtype=np.float64)
