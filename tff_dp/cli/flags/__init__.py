# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The kinds of runs on the command line: flags make a plan.

There is one module for each class of plans, listed in `cli.main.KINDS`. It is
loaded when its kind is asked for, and has

    add_arguments(parser, kind, command): adds flags, description and examples.
    FLAGS: maps an argument of the plan to its flag, for errors.
    run_of(arguments): the plan, the delta and the rounds that count.
    calibrated(arguments): the same with the least noise within --epsilon, and
      the solution.
    result_of(run, arguments): the headline of the plan and its details.
    facts_of(details): the details as text. Optional.
"""
