# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The report: a statement as an HTML page, with charts of the run's metrics.

The page is one file. It loads nothing and runs no script. To the content of the
statement it adds only numbers that the run has released (`Course`).
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
import pathlib
from typing import Any, NamedTuple, Optional

from tff_dp import _axes
from tff_dp.accounting import rounding
from tff_dp.statement import charts
from tff_dp.statement import declarations
from tff_dp.statement import outline
from tff_dp.statement import plain_words

_TEMPLATE = 'report.html.jinja2'
_SIZE = (4.2, 2.7)
# Further metrics are only in the table.
_MOST_KINDS = 6
_COIN_FLIP = 0.5
_SIGNAL = 'Signal against noise'


class Band(NamedTuple):
  """A part of the scale of right guesses.

  Attributes:
    name: Level of protection.
    width: Share of the scale, in percent.
  """

  name: str
  width: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Course:
  """The course of a run, as far as it is released.

  Attributes:
    metrics: Column of `metrics.csv` -> values, for metrics of the model.
    epsilons: Epsilon spent so far by round, without infinite ones.
    signal_to_noise: Estimated length of a round's sum before noise, over the
      length of its noise, by round. `None` if it is not released.
    epsilon_budget: Budget of the run, `None` for no budget.
    last_started: Day on which the run was started or resumed, or ''.
  """

  metrics: Mapping[str, charts.Series]
  epsilons: charts.Series
  signal_to_noise: Optional[charts.Series] = None
  epsilon_budget: Optional[float] = None
  last_started: str = ''


def page(statement: Any, course: Optional[Course] = None) -> str:
  """Returns the report as a whole HTML page.

  Args:
    statement: A `PrivacyStatement`.
    course: Course of the run that the statement is about. `None` for a plan, or
      if only the statement is known.

  Raises:
    ImportError: If jinja2 is not installed.
  """
  return _template().render(_context(statement.to_json(), course), is_page=True)


def fragment(statement: Any, course: Optional[Course] = None) -> str:
  """Returns the report as an HTML element, for a notebook. Args: see `page`."""
  return _template().render(_context(statement.to_json(), course), is_page=False)


@functools.cache
def _template():
  try:
    import jinja2  # pylint: disable=g-import-not-at-top
  except ImportError as error:
    raise ImportError(
        'the report needs jinja2, which is not installed: tff-dp doctor'
        ' --install prints the commands that install it'
    ) from error
  environment = jinja2.Environment(
      loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
      autoescape=True,
      undefined=jinja2.StrictUndefined,
      trim_blocks=True,
      lstrip_blocks=True,
  )
  return environment.get_template(_TEMPLATE)


def _context(
    content: Mapping[str, Any], course: Optional[Course]
) -> dict[str, Any]:
  """Returns the values that fill the template."""
  points = content['points']
  is_void = plain_words.is_void(content)
  chance = points['guarantee']['right_guesses']
  groups = points['guarantee'].get('groups', ())
  return {
      'title': _title(points['setting']),
      'facts': _facts(content, course),
      'warnings': content['warnings'],
      'is_void': is_void,
      'level': 'no' if is_void else plain_words.name_of(chance),
      'chance': plain_words.percent(chance),
      'mark': _place(chance),
      'bands': _bands(),
      'condition': not is_void and not plain_words.is_verified(content),
      'sentences': plain_words.sentences(content),
      'promise': outline.promise(content),
      'groups': outline.table(groups) if groups else None,
      'curve': outline.table(points['guarantee']['curve']),
      'curve_chart': _curve_chart(content, bool(groups)),
      'charts': _course_charts(content, course),
      'latest': _latest(course),
      'participation': outline.items(points['unit']),
      'without_chance': _without_chance(points['amplification']),
      'realised': points['implementation']['realised_participation'],
      'trust': content['trust'],
      'adversary': points['setting']['adversary'],
      'assumptions': content['assumptions'],
      'points': outline.points(content),
      'is_table': lambda value: isinstance(value, outline.Table),
      'is_run': course is not None,
      'is_plan': not points['mechanism']['rounds_done'],
      'delta': content['delta'],
      'versions': outline.items(points['accounting']['versions']),
  }


def _title(setting: Mapping[str, Any]) -> str:
  """Returns the heading, with the name of the model if somebody declared it."""
  name = setting.get('model_name', declarations.NOT_DECLARED)
  return 'Privacy report' + ('' if name == declarations.NOT_DECLARED else f': {name}')


