# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags of systems that do not have a folder of their own yet."""
