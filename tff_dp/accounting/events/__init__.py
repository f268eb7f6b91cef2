# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Events: the releases of a run, a report or a message, as `DpEvent`s."""