def _facts(
    content: Mapping[str, Any], course: Optional[Course]
) -> list[tuple[str, str]]:
  """Returns (label, text) about what was trained and when."""
  points = content['points']
  setting, mechanism = points['setting'], points['mechanism']
  done = mechanism['rounds_done'] or 'none'
  found = [
      (outline.label(name), setting.get(name, declarations.NOT_DECLARED))
      for name in ('model_name', 'data_name', 'responsible')
  ]
  if plain_words.is_void(content):
    found.append(('protects', 'nobody'))
  else:
    found += [
        ('protects', f'each {content["unit"]}'),
        ('kind of privacy', setting['model']),
    ]
  found += [
      ('mechanism', mechanism['name']),
      ('rounds', f'{done} of {mechanism["rounds_planned"]} planned are done'),
  ]
  if course is not None and course.last_started:
    found.append(
        ('when', f'started or last resumed on {course.last_started} (UTC)')
    )
  found.append(('made by', f'tff-dp {points["accounting"]["versions"]["tff-dp"]}'))
  return found


def _place(chance: float) -> float:
  """Returns the place of a chance on the scale: 0 for 50 %, 100 for 100 %."""
  return round(100 * (chance - _COIN_FLIP) / (1 - _COIN_FLIP), 1)


def _bands() -> list[Band]:
  limits = {**plain_words.LEVELS, plain_words.WORST: 1.0}
  found, last = [], 0.0
  for name, limit in limits.items():
    found.append(Band(name, round(_place(limit) - last, 1)))
    last = _place(limit)
  return found


def _chart(
    name: str, description: str, draw: Callable[[Any], None]
) -> str:
  """Returns an SVG that `draw` draws on its axes."""

  def drawn():
    figure, (axes,) = _axes.figure(*_SIZE)
    draw(axes)
    return figure

  return _axes.svg(drawn, name=name, description=description)


def _curve_chart(content: Mapping[str, Any], has_groups: bool) -> str:
  """Returns the chart of epsilon against delta, '' if nothing is guaranteed."""
  points = charts.curve_points(content)
  if plain_words.is_void(content) or not points:
    return ''
  return _chart(
      'curve',
      'Epsilon against delta, as in the table',
      lambda axes: charts.draw_curve(
          # Groups have deltas of their own.
          axes, points, delta=0.0 if has_groups else content['delta']
      ),
  )


def _course_charts(
    content: Mapping[str, Any], course: Optional[Course]
) -> list[tuple[str, str]]:
  """Returns (title, SVG) of the charts over rounds."""
  if course is None:
    return []
  found = {}
  kinds = list(charts.by_kind(course.metrics).items())
  for title, metrics in kinds[:_MOST_KINDS]:
    found[f'{title} over rounds'] = functools.partial(
        charts.draw_metrics, metrics=metrics, label=title.lower()
    )
  if course.epsilons.rounds and not plain_words.is_void(content):
    found['Budget spent over rounds'] = functools.partial(
        charts.draw_spent,
        epsilons=course.epsilons,
        delta=content['delta'],
        budget=course.epsilon_budget,
        whose=whose(content),
    )
  if course.signal_to_noise is not None and not plain_words.is_void(content):
    found[_SIGNAL] = functools.partial(
        charts.draw_metrics,
        metrics={_SIGNAL: course.signal_to_noise},
        label='signal / noise (lengths)',
    )
  return [
      (title, _chart(f'chart-{number}', title, draw))
      for number, (title, draw) in enumerate(found.items())
  ]


def _without_chance(amplification: Mapping[str, Any]) -> Optional[str]:
  """Returns epsilon without amplification as text.

  `None` if no amplification is claimed.
  """
  if amplification['claimed'] == 'none':
    return None
  epsilon = rounding.from_json_number(amplification['epsilon_without'])
  return rounding.rounded_up(epsilon)


def whose(content: Mapping[str, Any]) -> str:
  """Returns a phrase for whom epsilon protects: 'per client, zero-out'."""
  if content['points']['guarantee'].get('groups'):
    return 'of the group that pays most'
  relation = content['neighboring_relation'].replace('_', '-')
  return f'per {content["unit"]}, {relation}'


def _latest(course: Optional[Course]) -> Optional[outline.Table]:
  """Returns the last value of each metric, `None` without metrics."""
  if course is None or not course.metrics:
    return None
  return outline.Table(
      ('metric', 'last value', 'in round'),
      tuple(
          (charts.words(column), f'{series.values[-1]:.4g}', str(series.rounds[-1]))
          for column, series in course.metrics.items()
      ),
  )
