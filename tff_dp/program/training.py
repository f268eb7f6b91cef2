# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The training program, synchronous to call: `train` runs or resumes a run."""

from collections.abc import Callable, Mapping
import contextlib
import dataclasses
import os
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import _failures
from tff_dp import _native_output
from tff_dp.execution import contexts
from tff_dp.files import run_directory
from tff_dp.files import write_ahead
from tff_dp.plans import base
from tff_dp.program import certification
from tff_dp.program import check_in_source
from tff_dp.program import population
from tff_dp.program import run as run_lib
from tff_dp.program.display import progress as progress_lib
from tff_dp.program.files import checkpoints
from tff_dp.program.files import history as history_lib
from tff_dp.program.files import noise_checkpoints
from tff_dp.statement import declarations as declarations_lib


def train(
    process: tff.learning.templates.LearningProcess,
    clients: (
        tff.simulation.datasets.ClientData | check_in_source.CheckInDataSource
    ),
    *too_many: Any,
    output_dir: str | os.PathLike,
    delta: float,
    plan: base.Plan | None = None,
    epsilon_budget: float | None = None,
    evaluate_fn: Callable[[Any], Mapping[str, float]] | None = None,
    rounds_per_eval: int = 10,
    total_rounds: int | None = None,
    checkpoint_every: int | None = None,
    checkpoint_kind: str = noise_checkpoints.FULL,
    schedule_seed: int = 0,
    config: Mapping[str, Any] | None = None,
    declarations: declarations_lib.Declarations | None = None,
    progress: str = 'auto',
) -> run_lib.TrainResult:
  """Runs or resumes a training, and writes everything under `output_dir`.

  Calling it again with the same arguments goes on where an earlier process was
  stopped, and gives the result of an uninterrupted run: bit for bit on the same
  machine and software, with the same number of workers and of threads within an
  operation (both follow the cores, unless they are set), if the clients'
  datasets give the same batches each time (no shuffling without a seed).

  It computes in the context of the calling thread. If nobody has chosen one, it
  installs an in-process context for the length of the run.

  It may be called where an event loop is running. Ctrl-C finishes the round,
  saves, and raises KeyboardInterrupt; a second one interrupts at once. SIGTERM
  and SIGHUP do the same, but for SystemExit with the status 143 or 129. The
  trace of an error is appended to `secret/run.log`. So is all that the process
  writes to file descriptor 2 while clients work, since TensorFlow quotes their
  data there; `sys.stderr` still leads to the screen.

  Args:
    process: Adds the noise of its plan to all that comes from clients' data,
      once in a round, or is refused: see `certification.certify`. The builders
      of `tff_dp.learning` make such processes, and most of TFF's with
      `plan.aggregator()`. With a `DpFtrlPlan` the schedule chooses the clients
      of a round; with a `CheckInPlan` they decide themselves.
    clients: The population; only `client_ids` and
      `create_tf_dataset_for_client(client_id)` are used. With a `CheckInPlan`
      also its `CheckInDataSource`, to choose the sampler or lose reports; with
      a `NonPrivatePlan` also one of any protocol. With a plan of silos the ids
      are the names of the silos.
    *too_many: Nothing; all others are named.
    output_dir: Absent, empty, or of this very run.
    delta: In (0, 1); choose it below 1 / population. Of silos, for the epsilon
      of the one that pays most; their own budgets have deltas of their own.
    plan: `None` for that of the process. To be handed are its `SiloPlan` with
      absences; the plan whose aggregator another Python process made; for any
      process, without privacy, a `NonPrivatePlan`.
    epsilon_budget: The round that would exceed it is refused; `None` for none.
    evaluate_fn: Maps model weights to metrics. Released: it may use public or
      held-out data, not that of the clients in training. If the process keeps
      an average of its models, that is evaluated too, as `averaged_...`.
    rounds_per_eval: Rounds from one evaluation to the next; the last round is
      evaluated too.
    total_rounds: Rounds after which to stop; `None` for those of the plan.
    checkpoint_every: Rounds from one checkpoint, and release, to the next;
      `None` for ten, or as many as there are in a second. One is also saved
      when 30 seconds have gone by.
    checkpoint_kind: 'full', or 'seed_only': without the noise buffers. A resume
      then draws the noise of the current tree again, round by round, and is
      refused where other noise comes out (other versions or devices). A resume
      may ask for another kind than before; the results are the same.
    schedule_seed: Public seed of the schedule. 0 with a `CheckInPlan`: its
      coins are secret, and their key is drawn from the operating system.
    config: Settings of the caller that the result depends on, as plain JSON
      types. A resume with others is refused.
    declarations: For the privacy statement: what only the caller knows, such
      as how the hyperparameters were chosen.
    progress: 'auto', 'bar', 'plain' or 'quiet'.

  Raises:
    ArgumentError: A value that is not allowed, or an `output_dir` that cannot
      be written or belongs to another run.
    TypeError: A plan between `process` and `clients`.
    PrivacyRefusedError: The guarantee would break, for example because the
      process adds other noise than that of the plan, or on resuming without the
      ledger, or not even the first round fits the budget.
    RuntimeError: The context of this thread is asynchronous.
    KeyboardInterrupt: After a checkpoint.
    SystemExit: The same, after SIGTERM or SIGHUP.
    ClientComputationError: The work of a client failed; it is named, and what
      may show its data is in `secret/run.log`.
    OSError: A file cannot be written, such as on a full disk; the same command
      goes on from the last checkpoint.
  """
  if too_many:
    raise TypeError(
        'train takes the process and the clients, and everything else by name:'
        " train(process, clients, output_dir=..., delta=...); the process's"
        ' plan is found in the process'
    )
  _checks.one_of(progress_lib.MODES, progress=progress)
  with contextlib.ExitStack() as stack:
    stack.enter_context(contexts.ensure_installed())
    run = open_run(
        stack,
        process,
        clients,
        output_dir=output_dir,
        delta=delta,
        plan=plan,
        epsilon_budget=epsilon_budget,
        evaluate_fn=evaluate_fn,
        rounds_per_eval=rounds_per_eval,
        total_rounds=total_rounds,
        checkpoint_every=checkpoint_every,
        checkpoint_kind=checkpoint_kind,
        schedule_seed=schedule_seed,
        config=config,
        declarations=declarations,
    )
    with logged(run.directory):
      run.restore(progress)
      return run.execute(progress)


