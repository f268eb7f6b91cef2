# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the privacy statement."""

import copy
import dataclasses
import json
import math
import re
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized

from tests.statement import occasions
from tff_dp import _checks
from tff_dp import check_ins
from tff_dp import draws
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp import plans
from tff_dp.accounting.curves import gaussian
from tff_dp.ledger import participation_ledger
from tff_dp.statement import builder
from tff_dp.statement import declarations
from tff_dp.statement import statement

_OBSERVED = participation_ledger.Observed(
    num_rounds=5,
    num_clients=500,
    min_index_gap=None,
    max_participations=1,
    smallest_cohort=99,
    largest_cohort=100,
)


_REQUIRED = statement.required_names('dp_ftrl')
# S2 is 11 for the plan, and 3 after the first five rounds.
_ARGUMENTS = dict(
    mechanism=mechanisms.HonakerTree(1600),
    l2_norm_clip=0.5,
    clients_per_round=100,
    noise_multiplier=1.13,
)


def _build(
    *,
    min_index_gap=1600,
    delta=1e-6,
    observed=None,
    insecure_seed=False,
    **changed,
) -> statement.PrivacyStatement:
  plan = plans.DpFtrlPlan(
      participation=participation.MinSeparation(
          1600, min_index_gap=min_index_gap
      ),
      **{name: changed.pop(name, _ARGUMENTS[name]) for name in _ARGUMENTS},
  )
  return plan.statement(
      delta=delta,
      observed=observed,
      insecure_seed=insecure_seed,
      declarations=declarations.Declarations(
          **dict(population=342477) | changed
      ),
  )


def _epsilon(squared_sensitivity, delta=1e-6) -> float:
  return gaussian.exact_epsilon(
      sigma=1.13 / math.sqrt(squared_sensitivity), delta=delta
  )


def _leaves(path, value):
  """Yields the path of every dict key, all the way down."""
  if isinstance(value, dict):
    for key, child in value.items():
      yield (*path, key)
      yield from _leaves((*path, key), child)


def _all_leaves(name, value):
  """Yields (name, leaf) all the way down, in the order of a page."""
  if isinstance(value, dict):
    for key, child in value.items():
      yield from _all_leaves(key, child)
  elif isinstance(value, (list, tuple)):
    for child in value:
      yield from _all_leaves(name, child)
  else:
    yield name, value


def _shows(text: str, name: str, value) -> bool:
  """Returns whether a piece of a page is a leaf of a statement."""
  text = text.removeprefix('  - ').removeprefix('  | ')
  if isinstance(value, bool):
    return text == ('yes' if value else 'no')
  if isinstance(value, str):
    return text == value
  try:
    number = float(text)
  except ValueError:
    return False
  if name.startswith(('epsilon', 'right_guesses', 'true_pos', 'zcdp_rho')):
    return value <= number <= 1.01 * value + 1e-12
  return math.isclose(number, value, rel_tol=1e-5)


