# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The keys that draws use: one key is for one draw."""

from collections.abc import Iterator
import contextlib
from unittest import mock

from tff_dp import streams


@contextlib.contextmanager
def used() -> Iterator[list[tuple[int, int]]]:
  """Gives the generator's inputs of all draws, in order. Eager mode only."""
  found = []
  generator = streams._generator  # pylint: disable=protected-access

  def record(key):
    found.append(tuple(key.numpy().tolist()))
    return generator(key)

  with mock.patch.object(streams, '_generator', record):
    yield found
