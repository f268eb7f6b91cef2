# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Examples of draw and discard for `tff-dp --help`. This imports nothing."""

# Name of a command, or '' for `tff-dp --help` -> an example.
EXAMPLES = {
    'account': """\
  clients that send back noised models:
    tff-dp account draw-and-discard --help
""",
    'calibrate': """\
  the epsilon of one report, for three reports of every client:
    tff-dp calibrate draw-and-discard --parameters 33 --instances 20 \\
        --max-participations 3 --clip l1 --epsilon 4 --delta 1e-6
""",
}