class NumbersTest(parameterized.TestCase):

  def test_plan(self):
    guarantee = _build().points['guarantee']
    self.assertEqual(guarantee['epsilon'], _epsilon(11))
    self.assertEqual(guarantee['epsilon_planned'], _epsilon(11))
    self.assertEqual(guarantee['epsilon_replace_one'], _epsilon(44))
    self.assertAlmostEqual(guarantee['epsilon_rdp'], 18.71, delta=0.005)
    self.assertAlmostEqual(guarantee['zcdp_rho'], 11 / (2 * 1.13**2))
    self.assertAlmostEqual(guarantee['sigma_eff'], 1.13 / math.sqrt(11))
    for row in guarantee['curve']:
      self.assertEqual(row['epsilon'], _epsilon(11, row['delta']))
    self.assertIn(1e-6, [row['delta'] for row in guarantee['curve']])

  def test_run_shows_what_was_spent_beside_what_was_planned(self):
    guarantee = _build(observed=_OBSERVED).points['guarantee']
    self.assertEqual(guarantee['epsilon'], _epsilon(3))
    self.assertEqual(guarantee['epsilon_planned'], _epsilon(11))
    self.assertEqual(guarantee['epsilon_replace_one'], _epsilon(12))
    self.assertAlmostEqual(guarantee['sigma_eff'], 1.13 / math.sqrt(3))
    self.assertAlmostEqual(guarantee['zcdp_rho'], 3 / (2 * 1.13**2))
    self.assertEqual(
        guarantee['epsilon_rdp'],
        gaussian.rdp_epsilon(sigma=1.13 / math.sqrt(3), delta=1e-6),
    )
    for row in guarantee['curve']:
      self.assertEqual(row['epsilon'], _epsilon(3, row['delta']))
      self.assertEqual(row['epsilon_planned'], _epsilon(11, row['delta']))

  def test_delta_of_tails_is_that_of_the_epsilon_beside_it(self):
    for observed in (None, _OBSERVED):
      guarantee = _build(observed=observed).points['guarantee']
      self.assertEqual(
          guarantee['delta_of_tails'],
          draws.missing_delta(guarantee['epsilon']),
      )

  def test_what_a_client_can_do_at_most(self):
    points = _build(min_index_gap=314).points
    # In rounds 1, 315, ..., 1571.
    self.assertEqual(points['unit']['max_participations'], 6)
    self.assertEqual(points['mechanism']['l2_norm_clip'], 0.5)
    self.assertIn('at most 0.5,', points['unit']['contribution_bound'])
    self.assertStartsWith(points['mechanism']['noise_multiplier'], '1.130000:')
    self.assertStartsWith(points['mechanism']['clients_per_round'], '100,')
    self.assertEqual(points['mechanism']['rounds_planned'], 1600)
    self.assertEqual(_build().points['unit']['max_participations'], 1)
    self.assertEqual(_build().points['accounting']['squared_sensitivity'], 11)

  def test_no_amplification_is_claimed(self):
    points = _build().points
    self.assertEqual(points['amplification']['claimed'], 'none')
    self.assertEqual(
        points['amplification']['epsilon_without'],
        points['guarantee']['epsilon'],
    )
    for assumption in points['amplification']['assumptions'].values():
      self.assertEqual(assumption, 'not assumed')

  def test_both_separations_are_printed(self):
    unit = _build(min_index_gap=314).points['unit']
    self.assertEqual(unit['min_index_gap'], 314)
    self.assertEqual(unit['min_rounds_between'], 313)

  def test_limits_hold_across_restarts(self):
    plan = plans.DpFtrlPlan(
        mechanism=mechanisms.HonakerTree(12, restart_every=4),
        participation=participation.ShuffledEpochs(12, 2, epochs_per_shuffle=2),
        l2_norm_clip=0.5,
        clients_per_round=100,
        noise_multiplier=1.13,
    )
    unit = plan.statement(delta=1e-6).points['unit']
    # In the last round of one order and the first of the next, twice in each.
    self.assertEqual(unit['max_participations'], 6)
    self.assertEqual(unit['min_index_gap'], 1)
    self.assertEqual(unit['min_rounds_between'], 0)

  def test_completion_shows_both_sensitivities(self):
    options = dict(restart_every=100)
    completed = mechanisms.Tree(1600, complete_trees=True, **options)
    accounting = _build(mechanism=completed).points['accounting']
    # A tree of 100 rounds has 8 levels at its end; one of 128 has them always.
    self.assertEqual(accounting['squared_sensitivity'], 8.0)
    self.assertEqual(accounting['squared_sensitivity_without_completion'], 7.0)
    plain = mechanisms.Tree(1600, **options)
    self.assertNotIn(
        'squared_sensitivity_without_completion',
        _build(mechanism=plain).points['accounting'],
    )

  def test_printed_epsilon_is_never_below(self):
    for noise_multiplier in (0.3, 1.13, 2.71, 30.0):
      built = _build(noise_multiplier=noise_multiplier)
      printed = built.to_markdown().split('**(')[1].split(',')[0]
      self.assertGreaterEqual(float(printed), built.epsilon)
      self.assertLess(float(printed), 1.001 * built.epsilon)

  @parameterized.parameters(0.3, 1.13, 2.71, 30.0)
  def test_no_cost_is_printed_below_its_value(self, noise_multiplier):
    built = _build(noise_multiplier=noise_multiplier)
    page, guarantee = built.to_markdown(), built.points['guarantee']
    for name, label in (
        ('epsilon', 'epsilon'),
        ('epsilon_planned', 'epsilon of all planned rounds'),
        ('epsilon_replace_one', 'epsilon under replace-one adjacency'),
        ('epsilon_rdp', 'epsilon by Renyi DP, for comparison'),
        ('zcdp_rho', 'zCDP rho'),
    ):
      (printed,) = re.findall(f'^- {label}: (.*)$', page, re.MULTILINE)
      self.assertGreaterEqual(float(printed), guarantee[name], name)
      self.assertLess(float(printed), 1.001 * guarantee[name], name)


