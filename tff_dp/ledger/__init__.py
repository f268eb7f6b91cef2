# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ledgers of a run: the cost of its rounds, and who took part in them."""
