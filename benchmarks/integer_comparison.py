# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Noise and message size of integer sums, at equal epsilon, side by side.

In the units of the clip norm C, on a coordinate of the mean over all records of
a round. The yardsticks are a trusted server, which would add one Gaussian to
the exact sum, and silos that trust nobody (ISRL-DP), of which each adds all the
noise that its own records need.
"""

from collections.abc import Sequence
import dataclasses
import math
from typing import Any

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import gaussian
from tff_dp.systems.silos import integer_plans

CENTRAL, ALONE = 'central-gaussian', 'gaussian-in-every-silo'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """One kind of noise.

  Attributes:
    noise: Its name.
    grid: h; `None` for noise of real numbers.
    stddev: Of noise and rounding together, over C; upper bound.
    of_central: `stddev` over that of the trusted server.
    epsilon: What the noise costs. Upper bound.
    silo_epsilon: What a silo's own share gives alone. Upper bound.
    bits: Of a coordinate of the sum; `None` for noise of real numbers.
  """

  noise: str
  grid: int | None
  stddev: float
  of_central: float
  epsilon: float
  silo_epsilon: float
  bits: int | None

  def to_json(self) -> dict[str, Any]:
    """Returns JSON types."""
    described = dataclasses.asdict(self)
    for name in ('epsilon', 'silo_epsilon'):
      described[name] = rounding.to_json_number(described[name])
    return described


def compare(
    *,
    epsilon: float,
    delta: float,
    dimension: int,
    num_silos: int,
    records_per_silo: int,
    grids: Sequence[int] = (16, 64, 256),
    noises: Sequence[str] = integer_plans.NOISES,
) -> list[Row]:
  """Returns the yardsticks, and every noise on every grid.

  Args:
    epsilon: Of one sum, above 0.
    delta: In (0, 1).
    dimension: d.
    num_silos: M, all of them promised.
    records_per_silo: K.
    grids: Values of h.
    noises: Of `integer_plans.NOISES`.
  """
  _checks.positive(epsilon=epsilon)
  _checks.in_open(0.0, 1.0, delta=delta)
  _checks.integer_at_least(1, num_silos=num_silos)
  _checks.integer_at_least(1, records_per_silo=records_per_silo)
  count = num_silos * records_per_silo
  # A replaced record moves the sum by at most 2 C.
  multiplier = 2 * gaussian.sigma_for(epsilon=epsilon, delta=delta)
  central = multiplier / count
  alone = multiplier / (records_per_silo * math.sqrt(num_silos))
  rows = [
      Row(
          noise=CENTRAL, grid=None, stddev=central, of_central=1.0,
          epsilon=epsilon, silo_epsilon=math.inf, bits=None,
      ),
      Row(
          noise=ALONE, grid=None, stddev=alone, of_central=alone / central,
          epsilon=gaussian.exact_epsilon(
              sigma=multiplier / 2 * math.sqrt(num_silos), delta=delta
          ),
          silo_epsilon=epsilon, bits=None,
      ),
  ]
  for grid in grids:
    for noise in noises:
      plan = integer_plans.calibrate(
          noise,
          epsilon=epsilon,
          delta=delta,
          dimension=dimension,
          grid=grid,
          records_per_silo=records_per_silo,
          min_silos=num_silos,
      )
      # Rounding adds at most a quarter of a step, squared, for each record.
      variance = plan.noise_variance(1.0, num_silos=num_silos)
      stddev = math.sqrt(variance + (1.0 / grid) ** 2 / count)
      rows.append(
          Row(
              noise=noise,
              grid=grid,
              stddev=stddev,
              of_central=stddev / central,
              epsilon=plan.epsilon(delta, dimension=dimension),
              silo_epsilon=plan.silo_epsilon(delta, dimension=dimension),
              bits=plan.bits(num_silos),
          )
      )
  return rows


def to_text(rows: Sequence[Row]) -> str:
  """Returns the rows as a table for people."""
  up = rounding.rounded_up
  lines = [
      f'{"noise":<24}{"grid":>6}{"stddev/C":>12}{"of central":>12}'
      f'{"epsilon":>10}{"silo alone":>12}{"bits":>6}'
  ]
  for row in rows:
    grid, bits = (
        '-' if value is None else str(value) for value in (row.grid, row.bits)
    )
    lines.append(
        f'{row.noise:<24}{grid:>6}{row.stddev:>12.4g}{row.of_central:>12.4g}'
        f'{up(row.epsilon):>10}{up(row.silo_epsilon):>12}{bits:>6}'
    )
  return '\n'.join(lines)
