# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Examples of allocation for `tff-dp --help`, in a module without imports."""

# Name of a command, or '' for `tff-dp --help` -> an example.
EXAMPLES = {
    'account': """\
  random check-ins at a trusted server:
    tff-dp account random-allocation --population 1000000 --slots 2000 \\
        --noise-multiplier 1 --delta 1e-6
""",
    'calibrate': """\
  the noise of a server at which clients check in at random:
    tff-dp calibrate random-allocation --slots 2000 --epsilon 1 --delta 1e-6
""",
}
