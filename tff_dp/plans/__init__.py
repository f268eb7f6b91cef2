# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans: who takes part, what noise is added, how both are accounted."""
