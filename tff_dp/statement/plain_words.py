# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""One paragraph about a guarantee for readers who do not know epsilon.

It says how often a guess about one client can be right. Suppose that (epsilon,
delta) holds between two neighbouring data sets, in both directions. One of the
two is used, at even odds. Somebody sees a release and guesses which one it was.
The guess is right with probability at most

    (exp(epsilon) + delta) / (1 + exp(epsilon)).

Upper bound, attained by the worst pair of distributions. Let P and Q be the
chances of the guess "the first" under the first and the second data set. Then
P <= e^eps Q + delta and 1 - Q <= e^eps (1 - P) + delta. The guess is right with
probability (P + (1 - Q)) / 2, which is largest where both are equalities
(Kairouz et al., arXiv:1311.0776, theorem 2.1).
"""

from collections.abc import Mapping
import math
from typing import Any

from tff_dp.accounting import rounding

NO_PRIVACY = 'NO PRIVACY'
NOT_VERIFIED = 'NOT VERIFIED'
# From here on the bound excludes almost nothing.
_CLOSE_TO_CERTAINTY = 0.99
# What a client might have done instead, by the neighbouring relation.
_INSTEAD = {
    'zero_out': 'nothing at all',
    'replace_one': 'something else entirely',
}


def best_guess(epsilon: float, delta: float) -> float:
  """Returns the largest probability of a right guess at even odds.

  Args:
    epsilon: Epsilon of the guarantee, at least 0. It may be infinite.
    delta: Delta of the guarantee, in [0, 1].
  """
  # exp(epsilon) would overflow.
  share = math.exp(-epsilon)
  return min(1.0, (1.0 + delta * share) / (1.0 + share))


def paragraph(content: Mapping[str, Any]) -> str:
  """Returns a summary of a privacy statement in a few plain sentences.

  Args:
    content: Result of `PrivacyStatement.to_json`.
  """
  unit, delta = content['unit'], content['delta']
  if is_void(content):
    return (
        f'In plain words: this run protects no {unit}. Treat what it releases'
        ' as if the data themselves had been released.'
    )
  chance = best_guess(content['epsilon'], delta)
  relation = content['neighboring_relation']
  instead = _INSTEAD.get(relation, f'its neighbour in the sense of {relation}')
  condition = '' if is_verified(content) else ', if a process follows this plan'
  sentences = [
      f'In plain words{condition}: somebody sees all that this run shows to those whom it'
      f' does not trust, and guesses whether one particular {unit} contributed'
      f' what it did or {instead}. If both are equally likely beforehand, the'
      f' guess is right in at most {_percent(chance)} of all cases; 50 % is a'
      ' coin flip.'
  ]
  if chance > _CLOSE_TO_CERTAINTY:
    sentences.append(
        'That is close to certainty: so large an epsilon promises little.'
    )
  sentences.append(
      f'It counts all contributions of a {unit} to the whole run, and holds'
      " even if everybody else's data are known."
  )
  if content['points']['amplification']['claimed'] != 'none':
    without = rounding.from_json_number(content['epsilon_no_amplification'])
    sentences.append(
        'Without the amplification of point 8 it would be at most'
        f' {_percent(best_guess(without, delta))}.'
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


def _percent(chance: float) -> str:
  """Returns the chance in percent, rounded up."""
  return f'{math.ceil(1e4 * chance) / 100:.2f} %'
