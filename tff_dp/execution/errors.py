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


class ClientComputationError(RuntimeError):
  """The work of one client failed; nobody's state has changed.

  The original exception is the `__cause__`.

  Attributes:
    client_index: Position of the client in the list of clients, from 0.
    num_clients: Length of that list.
    operation: Name of the TensorFlow operation that failed, or ''.
  """

  def __init__(
      self, message: str, *, client_index: int, num_clients: int, operation: str
  ):
    super().__init__(message)
    self.client_index = client_index
    self.num_clients = num_clients
    self.operation = operation


class SeededClientOpWarning(UserWarning):
  """Client work draws random numbers from a fixed seed.

  All clients of a worker then share one sequence, and workers repeat each
  other's.
  """
