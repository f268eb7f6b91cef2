# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the packaged digits and of how they are dealt to clients."""

import gzip
import hashlib
import importlib.metadata
import os
import pathlib
import subprocess
import sys
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tasks.common import digits_data
from tff_dp import _checks


def _fake_digits(per_class=8):
  labels = np.repeat(np.arange(10, dtype=np.int32), per_class)
  images = np.arange(len(labels), dtype=np.uint8)[:, np.newaxis, np.newaxis]
  images = np.broadcast_to(images, (len(labels), 28, 28))
  return digits_data.Digits(images, labels)


def _identities(digits):
  """Returns one hash per digit, to follow digits through splits."""
  return [hashlib.sha256(image.tobytes()).digest() for image in digits.images]


class PackagedFileTest(parameterized.TestCase):

  def test_shapes_types_and_classes(self):
    digits = digits_data.load()
    self.assertEqual(digits.images.shape, (5000, 28, 28))
    self.assertEqual(digits.images.dtype, np.uint8)
    self.assertEqual(digits.labels.dtype, np.int32)
    np.testing.assert_array_equal(np.bincount(digits.labels), [500] * 10)
    self.assertLen(set(_identities(digits)), 5000)

  def test_package_and_tensorflow_are_not_imported(self):
    code = (
        'import sys; from tasks.common import digits_data;'
        'digits_data.load_clients(9);'
        "print([m for m in ('mlxtend', 'tensorflow') if m in sys.modules])"
    )
    root = pathlib.Path(digits_data.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, '-c', code],
        cwd=root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    self.assertEqual(done.stdout.strip(), '[]')

  def test_changed_file_is_refused_with_both_hashes(self):
    with tempfile.TemporaryDirectory() as directory:
      path = os.path.join(directory, 'changed.csv.gz')
      content = gzip.compress(b'0,' * 784 + b'7\n')
      with open(path, 'wb') as file:
        file.write(content)
      with mock.patch.object(
          digits_data, '_packaged_file', return_value=path
      ), self.assertRaises(digits_data.DataFileError) as caught:
        digits_data.load()
    message = str(caught.exception)
    self.assertIn(path, message)
    self.assertIn(hashlib.sha256(content).hexdigest(), message)
    self.assertIn('expected sha256 846f6cad', message)
    self.assertIn('pip install', message)

  def test_missing_file_is_named(self):
    with mock.patch.object(
        digits_data, '_packaged_file', return_value='/nowhere/digits.csv.gz'
    ), self.assertRaisesRegex(
        digits_data.DataFileError, r'/nowhere/digits\.csv\.gz.*pip install'
    ):
      digits_data.load()

  def test_missing_package_is_named(self):
    with mock.patch.object(
        importlib.metadata,
        'distribution',
        side_effect=importlib.metadata.PackageNotFoundError,
    ), self.assertRaisesRegex(
        digits_data.DataFileError, r'mlxtend 0\.25\.0, which is not installed'
    ):
      digits_data.load()


class SplitTest(parameterized.TestCase):

  def test_test_set_is_disjoint_balanced_and_repeatable(self):
    train, test = digits_data.train_test_split(digits_data.load())
    np.testing.assert_array_equal(np.bincount(test.labels), [100] * 10)
    np.testing.assert_array_equal(np.bincount(train.labels), [400] * 10)
    self.assertEmpty(set(_identities(train)) & set(_identities(test)))
    _, again = digits_data.train_test_split(digits_data.load())
    np.testing.assert_array_equal(test.images, again.images)

  def test_test_set_does_not_depend_on_clients(self):
    _, one = digits_data.load_clients(40)
    _, other = digits_data.load_clients(400, label_skew=0.5, seed=3)
    np.testing.assert_array_equal(one.images, other.images)

  @parameterized.product(
      num_clients=(1, 7, 80), label_skew=(0.0, 0.4, 1.0), seed=(0, 1)
  )
  def test_every_digit_goes_to_exactly_one_client(
      self, num_clients, label_skew, seed
  ):
    digits = _fake_digits()
    dealt = digits_data.deal_to_clients(
        digits, num_clients, label_skew=label_skew, seed=seed
    )
    self.assertLen(dealt, num_clients)
    sizes = [len(hand) for hand in dealt.values()]
    self.assertLessEqual(max(sizes) - min(sizes), 1)
    rows = np.concatenate([hand.images[:, 0, 0] for hand in dealt.values()])
    np.testing.assert_array_equal(np.sort(rows), np.arange(80))
    # Labels travel with their images.
    labels = np.concatenate([hand.labels for hand in dealt.values()])
    np.testing.assert_array_equal(labels, digits.labels[rows])

  def test_seed_decides_the_dealing(self):
    digits = _fake_digits()
    rows = lambda seed: np.concatenate([
        hand.images[:, 0, 0]
        for hand in digits_data.deal_to_clients(digits, 10, seed=seed).values()
    ])
    np.testing.assert_array_equal(rows(4), rows(4))
    self.assertFalse(np.array_equal(rows(4), rows(5)))

  def test_label_skew_narrows_clients_and_ids_stay_unsorted(self):
    digits = _fake_digits()
    classes = []
    for skew in (0.0, 0.5, 1.0):
      dealt = digits_data.deal_to_clients(digits, 10, label_skew=skew)
      classes.append(
          np.mean([len(np.unique(hand.labels)) for hand in dealt.values()])
      )
    self.assertGreater(classes[0], classes[1])
    self.assertGreater(classes[1], classes[2])
    self.assertEqual(classes[2], 1)
    labels = [hand.labels[0] for hand in dealt.values()]
    self.assertNotEqual(labels, sorted(labels))

  @parameterized.named_parameters(
      ('no_clients', dict(num_clients=0), 'num_clients=0.*from 1 to 4000'),
      ('too_many', dict(num_clients=4001), 'num_clients=4001.*from 1 to 4000'),
      (
          'skew',
          dict(num_clients=9, label_skew=1.5),
          'label_skew=1.5.*from 0 to 1',
      ),
      ('seed', dict(num_clients=9, seed=-1), 'seed=-1.*at least 0'),
      (
          'batch',
          dict(num_clients=9, client_batch_size=0),
          'client_batch_size=0.*at least 1',
      ),
      (
          'epochs',
          dict(num_clients=9, client_epochs_per_round=0),
          'client_epochs_per_round=0.*at least 1',
      ),
  )
  def test_bad_arguments_are_named(self, arguments, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      digits_data.load_clients(**arguments)


class DatasetTest(absltest.TestCase):

  def test_client_dataset(self):
    clients, test = digits_data.load_clients(
        1000, client_batch_size=3, client_epochs_per_round=2
    )
    self.assertLen(clients.client_ids, 1000)
    client_id = clients.client_ids[17]
    held = clients.digits_of_client(client_id)
    self.assertLen(held, 4)
    dataset = clients.create_tf_dataset_for_client(client_id)
    self.assertEqual(dataset.element_spec, clients.element_type_structure)
    batches = list(dataset.as_numpy_iterator())
    self.assertEqual([len(batch['y']) for batch in batches], [3, 1, 3, 1])
    x = np.concatenate([batch['x'] for batch in batches[:2]])
    self.assertEqual(x.dtype, np.float32)
    np.testing.assert_allclose(x[..., 0] * 255, held.images, atol=1e-4)
    self.assertBetween(test.arrays()['x'].max(), 0.99, 1.0)

  def test_unknown_client(self):
    clients, _ = digits_data.load_clients(10)
    with self.assertRaises(KeyError):
      clients.create_tf_dataset_for_client('client_99')


if __name__ == '__main__':
  absltest.main()
