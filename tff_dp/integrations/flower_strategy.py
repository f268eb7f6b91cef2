# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A Flower strategy that follows a plan. Checked against Flower 1.41.

Clients get the model and reply with their trained weights, as with Flower's
`FedAvg`. The strategy counts a node by its id, so nodes must keep their ids:
register them with keys (SuperNode authentication). A node without a key gets a
new id whenever it connects, and then the plan bounds connections, not clients.
"""

from collections.abc import Callable, Iterable, Mapping
import logging
import os
from typing import Any

import numpy as np

try:
  # pylint: disable=g-importing-member
  from flwr.app import Array
  from flwr.app import ArrayRecord
  from flwr.app import ConfigRecord
  from flwr.app import Message
  from flwr.app import MessageType
  from flwr.app import MetricRecord
  from flwr.app import RecordDict
  from flwr.serverapp import Grid
  from flwr.serverapp.strategy import Result
  from flwr.serverapp.strategy import Strategy
except ImportError as error:
  raise ImportError(
      'a Flower strategy needs Flower 1.41, which cannot be installed beside'
      ' TensorFlow Federated: in a checkout of tff_dp run `make'
      ' environment-flower`, or install requirements.flower.lock as'
      ' docs/integrations.md says'
  ) from error

from tff_dp import _checks
from tff_dp.files import arrays as arrays_lib
from tff_dp.integrations import cohorts
from tff_dp.integrations import server_rounds
from tff_dp.plans import base

_ARRAYS = 'arrays'
_CONFIG = 'config'
_log = logging.getLogger(__name__)


class PlanStrategy(Strategy):
  """A strategy that clips, sums, noises and counts as the plan says.

  It refuses everything beyond the plan. It drops metrics of clients, because
  they have no noise, and never asks clients to evaluate. `evaluate_fn` of
  `start` may use public or held-out data.

  Attributes:
    rounds: The `ServerRounds`. `None` before `start`.
  """

  def __init__(
      self,
      plan: base.Plan,
      *,
      output_dir: str | os.PathLike,
      delta: float,
      min_available_nodes: int | None = None,
      **options: Any,
  ):
    """Makes the strategy. Nothing is written before `start`.

    Args:
      plan: See `server_rounds.ServerRounds`.
      output_dir: See `server_rounds.ServerRounds`.
      delta: See `server_rounds.ServerRounds`.
      min_available_nodes: Number of connected nodes that a round waits for.
        Default: `ServerRounds.clients_needed`.
      **options: Any of `epsilon_budget`, `server_learning_rate`,
        `schedule_seed`, `declarations` and `insecure_seed` of
        `server_rounds.ServerRounds`.
    """
    _checks.optional_integer_at_least(
        1, min_available_nodes=min_available_nodes
    )
    self._plan = plan
    self._options = dict(
        options, output_dir=output_dir, delta=delta, stack='Flower'
    )
    self._min_available_nodes = min_available_nodes
    self._rounds_before = 0
    self._timeout = 0.0
    self.rounds: server_rounds.ServerRounds | None = None

  # pylint: disable-next=arguments-renamed
  def start(
      self,
      grid: Grid,
      initial_arrays: ArrayRecord,
      num_rounds: int | None = None,
      timeout: float = 3600,
      train_config: ConfigRecord | None = None,
      evaluate_config: ConfigRecord | None = None,
      evaluate_fn: Callable[[int, ArrayRecord], Any] | None = None,
  ) -> Result:
    """Starts or resumes the run, and returns Flower's result.

    Args:
      grid: Grid of Flower.
      initial_arrays: Model before round 1. A resumed run takes its checkpoint
        instead.
      num_rounds: Round of the whole run after which to stop. Default: the last
        of the plan. The budget may stop the run before.
      timeout: Seconds to wait for the replies of a round. A resumed round also
        waits that long for missing nodes of its cohort.
      train_config: Configuration for clients. 'server-round' is added.
      evaluate_config: Ignored: there is no evaluation on clients.
      evaluate_fn: Function from round and model to metrics, on public data. In
        a resumed run, its rounds count from the resume.

    Raises:
      ArgumentError: If `num_rounds` is not from 1 to the plan's number. Also as
        `ServerRounds` and its methods raise it.
      PrivacyRefusedError: See `ServerRounds` and its methods.
    """
    total = self._plan.num_rounds if num_rounds is None else num_rounds
    _checks.integer_between(1, self._plan.num_rounds, num_rounds=total)
    self._timeout = timeout
    with server_rounds.ServerRounds(
        self._plan, arrays_of(initial_arrays), **self._options
    ) as self.rounds:
      done = self._rounds_before = self.rounds.rounds_done
      wanted = max(0, total - done)
      return_value = super().start(
          grid,
          record_of(self.rounds.model),
          min(wanted, self.rounds.rounds_left),
          timeout,
          train_config,
          evaluate_config,
          evaluate_fn,
      )
      self.summary()
      if self.rounds.rounds_left == 0 and self.rounds.rounds_done < total:
        _log.info('the epsilon budget ends before round %d', total)
      if return_value.arrays is None or not len(return_value.arrays):
        return_value.arrays = record_of(self.rounds.model)
      return return_value

  def configure_train(
      self,
      server_round: int,
      arrays: ArrayRecord,
      config: ConfigRecord,
      grid: Grid,
  ) -> Iterable[Message]:
    """Returns the messages to the cohort, after charging the round.

    Nodes that are not connected get no message, because Flower would wait for
    their replies.
    """
    del arrays  # Always sends the model of the run, whoever calls.
    rounds = self._opened()
    self._check_round(server_round)
    cohort = cohorts.connected(
        rounds,
        lambda: map(str, grid.get_node_ids()),
        at_least=self._min_available_nodes or rounds.clients_needed,
        timeout=self._timeout,
    )
    config['server-round'] = rounds.rounds_done + 1
    content = RecordDict(
        {_ARRAYS: record_of(rounds.model), _CONFIG: config}
    )
    return [
        Message(
            content=content,
            message_type=MessageType.TRAIN,
            dst_node_id=int(node),
        )
        for node in cohort
    ]

  def aggregate_train(
      self, server_round: int, replies: Iterable[Message]
  ) -> tuple[ArrayRecord | None, MetricRecord | None]:
    """Returns the released model, and epsilon spent so far."""
    rounds = self._opened()
    self._check_round(server_round)
    model = rounds.finish(
        (str(reply.metadata.src_node_id), _weights(reply)) for reply in replies
    )
    # Neither names nor numbers of clients: who was clipped depends on data.
    return record_of(model), MetricRecord({'epsilon': rounds.epsilon})

  def configure_evaluate(
      self,
      server_round: int,
      arrays: ArrayRecord,
      config: ConfigRecord,
      grid: Grid,
  ) -> Iterable[Message]:
    """Returns no messages: metrics on clients' data would need noise."""
    del server_round, arrays, config, grid
    return []

  def aggregate_evaluate(
      self, server_round: int, replies: Iterable[Message]
  ) -> MetricRecord | None:
    """Returns `None`, see `configure_evaluate`."""
    del server_round, replies

  def summary(self) -> None:
    """Logs the guarantee, and writes it with `report.html`."""
    _log.info('\t└──> %r', self._opened().statement())

  def _opened(self) -> server_rounds.ServerRounds:
    if self.rounds is None:
      raise _checks.PrivacyRefusedError(
          'the run is not open',
          why='its rounds are counted in its output directory',
          way_out='call strategy.start(grid=..., initial_arrays=...)',
      )
    return self.rounds

  def _check_round(self, server_round: int) -> None:
    expected = self._opened().rounds_done + 1 - self._rounds_before
    if server_round != expected:
      raise _checks.ArgumentError('server_round', server_round, str(expected))


def record_of(arrays: Mapping[str, np.ndarray]) -> ArrayRecord:
  """Returns arrays as a record that Flower sends."""
  return ArrayRecord({name: Array(value) for name, value in arrays.items()})


def arrays_of(record: ArrayRecord) -> dict[str, np.ndarray]:
  """Returns the arrays of a record that Flower has sent, by name."""
  return {name: array.numpy() for name, array in record.items()}


def _weights(reply: Message) -> dict[str, Any] | None:
  """Returns a client's weights, or `None` if it has sent anything else."""
  try:
    (record,) = reply.content.array_records.values()
    # Flower's `numpy()` trusts the size that the bytes state.
    return {name: arrays_lib.from_npy(each.data) for name, each in record.items()}
  except Exception:  # pylint: disable=broad-except
    # A client can send any bytes. None of them may stop the others' round.
    return None
