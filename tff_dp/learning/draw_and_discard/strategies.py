# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The strategies of a server, where its process looks for them.

They are defined in a layer that the plan can read without TensorFlow.
"""

# pylint: disable=unused-import,g-importing-member
from tff_dp.mechanisms.instances.strategies import ACCEPT
from tff_dp.mechanisms.instances.strategies import AVERAGE_RANDOM
from tff_dp.mechanisms.instances.strategies import AVERAGE_SAME
from tff_dp.mechanisms.instances.strategies import DRAW_AND_DISCARD
from tff_dp.mechanisms.instances.strategies import NAMES
from tff_dp.mechanisms.instances.strategies import SAME
from tff_dp.mechanisms.instances.strategies import SERVER_BATCH
from tff_dp.mechanisms.instances.strategies import Strategy
from tff_dp.mechanisms.instances.strategies import updates_per_batch
