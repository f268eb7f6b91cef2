# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The privacy statement, and how it is written as JSON, Markdown and HTML."""
