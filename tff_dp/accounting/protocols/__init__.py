# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""From an event with check-ins, shuffling or silos to a certified epsilon."""
