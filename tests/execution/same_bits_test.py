# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training gives the same bits with the same numbers of workers and threads."""

import os
import pathlib
import subprocess
import sys

from absl.testing import absltest

_ROOT = pathlib.Path(__file__).resolve().parents[2]


class SameBitsTest(absltest.TestCase):

  def test_cores_make_no_difference(self):
    child = subprocess.run(
        [sys.executable, '-m', 'tests.execution.same_bits_run', '0', '1'],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
        check=False,
        timeout=600,
    )
    self.assertEqual(child.returncode, 0, child.stderr)
    numbers, digests = [], set()
    for line in child.stdout.splitlines():
      number, *found = line.split()
      numbers.append(int(number))
      self.assertLen(found, 2)
      digests.update(found)
    self.assertEqual(numbers, [len(os.sched_getaffinity(0)), 1])
    self.assertLen(digests, 1)


if __name__ == '__main__':
  absltest.main()
