# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the benchmark of the simulator: what it says, not how fast."""

import contextlib
import io
import json

from absl.testing import absltest

from benchmarks import draw_and_discard

_SMALL = ('--parameters', '3', '--instances', '4', '--block', '50',
          '--repetitions', '2')


def _run(*argv) -> str:
  with contextlib.redirect_stdout(io.StringIO()) as out:
    code = draw_and_discard.main([*_SMALL, *argv])
  assert code == 0
  return out.getvalue()


class DrawAndDiscardTest(absltest.TestCase):

  def test_json_and_ratio(self):
    result = json.loads(_run('--format', 'json'))
    self.assertEqual(result['parameters'], 3)
    simulator, plain = result['updates_per_second'].values()
    self.assertGreater(plain, 0)
    self.assertAlmostEqual(result['ratio'], simulator / plain)

  def test_table(self):
    text = _run()
    self.assertIn('3 weights, 4 instances', text)
    self.assertIn('| NumPy loop |', text)
    self.assertIn('| 1.00 |', text)

  def test_bad_flag(self):
    with self.assertRaisesRegex(ValueError, 'block=0'):
      draw_and_discard.main(['--block', '0'])


if __name__ == '__main__':
  absltest.main()
