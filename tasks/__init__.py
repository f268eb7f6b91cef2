# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runnable jobs on real data: `python -m tasks train TASK`."""
