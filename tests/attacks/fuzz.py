# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Changes bytes at random and hands them to whatever reads bytes of strangers.

  python -m tests.attacks.fuzz --minutes 10                  # every parser
  python -m tests.attacks.fuzz --parser manifest --minutes 10

A parser returns, or ends in an error of ours; anything else is a finding, and so
is one that takes longer than a minute or kills the process. The input of a
finding is written to --findings, to become a test. Not a part of CI.

Half of the inputs come from hypothesis, the other half are seeds in which bytes
were changed, cut out, repeated, or replaced by those of another seed.
"""

import argparse
import faulthandler
import hashlib
import importlib
import pathlib
import random
import signal
import time
import traceback

import hypothesis
from hypothesis import strategies
import numpy as np

# Each has a `TARGETS`: name -> `fuzz_targets_files.Target`.
MODULES = ('fuzz_targets_files', 'fuzz_targets_bundles')
_LONGEST_SECONDS = 60
_BATCH = 200
_INTERESTING = (
    b'', b'\0', b'\xff' * 8, b'\x7f' + b'\xff' * 7, b'NaN', b'1e999', b'-1',
    b'9' * 30, b'null', b'[' * 2000, b'{"":' * 2000, b'\x1b[2J', b'../../',
    '\u202e'.encode(), b'"\\ud800"', b'true', b'0',
)


def targets() -> dict[str, object]:
  """Returns all parsers, by name."""
  found = {}
  for name in MODULES:
    module = importlib.import_module(f'tests.attacks.{name}')
    twice = set(found) & set(module.TARGETS)
    if twice:
      raise ValueError(f'two parsers are called {twice}')
    found |= module.TARGETS
  return found


def changed(rng: random.Random, seeds: list[bytes]) -> bytes:
  """Returns a seed with a few changes."""
  data = bytearray(rng.choice(seeds))
  for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
    start = rng.randrange(len(data) + 1)
    stop = min(len(data), start + rng.choice((1, 1, 2, 8, 64, 1000)))
    kind = rng.randrange(6)
    if kind == 0 and start < len(data):
      data[start] ^= 1 << rng.randrange(8)
    elif kind == 1:
      data[start:stop] = rng.randbytes(stop - start)
    elif kind == 2:
      del data[start:stop]
    elif kind == 3:
      data[start:start] = data[start:stop] * rng.choice((1, 2, 50))
    elif kind == 4:
      data[start:stop] = rng.choice(_INTERESTING)
    else:
      other = rng.choice(seeds)
      place = rng.randrange(len(other) + 1)
      data[start:stop] = other[place : place + rng.choice((1, 8, 64, 1000))]
  return bytes(data)


class Finding(Exception):
  """A parser that did what none may do."""


def _late(*_):
  raise Finding(f'not done after {_LONGEST_SECONDS} seconds')


def tried(target, data: bytes) -> str:
  """Returns what a parser did that none may do, '' if it did nothing such."""
  signal.signal(signal.SIGALRM, _late)
  signal.alarm(_LONGEST_SECONDS)
  try:
    target.read(data)
    return ''
  except Exception:  # pylint: disable=broad-exception-caught
    return traceback.format_exc()
  finally:
    signal.alarm(0)


def run(
    name: str, target, *, seconds: float, seed: int, folder: pathlib.Path
) -> tuple[int, dict[str, bytes]]:
  """Returns how many inputs a parser got, and a finding for each kind.

  Args:
    name: Of the parser.
    target: The parser.
    seconds: How long.
    seed: Of the random numbers.
    folder: The last input stands there, in case that it kills the process.
  """
  rng, found, num = random.Random(f'{name} {seed}'), {}, 0
  last, end = folder / f'{name}.last', time.monotonic() + seconds
  seeds = target.seeds()
  for each in seeds:
    if said := tried(target, each):
      raise ValueError(f'{name} does not read what we write: {said}')

  def look(data: bytes) -> None:
    nonlocal num
    num += 1
    last.write_bytes(data)
    if said := tried(target, data):
      # The place where it was raised tells kinds apart.
      found.setdefault(said[-300:], data)

  def look_in_time(data: bytes) -> None:
    if time.monotonic() < end:
      look(data)

  inputs = strategies.one_of(
      strategies.binary(max_size=500),
      strategies.text(max_size=200).map(lambda t: t.encode('utf-8', 'replace')),
  )
  while time.monotonic() < end:
    for _ in range(_BATCH):
      if time.monotonic() > end:
        break
      look(changed(rng, seeds))
    hypothesis.seed(rng.randrange(2**32))(
        hypothesis.settings(
            max_examples=_BATCH // 4,
            deadline=None,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )(hypothesis.given(inputs)(look_in_time))
    )()
  last.unlink()
  return num, found


def main() -> int:
  """Runs the parsers that are named; returns 1 if there are findings."""
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  known = targets()
  parser.add_argument('--parser', choices=sorted(known), action='append')
  parser.add_argument('--minutes', type=float, default=10.0, help='for each')
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--findings', type=pathlib.Path, default='fuzz_findings')
  arguments = parser.parse_args()
  faulthandler.enable()
  arguments.findings.mkdir(exist_ok=True)
  np.seterr(all='ignore')
  has_findings = False
  for name in arguments.parser or sorted(known):
    num, found = run(
        name,
        known[name],
        seconds=arguments.minutes * 60,
        seed=arguments.seed,
        folder=arguments.findings,
    )
    print(f'{name}: {num} inputs, {len(found)} findings', flush=True)
    for said, data in found.items():
      has_findings = True
      digest = hashlib.sha256(data).hexdigest()[:12]
      path = arguments.findings / f'{name}_{digest}'
      path.write_bytes(data)
      print(f'  {path}: {said.strip()}', flush=True)
  return int(has_findings)


if __name__ == '__main__':
  raise SystemExit(main())
