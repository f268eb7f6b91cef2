# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Federated EMNIST by TFF's own loader, or a stand-in in the same format.

The file is emnist_all.sqlite, as `tff.simulation.datasets.emnist` leaves it:
3,400 writers with 62 classes, of whom 3,383 wrote digits. Nothing here
downloads it. The loader gets the file only after `look` has checked it.
"""

import dataclasses
import pathlib
from typing import Any

import numpy as np

from tasks.common import client_files
from tasks.common import cluster_clients

FILE = 'emnist_all.sqlite'
DIGITS, ALL = 'digits_only', 'all'
_SPLITS = ('train', 'test')
_NUM_CLASSES = {DIGITS: 10, ALL: 62}
_NUM_WRITERS = {DIGITS: 3383, ALL: 3400}
_EVALUATED_AT_ONCE = 500


@dataclasses.dataclass(frozen=True)
class Emnist:
  """The examples of all writers.

  Attributes:
    train: `ClientData` with batches (pixels, label), in a fixed order.
    participants: The same data for the rounds. On a cluster, workers load them.
    test: Batches (pixels, label) of all held-out examples, NumPy arrays.
    num_classes: 10 or 62.
    num_examples: Writer -> number of training examples, which is public here.
    description: Description of the data, for reports.
  """

  train: Any
  participants: Any
  test: list[tuple[np.ndarray, np.ndarray]]
  num_classes: int
  num_examples: dict[str, int]
  description: str


def look(
    folder: pathlib.Path, *, stand_in_writers: int | None
) -> client_files.Contents:
  """Returns the contents of the data file. Makes the file of a stand-in.

  Args:
    folder: Folder of the file.
    stand_in_writers: Number of writers of a stand-in, `None` for the real
      data.

  Raises:
    DataFileError: If the file is missing or cut off, or is another one.
  """
  path = folder / FILE
  if stand_in_writers is None:
    known = client_files.Known(
        'federated EMNIST',
        {
            f'{kind}_{split}': number
            for kind, number in _NUM_WRITERS.items()
            for split in _SPLITS
        },
        'name the folder of a whole one with --data-dir;'
        ' tff.simulation.datasets.emnist.load_data() fetches it into ~/.tff'
        ' where there is internet; or --stand-in for letters that nobody wrote',
    )
  else:
    known = client_files.Known(
        'the stand-in for EMNIST',
        {
            f'{kind}_{split}': stand_in_writers
            for kind in _NUM_WRITERS
            for split in _SPLITS
        },
        'name another folder with --data-dir, and --stand-in makes it there',
    )
    if not path.exists():
      _write_stand_in(path, stand_in_writers)
  return client_files.look(
      path, known, is_stand_in=stand_in_writers is not None
  )


def clients(
    *, folder: str, only_digits: bool, batch_size: int, num_epochs: int
):
  """Returns the writers of a file that `look` has checked, as `ClientData`.

  Args:
    folder: Folder of the file.
    only_digits: Whether to leave out letters.
    batch_size: Number of examples of a local step.
    num_epochs: Number of local passes over a writer's examples.
  """
  train, _ = _read(folder, only_digits=only_digits)
  return train.preprocess(
      lambda rows: _of_model(rows).batch(batch_size).repeat(num_epochs)
  )


def _read(folder: str, *, only_digits: bool):
  import tensorflow_federated as tff  # pylint: disable=g-import-not-at-top

  return tff.simulation.datasets.emnist.load_data(
      only_digits=only_digits, cache_dir=folder
  )


def _of_model(dataset):
  return dataset.map(lambda row: (row['pixels'][..., None], row['label']))


def load(
    folder: pathlib.Path,
    contents: client_files.Contents,
    *,
    only_digits: bool,
    batch_size: int,
    num_epochs: int,
) -> Emnist:
  """Returns the data of a file that `look` has checked.

  Args:
    folder: Folder of the file.
    contents: Result of `look`.
    only_digits: Whether to leave out letters.
    batch_size: Number of examples of a local step.
    num_epochs: Number of local passes over a writer's examples.
  """
  _, test = _read(str(folder), only_digits=only_digits)
  kind = DIGITS if only_digits else ALL
  settings = dict(
      folder=str(folder.resolve()),
      only_digits=only_digits,
      batch_size=batch_size,
      num_epochs=num_epochs,
  )
  train = clients(**settings)
  held_out = _of_model(test.create_tf_dataset_from_all_clients(seed=0))
  return Emnist(
      train=train,
      participants=cluster_clients.at_workers(train, __name__, **settings),
      test=list(held_out.batch(_EVALUATED_AT_ONCE).as_numpy_iterator()),
      num_classes=_NUM_CLASSES[kind],
      num_examples=dict(contents.num_examples[f'{kind}_train']),
      description=contents.description,
  )


def _write_stand_in(path: pathlib.Path, num_writers: int) -> None:
  # Only where they are needed: fonts and TensorFlow take a while.
  import tensorflow as tf  # pylint: disable=g-import-not-at-top
  from tasks.emnist import emnist_stand_in  # pylint: disable=g-import-not-at-top

  def serialized(label: int, pixels: np.ndarray) -> bytes:
    features = {
        'label': tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        'pixels': tf.train.Feature(
            float_list=tf.train.FloatList(value=pixels.ravel())
        ),
    }
    return tf.train.Example(
        features=tf.train.Features(feature=features)
    ).SerializeToString(deterministic=True)

  def examples():
    for number in range(num_writers):
      writer = emnist_stand_in.Writer(number)
      for is_test, label, pixels in writer.examples():
        row = serialized(label, pixels)
        for kind in (ALL, DIGITS):
          if label < _NUM_CLASSES[kind]:
            yield f'{kind}_{_SPLITS[is_test]}', f'writer_{number:04d}', row

  client_files.write(
      path, examples(), description=emnist_stand_in.describe(num_writers)
  )
