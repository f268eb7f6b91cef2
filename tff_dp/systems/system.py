# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The contract of a system: what it tells the shared packages about itself.

A `System` is light. It refers to its plan, flags, offers and training by name,
and imports each of them when somebody asks for it. Only training needs
TensorFlow.
"""

from collections.abc import Mapping
import dataclasses
import importlib
from typing import Any, NamedTuple, Optional

from tff_dp import _checks


class At(NamedTuple):
  """The address of a value. Calling the address imports and returns the value.

  Attributes:
    module: Full name of a module.
    name: Name in the module. Empty for the module itself.
  """

  module: str
  name: str = ''

  def __call__(self) -> Any:
    module = importlib.import_module(self.module)
    return getattr(module, self.name) if self.name else module


class Command(NamedTuple):
  """A kind of run on the command line, such as KIND in `tff-dp account KIND`.

  Attributes:
    summary: One line for `--help`.
    flags: Reference to an object with the members below. The object computes
      no number: `cli.results` asks the plan for headline and details.

      * `add_arguments(parser, kind, command)` adds flags, description and
        examples.
      * `run_of(arguments)` returns the plan, the number of rounds to account
        for and the delta, as a `cli.results.PlanRun`.
      * `calibrated(arguments)` returns a `PlanRun` within `--epsilon`, and a
        dict that says which flag was solved for and its value.
      * `FLAGS` maps an argument of the plan to its flag, for errors.
      * `write_plot(arguments)` is optional. It draws the picture for `--plot`,
        in place of epsilon over rounds.
    examples: Reference to a dict of examples for `--help`, by the name of the
      command. The name '' stands for `tff-dp --help`. `None` for no examples.
  """

  summary: str
  flags: At
  examples: Optional[At] = None


class Tool(NamedTuple):
  """A command of `tff-dp` that only one system has.

  Attributes:
    summary: One line for `--help`.
    add_arguments: Reference to a function that adds flags to a parser and sets
      `run`, a function from parsed arguments to an exit code.
  """

  summary: str
  add_arguments: At


class Offered(NamedTuple):
  """A system, or a variant of one, that `advise` compares.

  Attributes:
    needs: Lowest level of trust at which the system works, one of
      `advice.offers.TRUST`.
    summary: Description of the system.
    build: Reference to a function that takes an `advice.Setting` and returns
      the `advice.offers.Offer`. The function raises
      `advice.offers.DoesNotFitError` if the system does not fit the setting.
    unit: Unit of privacy, 'client' or 'record'.
  """

  needs: str
  summary: str
  build: At
  unit: str = 'client'


@dataclasses.dataclass(frozen=True, kw_only=True)
class System:
  """All that the library has to know about one system.

  Attributes:
    kind: Name of the system in files, such as 'dp_ftrl'. It equals `kind` of
      its plan class.
    page: Path of the page of the docs about the system.
    plan: Reference to the plan class, a subclass of `plans.base.Plan`.
    training: Reference to a `Training`.
    points: Names that the privacy statement of the system must have, in
      addition to the names that all statements have. A mapping from a point of
      the statement to its names, separated by spaces.
    commands: Mapping from a kind of run on the command line, such as 'dp-ftrl',
      to its `Command`.
    offers: Mapping from a name in `tff-dp advise`, such as 'dp-ftrl', to its
      `Offered`.
    tools: Mapping from the name of a command of `tff-dp`, such as 'compare', to
      its `Tool`.
    rows: Reference to a function that returns the system's rows in `compare` at
      a budget, as a list of `mechanisms.choice.Row`. The function takes the
      keyword arguments `num_rounds`, `max_participations`, `epsilon`, `delta`
      and `error`. `None` if the system has no rows there.
    server_cohorts: Reference to the subclass of
      `integrations.server_cohorts.ServerCohorts` that selects the clients on
      Flower and NVFlare. `None` if the system's plans do not run there. The
      adapters are the modules `flower` and `nvflare` in the system's folder.
  """

  kind: str
  page: str
  plan: At
  training: At
  points: Mapping[str, str] = dataclasses.field(default_factory=dict)
  commands: Mapping[str, Command] = dataclasses.field(default_factory=dict)
  offers: Mapping[str, Offered] = dataclasses.field(default_factory=dict)
  tools: Mapping[str, Tool] = dataclasses.field(default_factory=dict)
  server_cohorts: Optional[At] = None
  rows: Optional[At] = None


class Noise(NamedTuple):
  """The noise that processes of a plan should have.

  `export --verify --run` measures their noise and compares it with this.

  Attributes:
    server_clip_norm: Clip norm of the sum to which the server adds the noise of
      `plan.mechanism`. `None` if the server adds no noise, for example because
      clients or silos add it.
    stddev: Standard deviation of Gaussian noise on each number of a report.
      `None` if clients add no Gaussian noise, or if it cannot be measured.
    laplace: Scale of Laplace noise on each number of a report. `None` if
      clients add no Laplace noise.
    not_measured: Reason why the noise cannot be measured. Empty if it can.
    keys_give_integers: Whether reports are integers that almost surely differ
      if the keys differ.
  """

  server_clip_norm: Optional[float] = None
  stddev: Optional[float] = None
  laplace: Optional[float] = None
  not_measured: str = ''
  keys_give_integers: bool = False


class Training:
  """How runs of a system get their cohorts, and how processes are verified.

  Every subclass defines `cohorts`. The defaults of the other methods are for a
  trusted server that adds the noise to one sum in each round.

  Attributes:
    is_private: Whether plans of the system guarantee anything.
    presence_is_public: Whether the set of participants of a round is public.
    knows_divisor: Whether the plan fixes the number by which the server divides
      a sum.
    is_in_odp: Whether On-Device Personalization (ODP) has an aggregator for
      some plans of the system.
    draws_are_coins: Whether coins choose the part that a client asks the server
      for, such as one of several models. The coins do not depend on clients'
      data.
    why_never_without_privacy: Pair of texts: the reason why processes of the
      system cannot be trained under a `NonPrivatePlan`, and the way out. `None`
      if they can.
  """

  is_private: bool = True
  presence_is_public: bool = False
  knows_divisor: bool = True
  is_in_odp: bool = False
  draws_are_coins: bool = False
  why_never_without_privacy: Optional[tuple[str, str]] = None

  def cohorts(self, plan: Any, clients: Any, *, schedule_seed: int) -> Any:
    """Returns the `program.cohorts.Cohorts` of a run.

    Args:
      plan: Plan of the system.
      clients: A `tff.simulation.datasets.ClientData`, or a source of clients.
      schedule_seed: Public seed of the schedule. It must be 0 if the system has
        no public schedule, for example because clients decide themselves.

    Raises:
      ArgumentError: If clients or seed do not fit the plan.
    """
    raise NotImplementedError

  def release(self, plan: Any) -> Any:
    """Returns the mark that processes of the plan must put on their noise.

    The mark is a `release_marks.Release`.
    """
    return plan.aggregator().release

  def state_counts_rounds(self, plan: Any) -> bool:
    """Returns whether the process state counts the noised rounds.

    If so, `program` compares that count with its own count after every round.
    """
    del plan
    return True

  def check(self, next_computation: Any, plan: Any) -> None:
    """Raises `PrivacyRefusedError` if a process breaks a rule of the system.

    Called after the checks that all systems share.
    """
    del next_computation, plan

  def noise(self, plan: Any) -> Noise:
    """Returns the noise that a process of the plan should have."""
    return Noise(server_clip_norm=plan.l2_norm_clip)

  def made_data(self, plan: Any, member: Any, make: Any) -> list[Any]:
    """Returns artificial data for the participants of one round.

    Args:
      plan: Plan of the system.
      member: TFF type of the data of one participant.
      make: An `export.computations.Maker` of values.
    """
    del plan
    return [make(member) for _ in range(make.num_clients)]

  def way_to_noise(self, plan: Any) -> Optional[str]:
    """Returns how to build a process with noise, for errors.

    `None` means that `plan.aggregator()` in any builder is enough.
    """
    return plan.built_by


def no_seed(schedule_seed: int) -> None:
  """Raises `ArgumentError` unless the seed is 0, where there is no schedule."""
  if schedule_seed:
    raise _checks.ArgumentError(
        'schedule_seed',
        schedule_seed,
        '0: no public schedule draws the clients of this run',
    )
