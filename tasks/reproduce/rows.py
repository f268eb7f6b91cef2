# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The rows of the reproductions, and the results of their runs."""

from collections.abc import Callable, Sequence
import dataclasses
import pathlib
from typing import Any

from tasks.reproduce import trials as trials_lib

ACCOUNTING, SIMULATION, TRAINING = 'accounting', 'simulation', 'training'
HOLDS = 'holds'
IN_PART = 'holds in part'
FAILS = 'does not hold'
NO_NUMBER = 'nothing to compare with'
TOO_SHORT = 'too short to compare'
NOT_HERE = 'not testable here'
NOT_RUN = 'not run'
# Below these shares a run is no run at the paper's setting.
LEAST_ROUNDS, LEAST_POPULATION = 0.1, 0.25


@dataclasses.dataclass(frozen=True)
class Line:
  """One number of a paper beside ours.

  Attributes:
    what: Name of the number, in words.
    ours: Our number.
    paper: The paper's number, with the digits that it prints. `None` if it
      prints none.
    spread: Standard deviation over seeds, `None` for a number without chance.
  """

  what: str
  ours: float
  paper: str | None = None
  spread: float | None = None

  @property
  def is_same(self) -> bool:
    """Whether our number, rounded to the paper's digits, is the paper's."""
    decimals = len(self.paper.partition('.')[2])
    return round(self.ours, decimals) == float(self.paper)


@dataclasses.dataclass(frozen=True)
class Curve:
  """A line of the figure; `panel` names the axes, as 'y label over x label'."""

  label: str
  x: Sequence[float]
  y: Sequence[float]
  panel: str
  spread: Sequence[float] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
  """The result of a run.

  Attributes:
    lines: Lines of the table.
    verdict: One of the constants of this module.
    why: Reasons for the verdict, one or more sentences.
    curves: Curves of the figure.
    rounds_share: Rounds of the run, as a share of the paper's.
    population_share: Clients or records, as a share of the paper's.
  """

  lines: Sequence[Line]
  verdict: str
  why: str
  curves: Sequence[Curve] = ()
  rounds_share: float = 1.0
  population_share: float = 1.0

  @property
  def is_setting_of_paper(self) -> bool:
    return (
        self.rounds_share >= LEAST_ROUNDS
        and self.population_share >= LEAST_POPULATION
    )

  @property
  def shown_verdict(self) -> str:
    """The verdict, which only a run at the paper's setting has."""
    return self.verdict if self.is_setting_of_paper else NOT_RUN

  def to_json(self) -> dict[str, Any]:
    return dataclasses.asdict(self)

  @classmethod
  def from_json(cls, content: dict[str, Any]) -> 'Result':
    """Returns the result that `to_json` described. Ignores other keys."""
    names = [field.name for field in dataclasses.fields(cls)]
    return cls(
        **{name: content[name] for name in names}
        | {
            'lines': [Line(**line) for line in content['lines']],
            'curves': [Curve(**curve) for curve in content['curves']],
        }
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """How to run a row.

  Attributes:
    scale: Share of the rounds or updates.
    seeds: Number of seeds. Each method at each epsilon has a trial with each.
    output_dir: Folder of everything that is trained. A run with the same folder
      goes on where it was stopped.
    data: Path of the user's data, `None` for the task's own places.
    progress: Kind of progress, as for `tff_dp.program.train`.
    trials: Trials that ended. `None` for those of `output_dir` alone.
  """

  scale: float
  seeds: int
  output_dir: pathlib.Path
  data: str | None = None
  progress: str = 'quiet'
  trials: trials_lib.Trials | None = None

  def scaled(self, rounds: int) -> int:
    """Returns the rounds of this run, at least one."""
    return max(1, round(self.scale * rounds))

  @property
  def trial(self) -> Callable[..., dict[str, Any]]:
    """`Trials.trial` of this run: it returns the numbers of a trial."""
    kept = self.trials or trials_lib.Trials(trials_of(self.output_dir))
    return kept.trial


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """One item of a paper.

  Attributes:
    name: Name on the command line.
    paper: Short name of the paper.
    item: Figure, table or section, and its subject.
    kind: 'accounting', 'simulation' or 'training'.
    run: Function that runs the row, `None` if nothing here can.
    seeds: Number of trials in the paper.
    data: Data that the run needs, in words. Empty for none.
    source: Function that looks for the data as `tasks` does, and raises
      `DataFileError` if they are missing. `None` for no data.
    why_not: Reason why the row has no `run`. Empty if it has one.
    is_testable: Whether the data can be had without the authors of the paper.
    cost: Estimated time of the shortest run whose verdict counts, in a
      sentence.
  """

  name: str
  paper: str
  item: str
  kind: str
  run: Callable[[Run], Result] | None = None
  seeds: int = 1
  data: str = ''
  source: Callable[[], Any] | None = None
  why_not: str = ''
  is_testable: bool = True
  cost: str = ''


def trials_of(output_dir: pathlib.Path) -> pathlib.Path:
  """Returns the folder of a run's own trials."""
  return output_dir / 'trials'


def verdict_of(lines: Sequence[Line]) -> str:
  """Returns whether all, some or none of the paper's numbers are ours."""
  same = [line.is_same for line in lines if line.paper is not None]
  if not same:
    return NO_NUMBER
  if all(same):
    return HOLDS
  return IN_PART if any(same) else FAILS