def open_run(
    stack: contextlib.ExitStack,
    process: tff.learning.templates.LearningProcess,
    clients: Any,
    *,
    output_dir: str | os.PathLike,
    delta: float,
    plan: base.Plan | None = None,
    epsilon_budget: float | None = None,
    evaluate_fn: Callable[[Any], Mapping[str, float]] | None = None,
    rounds_per_eval: int = 10,
    total_rounds: int | None = None,
    checkpoint_every: int | None = None,
    checkpoint_kind: str = noise_checkpoints.FULL,
    schedule_seed: int = 0,
    config: Mapping[str, Any] | None = None,
    declarations: declarations_lib.Declarations | None = None,
    driver: Mapping[str, Any] | None = None,
) -> run_lib.Run:
  """Returns a run in its directory, before `restore`.

  Args:
    stack: Closes the files of the run.
    process: See `train`, as all that follow but the last.
    clients: See `train`.
    output_dir: See `train`.
    delta: See `train`.
    plan: See `train`.
    epsilon_budget: See `train`.
    evaluate_fn: See `train`.
    rounds_per_eval: See `train`.
    total_rounds: See `train`.
    checkpoint_every: See `train`.
    checkpoint_kind: See `train`.
    schedule_seed: See `train`.
    config: See `train`.
    declarations: See `train`.
    driver: Settings of a loop that replaces the one of `train`, plain JSON
      types. A directory belongs to one kind of loop.
  """
  _checks.delta(delta=delta)
  if epsilon_budget is not None:
    _checks.positive(epsilon_budget=epsilon_budget)
  _checks.integer_at_least(1, rounds_per_eval=rounds_per_eval)
  if checkpoint_every is not None:
    _checks.integer_at_least(1, checkpoint_every=checkpoint_every)
  _checks.one_of(noise_checkpoints.KINDS, checkpoint_kind=checkpoint_kind)
  _checks.integer_at_least(0, schedule_seed=schedule_seed)
  certificate = certification.certify(process, plan)
  plan = certificate.plan
  if total_rounds is None:
    total_rounds = plan.num_rounds
  _checks.integer_between(1, plan.num_rounds, total_rounds=total_rounds)
  cohorts = population.build(
      plan, _readable_by(process, clients), schedule_seed=schedule_seed
  )
  budget = plan.ledger(epsilon=epsilon_budget, delta=delta)
  budget.check(1)
  declarations = _completed(declarations, cohorts)
  # A statement that is not complete is refused before anything is written.
  plan.statement(delta=delta, declarations=declarations)
  identity = {
      'plan': {**plan.describe(), 'fingerprint': plan.fingerprint},
      'program': {
          'delta': delta,
          'epsilon_budget': epsilon_budget,
          'rounds_per_eval': rounds_per_eval,
          **cohorts.identity(),
          'process_type': certification.type_fingerprint(process),
          **(driver or {}),
      },
      'config': dict(config or {}),
  }
  directory = stack.enter_context(
      run_directory.RunDirectory(
          output_dir, identity=identity, client_ids=cohorts.client_ids
      )
  )
  record = write_ahead.WriteAheadRecord(
      directory.secret / 'write_ahead.jsonl', run_id=directory.run_id
  )
  stack.callback(record.close)
  native_output = _native_output.Diversion(directory.log)
  stack.callback(native_output.close)
  return run_lib.Run(
      process=process,
      plan=plan,
      certificate=certificate,
      cohorts=cohorts,
      directory=directory,
      native_output=native_output,
      identity=identity,
      record=record,
      store=checkpoints.CheckpointStore(directory.checkpoints),
      history=history_lib.History(directory.secret / 'metrics.jsonl'),
      budget=budget,
      delta=delta,
      epsilon_budget=epsilon_budget,
      evaluate_fn=evaluate_fn,
      rounds_per_eval=rounds_per_eval,
      total_rounds=total_rounds,
      checkpoint_every=checkpoint_every,
      checkpoint_kind=checkpoint_kind,
      declarations=declarations,
  )


