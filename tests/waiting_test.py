# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the line that counts seconds on a terminal."""

import io
import os
import pty
import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _waiting


class WaitingTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    leader, follower = pty.openpty()
    self.addCleanup(os.close, leader)
    self._leader = leader
    self._terminal = self.enter_context(open(follower, 'w'))

  def test_line_comes_with_the_seconds_and_is_removed(self):
    with mock.patch.object(_waiting, '_SECONDS_BEFORE_IT_SHOWS', 0.0):
      with _waiting.saying('thinking', stream=self._terminal):
        shown = os.read(self._leader, 1000)
      self.assertIn(b'thinking ... 0 s', shown)
    self.assertEndsWith(os.read(self._leader, 1000), b'\r\x1b[K')

  @parameterized.parameters('quiet', 'plain')
  def test_nothing_in_other_modes(self, mode):
    with _waiting.saying('thinking', mode=mode, stream=self._terminal):
      pass
    os.set_blocking(self._leader, False)
    with self.assertRaises(BlockingIOError):
      os.read(self._leader, 1)

  def test_nothing_off_a_terminal(self):
    stream = io.StringIO()
    with mock.patch.object(_waiting, '_SECONDS_BEFORE_IT_SHOWS', 0.0):
      with _waiting.saying('thinking', stream=stream):
        pass
    self.assertEmpty(stream.getvalue())

  def test_a_note_replaces_the_count(self):
    with mock.patch.object(sys, 'stderr', self._terminal):
      _waiting.note('half done')
      self._terminal.flush()
    self.assertEqual(os.read(self._leader, 1000), b'\r\x1b[Khalf done\r\n')
    with mock.patch.object(sys, 'stderr', io.StringIO()) as stream:
      _waiting.note('half done')
    self.assertEqual(stream.getvalue(), 'half done\n')


if __name__ == '__main__':
  absltest.main()
