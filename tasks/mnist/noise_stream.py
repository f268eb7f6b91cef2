# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The server's noise of update after update, as a function of one key."""

import numpy as np

from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.participation import coins


class NoiseStream:
  """Unit noise of a mechanism; what it remembers is drawn again on a resume."""

  def __init__(self, mechanism: mechanism_lib.Mechanism, num_params: int):
    """Initializes the object.

    Args:
      mechanism: One tree over all updates, with a draw for each of them.
      num_params: Length of the vectors.
    """
    self._mechanism = mechanism
    self._num_params = num_params
    self._key, self._number, self._buffers = None, 0, ()

  def at(self, key: bytes, number: int) -> np.ndarray:
    """Returns the noise of an update, float64, shape [num_params].

    Args:
      key: Secret, 128 bits.
      number: Of the update, counted from 1; the next one is the fastest.
    """
    if key != self._key or number <= self._number:
      self._key, self._number = key, 0
      self._buffers = self._mechanism.initialize(np.zeros(self._num_params))
    operations = mechanism_lib.numpy_operations(self._draw)
    while self._number < number:
      self._number += 1
      noise, self._buffers = self._mechanism.next_noise(
          self._buffers, self._number, operations
      )
    return noise

  def _draw(self, level: int, index: int) -> np.ndarray:
    del level  # Nodes are single updates.
    rng = coins.generator(self._key, 'update', index + 1)
    return rng.standard_normal(self._num_params)
