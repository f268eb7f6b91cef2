# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Freed memory stays with the process, unless the user chose otherwise."""

import os
import pathlib
import platform
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized

# The package would import TFF.
_MODULE = str(
    pathlib.Path(__file__).parents[2] / 'tff_dp/execution/freed_memory.py'
)
_RUN = """
import ctypes
import pathlib
import runpy
import sys

def resident():
  pages = pathlib.Path('/proc/self/statm').read_text().split()[1]
  return int(pages) * 4096 / 2**20

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
kept = runpy.run_path(sys.argv[1])['keep']()
before = resident()
blocks = [libc.malloc(16 * 2**20) for _ in range(20)]
for block in blocks:
  ctypes.memset(block, 1, 16 * 2**20)
assert resident() - before > 300
for block in blocks:
  libc.free(block)
print(kept, resident() - before > 300)
"""


@absltest.skipUnless(platform.libc_ver()[0] == 'glibc', 'needs the GNU C library')
class FreedMemoryTest(parameterized.TestCase):

  @parameterized.parameters(
      ({}, 'True True'),
      # The default of the C library, which the user asks for.
      ({'MALLOC_TRIM_THRESHOLD_': '131072'}, 'False False'),
  )
  def test_keeps_freed_blocks_unless_the_environment_has_a_choice(
      self, choice, expected
  ):
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(('MALLOC_', 'GLIBC_TUNABLES', 'LD_PRELOAD'))
    }
    done = subprocess.run(
        [sys.executable, '-c', _RUN, _MODULE],
        env=own | choice, capture_output=True, text=True, check=True,
    )  # pyformat: disable
    self.assertEqual(done.stdout.strip(), expected)


if __name__ == '__main__':
  absltest.main()
