# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The table, the JSON file and the plots of the MNIST task."""

from collections.abc import Sequence
import dataclasses
import json
import math
import pathlib
import statistics
from typing import Any, Optional

from tasks.common import flags
from tasks.mnist import mnist_guarantees
from tasks.mnist import mnist_rows
from tasks.mnist import mnist_run
from tff_dp.accounting import rounding
from tff_dp.mechanisms import randomizers


@dataclasses.dataclass(frozen=True)
class Finished:
  """All runs of a row.

  Attributes:
    row: Row that was run.
    results: Result of each seed.
  """

  row: mnist_rows.Row
  results: Sequence[mnist_run.Result]

  @property
  def guarantees(self) -> Sequence[mnist_guarantees.Guarantee]:
    """Guarantees at several deltas, the row's own first: of the worst seed."""
    worst = max(self.results, key=lambda r: r.guarantees[0].epsilon)
    return worst.guarantees

  @property
  def guarantee(self) -> mnist_guarantees.Guarantee:
    """The guarantee at the row's own delta."""
    return self.guarantees[0]

  @property
  def accuracy(self) -> float:
    """Mean held-out accuracy of the last models."""
    return statistics.fmean(r.test_accuracy for r in self.results)

  @property
  def deviation(self) -> Optional[float]:
    """Standard deviation over seeds, `None` for a single one."""
    if len(self.results) < 2:
      return None
    return statistics.stdev(r.test_accuracy for r in self.results)


def table(rows: Sequence[Finished]) -> str:
  """Returns the rows as a Markdown table."""
  lines = [
      '| run | clients | updates | reports each | noise | epsilon (certified) |'
      ' bound | relation | without amplification | published formulas | held-out'
      ' accuracy |',
      '|' + '---|' * 11,
  ]
  for done in rows:
    row, found = done.row, done.guarantee
    published = ', '.join(
        f'{p.formula.split(", ")[-1]}: {p}' for p in found.published
    )
    lines.append(
        f'| {row.name} | {row.num_clients:,} | {row.num_updates:,} |'
        f' {row.reports_per_update:,.0f} | {_noise(row)} |'
        f' {_epsilon(found.epsilon)} | {found.bound} |'
        f' {found.neighboring_relation.replace("_", "-") or "none"} |'
        f' {_epsilon(found.epsilon_no_amplification)} | {published or "none"} |'
        f' {_accuracy(done)} |'
    )
  return '\n'.join(lines)


def deltas_table(rows: Sequence[Finished]) -> str:
  """Returns certified epsilons at all deltas, with and without amplification."""
  lines = [
      '| run | delta | epsilon (certified) | without amplification |',
      '|---|---|---|---|',
  ]
  for done in rows:
    for found in done.guarantees:
      if math.isinf(found.epsilon):
        continue
      lines.append(
          f'| {done.row.name} | {found.delta:.3g} | {_epsilon(found.epsilon)} |'
          f' {_epsilon(found.epsilon_no_amplification)} |'
      )
  return '\n'.join(lines)


def notes(rows: Sequence[Finished], *, data: str, scale: float) -> str:
  """Returns the notes below the table."""
  seeds = len(rows[0].results)
  # In the order of the table.
  deltas = dict.fromkeys(f'{done.row.delta:.3g}' for done in rows)
  said = [
      f'Data: {data}. Accuracies are for the last model on held-out digits,'
      f' mean{" and standard deviation" if seeds > 1 else ""} of'
      f' {flags.counted(seeds, "seed")}.',
      'Epsilon is for a client over the whole run, at delta'
      f' {" or ".join(deltas)}. Epsilons of different relations do not compare.',
      'A value that is marked UNCERTIFIED comes from a formula that does not'
      ' hold, and guarantees nothing.',
  ]
  if scale != 1:
    said.append(
        f'A reduced version: {scale:g} of the updates of the whole experiment.'
    )
  return '\n'.join(said)


def write(
    rows: Sequence[Finished],
    output_dir: pathlib.Path,
    *,
    data: str,
    scale: float,
) -> None:
  """Writes `results.md`, `results.json`, `accuracy.png` and `epsilon.png`."""
  (output_dir / 'results.md').write_text(
      f'{table(rows)}\n\n{deltas_table(rows)}\n\n'
      f'{notes(rows, data=data, scale=scale)}\n'
  )
  content = {
      'data': data,
      'scale': scale,
      'rows': [_to_json(done) for done in rows],
  }
  (output_dir / 'results.json').write_text(json.dumps(content, indent=2) + '\n')
  _plot_accuracy(rows, output_dir / 'accuracy.png')
  _plot_epsilon(rows, output_dir / 'epsilon.png')


