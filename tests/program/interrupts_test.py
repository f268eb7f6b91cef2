# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the guard against signals that stop a program."""

import os
import signal
import threading

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp.program import interrupts


def _interrupt() -> None:
  os.kill(os.getpid(), signal.SIGINT)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class InterruptGuardTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    for number in _SIGNALS:
      self.addCleanup(signal.signal, number, signal.getsignal(number))
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

  @parameterized.parameters(
      (signal.SIGINT, KeyboardInterrupt, None),
      (signal.SIGTERM, interrupts.Terminated, 143),
      (signal.SIGHUP, interrupts.Terminated, 129),
  )
  def test_each_signal_has_its_end(self, number, kind, status):
    # Under nohup, SIGHUP is ignored, and a run leaves it at that.
    self.addCleanup(signal.signal, number, signal.getsignal(number))
    signal.signal(number, signal.default_int_handler)
    with self._guard() as guard:
      signal.raise_signal(number)
      end = guard.stopped('after round 5')
      with self.assertRaises(kind):
        signal.raise_signal(number)
    self.assertIs(type(end), kind)
    self.assertEqual(str(end), 'after round 5')
    self.assertEqual(getattr(end, 'code', None), status)

  @parameterized.parameters(*_SIGNALS)
  def test_handler_is_put_back(self, number):
    handler = signal.getsignal(number)
    with self.assertRaises(KeyError), self._guard():
      raise KeyError
    self.assertEqual(signal.getsignal(number), handler)

  @parameterized.parameters(*_SIGNALS)
  def test_ignored_stays_ignored(self, number):
    signal.signal(number, signal.SIG_IGN)
    with self._guard() as guard:
      signal.raise_signal(number)
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
