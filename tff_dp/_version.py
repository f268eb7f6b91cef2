# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The version, in a module that imports nothing, because setup.py reads it."""

__version__ = '0.1.0'
