# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The participation ledger: who took part when, and who still may.

The accountant assumes a participation pattern. The ledger enforces it: before a
cohort is chosen, it says who is eligible, and before data is read, it refuses a
cohort that breaks the pattern. A client counts as a participant as soon as it
is selected, whether or not it reports. That errs on the private side.

Clients are stored as salted hashes only. The ledger is still sensitive: it
belongs to the checkpoint, and is never released.
"""

from collections.abc import Iterable, Sequence
import dataclasses
import hashlib
import json
import os
from typing import Any

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.files import regular

_MAGIC = b'tff_dp participation ledger, version 3\n'
# 128 bits. Two clients whose hashes collide share one entry, so both are
# limited as if they were one: privacy does not suffer.
_KEY_BYTES = 16
_CHECKSUM_BYTES = 32
_NEVER_SEEN = -1


def _damaged() -> _checks.PrivacyRefusedError:
  return _checks.PrivacyRefusedError(
      'the participation ledger is damaged or of an unknown version',
      why='without the participations so far, the next rounds cannot be'
      ' checked against the plan',
      way_out='restore the checkpoint from a copy, or start a new run',
  )


def _check_header(header: dict[str, Any]) -> None:
  """Raises an error unless the fields of the header have the right types.

  Their values are checked later.
  """
  for name in (
      'num_rounds', 'num_clients', 'smallest_cohort', 'largest_cohort'
  ):
    _checks.integer_at_least(0, **{name: header[name]})
  _checks.optional_integer_at_least(1, min_index_gap=header['min_index_gap'])
  bytes.fromhex(header['salt'])


@dataclasses.dataclass(frozen=True)
class Observed:
  """The realised participation, counted at selection. Informational.

  The guarantee rests on the enforced limits, not on these numbers.

  Attributes:
    num_rounds: Number of committed rounds.
    num_clients: Number of clients that took part at least once.
    min_index_gap: Smallest difference of the indices of two rounds of one
      client, `None` if no client took part twice.
    max_participations: Largest number of participations of one client.
    smallest_cohort: Number of clients in the smallest committed cohort, 0
      before round 1.
    largest_cohort: Number of clients in the largest committed cohort.
  """

  num_rounds: int
  num_clients: int
  min_index_gap: int | None
  max_participations: int
  smallest_cohort: int
  largest_cohort: int

  # Anything that the limits did not allow was refused, so there is nothing to
  # warn about.
  warning = None

  @property
  def sentence(self) -> str:
    """Sentence about the participation for a privacy statement."""
    text = (
        f'{self.num_clients} clients in {self.num_rounds} rounds, at most'
        f' {self.max_participations} times each'
    )
    if self.min_index_gap is None:
      return text + ', none twice'
    return text + (
        f', index gap at least {self.min_index_gap}'
        f' ({self.min_rounds_between} rounds strictly between)'
    )

  @property
  def min_rounds_between(self) -> int | None:
    """Smallest number of rounds strictly between two rounds of one client."""
    return None if self.min_index_gap is None else self.min_index_gap - 1


class ParticipationLedger:
  """Enforces a participation pattern, round by round.

  Rounds are committed in order, 1, 2, 3, ... A round without clients is
  committed with an empty cohort, so that the ledger and the noise mechanism
  agree about the index of a round.
  """

  def __init__(
      self,
      pattern: patterns.ParticipationPattern,
      *,
      restart_every: int | None = None,
      run_id: str | None = None,
      salt: bytes | None = None,
  ):
    """Creates the empty ledger of a run.

    Args:
      pattern: Participation pattern that the accountant assumes for every
        client.
      restart_every: Number of rounds per noise tree, `None` for one tree. It
        must equal `restart_every` of the noise mechanism.
      run_id: Name of the run. A saved ledger cannot be loaded into another run.
        `None` draws a fresh name.
      salt: Secret bytes mixed into the hash of client ids. `None` draws fresh
        bytes. Give a salt only in tests.
    """
    _checks.optional_integer_at_least(1, restart_every=restart_every)
    self._pattern = pattern
    self._restart_every = restart_every
    self._rules = patterns.rules_of(pattern, restart_every)
    self._run_id = os.urandom(16).hex() if run_id is None else str(run_id)
    self._salt = os.urandom(16) if salt is None else bytes(salt)
    self._num_rounds = 0
    self._min_index_gap: int | None = None
    self._smallest_cohort = 0
    self._largest_cohort = 0
    # Entry i belongs to the i-th key. The arrays have room to grow.
    self._index_of_key: dict[bytes, int] = {}
    self._last_round = np.zeros(0, np.int32)
    self._count = np.zeros(0, np.int32)
    # Hashing 100,000 ids per round would dominate. Cache the results, in memory
    # only.
    self._index_of_id: dict[bytes, int] = {}
    # The clients whom `standing` was asked about, and their entries.
    self._population: tuple[list, np.ndarray] = ([], np.zeros(0, np.int64))

  @property
  def pattern(self) -> patterns.ParticipationPattern:
    """Participation pattern that the ledger enforces."""
    return self._pattern

  @property
  def limits(self) -> patterns.ParticipationLimits:
    """Limits of a client over the whole run, restarts included."""
    return self._pattern.limits(restart_every=self._restart_every)

  @property
  def num_rounds(self) -> int:
    """Number of committed rounds. This plus 1 is the index of the next round.
    """
    return self._num_rounds

  def eligible(self, client_ids: Iterable[str], round_index: int) -> list:
    """Returns the clients that may take part in the round, in the given order.

    Args:
      client_ids: Ids as `str` or `bytes`, where 'a' and b'a' are the same
        client.
      round_index: Index of the round, 1-based, after all committed rounds.

    Raises:
      PrivacyRefusedError: If the round is committed already, or beyond the
        plan.
    """
    self._check_round(round_index)
    client_ids = list(client_ids)
    is_eligible, _ = self._standing(self._look_up(client_ids), round_index)
    return [client_ids[i] for i in np.flatnonzero(is_eligible)]

  def standing(
      self, client_ids: Iterable[str], round_index: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns (whether each client may take part, its past participations).

    This is for a whole population, round after round. If the clients are the
    same as in the last call, only the clients that had never come are looked up
    again.

    Args:
      client_ids: Ids, see `eligible`.
      round_index: Index of the round, see `eligible`.

    Returns:
      Booleans and numbers, shape [number of clients] each.

    Raises:
      PrivacyRefusedError: As for `eligible`.
    """
    self._check_round(round_index)
    client_ids = list(client_ids)
    known, entries = self._population
    # Quick: the same strings are not compared letter by letter.
    if client_ids != known:
      entries = np.full(len(client_ids), _NEVER_SEEN)
      self._population = client_ids, entries
    unseen = np.flatnonzero(entries == _NEVER_SEEN)
    entries[unseen] = self._look_up([client_ids[i] for i in unseen])
    return self._standing(entries, round_index)

  def num_participations(self, client_ids: Iterable[str]) -> list[int]:
    """Returns the number of committed rounds of each client."""
    _, count = self._history(self._look_up(list(client_ids)))
    return count.tolist()

  def fewest_participations(self, num_clients: int) -> int:
    """Returns the smallest number of participations of any client.

    Clients that never took part count, too.

    Args:
      num_clients: Size of the population.
    """
    num_seen = len(self._index_of_key)
    if num_seen < max(num_clients, 1):
      return 0
    return int(self._count[:num_seen].min())

  def commit(self, client_ids: Iterable[str], round_index: int) -> None:
    """Counts the cohort of a round, or refuses it and changes nothing.

    Args:
      client_ids: Selected clients, possibly none.
      round_index: Index of the round after the last committed one, 1-based.

    Raises:
      ArgumentError: If `client_ids` is a single id.
      PrivacyRefusedError: If the cohort breaks the pattern or names a client
        twice, or if the round is not the next one of the plan.
    """
    self._check_round(round_index)
    if round_index != self._num_rounds + 1:
      raise _checks.PrivacyRefusedError(
          f'round {round_index} cannot be committed after round'
          f' {self._num_rounds}',
          why='ledger and noise mechanism count rounds without gaps; a ledger'
          ' that has not seen the earlier rounds would let their clients come'
          ' again too soon',
          way_out='if there were earlier rounds, load the ledger that was'
          ' stored with their model: ledger = ledger.restored(data).'
          ' tff_dp.program.Loop stores both together',
      )
    if isinstance(client_ids, (str, bytes)):
      raise _checks.ArgumentError(
          'client_ids',
          client_ids,
          'a list of ids; the letters of one id would count as clients',
          way_out='[client_id], a list with one id',
      )
    client_ids = list(client_ids)
    indices = self._look_up(client_ids)
    self._check_duplicates(client_ids, indices, round_index)
    last_round, count = self._history(indices)
    for rule in self._rules:
      num_breaking = int(rule.breaks(round_index, last_round, count).sum())
      if num_breaking:
        raise _checks.PrivacyRefusedError(
            f'round {round_index}: {num_breaking} of {len(client_ids)} selected'
            f' clients {rule.problem}',
            why=rule.why,
            way_out='choose the cohort among loop.eligible() of a'
            ' tff_dp.program.Loop, or among ledger.eligible(client_ids,'
            f' {round_index})',
        )
    self._count_cohort(client_ids, indices, last_round, round_index)

  def observed(self) -> Observed:
    """Returns the realised participation of the committed rounds."""
    num_clients = len(self._index_of_key)
    return Observed(
        num_rounds=self._num_rounds,
        num_clients=num_clients,
        min_index_gap=self._min_index_gap,
        max_participations=int(self._count[:num_clients].max(initial=0)),
        smallest_cohort=self._smallest_cohort,
        largest_cohort=self._largest_cohort,
    )

  def to_bytes(self) -> bytes:
    """Returns the ledger as bytes. Equal ledgers give equal bytes."""
    num_clients = len(self._index_of_key)
    header = {
        'run_id': self._run_id,
        'pattern': self._pattern.to_json(),
        'restart_every': self._restart_every,
        'salt': self._salt.hex(),
        'num_rounds': self._num_rounds,
        'num_clients': num_clients,
        'min_index_gap': self._min_index_gap,
        'smallest_cohort': self._smallest_cohort,
        'largest_cohort': self._largest_cohort,
    }
    body = b''.join((
        json.dumps(header, sort_keys=True).encode(),
        b'\n',
        b''.join(self._index_of_key),
        self._last_round[:num_clients].astype('<i4').tobytes(),
        self._count[:num_clients].astype('<i4').tobytes(),
    ))
    return _MAGIC + hashlib.sha256(body).digest() + body

  def restored(self, data: bytes) -> 'ParticipationLedger':
    """Returns the ledger that `to_bytes` saved, for the same run and plan.

    Raises:
      PrivacyRefusedError: If the bytes are damaged, or belong to another run or
        to a plan with another participation pattern or other trees.
    """
    start = len(_MAGIC) + _CHECKSUM_BYTES
    body = data[start:]
    checksum = data[len(_MAGIC) : start]
    if (
        not data.startswith(_MAGIC)
        or hashlib.sha256(body).digest() != checksum
    ):
      raise _damaged()
    header_line, _, content = body.partition(b'\n')
    try:
      header = regular.parse_json(header_line)
      _check_header(header)
    except (KeyError, TypeError, ValueError) as error:
      raise _damaged() from error
    expected = {
        'run_id': self._run_id,
        'pattern': self._pattern.to_json(),
        'restart_every': self._restart_every,
    }
    for name, value in expected.items():
      if header.get(name) != value:
        raise _checks.PrivacyRefusedError(
            f'the participation ledger has {name}='
            f'{_checks.shown(header.get(name))}, but the run has'
            f' {name}={value!r}',
            why='a ledger counts the participations of one run of one plan',
            way_out='resume with the plan of the checkpoint, or start a new'
            ' run',
        )
    ledger = type(self)(
        self._pattern,
        restart_every=self._restart_every,
        run_id=self._run_id,
        salt=bytes.fromhex(header['salt']),
    )
    try:
      ledger._load(header, content)
    except (IndexError, ValueError) as error:
      raise _damaged() from error
    return ledger

  def _load(self, header: dict[str, Any], content: bytes) -> None:
    num_clients = header['num_clients']
    # Before anything of this size is made.
    if num_clients * (_KEY_BYTES + 8) != len(content):
      raise ValueError('another number of clients than stated')
    keys = content[: num_clients * _KEY_BYTES]
    counts = np.frombuffer(
        content, '<i4', count=2 * num_clients, offset=len(keys)
    ).astype(np.int32)
    self._index_of_key = {
        keys[i * _KEY_BYTES : (i + 1) * _KEY_BYTES]: i
        for i in range(num_clients)
    }
    self._last_round = counts[:num_clients].copy()
    self._count = counts[num_clients:].copy()
    self._num_rounds = header['num_rounds']
    self._min_index_gap = header['min_index_gap']
    self._smallest_cohort = header['smallest_cohort']
    self._largest_cohort = header['largest_cohort']
    self._check_loaded(num_clients)

  def _check_loaded(self, num_clients: int) -> None:
    """Raises an error if no ledger can have saved the loaded values."""
    rounds, counts = self._last_round, self._count
    is_sound = (
        len(self._index_of_key) == len(rounds) == len(counts) == num_clients
        and np.all((1 <= counts) & (counts <= rounds))
        and np.all(rounds <= self._num_rounds)
        and self._num_rounds <= self._pattern.num_rounds
    )
    if not is_sound:
      raise ValueError('the parts do not belong together')

  def _check_round(self, round_index: int) -> None:
    _checks.integer_at_least(1, round_index=round_index)
    if round_index <= self._num_rounds:
      raise _checks.PrivacyRefusedError(
          f'round {round_index} is already committed, like all rounds up to'
          f' {self._num_rounds}',
          why='a round takes place once; repeating it after its release would'
          ' reuse its noise',
          way_out=f'commit round {self._num_rounds + 1} to continue this run;'
          ' a new run needs a new ledger and a new process.initialize()',
      )
    if round_index > self._pattern.num_rounds:
      raise _checks.PrivacyRefusedError(
          f'round {round_index} is beyond the plan of'
          f' {self._pattern.num_rounds} rounds',
          why='the noise was chosen for the planned number of rounds',
          way_out='plan the run with more rounds from the start; or begin'
          ' a new run with a new ledger, whose epsilon adds to the epsilon of'
          ' this run',
      )

  def _check_duplicates(
      self, client_ids: Sequence, indices: np.ndarray, round_index: int
  ) -> None:
    known = indices[indices != _NEVER_SEEN]
    new = {
        self._key(_checks.client_key(client_ids[i]))
        for i in np.flatnonzero(indices == _NEVER_SEEN)
    }
    num_distinct = len(np.unique(known)) + len(new)
    if num_distinct != len(client_ids):
      raise _checks.PrivacyRefusedError(
          f'round {round_index}: {len(client_ids)} selected clients are only'
          f' {num_distinct} different ones',
          why='a client that counts twice in a round moves the sum by two clip'
          ' norms',
          way_out='choose the cohort without replacement',
      )

  def _count_cohort(
      self,
      client_ids: Sequence,
      indices: np.ndarray,
      last_round: np.ndarray,
      round_index: int,
  ) -> None:
    for i in np.flatnonzero(indices == _NEVER_SEEN):
      encoded = _checks.client_key(client_ids[i])
      indices[i] = len(self._index_of_key)
      self._index_of_key[self._key(encoded)] = int(indices[i])
      self._index_of_id[encoded] = int(indices[i])
    missing = len(self._index_of_key) - len(self._count)
    if missing > 0:
      growth = max(missing, len(self._count), 1024)
      self._last_round = np.pad(self._last_round, (0, growth))
      self._count = np.pad(self._count, (0, growth))
    gaps = round_index - last_round[last_round > 0]
    if gaps.size:
      smallest = int(gaps.min())
      if self._min_index_gap is None or smallest < self._min_index_gap:
        self._min_index_gap = smallest
    self._last_round[indices] = round_index
    self._count[indices] += 1
    size = len(client_ids)
    is_first = self._num_rounds == 0
    self._smallest_cohort = (
        size if is_first else min(size, self._smallest_cohort)
    )
    self._largest_cohort = max(size, self._largest_cohort)
    self._num_rounds = int(round_index)

  def _look_up(self, client_ids: Sequence) -> np.ndarray:
    """Returns the entry of each client, or `_NEVER_SEEN`."""
    indices = np.empty(len(client_ids), np.int64)
    cache = self._index_of_id
    for i, client_id in enumerate(client_ids):
      encoded = _checks.client_key(client_id)
      index = cache.get(encoded)
      if index is None:
        index = self._index_of_key.get(self._key(encoded), _NEVER_SEEN)
        cache[encoded] = index
      indices[i] = index
    return indices

  def _standing(
      self, indices: np.ndarray, round_index: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns (whether each client may take part, its past participations)."""
    last_round, count = self._history(indices)
    is_eligible = np.ones(len(indices), bool)
    for rule in self._rules:
      is_eligible &= ~rule.breaks(round_index, last_round, count)
    return is_eligible, count

  def _history(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (last rounds, counts), both 0 for clients never seen."""
    last_round = np.zeros(len(indices), np.int64)
    count = np.zeros(len(indices), np.int64)
    is_known = indices != _NEVER_SEEN
    last_round[is_known] = self._last_round[indices[is_known]]
    count[is_known] = self._count[indices[is_known]]
    return last_round, count

  def _key(self, encoded: bytes) -> bytes:
    return hashlib.sha256(self._salt + encoded).digest()[:_KEY_BYTES]
