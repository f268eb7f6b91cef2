# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Contexts that run TFF computations and own the processes they start."""

from tff_dp import _compat

_compat.require_tff()

# pylint: disable=g-import-not-at-top,g-importing-member,wrong-import-position
from tff_dp import _lazy
from tff_dp.execution import devices
from tff_dp.execution.contexts import create_native_context
from tff_dp.execution.contexts import set_default_context
from tff_dp.execution.errors import ClientComputationError
from tff_dp.execution.errors import ComputationError
from tff_dp.execution.in_process import create_async_in_process_context
from tff_dp.execution.in_process import create_sync_in_process_context

# Early, because the number is fixed once TensorFlow has computed anything.
devices.allow_waiting_threads()

__all__ = (
    'devices',
    'create_native_context',
    'set_default_context',
    'ClientComputationError',
    'ComputationError',
    'create_async_in_process_context',
    'create_sync_in_process_context',
)
__getattr__ = _lazy.moved(__name__)
