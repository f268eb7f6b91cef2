# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The rounds of a trusted server whose messages another stack carries.

A stack asks for the cohort of a round (`select`), passes on the replies
(`finish`), and sends out the model that `finish` returns. The two methods keep
the order that a guarantee needs. A round is charged and stored on the disk
before its cohort is asked. Its checkpoint is on the disk before anybody sees
its model. A killed server resumes with the same cohort and, for the same
updates, the same noise.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import io
import json
import math
import os
import pathlib
import threading
from typing import Any, NamedTuple

import numpy as np

from tff_dp import _checks
from tff_dp import systems
from tff_dp.files import arrays
from tff_dp.files import regular
from tff_dp.files import rollback
from tff_dp.files import run_directory
from tff_dp.files import write_ahead
from tff_dp.integrations import clip_norm
from tff_dp.integrations import noise
from tff_dp.integrations import updates as updates_lib
from tff_dp.participation import coins
from tff_dp.plans import base
from tff_dp.statement import builder
from tff_dp.statement import declarations as declarations_lib
from tff_dp.statement import statement as statement_lib

SENTENCES = """
setting.trusted: {trust}; its clients, with their own data: to compute on it what
    they are asked to, and to keep the model of one identity each. They are not
    trusted with clipping: the server clips every update again
setting.adversary: anybody who sees every released model of the run, among them
    the clients. The server is no such party: {stack} hands it the updates one by
    one, and it adds them up without noise
release.covered: the model after every round, and its evaluation on data of others
    than the clients in training
implementation.arithmetic: an exact integer sum of updates that the server has
    clipped in float64; float64 Gaussian noise, not a secure discrete sampler
implementation.generator: NumPy's Philox, which is not cryptographic; each of its
    keys is a keyed BLAKE2b hash
implementation.bad_updates: an update that is not finite or not of the model's
    shape counts as zero, one over the clip norm is scaled; who sent it is in
    secret/clients.jsonl and not released
"""
PROCESS = 'tff_dp itself clips the updates, adds them up and adds the noise'
_NOT_COVERED = 'secret/clients.jsonl, which names clients by their updates'


class Complaint(NamedTuple):
  """A bad or missing reply of a client. Not released: it depends on data.

  Attributes:
    client_id: Id of the client.
    problem: Description in words.
  """

  client_id: str
  problem: str


