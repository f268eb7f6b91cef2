# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""From a computation to the functions of its stages, passes and chunks."""
