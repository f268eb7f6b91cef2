# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The rows of `benchmarks.round_time`: made, compared with each other, timed."""

import contextlib
import dataclasses
import os
import pathlib
import statistics
import sys
import time

import numpy as np

from benchmarks import round_graphs
from benchmarks import round_one_by_one
from benchmarks import round_pfl_row
from benchmarks import round_tasks
from benchmarks import round_tff
from tff_dp import _checks

# Float32 rounding flips a few ReLUs, which moves the CNN's update by up to 2e-3
# of its norm (one client trained in float64 by TensorFlow and by PyTorch came
# out equal to 1e-14). A batch left out, or a step size that is 1 % off, moves
# it by more than this.
_MAX_RELATIVE = 5e-3
_MAX_ABSOLUTE = 1e-4
# A round written by hand, with one thread. The floor is the fastest of them that
# only trains.
_BY_HAND = ('one_by_one', *round_graphs.FORMS)
_MORE_THAN_TRAINING = tuple(
    form for form in round_graphs.FORMS if form.endswith('_clipped')
)


class DifferentResultError(RuntimeError):
  """A row computes something else than `one_by_one`, so its time is no use."""


@dataclasses.dataclass
class Row:
  """One contestant, and what was measured of it.

  Attributes:
    name: 'engine' or 'engine/aggregation'.
    runner: Has `run_round()`, `weights()` and `close()`.
    clip: Norm to which the aggregation clips updates in round 1.
    first_seconds: The first round, with everything that is done only once.
    difference: Norm of its update less that of `one_by_one`, over the latter's
      norm.
    seconds: Of the timed rounds.
    cpu_seconds: What they took of the processor, in all processes.
  """

  name: str
  runner: object
  clip: float = np.inf
  first_seconds: float = 0.0
  difference: float = 0.0
  seconds: list[float] = dataclasses.field(default_factory=list)
  cpu_seconds: list[float] = dataclasses.field(default_factory=list)

  @property
  def engine(self) -> str:
    return self.name.partition('/')[0]


def cpu_seconds() -> float:
  """Returns the CPU time so far of this process and of those below it.

  TFF's runtime is a child, and so is pfl-research. Their part is counted in
  hundredths of a second.
  """
  ticks, waiting = 0, [os.getpid()]
  while waiting:
    pid = waiting.pop()
    # A process may end at any time.
    with contextlib.suppress(OSError):
      if pid != os.getpid():
        # After the name, which is in brackets: user and system time.
        fields = _read(f'/proc/{pid}/stat').rpartition(')')[2].split()
        ticks += int(fields[11]) + int(fields[12])
      for task in os.listdir(f'/proc/{pid}/task'):
        children = _read(f'/proc/{pid}/task/{task}/children')
        waiting.extend(map(int, children.split()))
  return time.process_time() + ticks / os.sysconf('SC_CLK_TCK')


def _read(path: str) -> str:
  return pathlib.Path(path).read_text()


def _norm(arrays) -> float:
  return float(np.sqrt(sum(np.sum(np.square(a, dtype=float)) for a in arrays)))


def expected_update(updates, clip: float) -> list[np.ndarray]:
  """Returns the mean of the clients' updates, each clipped to norm `clip`."""
  factors = [min(1.0, clip / _norm(update)) for update in updates]
  return [
      sum(factor * part for factor, part in zip(factors, parts)) / len(updates)
      for parts in zip(*updates)
  ]


def relative_difference(row_name: str, initial, actual, expected) -> float:
  """Returns how far a row's update is from the expected one, over its norm.

  Args:
    row_name: For the message.
    initial: Weights before the round.
    actual: Weights after the round.
    expected: The update that the round should have made.

  Raises:
    DifferentResultError: It is too far.
  """
  differences = [
      end - start - update
      for end, start, update in zip(actual, initial, expected, strict=True)
  ]
  relative = _norm(differences) / _norm(expected)
  largest = max(float(np.abs(part).max()) for part in differences)
  if not (relative <= _MAX_RELATIVE and largest <= _MAX_ABSOLUTE):
    raise DifferentResultError(
        f'{row_name} does not compute the same round as one_by_one: its'
        ' update'
        f' differs by {relative:.2g} of the norm (at most {_MAX_RELATIVE:g}),'
        f' {largest:.2g} in one weight (at most {_MAX_ABSOLUTE:g})'
    )
  return relative


