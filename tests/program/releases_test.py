# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of releases: what is covered, and files without gaps or duplicates."""

import collections
import pathlib
import shutil
import tempfile

from absl.testing import absltest
import numpy as np
import tensorflow as tf

from tff_dp.files import run_directory
from tff_dp.program import releases


def _row(round_index: int, **released) -> releases.Row:
  return releases.make_row(
      round_index,
      round_metrics={'client_work': {'loss': np.float32(round_index / 3)}},
      released={'epsilon': round_index / 7, **released},
      not_covered={'seconds': 0.5},
  )


def _rows() -> list[releases.Row]:
  return [
      _row(1),
      _row(2, test_accuracy=0.5, bad=float('nan')),
      _row(3, is_on=True),
      _row(4, test_accuracy=1.0),
  ]


def _scalars(folder: pathlib.Path) -> list[tuple[str, int]]:
  """Returns (tag, step) of all events, in order."""
  found = []
  for path in folder.glob('*'):
    for record in tf.data.TFRecordDataset([str(path)]):
      event = tf.compat.v1.Event.FromString(record.numpy())
      found += [(value.tag, event.step) for value in event.summary.value]
  return found


class MakeRowTest(absltest.TestCase):

  def test_only_what_is_known_to_be_covered_is_released(self):
    metrics = collections.OrderedDict(
        distributor=(),
        client_work=collections.OrderedDict(
            train=collections.OrderedDict(loss=np.float32(0.5))
        ),
        aggregator=collections.OrderedDict(
            # As TFF's zeroing around our factory reports it.
            zeroing=collections.OrderedDict(
                snr=np.float32(1.5),
                not_covered=collections.OrderedDict(snr=np.int32(7)),
            ),
            zeroed_count=np.int32(2),
            zeroing_norm=np.float32(3.0),
            per_layer=np.ones(3, np.float32),
        ),
        finalizer=collections.OrderedDict(update_non_finite=np.int32(0)),
        something_new=np.float32(1.0),
    )
    row = releases.make_row(
        3, round_metrics=metrics, released={'epsilon': 1}, not_covered={'s': 2}
    )
    self.assertEqual(
        row,
        {
            'round': 3,
            'released': {
                'aggregator/zeroing/snr': 1.5,
                'finalizer/update_non_finite': 0,
                'epsilon': 1,
            },
            'not_covered': {
                'client_work/train/loss.not_covered': 0.5,
                'aggregator/zeroing/snr.not_covered': 7,
                'aggregator/zeroed_count.not_covered': 2,
                'aggregator/zeroing_norm.not_covered': 3.0,
                'something_new.not_covered': 1.0,
                's.not_covered': 2,
            },
        },
    )

  def test_client_metrics_of_a_secret_occupancy_are_kept_nowhere(self):
    metrics = {
        'client_work': {
            'private': {'accuracy': 0.5},
            'train': {'private': 1, 'loss': 0.1},
        },
        'aggregator': {'num_reports': 3, 'num_clients': 4},
        'finalizer': {'num_updates': 2, 'not_covered': {'count': 5}},
    }
    found = {
        keeps: releases.make_row(
            1,
            round_metrics=metrics,
            released={'epsilon': 1},
            not_covered={'s': 2},
            # As the certificate found: it counts clients.
            uncovered={('finalizer', 'num_updates')},
            keeps_client_metrics=keeps,
        )
        for keeps in (True, False)
    }
    released = {
        'client_work/private/accuracy': 0.5,
        'aggregator/num_reports': 3,
        'epsilon': 1,
    }
    of_clients = {
        'client_work/train/private.not_covered': 1,
        'client_work/train/loss.not_covered': 0.1,
        'aggregator/num_clients.not_covered': 4,
        'finalizer/num_updates.not_covered': 2,
        'finalizer/count.not_covered': 5,
    }
    for keeps, row in found.items():
      self.assertEqual(row['released'], released)
      self.assertEqual(
          row['not_covered'], {'s.not_covered': 2} | (of_clients if keeps else {})
      )


class ReleasesTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    parent = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self.directory = self.enterContext(
        run_directory.RunDirectory(parent / 'run', identity={}, client_ids=[])
    )
    self.metrics = self.directory.release / 'metrics.csv'
    self.secret = self.directory.secret / 'metrics.not_covered.csv'
    self.tensorboard = self.directory.release / 'tensorboard'

  def _release(self, rows) -> tuple[bytes, bytes]:
    released = releases.Releases(self.directory, [])
    for row in rows:
      released.release(row)
    released.close()
    return self.metrics.read_bytes(), self.secret.read_bytes()

  def test_rewritten_from_history_equals_released_one_by_one(self):
    rows = _rows()
    for length in range(len(rows) + 1):
      expected = self._release(rows[:length])
      releases.Releases(self.directory, rows[:length])
      self.assertEqual(
          (self.metrics.read_bytes(), self.secret.read_bytes()), expected
      )

  def test_resume_leaves_no_duplicates(self):
    rows = _rows()
    expected = self._release(rows)
    # Rows 3 and 4 are there but not in the checkpoint, and the last is torn.
    self.metrics.write_bytes(expected[0][:-3])
    resumed = releases.Releases(self.directory, rows[:2])
    for row in rows[2:]:
      resumed.release(row)
    self.assertEqual(
        (self.metrics.read_bytes(), self.secret.read_bytes()), expected
    )

  def test_tensorboard_has_each_round_once_and_nothing_uncovered(self):
    rows = _rows()
    self._release(rows[:3])
    resumed = releases.Releases(self.directory, rows[:2])
    for row in rows[2:]:
      resumed.release(row)
    resumed.close()
    found = _scalars(self.tensorboard)
    expected = [
        (name, row['round']) for row in rows for name in row['released']
    ]
    self.assertCountEqual(found, expected)
    shutil.rmtree(self.tensorboard)


if __name__ == '__main__':
  absltest.main()
