# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs of two rounds and their bundles; one with everything that there may be.

  python -m tests.export.small_bundle

writes the bundles of all systems with this stack into `KEPT`, where tests on
the other stack verify them. Again after a change of what a bundle, a plan or a
statement says.
"""

from collections.abc import Callable, Iterator
import functools
import pathlib
import tarfile
import tempfile
from typing import Any

import tff_dp
import tensorflow as tf  # pylint: disable=g-bad-import-order

from tests.learning import small_model
from tests.program import processes
from tests.program import protocol_run
from tests.systems.draw_and_discard import instance_run
from tests.systems.sampling import sampled_run
from tests.systems.silos import secure_sum_run
from tests.systems.silos import silo_run
from tff_dp import execution
from tff_dp import export
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp import program
from tff_dp.program import results

DELTA = 1e-7
KEPT = pathlib.Path(__file__).parent / 'kept'


def build_plan(mechanism=None, **changes) -> tff_dp.DpFtrlPlan:
  """Returns a plan of four rounds."""
  arguments = dict(
      participation=participation.MinSeparation(4, min_index_gap=2),
      noise_multiplier=4.0,
  )
  return small_model.build_plan(
      mechanism or mechanisms.HonakerTree(4), **arguments | changes
  )


def build_process(**changes):
  """Returns its process, with a key of its own."""
  return small_model.build_process(
      build_plan(), **dict(insecure_seed=None) | changes
  )


# Tracing takes longer than the run.
_process = functools.cache(build_process)


def train(
    run: pathlib.Path, process=None, *, total_rounds: int = 2
) -> results.TrainResult:
  """Trains with DP-FTRL."""
  return program.train(
      process or _process(),
      processes.Clients(),
      output_dir=run,
      delta=DELTA,
      total_rounds=total_rounds,
      progress='quiet',
  )


def write(
    run: pathlib.Path, *, output: pathlib.Path, process=None
) -> dict[str, Any]:
  """Writes the bundle of such a run; returns its manifest."""
  return export.export_bundle(
      run,
      output=output,
      process=process,
      model=small_model.build(),
      odp_population='my_app',
  )


def runs() -> Iterator[tuple[str, Callable[..., results.TrainResult]]]:
  """Yields the names of runs, a system each, and what makes or resumes them."""
  yield 'dp_ftrl', train
  for kind in (
      protocol_run.FIXED_WINDOW, protocol_run.SHUFFLED, protocol_run.CYCLIC
  ):
    yield kind, functools.partial(protocol_run.run, kind=kind)
  yield 'silos', silo_run.run
  yield 'secure_sums', secure_sum_run.run
  yield 'draw_and_discard', instance_run.run
  yield 'sampling', sampled_run.run


def archive(version: str) -> pathlib.Path:
  """Returns where the bundles of a version of TensorFlow are kept."""
  return KEPT / f'tensorflow-{version.rpartition(".")[0]}.tar.xz'


def main():
  execution.set_default_context()
  with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    for name, run in runs():
      run(root / name, total_rounds=2)
      export_run = write if run is train else export.export_bundle
      export_run(root / name, output=root / 'bundles' / name)
    KEPT.mkdir(exist_ok=True)
    with tarfile.open(archive(tf.__version__), 'w:xz') as packed:
      packed.add(root / 'bundles', '')


if __name__ == '__main__':
  main()
