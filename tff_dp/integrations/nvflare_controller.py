# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""An NVFlare controller that follows a plan. Checked against NVFlare 2.9.

Clients get the model and reply with their trained weights, or with the
difference, as with NVFlare's `FedAvg`. The controller counts a client by the
name in its certificate, which stays the same when the client connects again.
"""

from collections.abc import Mapping
import os
from typing import Any

import numpy as np

try:
  # pylint: disable=g-importing-member
  from nvflare.app_common.abstract.fl_model import FLModel
  from nvflare.app_common.abstract.fl_model import ParamsType
  from nvflare.app_common.workflows.model_controller import ModelController
except ImportError as error:
  raise ImportError(
      'an NVFlare controller needs NVFlare 2.9, in an environment without'
      ' TensorFlow Federated: in a checkout of tff_dp run `make'
      ' environment-nvflare`, or install requirements.nvflare.lock as'
      ' docs/integrations.md says'
  ) from error

from tff_dp import _checks
from tff_dp import plans
from tff_dp.files import arrays
from tff_dp.integrations import cohorts
from tff_dp.integrations import server_rounds
from tff_dp.integrations import updates
from tff_dp.plans import base
from tff_dp.statement import declarations as declarations_lib


class PlanController(ModelController):
  """A controller that clips, sums, noises and counts as the plan says.

  It refuses everything beyond the plan. NVFlare builds it anew on the server
  from the job's configuration, so every argument has a JSON form. It drops
  metrics of clients, because they have no noise. If you submit a job again, it
  resumes the run in `output_dir`.

  Attributes:
    rounds: The `ServerRounds`. `None` before `run`.
  """

  def __init__(
      self,
      plan: base.Plan | Mapping[str, Any],
      initial_model: str | os.PathLike,
      *,
      output_dir: str | os.PathLike,
      delta: float,
      num_rounds: int | None = None,
      min_available_clients: int | None = None,
      timeout: int = 3600,
      task_name: str = 'train',
      persistor_id: str = '',
      epsilon_budget: float | None = None,
      server_learning_rate: float = 1.0,
      schedule_seed: int = 0,
      declarations: Mapping[str, Any] | None = None,
      insecure_seed: int | None = None,
  ):
    """Makes the controller. Nothing is read or written before `run`.

    Args:
      plan: Plan, see `server_rounds.ServerRounds`, or the result of
        `plan.describe()`.
      initial_model: Model before round 1: path on the server of a file that
        `np.savez` has written. A resumed run takes its checkpoint instead.
      output_dir: Directory on the server, see `server_rounds.ServerRounds`.
      delta: See `server_rounds.ServerRounds`.
      num_rounds: Round of the whole run after which to stop. Default: the last
        of the plan. The budget may stop the run before.
      min_available_clients: Number of connected clients that a round waits for.
        Default: `ServerRounds.clients_needed`.
      timeout: Seconds to wait for the replies of a round. A resumed round also
        waits that long for missing clients of its cohort.
      task_name: Name of NVFlare's task that clients execute.
      persistor_id: Id of a model persistor, which gets every released model. ''
        for none. The latest model is in `release/model.npz` in any case.
      epsilon_budget: See `server_rounds.ServerRounds`.
      server_learning_rate: See `server_rounds.ServerRounds`.
      schedule_seed: See `server_rounds.ServerRounds`.
      declarations: Declarations by name, see
        `statement.declarations.Declarations`.
      insecure_seed: See `server_rounds.ServerRounds`.
    """
    # A client that reports an error must not end the others' round.
    super().__init__(persistor_id=persistor_id, ignore_result_error=True)
    if not isinstance(plan, base.Plan):
      plan = plans.from_description(dict(plan))
    total = plan.num_rounds if num_rounds is None else num_rounds
    _checks.integer_between(1, plan.num_rounds, num_rounds=total)
    _checks.optional_integer_at_least(
        1, min_available_clients=min_available_clients
    )
    _checks.integer_at_least(1, timeout=timeout)
    # NVFlare reads a job's configuration from attributes named like arguments.
    self._plan = plan.describe()
    self._initial_model = os.fspath(initial_model)
    self._output_dir = os.fspath(output_dir)
    self._delta = delta
    self._num_rounds = total
    self._min_available_clients = min_available_clients
    self._timeout = timeout
    self._task_name = task_name
    self._epsilon_budget = epsilon_budget
    self._server_learning_rate = server_learning_rate
    self._schedule_seed = schedule_seed
    self._declarations = declarations and dict(declarations)
    self._insecure_seed = insecure_seed
    self.rounds: server_rounds.ServerRounds | None = None

  def run(self) -> None:
    """Starts or resumes the run. NVFlare calls it."""
    initial_model = arrays.read(self._initial_model)
    with server_rounds.ServerRounds(
        plans.from_description(self._plan),
        initial_model,
        output_dir=self._output_dir,
        delta=self._delta,
        stack='NVFlare',
        epsilon_budget=self._epsilon_budget,
        server_learning_rate=self._server_learning_rate,
        schedule_seed=self._schedule_seed,
        declarations=self._declarations and declarations_lib.Declarations(
            **self._declarations
        ),
        insecure_seed=self._insecure_seed,
    ) as self.rounds:
      while self.rounds.rounds_done < self._num_rounds:
        if not self.rounds.rounds_left:
          self.info(
              f'the epsilon budget ends before round {self._num_rounds}'
          )
          break
        if not self._run_round(self.rounds):
          break
      self.info(repr(self.rounds.statement()))

  def aggregate(self, results: list[FLModel]) -> dict[str, np.ndarray]:
    """Returns the released model of a round, given the clients' results."""
    return self.rounds.finish(
        (result.meta['client_name'], _weights(result, self.rounds.model))
        for result in results
    )

  def _run_round(self, rounds: server_rounds.ServerRounds) -> bool:
    """Runs a round. Returns whether it was finished.

    A resumed run repeats an unfinished round.
    """
    asked = cohorts.connected(
        rounds,
        lambda: [client.name for client in self.engine.get_clients()],
        at_least=self._min_available_clients or rounds.clients_needed,
        timeout=self._timeout,
        is_stopped=lambda: self.abort_signal.triggered,
    )
    if self.abort_signal.triggered:
      return False
    results = []
    if asked:  # With an empty list NVFlare would ask all clients.
      results = self.send_model_and_wait(
          task_name=self._task_name,
          data=FLModel(
              params=dict(rounds.model),
              current_round=rounds.rounds_done,
              total_rounds=self._num_rounds,
          ),
          targets=asked,
          timeout=self._timeout,
      )
    if self.abort_signal.triggered:
      return False
    model = self.aggregate(results)
    # Neither names nor numbers of clients: who was clipped depends on data.
    self.info(f'round {rounds.rounds_done}: epsilon {rounds.epsilon}')
    if self.persistor:
      self.save_model(FLModel(params=model))
    return True


def _weights(
    result: FLModel, model: Mapping[str, np.ndarray]
) -> dict[str, Any] | None:
  """Returns a client's weights, which are not checked here.

  Returns `None` if the client has sent a difference of weights that does not
  fit the model.
  """
  if result.params_type != ParamsType.DIFF:
    return result.params
  if not updates.fits(result.params, model):
    return None
  with np.errstate(over='ignore', invalid='ignore'):
    return {
        name: value + result.params[name].astype(np.float64)
        for name, value in model.items()
    }
