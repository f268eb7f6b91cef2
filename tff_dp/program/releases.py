# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Releases of a round: metrics, sorted by whether the guarantee covers them.

TFF's client metrics (loss, number of examples) and exact counts are computed
from data without noise. They are `not_covered`, carry that suffix in their
column's name and stay under `secret/`. A metric is released only if it is known
to be covered or public, and if the certificate of the process found no data
without noise in it. Unknown metrics count as not covered.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
import csv
import io
import itertools
import logging
import os
import pathlib
import shutil
import sys

import numpy as np
import tensorflow as tf
import tree

from tff_dp.files import regular
from tff_dp.files import run_directory

KEY = 'round'
NOT_COVERED_SUFFIX = '.not_covered'
_NOT_COVERED = 'not_covered'
_METRICS = 'metrics.csv'
# TensorBoard looks for 'tfevents' in the name.
_EVENTS = 'events.out.tfevents.rounds'
# End of a line.
_END = b'\r\n'
# Measurements of `CorrelatedNoiseFactory` that follow from the configuration or
# from what it released. TFF's own wrappers measure without noise.
_COVERED_BY_AGGREGATOR = frozenset(
    {
        'clip_norm',
        'noise_stddev',
        # With local noise: 1 if one client wins, else known to the adversary.
        'num_reports',
        # Where only records are protected, who takes part is public.
        'num_silos',
        'quantile_estimate',
        'round',
        'snr',
        'tree_id',
        # In draw and discard: computed from reports, which have their noise.
        'max_distance',
        'num_not_finite',
        'num_spam',
        'num_stored',
        'spread',
    }
)

_log = logging.getLogger(__name__)

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
  """Returns the row of one round, which has only scalars.

  Args:
    round_index: 1-based index of the round.
    round_metrics: Nested metrics of a `tff.learning` process. Those that are
      not scalars are left out.
    released: Further metrics that are public, or covered by the guarantee. All
      must be numbers.
    not_covered: Further metrics that are neither public nor covered. All must
      be numbers.
    uncovered: Paths in `round_metrics` of the metrics that depend on clients'
      data without noise, whatever their name.
    keeps_client_metrics: Whether the row keeps metrics of `round_metrics` that
      are not covered. They have no noise, so they tell who came.

  Raises:
    TypeError: If a value of `released` or `not_covered` is not a number.
  """
  row = {KEY: int(round_index), 'released': {}, 'not_covered': {}}
  for path, value in tree.flatten_with_path(round_metrics):
    value = _scalar(value)
    if value is None:
      continue
    if _is_covered(path) and path not in uncovered:
      row['released'][_name(path)] = value
    elif keeps_client_metrics:
      shown = [part for part in path if part != _NOT_COVERED]
      row['not_covered'][_name(shown, NOT_COVERED_SUFFIX)] = value
  for name, value in released.items():
    row['released'][name] = _required_scalar(name, value)
  for name, value in not_covered.items():
    row['not_covered'][_name([name], NOT_COVERED_SUFFIX)] = _required_scalar(
        name, value
    )
  return row


def evaluated(row: Row, evaluation: Mapping[str, object]) -> Row:
  """Returns a row with the metrics of its evaluation, all of them released.

  Raises:
    TypeError: If a value is not a number.
  """
  numbers = {
      name: _required_scalar(name, value) for name, value in evaluation.items()
  }
  return row | {
      'released': row['released'] | numbers,
      'evaluated': list(evaluation),
  }


def _is_covered(path: tuple) -> bool:
  """Whether a metric of a `tff.learning` process may be released."""
  if _NOT_COVERED in path:
    return False
  if path[0] == 'aggregator':
    return path[-1] in _COVERED_BY_AGGREGATOR
  # A finalizer sees only the model and the releases of the aggregator.
  # Private metrics have noise of the clients.
  return path[0] == 'finalizer' or path[:2] == ('client_work', 'private')


def _name(path: Iterable, suffix: str = '') -> str:
  # The rows of all rounds share one string.
  return sys.intern('/'.join(map(str, path)) + suffix)


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


