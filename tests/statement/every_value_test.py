# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every sentence and every number of the statements of all systems.

`statements.json` holds what they said before. A test here computes the numbers
again, from the plan and not from the statement.

  python -m tests.statement.every_value_test --write
"""

import json
import math
import pathlib
import re
import sys
import tempfile

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from tests.statement import occasions
from tff_dp import draws
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import guesses
from tff_dp.integrations import server_rounds
from tff_dp.plans import base
from tff_dp.statement import builder
from tff_dp.statement import declarations
from tff_dp.statement import statement
from tff_dp.systems.silos import integer_noise

_FILE = pathlib.Path(__file__).with_name('statements.json')
_TOLERANCE = 1e-6
_NUMBER = re.compile(r'(?<![A-Za-z\d.])(-?\d+\.?\d*(?:e[-+]?\d+)?)(?![A-Za-z\d])')
_NAMES = ('planned', 'first', 'stopped', 'weak', 'known')
_PLANS = occasions.PLANS | occasions.VARIANTS
_CASES = tuple(
    (f'_{name}_{occasion}', name, occasion)
    for name in _PLANS
    for occasion in (_NAMES if name in occasions.PLANS else _NAMES[:3:2])
)
# Plans whose clients decide themselves.
_PROTOCOL_KINDS = ('allocation', 'check_ins')
_SERVERS = ('honaker', 'sampled')
_MOST_STOPS = 64
_GRID = 1e-3


def _stated(plan, about) -> statement.PrivacyStatement:
  return plan.statement_about(about)


def _of_a_server(name: str) -> statement.PrivacyStatement:
  """Returns what `integrations` says after it has asked the first cohort."""
  with tempfile.TemporaryDirectory() as folder:
    with server_rounds.ServerRounds(
        occasions.PLANS[name](),
        {'w': np.zeros(3)},
        output_dir=pathlib.Path(folder) / 'run',
        delta=occasions.DELTA,
        stack='another stack',
    ) as rounds:
      rounds.select(f'client {i}' for i in range(9))
      return rounds.statement()


def _plain(content):
  """Returns a statement without what depends on the machine."""
  content = json.loads(json.dumps(content))
  del content['points']['accounting']['versions']
  # The plan's own tests make it again from its description.
  del content['plan']
  return content


def _said(stated: statement.PrivacyStatement) -> dict:
  """Returns the leaves of a statement, and the beginning of its page."""
  leaves = _leaves(_plain(stated.to_json()))
  page = stated.to_markdown().split('\n\n## 1. ', 1)[0]
  return leaves | {
      f'/page/{number}': part for number, part in enumerate(page.split('\n\n'))
  }


def _leaves(value, path='') -> dict:
  """Returns path -> leaf of a JSON value. What is empty is a leaf."""
  if not isinstance(value, (dict, list)) or not value:
    return {path: value}
  pairs = value.items() if isinstance(value, dict) else enumerate(value)
  found = {}
  for key, each in pairs:
    found |= _leaves(each, f'{path}/{key}')
  return found


def _differences(old: dict, new: dict) -> dict:
  """Returns path -> (old, new) of leaves that differ by more than rounding."""
  absent = '(absent)'
  pairs = {
      path: (old.get(path, absent), new.get(path, absent))
      for path in {**old, **new}
  }
  return {path: pair for path, pair in pairs.items() if not _is_same(*pair)}


def _changes(old: dict, new: dict) -> dict:
  """Returns path -> new leaf where one differs, `None` where there is none."""
  return {path: new.get(path) for path in _differences(old, new)}


def _expected() -> dict[str, dict]:
  """Returns 'plan occasion' -> leaves, as the file has them.

  The file has the leaves of a plan before round 1. Of the other occasions it
  has the leaves that differ.
  """
  found = {}
  for name, changes in json.loads(_FILE.read_text()).items():
    plan, _, occasion = name.partition(' ')
    leaves = changes
    if occasion != _NAMES[0]:
      leaves = found[f'{plan} {_NAMES[0]}'] | changes
    found[name] = {k: v for k, v in leaves.items() if v is not None}
  return found


def _is_same(old, new) -> bool:
  if type(old) is not type(new):
    return False
  if isinstance(old, float):
    return math.isclose(old, new, rel_tol=_TOLERANCE)
  if not isinstance(old, str):
    return old == new
  old, new = _NUMBER.split(old), _NUMBER.split(new)
  return old[::2] == new[::2] and all(
      math.isclose(float(one), float(other), rel_tol=_TOLERANCE)
      for one, other in zip(old[1::2], new[1::2], strict=True)
  )


@pytest.mark.reference_only(
    reason="the numbers are of column A's SciPy and dp-accounting"
)
class SentencesTest(parameterized.TestCase):

  @parameterized.named_parameters(*_CASES)
  def test_nothing_is_said_otherwise_than_before(self, name, occasion):
    plan = _PLANS[name]()
    about = occasions.occasions(plan)[occasion]
    stated = _said(_stated(plan, about))
    self.assertEmpty(_differences(_expected()[f'{name} {occasion}'], stated))

  @parameterized.parameters(*_SERVERS)
  def test_server_of_another_stack_says_nothing_otherwise(self, name):
    expected = _expected()[f'{name} server']
    self.assertEmpty(_differences(expected, _said(_of_a_server(name))))

  def test_comparison_sees_words_and_numbers(self):
    same = {'a': 1.0, 'b': 'at most 0.5 of', 'c': 3}
    self.assertEmpty(_differences(same, dict(same)))
    for path, value in (
        ('a', 1.00001),
        ('a', 1),
        ('b', 'at most 0.6 of'),
        ('b', 'at least 0.5 of'),
        ('c', 4),
        ('d', 'more'),
    ):
      other = same | {path: value}
      self.assertEqual(list(_differences(same, other)), [path])
      self.assertEqual(list(_differences(other, same)), [path])
    self.assertEqual(
        _leaves({'a': [1, {}], 'b': {'c': 'd'}}),
        {'/a/0': 1, '/a/1': {}, '/b/c': 'd'},
    )


class NumbersTest(parameterized.TestCase):

  @parameterized.named_parameters(*_CASES)
  def test_numbers_are_those_of_the_plan(self, name, occasion):
    plan = _PLANS[name]()
    about = occasions.occasions(plan)[occasion]
    delta = about.delta
    done = 0 if about.observed is None else about.observed.num_rounds
    counted = _counted(plan, done or plan.num_rounds)
    stated = _stated(plan, about)
    headline, points = stated.headline, stated.points
    guarantee = points['guarantee']

    def number(epsilon):
      return 'inf' if about.insecure_seed else rounding.to_json_number(epsilon)

    epsilon = number(_spent(plan, counted, delta))
    unamplified = number(
        plan.epsilon_no_amplification(delta=delta, num_rounds=counted)
    )
    self.assertEqual(
        {name: headline[name] for name in headline if name in _OF_PLAN},
        {
            'kind': plan.kind,
            'schema_version': 2,
            'epsilon': epsilon,
            'delta': delta,
            'epsilon_no_amplification': unamplified,
            'unit': plan.unit,
            'neighboring_relation': plan.neighboring_relation.value,
            'trust': plan.trust,
            'plan': json.loads(json.dumps(plan.describe())),
            'assumptions': list(
                plan.assumptions(delta=delta, num_rounds=counted)
            ),
        },
    )
    planned = number(plan.epsilon(delta=delta))
    for path, value in {
        'setting.trusted': plan.trust,
        'unit.unit': plan.unit,
        'adjacency.relation': plan.neighboring_relation.value,
        'mechanism.rounds_planned': plan.num_rounds,
        'mechanism.rounds_done': done,
        'guarantee.epsilon': epsilon,
        'guarantee.epsilon_planned': planned,
        'guarantee.delta': delta,
        'guarantee.delta_of_tails': (
            draws.missing_delta(float(epsilon))
            if plan.draws_end
            else _missing_in_tables(plan, float(epsilon))
        ),
        'amplification.epsilon_without': unamplified,
        'implementation.process': (
            builder.CERTIFIED if done else builder.NOT_VERIFIED
        ),
    }.items():
      point, _, key = path.partition('.')
      self.assertEqual(points[point][key], value, path)
    self.assertEqual(
        'epsilon_if_key_were_secret' in guarantee, about.insecure_seed
    )
    deltas = sorted({*plan.curve_deltas, delta}, reverse=True)
    self.assertEqual([row['delta'] for row in guarantee['curve']], deltas)
    for row in guarantee['curve']:
      self.assertEqual(
          row['epsilon_planned'], number(plan.epsilon(delta=row['delta']))
      )
      self.assertEqual('epsilon' in row, plan.curve_has_rounds_done)
      if plan.curve_has_rounds_done:
        self.assertEqual(
            row['epsilon'], number(_spent(plan, counted, row['delta']))
        )
    replaced = epsilon
    if plan.neighboring_relation.value != 'replace_one' and not plan.voids:
      replaced = number(
          _spent(plan, counted, delta, neighboring_relation='replace_one')
      )
      if math.isfinite(float(epsilon)):
        self.assertGreater(float(replaced), float(epsilon))
    self.assertEqual(guarantee['epsilon_replace_one'], replaced)
    # Also what a reader of the object gets.
    self.assertEqual(stated.epsilon, float(epsilon))
    self.assertEqual(stated.delta, delta)
    self.assertEqual(stated.kind, plan.kind)
    self.assertEqual(stated.warnings, tuple(headline['warnings']))

  @parameterized.product(name=tuple(occasions.PLANS), occasion=_NAMES[1:])
  def test_declared_facts_are_said_in_their_places(self, name, occasion):
    plan, told = occasions.PLANS[name](), occasions.DECLARED
    stated = _stated(plan, occasions.occasions(plan)[occasion]).points
    for path in (
        'tuning.hyperparameters',
        'tuning.architecture',
        'tuning.early_stopping',
        'public_data.pretraining',
        'public_data.public_data',
        'public_data.preprocessing',
        'not_claimed.audit',
    ):
      point, _, field = path.partition('.')
      self.assertEqual(stated[point][field], getattr(told, field), path)
    self.assertEndsWith(stated['release']['not_covered'], told.not_covered)
    self.assertStartsWith(
        stated['guarantee']['delta_reason'], f'{told.delta_reason}; '
    )
    if plan.unit == 'client':
      self.assertEqual(
          stated['mechanism']['population'],
          '20000 clients, from a public census',
      )
      is_weak = occasion == 'weak'
      self.assertEqual(
          'NOT below' in stated['guarantee']['delta_reason'], is_weak
      )
      self.assertIn('1 / population = 5e-05', stated['guarantee']['delta_reason'])
    else:
      self.assertNotIn('20000', stated['mechanism']['population'])

  @parameterized.parameters(*occasions.PLANS)
  def test_warnings_come_from_plan_and_occasion(self, name):
    plan = occasions.PLANS[name]()
    for occasion, about in occasions.occasions(plan).items():
      stated = _stated(plan, about)
      warnings = list(stated.warnings)
      self.assertStartsWith(
          stated.to_markdown(),
          '\n'.join(
              ['# Privacy statement', '', *(f'**{w}**\n' for w in warnings), 'In']
          ),
      )
      done = 0 if about.observed is None else about.observed.num_rounds
      expected = []
      if about.insecure_seed:
        expected.append('NO PRIVACY: noise and coins follow from a known seed')
      if math.isinf(_spent(plan, _counted(plan, done or plan.num_rounds),
                             about.delta)) and not plan.voids:
        expected.append('NO PRIVACY: no finite epsilon')
      is_void = bool(expected or plan.voids)
      expected += [f'NO PRIVACY: {reason}' for reason in plan.voids]
      if occasion == 'weak' and plan.unit == 'client':
        expected.append('WEAK: delta 5e-05')
      if plan.kind in _PROTOCOL_KINDS:
        expected += plan.certificate(
            delta=about.delta, num_rounds=_counted(plan, done or plan.num_rounds)
        ).warnings
      if getattr(about.observed, 'warning', None):
        expected.append('ASSUMPTION IN DOUBT')
      if about.observed is None and not is_void:
        expected.append('NOT VERIFIED')
      self.assertLen(warnings, len(expected), f'{occasion}: {warnings}')
      for found, start in zip(warnings, expected):
        self.assertStartsWith(found, start, occasion)

  @parameterized.product(name=tuple(occasions.PLANS), occasion=_NAMES)
  def test_page_begins_with_the_guarantee(self, name, occasion):
    plan = occasions.PLANS[name]()
    stated = _stated(plan, occasions.occasions(plan)[occasion])
    words = stated.to_markdown().split('\n\n## 1. ', 1)[0].split('\n\n')
    groups = stated.points['guarantee'].get('groups')
    promise = f'({rounding.rounded_up(stated.epsilon)}, {stated.delta:g})'
    if groups and not math.isinf(stated.epsilon):
      promise = '(epsilon, delta)'
      self.assertLen(words.pop().splitlines(), len(plan.silos))
    done = stated.points['mechanism']['rounds_done']
    when = f'{done} of {plan.num_rounds} planned rounds are done.'
    if not done:
      when = f'This is a plan: none of its {plan.num_rounds} rounds is done.'
    claimed = stated.points['amplification']['claimed']
    how = f'amplified: {claimed}'
    if claimed == 'none':
      how = 'without amplification'
    checked = '' if done else ', if a process follows this plan'
    if math.isinf(stated.epsilon):
      expected = f'NO PRIVACY is guaranteed. {when}'
      self.assertIn(f'protects no {plan.unit}.', words[-2])
    else:
      expected = (
          f'**{promise}-differential privacy** for each {plan.unit},'
          f' {plan.neighboring_relation.value} adjacency, {how}{checked}. {when}'
      )
      self.assertStartsWith(words[-2], f'In plain words{checked}: ')
      self._check_chances(stated, words[-2])
    self.assertEqual(words[-1], expected)

  def _check_chances(self, stated, paragraph: str) -> None:
    """Compares the printed chances with the points, and with one point."""
    chances = [
        float(each) for each in re.findall(r'at most ([\d.]+) %', paragraph)
    ]
    guarantee, amplification = (
        stated.points[name] for name in ('guarantee', 'amplification')
    )
    expected = [(stated.epsilon, guarantee['right_guesses'])]
    if amplification['claimed'] != 'none':
      without = rounding.from_json_number(amplification['epsilon_without'])
      expected.append((without, amplification['right_guesses_without']))
    for (epsilon, stored), chance in zip(expected, chances, strict=True):
      self.assertBetween(chance, 100 * stored, 100 * stored + 0.1 + 1e-9)
      self.assertLessEqual(stored, guesses.right(epsilon, stated.delta))

  @parameterized.parameters(*occasions.PLANS)
  def test_statement_of_a_plan_has_the_same_values_as_one_of_an_occasion(
      self, name
  ):
    plan = occasions.PLANS[name]()
    seen = occasions.observed(plan, 2)
    for arguments in (
        {},
        dict(observed=seen),
        dict(insecure_seed=True),
        dict(declarations=occasions.DECLARED),
    ):
      self.assertEqual(
          plan.statement(delta=2e-6, **arguments),
          plan.statement_about(builder.Occasion(delta=2e-6, **arguments)),
      )

  def test_facts_that_nobody_declared_claim_nothing(self):
    told = declarations.Declarations()
    unknown = 'not accounted for: may have used the protected data'
    self.assertEqual(
        vars(told) | {'not_covered': None},
        {
            'model_name': 'not declared',
            'data_name': 'not declared',
            'responsible': 'not declared',
            'population': None,
            'population_origin': 'not stated whether public or estimated',
            'delta_reason': 'chosen by the user',
            'hyperparameters': unknown,
            'architecture': unknown,
            'early_stopping': 'not declared',
            'pretraining': 'not declared',
            'public_data': 'not declared',
            'preprocessing': 'not declared',
            'audit': 'not declared',
            'not_covered': None,
        },
    )
    self.assertIn('training metrics of TFF', told.not_covered)


class StoppedRunsTest(parameterized.TestCase):
  """Epsilon of a run that stops: an upper bound, the same wherever it is said."""

  @parameterized.parameters(*occasions.PLANS)
  def test_epsilon_after_every_round(self, name):
    plan = occasions.PLANS[name]()
    budget = plan.ledger(delta=occasions.DELTA)
    whole = plan.epsilon(delta=occasions.DELTA)
    last = 0.0
    for done in _some_rounds(plan.num_rounds):
      found = plan.epsilon_after(done, delta=occasions.DELTA)
      # Never below the epsilon of these very rounds, nor of fewer. Only the
      # bounds of two numbers of rounds have grids of their own.
      exact = plan.epsilon(delta=occasions.DELTA, num_rounds=done)
      self.assertGreaterEqual(found, max(exact, last) * (1 - _GRID), done)
      self.assertLessEqual(found, whole)
      self.assertEqual(
          found, _spent(plan, _counted(plan, done), occasions.DELTA), done
      )
      self.assertEqual(budget.epsilon_after(done), found)
      last = found
    for every in (None, plan.num_rounds):
      self.assertEqual(plan.epsilon_after(every, delta=occasions.DELTA), whole)
    self.assertEqual(last, whole)
    self.assertEqual(budget.epsilon_after(0), 0)

  @parameterized.parameters(*occasions.PLANS)
  def test_events_are_those_of_the_rounds(self, name):
    plan = occasions.PLANS[name]()
    for done in (1, plan.num_rounds // 2, plan.num_rounds, None):
      found = plan.events_json(delta=occasions.DELTA, num_rounds=done)
      rounds = plan.num_rounds if done is None else done
      self.assertEqual(
          found,
          {
              'schema': 'tff_dp.events',
              'schema_version': 2,
              'kind': plan.kind,
              'unit': plan.unit,
              'neighboring_relation': plan.neighboring_relation.value,
              'delta': occasions.DELTA,
              'warnings': [f'NO PRIVACY: {each}.' for each in plan.voids],
              'plan': plan.describe(),
              'events': [{'rounds': rounds, **plan.spent(rounds)}],
          },
      )
      self.assertEqual(
          plan.headline(delta=occasions.DELTA, num_rounds=done)['epsilon'],
          rounding.to_json_number(
              plan.epsilon_after(done, delta=occasions.DELTA)
          ),
      )

  @parameterized.parameters(1, 2, 63, 64, 65, 100, 127, 128, 129, 1000, 6800)
  def test_rounds_that_are_accounted(self, planned):
    found = [
        base.rounds_accounted(each, planned=planned)
        for each in range(1, planned + 1)
    ]
    self.assertLessEqual(len(set(found)), _MOST_STOPS)
    self.assertEqual(found, sorted(found))
    self.assertEqual(found[-1], planned)
    stops = iter(sorted(set(found)))
    stop = 0
    for done, counted in enumerate(found, 1):
      if stop < done:
        stop = next(stops)
      self.assertEqual(counted, stop)
      self.assertBetween(counted, done, planned)
    if planned <= _MOST_STOPS:
      self.assertEqual(found, list(range(1, planned + 1)))


# Keys of the headline whose values follow from the plan and delta.
_OF_PLAN = (
    'kind', 'schema_version', 'epsilon', 'delta', 'epsilon_no_amplification',
    'unit', 'neighboring_relation', 'trust', 'plan', 'assumptions',
)


def _some_rounds(num_rounds: int) -> list[int]:
  if num_rounds < 20:
    return list(range(1, num_rounds + 1))
  # Around a stop of 200 rounds, which are four rounds apart.
  return [1, 3, 4, 5, 99, 100, 101, 196, 197, 199, 200]


def _missing_in_tables(plan, epsilon: float) -> float:
  """Returns the part of delta that tables of integers cost, for secure sums."""
  if plan.kind != 'secure_sums':
    return 0.0
  draws_of_a_sum = plan.sums.min_silos * plan.dimension
  distance = draws_of_a_sum * integer_noise.distance(plan.sums.share_law)
  return 1.0 if math.isinf(epsilon) else (1 + math.exp(epsilon)) * distance


def _counted(plan, num_rounds: int) -> int:
  """Returns how many rounds are accounted for, for plans of check-ins."""
  if plan.kind not in _PROTOCOL_KINDS:
    return num_rounds
  stride = math.ceil(plan.num_rounds / _MOST_STOPS)
  return min(plan.num_rounds, math.ceil(num_rounds / stride) * stride)


def _spent(plan, num_rounds: int, delta: float, **options) -> float:
  found = plan.epsilon(delta=delta, num_rounds=num_rounds, **options)
  return min(found, plan.epsilon(delta=delta, **options))


def _write() -> None:
  old = _expected() if _FILE.exists() else {}
  found = {}
  for _, name, occasion in _CASES:
    plan = _PLANS[name]()
    about = occasions.occasions(plan)[occasion]
    found[f'{name} {occasion}'] = _said(_stated(plan, about))
  for name in _SERVERS:
    found[f'{name} server'] = _said(_of_a_server(name))
  stored = {}
  for key, leaves in found.items():
    before = old.get(key, {})
    for path, each in leaves.items():
      if _is_same(before.get(path), each):
        leaves[path] = before[path]
      elif before:
        print(key, path, before.get(path), each, sep='\n  ')
    planned = f'{key.partition(" ")[0]} {_NAMES[0]}'
    if key != planned:
      leaves = _changes(found[planned], leaves)
    stored[key] = leaves
  _FILE.write_text(json.dumps(stored, indent=1) + '\n')


if __name__ == '__main__':
  if sys.argv[1:] == ['--write']:
    _write()
  else:
    absltest.main()
