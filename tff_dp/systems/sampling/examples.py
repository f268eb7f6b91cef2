# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Examples of sampling for `tff-dp --help`, in a module without imports."""

# Name of a command, or '' for `tff-dp --help` -> an example.
EXAMPLES = {
    'account': """\
  DP-FedAvg, the expected cohort drawn by secret coins of the server:
    tff-dp account dp-fedavg --population 3400 --clients-per-round 100 \\
        --rounds 200 --noise-multiplier 1 --delta 1e-5
  DP-SGD of one holder:
    tff-dp account dp-sgd --records 60000 --batch-size 250 --epochs 20 \\
        --noise-multiplier 1.1 --delta 1e-5
""",
    'calibrate': """\
  the noise of DP-FedAvg:
    tff-dp calibrate dp-fedavg --population 3400 --clients-per-round 100 \\
        --rounds 200 --epsilon 2 --delta 1e-5
""",
}
