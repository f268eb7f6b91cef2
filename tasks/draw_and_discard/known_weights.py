# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draw and discard finds 33 weights that are known: true against estimated.

One example per client and update, k instances, one client at a time, for as
many updates as you like: the simulator makes some hundred thousand in a second,
and a billion, as in the paper, takes about an hour. Beside the error that was
measured stands the one to be expected: what is left of the start, which shrinks
with learning rate times updates over instances, and the fluctuation of single
examples, which grows with the learning rate.

A run that was stopped goes on with the same command, and gives what it would
have given; more --updates continue a finished run.
"""

import argparse
import dataclasses
import io
import json
import pathlib
import sys
import time
from typing import Optional

import numpy as np

from tasks.common import flags
from tasks.draw_and_discard import known_weights_model as model
from tasks.draw_and_discard import known_weights_report
from tff_dp import _checks
from tff_dp.mechanisms import client_steps

EXAMPLES = """examples:
  python -m tasks train known_weights
  python -m tasks train known_weights --learning-rate 0.005 \\
      --updates 1000000000 --output-dir runs/known_weights_paper
  python -m tasks train known_weights --epsilon-per-coordinate 3.47
"""
# Updates are simulated here, not by a TFF context.
USES_CONTEXT = False
_BLOCK = 50_000
_EVALUATED_EXAMPLES = 100_000
_POINTS = 100


@dataclasses.dataclass(frozen=True)
class Settings:
  """What a run depends on; the fields are the flags of `add_arguments`."""

  output_dir: str = 'runs/known_weights'
  updates: int = 10_000_000
  instances: int = 30
  learning_rate: float = 0.02
  clip_norm: float = 1.0
  epsilon_per_coordinate: Optional[float] = None
  seed: int = 0

  def __post_init__(self):
    _checks.integer_at_least(1, updates=self.updates)
    _checks.integer_at_least(1, instances=self.instances)
    _checks.integer_at_least(0, seed=self.seed)
    if self.epsilon_per_coordinate is not None:
      _checks.positive(epsilon_per_coordinate=self.epsilon_per_coordinate)

  @property
  def step(self) -> client_steps.ClientStep:
    """What a client does."""
    epsilon = self.epsilon_per_coordinate
    return client_steps.ClientStep(
        learning_rate=self.learning_rate,
        clip_norm=self.clip_norm,
        mechanism=None if epsilon is None else 'laplace',
        epsilon=epsilon,
        privacy_unit='coordinate',
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the task's flags, with the defaults of `Settings`."""
  add = flags.adder(parser, Settings())
  add('output_dir', 'folder of the run; the same command resumes in it')
  add('updates', 'of one client with one example each, one after the other')
  add('instances', 'of the server, k')
  add('learning_rate', 'of a client; 0.005 in the paper, for 10^9 updates')
  add('clip_norm', 'bound on every weight of the gradient')
  add(
      'epsilon_per_coordinate',
      'of one participation and one weight; without it clients add no noise',
      type=float,
  )
  add('seed', 'of examples, coins and noise: this is a simulation')


