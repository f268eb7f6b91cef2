# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The comparison of forms of datasets, with few clients."""

from unittest import mock

from absl.testing import absltest
import pytest

from benchmarks import client_datasets
from benchmarks import round_rows


class ClientDatasetsTest(absltest.TestCase):

  def test_forms(self):
    datasets = client_datasets.datasets('tutorial', 2)
    spec = datasets[0].element_spec
    for name, form in client_datasets.FORMS.items():
      found = client_datasets.datasets(name, 3)
      sizes = [sum(len(batch['x']) for batch in each) for each in found]
      rows = 100 if name == 'epochs' else 20
      self.assertEqual(sizes, [1, 2, 3] if form.is_ragged else 3 * [rows])
      self.assertTrue(
          all(own.is_compatible_with(other.shape) for own, other in zip(
              [spec['x'].shape, spec['y'].shape],
              [found[0].element_spec['x'], found[0].element_spec['y']],
          ))
      )  # pyformat: disable

  @pytest.mark.slow
  def test_engines_are_compared(self):
    found = client_datasets.measure('tutorial', 2, 1)
    self.assertEqual({*found}, {'in_process', 'native'})
    self.assertGreater(min(found.values()), 0)

  def test_other_weights_are_an_error(self):
    error = round_rows.DifferentResultError('tutorial: other weights')
    with mock.patch.object(client_datasets, 'measure', side_effect=error):
      self.assertEqual(client_datasets.main(['--forms', 'tutorial']), 1)

  def test_table(self):
    text = client_datasets.table({'rows': {'in_process': 0.5, 'native': 2.0}})
    self.assertIn('| slices and a `batch` | 0.50 ms | 2.00 ms | 0.25 |', text)


if __name__ == '__main__':
  absltest.main()
