# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the files that are written whole."""

import json
import pathlib
import tempfile
import time

from absl.testing import absltest
import numpy as np
import tensorflow_federated as tff

from tff_dp.program.files import outputs


class OutputsTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

  def test_model_round_trip(self):
    weights = tff.learning.models.ModelWeights(
        trainable=[np.ones([2, 3], np.float32), np.zeros(3, np.float32)],
        non_trainable=[np.int64(7)],
    )
    path = self.folder / 'model.npz'
    outputs.write_model(path, weights)
    with np.load(path) as arrays:
      self.assertCountEqual(
          arrays, ['trainable/0', 'trainable/1', 'non_trainable/0']
      )
    again = outputs.read_model(path, like=weights)
    self.assertIsInstance(again, tff.learning.models.ModelWeights)
    np.testing.assert_array_equal(again.trainable[0], weights.trainable[0])
    self.assertEqual(again.non_trainable[0], 7)

  def test_equal_weights_give_equal_bytes(self):
    first, second = self.folder / 'first.npz', self.folder / 'second.npz'
    outputs.write_model(first, {'w': np.arange(3)})
    time.sleep(2.1)  # The resolution of times in a zip file is 2 seconds.
    outputs.write_model(second, {'w': np.arange(3)})
    self.assertEqual(first.read_bytes(), second.read_bytes())

  def test_environment(self):
    path = self.folder / 'environment.json'
    outputs.write_environment(path)
    content = json.loads(path.read_text())
    self.assertEqual(content['tensorflow_federated'], tff.__version__)
    self.assertIn('numpy', content['packages'])

  def test_resident_memory(self):
    self.assertBetween(outputs.resident_megabytes(), 10, 100_000)


if __name__ == '__main__':
  absltest.main()
