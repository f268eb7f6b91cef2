# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of LDP-SGD, with few clients."""

from absl.testing import absltest
import pytest

from benchmarks import ldp_sgd


class LdpSgdTest(absltest.TestCase):

  @pytest.mark.slow
  def test_all_rows_run(self):
    found = ldp_sgd.measure(2, 1)
    self.assertEqual({*found}, {*ldp_sgd.LABELS})
    for cost in found.values():
      self.assertGreater(cost.cpu, 0)
      self.assertGreater(cost.seconds, 0)

  def test_table(self):
    costs = [(0.5, 1.0), (0.25, 0.5), (0.75, 2.0), (1.5, 3.0)]
    text = ldp_sgd.table({
        name: ldp_sgd.Cost(*cost)
        for name, cost in zip(ldp_sgd.LABELS, costs)
    })
    self.assertIn('| by hand: gradients | 0.50 ms | 0.67 | 1.00 s |', text)
    self.assertIn('| tff_dp, LDP-SGD | 1.50 ms | 2.00 | 3.00 s |', text)


if __name__ == '__main__':
  absltest.main()
