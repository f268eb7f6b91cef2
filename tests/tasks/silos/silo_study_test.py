# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the silos' study, on made data through the TFF processes."""

import dataclasses
import functools
import json
import math
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import stats

from tasks.silos import silo_algorithms
from tasks.silos import silo_cells
from tasks.silos import silo_models
from tasks.silos import silo_preprocessing
from tasks.silos import silo_report
from tasks.silos import silo_settings
from tasks.silos import silo_study
from tff_dp import execution
from tff_dp.systems.silos import planning
from tff_dp.systems.silos import process as process_lib
from tff_dp.systems.silos import silo_sampling

pytestmark = pytest.mark.once

_SIZES = silo_algorithms.Sizes(
    rounds=4, one_pass_rounds=5, local_steps=20, l2_norm_clip=1.0
)
_FALSE_ALARM = 1e-6


def setUpModule():
  execution.set_default_context()


def _problem(num_features=6, sizes=(40, 30, 20), is_blank=False, reach=None):
  """Returns a made problem; records of blank ones are zeros."""

  def split(seed):
    rng = np.random.default_rng([seed, 5])
    silos = {}
    for name, size in zip('abc', sizes):
      x = rng.standard_normal([size, num_features]) * (not is_blank)
      y = np.where(x[:, 0] >= 0, 1.0, -1.0)
      x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0)
      silos[name] = silo_preprocessing.Records(
          x.astype(np.float32), y.astype(np.float32)
      )
    return silo_preprocessing.split(silos, seed=seed)

  return silo_algorithms.Problem(
      name='made',
      title='Made',
      loss=silo_models.LOGISTIC,
      split=split,
      num_features=num_features,
      silos_per_round=reach,
  )


def _budgets(name, num_records, epsilon, sizes=_SIZES):
  return silo_algorithms.BY_NAME[name].budgets(num_records, epsilon, sizes)


@functools.cache
def _built(name):
  """Returns (process, records by silo, problem) with many blank weights."""
  problem = _problem(num_features=500, is_blank=True)
  num_records = problem.split(0).num_records
  process = silo_algorithms.BY_NAME[name].build(
      problem, _budgets(name, num_records, 1.0), _SIZES, scale=0.5
  )
  return process, num_records, problem


