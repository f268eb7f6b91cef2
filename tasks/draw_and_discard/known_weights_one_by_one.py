# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draw and discard with known weights, one client after another, at full length.

`known_weights` trains the process of `tff_dp.draw_and_discard`, a TFF round for
every 30 updates. The paper has 10^9 updates. Here they run in one compiled
loop, without TFF: each client has a new example, gets one of the instances,
makes its step without noise, and its model overwrites an instance. A test
follows the process, round by round, with the loop.
"""

from collections.abc import Callable
import dataclasses
import functools
import io
import pathlib

import numpy as np

from tasks.common import sweep_progress
from tasks.draw_and_discard import known_weights_model as model
from tff_dp import _checks
from tff_dp.files import run_directory
from tff_dp.systems.draw_and_discard import client_steps
from tff_dp.systems.draw_and_discard import strategies

# Updates that are drawn, run and saved at a time.
_CHUNK = 10**6
_FILE = 'one_by_one.npz'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """The setting, by default the one of arXiv:1807.04369, Fig. 5.

  Attributes:
    updates: Updates, each by a client with one example of its own.
    instances: Instances k of the server.
    learning_rate: Learning rate of a client.
    seed: Seed of examples, coins and the spread of the first instances.
    points: Number of places at which the error is noted.
  """

  updates: int = 10**9
  instances: int = 30
  learning_rate: float = 0.005
  seed: int = 0
  points: int = 100


@dataclasses.dataclass(frozen=True)
class Found:
  """Where a run is.

  Attributes:
    pool: Instances, float32 of shape [k, 33], on scaled features.
    updates: Number of updates so far.
    errors: Pairs of a number of updates and the error of the mean instance.
  """

  pool: np.ndarray
  updates: int
  errors: np.ndarray

  @property
  def weights(self) -> np.ndarray:
    """The mean of the instances."""
    return self.pool.mean(axis=0, dtype=np.float64)


@functools.lru_cache(maxsize=1)
def tables() -> tuple[np.ndarray, np.ndarray]:
  """Returns the 33 features without D, and their slopes in the scaled D.

  Both have shape [48, 33]: a row for each value of (B, E1, E2, I), of which the
  last one varies fastest.
  """
  b, e1, e2, i = np.unravel_index(np.arange(48), (2, 3, 4, 2))
  base = {'B': b * 1.0, 'I': i * 1.0}
  base |= {f'E1{row}': (e1 == row - 1) * 1.0 for row in (1, 2)}
  base |= {f'E2{row}': (e2 == row - 1) * 1.0 for row in (1, 2, 3)}
  at = [
      model.design({**base, 'D': np.full(48, d)}, lambda x: np.stack(x, -1))
      for d in (0.0, 1.0)
  ]
  return at[0], at[1] - at[0]


def build_updates(learning_rate: float) -> Callable[..., np.ndarray]:
  """Returns a compiled function that makes updates one after another.

  It maps the pool, float32 [k, 33], and for n updates the row of `tables`, the
  scaled D, the label, the drawn instance and the instance that is overwritten,
  each of shape [n], to the pool after the updates.

  Args:
    learning_rate: Learning rate of a client.
  """
  import tensorflow as tf  # pylint: disable=g-import-not-at-top

  fixed, slopes = (tf.constant(x, tf.float32) for x in tables())

  @tf.function(jit_compile=True, autograph=False)
  def updates(pool, rows, d, labels, drawn, written):
    def step(n, pool):
      # `x[n]` would compile anew for other values: its index is a constant.
      row, own_d, label, given, place = (
          tf.gather(x, n) for x in (rows, d, labels, drawn, written)
      )
      features = tf.gather(fixed, row) + own_d * tf.gather(slopes, row)
      weights = tf.gather(pool, given)
      share = tf.sigmoid(tf.reduce_sum(features * weights))
      # No weight of this gradient is beyond the clip norm 1.
      report = weights - learning_rate * (share - label) * features
      return n + 1, tf.tensor_scatter_nd_update(
          pool, place[None, None], report[None]
      )

    _, pool = tf.while_loop(
        lambda n, _: n < tf.shape(rows)[0], step, (0, pool)
    )
    return pool

  return lambda *arguments: updates(*arguments).numpy()


def first_pool(settings: Settings) -> np.ndarray:
  """Returns the instances before the first update, float32 of shape [k, 33].

  They have the law of the process: zeros, with the spread of a new pool.
  """
  step = client_steps.ClientStep(
      learning_rate=settings.learning_rate, mechanism=None
  )
  variance = strategies.stationary_variance(
      settings.instances,
      noise_variance=step.spread_variance(model.NUM_WEIGHTS),
  )
  rng = np.random.default_rng([settings.seed, 0])
  return rng.normal(
      scale=variance**0.5, size=(settings.instances, model.NUM_WEIGHTS)
  ).astype(np.float32)


def chunk(settings: Settings, number: int, size: int) -> tuple[np.ndarray, ...]:
  """Returns the arguments of updates, without the pool.

  Args:
    settings: Settings of the run.
    number: Number of the chunk, from 0. It decides the random numbers.
    size: Number of updates.
  """
  rng = np.random.default_rng([settings.seed, 1, number])
  rows = rng.integers(48, size=size, dtype=np.int32)
  normal = np.clip(rng.standard_normal(size), -model.LARGEST_D, model.LARGEST_D)
  d = (normal + model.LARGEST_D) / (2 * model.LARGEST_D)
  fixed, slopes = (x @ model.to_scaled(model.TRUE_WEIGHTS) for x in tables())
  shares = 1 / (1 + np.exp(-fixed[rows] - d * slopes[rows]))
  labels = rng.random(size) < shares
  drawn, written = rng.integers(
      settings.instances, size=(2, size), dtype=np.int32
  )
  return rows, d.astype(np.float32), labels.astype(np.float32), drawn, written


def run(
    settings: Settings, folder: pathlib.Path, *, is_quiet: bool = True
) -> Found:
  """Makes all updates that are missing, and returns the last state.

  Args:
    settings: Settings of the run.
    folder: Folder of the run, from which it goes on.
    is_quiet: Whether to print no progress.

  Raises:
    ArgumentError: The folder has a run with other settings.
  """
  path = folder / _FILE
  found = _load(path, settings)
  updates = build_updates(settings.learning_rate)
  part = _CHUNK * max(1, settings.updates // settings.points // _CHUNK)
  reporter = sweep_progress.Reporter(
      -(-settings.updates // part), is_quiet=is_quiet, work=settings.updates
  )
  for done, error in found.errors:
    reporter.show(_shown(done, error), was_done=True, work=part)
  while found.updates < settings.updates:
    size = min(_CHUNK, settings.updates - found.updates)
    number = found.updates // _CHUNK
    pool = updates(found.pool, *chunk(settings, number, size))
    done, errors = found.updates + size, found.errors
    if done % part == 0 or done == settings.updates:
      error = model.error(pool.mean(axis=0, dtype=np.float64))
      errors = np.concatenate([errors, [[done, error]]])
      work = (done - 1) % part + 1
      reporter.show(_shown(done, error), was_done=False, work=work)
    found = Found(pool, done, errors)
    _save(path, found, settings)
  return found


def _shown(updates: float, error: float) -> str:
  return f'{updates:,.0f} updates, error {error:.4f}'


def _load(path: pathlib.Path, settings: Settings) -> Found:
  if not path.exists():
    return Found(first_pool(settings), 0, np.zeros([0, 2]))
  with np.load(path, allow_pickle=False) as stored:
    if str(stored['settings']) != repr(settings):
      raise _checks.ArgumentError(
          'output_dir',
          str(path.parent),
          f'a folder without {path.name}, because this one comes from another'
          f' run: {stored["settings"]}',
      )
    return Found(stored['pool'], int(stored['updates']), stored['errors'])


def _save(path: pathlib.Path, found: Found, settings: Settings) -> None:
  content = io.BytesIO()
  np.savez(content, settings=repr(settings), **dataclasses.asdict(found))
  path.parent.mkdir(parents=True, exist_ok=True)
  run_directory.write_atomically(path, content.getvalue())
