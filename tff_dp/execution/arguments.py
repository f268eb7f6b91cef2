# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A user's argument, assigned to the nodes of a schedule."""

import dataclasses
import functools

import tensorflow_federated as tff

from tff_dp.execution import errors
from tff_dp.execution.compiling import schedule
from tff_dp.execution.data import leaves as leaves_lib
from tff_dp.execution.data import values

# Descriptors of the place of data. Only TFF's workers can fetch it.
_DESCRIPTORS = (
    tff.framework.DataDescriptor,
    tff.framework.CardinalityFreeDataDescriptor,
)


@dataclasses.dataclass(frozen=True)
class ClientList:
  """A list with one value per client, which `flat` or `leaves` converts.

  Attributes:
    members: Values of the clients, as the user gave them.
    type_spec: Type of one value.
    where: Name of the list in an error.
  """

  members: list
  type_spec: tff.Type
  where: str

  def flat(self, client: int) -> list:
    """Returns a client's value as a flat list, see `values.flatten`.

    Raises:
      TypeError: If the value does not match its type.
      UnsupportedComputationError: If a dataset in the value calls a Python
        function, or may have state and cannot be copied.
    """
    where = f'client {client} of {self.where}'
    return values.flatten(
        values.from_python(self.members[client], self.type_spec, where=where)
    )

  @functools.cached_property
  def _reader(self) -> leaves_lib.Reader:
    return leaves_lib.Reader(self.type_spec)

  def leaves(
      self, client: int, reads_once: leaves_lib.ReadsOnce
  ) -> leaves_lib.Leaves | None:
    """Returns the tensors and tables that a client's value consists of.

    The result is None if the value does not match its type, or cannot be read.
    See `leaves.Reader`.
    """
    return self._reader(self.members[client], reads_once)


@dataclasses.dataclass(frozen=True)
class Shared:
  """The same value for every client.

  Attributes:
    value: The value as a flat list, see `values.flatten`.
    type_spec: Type of the value.
  """

  value: list
  type_spec: tff.Type

  def flat(self, client: int) -> list:
    """Returns the value as a flat list, for any client."""
    del client
    return self.value

  @functools.cached_property
  def _leaves(self) -> leaves_lib.Leaves:
    return leaves_lib.of_flat(self.value, self.type_spec)

  def leaves(
      self, client: int, reads_once: leaves_lib.ReadsOnce
  ) -> leaves_lib.Leaves:
    """Returns the leaves of the value, which are the same for each client.

    See `leaves.Reader`.
    """
    del client
    return self._leaves if reads_once else leaves_lib.Leaves(self.value)


@dataclasses.dataclass(frozen=True)
class Arguments:
  """The argument of one call.

  Attributes:
    single: Values of the parts that are not at clients, as flat lists, see
      `values.flatten`.
    clients: Values of the parts that are at clients.
    num_clients: Length of the lists of clients, or None if there are none.
  """

  single: dict[schedule.Node, list]
  clients: dict[schedule.Node, ClientList | Shared]
  num_clients: int | None


def bind(
    nodes: list[schedule.Node], argument, type_spec: tff.Type | None
) -> Arguments:
  """Returns the parts of an argument that the nodes stand for.

  Args:
    nodes: Nodes of the operation `schedule.Argument`.
    argument: Argument as TFF passes it to a context.
    type_spec: Type of the argument, or None if there is no argument.

  Raises:
    TypeError: If a part does not match its type. The values in a list of
      clients are not checked here, but in `ClientList.flat`.
    ValueError: If two lists of clients differ in length.
    UnsupportedComputationError: If a part is a data descriptor, which names
      data and does not hold it. Also if a value for the server, or one for all
      clients, has a dataset that cannot be used here (see
      `values.from_python`).
  """
  single, clients = {}, {}
  for node in nodes:
    part, where = _part(argument, type_spec, node.operation.path)
    member = node.operation.type_spec
    if isinstance(part, _DESCRIPTORS):
      raise errors.UnsupportedComputationError(
          f'a data descriptor ({where})', instead='the data itself'
      )
    if node.operation.per_client:
      if not isinstance(part, (list, tuple)):
        raise TypeError(
            f'{where}: expected a list with a value of type {member} for every'
            f' client, found an object of type {type(part).__name__}.'
        )
      clients[node] = ClientList(list(part), member, where)
    else:
      flat = values.flatten(values.from_python(part, member, where=where))
      if node.on_clients:
        clients[node] = Shared(flat, member)
      else:
        single[node] = flat
  lists = [item for item in clients.values() if isinstance(item, ClientList)]
  return Arguments(single, clients, _common_length(lists))


def _part(argument, type_spec, path: tuple[int, ...]):
  """Returns the part at a path, and its name."""
  where = 'argument'
  for index in path:
    argument = values.parts(argument, type_spec, where=where)[index]
    name, type_spec = tff.structure.to_elements(type_spec)[index]
    where = f'{where}[{name or index}]'
  return argument, where if path else 'the argument'


def _common_length(lists: list[ClientList]) -> int | None:
  lengths = {item.where: len(item.members) for item in lists}
  if len(set(lengths.values())) > 1:
    found = ', '.join(f'{length} in {name}' for name, length in lengths.items())
    raise ValueError(f'Arguments have different numbers of clients: {found}.')
  return next(iter(lengths.values()), None)
