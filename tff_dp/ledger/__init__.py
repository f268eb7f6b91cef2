# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ledgers: what was charged, to whom, and the round that would be too much."""
