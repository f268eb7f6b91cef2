# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Goes on with some real runs, and ends them all by one SIGKILL, in a round.

`python -m tests.program.killed_runs DIR NAME...` does so with runs of the
folder, of which each was killed before. One process for all, because starting
one, with all that it imports, takes longer than the runs.
"""

from collections.abc import Callable
import os
import pathlib
import signal
import sys
import threading
import traceback
from unittest import mock

from tests.program import protocol_run
from tests.program import real_run
from tests.systems.draw_and_discard import instance_run
from tests.systems.sampling import sampled_run
from tests.systems.silos import secure_sum_run
from tests.systems.silos import silo_run
from tff_dp import execution
from tff_dp.files import write_ahead
from tff_dp.program import results

REAL = 'real'
SILOS = 'silos'
NAMES = (
    REAL,
    protocol_run.FIXED_WINDOW,
    protocol_run.SHUFFLED,
    protocol_run.CYCLIC,
    instance_run.INSTANCES,
    sampled_run.SAMPLED,
    SILOS,
    secure_sum_run.SUMS,
)
# The round in which each ends.
KILLED_IN = {
    REAL: 8,
    protocol_run.FIXED_WINDOW: 5,
    protocol_run.SHUFFLED: 5,
    protocol_run.CYCLIC: 5,
    instance_run.INSTANCES: 8,
    sampled_run.SAMPLED: 8,
    SILOS: 5,
    secure_sum_run.SUMS: 5,
}
# Into that round: shorter than one, so that it is in the midst of it.
_SECONDS_IN_ROUND = 0.02


def run(name: str, root: pathlib.Path) -> results.TrainResult:
  """Makes a run, or goes on with it, in the caller's context."""
  if name == REAL:
    return real_run.run(root)
  if name == SILOS:
    return silo_run.run(root)
  if name == secure_sum_run.SUMS:
    return secure_sum_run.run(root)
  if name == instance_run.INSTANCES:
    return instance_run.run(root)
  if name == sampled_run.SAMPLED:
    return sampled_run.run(root)
  return protocol_run.run(root, name)


def _in_round(name: str, act: Callable[[], object]):
  """Returns a context in which something happens as soon as a round begins."""
  begin = write_ahead.WriteAheadRecord.begin

  def begin_and_act(record, round_index, *args, **kwargs):
    begin(record, round_index, *args, **kwargs)
    if round_index == KILLED_IN[name]:
      act()

  return mock.patch.object(
      write_ahead.WriteAheadRecord, 'begin', begin_and_act
  )


def _run_to_the_end(name: str, root: pathlib.Path) -> None:
  """Makes a run that is not meant to end: then the process fails."""
  try:
    # TFF's stack of contexts is thread-local.
    with execution.create_sync_in_process_context(max_concurrent_clients=1):
      run(name, root)
    print(f'{name} was not killed', file=sys.stderr)
  except BaseException:  # pylint: disable=broad-exception-caught
    traceback.print_exc()
  sys.stderr.flush()
  os._exit(1)


def _hold(name: str, root: pathlib.Path) -> None:
  """Returns once a run is in its round, and stays there."""
  is_there = threading.Event()

  def stay():
    is_there.set()
    threading.Event().wait()

  with _in_round(name, stay):
    threading.Thread(
        target=_run_to_the_end, args=(name, root), daemon=True
    ).start()
    is_there.wait()


def main(parent: pathlib.Path, names: list[str]) -> None:
  for name in names:
    if name != REAL:
      _hold(name, parent / name)
  if REAL not in names:
    os.kill(os.getpid(), signal.SIGKILL)
  kill = threading.Timer(
      _SECONDS_IN_ROUND, os.kill, (os.getpid(), signal.SIGKILL)
  )
  with _in_round(REAL, kill.start):
    _run_to_the_end(REAL, parent / REAL)


if __name__ == '__main__':
  main(pathlib.Path(sys.argv[1]), sys.argv[2:])
