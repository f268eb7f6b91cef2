# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The training program: the synchronous `train` starts or resumes a run."""

from collections.abc import Callable, Mapping
import contextlib
import dataclasses
import os
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_dp import _calls
from tff_dp import _checks
from tff_dp import _failures
from tff_dp import _native_output
from tff_dp import _waiting
from tff_dp.execution import contexts
from tff_dp.files import run_directory
from tff_dp.files import write_ahead
from tff_dp.plans import base
from tff_dp.program import certification
from tff_dp.program import cohorts as cohorts_lib
from tff_dp.program import examples
from tff_dp.program import results
from tff_dp.program import run as run_lib
from tff_dp.program.display import progress as progress_lib
from tff_dp.program.files import checkpoints
from tff_dp.program.files import history as history_lib
from tff_dp.program.files import noise_checkpoints
from tff_dp.statement import declarations as declarations_lib


@_calls.helpful
def train(
    process: tff.learning.templates.LearningProcess,
    clients: (
        tff.simulation.datasets.ClientData | cohorts_lib.Source
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
) -> results.TrainResult:
  """Runs or resumes a training, and writes everything under `output_dir`.

  A second call with the same arguments resumes an interrupted run. The result
  equals the result of an uninterrupted run, provided that the clients' datasets
  give the same batches each time (no shuffling without a seed). It is equal bit
  for bit on the same machine and software, with the same number of workers and
  of threads within an operation. Both numbers follow the cores, unless they are
  set.

  The computation runs in the TFF context of the calling thread. If no context
  was chosen, `train` installs an in-process one for the length of the run.

  You may call `train` while an event loop is running. Ctrl-C finishes the
  round, saves, and raises KeyboardInterrupt. A second Ctrl-C interrupts at
  once. SIGTERM and SIGHUP do the same, but raise SystemExit with the status 143
  or 129. The trace of an error during the run is appended to `secret/run.log`,
  unless it is an `ArgumentError` or a `PrivacyRefusedError`. While clients
  work, everything that the process writes to file descriptor 2 goes there, too,
  because TensorFlow quotes clients' data in it. `sys.stderr` still leads to the
  screen.

  Args:
    process: Process that adds the noise of its plan, once in a round, to
      everything that comes from clients' data. Any other process is refused,
      see `certification.certify`. The builders of `tff_dp.learning` make such
      processes. Most of TFF's builders do, too, if they get
      `plan.aggregator()`. With a schedule in the plan, the server chooses the
      clients of a round. With a protocol in the plan, they decide themselves.
    clients: The population. Only `client_ids` and
      `create_tf_dataset_for_client(client_id)` are used. A plan with a
      protocol also takes its `ProtocolSource`, which can choose the sampler or
      lose reports. A `NonPrivatePlan` also takes a source of any protocol.
    *too_many: Must be empty: all other arguments are keyword-only.
    output_dir: Directory that is absent, empty, or holds this very run.
    delta: Target delta, in (0, 0.1]. Choose it below 1 / population. If the
      plan protects records of several parties (silos), each party may have its
      own budget and delta. This delta is then for the largest epsilon of all
      parties.
    plan: Plan of the process. Default: the plan that the process names. You
      must pass the plan if it is a result of `with_availability`. You must also
      pass it if the aggregator was made in another Python process, or before
      aggregators of 32 other plans. Pass a `NonPrivatePlan` to train any
      process without privacy.
    epsilon_budget: Budget at `delta`. The round that would exceed it is
      refused. Default: no budget.
    evaluate_fn: Function from model weights to metrics. The metrics are
      released, so it may use public or held-out data, but no data of clients
      in training. If the process keeps an average of its models, that average
      is evaluated too. The names of its metrics begin with `averaged_`. Each
      round is saved before its model is evaluated.
    rounds_per_eval: Rounds from one evaluation to the next. The last round is
      evaluated too. Each evaluated round has a checkpoint, so evaluate less
      often if saving is slow.
    total_rounds: Round after which to stop. Default: the plan's last round.
    checkpoint_every: Rounds from one checkpoint, and release, to the next.
      Default: ten, or more if ten rounds take less than a second or if saving
      is slow. A checkpoint is also saved when 30 seconds have passed since the
      last one, before each evaluation, and after the last round.
    checkpoint_kind: 'full', or 'seed_only' for checkpoints without the noise
      buffers. A resume from 'seed_only' draws the noise of the current tree
      again, round by round. It is refused on a machine that makes other noise
      (other versions or devices). A resume may ask for another kind than
      before, and has the same results.
    schedule_seed: Public seed of the schedule. It must be 0 if clients decide
      themselves, because their coins are secret: the key is drawn from the
      operating system.
    config: Settings of the caller that the result depends on, as plain JSON
      types. A resume with other settings is refused.
    declarations: Facts for the privacy statement that only the caller knows,
      such as how the hyperparameters were chosen.
    progress: Display: 'auto', 'bar', 'plain' or 'quiet'.

  Raises:
    ArgumentError: If a value is not allowed, or if `output_dir` cannot be
      written or belongs to another run.
    TypeError: If there are more positional arguments than `process` and
      `clients`, such as a plan between them.
    PrivacyRefusedError: If the guarantee would break. Examples: the process
      adds other noise than its plan says, the ledger is missing on a resume, an
      interrupted round may have sent reports of another process, or not even
      the first round fits the budget.
    RuntimeError: If the context of this thread is asynchronous.
    KeyboardInterrupt: If Ctrl-C was pressed before the last round ended. A
      checkpoint is saved first, unless a second signal came.
    SystemExit: If SIGTERM or SIGHUP came before the last round ended. A
      checkpoint is saved first, unless a second signal came.
    ClientComputationError: If the work of a client failed. The error has the
      client's id, unless the protocol keeps secret who takes part. Details that
      may show its data are in `secret/run.log`.
    OSError: If a file cannot be written, for example on a full disk. The same
      command resumes from the last checkpoint.
  """
  if too_many:
    raise TypeError(
        'train takes the process and the clients, and everything else by name:'
        ' train(process, clients, output_dir=..., delta=...); train finds the'
        ' plan in the process'
    )
  _checks.one_of(progress_lib.MODES, progress=progress)
  with contextlib.ExitStack() as stack:
    stack.enter_context(contexts.ensure_installed())
    with _waiting.saying('checking the process against its plan', mode=progress):
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
    stack: Exit stack that closes the files of the run.
    process: See `train`.
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
    driver: Settings of a loop that replaces the loop of `train`, in plain JSON
      types. A directory belongs to one kind of loop.
  """
  _checks.instance_of(
      (str, os.PathLike), 'the folder of the run', output_dir=output_dir
  )
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
  cohorts = cohorts_lib.build(
      plan, _readable_by(process, clients), schedule_seed=schedule_seed
  )
  budget = plan.ledger(epsilon=epsilon_budget, delta=delta)
  budget.check(1)
  examples.check(process, clients)
  declarations = _completed(declarations, cohorts)
  # This refuses an incomplete statement before anything is written.
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
  """Writes the trace of an error in its block to the log of the run.

  An `ArgumentError` or a `PrivacyRefusedError` is not written.
  """
  try:
    yield
  except (_checks.ArgumentError, _checks.PrivacyRefusedError):
    raise  # The message is enough, and a refusal writes nothing.
  except Exception as error:
    _failures.log(directory.log, error)
    raise


@dataclasses.dataclass(frozen=True)
class _ById:
  """Clients for a process that reads a client's data by its id."""

  client_ids: list

  def create_tf_dataset_for_client(self, client_id):
    return client_id


def _readable_by(process, clients):
  """Returns the clients in the form that the process takes: data or ids.

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
    declarations: declarations_lib.Declarations | None,
    cohorts,
) -> declarations_lib.Declarations:
  """Returns the declarations, completed with facts of the cohorts."""
  declared = declarations or declarations_lib.Declarations()
  num_clients = cohorts.num_clients
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