def make_rows(
    task: round_tasks.Task,
    stack: contextlib.ExitStack,
    *,
    wanted=None,
    workers=(None,),
    server_device: str | None = None,
    pfl_python: str = sys.executable,
) -> tuple[list[Row], dict[str, str]]:
  """Returns the rows, `one_by_one` first, and why other ones are absent.

  Args:
    task: What to train.
    stack: Closes contexts and processes.
    wanted: Names of rows, or what stands before their slash; `None` for all.
      The rounds written by hand are always there.
    workers: Values of `max_concurrent_clients` of the in-process context.
    server_device: The device of this context's server, `None` for its default.
    pfl_python: Interpreter that has pfl and torch.

  Raises:
    ArgumentError: A name in `wanted` that no row has.
  """
  absent, rows, names = {}, [], []

  def is_wanted(name):
    names.extend([name, name.partition('/')[0]])
    return wanted is None or bool({name, name.partition('/')[0]} & set(wanted))

  def add(name, runner, clip=np.inf):
    stack.callback(runner.close)
    rows.append(Row(name, runner, clip))

  add('one_by_one', round_one_by_one.OneByOne(task, 1))
  for name, make in round_graphs.FORMS.items():
    absent[name] = round_graphs.why_absent(task, name)
    if absent[name] is None:
      del absent[name]
      add(name, make(task))
  names.extend(_BY_HAND)
  if is_wanted('one_by_one_2_threads'):
    add('one_by_one_2_threads', round_one_by_one.OneByOne(task, 2))
  native = None
  for engine in round_tff.engines(workers, server_device):
    aggregations = [
        aggregation
        for aggregation in engine.aggregations
        if is_wanted(f'{engine.name}/{aggregation}')
    ]
    if not aggregations:
      continue
    # One worker process serves both native engines.
    context = native if engine.kind == 'native' else None
    context = context or engine.create_context()
    if context is None:
      absent[engine.name] = 'this version has no in-process context'
      continue
    if context is not native:
      stack.callback(context.close)
    if engine.kind == 'native':
      native = context
    for aggregation in aggregations:
      process = round_tff.build_process(task, aggregation, engine.loop)
      add(
          f'{engine.name}/{aggregation}',
          round_tff.TffRow(task, context, process),
          round_tff.clip_of(aggregation),
      )
  aggregations = [
      aggregation
      for aggregation in round_pfl_row.AGGREGATIONS
      if is_wanted(f'pfl/{aggregation}')
  ]
  reason = round_pfl_row.why_absent(pfl_python) if aggregations else None
  if reason is not None:
    absent['pfl'] = reason
    aggregations = []
  for aggregation in aggregations:
    runner = round_pfl_row.PflRow(
        task,
        aggregation,
        pfl_python,
        clip=round_tff.FIXED_CLIP,
        noise_multiplier=round_tff.NOISE_MULTIPLIER,
    )
    add(
        f'pfl/{aggregation}',
        runner,
        np.inf if aggregation == 'mean' else round_tff.FIXED_CLIP,
    )
  for name in wanted or ():
    _checks.one_of(sorted(set(names)), rows=name)
  return rows, absent


def warm_up(task: round_tasks.Task, rows: list[Row], say=lambda text: None):
  """Runs the first round of every row and checks its result.

  Args:
    task: What the rows train.
    rows: `one_by_one` first.
    say: Told what is going on.

  Raises:
    DifferentResultError: A row does something else than `one_by_one`.
  """
  initial = task.initial_weights()
  updates = None
  for row in rows:
    start = time.perf_counter()
    row.runner.run_round()
    row.first_seconds = time.perf_counter() - start
    weights = row.runner.weights()
    if updates is None:  # Not before: it would warm up the first row.
      row.runner.reset()
      updates = row.runner.updates()
    row.difference = relative_difference(
        row.name, initial, weights, expected_update(updates, row.clip)
    )
    say(f'{row.name}: first round {row.first_seconds:.2f} s')


def measure(rows: list[Row], num_rounds: int, say=lambda text: None) -> None:
  """Times `num_rounds` rounds of every row, in turn.

  Each repetition begins with another row: what a row leaves behind for the
  next one, in caches or in threads that are still awake, hits all alike.

  Args:
    rows: After `warm_up`.
    num_rounds: Repetitions.
    say: Told what is going on.
  """
  begin = time.perf_counter()
  for done in range(num_rounds):
    shift = done % len(rows)
    for row in rows[shift:] + rows[:shift]:
      start, cpu = time.perf_counter(), cpu_seconds()
      row.runner.run_round()
      row.seconds.append(time.perf_counter() - start)
      row.cpu_seconds.append(cpu_seconds() - cpu)
    left = (time.perf_counter() - begin) / (done + 1) * (num_rounds - done - 1)
    say(f'repetition {done + 1} of {num_rounds}, {left:.0f} s left')


def floor_of(rows: list[Row]) -> str:
  """Returns the round by hand that takes the least CPU time, in the median."""
  names = set(_BY_HAND) - set(_MORE_THAN_TRAINING)
  by_hand = [row for row in rows if row.name in names]
  return min(by_hand, key=lambda row: statistics.median(row.cpu_seconds)).name


def summary(rows: list[Row]) -> list[dict[str, object]]:
  """Returns the medians of every row; ratios are taken within repetitions."""
  wall = {row.name: row.seconds for row in rows}
  cpu = {row.name: row.cpu_seconds for row in rows}
  floor = floor_of(rows)

  def ratio(name, other, seconds=wall):
    if other not in seconds:
      return None
    return statistics.median(
        one / two for one, two in zip(seconds[name], seconds[other])
    )

  return [
      {
          'row': row.name,
          'is_floor': row.name == floor,
          'first_seconds': row.first_seconds,
          'median_seconds': statistics.median(row.seconds),
          'median_cpu_seconds': statistics.median(row.cpu_seconds),
          'over_one_by_one': ratio(row.name, 'one_by_one'),
          'over_floor': ratio(row.name, floor),
          'cpu_over_floor': ratio(row.name, floor, cpu),
          'over_own_mean': ratio(row.name, f'{row.engine}/mean'),
          'over_in_process': ratio(row.name, 'in_process/mean'),
          'difference': row.difference,
          'seconds': row.seconds,
          'cpu_seconds': row.cpu_seconds,
      }
      for row in rows
  ]
