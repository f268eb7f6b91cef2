# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draw and Discard: k models, one of which is drawn and one overwritten."""

# pylint: disable=g-importing-member
from tff_dp.learning.draw_and_discard.pool import Pool
from tff_dp.learning.draw_and_discard.process import build_draw_and_discard
from tff_dp.learning.draw_and_discard.process import DrawAndDiscardProcess
from tff_dp.mechanisms.instances.strategies import NAMES as STRATEGIES
