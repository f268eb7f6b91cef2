# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trials that ended: a small JSON each, from which a later run goes on.

A trial is the smallest part of a row that takes long: one method at one epsilon
with one seed, for example. A run has a file for each of its trials, and the
repository a file for each row, with a line for each trial. A trial has

    facts     everything that the numbers depend on
    hours     how long it took, with the attempts that were stopped
    numbers   what the row needs from it

A trial is taken where all facts are the same, and computed where any differs.
A long one may store where it is. In place of numbers it then has

    unfinished    what its computation needs to go on from there

Floats in facts count to six digits, since a calibrated number may end otherwise
on another machine. The code is no fact: a change that moves the numbers of a row
must delete its trials.
"""

from collections.abc import Callable
import dataclasses
import functools
import hashlib
import json
import pathlib
import sys
import time
from typing import Any

from tff_dp.files import run_directory

_DIGITS = 6
# Characters of the hash of the facts, which tells trials of one name apart.
_HASHED = 8


@dataclasses.dataclass(frozen=True)
class Trials:
  """The trials of one run of a row.

  Attributes:
    own: Folder of the trials that this run, or an earlier one with the same
      folder, computed.
    stored: File of the row's trials in the repository. A trial is taken from
      there, or written there as soon as it ends. `None` to repeat all trials.
    is_quiet: Whether to print nothing where a trial is taken.
  """

  own: pathlib.Path
  stored: pathlib.Path | None = None
  is_quiet: bool = True
  _hours: dict[str, float] = dataclasses.field(default_factory=dict)

  @property
  def hours(self) -> float | None:
    """Hours of all trials so far, taken or computed; `None` without any."""
    return sum(self._hours.values()) if self._hours else None

  def trial(
      self,
      name: str,
      facts: dict[str, Any],
      compute: Callable[..., dict[str, Any]],
      *,
      is_shown: bool = True,
      goes_on: bool = False,
  ) -> dict[str, Any]:
    """Returns the numbers of a trial, as JSON types.

    Args:
      name: Name of the trial, for readers. Trials with other facts may have the
        same.
      facts: Everything that the numbers depend on.
      compute: Function that computes the numbers. It is not called if they are
        there.
      is_shown: Whether to say that the trial was taken. False for callers that
        say so themselves.
      goes_on: Whether `compute` goes on from an earlier attempt. It then has two
        arguments: what the attempt stored, or `None`, and a function that
        stores JSON types for a later attempt. Both are `None` without `stored`:
        then the folder of the run decides where it goes on.
    """
    facts = json.loads(json.dumps(rounded(facts)))
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    key = f'{name}_{digest.hexdigest()[:_HASHED]}'
    stored = self._all_stored()
    content = _ended(stored.get(key), facts) or _ended(
        _read(self._own(key)), facts
    )
    if content is None:
      content = self._computed(key, facts, compute, goes_on)
    elif is_shown and not self.is_quiet:
      print(f'{name}: a trial that ended before', file=sys.stderr, flush=True)
    if self.stored is not None and stored.get(key) != content:
      self._store(key, content)
    self._hours[key] = content['hours']
    return content['numbers']

  def _computed(self, key, facts, compute, goes_on) -> dict[str, Any]:
    """Computes a trial and writes it. One that is stopped leaves its hours."""
    stored = self._all_stored().get(key)
    attempts = [
        attempt
        for attempt in (stored, _read(self._own(key)))
        if attempt and attempt['facts'] == facts
    ]
    before = max((attempt['hours'] for attempt in attempts), default=0.0)
    start = time.monotonic()

    def content(**fields):
      hours = before + (time.monotonic() - start) / 3600
      return {'facts': facts, **fields, 'hours': float(f'{hours:.3g}')}

    if goes_on:
      unfinished, save = None, None
      if self.stored is not None:
        if stored in attempts:
          unfinished = stored.get('unfinished')

        def save(found):
          # Unless another run has ended the trial in the meantime.
          if not _ended(self._all_stored().get(key), facts):
            self._store(key, content(unfinished=found))

      compute = functools.partial(compute, unfinished, save)
    numbers = {}
    try:
      # What is returned now is what is read later.
      numbers['numbers'] = json.loads(json.dumps(compute()))
    finally:
      done = content(**numbers)
      _write(self._own(key), done)
    return done

  def _own(self, key: str) -> pathlib.Path:
    return self.own / f'{key}.json'

  def _store(self, key: str, content: dict[str, Any]) -> None:
    # Another run may have stored some in the meantime.
    _write(self.stored, self._all_stored() | {key: content})

  def _all_stored(self) -> dict[str, Any]:
    return (self.stored and _read(self.stored)) or {}


def rounded(value):
  """Returns JSON types with all floats rounded to six digits."""
  if isinstance(value, float):
    return float(f'{value:.{_DIGITS}g}')
  if isinstance(value, dict):
    return {name: rounded(one) for name, one in value.items()}
  if isinstance(value, (list, tuple)):
    return [rounded(one) for one in value]
  return value


def _ended(content: dict[str, Any] | None, facts) -> dict[str, Any] | None:
  """Returns the content of a trial if it ended and has these facts."""
  is_it = content and content['facts'] == facts and 'numbers' in content
  return content if is_it else None


def _read(path: pathlib.Path) -> dict[str, Any] | None:
  return json.loads(path.read_text()) if path.exists() else None


def _write(path: pathlib.Path, content: dict[str, Any]) -> None:
  """Writes a line for each key."""
  path.parent.mkdir(parents=True, exist_ok=True)
  lines = [f'"{key}": {json.dumps(content[key])}' for key in sorted(content)]
  text = '{\n' + ',\n'.join(lines) + '\n}\n'
  run_directory.write_atomically(path, text)
