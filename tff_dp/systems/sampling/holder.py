# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The examples of one data holder, each as a client of its own."""

from typing import Any

import numpy as np
import tree

from tff_dp import _checks


class Examples:
  """All data of one holder. Each example is a client with one batch of size 1.

  `program.train` takes these clients in the place of a
  `tff.simulation.datasets.ClientData`.

  Attributes:
    client_ids: Positions of the examples, from '0', as text.
  """

  def __init__(self, arrays: Any):
    """Makes clients of the examples in arrays.

    Args:
      arrays: Arrays in the structure of a batch of the model. The first axis of
        each array counts the examples.

    Raises:
      ArgumentError: If the arrays do not have equally many examples.
    """
    self._arrays = tree.map_structure(np.asarray, arrays)
    sizes = {len(each) for each in tree.flatten(self._arrays)}
    if len(sizes) != 1:
      raise _checks.ArgumentError(
          'arrays', sorted(sizes), 'equally many examples in each array'
      )
    self.client_ids = [str(number) for number in range(sizes.pop())]

  def create_tf_dataset_for_client(self, client_id: str) -> list[Any]:
    """Returns a list with the one batch of a client, which has one example."""
    at = int(client_id)
    return [tree.map_structure(lambda array: array[at : at + 1], self._arrays)]
