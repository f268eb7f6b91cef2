# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The app that `flower_test.py` runs: made clients, and a server that is killed.

The server app of round 2 kills itself once, after its clients have replied.
"""

import os
import pathlib
import signal

# pylint: disable=g-importing-member
from flwr.app import Message
from flwr.app import MetricRecord
from flwr.app import RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
import numpy as np

from tests.integrations import plain_loop
from tff_dp.systems.dp_ftrl import flower

# What the two clients add to every weight. The second is over the clip norm.
CHANGES = (0.25, 10.0)


class _KilledOnce(flower.DpFtrlStrategy):

  def aggregate_train(self, server_round, replies):
    marker = pathlib.Path(os.environ['TFF_DP_TEST_FOLDER']) / 'killed'
    if server_round == 2 and not marker.exists():
      marker.touch()
      os.kill(os.getpid(), signal.SIGKILL)
    return super().aggregate_train(server_round, replies)


server_app = ServerApp()
client_app = ClientApp()


@server_app.main()
def main(grid, context):
  """Trains, and writes the weights."""
  del context
  folder = pathlib.Path(os.environ['TFF_DP_TEST_FOLDER'])
  strategy = _KilledOnce(
      plain_loop.PLAN,
      output_dir=folder / 'run',
      delta=1e-5,
      insecure_seed=plain_loop.SEED,
  )
  result = strategy.start(
      grid=grid,
      initial_arrays=flower.record_of(plain_loop.initial_model()),
      timeout=60,
  )
  weights = flower.arrays_of(result.arrays)
  np.savez(folder / 'unfinished.npz', **weights)
  (folder / 'unfinished.npz').rename(folder / 'weights.npz')


@client_app.train()
def train(message, context):
  """Adds the client's change to every weight."""
  change = CHANGES[context.node_config['partition-id']]
  model = flower.arrays_of(message.content['arrays'])
  weights = plain_loop.changed(model, change)
  content = RecordDict({
      'arrays': flower.record_of(weights),
      'metrics': MetricRecord({'num-examples': 1}),
  })
  return Message(content=content, reply_to=message)
