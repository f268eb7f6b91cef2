# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Statements without the points of curves, for tests of what else they say."""

from unittest import mock

from tff_dp.accounting.curves import guesses
from tff_dp.plans import base


def spare(test) -> None:
  """Spares the statements of a test thirty epsilons at deltas of their own.

  `tests/statement` compares them, for plans of every kind.

  Args:
    test: Test case. Curves are back when it ends.
  """
  test.enterContext(mock.patch.object(guesses, 'searched', return_value=[]))
  test.enterContext(mock.patch.object(base.Plan, 'curve_deltas', ()))
