# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The privacy loss of a silo's records through the silo's messages."""
