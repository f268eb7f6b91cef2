# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Federated EMNIST: letters and digits of 3,400 writers, who are the clients.

The file emnist_all.sqlite of TFF's loader is read where it lies, see
--data-dir; --stand-in draws letters and digits of invented writers into a file
of the same format. --system chooses how privacy comes about, --mechanism the noise of
DP-FTRL.

Without --published a run is small: it learns something in minutes from 1,000
invented writers, and its settings were chosen on their held-out characters.

With --published it is the experiment of google-research/federated, dp_ftrl: the
network of 1,690,046 weights, 100 writers a round, noise multiplier 0.01. Its
driver stops after 10 rounds by default; here the writers are gone through ten
times.
"""

import argparse
import dataclasses
import functools

from tasks.common import engine
from tasks.common import federated_run
from tasks.common import federated_settings
from tasks.emnist import emnist_data
from tasks.emnist import emnist_models
from tff_dp import _checks
from tff_dp import _waiting
from tff_dp import participation
from tff_dp.systems.dp_ftrl import plan as plan_lib

EXAMPLES = """examples:
  python -m tasks train emnist --stand-in
  python -m tasks train emnist --stand-in --mechanism tree
  python -m tasks train emnist --stand-in --system isrl --only-digits
  python -m tasks train emnist --data-dir ~/.tff --published
"""
_DP_FTRL, _CHECK_INS, _SHUFFLED, _ISRL, _INSTANCES = SYSTEMS = (
    'dp-ftrl',
    'check-ins',
    'shuffled-check-in',
    'isrl',
    'draw-and-discard',
)
_PUBLISHED = 'run_emnist'
_REDUCED = {
    'epsilon': 8.0,
    'delta': 1e-4,
    'model': emnist_models.LINEAR,
    'l2_norm_clip': 1.0,
    'rounds_per_eval': 8,
}
_LOCAL_TRAINING = {
    'server_learning_rate': 0.5,
    'momentum': 0.9,
    'client_learning_rate': 1.0,
    'client_batch_size': 16,
    'client_epochs_per_round': 1,
}
# A report is one bit about the direction of an update: its length counts for
# nothing above the clip norm, so writers train until they reach it.
_ONE_BIT = _REDUCED | _LOCAL_TRAINING | {
    'server_learning_rate': 1.0,
    'momentum': 0.0,
    'client_learning_rate': 4.0,
    'client_epochs_per_round': 5,
    'total_rounds': 4,
    'rounds_per_eval': 1,
}
# What a run uses, and the flags that may be left out have as values.
COLUMNS = {
    _DP_FTRL: _REDUCED | _LOCAL_TRAINING | {
        'noise_multiplier': None,
        'mechanism': 'blt',
        'bands': None,
        'buffers': None,
        'total_rounds': 48,
        'clients_per_round': 20,
        'min_index_gap': 48,
        'insecure_seed': None,
    },
    _PUBLISHED: _LOCAL_TRAINING | {
        'epsilon': None,
        'noise_multiplier': 0.01,
        'delta': 1e-4,
        'mechanism': 'honaker',
        'bands': None,
        'buffers': None,
        'model': emnist_models.CNN,
        'total_rounds': 330,
        'clients_per_round': 100,
        'min_index_gap': 33,
        'l2_norm_clip': 1.0,
        'server_learning_rate': 1.0,
        'client_learning_rate': 0.02,
        'rounds_per_eval': 33,
        'insecure_seed': None,
    },
    _CHECK_INS: _ONE_BIT,
    _SHUFFLED: _ONE_BIT | {'clients_per_round': 250},
    _ISRL: _REDUCED | {
        'total_rounds': 24,
        'clients_per_round': 100,
        'server_learning_rate': 2.0,
        'client_batch_size': 25,
    },
    _INSTANCES: _REDUCED | {
        # The noise is in proportion to the clip norm, and gradients are short.
        'l2_norm_clip': 0.05,
        # Of two in a round, one often overwrites what the other did.
        'total_rounds': 1000,
        'clients_per_round': 1,
        'client_learning_rate': 1.0,
        'client_batch_size': 100,
        'instances': 2,
        'rounds_per_eval': 250,
    },
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(federated_settings.Settings):
  """The settings of a run, see `federated_settings.Settings`."""

  output_dir: str = 'runs/emnist'
  writers: int = 1000
  only_digits: bool = False
  system: str = _DP_FTRL
  model: str | None = None
  instances: int | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the task's flags, with the defaults of `Settings`."""
  default = Settings()
  add = federated_settings.add_arguments(
      parser,
      default,
      COLUMNS,
      published=[_PUBLISHED],
      data=emnist_data.FILE,
      units='characters',
  )
  parser.add_argument(
      '--system',
      choices=SYSTEMS,
      default=default.system,
      help='who adds which noise, and who takes part (default: %(default)s)',
  )
  add(
      'writers',
      f'number of writers of a stand-in (default: {default.writers})',
      type=int,
  )
  parser.add_argument(
      '--only-digits', action='store_true', help='10 classes instead of 62'
  )
  add('model', 'which network', choices=emnist_models.NAMES)
  add('instances', 'models of the server in draw-and-discard')


def build_plan(settings: Settings) -> plan_lib.DpFtrlPlan:
  """Returns the plan of DP-FTRL of filled settings."""
  schedule = participation.MinSeparation(
      settings.total_rounds, min_index_gap=settings.min_index_gap
  )
  return federated_settings.dp_ftrl_plan(settings, schedule)


def run(
    settings: Settings, *, where: engine.EngineSettings, progress: str
) -> tuple[dict[str, object], str]:
  """Trains and returns (row of the report, description of the data)."""
  _checks.integer_at_least(1, writers=settings.writers)
  if settings.published and settings.system != _DP_FTRL:
    raise _checks.ArgumentError(
        'system', settings.system, f'{_DP_FTRL} with --published'
    )
  name = settings.published or settings.system
  settings = federated_settings.filled(settings, COLUMNS[name], name=name)
  plan = build_plan(settings) if settings.system == _DP_FTRL else None
  if settings.published:
    federated_run.state(
        plan, settings, _declared(settings, 'EMNIST, not read yet')
    )
  contents = emnist_data.look(
      settings.folder,
      stand_in_writers=settings.writers if settings.stand_in else None,
  )
  # Only now: a wrong flag or file is reported before TensorFlow is loaded.
  with _waiting.saying(engine.IMPORTING, mode=progress):
    from tasks.emnist import emnist_training  # pylint: disable=g-import-not-at-top

    engine.start(where, progress=progress)
  data = emnist_data.load(
      settings.folder,
      contents,
      only_digits=settings.only_digits,
      batch_size=settings.client_batch_size,
      num_epochs=settings.client_epochs_per_round or 1,
  )
  row = emnist_training.train(
      settings,
      plan,
      data,
      declarations=_declared(
          settings, data.description, len(data.num_examples)
      ),
      progress=progress,
  )
  return row, data.description


main = functools.partial(federated_run.main, run)


def _declared(
    settings: Settings, data: str, population: int | None = None
):
  """Returns the declarations that only the task can make.

  Args:
    settings: Result of `federated_settings.filled`.
    data: Description of the data.
    population: Number of writers, `None` before the data are looked at.
  """
  chosen = 'on the held-out characters of a stand-in, by a coarse search'
  if settings.published:
    chosen = 'by others: google-research/federated, dp_ftrl, run_emnist.py'
  return federated_run.declared(
      population=population,
      chosen=chosen,
      preprocessing=f'none: pixels are as they are in {data}',
  )
