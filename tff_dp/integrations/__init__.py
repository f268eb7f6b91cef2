# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Servers of other stacks that follow a plan, without TensorFlow."""

from tff_dp import _lazy

__getattr__ = _lazy.moved(__name__)
