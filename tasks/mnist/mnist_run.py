# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""One run of a row with one seed: its process, trained by `program.train`.

    output_dir/ROW/seed_S/    as `program.train` leaves it, and
      release/guarantee.json  what the row costs a client, at several deltas
"""

import base64
from collections.abc import Callable, Mapping
import dataclasses
import hashlib
import json
import pathlib
import time
from typing import Any, Optional

from tasks.common import digits_data
from tasks.mnist import mnist_data
from tasks.mnist import mnist_guarantees
from tasks.mnist import mnist_model
from tasks.mnist import mnist_rows
from tff_dp import _checks
from tff_dp import allocation
from tff_dp import check_ins
from tff_dp import dp_ftrl
from tff_dp import program
from tff_dp.files import run_directory
from tff_dp.learning import protocol_training
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.participation import sampling
from tff_dp.program import protocol_source
from tff_dp.statement import declarations as declarations_lib
from tff_dp.systems.check_ins import shuffled
from tff_dp.systems.check_ins import windows
from tff_dp.systems.dp_ftrl import non_private
from tff_dp.systems.dp_ftrl import plan as dp_ftrl_plan

# pylint: disable=g-bad-import-order
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

# At which epsilon is reported, beside the row's own.
DELTAS = (1e-5, 1e-6)
_EVALUATED_AT_ONCE = 2000
_SECONDS_OF_A_LEG = 300.0


@dataclasses.dataclass(frozen=True)
class Result:
  """The results of one run.

  Attributes:
    seed: Public seed of the initial model, and of who holds which image.
    metrics: Values of every evaluation: round, test_accuracy, test_loss.
    guarantees: Guarantees at the row's own delta, and at `DELTAS`.
  """

  seed: int
  metrics: tuple[dict[str, float], ...]
  guarantees: tuple[mnist_guarantees.Guarantee, ...]

  @property
  def test_accuracy(self) -> float:
    """Held-out accuracy of the last model."""
    return self.metrics[-1]['test_accuracy']


@dataclasses.dataclass(frozen=True)
class Start:
  """State from which another run goes on.

  Attributes:
    round: Number of rounds that were made.
    until: Last round that the run makes before it saves the next state. Those
      after `round` are made again by the run that goes on.
    first_round: Number of rounds before the run that saved this. 0 for a run
      that began with the first round.
    num_repeated: Largest number of rounds that were made twice before that.
    weights: All weights after `round` rounds, one after another: float32
      [num_params].
    evaluations: Rounds that were evaluated, and their held-out accuracies.
  """

  round: int
  until: int
  first_round: int
  num_repeated: int
  weights: np.ndarray
  evaluations: tuple[tuple[int, float], ...]

  def to_json(self) -> dict[str, Any]:
    """Returns JSON types. `weights` are the bytes in base 64."""
    return vars(self) | {
        'evaluations': [list(pair) for pair in self.evaluations],
        'weights': base64.b64encode(self._bytes).decode(),
    }

  @classmethod
  def from_json(cls, content: dict[str, Any]) -> 'Start':
    """Returns the state that `to_json` described."""
    weights = np.frombuffer(base64.b64decode(content['weights']), '<f4')
    pairs = tuple(map(tuple, content['evaluations']))
    return cls(**content | {'weights': weights, 'evaluations': pairs})

  @property
  def digest(self) -> str:
    """A hash of the weights."""
    return hashlib.sha256(self._bytes).hexdigest()

  @property
  def _bytes(self) -> bytes:
    return self.weights.astype('<f4').tobytes()


class Population:
  """Clients with one image each, in the manner of TFF's `ClientData`.

  Attributes:
    client_ids: Position of each client in the population, as a string.
  """

  def __init__(
      self, digits: digits_data.Digits, num_clients: int, *, seed: int
  ):
    """Hands out the images.

    Args:
      digits: Digits that the clients hold.
      num_clients: Number of clients. Each holds a digit of its own, and digits
        without a client are left out. If there are more clients than digits,
        each draws one with replacement.
      seed: Public seed of the draws.
    """
    _checks.integer_at_least(1, num_clients=num_clients)
    rng = np.random.default_rng([seed, 0xB007])
    if num_clients > len(digits):
      rows = rng.integers(len(digits), size=num_clients, dtype=np.int32)
    else:
      rows = np.sort(rng.permutation(len(digits))[:num_clients])
    self._digits, self._rows = digits, rows
    self.client_ids = list(map(str, range(num_clients)))

  def create_tf_dataset_for_client(self, client_id: str) -> list:
    """Returns a list with the one batch of a client. A list costs the least."""
    row = self._rows[int(client_id)]
    return [self._digits.rows(slice(row, row + 1)).arrays()]


def train(
    row: mnist_rows.Row,
    output_dir: pathlib.Path,
    *,
    data: mnist_data.Mnist,
    architecture: mnist_model.Architecture,
    seed: int,
    num_evaluations: int,
    insecure_seed: Optional[int] = None,
    progress: str = 'quiet',
    start: Optional[Start] = None,
    save: Optional[Callable[[Start], None]] = None,
) -> Result:
  """Trains to the end, from where an earlier process stopped.

  Args:
    row: Row to train.
    output_dir: Folder of this run alone.
    data: Training and held-out images.
    architecture: Architecture of the model.
    seed: Public seed of the initial model, and of who holds which image.
    num_evaluations: Number of evaluations, at equal distances.
    insecure_seed: Seed for tests only. Anybody who knows it can recompute
      coins and noise. `None` outside of tests.
    progress: Kind of progress, as for `tff_dp.program.train`.
    start: State that an earlier run saved. The rest gets a folder beside
      `output_dir`, with new coins and keys. `None` to begin with the first
      round.
    save: Function that receives the state for a later `start`: first the
      initial one, then about every five minutes, after an evaluation. Only for
      rows with `has_rest`.
  """
  _checks.integer_at_least(1, num_evaluations=num_evaluations)
  every = -(-row.num_rounds // num_evaluations)
  rest, done, repeated, evaluated, weights, config = row, 0, 0, (), None, {}
  if start is not None:
    done, evaluated, weights = start.round, start.evaluations, start.weights
    repeated = start.num_repeated + start.until - done
    rest, config = row.rest(done), {'start': [done, start.digest]}
    output_dir = output_dir.with_name(f'{output_dir.name}_from_{done}')
  clients = Population(data.train, row.num_clients, seed=seed)
  process = build_process(
      rest, architecture, seed=seed, insecure_seed=insecure_seed,
      weights=weights,
  )  # pyformat: disable

  def train_until(stop):
    return program.train(
        process,
        _source(rest, clients, insecure_seed),
        plan=None if row.plan else _baseline(rest),
        output_dir=output_dir,
        delta=row.delta,
        evaluate_fn=_evaluation(architecture, data.test),
        rounds_per_eval=every,
        total_rounds=stop,
        config={
            'task': 'mnist',
            'row': rest.describe(),
            'data': data.name,
            'architecture': dataclasses.asdict(architecture),
            'seed': seed,
            **config,
        },
        declarations=_declarations(row, done, repeated),
        progress=progress,
    )

  if save is None:
    result = train_until(rest.num_rounds)
  else:
    if weights is None:
      model = mnist_model.build_keras_model(architecture, seed=seed)
      weights = _flat(model.trainable_weights)

    def save_start(made, until, weights, evaluations):
      pairs = ((done + number, value) for number, value in evaluations)
      save(
          Start(
              round=done + made,
              until=done + until,
              first_round=done,
              num_repeated=repeated,
              weights=weights,
              evaluations=(*evaluated, *pairs),
          )
      )

    result = _train_in_legs(
        train_until,
        rest.num_rounds,
        every=every,
        weights=None if output_dir.exists() else weights,
        save=save_start,
    )
  metrics = [
      {name: found[name] for name in ('round', *result.evaluated)}
      | {'round': done + found['round']}
      for found in _evaluations(result)
  ]
  total = row.with_rounds(row.num_rounds + repeated) if repeated else row
  return Result(
      seed,
      (
          *(
              {'round': number, 'test_accuracy': value}
              for number, value in evaluated
          ),
          *metrics,
      ),
      _guarantees(total, output_dir, is_insecure=insecure_seed is not None),
  )


def _train_in_legs(train_until, num_rounds, *, every, weights, save):
  """Trains in legs of about five minutes, and saves the state before each.

  Each call of `program.train` checks the process and writes its statement, so
  legs are not shorter.

  Args:
    train_until: Function that trains until a round, and returns what
      `program.train` does.
    num_rounds: Number of rounds.
    every: Number of rounds between evaluations, and of the first leg.
    weights: Initial weights. `None` if a folder is there. It may have more
      rounds than the first leg, and its run has saved how far it goes: to the
      end of a leg, so the next round to stop at is no later.
    save: Function of the number of rounds made, the last round of the leg, the
      weights and the evaluations so far.
  """
  made, stop, evaluations = 0, min(every, num_rounds), ()
  while True:
    is_saved = weights is not None
    if is_saved:
      save(made, stop, weights, evaluations)
    begin = time.monotonic()
    result = train_until(stop)
    if stop == num_rounds:
      return result
    # A folder may be ahead of `stop`.
    is_there = result.rounds_done == stop
    weights = _flat(result.model_weights.trainable) if is_there else None
    evaluations = [
        (found['round'], found['test_accuracy'])
        for found in _evaluations(result)
    ]
    length = every
    if is_saved:
      seconds = (time.monotonic() - begin) * every / (stop - made)
      length *= max(1, int(_SECONDS_OF_A_LEG / seconds))
    made, stop = stop, min(stop + length, num_rounds)


def _evaluations(result):
  """Returns the metrics of the rounds that were evaluated."""
  return [found for found in result.metrics if 'test_accuracy' in found]


def _flat(variables) -> np.ndarray:
  """Returns all weights, one after another."""
  return np.concatenate([np.ravel(part) for part in variables])


def build_process(
    row: mnist_rows.Row,
    architecture: mnist_model.Architecture,
    *,
    seed: int,
    insecure_seed: Optional[int] = None,
    weights: Optional[np.ndarray] = None,
) -> tff.learning.templates.LearningProcess:
  """Returns the process of a row.

  Args:
    row: See `train`.
    architecture: See `train`.
    seed: See `train`.
    insecure_seed: See `train`.
    weights: Initial weights, as `Start` has them. `None` for those of `seed`.
  """

  def model_fn():
    return tff.learning.models.from_keras_model(
        mnist_model.build_keras_model(
            architecture, seed=seed, weights=weights
        ),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=_input_spec(architecture),
    )

  server = dict(
      server_learning_rate=row.server.rates(row.num_updates),
      momentum=row.server.momentum,
  )
  if row.plan is None:
    # Any process may run under the plan of `_baseline`: this one clips, adds
    # noise in every round and divides by a constant.
    return dp_ftrl.build_dp_ftrl(
        model_fn,
        dp_ftrl_plan.DpFtrlPlan(
            mechanism_lib.Independent(row.num_rounds),
            sampling.UniformSampling(row.num_rounds),
            l2_norm_clip=row.noise.l2_norm_clip,
            clients_per_round=row.divisor,
            noise_multiplier=row.noise.noise_multiplier,
        ),
        client_optimizer=tff.learning.optimizers.build_sgdm(1.0),
        server_learning_rate=1.0,
        server_optimizer=protocol_training.build_optimizer(
            server['server_learning_rate'],
            momentum=row.server.momentum,
            nesterov=False,
            num_updates=row.num_updates,
        ),
        insecure_seed=insecure_seed,
    )
  if not row.plan.is_local:
    return allocation.build_allocation_sgd(
        model_fn,
        row.plan,
        clients_per_slot=row.divisor,
        insecure_seed=insecure_seed,
        **server,
    )
  if isinstance(row.plan.protocol, shuffled.ShuffledCheckIn):
    return check_ins.build_shuffled_check_in_sgd(model_fn, row.plan, **server)
  if isinstance(row.plan.protocol, windows.SlidingWindowCheckIn):
    server['slots_per_update'] = row.slots_per_update
  return check_ins.build_check_in_sgd(model_fn, row.plan, **server)


def _input_spec(architecture):
  size = architecture.image_size
  return {
      'x': tf.TensorSpec([None, size, size, 1], tf.float32),
      'y': tf.TensorSpec([None], tf.int32),
  }


def _source(row, clients, insecure_seed) -> protocol_source.ProtocolSource:
  """Returns the clients of a row, with their coins."""
  if row.plan is not None:
    return protocol_source.ProtocolSource.for_plan(
        row.plan, clients, insecure_seed=insecure_seed
    )
  return protocol_source.ProtocolSource(
      row.protocol, clients, with_keys=False, insecure_seed=insecure_seed
  )


def _baseline(row) -> non_private.NonPrivatePlan:
  """Returns the plan of a row that no plan accounts for."""
  return non_private.NonPrivatePlan(
      sampling.UniformSampling(row.num_rounds), row.divisor
  )


def _evaluation(
    architecture, held_out: digits_data.Digits
) -> Callable[[Any], Mapping[str, float]]:
  model = mnist_model.build_keras_model(architecture, seed=0)
  model.compile(
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      metrics=['accuracy'],
  )
  arrays = held_out.arrays()

  def evaluate(weights) -> Mapping[str, float]:
    model.set_weights(weights.trainable)
    loss, accuracy = model.evaluate(
        arrays['x'], arrays['y'], batch_size=_EVALUATED_AT_ONCE, verbose=0
    )
    return {'test_accuracy': accuracy, 'test_loss': loss}

  return evaluate


def _guarantees(row, output_dir, *, is_insecure: bool):
  """Returns the guarantees, computed once for a directory."""
  path = output_dir / 'release' / 'guarantee.json'
  if not path.exists():
    found = [
        (
            mnist_guarantees.nothing(delta)
            if is_insecure
            else mnist_guarantees.of(row, delta=delta)
        ).to_json()
        for delta in dict.fromkeys([row.delta, *DELTAS])
    ]
    run_directory.write_atomically(path, json.dumps(found, indent=2) + '\n')
  return tuple(
      mnist_guarantees.Guarantee.from_json(found)
      for found in json.loads(path.read_text())
  )


def _declarations(
    row, rounds_before: int, repeated: int
) -> declarations_lib.Declarations:
  before = ''
  if rounds_before or repeated:
    before = (
        f'; the {rounds_before:,} rounds before this run, which the same'
        f' clients took part in, and up to {repeated:,} rounds that were made'
        ' twice, because other runs were stopped: release/guarantee.json'
        f' counts all {row.num_rounds + repeated:,} rounds'
    )
  return declarations_lib.Declarations(
      population=row.num_clients,
      population_origin='public: a simulated population over public data',
      hyperparameters=(
          'not accounted for: chosen on the held-out digits of short runs'
      ),
      architecture='public: arXiv:2206.03151, table 2',
      preprocessing='none: pixels are divided by 255',
      data_name='MNIST, spread over simulated clients',
      not_covered=(
          'clients that are simulated: the machine that made this model holds'
          ' all data, and the keys of all clients follow from one of its own'
          f'{before}'
      ),
  )
