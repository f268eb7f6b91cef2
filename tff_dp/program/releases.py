# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What leaves a round: metrics, sorted by whether the guarantee covers them.

TFF's client metrics (loss, number of examples) and exact counts are computed
from data without noise. They are `not_covered`, carry that suffix in their
column's name and stay under `secret/`. A metric is released only if it is known
to be covered or public, and if the certificate of the process found no data in
it without their noise; whatever is not known is not covered.
"""

import collections
from collections.abc import Collection, Iterable, Mapping
import csv
import io
import os
import shutil

import numpy as np
import tensorflow_federated as tff
import tree

from tff_dp.program import event_loop
from tff_dp.program.files import run_directory

KEY = 'round'
NOT_COVERED_SUFFIX = '.not_covered'
_NOT_COVERED = 'not_covered'
_METRICS = 'metrics.csv'
# Measurements of `CorrelatedNoiseFactory` that follow from the configuration or
# from what it released. TFF's own wrappers measure without noise.
_COVERED_BY_AGGREGATOR = frozenset(
    {
        'clip_norm',
        'noise_stddev',
        # Of local noise: 1 where one wins, else known to the adversary.
        'num_reports',
        # Which silos are there is public.
        'num_silos',
        'quantile_estimate',
        'round',
        'snr',
        'tree_id',
        # Of draw and discard: computed from reports, which have their noise.
        'max_distance',
        'num_not_finite',
        'num_spam',
        'num_stored',
        'spread',
    }
)

# {'round': 3, 'released': {...}, 'not_covered': {...}}, plain JSON types.
Row = dict[str, object]


def make_row(
    round_index: int,
    *,
    round_metrics: object,
    released: Mapping[str, object],
    not_covered: Mapping[str, object],
    uncovered: Collection[tuple] = (),
    keeps_client_metrics: bool = True,
) -> Row:
  """Returns the row of one round, with only scalars in it.

  Args:
    round_index: 1-based.
    round_metrics: Nested metrics of a `tff.learning` process.
    released: Further metrics that are public or covered.
    not_covered: Further metrics that are not.
    uncovered: Paths of those of `round_metrics` that depend on clients' data
      without noise, whatever their name.
    keeps_client_metrics: Whether those of `round_metrics` that are not covered
      get a place at all; without noise they tell who came.
  """
  row = {KEY: int(round_index), 'released': {}, 'not_covered': {}}
  for path, value in tree.flatten_with_path(round_metrics):
    value = _scalar(value)
    if value is None:
      continue
    if _is_covered(path) and path not in uncovered:
      row['released']['/'.join(map(str, path))] = value
    elif keeps_client_metrics:
      name = '/'.join(str(part) for part in path if part != _NOT_COVERED)
      row['not_covered'][name + NOT_COVERED_SUFFIX] = value
  for name, value in released.items():
    row['released'][name] = _required_scalar(name, value)
  for name, value in not_covered.items():
    row['not_covered'][name + NOT_COVERED_SUFFIX] = _required_scalar(
        name, value
    )
  return row


def _is_covered(path: tuple) -> bool:
  """Whether a metric of a `tff.learning` process may be released."""
  if _NOT_COVERED in path:
    return False
  if path[0] == 'aggregator':
    return path[-1] in _COVERED_BY_AGGREGATOR
  # A finalizer sees the model and what the aggregator released, nothing else;
  # silos noise their private metrics.
  return path[0] == 'finalizer' or path[:2] == ('client_work', 'private')


def _required_scalar(name: str, value) -> bool | int | float:
  scalar = _scalar(value)
  if scalar is None:
    raise TypeError(f'The metric {name} must be a number, found {value!r}.')
  return scalar


def _scalar(value) -> bool | int | float | None:
  """Returns a Python number, `None` for anything else."""
  array = np.asarray(value)
  if array.shape or array.dtype.kind not in 'biuf':
    return None
  return array.item()


def last_round(directory: run_directory.RunDirectory) -> int:
  """Returns the last round that the released metrics have, 0 for none."""
  path = directory.release / _METRICS
  if not path.exists():
    return 0
  # A line that has no end is of a process that was killed.
  lines = path.read_text().rpartition('\n')[0].splitlines()
  rounds = [row.get(KEY) or '' for row in csv.DictReader(lines)]
  return max((int(r) for r in rounds if r.isdecimal()), default=0)


class Releases:
  """Writes rows to CSV files, TensorBoard and the log, on TFF's managers.

  On a resume everything is written anew from the history in the checkpoint, so
  no row is missing, torn or there twice, whenever the process was killed.
  """

  def __init__(
      self,
      directory: run_directory.RunDirectory,
      loop: event_loop.PrivateEventLoop,
      history: Iterable[Row],
  ):
    self._loop = loop
    self._directory = directory
    history = list(history)
    metrics_path = directory.release / _METRICS
    secret_path = directory.secret / 'metrics.not_covered.csv'
    summary_dir = directory.release / 'tensorboard'
    _write_csv(metrics_path, history, 'released')
    _write_csv(secret_path, history, 'not_covered')
    if summary_dir.exists():
      shutil.rmtree(summary_dir)
    tensorboard = tff.program.TensorBoardReleaseManager(os.fspath(summary_dir))
    with run_directory.naming(summary_dir):
      for row in history:
        loop.run(tensorboard.release(row['released'], row[KEY]))
    self._released = tff.program.GroupingReleaseManager([
        _csv_manager(metrics_path),
        tensorboard,
        tff.program.LoggingReleaseManager(),
    ])
    self._not_covered = _csv_manager(secret_path)

  def release(self, row: Row) -> None:
    """Releases one row; its round follows those before it."""
    for manager, path, part in (
        (self._released, self._directory.release, 'released'),
        (self._not_covered, self._directory.secret, 'not_covered'),
    ):
      with run_directory.naming(path):
        self._loop.run(
            manager.release(collections.OrderedDict(row[part]), row[KEY])
        )


def _csv_manager(path: os.PathLike) -> tff.program.CSVFileReleaseManager:
  return tff.program.CSVFileReleaseManager(os.fspath(path), key_fieldname=KEY)


def _write_csv(path: os.PathLike, history: list[Row], part: str) -> None:
  """Writes what `CSVFileReleaseManager` would have written, byte for byte."""
  columns = dict.fromkeys([KEY])
  for row in history:
    columns.update(dict.fromkeys(sorted(row[part])))  # As TFF flattens it.
  text = io.StringIO()
  writer = csv.DictWriter(text, fieldnames=list(columns))
  writer.writeheader()
  writer.writerows({KEY: row[KEY], **row[part]} for row in history)
  run_directory.write_atomically(path, text.getvalue())
