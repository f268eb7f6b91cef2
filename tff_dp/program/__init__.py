# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The training program: from a process and a plan to a finished run."""

from tff_dp import _compat

_compat.require_tff()

# pylint: disable=g-import-not-at-top,g-importing-member,wrong-import-position
from tff_dp import _lazy
from tff_dp.program.certification import certify
from tff_dp.program.files.outputs import read_model
from tff_dp.program.loop import Loop
from tff_dp.program.protocol_source import ProtocolSource
from tff_dp.program.training import train

__all__ = ('certify', 'read_model', 'Loop', 'ProtocolSource', 'train')
__getattr__ = _lazy.moved(__name__)
