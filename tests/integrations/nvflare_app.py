# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What `nvflare_test.py` runs: two sites, one that lies, and a server that dies.

The server of round 2 kills itself once, after its clients have replied.
"""

import os
import pathlib
import signal
import threading
import time

# pylint: disable=g-importing-member
import numpy as np
from nvflare.apis.executor import Executor
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from tests.integrations import plain_loop
from tff_dp.systems.dp_ftrl import nvflare

HONEST, LIAR = 'site-1', 'site-2'
HONEST_CHANGE, FAR = 0.25, 10.0
# What is said of the liar, who sends in every round something else.
PROBLEMS = ('not finite', 'not of the shape of the model', 'over the clip norm')


class KilledOnce(nvflare.DpFtrlController):
  """The controller, of a server that is killed."""

  def aggregate(self, results):
    marker = pathlib.Path(os.environ['TFF_DP_TEST_FOLDER']) / 'killed'
    if self.rounds.rounds_done == 1 and not marker.exists():
      marker.touch()
      os.kill(os.getpid(), signal.SIGKILL)
    return super().aggregate(results)


class Site(Executor):
  """Adds a number to every weight, or lies."""

  def execute(self, task_name, shareable, fl_ctx, abort_signal):
    del task_name, abort_signal
    received = FLModelUtils.from_shareable(shareable)
    site, done = fl_ctx.get_identity_name(), received.current_round
    if site == HONEST:
      # In float64: float32 would round what the plain loop does not.
      difference = {
          k: v - received.params[k].astype(np.float64)
          for k, v in plain_loop.changed(received.params, HONEST_CHANGE).items()
      }
      reply = FLModel(params_type='DIFF', params=difference)
    else:
      reply = FLModel(params=plain_loop.changed(received.params, FAR))
      if done == 0:
        reply.params['w'][0, 0] = np.nan
      elif done == 1:
        reply.params['w'] = reply.params['w'].ravel()
    return FLModelUtils.to_shareable(reply)

  def handle_event(self, event_type, fl_ctx):
    # The simulator's sites would outlive a killed server by a minute.
    if not hasattr(self, '_watch'):
      self._watch = threading.Thread(
          target=_end_with, args=[os.getppid()], daemon=True
      )
      self._watch.start()


def _end_with(parent: int) -> None:
  while os.getppid() == parent:
    time.sleep(0.2)
  os._exit(1)  # pylint: disable=protected-access
