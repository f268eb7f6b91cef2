# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares the statement of a bundle with one that the plan makes anew.

All words and numbers must be those of the plan, with three exceptions:

* the values of `Declarations`, which may be any line of printable text,
* the versions of the software,
* the facts of the run: who took part, how the process was checked, and which
  server asked the clients. The numbers in them may be any that the plan allows.
  The words around the numbers are known.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import math
import re
import secrets
from typing import Any

from tff_dp import _checks
from tff_dp import systems
from tff_dp.integrations import server_rounds
from tff_dp.ledger import participation_ledger
from tff_dp.participation import monitoring
from tff_dp.program import loop
from tff_dp.statement import builder
from tff_dp.statement import declarations
from tff_dp.statement import plain_words

# Relative tolerance of epsilon: its search ends at a slightly different value
# with other versions of NumPy.
TOLERANCE = 1e-6
# Chance -> its value if nothing is released. A search for the best point of a
# curve may end elsewhere, so what lies above has a larger tolerance.
_CHANCES = {
    'right_guesses': 0.5, 'right_guesses_without': 0.5, 'true_positives': 0.0
}
_CHANCE_TOLERANCE, _LEAST_CHANCE = 1e-3, 1e-9
# Tables of integer noise differ in their last digits, where SciPy differs.
_TAILS = 'delta_of_tails'
_KNOWN_KEY = 'epsilon_if_key_were_secret'
_LEVEL = ('points', 'guarantee', 'level')
_VERSIONS = ('points', 'accounting', 'versions')
_VERSION = re.compile(r'[\w.+!-]{1,64}|not installed', re.ASCII)
_STACK = re.compile(r'\w[\w .+-]{0,39}')
_LONGEST_TEXT = 10_000
# How a process was checked, if tff_dp itself did not ask the clients.
_CHECKED = (
    builder.NOT_VERIFIED,
    builder.CERTIFIED,
    loop.CHECKED,
)
# Sentences about who took part, as in `Observed.sentence` and the statements of
# DP-FTRL and of draw and discard.
_CLIENTS = re.compile(
    r'(\d+) clients in \d+ rounds, at most (\d+) times each, (?:none twice|'
    r'index gap at least (\d+) .*)'
)
_REPORTING = re.compile(
    r'(\d+) clients took part, none more than (\d+) participations?, .*'
)
_COHORTS = re.compile(r'(\d+) to (\d+) clients selected per round, .*')
_NUMBER = r'([\d.e+-]+)'
_REPORTS = re.compile(
    rf'(\d+) reports in (\d+) rounds(?:, a rate of {_NUMBER} \(Clopper-Pearson:'
    rf' {_NUMBER} to {_NUMBER}, .*\))?'
)
_POPULATION = re.compile(r'(\d{1,18}) clients, .*')


class Wrong(Exception):
  """Raised if a bundle contradicts its claims. The message says where."""


def check(content: Mapping[str, Any], described) -> None:
  """Raises unless a statement says what its plan says, and nothing else.

  Args:
    content: JSON of a complete statement.
    described: Run that the events describe.

  Raises:
    Wrong: If a value differs, is missing, or is one that no statement has.
    ArgumentError: If the observed rounds break the plan.
  """
  # Nobody can guess it, so no text of a plan has it.
  free = secrets.token_hex(16)
  planned = dict(_leaves(_anew(content['points'], described, free)))
  stated = dict(_leaves(content))
  for path in {**planned, **stated}:
    one, other = stated.get(path), planned.get(path)
    if path[:3] == _VERSIONS and other is not None:
      is_same = isinstance(one, str) and _VERSION.fullmatch(one)
    elif path == _LEVEL:
      other = plain_words.level(content['points']['guarantee']['right_guesses'])
      is_same = one == other
    elif isinstance(other, str) and free in other:
      is_same = _is_declared(one, other, free)
      other = other.replace(free, '(one line of text)')
    else:
      is_same = _is_near(path, one, other, described.delta)
    if not is_same:
      raise Wrong(
          f'the statement says {_named(path)}={_checks.shown(one)}, and the'
          f' plan gives {_checks.shown(other)}'
      )


def _named(path: tuple) -> str:
  return '.'.join(map(str, path)).removeprefix('points.')


def _anew(points: Mapping[str, Any], described, free: str) -> dict[str, Any]:
  """Returns the JSON of the statement that the plan makes.

  Args:
    points: Points of the stated statement. Facts of the run are taken from it.
    described: Run that the events describe.
    free: Text that stands for whatever is declared.
  """
  plan, process = described.plan, points['implementation']['process']
  own = {}
  if process == server_rounds.PROCESS:
    own = _of_server(plan, points['setting']['adversary'], free)
  elif process not in _CHECKED:
    raise Wrong(
        'the statement says implementation.process='
        f'{_checks.shown(process)}, which no run says'
    )
  # A statement before round 1 is about all planned rounds.
  done = described.num_rounds if points['mechanism']['rounds_done'] else 0
  population = _POPULATION.fullmatch(str(points['mechanism']['population']))
  declared = declarations.Declarations(
      population=population and int(population[1]),
      **{
          field.name: free
          for field in dataclasses.fields(declarations.Declarations)
          if field.name != 'population'
      },
  )
  anew = plan.statement_about(
      builder.Occasion(
          delta=described.delta,
          observed=_observed(plan, points, done),
          insecure_seed=_KNOWN_KEY in points['guarantee'],
          declarations=declared,
          process=process,
      )
  ).to_json()
  for path, sentence in own.items():
    point, _, name = path.partition('.')
    anew['points'][point][name] = sentence
  return anew


