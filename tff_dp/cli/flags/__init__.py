# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The kinds of runs on the command line: flags make a plan.

There is one module for each class of plans, listed in `runs`. It is loaded when
its kind is asked for, and has

    add_arguments(parser, kind, command): flags, description and examples;
    FLAGS: the flag's name by that of an argument of the plan, for errors;
    run_of(arguments): the plan, the delta and the rounds that count;
    calibrated(arguments): the same with the least noise within --epsilon, and
      what was solved for;
    result_of(run, arguments): the headline of the plan and its details;
    and perhaps facts_of(details): what people read of that.
"""