class Releases:
  """Writes rows to CSV files, TensorBoard and the log.

  A resumed run writes all files anew from the history of the checkpoint. So no
  row is missing, torn or written twice, whenever the process was killed.
  """

  def __init__(
      self, directory: run_directory.RunDirectory, history: Sequence[Row]
  ):
    self._released = _Csv(directory.release / _METRICS, 'released', history)
    self._not_covered = _Csv(
        directory.secret / 'metrics.not_covered.csv', 'not_covered', history
    )
    self._summaries = _Summaries(directory.release / 'tensorboard', history)

  def release(self, row: Row) -> None:
    """Releases one row. Rows come in the order of their rounds."""
    self._released.append(row)
    self._summaries.append(row)
    _log.info('released: %s', row['released'])
    self._not_covered.append(row)

  def close(self) -> None:
    """Closes the TensorBoard file."""
    self._summaries.close()


class _Summaries:
  """A TensorBoard file whose events have the round in place of the time.

  TensorFlow's own writer adds host and process to the name of the file, and a
  time to each event. The time depends on clients' data and is not covered.
  """

  def __init__(self, folder: pathlib.Path, rows: Iterable[Row]):
    self._path = folder / _EVENTS
    with run_directory.naming(folder):
      if folder.exists():
        shutil.rmtree(folder)
      folder.mkdir()
      self._writer = tf.io.TFRecordWriter(os.fspath(self._path))
    self._write(0, file_version='brain.Event:2')
    for row in rows:
      self.append(row)

  def append(self, row: Row) -> None:
    """Adds a row, as one event."""
    values = [
        tf.compat.v1.Summary.Value(tag=name, simple_value=value)
        for name, value in row['released'].items()
    ]
    self._write(row[KEY], summary=tf.compat.v1.Summary(value=values))

  def _write(self, step: int, **content) -> None:
    event = tf.compat.v1.Event(wall_time=step, step=step, **content)
    with run_directory.naming(self._path):
      self._writer.write(event.SerializeToString())
      self._writer.flush()

  def close(self) -> None:
    """Closes the file. May be called again."""
    with run_directory.naming(self._path):
      self._writer.close()


class _Csv:
  """A CSV file of one part of the rows. A new column becomes the last one.

  Rows are only in the file, not in memory. A new column adds an empty field to
  all earlier lines, so the file is rewritten once for each new column.
  """

  def __init__(self, path: os.PathLike, part: str, rows: Sequence[Row]):
    self._path, self._part = path, part
    self._columns = dict.fromkeys([KEY])
    for row in rows:
      self._columns.update(dict.fromkeys(sorted(row[part])))
    run_directory.write_atomically(
        path, itertools.chain([self._header()], map(self._line, rows))
    )

  def append(self, row: Row) -> None:
    """Adds a row."""
    new = sorted(row[self._part].keys() - self._columns.keys())
    if new:
      self._columns.update(dict.fromkeys(new))
      with open(self._path, 'rb') as lines:
        run_directory.write_atomically(
            self._path, self._widened(lines, b',' * len(new))
        )
    with run_directory.naming(self._path):
      descriptor = regular.open_file(
          self._path, os.O_WRONLY | os.O_APPEND, follow_links=False
      )
      with open(descriptor, 'ab') as file:
        file.write(self._line(row))

  def _widened(self, lines: Iterable[bytes], empty: bytes) -> Iterator[bytes]:
    next(lines)
    yield self._header()
    for line in lines:
      yield line.removesuffix(_END) + empty + _END

  def _header(self) -> bytes:
    return self._of(dict(zip(self._columns, self._columns)))

  def _line(self, row: Row) -> bytes:
    return self._of({KEY: row[KEY], **row[self._part]})

  def _of(self, values: Mapping[str, object]) -> bytes:
    text = io.StringIO()
    csv.DictWriter(
        text, fieldnames=list(self._columns), lineterminator=_END.decode()
    ).writerow(values)
    return text.getvalue().encode()
