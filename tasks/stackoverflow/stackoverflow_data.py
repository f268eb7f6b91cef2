# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stack Overflow by TFF's own loader, or a stand-in in the same format.

The files are stackoverflow.sqlite, as `tff.simulation.datasets.stackoverflow`
leaves it, and stackoverflow.word_count beside it, with a word and its count on
each line, most frequent first. TFF's loader of word counts accepts only the
original file, so this module reads the counts itself. Nothing here downloads
anything.

Word ids are as in `tff.simulation.baselines.stackoverflow`: 0 for padding,
then the words, one id for all others, and the beginning and end of a sentence.
"""

import collections
from collections.abc import Iterator
import dataclasses
import itertools
import pathlib

import numpy as np

from tasks.common import client_files
from tasks.common import digits_data

FILE = 'stackoverflow.sqlite'
WORDS = 'stackoverflow.word_count'
_NUM_USERS = {'train': 342_477, 'heldout': 38_758, 'test': 204_088}
_WHERE = (
    'name the folder of whole ones with --data-dir;'
    ' tff.simulation.datasets.stackoverflow.load_data() and load_word_counts()'
    ' fetch them into ~/.tff where there is internet; or --stand-in for other'
    " people's sentences"
)
_STAND_IN_WHERE = (
    'name another folder with --data-dir, and --stand-in makes both files there'
)
_PADDING = 0
# Of a stand-in: the last of a user's sentences are the test data, and every
# tenth user is held out.
_TEST_SHARE = 5
_HELD_OUT = 10


@dataclasses.dataclass(frozen=True)
class Vocabulary:
  """Words and their ids.

  Attributes:
    words: Words, the most frequent first.
    sequence_length: Number of first words of a sentence that are used.
  """

  words: tuple[str, ...]
  sequence_length: int

  @property
  def unknown(self) -> int:
    """The id of all other words."""
    return len(self.words) + 1

  @property
  def end(self) -> int:
    """The id of the end of a sentence. The id before it is the beginning."""
    return len(self.words) + 3

  @property
  def size(self) -> int:
    """Number of ids."""
    return len(self.words) + 4

  def ids(self, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns (ids, the ids that come next), int64 of [sentences, length]."""
    rows = np.full(
        [len(sentences), self.sequence_length + 1], _PADDING, np.int64
    )
    known = {word: 1 + index for index, word in enumerate(self.words)}
    for row, sentence in zip(rows, sentences):
      found = [
          known.get(word, self.unknown)
          for word in sentence.split(' ')[: self.sequence_length]
      ]
      found = [self.end - 1, *found, self.end][: self.sequence_length + 1]
      row[: len(found)] = found
    return rows[:, :-1], rows[:, 1:]

  def is_counted(self, targets: np.ndarray) -> np.ndarray:
    """Returns which targets count for accuracy: known words, not the end."""
    return (targets != _PADDING) & (targets < self.unknown)


class Users:
  """Batches of ids by user, in a fixed order, like TFF's `ClientData`."""

  def __init__(
      self,
      client_data,
      vocabulary: Vocabulary,
      *,
      batch_size: int,
      num_epochs: int,
      most_examples: int,
  ):
    """Initializes the object.

    Args:
      client_data: `ClientData` from TFF's loader.
      vocabulary: Map from words to ids.
      batch_size: Number of sentences of a local step.
      num_epochs: Number of local passes.
      most_examples: Number of first sentences of a user that are used.
    """
    self._client_data = client_data
    self._vocabulary = vocabulary
    self._batch_size, self._num_epochs = batch_size, num_epochs
    self._most_examples = most_examples

  @property
  def client_ids(self) -> list[str]:
    return self._client_data.client_ids

  def create_tf_dataset_for_client(self, client_id: str):
    """Returns one user's batches (ids, ids that come next)."""
    import tensorflow as tf  # pylint: disable=g-import-not-at-top

    examples = self._client_data.create_tf_dataset_for_client(client_id)
    arrays = self._vocabulary.ids(
        list(sentences(examples.take(self._most_examples)))
    )
    dataset = tf.data.Dataset.from_tensor_slices(arrays)
    return dataset.batch(self._batch_size).repeat(self._num_epochs)


def look(folder: pathlib.Path, *, is_stand_in: bool) -> client_files.Contents:
  """Returns the contents of the data file. Makes the files of a stand-in.

  Args:
    folder: Folder of the files.
    is_stand_in: Whether the files must be a stand-in. If not, they must not be
      one.

  Raises:
    DataFileError: If the data file is missing or cut off, or is another one.
  """
  if is_stand_in and not (folder / FILE).exists():
    _write_stand_in(folder)
  name = 'the stand-in for ' if is_stand_in else ''
  return client_files.look(
      folder / FILE,
      client_files.Known(
          f'{name}Stack Overflow',
          dict.fromkeys(_NUM_USERS) if is_stand_in else _NUM_USERS,
          _STAND_IN_WHERE if is_stand_in else _WHERE,
      ),
      is_stand_in=is_stand_in,
  )


