# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""One run of a row with one seed: training, checkpoints, evaluation.

    output_dir/ROW/seed_S/
      release/   model.npz, metrics.json, guarantee.json, privacy statement
      secret/    mode 0700: checkpoint.npz, with the key of all coins and noise

Coins and noise are functions of the key and the number of the update, so a run
that was killed and goes on makes the model that it would have made.
"""

import dataclasses
import io
import json
import pathlib
import time
from typing import Any, Optional

import numpy as np
from scipy import special

from tasks.mnist import mnist_data
from tasks.mnist import mnist_guarantees
from tasks.mnist import mnist_model
from tasks.mnist import mnist_rows
from tasks.mnist import mnist_simulation as simulation
from tff_dp import _checks
from tff_dp.participation import coins
from tff_dp.participation import monitoring
from tff_dp.participation import samplers
from tff_dp.statement import declarations as declarations_lib

_FORMAT = 1
_SECONDS_BETWEEN_CHECKPOINTS = 30.0
_EVALUATED_AT_ONCE = 2000
# At which epsilon is reported, beside the row's own.
DELTAS = (1e-5, 1e-6)


@dataclasses.dataclass(frozen=True)
class Result:
  """What one run reached.

  Attributes:
    seed: Of the initial model, and of who holds which image.
    metrics: Of every evaluation: update, test_accuracy, test_loss, and the number
      of reports so far, where it is no secret.
    seconds: In updates, over all processes of the run.
  """

  seed: int
  metrics: tuple[dict[str, float], ...]
  seconds: float

  @property
  def test_accuracy(self) -> float:
    """Held-out accuracy of the last model."""
    return self.metrics[-1]['test_accuracy']


@dataclasses.dataclass
class _Checkpoint:
  """Everything that a resumed run needs."""

  state: simulation.State
  root_key: bytes
  metrics: list[dict[str, float]]
  seconds: float = 0.0

  def to_bytes(self) -> bytes:
    facts = {
        'format': _FORMAT,
        'num_updates': self.state.num_updates,
        'num_reports': self.state.num_reports,
        'root_key': self.root_key.hex(),
        'metrics': self.metrics,
        'seconds': self.seconds,
        'probe': samplers.probe(samplers.FAST),
    }
    content = io.BytesIO()
    np.savez(
        content,
        weights=self.state.weights,
        velocity=self.state.velocity,
        facts=np.frombuffer(json.dumps(facts).encode(), np.uint8),
    )
    return content.getvalue()

  @classmethod
  def from_bytes(cls, content: bytes) -> '_Checkpoint':
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
      facts = json.loads(arrays['facts'].tobytes())
      state = simulation.State(
          arrays['weights'],
          arrays['velocity'],
          facts['num_updates'],
          facts['num_reports'],
      )
    if facts['format'] != _FORMAT:
      raise ValueError(f'format {facts["format"]}, expected {_FORMAT}')
    if facts['probe'] != samplers.probe(samplers.FAST):
      raise ValueError('NumPy here draws other numbers from the same key')
    return cls(
        state,
        bytes.fromhex(facts['root_key']),
        facts['metrics'],
        facts['seconds'],
    )


class Run:
  """One run in one directory."""

  def __init__(
      self,
      row: mnist_rows.Row,
      output_dir: pathlib.Path,
      *,
      data: mnist_data.Mnist,
      architecture: mnist_model.Architecture,
      seed: int,
      num_evaluations: int,
      num_threads: Optional[int] = None,
      insecure_seed: Optional[int] = None,
  ):
    """Initializes the run; nothing is read or written yet.

    Args:
      row: What to run.
      output_dir: Of this run alone.
      data: Images.
      architecture: The model.
      seed: Public: of the initial model, and of who holds which image.
      num_evaluations: How often the model is evaluated, at equal distances.
      num_threads: See `simulation.Reports`.
      insecure_seed: For tests: coins and noise that anybody can recompute.
    """
    _checks.integer_at_least(1, num_evaluations=num_evaluations)
    self._row = row
    self._output_dir = output_dir
    self._data = data
    self._architecture = architecture
    self._seed = seed
    self._stride = -(-row.num_updates // num_evaluations)
    self._num_threads = num_threads
    self._insecure_seed = insecure_seed

  def train(self, *, progress: str = 'quiet') -> Result:
    """Trains to the end, from where an earlier process stopped.

    Args:
      progress: As for `tff_dp.program.train`.

    Raises:
      ArgumentError: If the directory belongs to another run.
      KeyboardInterrupt: After Ctrl-C, once the update is done and saved.
    """
    from tff_dp.program.files import run_directory  # pylint: disable=g-import-not-at-top

    with run_directory.RunDirectory(
        self._output_dir, identity=self._identity(), client_ids=[]
    ) as directory:
      path = directory.secret / 'checkpoint.npz'
      if not path.exists() and (directory.release / 'model.npz').exists():
        raise _checks.PrivacyRefusedError(
            f'{directory.root} has released a model, but {path} is not there',
            why='a second model from the same data would spend anew',
            way_out='restore it from a copy, or start in a new --output-dir',
        )
      checkpoint = self._load(path)
      if checkpoint.state.num_updates < self._row.num_updates:
        guarantee = self._guarantee(self._row.delta)
        self._train(checkpoint, path, guarantee, progress)
      if not (directory.release / 'metrics.json').exists():
        self._write_release(checkpoint, directory)
      return Result(
          self._seed, tuple(checkpoint.metrics), checkpoint.seconds
      )

  def guarantees(self) -> list[mnist_guarantees.Guarantee]:
    """Returns the guarantees of a finished run: the row's own delta first."""
    path = self._output_dir / 'release' / 'guarantee.json'
    return [
        mnist_guarantees.Guarantee.from_json(found)
        for found in json.loads(path.read_text())
    ]

  def _identity(self) -> dict[str, Any]:
    return {
        'task': 'mnist',
        'row': self._row.describe(),
        'data': self._data.name,
        'architecture': dataclasses.asdict(self._architecture),
        'seed': self._seed,
        'evaluation_stride': self._stride,
        'delta': self._row.delta,
        'insecure_seed': self._insecure_seed,
    }

  def _load(self, path: pathlib.Path) -> _Checkpoint:
    """Returns the checkpoint, a new one if there is none."""
    if not path.exists():
      root_key = coins.random_root_key()
      if self._insecure_seed is not None:
        root_key = coins.subkey(
            coins.insecure_root_key(self._insecure_seed),
            self._row.name,
            self._seed,
        )
      state = simulation.State.initial(self._architecture, seed=self._seed)
      return _Checkpoint(state, root_key, [])
    try:
      return _Checkpoint.from_bytes(path.read_bytes())
    except Exception as error:
      raise _checks.PrivacyRefusedError(
          f'the checkpoint {path} cannot be read'
          f' ({type(error).__name__}: {error})',
          why='without the key of coins and noise the run cannot go on',
          way_out='restore it from a copy, or start in a new --output-dir',
      ) from error

  def _guarantee(self, delta: float) -> mnist_guarantees.Guarantee:
    if self._insecure_seed is not None:
      return mnist_guarantees.nothing(delta)
    return mnist_guarantees.of(self._row, delta=delta)

  def _guarantees(self, directory) -> list[mnist_guarantees.Guarantee]:
    """Returns the guarantees, computed once for a directory."""
    from tff_dp.program.files import run_directory  # pylint: disable=g-import-not-at-top

    path = directory.release / 'guarantee.json'
    if not path.exists():
      deltas = dict.fromkeys([self._row.delta, *DELTAS])
      found = [self._guarantee(delta).to_json() for delta in deltas]
      run_directory.write_atomically(path, json.dumps(found, indent=2) + '\n')
    return self.guarantees()

  def _train(self, checkpoint, path, guarantee, progress) -> None:
    from tff_dp.program import interrupts  # pylint: disable=g-import-not-at-top
    from tff_dp.program.display import progress as progress_lib  # pylint: disable=g-import-not-at-top

    row = self._row
    population = simulation.Population.of(
        self._data.train, row.num_clients, seed=self._seed
    )
    reports = simulation.Reports(
        self._architecture,
        population,
        row.noise,
        num_threads=self._num_threads,
    )
    held_out = self._data.test.arrays()
    noise_key = coins.subkey(checkpoint.root_key, 'noise')
    display = progress_lib.Progress(
        progress,
        delta=guarantee.delta,
        epsilon_budget=None,
        rounds_done=checkpoint.state.num_updates,
        rounds_planned=row.num_updates,
    )
    display.say(
        f'{row.name}, seed {self._seed}: {row.num_updates} updates of about'
        f' {row.reports_per_update:.0f} reports; epsilon is that of the whole run'
    )
    if not checkpoint.metrics:
      checkpoint.metrics.append(
          self._evaluate(reports, checkpoint.state, held_out)
      )
    saved_at = time.monotonic()
    try:
      with interrupts.InterruptGuard(
          lambda: display.say('stopping after this update')
      ) as interrupt:
        updates = simulation.updates(
            row.protocol,
            num_clients=row.num_clients,
            root_key=checkpoint.root_key,
            slots_per_update=row.slots_per_update,
            first=checkpoint.state.num_updates + 1,
        )
        while checkpoint.state.num_updates < row.num_updates:
          start = time.monotonic()
          checkpoint.state = simulation.step(
              checkpoint.state,
              next(updates),
              reports,
              row.server,
              noise=row.noise,
              num_updates=row.num_updates,
              key=noise_key,
          )
          number = checkpoint.state.num_updates
          seconds = time.monotonic() - start
          checkpoint.seconds += seconds
          is_last = number == row.num_updates
          if is_last or number % self._stride == 0:
            found = self._evaluate(reports, checkpoint.state, held_out)
            checkpoint.metrics.append(found)
            display.released(found, ['test_accuracy'])
          display.round_done(
              number, seconds=seconds, epsilon=guarantee.epsilon
          )
          is_due = time.monotonic() - saved_at > _SECONDS_BETWEEN_CHECKPOINTS
          if is_last or is_due or interrupt.is_requested:
            _save(path, checkpoint)
            saved_at = time.monotonic()
          if interrupt.is_requested and not is_last:
            raise interrupt.stopped(f'stopped after update {number}')
    finally:
      display.close()

  def _evaluate(self, reports, state, held_out) -> dict[str, float]:
    """Returns the entry of one evaluation."""
    x, y = held_out['x'], held_out['y']
    parts = range(0, len(y), _EVALUATED_AT_ONCE)
    logits = np.concatenate([
        reports.logits(state.weights, x[start : start + _EVALUATED_AT_ONCE])
        for start in parts
    ]).astype(np.float64)
    losses = special.logsumexp(logits, axis=1) - logits[np.arange(len(y)), y]
    found = {
        'update': state.num_updates,
        'test_accuracy': float(np.mean(logits.argmax(axis=1) == y)),
        'test_loss': float(losses.mean()),
    }
    if self._row.has_public_reports:
      found['num_reports'] = state.num_reports
    return found

  def _write_release(self, checkpoint: _Checkpoint, directory) -> None:
    """Writes what may leave the machine; metrics last, as they mark the end."""
    from tff_dp.program.files import outputs  # pylint: disable=g-import-not-at-top
    from tff_dp.program.files import run_directory  # pylint: disable=g-import-not-at-top

    guarantees = self._guarantees(directory)
    variables = simulation.split(
        checkpoint.state.weights, self._architecture.shapes
    )
    outputs.write_model(directory.release / 'model.npz', variables)
    if self._row.plan is not None:
      outputs.write_statement(directory.release, self._statement(checkpoint))
    run_directory.write_json(
        directory.release / 'metrics.json',
        {
            **self._identity(),
            'guarantees': [found.to_json() for found in guarantees],
            'seconds': checkpoint.seconds,
            'evaluations': checkpoint.metrics,
        },
    )

  def _statement(self, checkpoint: _Checkpoint):
    plan, row = self._row.plan, self._row
    observed = {}
    if row.has_public_reports:
      found = monitoring.realised_rate(
          checkpoint.state.num_reports,
          num_rounds=plan.num_rounds,
          num_clients=row.num_clients,
      )
      observed = {
          'rounds_counted': plan.num_rounds,
          'num_reports': checkpoint.state.num_reports,
          'rate': found,
          'warning': monitoring.warning(plan.protocol, found),
      }
    return plan.statement(
        delta=row.delta,
        observed=monitoring.ObservedCheckIns(
            num_rounds=plan.num_rounds, **observed
        ),
        insecure_seed=self._insecure_seed is not None,
        declarations=declarations_lib.Declarations(
            population=row.num_clients,
            population_origin='public: a simulated population over public data',
            hyperparameters=(
                'not accounted for: chosen on the held-out digits of short runs'
            ),
            architecture='public: arXiv:2206.03151, table 2',
            preprocessing='none: pixels are divided by 255',
            not_covered=(
                'a simulation: the machine that made this model holds all data,'
                ' and derives the coins and the noise of all clients from one'
                " secret key, the noise by NumPy's PCG64"
            ),
        ),
    )


def _save(path: pathlib.Path, checkpoint: _Checkpoint) -> None:
  from tff_dp.program.files import run_directory  # pylint: disable=g-import-not-at-top

  run_directory.write_atomically(path, checkpoint.to_bytes())
