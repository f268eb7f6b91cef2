# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests that an attempt that may fail leaves no lines of TensorFlow's log."""

import logging
import threading

from absl.testing import absltest
import pytest
import tensorflow as tf

from tff_dp import _quiet
from tff_dp.execution.compiling import chunks
from tff_dp.execution.data import datasets
from tff_dp.execution.data import values

pytestmark = pytest.mark.once


def _sums(row):
  # An axis of its own for each row is what TensorFlow's vectorizer refuses.
  return tf.cumsum(row, axis=tf.cast(row[0], tf.int32))


class WithoutLogTest(absltest.TestCase):

  def test_vectorizer_logs_what_it_refuses(self):
    with self.assertLogs('tensorflow', logging.ERROR):
      with self.assertRaises(ValueError):
        tf.function(
            lambda rows: tf.vectorized_map(
                _sums, rows, fallback_to_while_loop=False
            )
        )(tf.zeros([2, 3]))

  def test_clients_that_cannot_work_at_once_leave_no_log(self):
    row = values.Tensor(tf.TensorSpec([3]))
    with self.assertNoLogs('tensorflow'):
      with self.assertRaises(ValueError):
        tf.function(
            lambda rows: chunks.at_once(
                lambda own, own_zero: _sums(own[0]),
                [row],
                [rows],
                kind=datasets.Kind.ROWS,
            )
        )(tf.zeros([2, 3]))

  def test_other_threads_log(self):
    log = logging.getLogger('tensorflow')
    other = threading.Thread(target=lambda: log.error('elsewhere'))
    with self.assertLogs('tensorflow') as found:
      with _quiet.without_log_of_tensorflow():
        log.error('here')
        other.start()
        other.join()
    self.assertEqual([line.msg for line in found.records], ['elsewhere'])


if __name__ == '__main__':
  absltest.main()
