# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The results of a run of `known_weights` in words, in JSON and as a figure."""

import dataclasses
import math
import pathlib

import numpy as np

from tasks.draw_and_discard import known_weights_model as model
from tff_dp import _axes
from tff_dp.accounting import rounding
from tff_dp.systems.draw_and_discard import accounting


@dataclasses.dataclass(frozen=True)
class Result:
  """A finished run.

  Attributes:
    estimated: Mean of the instances, on unscaled features, shape [33].
    errors: Pairs (updates so far, root mean square error of the weights).
    expected: Result of `known_weights_model.expected_error`.
    quality: Outcome rate, accuracy, precision and recall on fresh examples.
    epsilon: Epsilon of all participations of a client.
  """

  estimated: np.ndarray
  errors: list[tuple[int, float]]
  expected: tuple[float, float, float]
  quality: dict[str, float]
  epsilon: float

  @property
  def error(self) -> float:
    return self.errors[-1][1]


def report(settings, result: Result) -> str:
  """Returns the results of `known_weights.Settings` as Markdown."""
  left, fluctuation, sample = result.expected
  plan = settings.plan
  steps = plan.steps_per_round * plan.num_rounds
  lines = [
      f'{settings.updates:,} updates of {settings.clients:,} clients,'
      f' {settings.clients_per_round} in flight at once, k ='
      f' {settings.instances}, learning rate {settings.learning_rate:g},'
      f' {_noise(settings)}. An instance has about {steps:,.0f} steps behind it;'
      f' one by one it would be {settings.updates / settings.instances:,.0f}.',
      '',
      f'Root mean square error of the weights: {result.error:.3f}.'
      f' Expected: about {math.hypot(*result.expected):.3f} ({left:.3f} left'
      f' of the start, {fluctuation:.3f} fluctuation, {sample:.3f} of the'
      ' clients as a sample).',
      '',
      '| term | true | estimated |',
      '|---|---|---|',
  ]
  for term, true, estimated in zip(
      model.TERMS, model.TRUE_WEIGHTS, result.estimated, strict=True
  ):
    lines.append(f'| {term} | {true:.2f} | {estimated:.2f} |')
  quality = ', '.join(
      f'{name} {value:.1%}' for name, value in result.quality.items()
  )
  lines += ['', f'On fresh examples: {quality}.']
  if plan.step.is_private:
    epsilons = {
        name: _up(one) for name, one in _epsilons(settings, result).items()
    }
    lines += [
        '',
        f'Epsilon of one participation: {epsilons["model_epsilon"]} for the'
        f" client's data; one weight: {epsilons['coordinate_epsilon']}"
        f' ({accounting.FEATURE_LEVEL}). Of all'
        f' {plan.max_participations}: {epsilons["epsilon"]} at delta'
        f' {settings.delta:g}.',
    ]
  else:
    lines += ['', 'No privacy: the clients add no noise.']
  return '\n'.join(lines)


def to_json(settings, result: Result) -> dict[str, object]:
  """Returns the results as JSON types."""
  return {
      'settings': dataclasses.asdict(settings),
      'terms': list(model.TERMS),
      'true': model.TRUE_WEIGHTS.tolist(),
      'estimated': result.estimated.tolist(),
      'error': result.error,
      'expected_left_of_start': result.expected[0],
      'expected_fluctuation': result.expected[1],
      'expected_of_sample': result.expected[2],
      'errors': [list(point) for point in result.errors],
      'quality': result.quality,
      'guarantee': {
          name: rounding.to_json_number(epsilon)
          for name, epsilon in _epsilons(settings, result).items()
      },
  }


def plot(settings, result: Result, path: pathlib.Path) -> None:
  """Draws estimated against true weights, and the error over updates."""
  # pylint: disable=g-import-not-at-top
  from matplotlib import figure as figure_lib
  from matplotlib import ticker
  # pylint: enable=g-import-not-at-top

  figure = figure_lib.Figure(figsize=(9.0, 4.2), layout='constrained')
  weights, errors = figure.subplots(1, 2)
  weights.plot(
      model.TRUE_WEIGHTS,
      result.estimated,
      'o',
      markersize=4,
      label='mean of the instances',
  )
  ends = [model.TRUE_WEIGHTS.min() - 0.2, model.TRUE_WEIGHTS.max() + 0.2]
  weights.plot(ends, ends, color='black', linestyle='--', linewidth=1)
  for axis in (weights.xaxis, weights.yaxis):
    axis.set_major_locator(ticker.MultipleLocator(1.0))
  weights.set_xlabel('true weight')
  weights.set_ylabel('estimated weight')
  weights.set_title(
      f'Weights after {settings.updates:,} updates,'
      f' {settings.instances} instances',
      fontsize=10,
  )
  weights.legend(fontsize=8)
  updates, values = zip(*result.errors)
  errors.plot(updates, values)
  errors.axhline(
      math.hypot(*result.expected),
      color='black',
      linestyle='--',
      linewidth=1,
      label='expected at the end',
  )
  errors.set_title('Error of the weights', fontsize=10)
  errors.set_xlabel('updates')
  _axes.count(errors.xaxis)
  errors.set_ylabel('root mean square error')
  errors.set_ylim(bottom=0)
  errors.legend(fontsize=8)
  for axes in (weights, errors):
    axes.grid(alpha=0.3)
  figure.savefig(path, dpi=120)


def _epsilons(settings, result: Result) -> dict[str, float]:
  """Returns epsilon of one participation, of one weight, and of the whole run.
  """
  plan = settings.plan
  return {
      'model_epsilon': accounting.guarantee(plan).model_epsilon,
      'coordinate_epsilon': plan.step.coordinate_epsilon(plan.num_params),
      'epsilon': result.epsilon,
  }


def _noise(settings) -> str:
  epsilon = settings.epsilon_per_coordinate
  if epsilon is None:
    return 'no noise'
  return f'Laplace noise, epsilon {_up(epsilon)} per weight'


def _up(value: float) -> str:
  return rounding.rounded_up(value)
