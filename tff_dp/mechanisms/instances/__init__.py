# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pools of model instances: how reports change them, and spam filters."""
