# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Bundles: runs in a form for production stacks, which anybody can check."""

from tff_dp import _compat

_compat.require_tff()

# pylint: disable=g-import-not-at-top,g-importing-member,wrong-import-position
from tff_dp import _lazy
from tff_dp.export.exporting import export_bundle
from tff_dp.export.verification import verify_bundle

__all__ = ('export_bundle', 'verify_bundle')
__getattr__ = _lazy.moved(__name__)
