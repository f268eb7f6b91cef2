# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the names that tff_dp.accounting exports."""

import importlib

from absl.testing import absltest

from tff_dp import accounting


class PackageTest(absltest.TestCase):

  def test_every_name_is_that_of_its_module(self):
    # pylint: disable-next=protected-access
    for name, home in accounting._HOMES.items():
      with self.subTest(name):
        module = importlib.import_module(f'tff_dp.{home}')
        self.assertIs(getattr(accounting, name), getattr(module, name))
        self.assertIn(name, dir(accounting))

  def test_unknown_name(self):
    with self.assertRaisesRegex(AttributeError, 'get_epsilon'):
      accounting.get_epsilon  # pylint: disable=pointless-statement


if __name__ == '__main__':
  absltest.main()
