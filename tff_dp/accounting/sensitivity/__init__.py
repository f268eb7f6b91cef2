# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Patterns of participation, and the squared sensitivity under them."""
