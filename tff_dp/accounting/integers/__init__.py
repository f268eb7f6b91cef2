# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Private sums of integers: laws of the noise, and plans of silos."""
