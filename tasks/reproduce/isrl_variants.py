# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""ISRL-DP on heart disease: smoothing and secure sums; shuffling's noise.

All trainings are one pass of accelerated minibatch SGD in four hospitals, at
the same epsilon and delta:

*   logistic loss, and the hinge loss smoothed by its Moreau envelope, with
    noise in every hospital;
*   logistic loss on secure sums, which the noise of all hospitals protects.

No process shuffles the messages of silos. So the result for shuffled minibatch
SGD is its noise alone, beside the noise without a shuffler.
"""

import functools
import statistics

from tasks.common import engine
from tasks.reproduce import rows
from tasks.reproduce.published import silo_shuffling
from tasks.silos import heart
from tasks.silos import silo_cells
from tasks.silos import silo_models
from tff_dp.accounting.curves import gaussian
from tff_dp.systems.silos import integer_plans
from tff_dp.systems.silos import minibatch_schedules
from tff_dp.systems.silos import silo_sampling

_ROUNDS = 10
_EPSILONS = (1.0, 4.0, 16.0)
_CLIP = 1.0
_TITLES = {
    'logistic': 'logistic loss, noise in each hospital',
    'hinge': 'hinge loss smoothed, noise in each hospital',
    'secure sums': 'logistic loss, secure sums',
}
# Declared: how far the start is from the best weights.
_DIAMETER = 4.0
_GRID = 128
# Of the shuffled noise: as in the paper's experiment on MNIST.
_SHUFFLED = dict(num_records=1238, num_rounds=35, epsilon=3.0)
_SHUFFLED_BATCH = 443
_SHUFFLED_SILOS = (12, 25, 100)


def run(run: rows.Run) -> rows.Result:
  """Test errors of the variants, and what a shuffler saves."""
  problem = heart.problem(run.data)
  rounds = run.scaled(_ROUNDS)
  # Before TensorFlow is loaded.
  lines = _shuffled_lines()
  engine.start(engine.EngineSettings(), progress=run.progress)
  curves = []
  for name, title in _TITLES.items():
    means, spreads = [], []
    for epsilon in _EPSILONS:
      errors = _errors(problem, name, epsilon, rounds, run)
      means.append(statistics.fmean(errors))
      spreads.append(statistics.stdev(errors) if len(errors) > 1 else None)
      lines.append(
          rows.Line(
              f'{title}, epsilon {epsilon:g}: {problem.error_name}',
              means[-1],
              spread=spreads[-1],
          )
      )
    curves.append(
        rows.Curve(
            title,
            list(_EPSILONS),
            means,
            f'{problem.error_name} over epsilon',
            None if None in spreads else spreads,
        )
    )
  return rows.Result(
      lines=lines,
      verdict=rows.NO_NUMBER,
      why='The paper has no experiment with these. A run is one pass over the'
      f' data in {rounds} rounds, at delta 1/n^2 of the smallest hospital. The'
      ' step size is the one with the least bound on the excess risk, and was'
      ' not tuned. With secure sums, each hospital adds only a part of the'
      ' noise. So it has to trust the summation and the other hospitals. The'
      ' first rows are about another setting: shuffled minibatch SGD at epsilon'
      f' {_SHUFFLED["epsilon"]:g}, n = {_SHUFFLED["num_records"]:,} and'
      f' {_SHUFFLED["num_rounds"]} rounds of K = {_SHUFFLED_BATCH}. They show'
      ' the noise with a shuffler, divided by the noise without one. Where this'
      ' ratio is 1, the shuffler saves nothing, and the method is noisy minibatch'
      ' SGD.',
      curves=curves,
      rounds_share=rounds / _ROUNDS,
  )


def build(problem, name: str, epsilon: float, num_records, rounds: int):
  """Returns the process of a variant.

  The step has the least bound, from public numbers alone.

  Args:
    problem: Problem of a task in `tasks.silos`.
    name: 'logistic', 'hinge' or 'secure sums'.
    epsilon: Epsilon of every record, at the delta of the smallest silo.
    num_records: Number of training records by silo.
    rounds: Number of rounds R of the single pass.
  """
  from tff_dp import silos  # pylint: disable=g-import-not-at-top
  from tff_dp.systems.silos import moreau  # pylint: disable=g-import-not-at-top
  from tff_dp.systems.silos import secure_sums  # pylint: disable=g-import-not-at-top

  fewest, count = min(num_records.values()), len(num_records)
  delta = fewest**-2
  smoothness = problem.smoothness
  model = silo_models.build(problem.loss, problem.num_features)
  if name == 'hinge':
    smoothness = minibatch_schedules.choose_smoothing(
        fewest,
        num_params=problem.num_features,
        lipschitz=_CLIP,
        epsilon=epsilon,
        delta=delta,
        num_available=count,
        diameter=_DIAMETER,
    )
    model = moreau.build_linear_model(
        moreau.HINGE, num_features=problem.num_features, smoothing=smoothness
    )
  if name == 'secure sums':
    batch = fewest // rounds
    sums = integer_plans.calibrate(
        'skellam',
        epsilon=epsilon,
        delta=delta,
        dimension=problem.num_features,
        grid=_GRID,
        records_per_silo=batch,
        min_silos=count,
    )
    noise = sums.noise_variance(_CLIP, num_silos=count)
    records = 1 / (count * batch)
  else:
    multiplier = 2 * gaussian.sigma_for(epsilon=epsilon, delta=delta)
    batches = [each // rounds for each in num_records.values()]
    noise = sum((multiplier * _CLIP / batch) ** 2 for batch in batches)
    noise /= count**2
    records = sum(1 / batch for batch in batches) / count**2
  gamma = minibatch_schedules.best_gamma(
      rounds,
      smoothness=smoothness,
      diameter=_DIAMETER,
      variance=_CLIP**2 * records + problem.num_features * noise,
  )
  common = dict(num_rounds=rounds, l2_norm_clip=_CLIP, gamma=float(gamma))
  if name == 'secure sums':
    return secure_sums.build_secure_sum_sgd(
        model,
        num_records=num_records,
        epsilon=epsilon,
        delta=delta,
        min_silos=count,
        grid=_GRID,
        **common,
    )
  budgets = {
      silo: silos.SiloBudget(each, epsilon, delta)
      for silo, each in num_records.items()
  }
  return silos.build_one_pass_accelerated_mb_sgd(
      model, silos=budgets, **common
  )


def _errors(problem, name, epsilon, rounds, run: rows.Run) -> list[float]:
  """Returns the test error of every seed."""
  # Built once, and not where all seeds ended before.
  process = functools.cache(
      lambda: build(
          problem, name, epsilon, problem.split(0).num_records, rounds
      )
  )

  def compute(seed):
    split = problem.split(seed)
    weights = silo_cells.rounds(process(), split)
    error = silo_models.error(
        problem.loss, weights.reshape([-1, 1]), split.test, split.train
    )
    return {'test_error': float(error)}

  facts = {
      'variant': name,
      'epsilon': epsilon,
      'rounds': rounds,
      'data': silo_cells.summary(problem.split(0)),
  }
  file_name = f'{name.replace(" ", "_")}_epsilon_{epsilon:g}'
  return [
      run.trial(
          f'{file_name}_seed_{seed}',
          facts | {'seed': seed},
          functools.partial(compute, seed),
      )['test_error']
      for seed in range(run.seeds)
  ]


def _shuffled_lines() -> list[rows.Line]:
  lines = []
  for num_silos in _SHUFFLED_SILOS:
    found = silo_shuffling.calibrate_shuffled_noise(
        silo_sampling.PoissonSampling(_SHUFFLED_BATCH),
        num_silos=num_silos,
        delta=_SHUFFLED['num_records'] ** -2,
        **_SHUFFLED,
    )
    lines.append(
        rows.Line(
            f'{num_silos} silos shuffled: noise over that without a shuffler',
            found.noise_multiplier / found.noise_multiplier_alone,
        )
    )
  return lines
