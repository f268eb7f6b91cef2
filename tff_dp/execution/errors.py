# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What can go wrong inside the in-process context, by name."""

from tff_dp import _failures

# Below the layers that run computations, so that all of them can name clients.
ClientComputationError = _failures.ClientComputationError


class ContextClosedError(RuntimeError):
  """A computation was invoked on a context after its `close()`."""


class UnsupportedComputationError(NotImplementedError):
  """A computation contains something that a context of ours cannot run.

  Attributes:
    construct: What it contains.
    instead: What to use in its place.
  """

  def __init__(
      self, construct: str, *, instead: str, context: str = 'in-process'
  ):
    super().__init__(
        f'the {context} context cannot run {construct}; use {instead} instead'
    )
    self.construct = construct
    self.instead = instead


class SeededClientOpWarning(UserWarning):
  """Client work draws random numbers from a fixed seed.

  All clients of a worker then share one sequence, and workers repeat each
  other's.
  """


class ContextReplacedWarning(UserWarning):
  """A context of ours is no longer the default, by a call of somebody else."""


class NotPlainError(Exception):
  """A graph uses a sequence in a way that is not understood."""
