# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The files of a run: what is kept, and in which order it is written."""
