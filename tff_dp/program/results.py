# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The result of a run, with its text and its display in a notebook."""

from collections.abc import Sequence
import dataclasses
import html
import pathlib
from typing import Any

from tff_dp.accounting import rounding
from tff_dp.statement import plain_words
from tff_dp.statement import report
from tff_dp.statement import statement as statement_lib

COMPLETED = 'completed'
BUDGET = 'budget'


@dataclasses.dataclass(frozen=True)
class TrainResult:
  """The results of a run.

  Attributes:
    model_weights: The last model, as `process.get_model_weights` returns it.
    metrics: One dict per round with the key `round` and all metrics that are
      public, or covered by the guarantee. Metrics of the evaluation are in the
      rounds that had one. The dicts are read from the file of the run.
    statement: The `PrivacyStatement` of the rounds that have begun.
    epsilon: Epsilon of the rounds that have begun, at `delta`, for the unit and
      neighbouring relation of the plan.
    delta: Delta of the call.
    rounds_done: Number of complete rounds.
    stop_reason: 'completed', or 'budget' if the next round was refused.
    message: The refusal of the next round in words, or an empty string.
    output_dir: Directory of all files.
    averaged_model_weights: The average of the models, `None` if the process
      keeps none.
    evaluated: Names of the evaluation's metrics.
    course: The released metrics as the report shows them. `None` if unknown.
  """

  model_weights: Any
  metrics: Sequence[dict[str, float]]
  statement: statement_lib.PrivacyStatement
  epsilon: float
  delta: float
  rounds_done: int
  stop_reason: str
  message: str
  output_dir: pathlib.Path
  averaged_model_weights: Any = None
  evaluated: tuple[str, ...] = ()
  course: report.Course | None = None

  def __repr__(self) -> str:
    # The arrays of the model would fill the screen.
    return f'<TrainResult: {"; ".join(self._said())}>'

  def _repr_markdown_(self) -> str:
    """Returns Markdown that a notebook shows."""
    lines = [f'- {sentence}' for sentence in self._said()]
    plain = plain_words.paragraph(self.statement.to_json())
    return '\n'.join(['**Training result**', '', *lines, '', plain])

  def _repr_html_(self) -> str:
    """Returns the report, which a notebook shows."""
    said = ''.join(f'<li>{html.escape(each)}</li>' for each in self._said())
    shown = report.fragment(self.statement, self.course)
    return f'<ul>{said}</ul>{shown}'

  def _said(self) -> list[str]:
    """Returns phrases about everything but the model."""
    spent = 'NO PRIVACY'
    if not plain_words.is_void(self.statement.to_json()):
      spent = f'epsilon {rounding.rounded_up(self.epsilon)}'
    groups = self.statement.points['guarantee'].get('groups', ())
    latest = {}
    for row in self.metrics:
      latest |= {name: row[name] for name in self.evaluated if name in row}
    return [
        f'{spent} at delta {rounding.short(self.delta)} after'
        f' {self.rounds_done} rounds ({self.stop_reason})',
        *(
            f'{row["name"]}: epsilon {rounding.rounded_up(row["epsilon"])} at'
            f' delta {rounding.short(row["delta"])}'
            for row in groups
            if row['epsilon'] != 'inf'
        ),
        *filter(None, [self.message]),
        *(f'{name} {value:.4g}' for name, value in latest.items()),
        f'written to {self.output_dir}',
    ]
