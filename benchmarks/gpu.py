# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures rounds and noise on a GPU, beside the CPU of the same machine.

  python -m benchmarks.gpu             # ten minutes or more on a large card
  python -m benchmarks.gpu --parts noise rounds --models mlp --clients 100
  python -m benchmarks.gpu --dry-run   # tiny sizes, also without a GPU

Parts, each in a process of its own:
  doctor       what `tff-dp doctor` says
  conformance  the cases of tests/execution on the GPU, beside the CPU
  stream       draws of one key on the GPU, beside the CPU
  noise        a round's noise, in draws of `tf.random.stateless_normal`
  rounds       rounds on the GPU, with their rows written by hand
  cpu          rounds on the CPU

The floor of a round is the fastest row that is written by hand. Busy is the
share of time in which a kernel ran, as nvidia-smi counts it.
"""

import argparse
from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np

# Before TensorFlow, whose start-up messages it silences.
from tff_dp import _checks
from tff_dp import mechanisms
from tff_dp import streams

# pylint: disable=g-bad-import-order,ungrouped-imports
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import noise
from benchmarks import round_rows
from benchmarks import round_tasks
from tff_dp import execution
from tff_dp.execution import devices

_TOLERANCE = 1e-5
_ENGINE = 'in_process'
_PLACE = ('device', 'model', 'clients')
_AGGREGATIONS = ('mean', 'dp_ftrl')
_MIN_SECONDS = 1.5
_MIN_ROUNDS = 3
_SMI = ('nvidia-smi', '--format=csv,noheader,nounits')


@dataclasses.dataclass(frozen=True)
class _Cnn(round_tasks.Cnn):
  """The network of `round_tasks` with what rounds by hand need."""

  def logits(self, weights, inputs):
    """Returns what the Keras model computes, written by hand."""
    hidden = inputs
    for kernel, bias in (weights[:2], weights[2:4]):
      hidden = tf.nn.relu(tf.nn.conv2d(hidden, kernel, 1, 'VALID') + bias)
    hidden = tf.nn.max_pool2d(hidden, 2, 2, 'VALID')
    hidden = tf.reshape(hidden, [tf.shape(hidden)[0], weights[4].shape[0]])
    hidden = tf.nn.relu(hidden @ weights[4] + weights[5])
    return hidden @ weights[6] + weights[7]


# Network, examples of a client, batch size and learning rate.
_MODELS = {
    'softmax': (round_tasks.Dense(), 20, 10, 0.01),
    'mlp': (round_tasks.Dense(hidden=(64,)), 20, 10, 0.01),
    'cnn': (_Cnn(), 100, 20, 0.05),
    'lstm': (round_tasks.Lstm(), 64, 16, 1.0),
}
_TINY = {
    'softmax': (round_tasks.Dense(12, (), 5), 8, 4, 0.1),
    'mlp': (round_tasks.Dense(12, (6,), 5), 8, 4, 0.1),
    'cnn': (_Cnn(12, (2, 3), 8, 5), 8, 4, 0.1),
    'lstm': (round_tasks.Lstm(20, 4, 6, 5), 8, 4, 0.5),
}


@dataclasses.dataclass(frozen=True)
class Sizes:
  """How much is measured.

  Attributes:
    models: Names of networks.
    clients: Numbers of clients in a round on the GPU.
    cpu_clients: The same on the CPU.
    workers: Numbers of workers of the context, `None` for its default.
    server_device: Device of the context's server, `None` for its default.
    weights: Numbers of weights that get noise.
    noise_rounds: Rounds of noise.
    noise_rows: Rows of `benchmarks.noise`, `None` for all.
    seconds: Longest time for the repetitions of one row.
    first_case: Number of conformance cases to leave out.
    cases: Where conformance cases end, `None` for all.
    is_tiny: Whether networks are those of tests.
  """

  models: tuple[str, ...] = tuple(_MODELS)
  clients: tuple[int, ...] = (10, 100, 1000)
  cpu_clients: tuple[int, ...] = (10, 100)
  workers: tuple[int | None, ...] = (None,)
  server_device: str | None = None
  weights: tuple[int, ...] = (4_000_000, 100_000_000)
  noise_rounds: int = 32
  noise_rows: tuple[str, ...] | None = None
  seconds: float = 8.0
  first_case: int = 0
  cases: int | None = None
  is_tiny: bool = False

  def task(self, model: str, num_clients: int) -> round_tasks.Task:
    network, *others = (_TINY if self.is_tiny else _MODELS)[model]
    return round_tasks.Task(network, num_clients, *others)


DRY = Sizes(
    models=('mlp',),
    clients=(2,),
    cpu_clients=(2,),
    weights=(5000,),
    noise_rounds=1,
    noise_rows=('tff_dp independent',),
    seconds=0.0,
    cases=2,
    is_tiny=True,
)


def _gpus() -> list[str]:
  return [device.name for device in tf.config.list_logical_devices('GPU')]


def environment() -> dict[str, object]:
  """Returns the card, versions and cores."""
  build = tf.sysconfig.get_build_info()
  return {
      'card': _smi('--query-gpu=name,driver_version,memory.total'),
      'python': sys.version.split()[0],
      'tensorflow': tf.__version__,
      'cuda_of_tensorflow': build.get('cuda_version', 'none'),
      'tensorflow_federated': tff.__version__,
      'numpy': np.__version__,
      'cores': len(os.sched_getaffinity(0)),
  }


def _smi(*arguments: str) -> str:
  try:
    return subprocess.check_output([*_SMI, *arguments], text=True).strip()
  except (OSError, subprocess.CalledProcessError):
    return 'none'


@contextlib.contextmanager
def _busy() -> Iterator[Callable[[], float | None]]:
  """Gives a function that returns how busy the GPU was, in percent."""
  command = [*_SMI, '--query-gpu=utilization.gpu', '-lms', '100']
  try:
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE)
  except OSError:
    yield lambda: None
    return

  def mean():
    process.terminate()
    # The first number is about the time before.
    numbers = [int(word) for word in process.communicate()[0].split()][1:]
    return statistics.mean(numbers) if numbers else None

  try:
    yield mean
  finally:
    process.kill()
    process.wait()


def conformance(sizes: Sizes) -> Iterator[dict[str, object]]:
  """Yields one record for each case: where the GPU differs from the CPU.

  TF32 is off, because it keeps ten bits of a factor. An error of the card ends
  this: later work in its process fails, too.
  """
  # pylint: disable=g-import-not-at-top
  from tests.execution import conformance as conformance_lib
  from tests.execution import conformance_datasets
  from tests.execution import conformance_intrinsics
  from tests.execution import conformance_processes
  from tests.execution import conformance_tensorflow
  from tests.execution import conformance_values

  tf.config.experimental.enable_tensor_float_32_execution(False)
  cases = {
      **conformance_processes.CASES,
      **conformance_tensorflow.CASES,
      **conformance_intrinsics.CASES,
      **conformance_values.CASES,
      **conformance_datasets.CASES,
  }
  cpu = execution.create_sync_in_process_context(
      client_tf_devices=['CPU:0'], server_tf_device='CPU:0'
  )
  gpu = execution.create_sync_in_process_context()

  def result(context, case):
    with tff.framework.get_context_stack().install(context):
      function, *arguments = case.build()
      try:
        return function(*arguments)
      except Exception:  # pylint: disable=broad-exception-caught
        if case.raises is None:
          raise
        return 'an error, as it should'

  with cpu, gpu:
    for name, case in list(cases.items())[sizes.first_case : sizes.cases]:
      try:
        want, got = result(cpu, case), result(gpu, case)
        if case.is_random:
          found = conformance_lib.differences_in_distribution(want, got)
        else:
          found = conformance_lib.differences(want, got, tolerance=_TOLERANCE)
      except Exception as error:  # pylint: disable=broad-exception-caught
        found = [f'{type(error).__name__}: {error}']
      yield {'case': name, 'differs': '; '.join(found)[:300]}
      if any('InternalError' in text for text in found):
        return


def stream(sizes: Sizes) -> Iterator[dict[str, object]]:
  """Yields how many draws of one key differ between GPU and CPU."""
  kinds = {
      'bits': lambda num, key: streams.bits([num], key),
      'uniforms': lambda num, key: streams.uniforms([num], key),
      'normals': lambda num, key: streams.normals([num], key),
      'laplace': lambda num, key: streams.laplace([num], key),
      'noise of a BLT, third round': _third_round,
  }
  for kind, draw in kinds.items():
    found = []
    for device in ('CPU:0', 'GPU:0' if _gpus() else 'CPU:0'):
      with tf.device(device):
        drawn = tf.function(draw, autograph=False)(
            sizes.weights[0], streams.insecure_root_key(1)
        )
      found.append(drawn.numpy())
    cpu, gpu = found
    differ = cpu != gpu
    yield {
        'draws': kind,
        'number': cpu.size,
        'differ': int(differ.sum()),
        'largest_difference': float(np.abs(cpu - gpu, dtype=float).max())
        if cpu.dtype.kind == 'f'
        else int(differ.any()),
    }


def _third_round(num: int, key: tf.Tensor) -> tf.Tensor:
  mechanism = mechanisms.Blt(8, (0.25, 0.125, 0.0625), (0.99, 0.9, 0.5))
  buffers = mechanism.initialize(tf.zeros([num]))
  operations = streams.operations(key, num)
  for index in (1, 2, 3):
    drawn, buffers = mechanism.next_noise(
        buffers, tf.constant(index, tf.int64), operations
    )
  return drawn


def noise_of_a_round(sizes: Sizes) -> Iterator[dict[str, object]]:
  """Yields the rows of `benchmarks.noise` for each number of weights."""
  for num_weights in sizes.weights:
    rows = noise.measure(
        num_weights, sizes.noise_rounds, wanted=sizes.noise_rows
    )
    for name, row in rows.items():
      yield {'weights': num_weights, 'row': name, **row}


def rounds(sizes: Sizes) -> Iterator[dict[str, object]]:
  """Yields the rows of one model and number of clients after the other."""
  gpus = _gpus()
  engines = [
      _ENGINE if number is None else f'{_ENGINE}_{number}'
      for number in sizes.workers
  ]
  wanted = [f'{name}/{kind}' for name in engines for kind in _AGGREGATIONS]
  for model in sizes.models:
    for num_clients in sizes.clients if gpus else sizes.cpu_clients:
      facts = {
          'device': 'GPU' if gpus else 'CPU',
          'model': model,
          'clients': num_clients,
      }
      with contextlib.ExitStack() as stack:
        task = sizes.task(model, num_clients)
        made, absent = round_rows.make_rows(
            task,
            stack,
            wanted=wanted,
            workers=sizes.workers,
            server_device=sizes.server_device,
        )
        for name, why in absent.items():
          yield {**facts, 'row': name, 'absent': why}
        # The CPU is a yardstick for the product only.
        for row in made if gpus or sizes.is_tiny else made[-len(wanted) :]:
          yield {**facts, **_measured(row, task, sizes.seconds)}


def _measured(row, task: round_tasks.Task, seconds: float):
  """Returns the times of a row, and what it does to card and weights."""
  gpus = _gpus()
  for gpu in gpus:
    tf.config.experimental.reset_memory_stats(gpu.removeprefix('/device:'))
  spent = []

  def timed_round():
    start = time.perf_counter()
    row.runner.run_round()
    # Kernels may still run when a call returns.
    tf.test.experimental.sync_devices()
    spent.append(time.perf_counter() - start)

  before = row.runner.weights()
  try:
    timed_round()
  except Exception as error:  # pylint: disable=broad-exception-caught
    return {'row': row.name, 'absent': f'{type(error).__name__}: {error}'[:300]}
  after = row.runner.weights()
  moved = np.sqrt(sum(np.sum(np.square(a - b)) for a, b in zip(after, before)))
  with _busy() as busy:
    while not spent[1:] or (
        sum(spent[1:]) < seconds
        and (len(spent) <= _MIN_ROUNDS or sum(spent[1:]) < _MIN_SECONDS)
    ):
      timed_round()
    percent = busy()
  return {
      'row': row.name,
      'first_seconds': spent[0],
      'median_seconds': statistics.median(spent[1:]),
      'repetitions': len(spent) - 1,
      # The same for all rows of a task that compute the same.
      'norm_of_first_update': float(moved),
      'busy_percent': percent,
      'peak_megabytes': sum(
          tf.config.experimental.get_memory_info(
              gpu.removeprefix('/device:')
          )['peak']
          for gpu in gpus
      )
      / 1e6,
  }


def with_floors(records: list[dict[str, object]]) -> list[dict[str, object]]:
  """Returns records of rounds with ratios to the fastest row by hand."""
  floors = {}
  for record in records:
    if 'median_seconds' not in record or record['row'].startswith(_ENGINE):
      continue
    key = tuple(map(record.get, _PLACE))
    floors[key] = min(
        record['median_seconds'], floors.get(key, record['median_seconds'])
    )
  return [
      {**record, 'over_floor': record['median_seconds'] / floors[key]}
      if (key := tuple(map(record.get, _PLACE))) in floors
      and 'median_seconds' in record
      else record
      for record in records
  ]


_PARTS = {
    'conformance': conformance,
    'stream': stream,
    'noise': noise_of_a_round,
    'rounds': rounds,
    'cpu': rounds,
}


def table(records: list[dict[str, object]]) -> str:
  """Returns records as lines of columns, one for each of their keys."""
  keys = list(dict.fromkeys(key for record in records for key in record))
  lines = [keys] + [[_cell(r.get(key)) for key in keys] for r in records]
  widths = [max(map(len, column)) for column in zip(*lines)]
  return '\n'.join(
      '  '.join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
      for line in lines
  )


def _cell(value: object) -> str:
  if value is None:
    return '-'
  return f'{value:.4g}' if isinstance(value, float) else str(value)


def _process(part: str, arguments) -> Iterator[dict[str, object]]:
  """Yields the records of a part while its process makes them.

  Raises:
    subprocess.CalledProcessError: If the process failed, after its records.
  """
  command = [sys.executable, '-m', 'benchmarks.gpu', *arguments, '--inner', part]
  hidden = {'CUDA_VISIBLE_DEVICES': '-1'} if part == 'cpu' else {}
  with subprocess.Popen(
      command, env={**os.environ, **hidden}, stdout=subprocess.PIPE, text=True
  ) as process:
    for line in process.stdout:
      yield json.loads(line)
  if process.returncode:
    raise subprocess.CalledProcessError(process.returncode, part)


def _records(part: str, arguments) -> Iterator[dict[str, object]]:
  """Yields the records of a part, also where it takes several processes."""
  done, finished = 0, False
  while not finished:
    before = done
    try:
      for record in _process(part, [*arguments, '--first-case', str(done)]):
        done += 1
        yield record
      finished = part != 'conformance' or done == before
    except subprocess.CalledProcessError as error:
      yield {'case': f'{part}, record {done}', 'differs': f'{error}'}
      done += 1
      # Only a case can be left out.
      finished = part != 'conformance'


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
      prog='python -m benchmarks.gpu',
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  default = Sizes()
  parser.add_argument('--dry-run', action='store_true', help='tiny sizes')
  parser.add_argument(
      '--parts',
      nargs='+',
      choices=['doctor', *_PARTS],
      default=['doctor', *_PARTS],
      help='default: all',
  )
  parser.add_argument(
      '--models', nargs='+', choices=default.models, help='default: all'
  )
  for name in ('clients', 'cpu_clients', 'weights'):
    parser.add_argument(
        f'--{name.replace("_", "-")}',
        nargs='+',
        type=int,
        help=f'default: {" ".join(map(str, getattr(default, name)))}',
    )
  parser.add_argument(
      '--workers',
      nargs='+',
      type=int,
      help='that share the card (default: as the context chooses)',
  )
  parser.add_argument(
      '--server-device',
      metavar='DEVICE',
      help='such as CPU:0 (default: as the context chooses)',
  )
  parser.add_argument(
      '--seconds',
      type=float,
      help=f'longest time of a row (default: {default.seconds})',
  )
  parser.add_argument('--json', type=pathlib.Path, metavar='PATH')
  # Run one part in this process, and print its records.
  parser.add_argument('--inner', choices=_PARTS, help=argparse.SUPPRESS)
  parser.add_argument('--first-case', type=int, help=argparse.SUPPRESS)
  return parser


def sizes_of(arguments: argparse.Namespace) -> Sizes:
  """Returns the sizes that flags ask for."""
  given = {
      field.name: tuple(value) if isinstance(value, list) else value
      for field in dataclasses.fields(Sizes)
      if (value := getattr(arguments, field.name, None)) is not None
  }
  return dataclasses.replace(DRY if arguments.dry_run else Sizes(), **given)


def main(argv=None) -> int:
  argv = sys.argv[1:] if argv is None else argv
  arguments = _parser().parse_args(argv)
  tf.get_logger().setLevel('ERROR')
  if arguments.inner:
    devices.describe()  # Memory grows; else one process takes the card.
    for record in _PARTS[arguments.inner](sizes_of(arguments)):
      print(json.dumps(record), flush=True)
    return 0
  if not (arguments.dry_run or tf.config.list_physical_devices('GPU')):
    raise _checks.ArgumentError(
        'GPU', 'none', 'one that TensorFlow sees (`tff-dp doctor`), or --dry-run'
    )
  results = {'environment': environment()}
  print(table([results['environment']]), flush=True)
  for part in arguments.parts:
    print(f'\n{part}', flush=True)
    if part == 'doctor':
      subprocess.run([sys.executable, '-m', 'tff_dp', 'doctor'], check=False)
      continue
    results[part] = []
    for record in _records(part, argv):
      results[part].append(record)
      if arguments.json:
        # What was measured before an error or Ctrl-C is not lost.
        arguments.json.write_text(json.dumps(results, indent=1) + '\n')
    if _PARTS[part] is rounds:
      results[part] = with_floors(results[part])
    if part == 'conformance':
      differ = [r for r in results[part] if r.get('differs') != '']
      print(f'{len(results[part])} cases, {len(differ)} differ')
      print(table(differ) if differ else '', flush=True)
    else:
      print(table(results[part]), flush=True)
  if arguments.json:
    arguments.json.write_text(json.dumps(results, indent=1) + '\n')
  return 0


if __name__ == '__main__':
  sys.exit(main())
