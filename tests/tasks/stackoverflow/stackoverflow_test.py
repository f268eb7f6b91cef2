# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the Stack Overflow task on a small stand-in."""

import dataclasses
import json
import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tasks import __main__ as tasks_main
from tasks.common import digits_data
from tasks.stackoverflow import stackoverflow
from tasks.stackoverflow import stackoverflow_data
from tasks.stackoverflow import stackoverflow_stand_in
from tests.cli import command
from tff_dp.program.display import documents

_PLAY = """# A Play

## ACT I

_Enter KING_

**KING**
Now, fair queen, 'tis o'er!
_He sits_
Our nuptial-hour.

**QUEEN**
So.

### SCENE II
Nobody says this.
**KING**
Well?
"""


def _main(*argv):
  return command.run(tasks_main.main, 'train', 'stackoverflow', *argv)


class FlagsTest(parameterized.TestCase):

  def test_help_teaches_every_setting(self):
    code, out, _ = _main('--help')
    self.assertEqual(code, 0)
    for field in dataclasses.fields(stackoverflow.Settings):
      self.assertIn('--' + field.name.replace('_', '-'), out)

  def test_published_epsilon_needs_no_data(self):
    folder = self.create_tempdir().full_path
    code, out, err = _main('--published', '--data-dir', folder)
    self.assertEqual(code, 3)
    self.assertStartsWith(
        out,
        'planned: epsilon 17.67 (18.71 by Renyi DP) at delta 1e-06 of a client,'
        ' zero_out, after 1600 rounds\n',
    )
    self.assertIn('the 10,000 words are the most frequent', out)
    self.assertLen(err.splitlines(), 3)
    self.assertStartsWith(
        err, f'error: {folder}/stackoverflow.sqlite is missing\nwhy: found'
    )

  def test_published_noise_can_be_another(self):
    out = _main(
        '--published', '--noise-multiplier=0.149',
        '--data-dir', self.create_tempdir().full_path,
    )[1]
    self.assertIn('noise multiplier: 0.1490000', out)

  @parameterized.named_parameters(
      ('gap', ('--min-index-gap=61',), '--min-index-gap=61 is not allowed'),
      ('words', ('--words=0',), '--words=0 is not allowed'),
  )
  def test_a_bad_value_is_one_line(self, argv, named):
    code, out, err = _main(*argv)
    self.assertEqual((code, out), (2, ''))
    self.assertStartsWith(err, f'error: {named}')


class DataTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.data = pathlib.Path(
        cls.enterClassContext(tempfile.TemporaryDirectory())
    )
    # Whatever lies in the cache of whoever runs the tests.
    home = mock.patch.dict('os.environ', HOME=str(cls.data))
    with home, mock.patch.object(
        stackoverflow_stand_in, '_INVENTED_USERS', 30
    ):
      cls.contents = stackoverflow_data.look(cls.data, is_stand_in=True)

  def _vocabulary(self, folder=None, is_stand_in=True):
    return stackoverflow_data.load_vocabulary(
        folder or self.data,
        num_words=20,
        sequence_length=6,
        is_stand_in=is_stand_in,
    )

  def test_ids_are_those_of_the_baseline(self):
    vocabulary = stackoverflow_data.Vocabulary(('a', 'b'), 4)
    self.assertEqual(vocabulary.size, 6)
    ids, targets = vocabulary.ids(['a c', 'b a b a b'])
    np.testing.assert_array_equal(ids, [[4, 1, 3, 5], [4, 2, 1, 2]])
    np.testing.assert_array_equal(targets, [[1, 3, 5, 0], [2, 1, 2, 1]])
    np.testing.assert_array_equal(
        vocabulary.is_counted(targets),
        [[True, False, False, False], [True] * 4],
    )

  def test_stand_in_has_what_the_loader_reads(self):
    self.assertEqual(
        {
            split: len(users)
            for split, users in self.contents.num_examples.items()
        },
        {'train': 27, 'heldout': 3, 'test': 27},
    )
    vocabulary = self._vocabulary()
    self.assertLen(vocabulary.words, 20)
    train, test = stackoverflow_data.load(self.data)
    users = stackoverflow_data.Users(
        train, vocabulary, batch_size=5, num_epochs=1, most_examples=12
    )
    self.assertLen(users.client_ids, 27)
    for _ in range(2):
      dataset = users.create_tf_dataset_for_client('user_003')
      batches = list(dataset.as_numpy_iterator())
      self.assertEqual([len(x) for x, _ in batches], [5, 5, 2])
      for ids, targets in batches:
        np.testing.assert_array_equal(ids[:, 1:], targets[:, :-1])
        self.assertEqual(set(ids[:, 0]), {vocabulary.end - 1})
    sentences = list(
        stackoverflow_data.sentences(
            test.create_tf_dataset_for_client('user_003')
        )
    )
    self.assertLen(sentences, 8)
    _, targets = vocabulary.ids(sentences)
    self.assertGreater(np.mean(vocabulary.is_counted(targets)), 0.2)

  @parameterized.named_parameters(
      ('missing', None, True, 'is missing'),
      ('cut_off', 'the 12\nof 1', True, "line 2 is 'of 1'"),
      ('other', '{"the": 12}\n', True, 'line 1 is'),
      ('few', 'the 12\n', False, 'it has 1 words, of 20'),
  )
  def test_wrong_words_are_told(self, content, is_stand_in, told):
    folder = pathlib.Path(self.create_tempdir())
    if content is not None:
      (folder / stackoverflow_data.WORDS).write_text(content)
    with self.assertRaises(digits_data.DataFileError) as caught:
      self._vocabulary(folder, is_stand_in)
    error = caught.exception
    self.assertStartsWith(
        str(error), str(folder / stackoverflow_data.WORDS) + ' is '
    )
    self.assertIn(told, f'{error} {error.why}')
    self.assertIn('--data-dir', error.way_out)

  def test_lines_of_a_play_have_speakers(self):
    self.assertEqual(
        stackoverflow_stand_in.lines_by_speaker(_PLAY),
        {
            'KING': [
                "now , fair queen , tis o'er !", 'our nuptial-hour .', 'well ?'
            ],
            'QUEEN': ['so .'],
        },
    )

  def test_another_wheel_is_refused(self):
    folder = pathlib.Path(self.create_tempdir())
    (folder / stackoverflow_stand_in.WHEEL).write_bytes(b'PK')
    code, _, err = _main('--stand-in', '--data-dir', folder)
    self.assertEqual(code, 3)
    self.assertLen(err.splitlines(), 3)
    self.assertIn('is not the package that we know\nwhy: its sha256', err)
    self.assertFalse((folder / stackoverflow_data.FILE).exists())

  def test_published_model_has_its_weights(self):
    from tasks.stackoverflow import stackoverflow_training  # pylint: disable=g-import-not-at-top

    model = stackoverflow_training.build_model(
        10_004, embedding_size=96, lstm_size=670, seed=0
    )
    self.assertEqual(model.count_params(), 4_050_748)

  def test_small_run_reports_and_states(self):
    folder = pathlib.Path(self.create_tempdir()) / 'run'
    flags = (
        '--stand-in', '--output-dir', folder, '--data-dir', self.data,
        '--total-rounds=2', '--clients-per-round=4', '--min-index-gap=2',
        '--words=20', '--lstm-size=4', '--embedding-size=4',
        '--examples-per-client=10', '--test-examples=20',
    )
    with mock.patch.object(documents, 'write'):
      code, out, err = _main(*flags)
    self.assertEqual(code, 0, err)
    self.assertLess(err.index('planned: epsilon 8.000'), err.index('round=1/2'))
    row = json.loads((folder / 'results.json').read_text())['rows']
    self.assertBetween(row['dp-ftrl_blt']['most_frequent'], 0.02, 0.5)
    self.assertBetween(row['dp-ftrl_blt']['test_accuracy'], 0, 1)
    statement = folder / 'dp-ftrl_blt/release/privacy_statement.md'
    for text in (out, statement.read_text()):
      self.assertIn('a stand-in for Stack Overflow: 30 invented users', text)
    # What a run in this folder is compared with; a difference is refused.
    config = folder / 'dp-ftrl_blt/release/config.json'
    self.assertContainsSubset(
        {'l2_norm_clip': 1.0, 'words': 20, 'embedding_range': 1.0, 'seed': 0},
        json.loads(config.read_text())['config'],
    )


if __name__ == '__main__':
  absltest.main()
