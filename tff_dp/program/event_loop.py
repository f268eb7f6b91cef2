# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A private event loop in its own thread.

TFF's program managers are coroutines, and a notebook already runs a loop in the
main thread, where no other may run. This one lives beside it. Computations are
not for this thread: TFF's stack of contexts is thread-local, so they stay with
the caller.
"""

import asyncio
from collections.abc import Coroutine
import threading
from typing import Any


class PrivateEventLoop:
  """Runs coroutines to their end from synchronous code; a context manager."""

  def __init__(self):
    self._loop = asyncio.new_event_loop()
    self._thread = threading.Thread(
        target=self._loop.run_forever, name='tff_dp_program', daemon=True
    )
    self._thread.start()

  def run(self, coroutine: Coroutine) -> Any:
    """Returns the coroutine's result, or raises what it raised.

    An interrupt while waiting (KeyboardInterrupt) does not stop the coroutine:
    what it was saving gets saved.
    """
    return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

  def close(self) -> None:
    """Finishes what is running and ends the thread. May be called twice."""
    if self._loop.is_closed():
      return
    self.run(_finish_others())
    self._loop.call_soon_threadsafe(self._loop.stop)
    self._thread.join()
    self._loop.close()

  def __enter__(self) -> 'PrivateEventLoop':
    return self

  def __exit__(self, *exception_info) -> None:
    self.close()


async def _finish_others() -> None:
  others = asyncio.all_tasks() - {asyncio.current_task()}
  await asyncio.gather(*others, return_exceptions=True)
  await asyncio.get_running_loop().shutdown_default_executor()
