# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""All rows, in the order of the page."""

from tasks.reproduce import check_ins
from tasks.reproduce import dp_ftrl
from tasks.reproduce import draw_and_discard
from tasks.reproduce import isrl
from tasks.reproduce import shuffled

ROWS = (
    *dp_ftrl.ROWS,
    *check_ins.ROWS,
    *shuffled.ROWS,
    *isrl.ROWS,
    *draw_and_discard.ROWS,
)
BY_NAME = {row.name: row for row in ROWS}
