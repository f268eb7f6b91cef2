# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clients on many machines: one run on Ray, Dask or another engine."""

# pylint: disable=g-importing-member
from tff_dp import _lazy
from tff_dp.execution.cluster.context import create_cluster_context

__all__ = ('create_cluster_context',)
__getattr__ = _lazy.moved(__name__)
