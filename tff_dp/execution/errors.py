# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The errors and warnings of the contexts of this package."""

from tff_dp import _failures

# Defined below the layers that run computations, so that all of them can name
# clients.
ClientComputationError = _failures.ClientComputationError
ComputationError = _failures.ComputationError


class ContextClosedError(RuntimeError):
  """A computation was invoked on a context after its `close()`."""


class UnsupportedComputationError(NotImplementedError):
  """A computation contains something that our contexts cannot run."""

  def __init__(
      self, construct: str, *, instead: str, context: str = 'in-process'
  ):
    """Makes the error.

    Args:
      construct: Part that cannot run, as a phrase, such as 'a data block'.
      instead: Part that works in its place, such as 'an argument that holds the
        data'.
      context: Kind of the context.
    """
    super().__init__(
        f'the {context} context cannot run {construct}; use {instead} instead'
    )


class SeededClientOpWarning(UserWarning):
  """Client work draws random numbers from a fixed seed.

  All clients of a worker then share one sequence, and workers repeat each
  other's sequences.
  """


class ContextReplacedWarning(UserWarning):
  """Another caller has replaced our context as the default."""


class NotPlainError(Exception):
  """A graph does something that is not supported where clients share a call."""
