# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Where a task computes: the flags for it, and the context that they start."""

import argparse
import dataclasses
import sys

from tff_dp import _checks

IMPORTING = 'importing TensorFlow Federated'
BUILDING = 'building the process'
IN_PROCESS = 'in_process'
NATIVE = 'native'
_CLUSTERS = ('dask', 'ray')
_LOCAL = (IN_PROCESS, NATIVE)
_CONTEXTS = (*_LOCAL, *_CLUSTERS)
_NUM_SHARDS = 8
# Flag -> the library's argument, so that an error names what the user typed.
_ARGUMENTS = {
    'client_devices': 'client_tf_devices',
    'server_device': 'server_tf_device',
    'max_concurrent_clients': 'max_concurrent_clients',
}
_NO_DEVICES = (
    'no value with --context={}: its workers choose their devices themselves.'
    ' Leave the flag out, or use --context=in_process'
)


@dataclasses.dataclass(frozen=True)
class EngineSettings:
  """Where to compute. The fields are the flags that `add_arguments` adds.

  Results do not depend on these settings, apart from rounding in the last
  digits, so an interrupted run may go on somewhere else.

  Attributes:
    context: 'in_process', 'native', 'dask' or 'ray'.
    client_devices: Names of devices, separated by commas. `None` for all GPUs,
      or CPU:0 if there are none.
    server_device: Name of a device. `None` for the first GPU, or CPU:0 if there
      is none.
    max_concurrent_clients: Largest number of clients that train at the same
      time. `None` for the context's own choice. On a cluster, the number of
      shards.
    cluster_address: Address of Dask's scheduler or Ray's head. `None` for two
      workers on this machine.
  """

  context: str = IN_PROCESS
  client_devices: str | None = None
  server_device: str | None = None
  max_concurrent_clients: int | None = None
  cluster_address: str | None = None

  def __post_init__(self):
    _checks.one_of(_CONTEXTS, context=self.context)
    _checks.optional_integer_at_least(
        1, max_concurrent_clients=self.max_concurrent_clients
    )
    for name in ('client_devices', 'server_device'):
      value = getattr(self, name)
      if value is not None and self.context != IN_PROCESS:
        raise _checks.ArgumentError(
            name, value, _NO_DEVICES.format(self.context)
        )
    if self.cluster_address is not None and self.context not in _CLUSTERS:
      raise _checks.ArgumentError(
          'cluster_address',
          self.cluster_address,
          f'no value with --context={self.context}, only with dask or ray',
      )

  @property
  def client_device_names(self) -> list[str] | None:
    """The names in `client_devices`, without blanks around them."""
    if self.client_devices is None:
      return None
    return [name.strip() for name in self.client_devices.split(',')]


def add_arguments(
    parser: argparse.ArgumentParser, *, with_clusters: bool = True
) -> None:
  """Adds the flags, as a group of their own.

  Args:
    parser: Gets the flags.
    with_clusters: Whether the task can run on a cluster: the clients' data are
      lists of batches, or workers load them by `cluster_clients`.
  """
  group = parser.add_argument_group(
      'where to compute',
      'Changes the speed, and results by rounding only. `tff-dp doctor` lists'
      ' the\ndevices of this machine.',
  )
  group.add_argument(
      '--context',
      choices=_CONTEXTS if with_clusters else _LOCAL,
      default=IN_PROCESS,
      help='in_process for TensorFlow in this process, native for the C++'
      ' worker that TFF brings, which has no GPU'
      + (', dask or ray for the workers of a cluster' if with_clusters else '')
      + f' (default: {IN_PROCESS})',
  )
  if with_clusters:
    group.add_argument(
        '--cluster-address',
        metavar='ADDRESS',
        help="of Dask's scheduler (tcp://host:8786) or Ray's head (host:6379);"
        ' without it, two workers start on this machine',
    )
  else:
    parser.set_defaults(cluster_address=None)
  group.add_argument(
      '--client-devices',
      metavar='NAME[,NAME...]',
      help='devices on which clients train, such as GPU:0,GPU:1; one that is'
      ' named twice gets two workers (default: all GPUs, or CPU:0 with a'
      ' worker for each core, at most 8)',
  )
  group.add_argument(
      '--server-device',
      metavar='NAME',
      help="device of the server's part (default: the first GPU, or CPU:0)",
  )
  group.add_argument(
      '--max-concurrent-clients',
      type=int,
      metavar='NUMBER',
      help='clients that train at the same time, on all devices together'
      " (default: the context's own choice)"
      + (
          '; on a cluster, the number of parts that a round is cut into'
          f' (default: {_NUM_SHARDS})'
          if with_clusters
          else ''
      ),
  )


def take_settings(values: dict[str, object]) -> EngineSettings:
  """Returns the settings in parsed flags, and removes them from there.

  Raises:
    ArgumentError: If a value is not allowed. The error names the flag.
  """
  fields = dataclasses.fields(EngineSettings)
  return EngineSettings(**{f.name: values.pop(f.name) for f in fields})


def start(settings: EngineSettings, *, progress: str):
  """Makes a context, and returns it as TFF's new default. Loads TFF.

  Args:
    settings: Where to compute.
    progress: Kind of progress. Unless it is 'quiet', this prints the devices on
      stderr.

  Raises:
    ArgumentError: If a device does not exist. The error names the flag.
  """
  from tff_dp import execution  # pylint: disable=g-import-not-at-top
  from tff_dp.execution import devices  # pylint: disable=g-import-not-at-top

  if settings.context in _CLUSTERS:
    return _start_cluster(settings, progress=progress)
  arguments = {'max_concurrent_clients': settings.max_concurrent_clients}
  if settings.context == IN_PROCESS:
    arguments['client_tf_devices'] = settings.client_device_names
    arguments['server_tf_device'] = settings.server_device
  try:
    context = execution.set_default_context(settings.context, **arguments)
  except _checks.ArgumentError as error:
    for flag, argument in _ARGUMENTS.items():
      if error.argument == argument:
        raise error.renamed(flag, getattr(settings, flag)) from error
    raise
  if progress != 'quiet' and settings.context == IN_PROCESS:
    clients = dict.fromkeys(map(devices.short_name, context.client_devices))
    print(
        f'clients on {", ".join(clients)}, {context.num_workers} at a time;'
        f' server on {devices.short_name(context.server_device)}',
        file=sys.stderr,
    )
  return context


def _start_cluster(settings: EngineSettings, *, progress: str):
  from tasks.common import cluster_clients  # pylint: disable=g-import-not-at-top
  from tff_dp.execution import cluster  # pylint: disable=g-import-not-at-top
  from tff_dp.execution import contexts  # pylint: disable=g-import-not-at-top

  context = contexts.install_default(
      cluster.create_cluster_context(
          settings.context,
          address=settings.cluster_address,
          load_clients=cluster_clients.LOADER,
          num_shards=settings.max_concurrent_clients or _NUM_SHARDS,
      )
  )
  if progress != 'quiet':
    print(
        f'clients on {context.num_workers} workers of {settings.context}, in'
        f' {context.num_shards} shards',
        file=sys.stderr,
    )
  return context
