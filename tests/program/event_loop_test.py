# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the private event loop."""

import asyncio
import threading

from absl.testing import absltest

from tff_dp.program import event_loop


async def _thread_name() -> str:
  await asyncio.sleep(0)
  return threading.current_thread().name


async def _fail() -> None:
  raise KeyError('a')


class PrivateEventLoopTest(absltest.TestCase):

  def test_runs_in_its_own_thread(self):
    with event_loop.PrivateEventLoop() as loop:
      self.assertEqual(loop.run(_thread_name()), 'tff_dp_program')

  def test_raises_what_the_coroutine_raised(self):
    with event_loop.PrivateEventLoop() as loop:
      with self.assertRaises(KeyError):
        loop.run(_fail())
      self.assertEqual(loop.run(asyncio.sleep(0, 3)), 3)

  def test_works_while_another_loop_runs(self):
    async def outer():
      with event_loop.PrivateEventLoop() as loop:
        return loop.run(_thread_name())

    self.assertEqual(asyncio.run(outer()), 'tff_dp_program')

  def test_close_finishes_what_runs_and_ends_the_thread(self):
    done = []

    async def slow():
      await asyncio.sleep(0.05)
      done.append(True)

    async def start():
      asyncio.get_running_loop().create_task(slow())

    loop = event_loop.PrivateEventLoop()
    loop.run(start())
    loop.close()
    loop.close()
    self.assertEqual(done, [True])
    self.assertNotIn(
        'tff_dp_program', [thread.name for thread in threading.enumerate()]
    )


if __name__ == '__main__':
  absltest.main()
