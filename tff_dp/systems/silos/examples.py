# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Examples of silos for `tff-dp --help`, in a module without imports."""

# Name of a command, or '' for `tff-dp --help` -> an example.
EXAMPLES = {
    '': """\
  tff-dp statement isrl --records 1238 --rounds 35 --batch-size 100 \\
      --noise-multiplier 4.2
""",
    'account': """\
  a silo:
    tff-dp account isrl --help
""",
}
