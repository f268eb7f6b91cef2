# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a server of Draw and Discard may do with a model that comes back.

B_1..B_k are the models of the server, i the one that the client was given, and
"new" what it returned. Clients and privacy are the same for all of these.

| strategy | models | when `new` arrives |
|---|---|---|
| draw_and_discard | k | B_j = new, j uniform and independent of i |
| same | k | B_i = new: k lineages that never meet; their spread grows |
| average_random | k | B_j = (new + B_j) / 2, j uniform |
| average_same | k | B_i = (new + B_i) / 2: half of the step |
| accept_1_over_k | 1 | B = new with probability 1/k, else nothing |
| server_batch | 1 | after N updates B moves by their mean |

For `same` and `average_same` the client says which instance it had. The others
do not ask; but plain `tff.federated_select` may show it to the server.

Source: arXiv:1807.04369, sections 3 and 5.
"""

import dataclasses
from typing import Optional

from tff_dp import _checks

DRAW_AND_DISCARD = 'draw_and_discard'
SAME = 'same'
AVERAGE_RANDOM = 'average_random'
AVERAGE_SAME = 'average_same'
ACCEPT = 'accept_1_over_k'
SERVER_BATCH = 'server_batch'
NAMES = (
    DRAW_AND_DISCARD,
    SAME,
    AVERAGE_RANDOM,
    AVERAGE_SAME,
    ACCEPT,
    SERVER_BATCH,
)
BATCH_UNITS = ('client_updates', 'examples')


@dataclasses.dataclass(frozen=True)
class Strategy:
  """A strategy with its numbers.

  Attributes:
    name: One of `NAMES`.
    num_instances: k.
    updates_per_batch: N of `server_batch`, else `None`.
  """

  name: str
  num_instances: int
  updates_per_batch: Optional[int] = None

  def __post_init__(self):
    _checks.one_of(NAMES, strategy=self.name)
    _checks.integer_at_least(1, num_instances=self.num_instances)
    if self.name == SERVER_BATCH:
      if self.num_instances != 1:
        raise _checks.ArgumentError(
            'num_instances',
            self.num_instances,
            f"1, as strategy='{SERVER_BATCH}' has one model",
        )
      _checks.integer_at_least(1, server_batch=self.updates_per_batch)
    elif self.updates_per_batch is not None:
      raise _checks.ArgumentError(
          'server_batch',
          self.updates_per_batch,
          f"None unless strategy='{SERVER_BATCH}'",
      )

  @property
  def num_models(self) -> int:
    """Returns how many models the server has."""
    has_one = self.name in (ACCEPT, SERVER_BATCH)
    return 1 if has_one else self.num_instances

  @property
  def needs_drawn(self) -> bool:
    """Returns whether clients say which instance they had."""
    return self.name in (SAME, AVERAGE_SAME)

  @property
  def averages(self) -> bool:
    return self.name in (AVERAGE_RANDOM, AVERAGE_SAME)


def updates_per_batch(
    server_batch: Optional[int],
    batch_unit: str,
    examples_per_client: Optional[int],
) -> Optional[int]:
  """Returns N of `server_batch` in client updates.

  Args:
    server_batch: Its size in `batch_unit`, or `None`.
    batch_unit: 'client_updates' or 'examples'.
    examples_per_client: For 'examples': how many every client has, a public
      constant. Counts that clients report would not be protected.

  Raises:
    ArgumentError: If the batch is no whole number of clients.
  """
  _checks.one_of(BATCH_UNITS, batch_unit=batch_unit)
  if server_batch is not None:
    _checks.integer_at_least(1, server_batch=server_batch)
  if batch_unit == 'client_updates':
    if examples_per_client is not None:
      raise _checks.ArgumentError(
          'examples_per_client',
          examples_per_client,
          "None unless batch_unit='examples'",
      )
    return server_batch
  _checks.integer_at_least(1, examples_per_client=examples_per_client)
  if server_batch is None or server_batch % examples_per_client:
    raise _checks.ArgumentError(
        'server_batch',
        server_batch,
        f'a multiple of examples_per_client={examples_per_client}',
    )
  return server_batch // examples_per_client