def _to_json(done: Finished) -> dict[str, Any]:
  return {
      **done.row.describe(),
      'guarantees': [found.to_json() for found in done.guarantees],
      'test_accuracy': done.accuracy,
      'standard_deviation': done.deviation,
      'runs': [
          {
              'seed': result.seed,
              'test_accuracy': result.test_accuracy,
              'evaluations': list(result.metrics),
          }
          for result in done.results
      ],
  }


def _plot_accuracy(rows: Sequence[Finished], path: pathlib.Path) -> None:
  """Draws held-out accuracy against the share of the run that is done."""
  # Slow to import, and needed only here. Not pyplot: its state is global.
  from matplotlib import figure as figure_lib  # pylint: disable=g-import-not-at-top

  figure = figure_lib.Figure(figsize=(7.2, 4.6), layout='constrained')
  axes = figure.subplots()
  for number, done in enumerate(rows):
    color = f'C{number % 10}'
    for result in done.results:
      is_first = result is done.results[0]
      axes.plot(
          [m['round'] / done.row.num_rounds for m in result.metrics],
          [m['test_accuracy'] for m in result.metrics],
          color=color,
          linewidth=1.2,
          linestyle='-' if number < 10 else '--',
          label=_legend(done) if is_first else None,
      )
  axes.set_xlabel('share of the rounds')
  axes.set_ylabel('held-out accuracy')
  axes.set_ylim(0, 1)
  axes.grid(alpha=0.3)
  axes.legend(fontsize=7)
  figure.savefig(path, dpi=120)


def _plot_epsilon(rows: Sequence[Finished], path: pathlib.Path) -> None:
  """Draws accuracy against epsilon: certified, unamplified and published."""
  from matplotlib import figure as figure_lib  # pylint: disable=g-import-not-at-top

  figure = figure_lib.Figure(figsize=(7.2, 4.6), layout='constrained')
  axes = figure.subplots()
  kinds = {
      'certified': ('o', 1.0),
      'without amplification': ('|', 0.9),
      'published formula that holds': ('s', 0.5),
      'published, UNCERTIFIED': ('x', 0.6),
  }
  for number, done in enumerate(rows):
    if math.isinf(done.guarantee.epsilon):
      axes.axhline(
          done.accuracy, color='black', linestyle='--', linewidth=1,
          label=f'{done.row.name} (no privacy)',
      )
      continue
    color = f'C{number % 10}'
    axes.plot([], [], color=color, label=done.row.name)
    for kind, epsilon in _points(done.guarantee):
      marker, alpha = kinds[kind]
      axes.plot(
          epsilon, done.accuracy, marker, color=color, alpha=alpha, markersize=7
      )
  for kind, (marker, alpha) in kinds.items():
    axes.plot([], [], marker, color='gray', alpha=alpha, label=kind)
  axes.set_xscale('log')
  axes.set_xlabel('epsilon of a client over the whole run')
  axes.set_ylabel('held-out accuracy')
  axes.grid(alpha=0.3)
  axes.legend(fontsize=7)
  figure.savefig(path, dpi=120)


def _points(found: mnist_guarantees.Guarantee):
  """Yields (kind, epsilon) of everything that can be drawn."""
  points = [
      ('certified', found.epsilon),
      ('without amplification', found.epsilon_no_amplification),
  ]
  for value in found.published:
    kind = (
        'published formula that holds'
        if value.holds
        else 'published, UNCERTIFIED'
    )
    points.append((kind, value.value))
  for kind, epsilon in points:
    if 0 < epsilon < math.inf:
      yield kind, epsilon


def _legend(done: Finished) -> str:
  if math.isinf(done.guarantee.epsilon):
    return f'{done.row.name} (no privacy)'
  epsilon = rounding.rounded_up(done.guarantee.epsilon, digits=3)
  return f'{done.row.name} (epsilon {epsilon})'


def _noise(row: mnist_rows.Row) -> str:
  noise = row.noise
  if isinstance(noise, randomizers.Sphere):
    return f'sphere, epsilon0 {noise.local_epsilon:.3g}'
  if isinstance(noise, randomizers.Gaussian):
    return f'local Gaussian, {noise.noise_multiplier:.3g} C'
  if not noise.noise_multiplier:
    return 'none'
  text = f'central Gaussian, {noise.noise_multiplier:.3g} C'
  num_bands = getattr(getattr(row.plan, 'mechanism', None), 'num_bands', None)
  if num_bands is not None:
    text += f', {num_bands} bands'
  return text


def _epsilon(value: float) -> str:
  return 'NO PRIVACY' if math.isinf(value) else rounding.rounded_up(value)


def _accuracy(done: Finished) -> str:
  if done.deviation is None:
    return f'{done.accuracy:.4f}'
  return f'{done.accuracy:.4f} ± {done.deviation:.4f}'
