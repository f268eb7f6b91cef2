# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""How long a new process takes to the end of its first round.

    python -m benchmarks.round_first_call in_process cnn_10

is the process that `python -m benchmarks.round_time --first-call` starts afresh
for every number. It prints JSON.
"""

# pylint: disable=g-import-not-at-top,g-bad-import-order,wrong-import-position
import time

_START = time.perf_counter()

import argparse
import contextlib
import json
import statistics
import subprocess
import sys

from benchmarks import round_tasks
from benchmarks import round_tff

_IMPORTED = time.perf_counter()
_ENGINES = ('in_process', 'native_iterator', 'native_default')


def run(engine_name: str, task_name: str) -> dict[str, float] | None:
  """Returns seconds by stage, or None if there is no such context here.

  Stages: `import` of TensorFlow, TFF and tff_dp; `build`, making the learning
  process; `start`, making the context and the initial state on it; `round`.
  """
  task = round_tasks.TASKS[task_name]
  engine = {e.name: e for e in round_tff.engines()}[engine_name]
  task.initial_weights()  # The data and weights are not what is timed.
  times = [time.perf_counter()]
  process = round_tff.build_process(task, 'mean', engine.loop)
  times.append(time.perf_counter())
  context = engine.create_context()
  if context is None:
    return None
  with contextlib.closing(context):
    row = round_tff.TffRow(task, context, process)
    times.append(time.perf_counter())
    row.run_round()
    times.append(time.perf_counter())
  build, start, first = (
      after - before for before, after in zip(times, times[1:])
  )
  return {
      'import': _IMPORTED - _START,
      'build': build,
      'start': start,
      'round': first,
      'without import': build + start + first,
      'total': _IMPORTED - _START + build + start + first,
  }


def measure(
    task_name: str, *, repetitions: int, say=lambda text: None
) -> list[dict[str, object]]:
  """Returns medians over new processes, the engines taking turns.

  Args:
    task_name: Of `round_tasks.TASKS`.
    repetitions: Processes per engine.
    say: Told what is going on.
  """
  found = {name: [] for name in _ENGINES}
  for repetition in range(repetitions):
    for name in _ENGINES:
      done = subprocess.run(
          [sys.executable, '-m', __name__, name, task_name],
          stdin=subprocess.DEVNULL,
          stdout=subprocess.PIPE,
          check=True,
      )
      seconds = json.loads(done.stdout)
      if seconds is not None:
        found[name].append(seconds)
        say(
            f'{task_name} {name}: process {repetition + 1} of {repetitions},'
            f' {seconds["total"]:.1f} s'
        )
  return [
      {
          'row': f'{name}/mean',
          'seconds': {
              stage: statistics.median(one[stage] for one in samples)
              for stage in samples[0]
          },
          'samples': samples,
      }
      for name, samples in found.items()
      if samples
  ]


def main() -> None:
  parser = argparse.ArgumentParser(
      prog='python -m benchmarks.round_first_call',
      description='Seconds to the end of the first round, in a new process.',
  )
  parser.add_argument('engine', choices=_ENGINES)
  parser.add_argument('task', choices=round_tasks.TASKS)
  given = parser.parse_args()
  print(json.dumps(run(given.engine, given.task)))


if __name__ == '__main__':
  main()
