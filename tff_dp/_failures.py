# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Errors of a client's work, and the trace of an error for a secret log.

What TensorFlow says when the work of a client fails may quote the client's
data, such as its labels. So it is no part of a message, which ends up on
screens and in logs, but of `details`. What an assertion of ours says is known
beforehand, and is shown.
"""

from collections.abc import Iterator, Sequence
import contextlib
import datetime
import os
import re
import traceback

_OURS = 'tff_dp: '
# TensorFlow prints what an assertion shows, its message first, in brackets.
_SAID = re.compile(rf'\[{_OURS}([^\]]*)\]')


def assertion(message: str) -> str:
  """Returns the message of an assertion in a graph, such that users see it.

  Args:
    message: Without brackets, and the same whatever the data.
  """
  return _OURS + message


class ClientComputationError(RuntimeError):
  """The work of one client failed; nobody's state has changed.

  Attributes:
    client_index: Position of the client in the list of clients, from 0.
    num_clients: Length of that list.
    operation: Name of the TensorFlow operation that failed, or ''.
    kind: Name of TensorFlow's exception.
    details: What that said. SECRET: it may show the client's data.
    client_id: The client's id or the silo's name; `None` if it is not known.
  """

  def __init__(
      self,
      *,
      client_index: int,
      num_clients: int,
      operation: str,
      kind: str,
      details: str,
      client_id: str | bytes | None = None,
  ):
    who = f'client {client_index} (of {num_clients}, counted from 0)'
    if client_id is not None:
      who = f'client {client_id!r}'
    said = _SAID.search(details)
    where = '' if said else f' in {operation or "an operation"}'
    super().__init__(f'{who} failed{where}: {said.group(1) if said else kind}')
    self.client_index = client_index
    self.num_clients = num_clients
    self.operation = operation
    self.kind = kind
    self.details = details
    self.client_id = client_id

  def __reduce__(self):
    # Exceptions travel by the positions of arguments, which these have not.
    fields = vars(self).copy()
    fields.pop('__notes__', None)
    return _again, (fields,)

  def named(self, client_id: str | bytes) -> 'ClientComputationError':
    """Returns the same error with the client's id."""
    return ClientComputationError(
        client_index=self.client_index,
        num_clients=self.num_clients,
        operation=self.operation,
        kind=self.kind,
        details=self.details,
        client_id=client_id,
    )


def _again(fields: dict) -> ClientComputationError:
  return ClientComputationError(**fields)


@contextlib.contextmanager
def naming_clients(client_ids: Sequence[str | bytes]) -> Iterator[None]:
  """Lets a failure of a client inside name it by its id.

  Args:
    client_ids: Of the clients of the call, in order.
  """
  try:
    yield
  except ClientComputationError as error:
    raise error.named(client_ids[error.client_index]) from None


def trace(error: BaseException) -> str:
  """Returns all that is known of an error. SECRET."""
  parts = traceback.format_exception(error)
  if isinstance(error, ClientComputationError):
    parts += ['TensorFlow said:\n', error.details, '\n']
  return ''.join(parts)


def log(path: os.PathLike, error: BaseException, *, context: str = '') -> None:
  """Appends the trace of an error to a file under `secret/`, if that works.

  Args:
    path: The file.
    error: What happened.
    context: A line before it.
  """
  now = datetime.datetime.now(datetime.timezone.utc).isoformat(
      timespec='seconds'
  )
  # On a full disk the error matters, not that it cannot be logged.
  with contextlib.suppress(OSError):
    with open(path, 'a', encoding='utf-8', errors='backslashreplace') as file:
      file.write(f'{now} {context}\n{trace(error)}\n')
    error.add_note(f'The trace is in {os.fspath(path)}.')
