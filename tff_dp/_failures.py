# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Errors of a client's work, and the trace of an error for a secret log.

TensorFlow's message about a failed client may quote the client's data, such as
its labels. So it is not part of the error message, which ends up on screens and
in logs, but of `details`. The text of our own assertions is known beforehand,
and is shown.
"""

from collections.abc import Iterator, Sequence
import contextlib
import datetime
import os
import re
import traceback

_OURS = 'tff_dp: '
# TensorFlow prints the values of an assertion, its message first, in brackets.
_SAID = re.compile(rf'\[{_OURS}([^\]]*)\]')
# What to try where clients' work failed.
WAY_OUT = (
    "Perhaps a label is none of the model's classes. A filter leaves bad"
    ' examples out, see docs/training.md.'
)


def assertion(message: str) -> str:
  """Returns a message for an assertion in a graph, marked as one of ours.

  Errors show users a message with this mark, and hide TensorFlow's own texts.

  Args:
    message: Text without brackets, which must not depend on data.
  """
  return _OURS + message


class ComputationError(RuntimeError):
  """A computation failed. TensorFlow's text is not part of the message.

  Attributes:
    operation: Name of the TensorFlow operation that failed, or ''.
    kind: Name of TensorFlow's exception or of gRPC's status.
    details: Text of that exception or status. SECRET: it may show the clients'
      data.
  """

  def __init__(self, who: str, *, operation: str, kind: str, details: str):
    """Initializes the error.

    Args:
      who: Subject with which the message begins.
      operation: Name of the operation that failed, or ''.
      kind: Name of TensorFlow's exception or of gRPC's status.
      details: Text of that exception or status, which stays secret.
    """
    said = _SAID.search(details)
    where = '' if said else f' in {operation or "an operation"}'
    super().__init__(f'{who} failed{where}: {said.group(1) if said else kind}')
    self.operation = operation
    self.kind = kind
    self.details = details


class ClientComputationError(ComputationError):
  """The work of one client failed. No state has changed.

  Attributes:
    client_index: Position of the client in the list of clients, from 0.
    num_clients: Length of that list.
    client_id: Id of the client. `None` if it is not known.
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
    super().__init__(who, operation=operation, kind=kind, details=details)
    self.client_index = client_index
    self.num_clients = num_clients
    self.client_id = client_id

  def __reduce__(self):
    # Exceptions are pickled by positional arguments, which this class does not
    # have.
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
  """Adds the client's id to the error if a client fails in the `with` block.

  Args:
    client_ids: Ids of the clients of the call, in order.
  """
  try:
    yield
  except ClientComputationError as error:
    raise error.named(client_ids[error.client_index]) from None


def may_quote_data(error: BaseException) -> bool:
  """Returns whether an error is from TensorFlow or gRPC."""
  return type(error).__module__.partition('.')[0] in ('tensorflow', 'grpc')


def trace(error: BaseException) -> str:
  """Returns the trace of an error, without messages that may quote data."""
  chain, each = [], error
  while each is not None:
    chain.append(each)
    each = each.__cause__ or each.__context__
  if not any(map(may_quote_data, chain)):
    return ''.join(traceback.format_exception(error))
  frames = ''.join(traceback.format_tb(error.__traceback__))
  return f'{frames}{type(error).__name__}: what it says may quote data\n'


def _secret_trace(error: BaseException) -> str:
  """Returns all that is known of an error. SECRET."""
  whole = ''.join(traceback.format_exception(error))
  details = getattr(error, 'details', None)
  if not isinstance(details, str) or not details:
    return whole
  return f'{whole}TensorFlow said:\n{details}\n'


def log(path: os.PathLike, error: BaseException, *, context: str = '') -> None:
  """Appends the trace of an error to a file under `secret/`, if possible.

  If that works, adds a note with the file's name to the error. A
  `ComputationError` also gets a note that says what to try, in either case.
  The trace may show clients' data.

  Args:
    path: Path of the file.
    error: Error to log.
    context: Line before the trace.
  """
  now = datetime.datetime.now(datetime.timezone.utc).isoformat(
      timespec='seconds'
  )
  # On a full disk the error itself matters more than logging it.
  with contextlib.suppress(OSError):
    with open(
        path, 'a', encoding='utf-8', errors='backslashreplace', opener=_private
    ) as file:
      file.write(f'{now} {context}\n{_secret_trace(error)}\n')
    error.add_note(f'The trace is in {os.fspath(path)}.')
  if isinstance(error, ComputationError):
    error.add_note(WAY_OUT)


def _private(path: str, flags: int) -> int:
  # No link is followed, and no pipe waited for.
  return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
