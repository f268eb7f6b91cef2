# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""This process's end of the pfl-research rows of `benchmarks.round_time`."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import numpy as np

from benchmarks import round_tasks

_SCRIPT = pathlib.Path(__file__).with_name('round_pfl.py')
# pfl's Gaussian mechanism has a fixed clip norm, its banded matrix mechanism is
# the nearest that it has to DP-FTRL's tree.
AGGREGATIONS = ('mean', 'banded_matrix', 'gaussian')


class PflError(RuntimeError):
  """pfl's process did not answer."""


def why_absent(python: str) -> str | None:
  """Returns why `python` cannot run pfl, or None if it can."""
  command = [python, '-c', 'import pfl, torch']
  try:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
  except OSError as error:
    return f'cannot run {python}: {error.strerror}'
  if done.returncode:
    lines = done.stderr.decode(errors='replace').strip().splitlines()
    return f'not installed ({lines[-1] if lines else "import failed"})'
  return None


class PflRow:
  """A simulation in another process, which ends with `close`.

  Attributes:
    facts: Versions and the number of threads.
  """

  def __init__(
      self,
      task: round_tasks.Task,
      aggregation: str,
      python: str,
      *,
      clip: float,
      noise_multiplier: float,
  ):
    # pfl writes the matrix that it optimised into its working directory.
    self._folder = pathlib.Path(tempfile.mkdtemp(prefix='tff_dp_pfl_'))
    config = {
        'model': type(task.model).__name__.lower(),
        'sizes': dataclasses.asdict(task.model),
        'aggregation': aggregation,
        'num_clients': task.num_clients,
        'batch_size': task.batch_size,
        'learning_rate': task.learning_rate,
        'clip': clip,
        'noise_multiplier': noise_multiplier,
        'num_threads': len(os.sched_getaffinity(0)),
    }
    (self._folder / 'config.json').write_text(json.dumps(config))
    arrays = {
        f'weight_{i}': value for i, value in enumerate(task.initial_weights())
    }
    for i, (inputs, labels) in enumerate(task.clients()):
      arrays |= {f'inputs_{i}': inputs, f'labels_{i}': labels}
    np.savez(self._folder / 'arrays.npz', **arrays)
    self._log = open(self._folder / 'log', 'w+b')
    self._process = subprocess.Popen(
        [python, _SCRIPT, 'config.json', 'arrays.npz'],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=self._log,
        cwd=self._folder,
        # By default its OpenMP threads spin while they wait. On cores that are
        # shared with anything else that makes a round ten times as long.
        env={'OMP_WAIT_POLICY': 'PASSIVE', **os.environ},
        text=True,
    )
    try:
      self.facts = json.loads(self._answer())
    except PflError:
      self.close()
      raise

  def _answer(self) -> str:
    line = self._process.stdout.readline()
    if not line:
      self._log.seek(0)
      tail = self._log.read().decode(errors='replace').strip()[-2000:]
      raise PflError(f'the process of pfl-research ended: {tail}')
    return line

  def _ask(self, request: str) -> str:
    self._process.stdin.write(request + '\n')
    self._process.stdin.flush()
    return self._answer()

  def run_round(self) -> None:
    self._ask('round')

  def weights(self) -> list[np.ndarray]:
    path = self._folder / 'weights.npz'
    self._ask(f'weights {path}')
    with np.load(path) as arrays:
      return [arrays[f'arr_{i}'] for i in range(len(arrays.files))]

  def close(self) -> None:
    self._process.stdin.close()  # It reads the end of its input, and ends.
    self._process.stdout.close()
    self._process.wait()
    self._log.close()
    shutil.rmtree(self._folder)
