# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Cells of the silos' tasks: one algorithm, epsilon, step and seed each.

A cell is a run of the TFF process, whose rounds a ledger charges: in each round
some silos are reachable, and the plan says at the end what each silo spent. A
finished cell leaves one file. It has no run directory: a statement at each save
takes longer than the rounds of these small models.
"""

from collections.abc import Callable, Mapping
import dataclasses
import hashlib
import json
import math
import pathlib
from typing import Any, Optional

import numpy as np

from tasks.silos import silo_algorithms
from tasks.silos import silo_models
from tasks.silos import silo_preprocessing

_REACHABLE = 12


@dataclasses.dataclass(frozen=True)
class Cell:
  """One run.

  Attributes:
    algorithm: Name of the algorithm.
    epsilon: Budget of every silo, infinity without privacy.
    scale: Number c that sets the step size.
    seed: Seed of held-out records and reachable silos.
    test_error: Error on held-out records, see `silo_models.error`.
    train_error: Error on the training records of all silos.
    silos: Name -> facts about the silo: budget, spent epsilon, delta, messages,
      records. Empty without privacy.
  """

  algorithm: str
  epsilon: float
  scale: float
  seed: int
  test_error: float
  train_error: float
  silos: dict[str, dict[str, Any]]

  def to_json(self) -> dict[str, Any]:
    """Returns the cell as JSON types, with infinity as 'inf'."""
    content = dataclasses.asdict(self)
    for name in ('epsilon', 'test_error', 'train_error'):
      if not math.isfinite(content[name]):
        content[name] = 'inf'
    return content

  @classmethod
  def from_json(cls, content: Mapping[str, Any]) -> 'Cell':
    """Returns the cell that `to_json` described."""
    numbers = {
        name: float(content[name])
        for name in ('epsilon', 'test_error', 'train_error')
    }
    return cls(**dict(content) | numbers)


class Runner:
  """Makes the cells of one algorithm, with a process for each step."""

  def __init__(
      self,
      problem: silo_algorithms.Problem,
      algorithm: silo_algorithms.Algorithm,
      sizes: silo_algorithms.Sizes,
      *,
      folder: pathlib.Path,
      silos_per_round: Optional[int],
      report: Callable[..., None],
      trial: Optional[Callable[..., dict[str, Any]]] = None,
  ):
    """Initializes the object.

    Args:
      problem: Problem to learn.
      algorithm: Algorithm to use.
      sizes: Settings of the algorithm.
      folder: Folder of the finished cells.
      silos_per_round: Number of silos that can be reached, `None` for all.
      report: Function that is called with every cell and `was_done`.
      trial: Function of the cell's name, its facts and a function that computes
        its numbers. It returns the numbers of an equal cell, which somebody
        else has, or computes them. Such a cell does not say what silos spent.
        `None` for the cells in `folder` alone.
    """
    self._problem, self._algorithm, self._sizes = problem, algorithm, sizes
    self._folder, self._report, self._trial = folder, report, trial
    self._silos_per_round = silos_per_round
    self._processes, self._terms = {}, {}
    # Other records or another preprocessing are another experiment.
    split = problem.split(0)
    self._summary = summary(split)
    self._facts = {
        'problem': problem.name,
        'data': _digest(split),
        **algorithm.facts(sizes),
        'silos_per_round': silos_per_round,
    }

  def cell(self, epsilon: float, scale: float, seed: int) -> Cell:
    """Returns the cell. Runs it if it was not made before."""
    if self._trial is None:
      return self._kept(epsilon, scale, seed)
    made = []

    def compute():
      made.append(self._kept(epsilon, scale, seed).to_json())
      return {name: made[0][name] for name in ('test_error', 'train_error')}

    # Infinity is 'inf', as in the file of a cell.
    named = {
        'algorithm': self._algorithm.name,
        'epsilon': epsilon if math.isfinite(epsilon) else 'inf',
        'scale': scale,
        'seed': seed,
    }
    numbers = self._trial(
        f'{self._problem.name}_{self._algorithm.name}_'
        + _file_name(epsilon, scale, seed),
        named | self._facts | {'data': self._summary},
        compute,
    )
    cell = Cell.from_json({**named, **numbers, 'silos': {}})
    if not made:
      self._report(cell, was_done=True)
    return cell

  def _kept(self, epsilon: float, scale: float, seed: int) -> Cell:
    """Returns the cell of the folder. Runs it if it is not there."""
    from tff_dp.files import run_directory  # pylint: disable=g-import-not-at-top

    path = self._folder / f'{_file_name(epsilon, scale, seed)}.json'
    if path.exists():
      content = json.loads(path.read_text())
      if content.pop('facts') == self._facts:
        cell = Cell.from_json(content)
        self._report(cell, was_done=True)
        return cell
    cell = self._made(epsilon, scale, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A run that is killed leaves no half cell.
    content = cell.to_json() | {'facts': self._facts}
    run_directory.write_atomically(path, json.dumps(content) + '\n')
    self._report(cell, was_done=False)
    return cell

  def _process(self, epsilon: float, scale: float, num_records):
    """Returns the process, compiled and certified once for each step."""
    from tff_dp.program import certification  # pylint: disable=g-import-not-at-top

    silos = self._algorithm.budgets(num_records, epsilon, self._sizes)
    if scale not in self._processes:
      self._processes[scale] = self._algorithm.build(
          self._problem, silos, self._sizes, scale=scale
      )
      if self._algorithm.is_private:
        certification.certify(self._processes[scale])
    if not self._algorithm.is_private:
      return self._processes[scale]
    if epsilon not in self._terms:
      # Calibrated once for each epsilon.
      self._terms[epsilon] = self._algorithm.terms(silos, self._sizes)
    return self._algorithm.with_terms(
        self._processes[scale], silos, self._terms[epsilon]
    )

  def _made(self, epsilon: float, scale: float, seed: int) -> Cell:
    """Runs one cell."""
    split = self._problem.split(seed)
    process = self._process(epsilon, scale, split.num_records)
    weights, spent = train(
        process, split, seed=seed, silos_per_round=self._silos_per_round
    )
    facts = {}
    if self._algorithm.is_private:
      facts = {
          name: {
              'epsilon': row['epsilon'],
              'delta': row['delta'],
              'num_records': row['records'],
              'num_rounds': row['messages'],
              'requested_epsilon': row['budget'],
          }
          for name, row in spent.items()
      }
    loss, train_records = self._problem.loss, split.train
    return Cell(
        algorithm=self._algorithm.name,
        epsilon=epsilon,
        scale=scale,
        seed=seed,
        test_error=silo_models.error(loss, weights, split.test, train_records),
        train_error=silo_models.error(
            loss, weights, silo_models.pooled(train_records), train_records
        ),
        silos=facts,
    )


def train(
    process,
    split: silo_preprocessing.Split,
    *,
    seed: int,
    silos_per_round: Optional[int],
) -> tuple[np.ndarray, dict[str, dict[str, Any]]]:
  """Trains a process to its end. Returns (weights, facts about each silo).

  Needs a TFF context.

  Args:
    process: A `SiloProcess`.
    split: The silos' records.
    seed: Seed of the reachable silos.
    silos_per_round: Number of reachable silos, `None` for all.
  """
  names = list(split.train)
  reachable = min(silos_per_round or len(names), len(names))
  rng = np.random.default_rng([seed, _REACHABLE])
  chosen = [
      {names[i] for i in rng.choice(len(names), reachable, replace=False)}
      for _ in range(process.plan.num_rounds)
  ]
  plan = process.plan.with_availability(lambda r, name: name in chosen[r - 1])
  return rounds(process.with_plan(plan), split), plan.by_silo()


def rounds(process, split: silo_preprocessing.Split) -> np.ndarray:
  """Runs all rounds of a process, which a ledger charges. Returns the weights.

  Needs a TFF context.

  Args:
    process: A `SiloProcess`, whose plan says which silos are present.
    split: The silos' records.
  """
  plan = process.plan
  # The ledger has no budget: the budgets of the silos are in the plan.
  ledger = plan.ledger(delta=min(split.num_records.values()) ** -2)
  batches = {
      name: silo_models.batches(records)
      for name, records in split.train.items()
  }
  state = process.initialize()
  for round_index in range(1, plan.num_rounds + 1):
    examples = {name: batches[name] for name in plan.present(round_index)}
    state = process.next_round(state, examples, ledger=ledger).state
  (weights,) = process.get_model_weights(state).trainable
  return np.asarray(weights)


def summary(split: silo_preprocessing.Split) -> dict[str, Any]:
  """Returns what tells data apart, and is the same on every machine.

  Components of images depend on the machine: in their last digits, and in their
  signs. So features count by their norm alone, to four digits.
  """
  parts = (*split.train.values(), split.test)
  labels = hashlib.sha256()
  for records in parts:
    labels.update(np.ascontiguousarray(records.labels).tobytes())
  squares = sum(
      np.sum(np.square(records.features, dtype=np.float64)) for records in parts
  )
  return {
      'records': list(split.num_records.values()),
      'labels': labels.hexdigest()[:16],
      'norm_of_features': float(f'{math.sqrt(squares):.4g}'),
  }


def _digest(split: silo_preprocessing.Split) -> str:
  """Returns a hash of all records, which tells cells of other data apart."""
  digest = hashlib.sha256()
  for records in (*split.train.values(), split.test):
    digest.update(np.ascontiguousarray(records.features).tobytes())
    digest.update(np.ascontiguousarray(records.labels).tobytes())
  return digest.hexdigest()


def _file_name(epsilon: float, scale: float, seed: int) -> str:
  return f'epsilon_{epsilon:g}_step_{scale:g}_seed_{seed}'