def _of_server(plan, adversary: str, free: str) -> dict[str, str]:
  """Returns 'point.name' -> sentence of a server on another stack.

  Args:
    plan: Plan of the run.
    adversary: Sentence of the statement that has the name of the stack.
    free: Text that no sentence has.
  """
  cohorts = systems.of(plan.kind).server_cohorts()

  def sentences(stack):
    return builder.sentences(
        server_rounds.SENTENCES + cohorts.sentences.lstrip(),
        trust=plan.trust,
        stack=stack,
    )

  head, _, tail = sentences(free)['setting.adversary'].partition(free)
  stack = adversary[len(head): len(adversary) - len(tail)]
  return sentences(stack if _STACK.fullmatch(stack) else '(a name)')


def _observed(plan, points: Mapping[str, Any], done: int) -> Any:
  """Returns the facts about the rounds that a statement speaks of.

  If its sentences are none that a run writes, they differ from those of the
  result.
  """
  said = points['implementation']
  sentence = str(said['realised_participation'])
  if found := _CLIENTS.fullmatch(sentence):
    num_clients, most, gap = (each and int(each) for each in found.groups())
  elif found := _REPORTING.fullmatch(sentence):
    (num_clients, most), gap = map(int, found.groups()), None
  elif found := _REPORTS.fullmatch(sentence):
    return _reports(plan, done, *found.groups())
  elif sentence == monitoring.Observed(done).sentence:
    return monitoring.Observed(done)
  else:
    return builder.RoundsDone(done)
  smallest, largest = 0, num_clients
  if cohorts := _COHORTS.fullmatch(str(said.get('realised_cohorts'))):
    smallest, largest = map(int, cohorts.groups())
    if not smallest <= largest <= num_clients <= done * largest:
      raise Wrong(
          f'the statement says that {smallest} to {largest} clients a round'
          f' were {num_clients} clients in {done} rounds'
      )
  return participation_ledger.Observed(
      num_rounds=done,
      num_clients=num_clients,
      min_index_gap=gap,
      max_participations=most,
      smallest_cohort=smallest,
      largest_cohort=largest,
  )


def _reports(plan, done, num_reports, counted, *rate) -> monitoring.Observed:
  """Returns the facts about reports, from the numbers in their sentence."""
  if int(counted) > done:
    raise Wrong(f'the statement counts {counted} of {done} rounds')
  found = warning = None
  if all(rate) and plan.protocol.expected_rate is not None:
    found = monitoring.RealisedRate(*map(float, rate))
    warning = monitoring.warning(plan.protocol, found)
  return monitoring.Observed(
      done,
      rounds_counted=int(counted),
      num_reports=int(num_reports),
      rate=found,
      warning=warning,
  )


def _is_declared(stated: Any, planned: str, free: str) -> bool:
  """Returns whether a text is the planned one, with any line for `free`."""
  head, _, tail = planned.partition(free)
  return (
      isinstance(stated, str)
      and stated.isprintable()
      and stated.startswith(head)
      and stated.endswith(tail)
      and len(head) + len(tail) < len(stated) <= _LONGEST_TEXT
  )


def _leaves(value: Any, *path: Any) -> Iterator[tuple[tuple, Any]]:
  """Yields (path, leaf) for all leaves of a JSON value.

  An empty list or mapping is a leaf, too.
  """
  if isinstance(value, dict) and value:
    pairs = value.items()
  elif isinstance(value, list) and value:
    pairs = enumerate(value)
  else:
    yield path, value
    return
  for key, each in pairs:
    yield from _leaves(each, *path, key)


def _is_near(path: tuple, stated: Any, planned: Any, delta: float) -> bool:
  """Returns whether a leaf is the plan's, up to the last digits of a search.

  Args:
    path: Path of the leaf.
    stated: Leaf of the statement, `None` if it has none.
    planned: Leaf of the plan, `None` if it has none.
    delta: Delta of the statement.
  """
  if not (isinstance(stated, float) and isinstance(planned, float)):
    return stated == planned and type(stated) is type(planned)
  if path[-1] in _CHANCES:
    blind = _CHANCES[path[-1]]
    return math.isclose(
        stated - blind,
        planned - blind,
        rel_tol=_CHANCE_TOLERANCE,
        abs_tol=_LEAST_CHANCE,
    )
  if path[-1] == _TAILS:
    return abs(stated - planned) <= TOLERANCE * delta
  return math.isclose(stated, planned, rel_tol=TOLERANCE)
