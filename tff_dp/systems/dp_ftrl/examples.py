# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Examples of DP-FTRL for `tff-dp --help`, in a module without imports."""

# Name of a command, or '' for `tff-dp --help` -> an example.
EXAMPLES = {
    '': """\
  tff-dp account dp-ftrl --mechanism honaker --rounds 1600 \\
      --max-participations 1 --noise-multiplier 1.13 --delta 1e-6
  tff-dp calibrate dp-ftrl --mechanism honaker --rounds 1600 \\
      --max-participations 1 --epsilon 8 --delta 1e-6
""",
    'account': """\
  StackOverflow of arXiv:2103.00039, each client once in 1600 rounds:
    tff-dp account dp-ftrl --mechanism honaker --rounds 1600 \\
        --max-participations 1 --noise-multiplier 1.13 --delta 1e-6
""",
    'calibrate': """\
  the noise multiplier for 1600 rounds, each client in one of them:
    tff-dp calibrate dp-ftrl --mechanism honaker --rounds 1600 \\
        --max-participations 1 --epsilon 8 --delta 1e-6
""",
    'statement': """\
  to read before anybody trains:
    tff-dp statement dp-ftrl --mechanism blt --rounds 2000 \\
        --max-participations 6 --min-index-gap 314 --noise-multiplier 4 \\
        --l2-norm-clip 0.5 --clients-per-round 6500 --delta 1e-10
""",
}
