# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What check-ins, shuffling and random allocation amplify, one bound a file."""