class VoidTest(parameterized.TestCase):

  @parameterized.parameters(
      dict(noise_multiplier=0.0), dict(insecure_seed=True)
  )
  def test_no_privacy_everywhere(self, **changed):
    built = _build(observed=_OBSERVED, **changed)
    self.assertEqual(built.epsilon, math.inf)
    self.assertStartsWith(built.warnings[0], 'NO PRIVACY')
    guarantee = built.points['guarantee']
    for name in (
        'epsilon', 'epsilon_planned', 'epsilon_rdp', 'epsilon_replace_one',
        'zcdp_rho',
    ):
      self.assertEqual(guarantee[name], 'inf', name)
    # Known noise is no noise.
    self.assertEqual(guarantee['sigma_eff'], 0)
    for row in guarantee['curve']:
      self.assertEqual(row['epsilon'], 'inf')
      self.assertEqual(row['epsilon_planned'], 'inf')
    self.assertEqual(built.points['amplification']['epsilon_without'], 'inf')
    page = built.to_markdown()
    self.assertNotIn('differential privacy**', page)
    self.assertGreater(page.count('NO PRIVACY'), 5)

  def test_known_seed_tells_what_a_secret_key_would_give(self):
    guarantee = _build(insecure_seed=True).points['guarantee']
    self.assertEqual(guarantee['epsilon_if_key_were_secret'], _epsilon(11))
    self.assertNotIn(
        'epsilon_if_key_were_secret', _build().points['guarantee']
    )

  def test_delta_too_large_for_the_population(self):
    built = _build(population=1000, delta=1e-3)
    self.assertStartsWith(built.warnings[0], 'WEAK')
    self.assertIn('NOT below', built.points['guarantee']['delta_reason'])
    self.assertEqual(
        _build(population=999, delta=1e-3).warnings, (builder.UNCHECKED,)
    )


