# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a bound on an event is, and those that most kinds of events have."""

from collections.abc import Callable
import dataclasses

from tff_dp.accounting.curves import composition
from tff_dp.accounting.protocols import local_reports


@dataclasses.dataclass(frozen=True)
class Bound:
  """An upper bound on what `count` equal events cost.

  At least one of `part` and `epsilon` is there. Both may raise
  `NotApplicableError`.

  Attributes:
    name: One of `protocol_bounds.NAMES`.
    source: Paper and theorem, or page of proofs.
    is_derived: Whether it rests on an argument of this project.
    part: Returns what composes with other events.
    epsilon: Returns epsilon at delta if nothing else is released: no larger
      than by `part`, if that is there too.
  """

  name: str
  source: str
  is_derived: bool = False
  part: Callable[[], composition.Part] | None = None
  epsilon: Callable[[float], float] | None = None


def none(report: local_reports.LocalReport, count: int) -> Bound:
  """Returns what holds without the protocol: reports, each seen alone."""
  return Bound(
      'none', 'the local randomizer alone', part=lambda: report.part(count)
  )


def nobody(name: str, source: str, count: int) -> Bound:
  """Returns the bound on a protocol in which nobody takes part."""
  part = lambda: composition.Part(local_reports.nothing, count)
  return Bound(name, source, part=part)