@contextlib.contextmanager
def logged(directory: run_directory.RunDirectory):
  """Writes the trace of an error inside to the log of the run."""
  try:
    yield
  except (_checks.ArgumentError, _checks.PrivacyRefusedError):
    raise  # They say it all, and a refusal writes nothing.
  except Exception as error:
    _failures.log(directory.log, error)
    raise


@dataclasses.dataclass(frozen=True)
class _ById:
  """Clients of a process that reads a client's data by its id."""

  client_ids: list

  def create_tf_dataset_for_client(self, client_id):
    return client_id


def _readable_by(process, clients):
  """Returns the clients as the process takes their data.

  A process that was composed with `ClientData.dataset_computation` takes ids.
  """
  parameter = getattr(process.next.type_signature, 'parameter', None)
  takes_ids = (
      parameter is not None
      and parameter[1].member == tff.TensorType(np.str_)
      and hasattr(clients, 'client_ids')
  )
  return _ById(list(clients.client_ids)) if takes_ids else clients


def _completed(
    declarations: declarations_lib.Declarations | None, cohorts
) -> declarations_lib.Declarations:
  """Returns the declarations with what context and cohorts add to them."""
  declared = declarations or declarations_lib.Declarations()
  num_clients = cohorts.identity().get('num_clients')
  if declared.population is None and num_clients is not None:
    declared = dataclasses.replace(
        declared,
        population=num_clients,
        population_origin='the clients that the run was given',
    )
  added = contexts.not_covered()
  if added:
    declared = dataclasses.replace(
        declared, not_covered=f'{declared.not_covered}; {added}'
    )
  return declared
