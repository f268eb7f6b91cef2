# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The devices that a context computes on, and why a GPU is not used.

TensorFlow has physical devices (a card) and logical ones (where a kernel is
placed). One card may be split into several logical devices. Everything here is
about logical devices of this process. The module does not list them when it is
loaded: listing logical devices initialises TensorFlow's runtime, and virtual
devices and memory growth can no longer be set afterwards.
"""

from collections.abc import Sequence
import contextlib
import dataclasses
import os
import re
import shutil

import tensorflow as tf

from tff_dp import _checks

_LOCAL = '/job:localhost/replica:0/task:0'
# 'CPU:0', '/cpu:0', '/device:CPU:0', and any of them after the full prefix.
_NAME = re.compile(
    r'(?:(?P<task>/job:[^/:]+/replica:\d+/task:\d+)?/)?'
    r'(?:device:)?(?P<kind>[a-z_]+):(?P<index>\d+)',
    re.IGNORECASE,
)
# A GPU's driver is installed if this file or this program exists.
_DRIVER_FILE = '/proc/driver/nvidia/version'
_DRIVER_PROGRAM = 'nvidia-smi'
# Kernels use several cores themselves, and every worker holds a graph and a
# model, so more than a few workers rarely pay.
_MAX_CPU_WORKERS = 8
# Where TensorFlow itself looks for the number of those threads.
_INTER_OP_VARIABLE = 'TF_NUM_INTEROP_THREADS'
# CUDA hides every card for these values.
_HIDES_ALL = ('', '-1')


@dataclasses.dataclass(frozen=True)
class Devices:
  """The devices of a context.

  Attributes:
    clients: Full names such as '/job:localhost/replica:0/task:0/device:CPU:0',
      one entry per requested worker. A device that is listed twice gets two
      workers.
    server: Full name of the server's device.
  """

  clients: tuple[str, ...]
  server: str


def resolve(
    *,
    client_tf_devices: Sequence[str | tf.config.LogicalDevice] | None = None,
    server_tf_device: str | tf.config.LogicalDevice | None = None,
) -> Devices:
  """Returns the requested devices, by their full names.

  This initialises TensorFlow's runtime, because its logical devices are known
  only then. Before that, it lets GPUs start small and grow (see
  `tf.config.experimental.set_memory_growth`), unless that was set already.
  Otherwise TensorFlow would take a card's whole memory at once.

  Args:
    client_tf_devices: Names or logical devices on which clients train. A device
      may be given several times. Default: all GPUs. If there are none, CPU:0
      once for each core that this process may use, but at most 8 times.
    server_tf_device: Name or logical device of the server. Default: the first
      GPU, or CPU:0 if there is none.

  Raises:
    ArgumentError: If a name is malformed, a device does not exist, or no device
      is given.
  """
  _allow_memory_growth()
  devices = tf.config.list_logical_devices()
  known = {_full_name(device.name).lower(): device for device in devices}
  gpus = [d for d in devices if d.device_type == 'GPU']
  cpus = [d for d in devices if d.device_type == 'CPU'][:1]
  if client_tf_devices is None:
    client_tf_devices = gpus or cpus * _num_cpu_workers()
  if server_tf_device is None:
    server_tf_device = (gpus or cpus)[0]
  if not _is_list(client_tf_devices):
    raise _checks.ArgumentError(
        'client_tf_devices',
        _shown(client_tf_devices),
        'a list or tuple of devices',
    )
  if not client_tf_devices:
    raise _checks.ArgumentError(
        'client_tf_devices',
        client_tf_devices,
        f'at least one device, out of {_listed(devices)}',
    )

  def find(device, argument, value):
    full = _full_name(getattr(device, 'name', device))
    if full is None:
      raise _checks.ArgumentError(
          argument,
          _shown(value),
          f'names such as CPU:0; {device!r} is not a name, the devices here'
          f' are {_listed(devices)}',
      )
    if full.lower() not in known:
      raise _checks.ArgumentError(
          argument,
          _shown(value),
          f'devices that TensorFlow sees here, {_listed(devices)};'
          f' {short_name(full)} is not among them',
      )
    # Use TensorFlow's own spelling, for any requested case.
    return _full_name(known[full.lower()].name)

  return Devices(
      clients=tuple(
          find(device, 'client_tf_devices', client_tf_devices)
          for device in client_tf_devices
      ),
      server=find(server_tf_device, 'server_tf_device', server_tf_device),
  )


def short_name(full_name: str) -> str:
  """Returns 'CPU:0' for the full name of a device of this process."""
  return full_name.removeprefix(f'{_LOCAL}/device:')


def _num_cpu_workers() -> int:
  return min(len(os.sched_getaffinity(0)), _MAX_CPU_WORKERS)


def describe() -> dict[str, object]:
  """Returns the devices and the defaults among them, as plain JSON types.

  This initialises TensorFlow's runtime, like `resolve`. The keys are:

  * `devices`: a list of `{'name': 'CPU:0', 'type': 'CPU'}`.
  * `clients`, `server`: the names that `resolve` chooses by default. `clients`
    has one entry for each worker.
  * `advice`: the reason why no GPU is used although there seems to be one, or
    ''.
  """
  chosen = resolve()
  return {
      'devices': [
          {'name': short_name(_full_name(d.name)), 'type': d.device_type}
          for d in tf.config.list_logical_devices()
      ],
      'clients': [short_name(name) for name in chosen.clients],
      'server': short_name(chosen.server),
      'advice': unused_gpu_advice(),
  }


def unused_gpu_advice() -> str:
  """Returns advice about a GPU that is present but not used, else ''."""
  if tf.config.list_physical_devices('GPU'):
    return ''
  if not os.path.exists(_DRIVER_FILE) and not shutil.which(_DRIVER_PROGRAM):
    return ''
  found = 'an NVIDIA driver is installed, but TensorFlow sees no GPU'
  hidden = os.environ.get('CUDA_VISIBLE_DEVICES')
  if hidden is not None and hidden.strip() in _HIDES_ALL:
    return f'{found}: CUDA_VISIBLE_DEVICES={hidden!r} hides it'
  if not tf.test.is_built_with_cuda():
    return f'{found}: this TensorFlow was built without CUDA'
  return (
      f'{found}: most often its CUDA libraries are missing; install them from'
      ' requirements.cuda.lock or .cuda-current.lock (README), and start with'
      ' TFF_DP_DEBUG=1 to read what TensorFlow says about them'
  )


def allow_waiting_threads() -> None:
  """Lets TensorFlow run more operations at a time than there are cores.

  An operation that waits for a dataset holds a thread of the pool that all
  workers share. With one thread per core, cores would then stay idle. The
  function does nothing if the user has set the number of such threads, or if
  the runtime is already running. It does not change the number of threads
  within an operation, on which results may depend.
  """
  is_chosen = (
      tf.config.threading.get_inter_op_parallelism_threads()
      or _INTER_OP_VARIABLE in os.environ
  )
  if not is_chosen:
    with contextlib.suppress(RuntimeError):
      tf.config.threading.set_inter_op_parallelism_threads(
          2 * len(os.sched_getaffinity(0))
      )


def _allow_memory_growth() -> None:
  """Lets the memory of all GPUs grow, or changes no GPU. Never fails."""
  gpus = tf.config.list_physical_devices('GPU')
  try:
    # TensorFlow refuses to start if growth differs between GPUs. So a choice
    # for one of them decides for all.
    is_chosen = any(
        tf.config.experimental.get_memory_growth(gpu) is not None
        or tf.config.get_logical_device_configuration(gpu)
        for gpu in gpus
    )
    if not is_chosen:
      for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
  except (RuntimeError, ValueError):
    # The runtime is already running, so it stays as the caller started it.
    pass


def _full_name(name) -> str | None:
  """Returns the full form of a device's name, or None for other strings."""
  match = _NAME.fullmatch(name) if isinstance(name, str) else None
  if match is None:
    return None
  kind, index = match['kind'].upper(), int(match['index'])
  return f'{match["task"] or _LOCAL}/device:{kind}:{index}'


def _is_list(value) -> bool:
  # A logical device is a tuple, too, of its name and its type.
  return isinstance(value, (list, tuple)) and not isinstance(
      value, tf.config.LogicalDevice
  )


def _shown(value):
  """Returns an argument as an error should show it, with the devices' names."""
  if _is_list(value):
    return [getattr(device, 'name', device) for device in value]
  return getattr(value, 'name', value)


def _listed(devices: Sequence[tf.config.LogicalDevice]) -> str:
  return ', '.join(short_name(_full_name(d.name)) for d in devices)
