# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Federated EMNIST: handwritten letters and digits by writer."""
