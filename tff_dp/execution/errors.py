# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
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
