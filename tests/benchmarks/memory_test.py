# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of memory: its tables, and small rows."""

import contextlib
import io
from unittest import mock

from absl.testing import absltest
import pytest

from benchmarks import memory
from tff_dp import _checks


def _printed(*arguments: str) -> str:
  text = io.StringIO()
  with contextlib.redirect_stdout(text):
    memory.main(arguments)
  return text.getvalue()


class MemoryTest(absltest.TestCase):

  def test_tables(self):
    large = dict(
        first_seconds=8.0, later_seconds=2.5, peak_gigabytes=6.6, copies=14.02
    )
    with mock.patch.object(memory, '_in_a_process', return_value=large) as run:
      text = _printed('large', '--noise', 'none', 'blt')
    self.assertIn('| blt | bfc | 8.0 s | 2.50 s | 6.6 GB | 14.0 |', text)
    self.assertLen(text.splitlines(), 2 + 4)
    self.assertEqual(run.call_args.args, ('large', 'blt', 100_000_000, 'bfc'))
    grown = dict(bytes_a_round=12_000.0)
    with mock.patch.object(memory, '_in_a_process', return_value=grown):
      text = _printed('growth', '--loops', 'plain')
    self.assertIn('only read | 0.012 |', text)

  def test_too_small(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'weights=5'):
      _printed('large', '--weights', '5')
    with self.assertRaisesRegex(_checks.ArgumentError, 'rounds=3'):
      _printed('growth', '--rounds', '3')

  @pytest.mark.slow
  def test_rows(self):
    text = _printed('large', '--weights', '100000', '--noise', 'independent')
    self.assertIn('| independent |', text)
    text = _printed('growth', '--rounds', '30', '--loops', 'kept')
    self.assertIn(memory.GROWTHS['kept'], text)


if __name__ == '__main__':
  absltest.main()