class ServerRounds:
  """One run of a plan, in its own output directory.

  Attributes:
    plan: The plan.
    rounds_done: Number of finished rounds.
    l2_norm_clip: Clip norm of the next round. The guarantee covers it, because
      it is constant or follows noised bits.
    complaints: Complaints about clients of the last finished round. The
      guarantee does not cover them.
  """

  def __init__(
      self,
      plan: base.Plan,
      initial_model: Mapping[str, np.ndarray],
      *,
      output_dir: str | os.PathLike,
      delta: float,
      stack: str,
      epsilon_budget: float | None = None,
      server_learning_rate: float = 1.0,
      schedule_seed: int = 0,
      declarations: declarations_lib.Declarations | None = None,
      insecure_seed: int | None = None,
  ):
    """Begins a run, or resumes the one in `output_dir`.

    Args:
      plan: Plan with a noise multiplier.
      initial_model: Weights by name, float32 or float64. A resumed run takes
        its checkpoint instead, and only compares names, shapes and types.
      output_dir: Directory that is absent, empty, or holds this very run.
      delta: Target delta, in (0, 0.1]. Choose it below 1 / population.
      stack: Name of the stack that carries the messages, such as 'Flower', for
        the statement.
      epsilon_budget: Budget at `delta`. The round that would exceed it is
        refused. Default: no budget.
      server_learning_rate: Factor of the noised mean before it is added to the
        model.
      schedule_seed: Public seed of the schedule. Must be 0 if secret coins
        decide who takes part.
      declarations: Facts for the statement that only the caller knows. By
        default they say that `secret/clients.jsonl` is not covered.
      insecure_seed: Seed for tests only. Whoever knows it can remove the noise.

    Raises:
      ArgumentError: If a value is not allowed, or if the directory cannot be
        written or belongs to another run.
      PrivacyRefusedError: If the guarantee would break. Example: a run has
        begun, and its checkpoint is missing.
    """
    _check_plan(plan)
    _checks.positive(server_learning_rate=server_learning_rate)
    self._cohorts = systems.of(plan.kind).server_cohorts()(
        plan, schedule_seed=schedule_seed, insecure_seed=insecure_seed
    )
    self.plan = plan
    self._model = _checked_model(initial_model)
    self.rounds_done = 0
    self._is_saved = True
    self.complaints: tuple[Complaint, ...] = ()
    self._delta = delta
    self._stack = stack
    self._learning_rate = float(server_learning_rate)
    self._declarations = _completed(declarations, plan)
    self._is_insecure = insecure_seed is not None
    self._cohort: list[str] | None = None
    # Held while a round begins, while it ends, and while files are written.
    self._lock = threading.Lock()
    self._budget = plan.ledger(epsilon=epsilon_budget, delta=delta)
    self._budget.check(1)
    self._directory = run_directory.RunDirectory(
        output_dir,
        identity={
            'plan': {**plan.describe(), 'fingerprint': plan.fingerprint},
            'program': {
                'delta': delta,
                'epsilon_budget': epsilon_budget,
                'server_learning_rate': self._learning_rate,
                'schedule_seed': schedule_seed,
                'insecure_seed': insecure_seed,
                'stack': stack,
                'draws': noise.probe(),
                'model': [
                    [name, value.dtype.str, list(value.shape)]
                    for name, value in self._model.items()
                ],
            },
        },
        # A stack has no list of its clients beforehand.
        client_ids=[],
    )
    try:
      self._record = write_ahead.WriteAheadRecord(
          self._secret('write_ahead.jsonl'), run_id=self._directory.run_id
      )
      self._cohorts.begin(self._directory.run_id)
      if insecure_seed is None:
        key = coins.random_root_key()
      else:
        key = coins.insecure_root_key(insecure_seed)
      self._noise = noise.initialize(
          plan.mechanism, updates_lib.flat(self._model).size, key=key
      )
      self._clip_norm = clip_norm.ClipNorm(plan.l2_norm_clip)
      # Not used if the clip norm is fixed.
      self._bits_buffers = noise.initialize(plan.mechanism, 1, key=key).buffers
      self._restore()
      # Releases a round whose process was killed after the checkpoint.
      self._record.release(self.rounds_done)
      self._publish()
    except BaseException:
      self._directory.close()
      raise

  @property
  def model(self) -> dict[str, np.ndarray]:
    """A copy of the weights after the last finished round, by name.

    Raises:
      PrivacyRefusedError: If that round is not saved, as on a full disk.
    """
    with self._lock:
      self._check_saved()
      return self._copied_model()

  def _copied_model(self) -> dict[str, np.ndarray]:
    return {name: value.copy() for name, value in self._model.items()}

  @property
  def epsilon(self) -> float:
    """Epsilon at `delta` spent by the rounds that have begun."""
    return self._budget.epsilon_after(self._record.rounds_begun)

  @property
  def l2_norm_clip(self) -> float:
    """Clip norm of the next round, L2. Adaptive clipping changes it each round.

    Raises:
      PrivacyRefusedError: If the last round is not saved, as on a full disk.
    """
    with self._lock:
      self._check_saved()
      return self._clip_norm.l2_norm_clip

  @property
  def clients_needed(self) -> int:
    """Number of connected clients at which a round should begin."""
    return self._cohorts.clients_needed

  @property
  def rounds_left(self) -> int:
    """Number of further rounds that plan and budget allow."""
    return self._budget.rounds_left(self.rounds_done)

  def select(self, client_ids: Iterable[str]) -> list[str]:
    """Charges the next round, and returns its cohort.

    A round that had begun before a restart keeps its first cohort, whoever is
    connected now.

    Args:
      client_ids: Ids of the available clients, in any order. An id must belong
        to one client for the whole run, because participation is counted by id.

    Raises:
      PrivacyRefusedError: If the round already has a cohort, or is beyond the
        plan or the budget, or if the last round is not saved. Also if too few
        clients may take part, if the stored cohort of a round that had begun
        cannot be read, or if the rounds are closed.
      ArgumentError: If an id is not a string that UTF-8 can encode, or if the
        cohort has more than 2^22 clients.
    """
    with self._lock:
      return self._select(client_ids)

  def _select(self, client_ids: Iterable[str]) -> list[str]:
    self._record.check_owner()
    self._check_saved()
    round_index = self.rounds_done + 1
    if self._cohort is not None:
      raise _checks.PrivacyRefusedError(
          f'round {round_index} already has a cohort',
          why='with a second cohort, two releases would have the same noise',
          way_out='finish the round, without updates if none came back',
      )
    self._budget.check(round_index)
    path = self._secret('cohort.json')
    spent = {}
    if round_index <= self._record.rounds_begun:
      cohort = _read_cohort(path)
    else:
      cohort = self._cohorts.select(
          round_index, sorted(_checked_ids(client_ids))
      )
      _checks.integer_between(
          0, updates_lib.MOST_CLIENTS, clients_in_round=len(cohort)
      )
      run_directory.write_json(path, cohort)
      spent = self._budget.record(round_index)
    self._cohorts.commit(cohort, round_index)
    self._record.begin(round_index, cohort, spent=spent)
    self._cohort = cohort
    return list(cohort)

  def finish(
      self, replies: Iterable[tuple[str, Mapping[str, np.ndarray] | None]]
  ) -> dict[str, np.ndarray]:
    """Returns the model of the round, after its checkpoint is on the disk.

    Args:
      replies: Pairs of a client's id and its trained weights, with `None` in
        place of broken weights. The update is the difference from `model`. A
        client that does not reply still counts as a participant, and neither
        noise nor divisor change.

    Raises:
      PrivacyRefusedError: If no cohort was selected, if another thread has
        finished the round while this one waited for replies, or if an earlier
        `finish` could not save its round. Also if the rounds are closed.
    """
    self._record.check_owner()
    cohort = self._cohort
    if cohort is None:
      # Another thread may be about to save the round.
      with self._lock:
        self._check_saved()
      raise _checks.PrivacyRefusedError(
          f'round {self.rounds_done + 1} has no cohort',
          why='no participation in it is counted, and no epsilon charged',
          way_out='call select first',
      )
    before = updates_lib.flat(self._model)
    total, surplus, complaints = self._sum(before, replies, cohort)
    with self._lock:
      # Each round has a list of its own, so this compares rounds.
      if self._cohort is not cohort:
        raise _checks.PrivacyRefusedError(
            'the round of these replies was finished by another thread',
            why='a second release of the round would not be counted',
            way_out='finish each round once, with the replies that are in time',
        )
      self._check_saved()
      return self._finish(before, total, surplus, complaints)

  def _finish(
      self,
      before: np.ndarray,
      total: np.ndarray,
      surplus: int,
      complaints: Sequence[Complaint],
  ) -> dict[str, np.ndarray]:
    """Adds the noise to the sum of the round, and releases the model."""
    self._write_complaints(complaints)
    self.complaints = tuple(complaints)
    clip = self._clip_norm.l2_norm_clip
    self._is_saved = False
    noised = total * updates_lib.grid_step(clip)
    noised += self._noise_of_round(total, surplus)
    mean = noised / self.plan.clients_per_round
    self._model = updates_lib.unflat(
        before + self._learning_rate * mean, self._model
    )
    self.rounds_done += 1
    self._cohort = None
    self._save()
    self._record.release(self.rounds_done)
    self._publish()
    self._is_saved = True
    return self._copied_model()

  def statement(self) -> statement_lib.PrivacyStatement:
    """Returns the statement of the rounds that have begun.

    Also writes it to `release/`, with `report.html`.

    Raises:
      PrivacyRefusedError: If the rounds are closed, or were opened by another
        process.
    """
    with self._lock:
      self._record.check_owner()
      stated = self._write_statement()
      run_directory.write_atomically(
          self._directory.release / run_directory.REPORT, stated.to_html()
      )
      return stated

  def _write_statement(self) -> statement_lib.PrivacyStatement:
    """Writes the statement, and removes a report about fewer rounds."""
    (self._directory.release / run_directory.REPORT).unlink(missing_ok=True)
    begun = self._record.rounds_begun
    stated = self.plan.statement_about(
        builder.Occasion(
            delta=self._delta,
            observed=self._cohorts.observed(begun) if begun else None,
            insecure_seed=self._is_insecure,
            declarations=self._declarations,
            process=PROCESS,
        )
    )
    points = {name: dict(values) for name, values in stated.points.items()}
    own = builder.sentences(
        SENTENCES + self._cohorts.sentences.lstrip(),
        trust=self.plan.trust,
        stack=self._stack,
    )
    for path, sentence in own.items():
      point, _, name = path.partition('.')
      points[point][name] = sentence
    stated = dataclasses.replace(stated, points=points)
    run_directory.write_statement(self._directory.release, stated)
    run_directory.write_json(
        self._directory.release / 'events.json',
        self.plan.events_json(delta=self._delta, num_rounds=begun or None),
    )
    return stated

  def close(self) -> None:
    """Unlocks the directory, so that this or another process can resume.

    Waits until `select`, `finish` and `statement` have returned in other
    threads.
    """
    with self._lock:
      self._record.close()
      self._directory.close()

  def __enter__(self) -> 'ServerRounds':
    return self

  def __exit__(self, *exception_info) -> None:
    self.close()

  def _check_saved(self) -> None:
    if not self._is_saved:
      raise _checks.PrivacyRefusedError(
          'the last round is not saved, or not stated',
          why='a round that is not saved will be run again, perhaps with other'
          ' replies, and would then be released twice; one that is not stated'
          ' is not in the epsilon that others read',
          way_out='make the ServerRounds again with the same arguments; if it'
          ' is at the round before, run the round again with the same clients',
      )

  def _noise_of_round(self, total: np.ndarray, surplus: int) -> np.ndarray:
    """Returns the noise on `total`, and updates the clip norm."""
    plan, before = self.plan, self._noise
    clip = self._clip_norm.l2_norm_clip
    scale = plan.noise_multiplier_by_domain['value'] * clip
    protected = total
    if plan.adaptive_clipping is not None:
      protected = np.append(total, surplus)
    unit_noise, self._noise = noise.next_noise(
        plan.mechanism, before, protected, num_params=len(total)
    )
    if plan.adaptive_clipping is not None:
      bits_noise, bits_state = noise.next_noise(
          plan.mechanism,
          before._replace(buffers=self._bits_buffers),
          protected,
          num_params=1,
          domain=noise.QUANTILE_DOMAIN,
      )
      self._bits_buffers = bits_state.buffers
      self._clip_norm = clip_norm.after_round(
          plan,
          self._clip_norm,
          surplus,
          float(bits_noise[0]),
          rounds_done=self.rounds_done + 1,
      )
    return scale * unit_noise

  def _secret(self, name: str):
    return self._directory.secret / name

  def _sum(
      self,
      before: np.ndarray,
      replies: Iterable[tuple[str, Any]],
      cohort: Sequence[str],
  ) -> tuple[np.ndarray, int, list[Complaint]]:
    """Returns (sum, surplus, complaints).

    The sum of the updates is on the grid, int64. The surplus is the number of
    clients within the clip norm, less the number over it.
    """
    clip, surplus = self._clip_norm.l2_norm_clip, 0
    total = np.zeros(before.size, np.int64)
    waiting, complaints = set(cohort), []
    for client_id, weights in replies:
      if client_id not in waiting:
        complaints.append(Complaint(client_id, 'not asked, or replied twice'))
        continue
      waiting.remove(client_id)
      if not updates_lib.fits(weights, self._model):
        complaints.append(Complaint(client_id, 'not of the shape of the model'))
        continue
      ordered = {name: weights[name] for name in self._model}
      with np.errstate(over='ignore', invalid='ignore'):
        update = updates_lib.flat(ordered) - before
      bounded, problem = updates_lib.clip(update, clip)
      if problem:
        complaints.append(Complaint(client_id, problem))
      total += updates_lib.on_grid(bounded, clip)
      surplus += 1 if updates_lib.is_within(update, clip) else -1
    complaints += [Complaint(each, 'no reply') for each in sorted(waiting)]
    return total, surplus, complaints

  def _write_complaints(self, complaints: Sequence[Complaint]) -> None:
    descriptor = regular.open_file(
        self._secret('clients.jsonl'),
        os.O_WRONLY | os.O_APPEND | os.O_CREAT,
        follow_links=False,
    )
    with open(descriptor, 'a', encoding='utf-8') as file:
      for each in complaints:
        line = {'round': self.rounds_done + 1, **each._asdict()}
        file.write(json.dumps(line) + '\n')

  def _publish(self) -> None:
    """Writes the public files. The model is the last: its round is stated."""
    self._write_statement()
    content = io.BytesIO()
    np.savez(content, **self._model)
    run_directory.write_atomically(
        self._directory.release / 'model.npz', content.getvalue()
    )

  def _save(self) -> None:
    """Saves key, noise, model and cohorts on the disk."""
    state = self._noise
    header = {
        'rounds_done': self.rounds_done,
        'key': state.key.hex(),
        'tree_id': state.tree_id,
        'round_in_tree': state.round_in_tree,
        'digests': [digest.hex() for digest in state.digests],
        'num_buffers': len(state.buffers),
        'clip_norm': self._clip_norm,
    }
    content = io.BytesIO()
    np.savez(
        content,
        header=np.frombuffer(json.dumps(header).encode(), np.uint8),
        cohorts=np.frombuffer(self._cohorts.to_bytes(), np.uint8),
        **{f'model_{i}': v for i, v in enumerate(self._model.values())},
        **{f'buffer_{i}': v for i, v in enumerate(state.buffers)},
        **{f'bits_{i}': v for i, v in enumerate(self._bits_buffers)},
    )
    run_directory.write_atomically(
        self._secret('checkpoint.npz'), content.getvalue()
    )
    run_directory.flush(self._directory.secret)

  def _restore(self) -> None:
    """Loads the checkpoint, or saves the first one before any round."""
    path, record = self._secret('checkpoint.npz'), self._record
    if not path.exists():
      self._refuse_if(record.rounds_begun > 0, 'no checkpoint')
      rollback.check(self._directory, record)
      self._save()
      return
    try:
      self._take(arrays.read(path))
    except _checks.PrivacyRefusedError:
      raise
    except Exception as error:
      raise _checks.PrivacyRefusedError(
          f'the checkpoint {path} cannot be read'
          f' ({type(error).__name__}: {error})',
          why='without the noise key and the participations so far, the run'
          ' cannot go on under its guarantee',
          way_out=f'restore {path} from a copy, or start a new run in another'
          ' directory, whose epsilon adds to the epsilon of this run',
      ) from error
    self._refuse_if(
        not record.released_through <= self.rounds_done <= record.rounds_begun,
        f'a checkpoint of round {self.rounds_done}',
    )
    rollback.check(self._directory, record)
    for round_index in range(1, record.rounds_begun + 1):
      self._budget.record(round_index)

  def _take(self, found: dict[str, np.ndarray]) -> None:
    """Takes the content that `_save` saved. Any error means damage."""
    header = regular.parse_json(found.pop('header').tobytes())
    mechanism = self.plan.mechanism
    for name, most in (
        ('rounds_done', mechanism.num_rounds),
        ('tree_id', mechanism.num_rounds),
        ('round_in_tree', mechanism.rounds_per_tree),
    ):
      _checks.integer_between(0, most, **{name: header[name]})
    self._clip_norm = clip_norm.ClipNorm(*header['clip_norm'])
    _checks.clip_norm(clip_norm=self._clip_norm.l2_norm_clip)
    _checks.in_open(-math.inf, math.inf, bits=self._clip_norm.bits)
    self._cohorts = self._cohorts.restored(found.pop('cohorts').tobytes())
    before, bits_before = self._noise, self._bits_buffers
    expected = {
        **{f'model_{i}': v for i, v in enumerate(self._model.values())},
        **{f'buffer_{i}': v for i, v in enumerate(before.buffers)},
        **{f'bits_{i}': v for i, v in enumerate(bits_before)},
    }
    arrays.check_like(found, expected)
    self._model = {
        name: found[f'model_{i}'] for i, name in enumerate(self._model)
    }
    self._bits_buffers = tuple(
        found[f'bits_{i}'] for i in range(len(bits_before))
    )
    self.rounds_done = header['rounds_done']
    self._noise = noise.NoiseState(
        key=_secret_words(header['key']),
        tree_id=header['tree_id'],
        round_in_tree=header['round_in_tree'],
        digests=tuple(map(_secret_words, header['digests'])),
        buffers=tuple(found[f'buffer_{i}'] for i in range(len(before.buffers))),
    )
    if len(self._noise.digests) != len(before.digests):
      raise ValueError(f'it has {len(self._noise.digests)} digests')

  def _refuse_if(self, is_refused: bool, found: str) -> None:
    if is_refused:
      raise _checks.PrivacyRefusedError(
          f'{self._directory.root} has begun {self._record.rounds_begun} rounds'
          f' and released {self._record.released_through}, but holds {found}',
          why='a released round that is made again, perhaps from other data or'
          ' with other noise, is a second release, but the ledger counts one',
          way_out='restore the directory from a copy, or start a new run in'
          ' another one, whose epsilon adds to the epsilon of this run',
      )


