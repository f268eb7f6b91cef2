# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Tests for the names that tff_dp.accounting exports."""

import importlib

from absl.testing import absltest

from tff_dp import accounting


class PackageTest(absltest.TestCase):

  def test_every_name_is_that_of_its_module(self):
    # pylint: disable-next=protected-access
    for name, home in accounting._HOMES.items():
      with self.subTest(name):
        module = importlib.import_module(f'tff_dp.accounting.{home}')
        self.assertIs(getattr(accounting, name), getattr(module, name))
        self.assertIn(name, dir(accounting))

  def test_unknown_name(self):
    with self.assertRaisesRegex(AttributeError, 'get_epsilon'):
      accounting.get_epsilon  # pylint: disable=pointless-statement


if __name__ == '__main__':
  absltest.main()
