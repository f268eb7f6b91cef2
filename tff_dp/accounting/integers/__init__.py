# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Private sums of integers: noise distributions and the plans of silos."""
