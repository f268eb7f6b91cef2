# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A run of two rounds and its bundle, with everything that a bundle may have.

  python -m tests.export.small_bundle

writes the bundle of this stack into `KEPT`, where tests on the other stack
verify it. Again after a change of what a bundle, a plan or a statement says.
"""

import pathlib
import tarfile
import tempfile
from typing import Any

import tff_dp
import tensorflow as tf  # pylint: disable=g-bad-import-order

from tests.learning import small_model
from tests.program import processes
from tff_dp import execution
from tff_dp import export
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp import program

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


def train(process, run: pathlib.Path) -> program.TrainResult:
  """Trains for two rounds."""
  return program.train(
      process,
      processes.Clients(),
      output_dir=run,
      delta=DELTA,
      total_rounds=2,
      progress='quiet',
  )


def write(process, run: pathlib.Path, output: pathlib.Path) -> dict[str, Any]:
  """Writes the bundle of such a run; returns its manifest."""
  return export.export_bundle(
      run,
      output=output,
      process=process,
      model=small_model.build(),
      odp_population='my_app',
  )


def archive(version: str) -> pathlib.Path:
  """Returns where the bundle of a version of TensorFlow is kept."""
  return KEPT / f'tensorflow-{version.rpartition(".")[0]}.tar.xz'


def main():
  execution.set_default_context()
  with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    process = build_process()
    train(process, root / 'run')
    write(process, root / 'run', root / 'bundle')
    KEPT.mkdir(exist_ok=True)
    with tarfile.open(archive(tf.__version__), 'w:xz') as packed:
      packed.add(root / 'bundle', 'bundle')


if __name__ == '__main__':
  main()