def load_vocabulary(
    folder: pathlib.Path,
    *,
    num_words: int,
    sequence_length: int,
    is_stand_in: bool,
) -> Vocabulary:
  """Returns the most frequent words.

  Args:
    folder: Folder of the files.
    num_words: Number of words. A stand-in may have fewer.
    sequence_length: Number of first words of a sentence that are used.
    is_stand_in: Whether the files are a stand-in.

  Raises:
    DataFileError: If the file of words is missing or not whole.
  """
  path = folder / WORDS
  way_out = _STAND_IN_WHERE if is_stand_in else _WHERE
  if not path.is_file():
    raise digits_data.DataFileError(
        f'{path} is missing', why=f'only {FILE} is there', way_out=way_out
    )
  words = []
  with open(path, encoding='utf-8', errors='replace') as file:
    for number, line in enumerate(itertools.islice(file, num_words), start=1):
      word, _, count = line.rstrip('\n').rpartition(' ')
      if not word or not count.isdigit() or not line.endswith('\n'):
        raise digits_data.DataFileError(
            f'{path} is not whole',
            why=f'line {number} is {line[:40]!r}, and not a word, a blank and'
            ' its count',
            way_out=way_out,
        )
      words.append(word)
  if len(words) < num_words and not is_stand_in:
    raise digits_data.DataFileError(
        f'{path} is not whole',
        why=f'it has {len(words):,} words, of {num_words:,}',
        way_out=way_out,
    )
  return Vocabulary(tuple(words), sequence_length)


def load(folder: pathlib.Path):
  """Returns (train, test) as `ClientData`, by TFF's loader."""
  import tensorflow_federated as tff  # pylint: disable=g-import-not-at-top

  train, _, test = tff.simulation.datasets.stackoverflow.load_data(
      cache_dir=str(folder)
  )
  return train, test


def clients(
    *,
    folder: str,
    num_words: int,
    sequence_length: int,
    is_stand_in: bool,
    **batches,
) -> Users:
  """Returns the users of a folder that `look` has checked.

  Args:
    folder: Folder of the files.
    num_words: Number of words, as for `load_vocabulary`.
    sequence_length: Number of first words of a sentence that are used.
    is_stand_in: Whether the files are a stand-in.
    **batches: Further arguments of `Users`.
  """
  vocabulary = load_vocabulary(
      pathlib.Path(folder),
      num_words=num_words,
      sequence_length=sequence_length,
      is_stand_in=is_stand_in,
  )
  train, _ = load(pathlib.Path(folder))
  return Users(train, vocabulary, **batches)


def sentences(dataset) -> Iterator[str]:
  """Yields the sentences of a dataset of TFF's loader."""
  for row in dataset.as_numpy_iterator():
    yield row['tokens'].decode('utf-8', 'replace')


def _write_stand_in(folder: pathlib.Path) -> None:
  import tensorflow as tf  # pylint: disable=g-import-not-at-top
  from tasks.stackoverflow import stackoverflow_stand_in  # pylint: disable=g-import-not-at-top

  def text(value: str) -> tf.train.Feature:
    return tf.train.Feature(
        bytes_list=tf.train.BytesList(value=[value.encode()])
    )

  def serialized(sentence: str) -> bytes:
    features = {
        'creation_date': text('2008-09-15 00:00:00 UTC'),
        'score': tf.train.Feature(int64_list=tf.train.Int64List(value=[0])),
        'tags': text('stand-in'),
        'title': text('stand-in'),
        'tokens': text(sentence),
        'type': text('answer'),
    }
    return tf.train.Example(
        features=tf.train.Features(feature=features)
    ).SerializeToString(deterministic=True)

  users, description = stackoverflow_stand_in.users(folder)
  rows = []
  for number, (user, lines) in enumerate(users.items()):
    is_held_out = number % _HELD_OUT == _HELD_OUT - 1
    num_train = len(lines) - len(lines) // _TEST_SHARE
    for index, line in enumerate(lines):
      split = 'train' if index < num_train else 'test'
      rows.append(('heldout' if is_held_out else split, user, line))
  counts = collections.Counter(
      word
      for split, _, line in rows
      if split == 'train'
      for word in line.split(' ')
  )
  ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
  folder.mkdir(parents=True, exist_ok=True)
  (folder / WORDS).write_text(
      ''.join(f'{word} {count}\n' for word, count in ordered)
  )
  # Last: where it is, both are.
  client_files.write(
      folder / FILE,
      ((split, user, serialized(line)) for split, user, line in rows),
      description=description,
  )
