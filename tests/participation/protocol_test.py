# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every protocol takes noise in one place, and refuses it in the other."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting

from tff_dp import _checks
from tff_dp import allocation
from tff_dp import check_ins
from tff_dp.mechanisms import randomizers
from tff_dp.participation import protocol as protocol_lib

_SPHERE = randomizers.Sphere(1.0, 0.5)
_ALLOCATION = allocation.RandomAllocation(5)
_LOCAL = (
    check_ins.FixedWindowCheckIn(5, 0.3),
    check_ins.SlidingWindowCheckIn(10, 4),
    check_ins.AveragedCheckIn(5, 10),
    check_ins.ShuffledCheckIn(5, 0.1, 10),
)


def _central(protocol, noise_multiplier=2.0, l2_norm_clip=0.5):
  return allocation.AllocationPlan(
      protocol, noise_multiplier=noise_multiplier, l2_norm_clip=l2_norm_clip
  )


class PlaceOfNoiseTest(parameterized.TestCase):

  def test_event_is_that_of_the_noise_on_a_sum(self):
    self.assertEqual(
        _central(_ALLOCATION).report_event, dp_accounting.GaussianDpEvent(2.0)
    )

  @parameterized.parameters(
      (0.0, 1.0, 'noise_multiplier=0.0'),
      (math.nan, 1.0, 'noise_multiplier=nan'),
      (1.0, 0.0, 'l2_norm_clip=0.0'),
      (1.0, math.nan, 'l2_norm_clip=nan'),
  )
  def test_bad_number_is_named(self, noise_multiplier, clip, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      _central(_ALLOCATION, noise_multiplier, clip)

  def test_each_takes_its_own(self):
    self.assertFalse(_central(_ALLOCATION).is_local)
    for protocol in _LOCAL:
      self.assertTrue(check_ins.CheckInPlan(protocol, _SPHERE).is_local)

  @parameterized.parameters(*_LOCAL)
  def test_noise_at_the_server_is_refused(self, protocol):
    why = 'who else came' if protocol.has_one_winner else 'before they are seen'
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError,
        f'(?s){protocol.name} is not defined .*{why}',
    ):
      _central(protocol)

  def test_noise_at_the_clients_is_refused(self):
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, '(?s)with a local randomizer.*one Gaussian'
    ):
      check_ins.CheckInPlan(_ALLOCATION, _SPHERE)

  @parameterized.parameters(_ALLOCATION, _LOCAL[0])
  def test_what_is_no_noise_is_named(self, protocol):
    with self.assertRaisesRegex(_checks.ArgumentError, 'randomizer=1.0'):
      check_ins.CheckInPlan(protocol, 1.0)

  def test_what_is_no_protocol_is_named(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'protocol=5'):
      _central(5)

  def test_a_description_of_another_system_is_refused(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'RandomAllocation'):
      protocol_lib.from_description(
          _ALLOCATION.describe(), (check_ins.ShuffledCheckIn,)
      )

  def test_a_description_without_a_name_is_refused(self):
    described = _ALLOCATION.describe()
    del described['name']
    with self.assertRaisesRegex(_checks.ArgumentError, 'protocol=None'):
      protocol_lib.from_description(described, (type(_ALLOCATION),))


if __name__ == '__main__':
  absltest.main()