def _read_cohort(path: pathlib.Path) -> list[str]:
  """Returns the cohort of the round that had begun before a restart."""
  try:
    return _checked_ids(regular.read_json(path))
  except (OSError, TypeError, ValueError) as error:
    raise _checks.PrivacyRefusedError(
        f'{path}, the cohort of the round that has begun, cannot be read'
        f' ({type(error).__name__}: {error})',
        why='that cohort may have been asked already; on the data of other'
        ' clients the round would be a second release, and the ledger counts'
        ' one',
        way_out='restore the file from a copy, or start a new run',
    ) from error


def _secret_words(text: str) -> bytes:
  """Returns a key or digest that is stored as hexadecimal digits."""
  words = bytes.fromhex(text)
  if len(words) != coins.KEY_BYTES:
    raise ValueError(
        f'a key or digest has {len(words)} bytes, expected {coins.KEY_BYTES}'
    )
  return words


def _completed(
    declared: declarations_lib.Declarations | None, plan: base.Plan
) -> declarations_lib.Declarations:
  """Returns declarations about the files that servers write."""
  declared = declared or declarations_lib.Declarations()
  population = getattr(plan, 'population', None)
  if population and declared.population not in (None, population):
    raise _checks.ArgumentError(
        'declarations.population',
        declared.population,
        f'{population}, the population of the plan, or None',
    )
  # The default is about files of `program.train`.
  if declared.not_covered == declarations_lib.Declarations.not_covered:
    declared = dataclasses.replace(declared, not_covered=_NOT_COVERED)
  return declared