def run(settings: Settings, *, progress: str) -> known_weights_report.Result:
  """Makes all updates that are missing and returns what came out."""
  # A wrong flag is reported before TensorFlow is loaded.
  step = settings.step
  output_dir = pathlib.Path(settings.output_dir)
  checkpoint = _Checkpoint(output_dir, settings)
  from tasks.draw_and_discard import known_weights_run  # pylint: disable=g-import-not-at-top

  simulation = known_weights_run.Simulation(
      step, num_instances=settings.instances, seed=settings.seed
  )
  instances, done, errors = checkpoint.read()
  if instances is None:
    instances = simulation.initial_instances()
    errors = [(0, _error(instances))]
  reporter = _Reporter(progress, done, settings.updates)
  # At least as many as a block: what is written does not slow a run down.
  every = max(_BLOCK, settings.updates // _POINTS // _BLOCK * _BLOCK)
  while done < settings.updates:
    size = min(_BLOCK, settings.updates - done)
    instances = simulation.advance(instances, first=done, num_updates=size)
    done += size
    if done % every == 0 or done == settings.updates:
      instances = np.asarray(instances)
      errors.append((done, _error(instances)))
      checkpoint.write(instances, done, errors)
      reporter.show(done, errors[-1][1])
  instances = np.asarray(instances)
  estimates = model.from_scaled(instances)
  result = known_weights_report.Result(
      estimated=np.mean(estimates, axis=0),
      spread=np.std(estimates, axis=0, ddof=1)
      if len(estimates) > 1
      else np.zeros(model.NUM_WEIGHTS),
      errors=errors,
      expected=model.expected_error(
          learning_rate=settings.learning_rate,
          num_updates=done,
          num_instances=settings.instances,
          noise_variance=step.noise_variance(model.NUM_WEIGHTS),
      ),
      quality=_quality(instances),
  )
  return result


def main(settings: Settings, *, where, progress: str) -> int:
  """Runs, writes the results, prints them and returns the exit code."""
  del where  # See USES_CONTEXT.
  result = run(settings, progress=progress)
  output_dir = pathlib.Path(settings.output_dir)
  from tff_dp.files import run_directory  # pylint: disable=g-import-not-at-top

  text = known_weights_report.report(settings, result)
  run_directory.write_json(
      output_dir / 'results.json',
      known_weights_report.to_json(settings, result),
  )
  run_directory.write_atomically(output_dir / 'results.md', text + '\n')
  known_weights_report.plot(settings, result, output_dir / 'known_weights.png')
  print(text)
  for name in ('results.json', 'known_weights.png'):
    print(output_dir / name)
  return 0


class _Checkpoint:
  """The pool on disk, with the settings that it belongs to."""

  def __init__(self, output_dir: pathlib.Path, settings: Settings):
    self._path = output_dir / 'checkpoint.npz'
    facts = dataclasses.asdict(settings)
    for name in ('output_dir', 'updates'):
      del facts[name]
    self._facts = json.dumps(facts, sort_keys=True)
    self._settings = settings

  def read(self):
    """Returns (instances or None, updates done, errors)."""
    if not self._path.exists():
      return None, 0, []
    with np.load(self._path) as content:
      if str(content['settings']) != self._facts:
        raise _checks.ArgumentError(
            'output_dir',
            self._settings.output_dir,
            'a folder without a run of other settings',
        )
      done = int(content['done'])
      if done > self._settings.updates:
        raise _checks.ArgumentError(
            'updates',
            self._settings.updates,
            f'at least the {done} made so far',
        )
      errors = [(int(at), float(error)) for at, error in content['errors']]
      return content['instances'], done, errors

  def write(self, instances: np.ndarray, done: int, errors) -> None:
    """Replaces the checkpoint."""
    from tff_dp.files import run_directory  # pylint: disable=g-import-not-at-top

    content = io.BytesIO()
    np.savez(
        content,
        instances=instances,
        done=done,
        errors=np.array(errors, np.float64),
        settings=self._facts,
    )
    self._path.parent.mkdir(parents=True, exist_ok=True)
    run_directory.write_atomically(self._path, content.getvalue())


class _Reporter:
  """Lines on stderr with the pace and the time that is left."""

  def __init__(self, progress: str, done: int, num_updates: int):
    self._is_quiet = progress == 'quiet'
    self._is_bar = progress == 'bar' or (
        progress == 'auto' and sys.stderr.isatty()
    )
    self._first, self._num_updates = done, num_updates
    self._start = self._latest = time.monotonic()

  def show(self, done: int, error: float) -> None:
    now = time.monotonic()
    is_last = done == self._num_updates
    if self._is_quiet or (now - self._latest < 2 and not is_last):
      return
    self._latest = now
    pace = (done - self._first) / max(now - self._start, 1e-9)
    left = (self._num_updates - done) / pace
    line = (
        f'{done:,} of {self._num_updates:,} updates, {pace:,.0f} per second,'
        f' error {error:.3f}, {left:.0f} s left'
    )
    end = '\n' if is_last or not self._is_bar else '\r'
    print(line, file=sys.stderr, flush=True, end=end)


def _error(instances) -> float:
  """Returns the root mean square error of the mean of the instances."""
  mean = np.mean(model.from_scaled(np.asarray(instances)), axis=0)
  return float(np.sqrt(np.mean((mean - model.TRUE_WEIGHTS) ** 2)))


def _quality(instances: np.ndarray) -> dict[str, float]:
  features, labels = model.draw(np.random.default_rng(1), _EVALUATED_EXAMPLES)
  positive = features @ np.mean(instances, axis=0) > 0
  correct = positive == labels.astype(bool)
  hits = np.sum(positive & correct)
  return {
      'outcome rate': float(np.mean(labels)),
      'accuracy': float(np.mean(correct)),
      'precision': float(hits / max(1, np.sum(positive))),
      'recall': float(hits / max(1, np.sum(labels))),
  }
