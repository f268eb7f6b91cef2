# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ledgers of a run: charges, who pays them, and the round that is refused."""
