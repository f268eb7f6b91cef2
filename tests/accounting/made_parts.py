# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts that tests of compositions share."""

from dp_accounting.pld import privacy_loss_distribution

from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import local_profiles


def gaussian(sigma: float, **options) -> composition.Part:
  """Returns a Gaussian mechanism's part, for a sensitivity of 1."""
  return composition.Part(local_profiles.gaussian(2 * sigma), **options)


def subsampled(share: float, sigma: float) -> composition.Part:
  """Returns a part whose directions differ: a Poisson-sampled Gaussian."""
  pld = privacy_loss_distribution.from_gaussian_mechanism(
      sigma, sampling_prob=share, value_discretization_interval=1e-3
  )
  # pylint: disable=protected-access
  return composition.Part(
      composition.profile_of(pld._pmf_remove),
      reverse=composition.profile_of(pld._pmf_add),
  )
