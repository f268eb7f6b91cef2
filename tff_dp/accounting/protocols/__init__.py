# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""From the event of a protocol to a certified epsilon."""
