# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Training gives the same bits with the same numbers of workers and threads."""

import os
import pathlib
import subprocess
import sys

from absl.testing import absltest

_ROOT = pathlib.Path(__file__).resolve().parents[2]


class SameBitsTest(absltest.TestCase):

  def test_cores_make_no_difference(self):
    children = [
        subprocess.Popen(
            [sys.executable, '-m', 'tests.execution.same_bits_run', cores],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
        for cores in ('0', '1')
    ]
    numbers, digests = [], set()
    for child in children:
      output, errors = child.communicate(timeout=600)
      self.assertEqual(child.returncode, 0, errors)
      number, *found = output.split()
      numbers.append(int(number))
      self.assertLen(found, 2)
      digests.update(found)
    self.assertEqual(numbers, [len(os.sched_getaffinity(0)), 1])
    self.assertLen(digests, 1)


if __name__ == '__main__':
  absltest.main()
