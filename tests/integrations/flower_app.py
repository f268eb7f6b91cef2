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

from tff_dp.integrations import flower
from tff_dp.mechanisms.matrix import blt
from tff_dp.participation import sampling
from tff_dp.plans import dp_ftrl

NUM_ROUNDS = 3
SEED = 5
PLAN = dp_ftrl.DpFtrlPlan(
    mechanism=blt.Blt(NUM_ROUNDS, (0.25, 0.125), (0.95, 0.5), 2),
    participation=sampling.MinSeparation(NUM_ROUNDS, min_index_gap=1),
    l2_norm_clip=1.0,
    clients_per_round=2,
    noise_multiplier=1.5,
)
# What the two clients add to every weight. The second is over the clip norm.
CHANGES = (0.25, 10.0)


def initial_model() -> dict[str, np.ndarray]:
  """Returns the weights before round 1."""
  return {'w': np.zeros([2, 3], np.float32), 'b': np.ones(2)}


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
      PLAN, output_dir=folder / 'run', delta=1e-5, insecure_seed=SEED
  )
  result = strategy.start(
      grid=grid, initial_arrays=flower.record_of(initial_model()), timeout=60
  )
  weights = flower.arrays_of(result.arrays)
  np.savez(folder / 'unfinished.npz', **weights)
  (folder / 'unfinished.npz').rename(folder / 'weights.npz')


@client_app.train()
def train(message, context):
  """Adds the client's change to every weight."""
  change = CHANGES[context.node_config['partition-id']]
  weights = {
      name: (value + change).astype(value.dtype)
      for name, value in flower.arrays_of(message.content['arrays']).items()
  }
  content = RecordDict({
      'arrays': flower.record_of(weights),
      'metrics': MetricRecord({'num-examples': 1}),
  })
  return Message(content=content, reply_to=message)
