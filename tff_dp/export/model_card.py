# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The model card of a bundle: content, guarantee and absent parts."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tff_dp.accounting import rounding
from tff_dp.statement import plain_words

_LEFT_OUT = """## What is in no file

The state of the aggregator (it holds the noise key and what is remembered of
noise), checkpoints, sums without noise, metrics, and anything of a client.
"""
_CHECK = """## How to check it

    tff-dp export --verify DIRECTORY

reads all files, recomputes epsilon from `events.json`, and compares weights and
digests. It runs nothing. With `--run`, it then runs a copy in a process of its
own, and measures the noise. Neither needs a network.
"""


def render(
    statement: Mapping[str, Any],
    *,
    weights: Mapping[str, np.ndarray],
    rounds: int,
    absent: Mapping[str, str],
    odp: str | None,
) -> str:
  """Returns the card as Markdown, the same for the same arguments.

  Args:
    statement: Result of `PrivacyStatement.to_json`.
    weights: Weights of the model, by name.
    rounds: Number of rounds that are accounted for.
    absent: Part that the bundle lacks -> reason.
    odp: Sentences about the accounting of On-Device Personalization, `None`
      without a configuration.
  """
  size = sum(value.size for value in weights.values())
  epsilon = rounding.from_json_number(statement['epsilon'])
  guarantee = 'NO PRIVACY'
  if not plain_words.is_void(statement):
    guarantee = (
        f'epsilon {rounding.rounded_up(epsilon)} at delta'
        f' {rounding.short(statement["delta"])} for one {statement["unit"]},'
        f' {statement["neighboring_relation"]} adjacency'
    )
  lines = [
      '# Model card',
      '',
      f'- Trained by a plan of the kind `{statement["kind"]}`, {rounds} rounds.',
      f'- {len(weights)} tensors, {size} numbers.',
      f'- Guarantee: {guarantee}.',
      f'- Trusted: {statement["trust"]}.',
      '',
      plain_words.paragraph(statement),
      '',
      'All of it is in `privacy_statement.md`.',
      '',
      '## Not known to tff_dp',
      '',
      'Intended use, training population, quality and fairness: whoever trained'
      ' the model adds them, beside this directory. In it, a changed card is a'
      ' changed file.',
      '',
      _LEFT_OUT,
  ]
  if absent:
    lines += ['## What this bundle does not have', '']
    lines += [f'- `{name}`: {reason}.' for name, reason in absent.items()]
    lines += ['']
  if odp is not None:
    lines += ['## On-Device Personalization', '', odp, '']
  return '\n'.join([*lines, _CHECK])
