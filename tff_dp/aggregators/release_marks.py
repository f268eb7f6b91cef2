# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Marks on noised values, so that a graph shows which noise protects it.

An aggregator passes each noised value through `Release.mark`. It marks one
other kind of value: a value that looks like random bits to anyone without the
noise key. The mark is in the graph. It has a fingerprint of all facts that the
guarantee of the noise rests on, taken from the fields of the factory. So
`program.certification` can inspect a process and find out which noise it adds,
and which values leave without noise. The mark also names the plan of the
aggregator. This Python process remembers its latest plans by that name.
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
# Fingerprint -> plan. Old plans are dropped, because a plan may hold a large
# matrix.
_PLANS = collections.OrderedDict()
_MOST_PLANS = 32


@dataclasses.dataclass(frozen=True)
class Release:
  """The noise that an aggregator adds.

  Attributes:
    fingerprint: 16 hexadecimal digits, equal for equal noise and clipping.
    divisor: Number by which the server divides the noised sum, `None` if
      clients add the noise.
    in_sum: Whether clients add shares of noise, which protect only inside a
      secure sum.
    plan: Fingerprint of the plan that the release serves, `None` if unknown. It
      is not part of the noise: releases that differ only in it are equal.
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
    """Returns the release of the noise that some facts describe.

    Args:
      facts: Facts about noise and clipping, in plain JSON types. Their hash is
        the fingerprint.
      divisor: Divisor of the noised sum, see the class.
      in_sum: Whether clients add shares of noise, see the class.
      plan: Fingerprint of the plan, see the class.
    """
    text = json.dumps(facts, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return cls(digest, divisor, in_sum, plan)

  @classmethod
  def parse(cls, node_name: str) -> Optional['Release']:
    """Returns the release that a node is marked with, `None` for other nodes.
    """
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
    """Returns the tensor, marked as noised."""
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
  """Marks a coin: a value made only from public values and a client's key.

  A coin does not depend on the client's data, so it may leave the client.

  Args:
    drawn: The coin. Its key must be used for nothing else.
  """
  return tf.identity(drawn, name=_COIN)


def is_coin(node_name: str) -> bool:
  """Returns whether a node is a result of `mark_coin`."""
  return node_name.rpartition('/')[2].startswith(_COIN)
