# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Made tables in the formats of the silos' tasks."""

import argparse
import csv

import numpy as np

from tasks.silos import obesity
from tasks.silos import silo_data

_HEART_HEADER = (
    'id,age,sex,dataset,cp,trestbps,chol,fbs,restecg,thalch,exang,oldpeak,'
    'slope,ca,thal,num'
)


def heart_table(rows: str) -> silo_data.Table:
  return silo_data.parse(
      silo_data.HEART, f'{_HEART_HEADER}\n{rows}'.encode()
  )


def insurance_table(num_records: int, seed: int = 0) -> silo_data.Table:
  """Returns made people, whose charges grow with age."""
  rng = np.random.default_rng(seed)
  regions = ('northeast', 'northwest', 'southeast', 'southwest')
  lines = ['age,sex,bmi,children,smoker,region,charges']
  for index in range(num_records):
    age = rng.integers(18, 65)
    lines.append(
        f'{age},{("male", "female")[rng.integers(2)]},'
        f'{rng.uniform(16, 50):.2f},{rng.integers(6)},'
        f'{("yes", "no")[rng.integers(2)]},'
        f'{regions[index % 4]},{500 * age + rng.uniform(0, 2000):.3f}'
    )
  return silo_data.parse(silo_data.INSURANCE, '\n'.join(lines).encode())


def obesity_table(counts) -> silo_data.Table:
  """Returns so many made people of each class."""
  lines = [','.join(silo_data.OBESITY.columns)]
  for name, count in zip(obesity.CLASSES, counts):
    for index in range(count):
      lines.append(
          f'Female,{20 + index},1.62,64,yes,no,2,3,Sometimes,no,2,no,0,1,no,'
          f'Public_Transportation,{name}'
      )
  return silo_data.parse(silo_data.OBESITY, '\n'.join(lines).encode())


def patients(counts) -> str:
  """Returns rows of the heart table, so many of each hospital."""
  rng = np.random.default_rng(0)
  names = ('Cleveland', 'Hungary', 'Switzerland', 'VA Long Beach')
  lines = []
  for name, count in zip(names, counts):
    for _ in range(count):
      is_ill = int(rng.integers(2))
      lines.append(
          f'{len(lines) + 1000},{rng.integers(30, 75)},'
          f'{("Male", "Female")[rng.integers(2)]},{name},'
          f'{("non-anginal", "asymptomatic")[is_ill]},'
          f'{rng.integers(100, 180)},{rng.integers(2) * 230},FALSE,normal,'
          f'{rng.integers(90, 180)},{("FALSE", "TRUE")[is_ill]},'
          f'{2.5 * is_ill},,,,{3 * is_ill}'
      )
  return '\n'.join(lines)


def settings_of(module, *words):
  """Returns a task's settings as its command line makes them."""
  parser = argparse.ArgumentParser()
  module.add_arguments(parser)
  return module.Settings(**vars(parser.parse_args(list(map(str, words)))))


def write(table: silo_data.Table, path) -> None:
  """Writes a table as the CSV file that it was read from."""
  with open(path, 'w', encoding='utf-8', newline='') as file:
    writer = csv.writer(file)
    writer.writerow(table.columns)
    writer.writerows(zip(*table.columns.values()))
