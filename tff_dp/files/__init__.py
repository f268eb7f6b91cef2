# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files below every system: the directory of a run and what is begun in it."""
