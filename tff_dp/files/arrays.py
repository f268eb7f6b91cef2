# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads arrays from files, and from bytes that somebody else has sent.

Arrays take no more memory than the bytes that are read: every stated size is
compared with the bytes before an array is made. `np.load` trusts the stated
sizes, and unpacks compressed data.
"""

from collections.abc import Iterator, Mapping
import contextlib
import io
import math
import os
from typing import Any, IO, BinaryIO
import zipfile

import numpy as np

from tff_dp import _checks
from tff_dp.files import regular

# Longest part of an inner error's message.
_LONGEST = 300
_SUFFIX = '.npy'
_KINDS = 'biufc'
_HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read(
    path: str | os.PathLike, *, like: Mapping[str, Any] | None = None
) -> dict[str, np.ndarray]:
  """Returns the arrays in a file of `np.savez` by name, in the file's order.

  Args:
    path: The file.
    like: Arrays by name. The file must have the same names, shapes and types.
      Default: it may have any.

  Raises:
    OSError: If the file is not regular or cannot be opened. The message names
      it.
    ValueError: If the file is not one that `np.savez` writes, uncompressed and
      with numbers or bools only, or does not match `like`. The message names
      the file.
  """
  with open(regular.open_file(path), 'rb') as file:
    with _refusing(f'{os.fspath(path)} is no file of np.savez'):
      found = _read(file)
      if like is not None:
        check_like(found, like)
      return found


def from_npy(data: bytes) -> np.ndarray:
  """Returns the array in the bytes of `np.save`.

  Raises:
    ValueError: If the bytes are not an array of numbers or bools, or if their
      length differs from the stated one.
  """
  with _refusing('no array of np.save'):
    return _array(io.BytesIO(data), len(data))


def check_like(found: Mapping[str, Any], like: Mapping[str, Any]) -> None:
  """Raises `ValueError` unless names, shapes and types match `like`."""
  found, expected = (
      {k: (np.asarray(v).dtype.str, np.shape(v)) for k, v in each.items()}
      for each in (found, like)
  )
  for name in {**expected, **found}:
    one, other = found.get(name), expected.get(name)
    if one != other:
      raise ValueError(f'{name!r} is {_said(one)}, expected {_said(other)}')


def _said(type_and_shape: tuple[str, tuple[int, ...]] | None) -> str:
  if type_and_shape is None:
    return 'absent'
  return '{} of shape {}'.format(*type_and_shape)


@contextlib.contextmanager
def _refusing(what: str) -> Iterator[None]:
  """Turns any error that a parser raises for foreign bytes into a `ValueError`.
  """
  try:
    yield
  except Exception as error:  # pylint: disable=broad-except
    said = _checks.printable(f'{type(error).__name__}: {error}')
    raise ValueError(f'{what} ({said[:_LONGEST]})') from error


def _read(file: BinaryIO) -> dict[str, np.ndarray]:
  arrays = {}
  with zipfile.ZipFile(file) as content:
    members = content.infolist()
    # Then all arrays together are no larger than the file.
    size = os.fstat(file.fileno()).st_size
    if sum(member.file_size for member in members) > size:
      raise ValueError('its parts are larger than the file')
    for member in members:
      name = member.filename.removesuffix(_SUFFIX)
      if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f'{name!r} is compressed')
      if name in arrays or name == member.filename:
        raise ValueError(f'{member.filename!r} is no array, or there twice')
      with content.open(member) as part:
        arrays[name] = _array(part, member.file_size)
  return arrays


def _array(file: IO[bytes], size: int) -> np.ndarray:
  """Returns the array that makes up a file of `size` bytes."""
  version = np.lib.format.read_magic(file)
  if version not in _HEADER_READERS:
    raise ValueError(f'unknown format {version}')
  shape, is_fortran, dtype = _HEADER_READERS[version](file)
  if dtype.kind not in _KINDS or any(length < 0 for length in shape):
    raise ValueError(f'not an array of numbers: {dtype} of shape {shape}')
  length = math.prod(shape) * dtype.itemsize
  if file.tell() + length != size:
    raise ValueError(f'{dtype} of shape {shape} does not fill {size} bytes')
  # Made of mutable bytes, so that the array is writable.
  return np.ndarray(
      shape,
      dtype,
      bytearray(file.read(length)),
      order='F' if is_fortran else 'C',
  )
