# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The attempts of `tff-dp doctor` in a child: load, compute, save, start.

The top imports nothing heavy, because the parent imports this module too.
"""

import asyncio
from collections.abc import Callable
import functools
import json
import time

from tff_dp import _compat

# The child may print anything. Its answers are the lines with this prefix, one
# per attempt. So the parent knows the results of the attempts before a crash.
MARK = 'tff_dp doctor: '

LOADING = 'import of TFF'
DEVICES = 'devices'
IN_PROCESS = 'in-process context'
SAVING = 'checkpoint'
WORKER = 'start of the worker'
CLUSTER = 'cluster'


def main(**asked) -> None:
  """Makes the attempts in order, up to the first failure, and prints results.

  Args:
    **asked: Arguments of `attempts`.
  """
  for name, attempt in attempts(**asked).items():
    answer = {'name': name}
    try:
      answer['result'] = attempt()
    except Exception as error:  # pylint: disable=broad-except
      cause = error.__cause__ or error
      answer['error'] = f'{type(cause).__name__}: {cause}'
    print(MARK + json.dumps(answer), flush=True)
    if 'error' in answer:
      return


# pylint: disable=g-import-not-at-top
def _load() -> str:
  """Returns the time that TFF took to load, as text."""
  start = time.monotonic()
  _compat.require_tff()
  return f'{time.monotonic() - start:.1f} s'


def _list_devices() -> dict[str, object]:
  from tff_dp.execution import devices

  return devices.describe()


def _compute() -> str:
  """Runs one small computation on the devices that training would use."""
  import numpy as np
  import tensorflow_federated as tff

  from tff_dp import execution

  @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
  def add(values):
    return tff.federated_sum(values)

  with execution.create_sync_in_process_context():
    total = add([1.0, 2.0])
  if total != 3.0:
    raise ArithmeticError(f'1 + 2 gave {total}')
  return 'computes'


def _save() -> str:
  """Saves and loads a state, as a run does before its first round."""
  import tempfile

  import numpy as np
  import tensorflow_federated as tff

  with tempfile.TemporaryDirectory() as folder:
    manager = tff.program.FileProgramStateManager(folder)
    state = {'weights': np.arange(3.0), 'round': np.int32(1)}

    async def save_and_load():
      await manager.save(state, 1)
      return await manager.load(1, state)

    loaded = asyncio.run(save_and_load())
  if not np.array_equal(loaded['weights'], state['weights']):
    raise ArithmeticError(f'{state} came back as {loaded}')
  return 'saves'


def _start_worker() -> str:
  from tff_dp.execution import native

  worker = native.NativeWorker()
  try:
    worker.wait_until_ready()
  finally:
    worker.close()
  return 'starts'


def _ask_workers(engine: str, address: str | None) -> list[dict[str, str]]:
  """Returns name, device and differences of every worker."""
  from tff_dp.execution.cluster import context as context_lib
  from tff_dp.execution.cluster import worker

  context = context_lib.create_cluster_context(
      engine, address=address, num_shards=1
  )
  try:
    found = context.describe_workers()
  finally:
    context.close()
  if not found:
    raise RuntimeError('it has no worker')
  return [
      {
          'worker': name,
          'device': answer['device'].rpartition('device:')[2],
          'differs': worker.differences(worker.versions(), answer['versions']),
      }
      for name, answer in found.items()
  ]


def attempts(
    *,
    engine: str | None = None,
    address: str | None = None,
    skip_worker: bool = False,
) -> dict[str, Callable[[], object]]:
  """Returns the attempts by name, in their order.

  Args:
    engine: 'dask' or 'ray', to ask the workers of a cluster too.
    address: Address of the cluster. `None` for workers on this machine.
    skip_worker: Whether to start no TFF worker, which listens on all
      interfaces.
  """
  found = {
      LOADING: _load,
      DEVICES: _list_devices,
      IN_PROCESS: _compute,
      SAVING: _save,
  }
  if engine is not None:
    found[CLUSTER] = functools.partial(_ask_workers, engine, address)
  # The worker comes last, because nothing is tried after a failure, and only
  # the native context needs a worker. It is not expected to work in columns B
  # and C.
  if _compat.COLUMN.has_worker and not skip_worker:
    found[WORKER] = _start_worker
  return found
