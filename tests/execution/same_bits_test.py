# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training gives the same bits with the same numbers of workers and threads."""

import os

from absl.testing import absltest

from tests.execution import child_process


class SameBitsTest(absltest.TestCase):

  def test_cores_make_no_difference(self):
    printed = child_process.lines_of('tests.execution.same_bits_run', '0', '1')
    numbers, digests = [], set()
    for line in printed:
      number, *found = line.split()
      numbers.append(int(number))
      self.assertLen(found, 2)
      digests.update(found)
    self.assertEqual(numbers, [len(os.sched_getaffinity(0)), 1])
    self.assertLen(digests, 1)


if __name__ == '__main__':
  absltest.main()
