# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Values between Python, TFF and TensorFlow, and the data of clients."""