class AlgorithmTest(parameterized.TestCase):

  @parameterized.product(
      name=('noisy_mb_sgd', 'one_pass_accelerated', 'isrl_local_sgd'),
      epsilon=(0.5, 8.0),
  )
  def test_one_compiled_process_releases_the_noise_of_every_epsilon(
      self, name, epsilon
  ):
    process, num_records, problem = _built(name)
    algorithm = silo_algorithms.BY_NAME[name]
    silos = _budgets(name, num_records, epsilon)
    planned = algorithm.with_terms(
        process, silos, algorithm.terms(silos, _SIZES)
    )
    # Not compiled anew.
    self.assertIs(planned.next, process.next)
    examples = {
        silo: silo_models.batches(records)
        for silo, records in problem.split(0).train.items()
    }
    for silo in num_records:
      # The gradient of zeros is zero: a round with one silo shows its noise.
      state = planned.next_round(
          planned.initialize(),
          {silo: examples[silo]},
          ledger=planned.plan.ledger(delta=1e-6),
      ).state
      moved = np.ravel(state.global_model_weights.trainable[0])
      # What the epsilon below is computed for.
      (phase,) = planned.plan.terms[silo].phases
      sigma = phase.noise_stddev
      if name == 'noisy_mb_sgd':
        step = 0.5 / 0.25
      elif name == 'isrl_local_sgd':
        steps = _SIZES.local_steps
        step = 0.5 / (0.25 * steps) * math.sqrt(steps)
      else:
        # Round 1 of AC-SA: w = -r / (2 gamma) g, and w_ag = w = w_md.
        step = 1 / (2 * 8 * 0.25 / 0.5)
      share = np.sum(np.square(moved)) / (step * sigma) ** 2
      self.assertBetween(
          share,
          stats.chi2.ppf(_FALSE_ALARM, len(moved)),
          stats.chi2.isf(_FALSE_ALARM, len(moved)),
      )
      self.assertBetween(
          planned.plan.epsilon(member=silo),
          0.99 * epsilon,
          epsilon * (1 + 1e-6),
      )

  def test_without_noise_there_is_no_noise_and_no_guarantee(self):
    problem = _problem()
    split = problem.split(0)
    algorithm = silo_algorithms.BY_NAME['mb_sgd']
    process = algorithm.build(
        problem,
        _budgets('mb_sgd', split.num_records, math.inf),
        _SIZES,
        scale=2.0,
    )
    self.assertEqual(process.plan.epsilon(), math.inf)
    weights, spent = silo_cells.train(
        process, split, seed=0, silos_per_round=None
    )
    self.assertEqual({row['epsilon'] for row in spent.values()}, {math.inf})
    self.assertLess(
        silo_models.error('logistic', weights, split.test, split.train), 0.4
    )

  def test_batches_are_each_silos_own(self):
    silos = _budgets('noisy_mb_sgd', {'a': 1238, 'b': 36, 'c': 4}, 2.0)
    sizes = silo_algorithms.Sizes(
        rounds=35, one_pass_rounds=8, local_steps=2, l2_norm_clip=1.0
    )
    of = lambda name: silo_algorithms.BY_NAME[name].sampling(silos, sizes)
    self.assertEqual(
        of('accelerated_erm'),
        {
            'a': silo_sampling.PoissonSampling(418),
            'b': silo_sampling.PoissonSampling(12),
            'c': silo_sampling.PoissonSampling(1),
        },
    )
    self.assertEqual(
        of('one_pass_mb_sgd')['a'], silo_sampling.DisjointBlocks(154)
    )
    self.assertEqual(of('isrl_local_sgd')['a'], silo_sampling.FixedSize(1))
    self.assertEqual(silos['b'].delta, 36**-2)

  def test_phases_of_the_localised_algorithm_halve_the_records(self):
    sizes = dataclasses.replace(_SIZES, rounds=35)
    algorithm = silo_algorithms.BY_NAME['localized']
    # What is asked for of the calibration, in the order of the calls.
    asked = []

    def calibrate(sampling, **arguments):
      asked.append((sampling, arguments))
      return float(len(asked))

    self.enter_context(
        mock.patch.object(planning, '_calibrate_noise', calibrate)
    )
    silos = _budgets('localized', {'a': 1238, 'b': 36}, 2.0)
    self.assertEqual(algorithm.num_rounds(sizes), 4 * 8)
    for name, terms in algorithm.terms(silos, sizes).items():
      n = silos[name].num_records
      counts = [n // 2, n // 4, n // 8, n // 16]
      self.assertEqual([p.num_records for p in terms.phases], counts)
      self.assertEqual(
          [p.first_record for p in terms.phases],
          [sum(counts[:index]) for index in range(4)],
      )
      for phase, count in zip(terms.phases, counts):
        # Phases share no record, so each has the whole budget.
        sampling = silo_sampling.PoissonSampling(count * math.sqrt(0.5))
        self.assertAlmostEqual(
            phase.sampling.expected_batch, sampling.expected_batch
        )
        self.assertEqual(
            asked[int(phase.noise_stddev) - 1],
            (
                phase.sampling,
                dict(
                    num_records=count,
                    num_rounds=8,
                    l2_norm_clip=1.0,
                    epsilon=2.0,
                    delta=n**-2,
                    published_proofs=False,
                ),
            ),
        )

  def test_silos_have_their_own_budgets_and_weights(self):
    sizes = dataclasses.replace(
        _SIZES, epsilon_factors=(1.0, 0.25), weighting='records'
    )
    counts = {'a': 30, 'b': 10}
    silos = _budgets('noisy_mb_sgd', counts, 2.0, sizes)
    self.assertEqual({n: s.epsilon for n, s in silos.items()}, dict(a=2, b=0.5))
    self.assertEqual(
        {n: s.weight for n, s in silos.items()}, dict(a=0.75, b=0.25)
    )
    self.assertIsNone(
        _budgets('mb_sgd', counts, math.inf, sizes)['a'].epsilon
    )
    with self.assertRaisesRegex(ValueError, r'epsilon_factors=\[1.0, 0.25\]'):
      _budgets('noisy_mb_sgd', counts | {'c': 5}, 2.0, sizes)
    # Another budget or weight is another experiment.
    facts = {
        name: silo_algorithms.BY_NAME[name].facts(sizes)
        for name in ('mb_sgd', 'noisy_mb_sgd')
    }
    self.assertNotIn('epsilon_factors', facts['mb_sgd'])
    self.assertEqual(facts['mb_sgd']['weighting'], 'records')
    self.assertEqual(facts['noisy_mb_sgd']['epsilon_factors'], [1.0, 0.25])


class RunTest(absltest.TestCase):

  def _settings(self, folder, **changes):
    return silo_settings.Settings(
        **(
            dict(
                output_dir=str(folder),
                epsilons=(1.0, 8.0),
                algorithms=('noisy_mb_sgd',),
                seeds=2,
                rounds=4,
                step_scales=(0.5, 2.0),
                tuning_seeds=1,
            )
            | changes
        )
    )

  def test_chooses_a_step_charges_silos_and_resumes_after_a_kill(self):
    folder = pathlib.Path(self.create_tempdir())
    problem, settings = _problem(reach=2), self._settings(folder)
    train, calls = silo_cells.train, []

    def killed(*args, **kwargs):
      if len(calls) == 5:
        raise KeyboardInterrupt
      calls.append(kwargs['seed'])
      return train(*args, **kwargs)

    # Compiled once for each step, and not again after the kill.
    build = silo_algorithms.Algorithm.build
    built = {}

    def build_once(algorithm, *arguments, scale):
      if scale not in built:
        built[scale] = build(algorithm, *arguments, scale=scale)
      return built[scale]

    self.enter_context(
        mock.patch.object(silo_algorithms.Algorithm, 'build', build_once)
    )
    with mock.patch.object(silo_cells, 'train', killed):
      with self.assertRaises(KeyboardInterrupt):
        silo_study.run(problem, settings, is_quiet=True)
    done = {path: path.read_text() for path in folder.rglob('*.json')}
    self.assertLen(done, 5)
    with mock.patch.object(silo_cells, 'train', wraps=train) as rest:
      cells = silo_study.run(problem, settings, is_quiet=True)
    # 2 epsilons with 2 steps to choose from, and 2 seeds.
    self.assertEqual(rest.call_count, 8 - 5)
    for path, text in done.items():
      self.assertEqual(path.read_text(), text)
    self.assertEqual(
        [(cell.epsilon, cell.seed) for cell in cells],
        [(1.0, 0), (1.0, 1), (8.0, 0), (8.0, 1)],
    )
    for cell in cells:
      tuned = {
          scale: json.loads(
              (
                  folder
                  / 'cells/noisy_mb_sgd'
                  / f'epsilon_{cell.epsilon:g}_step_{scale:g}_seed_1000.json'
              ).read_text()
          )['train_error']
          for scale in (0.5, 2.0)
      }
      self.assertEqual(cell.scale, min(tuned, key=tuned.get))
      # 2 of 3 silos in each of 4 rounds.
      self.assertEqual(
          sum(facts['num_rounds'] for facts in cell.silos.values()), 8
      )
      for name, facts in cell.silos.items():
        self.assertEqual(facts['num_records'], dict(a=32, b=24, c=16)[name])
        self.assertEqual(facts['requested_epsilon'], cell.epsilon)
        if facts['num_rounds'] < 4:
          self.assertLess(facts['epsilon'], cell.epsilon)
        else:
          self.assertLessEqual(facts['epsilon'], cell.epsilon)
    with mock.patch.object(silo_cells, 'train') as again:
      self.assertEqual(
          silo_study.run(problem, settings, is_quiet=True), cells
      )
      again.assert_not_called()
    # Other silos in a round are another experiment: nothing is taken over.
    other = self._settings(
        folder,
        silos_per_round=1,
        epsilons=(8.0,),
        seeds=1,
        step_scales=(cells[-1].scale,),
    )
    with mock.patch.object(silo_cells, 'train', wraps=train) as anew:
      silo_study.run(problem, other, is_quiet=True)
    self.assertEqual(anew.call_count, 1)

  def test_silos_spend_their_own_budgets_and_local_sgd_all_its_steps(self):
    folder = pathlib.Path(self.create_tempdir())
    settings = self._settings(
        folder,
        algorithms=('localized', 'isrl_local_sgd'),
        epsilons=(8.0,),
        seeds=1,
        step_scales=(0.5,),
        local_steps=3,
        epsilon_factors=(1.0, 0.5, 2.0),
        weighting='records',
    )
    cells = silo_study.run(_problem(), settings, is_quiet=True)
    for cell, num_rounds in zip(cells, (4, 4 * 3), strict=True):
      for name, factor in dict(a=1.0, b=0.5, c=2.0).items():
        facts = cell.silos[name]
        self.assertEqual(facts['num_rounds'], num_rounds)
        self.assertEqual(facts['requested_epsilon'], 8 * factor)
        self.assertBetween(facts['epsilon'], 7.8 * factor, 8 * factor)
    text = silo_report.report(_problem(), settings, cells)
    self.assertIn('times 1, 0.5, 2', text)
    self.assertIn('count by their number of records', text)

  def test_reachable_silos_depend_on_the_seed_alone(self):
    process, _, problem = _built('noisy_mb_sgd')
    split, chosen = problem.split(0), []

    def present(unused_process, state, examples, *, ledger):
      del ledger
      chosen[-1].append(tuple(examples))
      return mock.Mock(state=state)

    with mock.patch.object(process_lib.SiloProcess, 'next_round', present):
      for seed in (0, 0, *range(1, 20)):
        chosen.append([])
        silo_cells.train(process, split, seed=seed, silos_per_round=2)
    self.assertEqual(chosen[0], chosen[1])
    self.assertGreater(len(set(map(tuple, chosen))), 10)
    self.assertEqual(
        {pair for rounds in chosen for pair in rounds},
        {('a', 'b'), ('a', 'c'), ('b', 'c')},
    )


class SettingsTest(parameterized.TestCase):

  @parameterized.parameters(
      dict(epsilons=(0.0,)),
      dict(epsilons=(float('nan'),)),
      dict(seeds=0),
      dict(tuning_seeds=0),
      dict(rounds=0),
      dict(one_pass_rounds=0),
      dict(local_steps=0),
      dict(l2_norm_clip=0.0),
      dict(step_scales=(-1.0,)),
      dict(silos_per_round=0),
  )
  def test_a_bad_value_is_named(self, **change):
    ((name, _),) = change.items()
    with self.assertRaisesRegex(ValueError, f'{name}='):
      silo_settings.Settings(**change)


if __name__ == '__main__':
  absltest.main()
