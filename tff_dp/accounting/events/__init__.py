# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Events: what a run, a report or a message releases, as `DpEvent`s."""