def _check_plan(plan: Any) -> None:
  if (
      not isinstance(plan, base.Plan)
      or systems.of(plan.kind).server_cohorts is None
  ):
    able = [
        each.plan.name
        for each in systems.all_systems()
        if each.server_cohorts is not None
    ]
    raise _checks.ArgumentError('plan', plan, f'a {" or ".join(able)}')
  if plan.noise_multiplier is None:
    raise _checks.ArgumentError(
        'plan.noise_multiplier',
        None,
        'a number: plan.calibrated(epsilon=..., delta=...) finds one',
    )
  _checks.integer_between(
      1, updates_lib.MOST_CLIENTS, clients_per_round=plan.clients_per_round
  )


def _checked_ids(client_ids: Iterable[str]) -> list[str]:
  ids = list(client_ids)
  for each in ids:
    if not isinstance(each, str):
      raise _checks.ArgumentError(
          'client_ids',
          each,
          f'strings, such as {str(each)!r}, each the id of one client for the'
          ' whole run',
      )
    _checks.client_key(each)
  return ids


def _checked_model(model: Mapping[str, Any]) -> dict[str, np.ndarray]:
  arrays = {str(name): np.array(value) for name, value in model.items()}
  for name, value in arrays.items():
    # Names in the `model.npz` of a run of `program.train`.
    if name.startswith('non_trainable/'):
      raise _checks.ArgumentError(
          f'initial_model[{name!r}]',
          'a frozen weight',
          'trained weights alone, because all get noise here; give each client'
          ' the frozen ones once, as a file',
      )
    if value.dtype.kind != 'f' or not np.all(np.isfinite(value)):
      raise _checks.ArgumentError(
          f'initial_model[{name!r}]', value.dtype.name, 'finite floats'
      )
    # Rounding to 16 bits can move a weight by more than the noised mean does.
    if value.dtype.itemsize < 4:
      raise _checks.ArgumentError(
          f'initial_model[{name!r}]',
          value.dtype.name,
          "float32 or float64, such as value.astype('float32'); clients may"
          ' still train in 16 bits',
      )
  if not any(value.size for value in arrays.values()):
    raise _checks.ArgumentError(
        'initial_model', list(arrays), 'at least one weight'
    )
  return arrays
