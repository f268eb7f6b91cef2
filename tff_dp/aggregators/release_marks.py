# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Marks on what has its noise, so that a graph shows what it releases.

An aggregator passes each value that has its noise through `Release.mark`, and
nothing else but what only the holder of its noise key could tell from random
bits. The mark is in the graph, with a fingerprint of all that the
guarantee of the noise rests on, as the factory itself holds it. So whoever is
handed a process can find out which noise it adds, and what leaves it without
(`program.certification`). The mark also names the plan whose aggregator it is;
this Python process remembers its latest plans by that name.
"""

import collections
from collections.abc import Mapping
import dataclasses
import hashlib
import json
import re
from typing import Any, Optional

import tensorflow as tf

PREFIX = 'tff_dp_release_'
_COIN = f'{PREFIX}coin'
_NAME = re.compile(
    rf'(?:^|/){PREFIX}([0-9a-f]{{16}})'
    '_(at_clients|in_secure_sum|divided_by_([0-9]+))(?:_of_([0-9a-f]{16}))?'
)
# Fingerprint -> plan; a plan with a large matrix is not kept for ever.
_PLANS = collections.OrderedDict()
_MOST_PLANS = 32


@dataclasses.dataclass(frozen=True)
class Release:
  """What adds noise.

  Attributes:
    fingerprint: 16 hexadecimal digits, equal for equal noise and clipping.
    divisor: What the server divides the noised sum by; `None` where clients add
      the noise.
    in_sum: Whether clients add shares of noise, which protect in a secure sum
      and nowhere else.
    plan: Fingerprint of the plan that it serves, `None` if nobody has said. It
      is no part of the noise: releases that differ in it alone are equal.
  """

  fingerprint: str
  divisor: Optional[int] = None
  in_sum: bool = False
  plan: Optional[str] = dataclasses.field(default=None, compare=False)

  @classmethod
  def of(
      cls,
      facts: Mapping[str, Any],
      *,
      divisor: Optional[int] = None,
      in_sum: bool = False,
      plan: Optional[str] = None,
  ) -> 'Release':
    """Returns the release with these facts, plain JSON types."""
    text = json.dumps(facts, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return cls(digest, divisor, in_sum, plan)

  @classmethod
  def parse(cls, node_name: str) -> Optional['Release']:
    """Returns the release whose mark a node is, `None` for other nodes."""
    found = _NAME.search(node_name)
    if found is None:
      return None
    fingerprint, place, divisor, plan = found.groups()
    return cls(
        fingerprint,
        None if divisor is None else int(divisor),
        place == 'in_secure_sum',
        plan,
    )

  @property
  def at_clients(self) -> bool:
    """Whether clients add the noise, each to its own report."""
    return self.divisor is None

  @property
  def number(self) -> int:
    """The fingerprint as an int64, for states."""
    return int.from_bytes(
        bytes.fromhex(self.fingerprint), 'big', signed=True
    )

  def mark(self, noised: tf.Tensor) -> tf.Tensor:
    """Returns the tensor, marked as one that has the noise."""
    place = f'divided_by_{self.divisor}'
    if self.at_clients:
      place = 'in_secure_sum' if self.in_sum else 'at_clients'
    plan = '' if self.plan is None else f'_of_{self.plan}'
    name = f'{PREFIX}{self.fingerprint}_{place}{plan}'
    return tf.identity(noised, name=name)


def remember(plan: Any) -> None:
  """Lets `plan_of` find a plan in this Python process."""
  _PLANS[plan.fingerprint] = plan
  _PLANS.move_to_end(plan.fingerprint)
  if len(_PLANS) > _MOST_PLANS:
    _PLANS.popitem(last=False)


def plan_of(release: Release) -> Any:
  """Returns the plan that a release serves, `None` if it is not known here."""
  return _PLANS.get(release.plan)


def mark_coin(drawn: tf.Tensor) -> tf.Tensor:
  """Returns what follows from a key of the client and public values, marked.

  Of the client's data it says nothing, so it may leave the client.

  Args:
    drawn: Of a key that serves for nothing else.
  """
  return tf.identity(drawn, name=_COIN)


def is_coin(node_name: str) -> bool:
  """Returns whether a node is what `mark_coin` returned."""
  return node_name.rpartition('/')[2].startswith(_COIN)
