# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""One paragraph about a guarantee for readers who do not know epsilon.

It says how often a guess about one client can be right, by the whole curve of
the plan (`accounting.curves.guesses`), and gives that a name.
"""

from collections.abc import Mapping
import math
from typing import Any

NO_PRIVACY = 'NO PRIVACY'
NOT_VERIFIED = 'NOT VERIFIED'
# Name -> largest chance of a right guess: Phi(mu / 2), rounded down, for Gaussian
# privacy with mu 0.5, 1 and 3. The limits and their names are our own choice.
_LEVELS = {'strong': 0.598, 'moderate': 0.691, 'weak': 0.933}
_WORST = 'next to none'
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
      f'{name} up to {100 * most:.1f} %' for name, most in _LEVELS.items()
  )
  return f'{_name(chance)} ({limits}; {_WHOSE})'


def _name(chance: float) -> str:
  return next(
      (name for name, most in _LEVELS.items() if chance <= most), _WORST
  )


def paragraph(content: Mapping[str, Any]) -> str:
  """Returns a summary of a privacy statement in a few plain sentences.

  Args:
    content: Result of `PrivacyStatement.to_json`.
  """
  unit, points = content['unit'], content['points']
  if is_void(content):
    return (
        f'In plain words: this run protects no {unit}. Treat what it releases'
        ' as if the data themselves had been released.'
    )
  chance = points['guarantee']['right_guesses']
  relation = content['neighboring_relation']
  instead = _INSTEAD.get(relation, f'its neighbour in the sense of {relation}')
  condition = '' if is_verified(content) else ', if a process follows this plan'
  sentences = [
      f'In plain words{condition}: somebody sees all that this run shows to those whom it'
      f' does not trust, and guesses whether one particular {unit} contributed'
      f' what it did or {instead}. If both are equally likely beforehand, the'
      f' guess is right in at most {_percent(chance)} of all cases; 50 % is a'
      f' coin flip. That is {_name(chance)} protection, on the scale of point 7.',
      f'It counts all contributions of {_article(unit)} {unit} to the whole'
      " run, and holds even if everybody else's data are known.",
  ]
  amplification = points['amplification']
  if amplification['claimed'] != 'none':
    sentences.append(
        'Without the amplification of point 8 it would be at most'
        f' {_percent(amplification["right_guesses_without"])}.'
    )
  sentences += [
      'Trusted, so that nothing here protects from them:'
      f' {content["trust"]}.',
      f'What is true of many {unit}s can still be learned: that is what the'
      ' model is for.',
  ]
  return ' '.join(sentences)


def is_void(content: Mapping[str, Any]) -> bool:
  """Returns whether a statement guarantees nothing."""
  return content['epsilon'] == 'inf' or any(
      warning.startswith(NO_PRIVACY) for warning in content['warnings']
  )


def is_verified(content: Mapping[str, Any]) -> bool:
  """Returns whether the process of a statement was checked."""
  return not any(
      warning.startswith(NOT_VERIFIED) for warning in content['warnings']
  )


def _article(noun: str) -> str:
  return 'an' if noun[0] in 'aeiou' else 'a'


def _percent(chance: float) -> str:
  """Returns the chance in percent, rounded up."""
  return f'{math.ceil(1e3 * chance) / 10:.1f} %'
