# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""One run: rounds, ledgers, checkpoints and releases, in order.

A round takes these steps, in this order:

1. Check the budget. A round beyond it is refused, and no data are read.
2. Draw the cohort, by the schedule or by the clients' own coins, and commit the
   participation.
3. Store the round in the write-ahead record. From now on it is spent.
4. Train, on the caller's thread. If the order of a client's records determines
   their privacy loss, a hash of the records is stored before.
5. Write the metrics to disk. Then save a checkpoint with process state, ledger
   and the length of the metrics.
6. Store in the write-ahead record that the run releases up to this round.
7. Evaluate the model that the checkpoint holds, if it is time.
8. Release the rounds that the checkpoint holds, and no others.

Steps 5 to 8 come only when a checkpoint is due, and then for all rounds since
the checkpoint before. A round with an evaluation has a checkpoint, because
`evaluate_fn` belongs to the caller, who may keep or print what it gets.

So a process may be killed at any moment. The next process repeats the rounds
since the checkpoint. With `train` these rounds have the same cohorts and, on
the same data, the same noise. With a `Loop` only one round is repeated, and it
may have another cohort, unless a client's work failed in it or clients add the
noise. If the server adds the noise, nothing of these rounds had been released.
If clients add it, they may have sent their reports, and send the same ones
again. So another process, whose clients compute something else, is refused
then. A run never resumes from a checkpoint older than its last release. Files
that grow with the rounds are only appended to.
"""

from collections.abc import Callable, Mapping, Sequence
import contextlib
import dataclasses
import math
import time
from typing import Any

import numpy as np
import tensorflow_federated as tff
import tree

from tff_dp import _checks
from tff_dp import _failures
from tff_dp import _native_output
from tff_dp import _waiting
from tff_dp.accounting import rounding
from tff_dp.files import finished
from tff_dp.files import rollback
from tff_dp.files import run_directory
from tff_dp.files import write_ahead
from tff_dp.ledger import budget as budget_lib
from tff_dp.plans import base
from tff_dp.program import certification
from tff_dp.program import cohorts as cohorts_lib
from tff_dp.program import interrupts
from tff_dp.program import releases
from tff_dp.program import results
from tff_dp.program import sent_reports
from tff_dp.program.display import documents
from tff_dp.program.display import hints
from tff_dp.program.display import progress as progress_lib
from tff_dp.program.files import checkpoints
from tff_dp.program.files import history as history_lib
from tff_dp.program.files import noise_checkpoints
from tff_dp.program.files import outputs
from tff_dp.program.files import process_files
from tff_dp.statement import builder
from tff_dp.statement import declarations as declarations_lib
from tff_dp.statement import plain_words
from tff_dp.statement import report
from tff_dp.statement import statement as statement_lib

# File of `SentReports` in `secret/`.
_PROCESS = 'process.json'
_SECONDS_BETWEEN_CHECKPOINTS = 30.0
# Both must have passed before a checkpoint, if the caller sets no interval.
_ROUNDS_TO_CHECKPOINT, _SECONDS_TO_CHECKPOINT = 10, 1.0
# Largest share of the time for checkpoints: saving a ledger of many
# participations takes long, and must not slow the rounds down.
_MOST_SHARE_OF_CHECKPOINTS = 0.05


@dataclasses.dataclass(kw_only=True)
class Run:
  """One run in one process.

  For the settings that are not listed here, see `training.train`. The field
  `state` and the fields after it change during the run.

  Attributes:
    certificate: Certificate of the process under the plan.
    cohorts: Cohorts that choose the clients of each round.
    directory: Output directory, which this process has locked.
    native_output: Sends the output of native code to the log, while clients
      work.
    identity: Facts that a resume must have in common with the run, as plain
      JSON types.
    record: Write-ahead record of the rounds that have begun.
    store: Checkpoints of the run.
    history: Rows of the metrics.
    budget: Ledger of the rounds that count as spent.
    state: State of the process after `rounds_done` rounds.
    noise: Description of the noise for each checkpoint.
    rounds_done: Number of complete rounds.
    rounds_saved: Number of rounds in the latest checkpoint.
    rounds_planned: Round after which the run ends, by request or by budget.
    checked: Sentence of the statement that says how the process was checked.
    saved_at: Time of the latest checkpoint, in seconds of `time.monotonic`.
    seconds_of_save: Duration of saving the latest checkpoint.
    has_setting: Whether this process has written configuration and environment.
    has_warned: Whether a broken assumption was shown.
    weak: Warnings that delta is too large.
    reports: Reports that clients may have sent. `None` unless they add the
      noise.
    evaluated: Columns of the evaluation, in order of appearance.
  """

  process: tff.learning.templates.LearningProcess
  plan: base.Plan
  certificate: certification.Certificate
  cohorts: cohorts_lib.Cohorts
  directory: run_directory.RunDirectory
  native_output: _native_output.Diversion
  identity: Mapping[str, Any]
  record: write_ahead.WriteAheadRecord
  store: checkpoints.CheckpointStore
  history: history_lib.History
  budget: budget_lib.BudgetLedger
  delta: float
  epsilon_budget: float | None
  evaluate_fn: Callable[[Any], Mapping[str, float]] | None
  rounds_per_eval: int
  total_rounds: int
  checkpoint_every: int | None
  checkpoint_kind: str
  declarations: declarations_lib.Declarations

  state: Any = None
  # Description of the noise for each checkpoint.
  noise: dict | None = None
  rounds_done: int = 0
  rounds_saved: int = 0
  rounds_planned: int = 0
  # Sentence of the statement that says how the process was checked.
  checked: str = builder.CERTIFIED
  saved_at: float = 0.0
  seconds_of_save: float = 0.0
  has_setting: bool = False
  has_warned: bool = False
  weak: Sequence[str] = ()
  reports: sent_reports.SentReports | None = None
  # Columns of the evaluation, in order of appearance.
  evaluated: dict[str, None] = dataclasses.field(default_factory=dict)

  def restore(self, progress_mode: str) -> None:
    """Loads the latest checkpoint, or saves the initial state as the first."""
    latest = self.store.latest_round()
    self._refuse_to_go_back(latest)
    rollback.check(self.directory, self.record)
    with _waiting.saying('making the initial model', mode=progress_mode):
      state = self.process.initialize()
    self._declare_frozen(state)
    self.noise = noise_checkpoints.describe(
        state, self.plan, kind=self.checkpoint_kind
    )
    self.cohorts.begin(self.directory.run_id)
    self.cohorts.require_data(self.record.data_digests)
    self.saved_at = time.monotonic()
    if latest is None:
      self._refuse_if(
          self.record.rounds_begun > 0
          or (self.directory.release / 'metrics.csv').exists(),
          f'{self.directory.root} has begun a run but holds no checkpoint',
      )
      self._refuse_repeated_keys(state, progress_mode)
      self.state = state
      self.history.restore(history_lib.EMPTY)
      self.certificate.check(self.state, None, rounds_done=0)
      # Before any round, so that the keys of noise and coins are kept.
      self._save_checkpoint()
      self._write_setting()
      return
    checkpoint = self.store.load(latest, like=state)
    self._refuse_if(
        self.record.rounds_begun < latest,
        f'{self.directory.root} holds a checkpoint of round {latest}, but its'
        f' write-ahead record ends with round {self.record.rounds_begun}',
    )
    noise_checkpoints.check(checkpoint.noise, state, self.plan)
    self.state = checkpoint.process_state
    if checkpoint.noise['kind'] == noise_checkpoints.SEED_ONLY:
      with contextlib.closing(
          progress_lib.RebuildProgress(progress_mode)
      ) as display:
        self.state = noise_checkpoints.with_buffers(
            self.state, self.plan, like=state, report=display.report
        )
    self._refuse_other_frozen(state)
    self.certificate.check(self.state, None, rounds_done=latest)
    self.cohorts.restore(checkpoint.ledger)
    self.history.restore(checkpoint.history)
    self.rounds_done = self.rounds_saved = latest
    for row in self.history:
      # `None` if the evaluation is missing.
      self.evaluated.update(dict.fromkeys(row.get('evaluated') or ()))

  def begin(self) -> releases.Releases:
    """Charges the rounds begun earlier, and returns the writers of releases.

    If the process before was killed in the evaluation of the last round, it is
    evaluated now. Call it after `restore` and before the first round.
    """
    if self.certificate.noise_at_clients:
      self.reports = sent_reports.SentReports(
          self.directory.secret / _PROCESS,
          self.process.next,
          rounds_done=self.rounds_done,
          rounds_begun=self.record.rounds_begun,
      )
    self.budget.resume(self.record.rounds_begun)
    finished.clear(self.directory.secret)
    self.rounds_planned = self._affordable_rounds()
    # The statement first, so that a missing field is an error before round 1.
    self.weak = [
        warning
        for warning in self.write_statement().warnings
        if warning.startswith(base.WEAK)
    ]
    self.record.release(self.rounds_done)
    self._evaluate_saved()
    return releases.Releases(self.directory, self.history)

  def introduction(self) -> list[str]:
    """Returns sentences to show before the first round.

    They are the guarantee, a warning if delta is too large, the frozen weights
    if there are any, and a hint if the noise leaves little to learn.
    """
    said = [self._guarantee(), *self.weak]
    frozen = outputs.frozen_weights(self.process, self.state)
    if frozen is not None:
      num_trained = outputs.num_params(
          self.process.get_model_weights(self.state)
      )
      said.append(
          f'weights: {num_trained:,} are trained; {frozen} are frozen, get no'
          ' noise, and must be public'
          + ' (say where they come from: train(...,'
          " declarations=tff_dp.accounting.Declarations(pretraining='...')))"
          * (not self.declarations.says_pretraining)
      )
    if self.reports is not None and self.reports.drawn:
      said.append(
          f'clients draw without a key ({", ".join(self.reports.drawn)}): every'
          ' round is saved, and one that is killed cannot be repeated'
      )
    hint = hints.too_noisy(
        self.plan,
        num_params=outputs.num_params(
            self.process.get_model_weights(self.state)
        ),
        num_rounds=max(1, self.rounds_planned),
        num_clients=len(self.cohorts.client_ids),
    )
    return said + ([] if hint is None else [hint])

  def _beginning(self) -> str:
    """Returns a sentence about the earlier processes of this run, or ''."""
    root, done = self.directory.root, self.rounds_done
    if done >= self.plan.num_rounds:
      return f'already finished: {root} has all {done} rounds; none is trained'
    if done >= self.total_rounds:
      return (
          f'{root} has {done} of {self.plan.num_rounds} rounds, and'
          f' {self.total_rounds} are asked for; none is trained'
      )
    if done and done >= self.rounds_planned:
      return (
          f'already finished: {root} has spent its budget in {done} rounds; none'
          ' is trained'
      )
    if done:
      return f'resuming {root} after round {done}'
    if not self.directory.is_new:
      return (
          f'{root} has a run without a saved round: it starts over with round 1'
      )
    return ''

  def execute(self, progress_mode: str) -> results.TrainResult:
    """Runs the remaining rounds and writes the results."""
    released = self.begin()
    display = progress_lib.Progress(
        progress_mode,
        stream=self.native_output.screen,
        delta=self.delta,
        epsilon_budget=self.epsilon_budget,
        rounds_done=self.rounds_done,
        rounds_planned=self.rounds_planned,
        num_params=outputs.num_params(
            self.process.get_model_weights(self.state)
        ),
    )
    guard = interrupts.InterruptGuard(
        lambda: display.say(
            'interrupted: finishing the round and saving; once more to stop'
            ' without saving'
        )
    )
    message = ''
    cluster = outputs.current_cluster()
    reporting = contextlib.nullcontext()
    if cluster is not None:
      reporting = cluster.reporting_to(display.say)
    with contextlib.closing(display), contextlib.closing(
        released
    ), guard, reporting:
      for sentence in self.introduction():
        display.say(sentence)
      display.say_if(self._beginning())
      display.starting()
      while self.rounds_done < self.total_rounds and not guard.is_requested:
        try:
          self.budget.check(self.rounds_done + 1)
        except _checks.PrivacyRefusedError as refusal:
          message = f'{refusal.what}. {refusal.way_out}'
          break
        try:
          selection = self.select()
        except _checks.PrivacyRefusedError:
          self.save(released, display.say, display.released)
          raise
        _, seconds = self.run_round(selection)
        # Release first, so that the line of progress shows the latest metrics.
        if self._is_checkpoint_due():
          self.save(released, display.say, display.released)
        display.round_done(
            self.rounds_done,
            seconds=seconds,
            epsilon=self.budget.epsilon_after(self.rounds_done),
            num_workers=cluster and cluster.num_workers,
        )
      self.save(released, display.say, display.released)
      result = self.finish(message)
    if guard.is_requested and self.rounds_done < self.total_rounds:
      raise guard.stopped(
          f'stopped after round {self.rounds_done}; run the same again to go on'
      )
    return result

  def select(
      self, chosen: Sequence | None = None, *, replaces: bool = False
  ) -> cohorts_lib.Selection:
    """Draws or takes the cohort of the next round, and commits it durably.

    Args:
      chosen: Ids of the cohort. `None`: the plan draws it.
      replaces: Whether another cohort may replace the one of the last begun
        round, as in `WriteAheadRecord.begin`. It never may if clients add the
        noise: they may have sent their reports.
    """
    is_sent = self.certificate.noise_at_clients
    round_index = self.rounds_done + 1
    if self.reports is not None:
      self.reports.check_round(round_index)
    selection = self.cohorts.select(round_index, chosen)
    spent = {}
    if round_index > self.record.rounds_begun:
      spent = self.budget.record(round_index)
    self.record.begin(
        round_index,
        selection.ids,
        spent=spent,
        replaces=replaces and not is_sent,
        # Elsewhere the same cohort comes again without being named.
        sends=replaces and is_sent and not self.cohorts.why_not_chosen,
    )
    return selection

  def run_round(
      self, selection: cohorts_lib.Selection
  ) -> tuple[tff.learning.templates.LearningProcessOutput, float]:
    """Trains on the cohort, and adds the metrics of the round to the history.

    Args:
      selection: Clients of the round, from `select`.

    Returns:
      The output of the process, and the duration in seconds.

    Raises:
      ClientComputationError: If the work of a client failed.
      PrivacyRefusedError: If the output contradicts the plan.
    """
    round_index = self.rounds_done + 1
    start = time.monotonic()
    try:
      with self.native_output.active():
        data = selection.read()
        # First, because a client may send its message at any time.
        self.record.keep_data(self.cohorts.data_digests())
        if self.reports is not None:
          self.reports.send(round_index, data)
        output = self.process.next(self.state, data)
    except Exception as error:
      # Data that cannot be reached say nothing about what is in them. Readers
      # of broken data raise an OSError of their own, without an errno.
      if not isinstance(error, OSError) or error.errno is None:
        self.record.fail(round_index, selection.ids)
      if isinstance(error, _failures.ClientComputationError):
        raise self._named(error, selection) from None
      raise
    self.certificate.check(
        output.state, output.metrics, rounds_done=round_index
    )
    seconds = time.monotonic() - start
    epsilon = self.budget.epsilon_after(round_index)
    row = releases.make_row(
        round_index,
        round_metrics=output.metrics,
        uncovered=self.certificate.not_covered,
        released={
            'epsilon': epsilon,
            'rounds_left': self.budget.rounds_left(round_index),
            **selection.released,
        },
        not_covered={
            **selection.not_covered,
            'round_seconds': seconds,
            'rss_mb': outputs.resident_megabytes(),
        },
        keeps_client_metrics=self.cohorts.keeps_client_metrics,
    )
    is_last = round_index == self.rounds_planned
    is_evaluated = self.evaluate_fn is not None and (
        is_last or round_index % self.rounds_per_eval == 0
    )
    row['evaluated'] = None if is_evaluated else []
    # The count first. A loop shows no state of a round that is not saved, and
    # an interrupted round leaves no row to the one that repeats it.
    self.rounds_done = round_index
    self.history.append(row)
    self.state = output.state
    return output, seconds

  def _named(
      self,
      error: _failures.ClientComputationError,
      selection: cohorts_lib.Selection,
  ) -> _failures.ClientComputationError:
    """Returns the error, with the client's id if the screen may show it.

    Else the id goes only to the log under `secret/`.
    """
    named = error.named(selection.ids[error.client_index])
    if self.cohorts.keeps_client_metrics:
      return named
    # The protocol keeps secret which clients come to a round.
    _failures.log(self.directory.log, named, context='secret:')
    return error

  def _is_checkpoint_due(self) -> bool:
    waited = time.monotonic() - self.saved_at
    if self.checkpoint_every is None:
      rounds = self.rounds_done - self.rounds_saved
      is_time = rounds >= _ROUNDS_TO_CHECKPOINT and waited >= max(
          _SECONDS_TO_CHECKPOINT,
          self.seconds_of_save / _MOST_SHARE_OF_CHECKPOINTS,
      )
    else:
      is_time = self.rounds_done % self.checkpoint_every == 0
    return (
        is_time
        or (self.reports is not None and self.reports.drawn)
        or self._awaits_evaluation()
        or self.rounds_done == self.rounds_planned
        or waited >= _SECONDS_BETWEEN_CHECKPOINTS
    )

  def save(
      self,
      released: releases.Releases,
      say: Callable[[str], None],
      show: Callable[[Mapping[str, Any], list[str]], None] | None = None,
  ) -> None:
    """Saves a checkpoint, then releases the metrics since the last checkpoint.

    The metrics of one round are a row. The statement is written before them.
    Nothing happens if no round has ended since the last checkpoint.

    Args:
      released: Writers of released rows, from `begin`.
      say: Function that shows a warning.
      show: Function that shows one released row. Its second argument names the
        columns of the evaluation. `None` to show nothing.

    Raises:
      ArgumentError: If the evaluation gives a metric that has a reserved name.
      TypeError: If the evaluation gives no metrics.
    """
    if self.rounds_done == self.rounds_saved:
      return
    start = time.monotonic()
    first = len(self.history) - len(self.history.unsaved)
    self._save_checkpoint()
    if not self.has_setting:
      # A resumed run writes it only now: until here it might be refused.
      self._write_setting()
    self.record.release(self.rounds_done)
    # Before anything of these rounds is shown.
    self.write_statement()
    seconds = time.monotonic() - start
    self._evaluate_saved()
    start = time.monotonic() - seconds
    for row in self.history[first:]:
      released.release(row)
      if show is not None:
        show(row['released'], list(self.evaluated))
    self.rounds_saved = self.rounds_done
    warning = self.cohorts.warning()
    if warning is not None and not self.has_warned:
      self.has_warned = True
      say(warning)
    self.saved_at = time.monotonic()
    self.seconds_of_save = self.saved_at - start

  def _save_checkpoint(self) -> None:
    state = self.state
    if self.checkpoint_kind == noise_checkpoints.SEED_ONLY:
      state = noise_checkpoints.without_buffers(state)
    self.store.save(
        checkpoints.Checkpoint(
            round_index=self.rounds_done,
            process_state=state,
            noise=self.noise,
            ledger=self.cohorts.to_bytes(),
            history=self.history.save(),
        )
    )

  def _write_setting(self) -> None:
    """Writes the configuration, the environment and the process."""
    release = self.directory.release
    run_directory.write_json(release / 'config.json', self.identity)
    outputs.write_environment(release / 'environment.json')
    process_files.keep(release / process_files.FOLDER, self.process)
    self.has_setting = True

  def write_models(self) -> tuple[Any, Any]:
    """Writes and returns the model and the average of models, if there is one.

    Without an average, the second result is `None`.
    """
    weights = self.process.get_model_weights(self.state)
    release = self.directory.release
    outputs.write_model(release / 'model.npz', weights)
    averaged = outputs.averaged_weights(self.process, self.state)
    if averaged is not None:
      outputs.write_model(release / 'model_averaged.npz', averaged)
    return weights, averaged

  def finish(self, message: str) -> results.TrainResult:
    """Writes the last model and the final documents, and returns the result."""
    statement = self.write_statement()
    weights, averaged = self.write_models()
    course = self.write_documents()
    finished.write(
        self.directory.secret,
        rounds_done=self.rounds_done,
        is_over_budget=bool(message),
    )
    outputs.level_times(self.directory.release)
    return results.TrainResult(
        model_weights=weights,
        metrics=history_lib.Released(self.history, key=releases.KEY),
        statement=statement,
        epsilon=self.budget.epsilon_after(self.record.rounds_begun),
        delta=self.delta,
        rounds_done=self.rounds_done,
        stop_reason=results.BUDGET if message else results.COMPLETED,
        message=message,
        output_dir=self.directory.root,
        averaged_model_weights=averaged,
        evaluated=tuple(self.evaluated),
        course=course,
    )

  def write_documents(self) -> report.Course:
    """Writes report and picture of the rounds that are released so far.

    Call it after `write_statement`.
    """
    return documents.write(self.directory.release, evaluated=self.evaluated)

  def write_statement(self) -> statement_lib.PrivacyStatement:
    """Writes and returns the statement and events of the rounds so far.

    It removes report and picture, which would be about fewer rounds.
    """
    for name in (run_directory.REPORT, documents.CURVES):
      (self.directory.release / name).unlink(missing_ok=True)
    # A round that has begun counts, even if its process was killed.
    rounds = max(self.rounds_done, self.record.rounds_begun)
    statement = self.plan.statement_about(
        builder.Occasion(
            delta=self.delta,
            observed=self.cohorts.observed(rounds),
            insecure_seed=self._is_insecure(),
            declarations=self.declarations,
            process=self.checked,
        )
    )
    run_directory.write_statement(self.directory.release, statement)
    run_directory.write_json(
        self.directory.release / 'events.json',
        # Before round 1 the file is about the plan, like the statement.
        self.plan.events_json(delta=self.delta, num_rounds=rounds or None),
    )
    return statement

  def _awaits_evaluation(self) -> bool:
    """Whether the last round is to be evaluated, and was not yet."""
    return bool(self.history) and self.history[-1].get('evaluated', ()) is None

  def _evaluate_saved(self) -> None:
    """Adds the evaluation to the row of the last round, if it is still missing.

    The round must be in a checkpoint, and stored as released. If the process is
    killed before the result is on the disk, the next one evaluates the same
    model again.
    """
    if self.evaluate_fn is None or not self._awaits_evaluation():
      return
    evaluation = self._evaluate(self.process.get_model_weights(self.state))
    averaged = outputs.averaged_weights(self.process, self.state)
    if averaged is not None:
      for name, value in self._evaluate(averaged).items():
        evaluation[f'averaged_{name}'] = value
    row = self.history[-1]
    reserved = {releases.KEY, *row['released']}
    if reserved & set(evaluation):
      raise _checks.ArgumentError(
          'evaluate_fn',
          sorted(evaluation),
          f'metrics with names other than {sorted(reserved)}',
      )
    self.history.replace_last(releases.evaluated(row, evaluation))
    self.evaluated.update(dict.fromkeys(evaluation))

  def _evaluate(self, weights: Any) -> dict[str, float]:
    found = self.evaluate_fn(weights)
    if not isinstance(found, Mapping):
      raise TypeError(
          "evaluate_fn must return metrics by name, such as {'test_accuracy':"
          f' 0.9}}, found {found!r}.'
      )
    return dict(found)

  def _guarantee(self) -> str:
    if self._is_insecure():
      return 'NO PRIVACY: the keys of this run follow from a known seed'
    if self.plan.noise_multiplier == 0:
      return 'NO PRIVACY: this run adds no noise'
    if self.budget.epsilon_after(1) == math.inf:
      return 'NO PRIVACY: the noise of this run is not enough for any epsilon'
    return (
        f'privacy: epsilon counts all contributions of one {self.plan.unit} to'
        f' this run, {self.plan.neighboring_relation.value} adjacency,'
        f' delta={rounding.short(self.delta)}, {self.plan.basis}'
    )

  @property
  def is_private(self) -> bool:
    """Whether the run has any guarantee."""
    return not self._guarantee().startswith(plain_words.NO_PRIVACY)

  def _is_insecure(self) -> bool:
    return is_key_insecure(self.state) or self.cohorts.is_key_insecure

  def _affordable_rounds(self) -> int:
    """Returns the round after which this run ends, by request or by budget."""
    left = self.budget.rounds_left(self.rounds_done)
    return min(self.total_rounds, self.rounds_done + left)

  def _refuse_to_go_back(self, latest: int | None) -> None:
    """Raises if rounds after the latest checkpoint were released."""
    released = max(
        self.record.released_through,
        rollback.rounds_released(self.directory.release),
    )
    if latest is not None and latest < released:
      raise _checks.PrivacyRefusedError(
          f'{self.directory.root} has released rounds through {released}, but'
          f' its latest checkpoint is of round {latest}',
          why='a released round that is made again, perhaps from other data, is'
          ' a second release, but the ledger counts one',
          way_out=f'restore the checkpoint of round {released} from a copy, or'
          ' start a new run in another directory, whose epsilon adds'
          ' to that of this one',
      )

  def _declare_frozen(self, state: Any) -> None:
    """Completes the declarations with the frozen weights of a state."""
    frozen = outputs.frozen_weights(self.process, state)
    if frozen is not None:
      self.declarations = dataclasses.replace(
          self.declarations,
          pretraining=f'{self.declarations.pretraining}; {frozen} are frozen,'
          ' get no noise and count as public: nothing is claimed for the data'
          ' that they came from',
      )

  def _refuse_other_frozen(self, initial: Any) -> None:
    """Raises if the graph has other frozen weights than the restored state.

    Args:
      initial: Initial state of the process.
    """
    begun, now = (
        outputs.digest_of_frozen(self.process, state)
        for state in (self.state, initial)
    )
    if begun != now:
      raise _checks.PrivacyRefusedError(
          f'{self.directory.root} was begun with other frozen weights (digest'
          f' {begun})',
          why='the graph of this process has frozen weights with the digest'
          f' {now}; the statement and model.npz would name the wrong ones',
          way_out='load the frozen weights that the run began with, or start a'
          ' new run in another directory',
      )

  def _refuse_repeated_keys(self, state: Any, progress_mode: str) -> None:
    """Raises if a second initial state has a noise key of the first one.

    Args:
      state: Initial state of the process.
      progress_mode: See `restore`.
    """
    keys = _noise_keys(state)
    if not keys or is_key_insecure(state):
      return
    with _waiting.saying('making a second initial model', mode=progress_mode):
      again = _noise_keys(self.process.initialize())
    repeated = [name for name in keys if keys[name] == again.get(name)]
    if repeated:
      raise _checks.PrivacyRefusedError(
          'initialize() of the process gives the same noise key again:'
          f' {", ".join(repeated)}',
          why='two runs would add the same noise, and whoever knows the key can'
          ' take it away',
          way_out='give the weights to the model before you build the process;'
          ' or let initialize() call initialize() of the process from the'
          ' builder, and change only the weights in its result',
      )

  def _refuse_if(self, is_refused: bool, what: str) -> None:
    if is_refused:
      raise _checks.PrivacyRefusedError(
          what,
          why='nobody can know which rounds were spent, and with which noise;'
          ' repeating them with other noise would spend again',
          way_out='restore the directory from a copy, or start a new run in'
          ' another one',
      )


def _noise_keys(state: Any) -> dict[str, bytes]:
  """Returns the noise keys in a process state by their paths.

  Beside each stands `is_key_insecure`. A weight may be named `key`, too, and so
  are the public coins of draw and discard.
  """
  leaves = dict(tree.flatten_with_path(state))
  return {
      '/'.join(map(str, path)): np.asarray(value).tobytes()
      for path, value in leaves.items()
      if path[-1:] == ('key',) and (*path[:-1], 'is_key_insecure') in leaves
  }


def is_key_insecure(state: Any) -> bool:
  """Whether a noise key in a process state was made from a known seed."""
  return any(
      bool(value)
      for path, value in tree.flatten_with_path(state)
      if path and path[-1] == 'is_key_insecure'
  )
