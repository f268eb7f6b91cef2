# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Private rounds one by one, for your own training loop.

    loop = tff_dp.program.Loop(
        process, client_data, output_dir='runs/mine', delta=1e-5)
    print(loop)  # epsilon, who may take part, noise
    while loop.rounds_left:
      cohort = rng.choice(loop.eligible(), 50, replace=False)
      output = loop.next(cohort)
    print(loop.statement())

In each round, a loop takes the same steps as `program.train`. It checks the
budget, commits the cohort, trains, and saves model, noise key and ledger
together before it returns anything. So ledger and model always belong to the
same round, and the statement is about the rounds that took place.
"""

from collections.abc import Sequence
import contextlib
import dataclasses
import hashlib
import os
import threading
from typing import Any
import weakref

import tensorflow_federated as tff

from tff_dp import _calls
from tff_dp import _checks
from tff_dp import execution
from tff_dp.accounting import rounding
from tff_dp.execution import contexts
from tff_dp.plans import base
from tff_dp.program import run as run_lib
from tff_dp.program import training
from tff_dp.program.display import hints
from tff_dp.program.files import checkpoints
from tff_dp.program.files import outputs
from tff_dp.statement import builder
from tff_dp.statement import declarations as declarations_lib
from tff_dp.statement import statement as statement_lib

CHECKED = (
    f'{builder.CERTIFIED}. Stated are the rounds of one tff_dp.program.Loop,'
    ' which saved model and ledger together. Not seen, and not covered: other'
    ' rounds of the process or of its state, and cohorts chosen by looking at'
    " clients' data"
)
_NOT_COVERED = (
    'training metrics of TFF (loss, accuracy, example counts) and all metrics'
    ' named not_covered, which the loop hands to its caller, and evaluations by'
    ' the caller on data of clients in training, their held-out examples'
    ' included'
)
# Maps a directory to its loop in this process. If a notebook cell runs again,
# the new loop takes the directory over from the old one.
_loops: weakref.WeakValueDictionary[str, 'Loop'] = weakref.WeakValueDictionary()


class Loop:
  """A run in its own directory, whose rounds the caller starts.

  A new `Loop` with the same arguments, in this or another Python process,
  resumes the run after its last complete round. An interrupted round is
  repeated. If the server adds the noise, it may have any cohort that is
  allowed, because nothing of the interrupted round was released. If clients add
  the noise, they may have sent their reports. Then the round is repeated with
  the same cohort, which sends the same reports from the same data, and another
  process is refused: its clients would send other reports. The cohort also
  stays the same if a client's work failed.

  Attributes:
    plan: The plan that the process implements.
  """

  @_calls.helpful
  def __init__(
      self,
      process: tff.learning.templates.LearningProcess,
      clients: Any,
      *,
      output_dir: str | os.PathLike,
      delta: float,
      plan: base.Plan | None = None,
      epsilon_budget: float | None = None,
      declarations: declarations_lib.Declarations | None = None,
  ):
    """Begins a run, or resumes the one in `output_dir`.

    If no TFF context was chosen, an in-process one becomes the default of this
    thread, as after `execution.set_default_context()`.

    Args:
      process: Process that adds the noise of its plan to everything that comes
        from clients' data. Any other process is refused, see `certify`.
      clients: A `tff.simulation.datasets.ClientData` with the whole population,
        preprocessing included. A plan with a protocol also takes its
        `ProtocolSource`, and a `NonPrivatePlan` a source of any protocol.
      output_dir: Directory that is absent, empty, or holds this very run. It
        gets the files that `program.train` writes.
      delta: Target delta, in (0, 0.1]. Choose it below 1 / population.
      plan: Plan of the process. Default: the one that the process names.
      epsilon_budget: Budget at `delta`. The round that would exceed it is
        refused. Default: no budget.
      declarations: Facts for the statement that only the caller knows. By
        default their `not_covered` names TFF's training metrics, which the loop
        hands to its caller, and evaluations on data of clients in training.

    Raises:
      ArgumentError: If a value is not allowed, or if `output_dir` cannot be
        written or belongs to another run.
      PrivacyRefusedError: If the process does not implement the plan, if not
        even the first round fits the budget, or if files of the run are
        missing, damaged or older than its releases. Also if an interrupted
        round may have sent reports of another process.
      RuntimeError: If the context of this thread is asynchronous.
    """
    path = os.path.realpath(output_dir)
    if path in _loops:
      _loops[path].close()
    # This refuses a context that cannot be used.
    with contexts.ensure_installed():
      pass
    if not contexts.is_chosen():
      execution.set_default_context()
    self._closed_because = 'it was closed'
    self._lock = threading.Lock()
    self._stack = contextlib.ExitStack()
    declared = declarations or declarations_lib.Declarations()
    if declared.not_covered == declarations_lib.Declarations.not_covered:
      # The default is about `train`, which keeps these metrics to itself.
      declared = dataclasses.replace(declared, not_covered=_NOT_COVERED)
    with contextlib.ExitStack() as stack:
      self._run = training.open_run(
          stack,
          process,
          clients,
          output_dir=output_dir,
          delta=delta,
          plan=plan,
          epsilon_budget=epsilon_budget,
          declarations=declared,
          driver={'loop': 'own'},
      )
      self._run.checked = CHECKED
      with training.logged(self._run.directory):
        self._run.restore('quiet')
        self._released = self._run.begin()
      stack.callback(self._released.close)
      self._stack = stack.pop_all()
    self.plan = self._run.plan
    self._warnings: list[str] = []
    _loops[path] = self

  @property
  def rounds_done(self) -> int:
    """Number of complete rounds, including rounds in earlier processes."""
    return self._run.rounds_done

  @property
  def rounds_left(self) -> int:
    """Number of further rounds that plan and budget allow."""
    return self._run.budget.rounds_left(self.rounds_done)

  @property
  def epsilon(self) -> float:
    """Upper bound on the epsilon at `delta` of the rounds that have begun."""
    return self._run.budget.epsilon_after(self._run.record.rounds_begun)

  @property
  def required_cohort(self) -> list | None:
    """Ids of the next round if it must have the same clients, else `None`.

    That is so if a client's work failed in it, or if it was interrupted and
    clients add the noise. Then only `next(required_cohort)` goes on. It is
    always `None` if the plan draws the cohorts: there `next()` draws the same
    clients again.
    """
    run = self._run
    required = run.record.required_cohort
    is_over = run.record.rounds_begun == run.rounds_done
    if required is None or is_over or run.cohorts.why_not_chosen:
      return None
    ids = {_checks.client_key(each): each for each in run.cohorts.client_ids}
    return [ids[_checks.client_key(each)] for each in required]

  @property
  def state(self) -> Any:
    """State of the process after the last round. SECRET: has the noise key.

    Raises:
      PrivacyRefusedError: If the last round is not saved, as on a full disk.
    """
    return self._saved_state()

  @property
  def model_weights(self) -> Any:
    """Model after the last round. The guarantee covers it.

    Raises:
      PrivacyRefusedError: If the last round is not saved, as on a full disk.
    """
    return self._run.process.get_model_weights(self._saved_state())

  @property
  def process(self) -> '_Process':
    """This loop as a process, for `tff.simulation.run_training_process`.

    Its `next(state, cohort)` takes client ids instead of client data. The state
    must be the one that the loop returned last.
    """
    return _Process(self)

  @property
  def state_manager(self) -> tff.program.ProgramStateManager:
    """This loop as a program state manager, for TFF programs.

    The loop saves the state of every round, with its ledger, before the program
    asks for it. `load_latest` returns the last state.
    """
    return _StateManager(self)

  def eligible(self, client_ids: Sequence | None = None) -> list:
    """Returns the clients that may take part in the next round.

    Args:
      client_ids: Ids to choose from. Default: the whole population.

    Returns:
      A list of ids in the given order.

    Raises:
      PrivacyRefusedError: If the loop is closed, if clients decide themselves
        whether to take part, or if no round is left.
    """
    run = self._checked()
    run.budget.check(run.rounds_done + 1)
    if client_ids is None:
      client_ids = run.cohorts.client_ids
    return run.cohorts.eligible(run.rounds_done + 1, list(client_ids))

  def next(
      self, cohort: Sequence | None = None
  ) -> tff.learning.templates.LearningProcessOutput:
    """Runs the next round, and returns its output after saving it to disk.

    Args:
      cohort: Ids of the clients of the round: any number of the ids in
        `eligible()`. Do not look at the clients' data to choose them. Default:
        the plan's schedule chooses, or the clients decide themselves.

    Returns:
      The state, which is secret, and the metrics. TFF's metrics of clients'
      data, such as their loss, have no noise: do not publish them.

    Raises:
      ArgumentError: If an id is unknown, or if `cohort` is a single string.
      PrivacyRefusedError: If the loop is closed, the cohort breaks the plan, no
        round is left, or the round would exceed the budget. Nothing has changed
        then. Also if the output of the round contradicts the plan, or if a silo
        brings its records in another order. The round then counts as begun, and
        nothing of it is released. Also if another thread runs a round.
      ClientComputationError: If the work of a client failed. Correct the data,
        and run the round again with `required_cohort`. Any other cohort is
        refused, because its choice would depend on data. The same holds for
        every other error in the work of clients but an `OSError` with an
        `errno`, and for that one too if clients add the noise.
      OSError: If a file cannot be written, for example on a full disk. Make the
        loop again with the same arguments to go on.
    """
    with self._alone():
      return self._next(self._checked(), cohort)

  def _next(self, run: run_lib.Run, cohort: Sequence | None):
    """Runs the next round, while no other thread does."""
    done = run.rounds_done
    run.budget.check(done + 1)
    with training.logged(run.directory):
      try:
        output, _ = run.run_round(run.select(cohort, replaces=True))
        run.save(self._released, self._warnings.append)
      except BaseException:
        if run.rounds_done == done:
          # Undo the commit of the cohort: either nothing of it was released, or
          # the record requires it again.
          latest = run.store.load(done, like=run.state)
          run.cohorts.restore(latest.ledger)
        else:
          # Memory and disk may differ now, and the disk is right.
          self._close(
              'its last round was interrupted, or its files could not be'
              ' written'
          )
        raise
    return output

  def statement(self) -> statement_lib.PrivacyStatement:
    """Writes and returns the privacy statement of the rounds so far.

    Raises:
      PrivacyRefusedError: If the loop is closed, or if a thread runs a round.
    """
    with self._alone():
      return self._checked().write_statement()

  def write_model(self) -> None:
    """Writes the model to `release/`, as `program.train` does.

    The file is `model.npz`. If the process keeps an average of its models, that
    average is written to `model_averaged.npz`.

    Raises:
      PrivacyRefusedError: If the loop is closed, if a thread runs a round, or
        if the last round is not saved.
    """
    with self._alone():
      self._saved_state()
      self._checked().write_models()

  def close(self) -> None:
    """Writes the report, and gives up the directory to this or another process.

    If a round has begun and failed, the statement is written again, too,
    because that round counts.

    Raises:
      PrivacyRefusedError: If a thread runs a round.
    """
    with self._alone():
      self._write_and_close()

  def _write_and_close(self) -> None:
    try:
      if self._released is not None:
        if self._run.record.rounds_begun > self._run.rounds_saved:
          # A round that failed counts: it had begun.
          self._run.write_statement()
        self._run.write_documents()
        outputs.level_times(self._run.directory.release)
    finally:
      self._close('it was closed, or its directory was opened again')

  def _close(self, why: str) -> None:
    self._closed_because = why
    self._stack.close()
    self._released = None

  def __enter__(self) -> 'Loop':
    return self

  def __exit__(self, *exception_info) -> None:
    # Waits for a round of another thread: an error may be on its way.
    with self._lock:
      self._write_and_close()

  def __repr__(self) -> str:
    return f'<Loop: {self._spent()}>'

  def __str__(self) -> str:
    return '\n'.join(self._said())

  def _repr_markdown_(self) -> str:
    """Returns Markdown that a notebook shows."""
    return '\n'.join(f'- {sentence}' for sentence in self._said())

  def _spent(self) -> str:
    run = self._run
    done = f'{self.rounds_done} of {self.plan.num_rounds} rounds'
    if not run.is_private:
      return f'NO PRIVACY; {done}'
    spent = (
        f'epsilon {rounding.rounded_up(self.epsilon)} at delta'
        f' {rounding.short(run.delta)}'
    )
    if run.epsilon_budget is not None:
      spent += f', budget {rounding.short(run.epsilon_budget)}'
    return f'{spent}; {done}, {self.rounds_left} left'

  def _said(self) -> list[str]:
    """Returns sentences about epsilon, participation and noise."""
    run, plan = self._run, self.plan
    said = [self._spent(), *run.introduction(), *self._warnings]
    why = run.cohorts.why_not_chosen
    if why:
      said.append(f'who takes part: loop.next() without a cohort, since {why}')
    else:
      said.append(
          'who takes part: choose among loop.eligible().'
          f' {plan.participation.pattern.describe()} A cohort may have any size;'
          f' sums are divided by {plan.clients_per_round}.'
      )
    if hints.is_for(plan) and plan.noise_multiplier:
      ratio = hints.signal_to_noise(
          plan,
          num_params=outputs.num_params(
              run.process.get_model_weights(run.state)
          ),
          num_rounds=plan.num_rounds,
      )
      said.append(
          'noise: if all clients pulled the same way, the sum of all updates'
          f' would be {ratio:.2g} times as long as its noise'
      )
    return said

  @contextlib.contextmanager
  def _alone(self):
    """Keeps other threads out. Raises if one is in the middle of a round."""
    if not self._lock.acquire(blocking=False):
      raise _checks.PrivacyRefusedError(
          'a round of this loop is running, perhaps in another thread',
          why='ledger and noise of a round follow from the round before',
          way_out='wait until next() has returned; start rounds from one thread'
          ' or with a lock of your own',
      )
    try:
      yield
    finally:
      self._lock.release()

  def _saved_state(self) -> Any:
    """Returns the state. Raises if it is not on the disk."""
    run = self._run
    # Before the comparison: another thread may run a round meanwhile.
    state = run.state
    if run.rounds_done != run.rounds_saved:
      raise _checks.PrivacyRefusedError(
          f'round {run.rounds_done} is not saved',
          why='it will be run again, perhaps with other clients, and would then'
          ' be released twice',
          way_out='make the Loop again with the same arguments, and run the'
          ' round again',
      )
    return state

  def _checked(self) -> run_lib.Run:
    """Returns the run. Raises if this loop is closed."""
    if self._released is None:
      raise _checks.PrivacyRefusedError(
          f'this loop cannot go on: {self._closed_because}',
          why='the run continues from the model and the ledger on the disk, and'
          ' another loop may have run further rounds since',
          way_out='make the Loop again with the same arguments: it resumes',
      )
    return self._run


class _Process:
  """A process whose rounds are the rounds of a loop."""

  def __init__(self, loop: Loop):
    self._loop = loop

  def initialize(self) -> Any:
    """Returns the state of the loop before its first round.

    Later it returns a new state, which only shows the structure. `next` refuses
    it.
    """
    loop = self._loop
    if loop.rounds_done:
      return loop._run.process.initialize()  # pylint: disable=protected-access
    return loop.state

  def next(self, state: Any, cohort: Sequence):
    """Runs the next round of the loop.

    Args:
      state: State that the loop returned last.
      cohort: Ids of clients, see `Loop.next`.

    Raises:
      PrivacyRefusedError: If `state` is any other state, or for a reason that
        `Loop.next` lists.
    """
    loop = self._loop
    if not _is_same(state, loop.state):
      raise _checks.PrivacyRefusedError(
          f'the state is not the one after round {loop.rounds_done} of the loop',
          why='a state that runs twice gives two releases of one round, and the'
          ' ledger counts one',
          way_out='pass loop.state; run_training_process does so if it gets'
          ' program_state_manager=loop.state_manager; a new run needs another'
          ' output_dir',
      )
    return loop.next(cohort)

  def get_model_weights(self, state: Any) -> Any:
    """Returns the model in a state of the process."""
    return self._loop._run.process.get_model_weights(state)  # pylint: disable=protected-access


class _StateManager(tff.program.ProgramStateManager):
  """Program states of a loop. A version is a round. Only the last is kept."""

  def __init__(self, loop: Loop):
    self._loop = loop

  async def get_versions(self) -> list[int] | None:
    done = self._loop.rounds_done
    return [done] if done else None

  async def load(self, version: int, structure: Any) -> Any:
    del structure
    if version != self._loop.rounds_done:
      raise tff.program.ProgramStateNotFoundError(version)
    return self._loop.state

  async def save(self, program_state: Any, version: int) -> None:
    loop = self._loop
    if version != loop.rounds_done or not _is_same(program_state, loop.state):
      raise _checks.PrivacyRefusedError(
          f'version {version} is not the state after round {loop.rounds_done} of'
          ' the loop',
          why='the ledger is stored with the state that it belongs to',
          way_out='run the rounds by loop.process, and save their states with'
          ' the number of their round',
      )

  async def remove_all(self) -> None:
    """Always raises: a run that forgets its rounds would spend them again."""
    raise _checks.PrivacyRefusedError(
        'the states of a loop cannot be removed',
        why='the ledger and the noise key are in them',
        way_out='a new run in another output_dir',
    )


def _is_same(state: Any, other: Any) -> bool:
  """Returns whether two states have the same leaves, bit for bit."""
  return state is other or _digest(state) == _digest(other)


def _digest(state: Any) -> bytes:
  try:
    return hashlib.sha256(checkpoints.pack(state)).digest()
  except TypeError:
    return b''  # No process returns this.
