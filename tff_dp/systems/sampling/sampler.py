# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Poisson sampling: who takes part in a round, by secret coins of the server.

Each member of the population has a coin of its own in every round. Coins of
different members and of different rounds are independent, so the number of
members in a cohort varies, and may be 0. The coins of a round follow from one
secret key and the number of the round, so a repeated round has the same cohort.
"""

import json

import numpy as np

from tff_dp import _checks
from tff_dp.files import regular
from tff_dp.participation import coins

_FORMAT = 'tff_dp.sampling'
_VERSION = 1


class PoissonSampler:
  """Draws the cohorts of one run. The key and the cohorts are secret.

  Attributes:
    position: Number of rounds drawn so far.
  """

  def __init__(
      self, *, population: int, clients_per_round: int, root_key: bytes
  ):
    """Makes a sampler before its first round.

    Args:
      population: Number of members.
      clients_per_round: Expected size of a cohort, at most the population.
      root_key: Secret key of 128 bits.
    """
    _checks.integer_at_least(1, population=population)
    _checks.integer_between(1, population, clients_per_round=clients_per_round)
    self._population = int(population)
    self._clients_per_round = int(clients_per_round)
    self._root_key = root_key
    self.position = 0

  def next(self) -> np.ndarray:
    """Returns the cohort of the next round: positions from 0, ascending."""
    self.position += 1
    rng = coins.generator(self._root_key, 'sampling', self.position)
    # `random` draws one of 2^53 numbers in [0, 1): the probability is the rate
    # up to 2^-53, and 1 if everybody comes.
    rate = self._clients_per_round / self._population
    return np.flatnonzero(rng.random(self._population) < rate)

  def to_bytes(self) -> bytes:
    """Returns key and position. SECRET."""
    return json.dumps(self._content(self._root_key), sort_keys=True).encode()

  def restored(self, data: bytes) -> 'PoissonSampler':
    """Returns the sampler that `to_bytes` saved, at the same position.

    Raises:
      PrivacyRefusedError: If the bytes are damaged or of another plan.
    """
    try:
      content = regular.parse_json(data)
      key = bytes.fromhex(content['root_key'])
      found = PoissonSampler(
          population=self._population,
          clients_per_round=self._clients_per_round,
          root_key=key,
      )
      _checks.integer_at_least(0, position=content['position'])
      found.position = content['position']
      is_same = len(key) == coins.KEY_BYTES
      is_same = is_same and found._content(key) == content
    except Exception as error:
      raise _damaged(type(error).__name__) from error
    if not is_same:
      raise _damaged('of another plan or version')
    return found

  def _content(self, key: bytes) -> dict[str, object]:
    return {
        'format': _FORMAT,
        'version': _VERSION,
        'population': self._population,
        'clients_per_round': self._clients_per_round,
        'root_key': key.hex(),
        'position': self.position,
    }


def _damaged(what: str) -> _checks.PrivacyRefusedError:
  return _checks.PrivacyRefusedError(
      f'the saved coins are damaged or do not fit ({what})',
      why='with other coins, a repeated round would have another cohort',
      way_out='restore the checkpoint from a copy, or start a new run',
  )
