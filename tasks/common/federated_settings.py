# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings of the tasks whose clients are in TFF's own data sets.

A flag that is left out gets its value from a column. The default column is for
a reduced run, which learns something in minutes on a stand-in. With
--published, the column has the values of a published experiment on the real
data.
"""

import argparse
from collections.abc import Mapping, Sequence
import dataclasses
import pathlib
from typing import Any

from tasks.common import flags
from tff_dp import _checks
from tff_dp import mechanisms
from tff_dp.cli import errors
from tff_dp.mechanisms import catalogue
from tff_dp.systems.dp_ftrl import plan as plan_lib

_BANDED = ('banded', 'banded-inverse')
# What flags are called where an argument of the library has another name.
FLAGS = {
    'num_bands': 'bands',
    'num_buffers': 'buffers',
    'rounds_per_epoch': 'min_index_gap',
}
# Either says how much noise there is.
_NOISE = {'epsilon', 'noise_multiplier'}
# Where TFF keeps what it has fetched.
_TFF_FOLDER = '~/.tff'
_STAND_IN_FOLDER = 'runs/stand_in'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """The settings of a run. The fields are the flags of `add_arguments`.

  `None` stands for the value of the column, see `filled`.
  """

  output_dir: str
  data_dir: str | None = None
  stand_in: bool = False
  published: str | None = None
  epsilon: float | None = None
  noise_multiplier: float | None = None
  delta: float | None = None
  mechanism: str | None = None
  bands: int | None = None
  buffers: int | None = None
  total_rounds: int | None = None
  clients_per_round: int | None = None
  min_index_gap: int | None = None
  l2_norm_clip: float | None = None
  server_learning_rate: float | None = None
  momentum: float | None = None
  client_learning_rate: float | None = None
  client_batch_size: int | None = None
  client_epochs_per_round: int | None = None
  rounds_per_eval: int | None = None
  checkpoint_kind: str = 'full'
  seed: int = 0
  insecure_seed: int | None = None

  @property
  def folder(self) -> pathlib.Path:
    """The folder of the data."""
    default = _STAND_IN_FOLDER if self.stand_in else _TFF_FOLDER
    return pathlib.Path(self.data_dir or default).expanduser()

  def config(self, task: str) -> dict[str, Any]:
    """Returns the settings that must not change when a run is resumed."""
    config = dataclasses.asdict(self)
    for where in ('output_dir', 'data_dir', 'checkpoint_kind'):
      del config[where]
    return {'task': task, **config}


def add_arguments(
    parser: argparse.ArgumentParser,
    default: Settings,
    columns: Mapping[str, Mapping[str, Any]],
    *,
    published: Sequence[str],
    data: str,
    units: str,
):
  """Adds the flags of `Settings` and returns `flags.adder`, for more.

  Args:
    parser: Parser that gets the flags.
    default: Settings with all defaults.
    columns: Name of a column -> values of the fields that may be left out. A
      run does not use a field that its column lacks. The help mentions the
      first column without its name.
    published: Names of the columns that are published experiments.
    data: Names of the data files.
    units: Word for the elements of a local batch, in the plural.
  """
  first = next(iter(columns.values()))
  add = flags.adder(parser, default)

  def add_of_column(name, what, **options):
    known = first.get(name)
    told = ', '.join(
        flags.shown(column[name])
        + ('' if column is first else f' in {each}')
        for each, column in columns.items()
        if column.get(name) is not None
        and (column is first or column[name] != known)
    )
    if told:
      what += f' (default: {told})'
    values = (column.get(name) for column in columns.values())
    example = next((value for value in values if value is not None), None)
    add(name, what, example=example, **options)

  add('output_dir', 'folder of the run; the same command resumes in it')
  add(
      'data_dir',
      f'folder of {data} (default: {_TFF_FOLDER}, where TFF keeps it; with'
      f' --stand-in {_STAND_IN_FOLDER})',
      metavar='DIR',
  )
  parser.add_argument(
      '--stand-in',
      action='store_true',
      help='make and use data that only look like it, if you have none; every'
      ' result says so',
  )
  parser.add_argument(
      '--published',
      choices=published,
      nargs='?',
      const=published[0],
      help='settings of a published experiment, and its privacy statement'
      ' before the data are looked at; flags change it',
  )
  add_of_column(
      'epsilon', 'budget over the whole run, instead of --noise-multiplier',
      type=float,
  )
  add_of_column(
      'noise_multiplier',
      'noise of DP-FTRL: standard deviation of a draw, divided by the clip'
      ' norm, instead of --epsilon; 0 for NO PRIVACY',
      type=float,
  )
  add_of_column('delta', 'probability of failure; below 1 / number of clients')
  add_of_column(
      'mechanism', 'noise of DP-FTRL', choices=tuple(catalogue.BY_NAME)
  )
  add('bands', 'bands of banded and banded-inverse noise', type=int)
  add('buffers', 'buffers of blt noise, 2 to 8', type=int)
  add_of_column('total_rounds', 'rounds of the run')
  add_of_column('clients_per_round', 'clients of a round')
  add_of_column(
      'min_index_gap',
      'the number of rounds from one participation of a client to its next, at'
      ' least',
  )
  add_of_column('l2_norm_clip', 'bound on the L2 norm of what a client sends')
  add_of_column('server_learning_rate', 'step size of the server')
  add_of_column('momentum', 'momentum of the server')
  add_of_column('client_learning_rate', 'step size of local SGD')
  add_of_column('client_batch_size', f'{units} of a local step')
  add_of_column(
      'client_epochs_per_round', f"local passes over a client's {units}"
  )
  add_of_column('rounds_per_eval', 'rounds from one evaluation to the next')
  add(
      'checkpoint_kind',
      'what a checkpoint keeps of the noise: full for its buffers, seed_only'
      ' for the facts from which a resume computes them',
      choices=('full', 'seed_only'),
  )
  add('seed', 'public seed of the cohorts and the initial model')
  add(
      'insecure_seed',
      'for tests: noise that anybody can recompute, NO PRIVACY',
      type=int,
  )
  return add_of_column


def filled(
    settings: Settings, column: Mapping[str, Any], *, name: str
) -> Settings:
  """Returns the settings with the column's values where flags were left out.

  Args:
    settings: Settings from the flags. If epsilon or the noise multiplier is
      given, the column's value of the other is ignored.
    column: Field -> value, for all fields that such a run uses.
    name: Name of the column.
  """
  given = {
      field.name
      for field in dataclasses.fields(settings)
      if field.default is None and getattr(settings, field.name) is not None
  } - {'data_dir', 'published'}
  for field in sorted(given - set(column)):
    raise _checks.ArgumentError(
        field, getattr(settings, field), f'no value with {name}'
    )
  if _NOISE <= given:
    raise _checks.ArgumentError(
        'noise_multiplier',
        settings.noise_multiplier,
        'nothing beside --epsilon, from which the noise follows',
    )
  if _NOISE & given:
    given |= _NOISE
  values = {key: column[key] for key in set(column) - given}
  settings = dataclasses.replace(settings, **values)
  _checks.delta(delta=settings.delta)
  for name in (
      'total_rounds', 'clients_per_round', 'client_batch_size',
      'client_epochs_per_round', 'rounds_per_eval', 'min_index_gap',
  ):
    _checks.optional_integer_at_least(1, **{name: getattr(settings, name)})
  for name in ('epsilon', 'server_learning_rate', 'client_learning_rate'):
    if getattr(settings, name) is not None:
      _checks.positive(**{name: getattr(settings, name)})
  if settings.momentum is not None:
    _checks.in_half_open(0, 1, momentum=settings.momentum)
  return settings


def dp_ftrl_plan(
    settings: Settings, schedule, *, workload=None
) -> plan_lib.DpFtrlPlan:
  """Returns the plan of DP-FTRL, calibrated unless the noise was given.

  Args:
    settings: Result of `filled`.
    schedule: Schedule of the clients.
    workload: Map from the noised sums to the model, `None` for the prefix sum.
  """
  for flag, users in (('bands', _BANDED), ('buffers', ('blt',))):
    value = getattr(settings, flag)
    if value is not None and settings.mechanism not in users:
      raise _checks.ArgumentError(
          flag, value, f'no value without {" or ".join(users)} noise'
      )
  with errors.named_as_flags(FLAGS):
    plan = plan_lib.DpFtrlPlan(
        mechanism=mechanisms.build(
            settings.mechanism,
            schedule,
            num_bands=settings.bands,
            num_buffers=settings.buffers,
            workload=workload,
        ),
        participation=schedule,
        l2_norm_clip=settings.l2_norm_clip,
        clients_per_round=settings.clients_per_round,
        noise_multiplier=settings.noise_multiplier,
    )
    if settings.noise_multiplier is None:
      plan = plan.calibrated(epsilon=settings.epsilon, delta=settings.delta)
    return plan
