# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Examples of check-ins for `tff-dp --help`, in a module without imports."""

# Name of a command, or '' for `tff-dp --help` -> an example.
EXAMPLES = {
    '': """\
  tff-dp account shuffled-check-in --population 60000 --check-in-rate 0.1 \\
      --local-epsilon 2 --rounds 6800 --delta 1.6666e-5
""",
    'account': """\
  shuffled check-in with any local randomizer:
    tff-dp account shuffled-check-in --population 60000 --check-in-rate 0.1 \\
        --local-epsilon 2 --rounds 6800 --delta 1.6666e-5
""",
    'statement': """\
  of any randomizer behind a shuffler:
    tff-dp statement shuffled-check-in --population 60000 \\
        --check-in-rate 0.1 --local-epsilon 2 --rounds 100 --delta 1e-6
""",
}
