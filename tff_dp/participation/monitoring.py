# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The observed rate of reports, compared with the assumed rate.

Reports are counted only if the adversary of the protocol is assumed to know
their number anyway. If that number must stay secret, nothing is counted.
"""

import dataclasses
from typing import NamedTuple

from scipy import stats

from tff_dp import _checks
from tff_dp.participation import protocol as protocol_lib

# The interval holds in all rounds at once except with this probability.
ERROR_PROBABILITY = 1e-3


class RealisedRate(NamedTuple):
  """The estimate of the rate of reports after some rounds.

  Attributes:
    rate: Number of reports, divided by rounds times clients.
    low: Lower end of the Clopper-Pearson interval.
    high: Upper end of the Clopper-Pearson interval.
  """

  rate: float
  low: float
  high: float


@dataclasses.dataclass(frozen=True)
class Observed:
  """The public facts about who came in a run.

  If the protocol keeps secret how many clients come, the number of rounds is
  the only fact.

  Attributes:
    num_rounds: Number of rounds that have begun.
    rounds_counted: Number of those rounds whose reports were counted.
    num_reports: Number of reports in the counted rounds. `None` if it is secret
      or no round was counted.
    rate: Estimated rate of reports. `None` if no round was counted, or if the
      protocol has no `expected_rate`.
    warning: Sentence about an assumption that is in doubt. `None` if no
      assumption is in doubt, or if there is no `rate`.
  """

  num_rounds: int
  rounds_counted: int = 0
  num_reports: int | None = None
  rate: RealisedRate | None = None
  warning: str | None = None

  @property
  def sentence(self) -> str:
    """Sentence about the reports for a privacy statement."""
    if not self.num_rounds:
      return 'no round yet'
    rounds = f'{self.rounds_counted} rounds'
    if self.num_reports is not None:
      text = f'{self.num_reports} reports in {rounds}'
      if self.rate is not None:
        text += (
            f', a rate of {self.rate.rate:.6g} (Clopper-Pearson:'
            f' {self.rate.low:.6g} to {self.rate.high:.6g}, false with'
            f' probability {ERROR_PROBABILITY:g} in any round)'
        )
      return text
    return (
        f'{self.num_rounds} rounds; how many clients checked in is secret, and'
        ' is not recorded'
    )


def realised_rate(
    num_reports: int, *, num_rounds: int, num_clients: int
) -> RealisedRate:
  """Returns the rate of all rounds so far with its Clopper-Pearson interval.

  After round t the interval fails with probability at most
  `ERROR_PROBABILITY / (t (t + 1))`, which sums to `ERROR_PROBABILITY`. So an
  observer who looks after every round is misled with at most that probability.
  Exact for independent coins.

  Args:
    num_reports: Number of reports k_1 + ... + k_t.
    num_rounds: Number of rounds t, at least 1.
    num_clients: Public number of clients n.
  """
  _checks.integer_at_least(1, num_rounds=num_rounds)
  _checks.integer_at_least(1, num_clients=num_clients)
  trials = num_rounds * num_clients
  _checks.integer_between(0, trials, num_reports=num_reports)
  error = ERROR_PROBABILITY / (num_rounds * (num_rounds + 1))
  low, high = 0.0, 1.0
  if num_reports > 0:
    low = stats.beta.ppf(error / 2, num_reports, trials - num_reports + 1)
  if num_reports < trials:
    high = stats.beta.isf(error / 2, num_reports + 1, trials - num_reports)
  return RealisedRate(num_reports / trials, float(low), float(high))


def warning(
    protocol: protocol_lib.Protocol, found: RealisedRate
) -> str | None:
  """Returns a warning about the assumed rate, `None` if it is plausible.

  Args:
    protocol: Protocol with an `expected_rate`.
    found: Result of `realised_rate`.
  """
  assumed = protocol.expected_rate
  if found.low <= assumed <= found.high:
    return None
  what = (
      f'ASSUMPTION IN DOUBT: reports come at the rate {found.rate:.6g}, and'
      f' {found.low:.6g} to {found.high:.6g} can be explained by chance, but'
      f' {assumed:.6g} was assumed'
  )
  if found.rate > assumed:
    return (
        f'{what}. If clients check in more often than assumed, epsilon is'
        ' larger than stated'
    )
  return (
      f'{what}. If clients are missing, the crowd may be smaller than'
      f' min_num_clients={protocol.min_num_clients}, and epsilon larger than'
      ' stated'
  )
