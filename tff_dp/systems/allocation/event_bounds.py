# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The bounds on the loss of a random allocation, as `bounds.Bound` objects.

| bound | source |
|---|---|
| none | the noise of the server alone |
| allocation | arXiv:2502.08202, computed as in docs/proofs_check_ins.md |
"""

from collections.abc import Iterator
import math

from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.curves import replace_one
from tff_dp.accounting.protocols import bounds
from tff_dp.systems.allocation import allocation_events
from tff_dp.systems.allocation import random_allocation

# Mass that the grid of a random allocation may cut off: a share of delta, and
# at most the second value.
_TAIL_SHARE = 1e-4
_MOST_TAIL = 1e-10


def _of_allocation(event, count, delta, relation) -> Iterator[bounds.Bound]:
  """Yields the bounds on `count` equal events."""
  times, multiplier = event.num_selected, float(event.event.noise_multiplier)
  yield bounds.noise_at_the_server(event.event, count * times, relation)
  if event.participation_probability == 0:
    yield bounds.nobody('allocation', count)
    return
  numbers = dict(
      noise_multiplier=multiplier,
      num_steps=event.num_steps,
      num_selected=times,
      participation_probability=event.participation_probability,
  )

  def check():
    if not 0 < multiplier < math.inf:
      raise privacy_profiles.NotApplicableError(
          f'at noise_multiplier={multiplier} there is nothing to amplify'
      )

  def part():
    check()
    tail = min(_MOST_TAIL, _TAIL_SHARE * delta / count)
    remove, add = random_allocation.cached_profiles(tail=tail, **numbers)
    result = composition.Part(remove, count, add)
    if relation is bounds.Relation.REPLACE_ONE:
      return replace_one.replace_one(result)
    return result

  def epsilon(total_delta):
    check()
    return random_allocation.epsilon(
        delta=total_delta,
        num_epochs=count,
        neighboring_relation=relation,
        **numbers,
    )

  source = 'arXiv:2502.08202; docs/proofs_check_ins.md'
  yield bounds.Bound('allocation', source, True, part=part, epsilon=epsilon)


def _of_central(event, bound: str) -> list[str]:
  """Returns the assumptions behind a bound on a random allocation."""
  found = [
      'The server is trusted: it adds Gaussian noise to the sum of every step,'
      ' empty steps too, and never divides by the number of reports.'
  ]
  if bound != 'none':
    found += [bounds.COINS, 'Nobody else learns in which step a client took part.']
    if event.num_selected > 1:
      found.append(
          'What a client sends in a step does not depend on which of its other'
          ' steps were selected.'
      )
  return found


RULES = {
    allocation_events.RandomAllocationDpEvent: bounds.Rules(
        bounds=_of_allocation, assumptions=_of_central, names=('allocation',)
    ),
}
