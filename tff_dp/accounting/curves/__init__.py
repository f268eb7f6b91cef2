# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Privacy curves: delta as a function of epsilon, for one release or many."""