class CompletenessTest(parameterized.TestCase):

  @parameterized.parameters(
      (section, name)
      for section, names in _REQUIRED.items()
      for name in (None, *names)
  )
  def test_each_missing_or_empty_field_is_an_error(self, section, name):
    content = _build().to_json()
    where = content['points'] if name is None else content['points'][section]
    key = section if name is None else name
    path = section if name is None else f'{section}.{name}'
    for empty in (None, '', ' ', [], {}, math.nan):
      where[key] = empty
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, f'values: .*{section}'
      ):
        statement.PrivacyStatement.from_json(content)
    del where[key]
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, path):
      statement.PrivacyStatement.from_json(content)

  def test_there_are_twelve_points(self):
    self.assertLen(_REQUIRED, 12)
    self.assertEqual(list(_build().points), list(_REQUIRED))

  @parameterized.parameters(
      'not_covered', 'hyperparameters', 'architecture', 'early_stopping',
      'pretraining', 'public_data', 'preprocessing', 'audit', 'delta_reason',
      'population_origin', 'model_name', 'data_name', 'responsible',
  )
  def test_declaration_is_one_line_and_not_empty(self, name):
    for wrong in ('', ' ', None, 'x\n\n# Privacy statement', 'x\x1b[2J'):
      with self.assertRaisesRegex(_checks.ArgumentError, f'^{name}='):
        _build(**{name: wrong})
    _build(**{name: 'none'})

  @parameterized.parameters(
      dict(delta=0.0),
      dict(delta=1.0),
      dict(noise_multiplier=-1.0),
      dict(noise_multiplier=math.nan),
      dict(l2_norm_clip=0.0),
      dict(min_index_gap=0),
      dict(clients_per_round=0),
      dict(population=0),
      dict(insecure_seed=None),
  )
  def test_wrong_facts(self, **changed):
    (name,) = changed
    with self.assertRaisesRegex(ValueError, f'^{name}='):
      _build(**changed)

  def test_headline_is_complete(self):
    content = _build().to_json()
    for name in ('delta', 'trust', 'assumptions', 'warnings', 'plan'):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, name):
        statement.PrivacyStatement.from_json(
            {key: content[key] for key in content if key != name}
        )

  def test_plan_that_says_nothing_of_its_own_has_no_statement(self):

    class Silent(plans.DpFtrlPlan):

      def _points(self, about):
        return {}

    plan = Silent(
        participation=participation.MinSeparation(1600, min_index_gap=1600),
        **_ARGUMENTS,
    )
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'setting.model.*implementation.dropouts'
    ):
      plan.statement(delta=1e-6)

  def test_nothing_is_spent_before_round_1(self):
    before_round_1 = dataclasses.replace(_OBSERVED, num_rounds=0)
    self.assertEqual(_build(observed=before_round_1), _build())

  @parameterized.parameters(
      ('num_rounds', 1601, '1600 rounds'),
      ('max_participations', 7, 'at most 6'),
      ('min_index_gap', 313, 'at least 314'),
  )
  def test_rounds_that_break_the_plan_are_not_stated(self, name, value, rule):
    allowed = dict(num_rounds=1600, max_participations=6, min_index_gap=314)
    at_the_limit = dataclasses.replace(_OBSERVED, **allowed)
    _build(min_index_gap=314, observed=at_the_limit)
    with self.assertRaisesRegex(
        _checks.ArgumentError, f'observed.{name}={value} .*{rule}'
    ) as caught:
      _build(
          min_index_gap=314,
          observed=dataclasses.replace(at_the_limit, **{name: value}),
      )
    self.assertIn('the plan that the rounds followed', caught.exception.way_out)

  def test_ledger_beside_a_plan_without_one(self):
    plan = plans.SamplingPlan(
        population=400,
        clients_per_round=40,
        num_rounds=8,
        noise_multiplier=1.0,
        l2_norm_clip=0.5,
    )
    with self.assertRaisesRegex(
        _checks.ArgumentError, r'(?s)observed=.*no participation ledger.*Rounds'
    ):
      plan.statement(delta=1e-6, observed=_OBSERVED)


