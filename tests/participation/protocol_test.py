# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every protocol takes noise in one place, and refuses it in the other."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting

from tff_dp import _checks
from tff_dp import participation
from tff_dp.mechanisms import randomizers
from tff_dp.participation import protocol as protocol_lib

_SPHERE = randomizers.Sphere(1.0, 0.5)
_CENTRAL = protocol_lib.CentralGaussian(2.0, 0.5)
_ALLOCATION = participation.RandomAllocation(5)
_LOCAL = (
    participation.FixedWindowCheckIn(5, 0.3),
    participation.SlidingWindowCheckIn(10, 4),
    participation.AveragedCheckIn(5, 10),
    participation.ShuffledCheckIn(5, 0.1, 10),
)


class CentralGaussianTest(parameterized.TestCase):

  def test_event_and_description(self):
    self.assertEqual(_CENTRAL.event, dp_accounting.GaussianDpEvent(2.0))
    self.assertEqual(
        _CENTRAL.describe(),
        {
            'name': 'central-gaussian',
            'noise_multiplier': 2.0,
            'l2_norm_clip': 0.5,
        },
    )

  @parameterized.parameters(
      (0.0, 1.0, 'noise_multiplier=0.0'),
      (math.nan, 1.0, 'noise_multiplier=nan'),
      (1.0, 0.0, 'l2_norm_clip=0.0'),
      (1.0, math.nan, 'l2_norm_clip=nan'),
  )
  def test_bad_number_is_named(self, noise_multiplier, clip, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      protocol_lib.CentralGaussian(noise_multiplier, clip)


class CheckTest(parameterized.TestCase):

  def test_each_takes_its_own(self):
    protocol_lib.check(_ALLOCATION, _CENTRAL)
    for protocol in _LOCAL:
      protocol_lib.check(protocol, _SPHERE)

  @parameterized.parameters(*_LOCAL)
  def test_noise_at_the_server_is_refused(self, protocol):
    why = 'who else came' if protocol.has_one_winner else 'before they are seen'
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError,
        f'(?s){protocol.name} is not defined .*{why}',
    ):
      protocol_lib.check(protocol, _CENTRAL)

  def test_noise_at_the_clients_is_refused(self):
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, '(?s)with a local randomizer.*one Gaussian'
    ):
      protocol_lib.check(_ALLOCATION, _SPHERE)

  @parameterized.parameters(_ALLOCATION, _LOCAL[0])
  def test_what_is_no_noise_is_named(self, protocol):
    with self.assertRaisesRegex(_checks.ArgumentError, 'randomizer=1.0'):
      protocol_lib.check(protocol, 1.0)


if __name__ == '__main__':
  absltest.main()
