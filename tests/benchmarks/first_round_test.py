# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of first rounds: its table, and one process."""

import contextlib
import io
from unittest import mock

from absl.testing import absltest
import pytest
import tensorflow as tf

from benchmarks import first_round
from tff_dp import _checks


def _printed(*arguments: str) -> str:
  text = io.StringIO()
  with contextlib.redirect_stdout(text):
    first_round.main(arguments)
  return text.getvalue()


class FirstRoundTest(absltest.TestCase):

  def test_medians(self):
    samples = {
        'in_process': [(0.1, 1.0), (0.2, 4.0), (0.3, 2.0)],
        'native': [(2.0, 1.0), (2.0, 3.0), (2.0, 3.0)],
    }
    taken = []

    def run(engine, name):
      taken.append((engine, name))
      start, first = samples[engine][(len(taken) - 1) // 2]
      return {'start': start, 'round': first}

    with mock.patch.object(first_round, '_in_a_process', side_effect=run):
      text = _printed('--models', 'adam', '--repetitions', '3')
    # The median of the sums 1.1, 4.2, 2.3 over 5.0.
    self.assertIn(
        'Adam | 0.20 s | 2.00 s | 2.00 s | 3.00 s | 0.46 |', text
    )
    self.assertEqual(taken, 3 * [('in_process', 'adam'), ('native', 'adam')])

  def test_no_repetitions(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'repetitions=0'):
      _printed('--repetitions', '0')

  def test_models(self):
    for name, model in first_round.MODELS.items():
      with self.subTest(name):
        clients = model.clients()
        self.assertLen(clients, 10)
        batch = next(iter(clients[9]))
        inputs, labels = batch.values() if model.form else batch
        network = tf.keras.Sequential(model.layers())
        # Each label has a row of logits.
        num_rows = tf.size(labels)
        self.assertEqual(tf.size(network(inputs)) % num_rows, 0)
        self.assertGreater(tf.size(network(inputs)) // num_rows, 9)

  @pytest.mark.slow
  def test_a_process(self):
    for name in first_round.MODELS:
      found = first_round._in_a_process('in_process', name)  # pylint: disable=protected-access
      self.assertEqual({*found}, {'start', 'round'})
      self.assertGreater(min(found.values()), 0)


if __name__ == '__main__':
  absltest.main()