class FormsTest(parameterized.TestCase):

  def test_json_round_trip(self):
    for built in (
        _build(),
        _build(noise_multiplier=0.0),
        _build(observed=_OBSERVED),
        _build(mechanism=mechanisms.Blt(1600, weights=(0.3,), decays=(0.9,))),
    ):
      text = json.dumps(built.to_json(), allow_nan=False)
      read = statement.PrivacyStatement.from_json(json.loads(text))
      self.assertEqual(read, built)
      self.assertEqual(read.to_markdown(), built.to_markdown())

  def test_unknown_version(self):
    for changed in ({'schema_version': 1}, {'schema': 'other'}):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'version'):
        statement.PrivacyStatement.from_json(_build().to_json() | changed)

  def test_statement_is_immutable(self):
    points = copy.deepcopy(_build().points)
    headline = copy.deepcopy(_build().headline)
    built = statement.PrivacyStatement(headline, points)
    headline['plan']['kind'] = points['setting']['model'] = 'trust me'
    content = built.to_json()
    content['points']['guarantee']['epsilon'] = 0.1
    content['warnings'].append('none')
    self.assertEqual(built, _build())

  def test_markdown_shows_every_value(self):
    built = _build(observed=_OBSERVED)
    page = built.to_markdown()
    for number in range(1, 13):
      self.assertIn(f'\n## {number}. ', page)
    for path in _leaves((), built.points):
      value = built.points
      for key in path:
        value = value[key]
      if isinstance(value, str):
        self.assertIn(value, page)
    self.assertIn('5 of 1600 planned rounds are done', page)
    self.assertIn('This is a plan', _build().to_markdown())

  @parameterized.parameters('adaptive', 'laplace_steps', 'silos')
  def test_page_has_every_leaf_in_order_and_rounds_risks_up(self, name):
    plan = occasions.PLANS[name]()
    built = plan.statement_about(occasions.occasions(plan)['stopped'])
    _, _, page = built.to_markdown().partition('\n## 1. ')
    shown = iter(re.split(r'\n|: | \| ', page.replace(' |\n', '\n')))
    leaves = list(_all_leaves('', built.points))
    types = {type(value) for _, value in leaves}
    self.assertEqual(types - {bool}, {int, float, str})
    self.assertEqual(bool in types, name == 'adaptive')
    for path, value in leaves:
      parts = re.split(': ', value) if isinstance(value, str) else [value]
      for part in parts:
        self.assertTrue(
            any(_shows(each, path, part) for each in shown), (path, part)
        )

  def test_realised_participation(self):
    once = _build(observed=_OBSERVED).points['implementation']
    self.assertEqual(
        once['realised_participation'],
        '500 clients in 5 rounds, at most 1 times each, none twice',
    )
    twice = dataclasses.replace(
        _OBSERVED, num_clients=400, min_index_gap=4, max_participations=2
    )
    points = _build(min_index_gap=4, observed=twice).points['implementation']
    self.assertEqual(
        points['realised_participation'],
        '400 clients in 5 rounds, at most 2 times each, index gap at least 4'
        ' (3 rounds strictly between)',
    )
    self.assertEqual(
        points['realised_cohorts'],
        '99 to 100 clients selected per round, 100 planned',
    )

  def test_neighbouring_relation_is_written_out(self):
    local = plans.CheckInPlan(
        check_ins.FixedWindowCheckIn(400, 0.2),
        mechanisms.randomizers.Sphere(1.0, 0.5),
    ).statement(delta=1e-6)
    for built, relation in ((_build(), 'zero_out'), (local, 'replace_one')):
      self.assertEqual(built.headline['neighboring_relation'], relation)
      adjacency = built.points['adjacency']
      self.assertEqual(adjacency['relation'], relation)
      self.assertStartsWith(
          adjacency['definition'], relation.replace('_', '-')
      )
      self.assertIn(f'{relation} adjacency', built.to_markdown())

  def test_sentences_are_read_from_lines(self):
    said = builder.sentences(
        """
release.covered: {what}: models,
    and {{metrics}}
release.not_covered: none

release.not_covered: all
    others
""",
        what='two things: {or} more',
    )
    self.assertEqual(said, {
        'release.covered': 'two things: {or} more: models, and {metrics}',
        'release.not_covered': 'all others',
    })

  def test_many_numbers_are_only_counted(self):
    readable = builder.readable({
        'coefficients': (1.0,) * 100,
        'weights': (0.25, 0.5),
        'restart_every': None,
    })
    self.assertEqual(readable['coefficients'], '100 numbers: 1, 1, 1, 1, ...')
    self.assertEqual(readable['weights'], '0.25, 0.5')
    self.assertEqual(readable['restart_every'], 'none')

  def test_needs_no_tensorflow(self):
    program = (
        'import sys\n'
        'from tff_dp.ledger import budget, participation_ledger\n'
        'from tff_dp.statement import builder, statement\n'
        "print([m for m in sys.modules if m.startswith('tensorflow')])\n"
    )
    done = subprocess.run(
        [sys.executable, '-c', program],
        capture_output=True, text=True, check=True,
    )
    self.assertEqual(done.stdout.strip(), '[]')


if __name__ == '__main__':
  absltest.main()
