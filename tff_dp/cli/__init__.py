# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line `tff-dp`: one module per subcommand."""
