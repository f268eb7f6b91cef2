# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""One paragraph about a guarantee for readers who do not know epsilon.

The paragraph says how often a guess about one client can be right at most. This
chance comes from the whole curve of the plan (`accounting.curves.guesses`), and
decides how the paragraph names the level of protection.
"""

from collections.abc import Mapping
import math
from typing import Any

NO_PRIVACY = 'NO PRIVACY'
NOT_VERIFIED = 'NOT VERIFIED'
# Name -> largest chance of a right guess: Phi(mu / 2), rounded down, for Gaussian
# privacy with mu 0.5, 1 and 3. The limits and their names are our own choice.
LEVELS = {'strong': 0.598, 'moderate': 0.691, 'weak': 0.933}
WORST = 'next to none'
_WHOSE = (
    'the limits are the choice of tff_dp: the chances of Gaussian privacy with mu'
    ' 0.5, 1 and 3'
)
# What a client might have done instead, by the neighbouring relation.
_INSTEAD = {
    'zero_out': 'nothing at all',
    'replace_one': 'something else entirely',
}


def level(chance: float) -> str:
  """Returns the level of protection in words, with its thresholds.

  Args:
    chance: Largest chance of a right guess at even odds.
  """
  limits = ', '.join(
      f'{name} up to {100 * most:.1f} %' for name, most in LEVELS.items()
  )
  return f'{name_of(chance)} ({limits}; {_WHOSE})'


def name_of(chance: float) -> str:
  """Returns the level of protection in a word or two.

  Args:
    chance: Largest chance of a right guess at even odds, in [0.5, 1].
  """
  return next(
      (name for name, most in LEVELS.items() if chance <= most), WORST
  )


def paragraph(content: Mapping[str, Any]) -> str:
  """Returns a summary of a privacy statement in a few plain sentences.

  Args:
    content: Result of `PrivacyStatement.to_json`.
  """
  condition = ''
  if not is_void(content) and not is_verified(content):
    condition = ', if a process follows this plan'
  first, *others = sentences(content)
  first = first[0].lower() + first[1:]
  return ' '.join([f'In plain words{condition}: {first}', *others])


def sentences(content: Mapping[str, Any]) -> list[str]:
  """Returns the sentences of `paragraph`, one item for each thought."""
  unit, points = content['unit'], content['points']
  if is_void(content):
    return [
        f'This run protects no {unit}.',
        'Treat what it releases as if the data themselves had been released.',
    ]
  chance = points['guarantee']['right_guesses']
  relation = content['neighboring_relation']
  instead = _INSTEAD.get(relation, f'its neighbour in the sense of {relation}')
  found = [
      'Somebody sees all that this run shows to those whom it'
      f' does not trust, and guesses whether one particular {unit} contributed'
      f' what it did or {instead}. If both are equally likely beforehand, the'
      f' guess is right in at most {percent(chance)} of all cases; 50 % is a'
      ' coin flip.',
      f'That is {name_of(chance)} protection, on the scale of point 7.',
      f'It counts all contributions of {_article(unit)} {unit} to the whole'
      " run, and holds even if everybody else's data are known.",
  ]
  amplification = points['amplification']
  if amplification['claimed'] != 'none':
    found.append(
        'Without the amplification of point 8 it would be at most'
        f' {percent(amplification["right_guesses_without"])}.'
    )
  return found + [
      'Trusted, so that nothing here protects from them:'
      f' {content["trust"]}.',
      f'What is true of many {unit}s can still be learned: that is what the'
      ' model is for.',
  ]


def is_void(content: Mapping[str, Any]) -> bool:
  """Returns whether a statement guarantees nothing."""
  return content['epsilon'] == 'inf' or any(
      warning.startswith(NO_PRIVACY) for warning in content['warnings']
  )


def is_verified(content: Mapping[str, Any]) -> bool:
  """Returns whether the statement lacks the warning NOT VERIFIED.

  The warning says that no process was checked against the plan.

  A statement that guarantees nothing has no such warning.
  """
  return not any(
      warning.startswith(NOT_VERIFIED) for warning in content['warnings']
  )


def _article(noun: str) -> str:
  return 'an' if noun[0] in 'aeiou' else 'a'


def percent(chance: float) -> str:
  """Returns the chance in percent, rounded up."""
  return f'{math.ceil(1e3 * chance) / 10:.1f} %'
