# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the shell offers after Tab, by the library that its hook calls."""

import os
import subprocess
import sys
import tempfile

from absl.testing import absltest
from absl.testing import parameterized
import pytest

pytest.importorskip('argcomplete')
pytestmark = pytest.mark.once


def _offered(line: str) -> set[str]:
  """Returns the words that may stand at the end of a line."""
  with tempfile.NamedTemporaryFile('r') as found:
    shell = {
        '_ARGCOMPLETE': '1',
        '_ARGCOMPLETE_IFS': '\n',
        '_ARGCOMPLETE_SUPPRESS_SPACE': '1',
        '_ARGCOMPLETE_STDOUT_FILENAME': found.name,
        'COMP_LINE': line,
        'COMP_POINT': str(len(line)),
    }
    # A process of its own, because the library closes files and ends it.
    subprocess.run(
        [sys.executable, '-m', 'tff_dp'], env=os.environ | shell, check=True
    )
    return set(found.read().split())


class CompletionTest(parameterized.TestCase):

  @parameterized.parameters(
      ('tff-dp ad', {'advise'}),
      ('tff-dp account dp-f', {'dp-fedavg', 'dp-ftrl'}),
      ('tff-dp account dp-ftrl --mechanism b', {
          'blt', 'banded', 'banded-inverse',
      }),
      ('tff-dp account dp-ftrl --rounds 9 --min-i', {'--min-index-gap'}),
      ('tff-dp statement isrl --format h', {'html'}),
  )
  def test_offers(self, line, expected):
    self.assertEqual(_offered(line), expected)


if __name__ == '__main__':
  absltest.main()
