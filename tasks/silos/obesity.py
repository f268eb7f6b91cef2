# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Levels of obesity, with a silo for each of the seven classes.

Softmax regression on 16 columns of "Estimation of Obesity Levels Based On
Eating Habits and Physical Condition" (UCI). A silo has people of one class
only, so silos could not differ more. They are cut to equal size, and 3 of 7 can
be reached in a round (arXiv:2106.09779, experiments).

No package has this data under a licence that we know: get the CSV file and name
it with --data or the environment variable TFF_DP_OBESITY.
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
  python -m tasks sweep obesity \\
      --data ObesityDataSet_raw_and_data_sinthetic.csv
"""
CLASSES = (
    'Insufficient_Weight',
    'Normal_Weight',
    'Overweight_Level_I',
    'Overweight_Level_II',
    'Obesity_Type_I',
    'Obesity_Type_II',
    'Obesity_Type_III',
)
_REACHABLE = 3
# Column -> declared range.
_NUMBERS = {
    'Age': (10, 70),
    'Height': (1.4, 2.1),
    'Weight': (35, 180),
    'FCVC': (1, 3),
    'NCP': (1, 4),
    'CH2O': (1, 3),
    'FAF': (0, 3),
    'TUE': (0, 2),
}
_FLAGS = {
    'Gender': ('Female', 'Male'),
    'family_history_with_overweight': ('no', 'yes'),
    'FAVC': ('no', 'yes'),
    'SMOKE': ('no', 'yes'),
    'SCC': ('no', 'yes'),
}
_FREQUENCIES = ('no', 'Sometimes', 'Frequently', 'Always')
_CATEGORIES = {
    'CAEC': _FREQUENCIES,
    'CALC': _FREQUENCIES,
    'MTRANS': (
        'Automobile', 'Bike', 'Motorbike', 'Public_Transportation', 'Walking',
    ),
}
_NOTES = (
    'Features are scaled with declared ranges and categories, no statistic of'
    ' the records: preprocessing releases nothing.',
    'A silo has a single class. Its noise is added inside of it, before'
    ' averaging, and one record can move its mean by 2 C / K: more noise than'
    ' in the published experiment, so errors are larger.',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(silo_settings.Settings):
  """The settings of a sweep, see `silo_settings.Settings`."""

  output_dir: str = 'runs/obesity'
  rounds: int = 100
  # A gradient of cross-entropy has a norm of at most the root of 2.
  l2_norm_clip: float = 1.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  silo_settings.add_arguments(parser, Settings())


def silos(table: silo_data.Table) -> dict[str, silo_preprocessing.Records]:
  """Returns the records of each class, as many as the rarest class has.

  Args:
    table: The whole table.
  """
  features = silo_preprocessing.Features()
  for name, (low, high) in _NUMBERS.items():
    features.number(table.numbers(name), low, high)
  for name, choices in _FLAGS.items():
    features.flag(silo_preprocessing.one_of(table, name, choices))
  for name, choices in _CATEGORIES.items():
    features.category(
        silo_preprocessing.one_of(table, name, choices), len(choices)
    )
  labels = silo_preprocessing.one_of(table, 'NObeyesdad', CLASSES)
  records = silo_preprocessing.Records(
      features.rows(), labels.astype(np.int32)
  )
  length = int(np.bincount(labels, minlength=len(CLASSES)).min())
  return {
      name: records.rows(np.flatnonzero(labels == index)[:length])
      for index, name in enumerate(CLASSES)
  }


def problem(data: str | None) -> silo_algorithms.Problem:
  """Returns the problem of the task.

  Args:
    data: Path of the data, as for `silo_data.load`.
  """
  records = silos(silo_data.load(silo_data.OBESITY, data))
  return silo_algorithms.Problem(
      name='obesity',
      title='Obesity, a silo for each class',
      loss=silo_models.SOFTMAX,
      split=functools.partial(silo_preprocessing.split, records),
      num_features=records[CLASSES[0]].features.shape[1],
      num_classes=len(CLASSES),
      silos_per_round=_REACHABLE,
      notes=_NOTES,
  )


def problems(settings: Settings) -> list[silo_algorithms.Problem]:
  """Returns the problems of a sweep."""
  return [problem(settings.data)]


def main(
    settings: Settings, *, where: engine.EngineSettings, progress: str
) -> int:
  """Makes all runs, prints the tables and returns the exit code."""
  return silo_study.main(
      problems(settings), settings, where=where, progress=progress
  )
