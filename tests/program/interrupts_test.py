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
"""Tests of the guard against SIGINT."""

import os
import signal
import threading

from absl.testing import absltest

from tff_dp.program import interrupts


def _interrupt() -> None:
  os.kill(os.getpid(), signal.SIGINT)


class InterruptGuardTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.addCleanup(
        signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT)
    )
    self.requests = []

  def _guard(self) -> interrupts.InterruptGuard:
    return interrupts.InterruptGuard(lambda: self.requests.append(1))

  def test_first_requests_and_second_interrupts(self):
    with self._guard() as guard:
      self.assertFalse(guard.is_requested)
      _interrupt()
      self.assertTrue(guard.is_requested)
      with self.assertRaises(KeyboardInterrupt):
        _interrupt()
    self.assertLen(self.requests, 1)

  def test_handler_is_put_back(self):
    handler = signal.getsignal(signal.SIGINT)
    with self.assertRaises(KeyError), self._guard():
      raise KeyError
    self.assertEqual(signal.getsignal(signal.SIGINT), handler)

  def test_ignored_stays_ignored(self):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with self._guard() as guard:
      _interrupt()
    self.assertFalse(guard.is_requested)

  def test_other_threads_are_left_alone(self):
    handler = signal.getsignal(signal.SIGINT)
    seen = []

    def work():
      with self._guard():
        seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    self.assertEqual(seen, [handler])


if __name__ == '__main__':
  absltest.main()
