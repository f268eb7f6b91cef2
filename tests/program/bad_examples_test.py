# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Real runs with a client whose examples do not fit the loss."""

import functools
import pathlib
import tempfile
import traceback
from unittest import mock

from absl.testing import absltest
import tensorflow as tf

from tests.program import real_run
from tff_dp import execution
from tff_dp.program.display import documents

_LABEL = 8417
_BAD = 'client 3'


class _Clients(real_run.Clients):
  """One client has a label that the loss does not know, and one a NaN."""

  def __init__(self, *, filtered: bool):
    self._filtered = filtered

  @functools.cache
  def create_tf_dataset_for_client(self, client_id: str) -> tf.data.Dataset:
    dataset = super().create_tf_dataset_for_client(client_id).unbatch()
    if client_id == _BAD:
      dataset = dataset.map(lambda x, y: (x, tf.constant(_LABEL)))
    if client_id == 'client 4':
      dataset = dataset.map(lambda x, y: (x * float('nan'), y))
    if self._filtered:
      dataset = dataset.filter(
          lambda x, y: tf.reduce_all(tf.math.is_finite(x)) & (0 <= y) & (y < 3)
      )
    return dataset.batch(3)


class BadExamplesTest(absltest.TestCase):

  def test_client_is_named_and_a_filter_lets_the_run_go_on(self):
    root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / 'r'
    self.enterContext(mock.patch.object(documents, 'write'))
    self.enterContext(
        execution.create_sync_in_process_context(max_concurrent_clients=1)
    )
    with mock.patch.object(
        real_run, '_CLIENTS', _Clients(filtered=False)
    ), self.assertRaises(execution.ClientComputationError) as raised:
      real_run.run(root)
    error = raised.exception
    self.assertEqual(error.client_id, _BAD)
    self.assertStartsWith(str(error), f'client {_BAD!r} failed in ')
    shown = ''.join(traceback.format_exception(error))
    self.assertNotIn(str(_LABEL), shown)
    self.assertIn('docs/training.md', shown)
    self.assertIn(str(_LABEL), (root / 'secret' / 'run.log').read_text())
    # The client has no examples left, and counts as an update of zero.
    with mock.patch.object(real_run, '_CLIENTS', _Clients(filtered=True)):
      self.assertEqual(real_run.run(root).rounds_done, real_run.NUM_ROUNDS)


if __name__ == '__main__':
  absltest.main()
