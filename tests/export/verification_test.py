# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Verification looks for keys and coins in graphs, and reads the statement."""

import dataclasses
import json
import pathlib
import shutil
from typing import NamedTuple
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.attacks import bundles
from tests.statement import occasions
from tff_dp import _checks
from tff_dp import systems
from tff_dp.aggregators import release_marks
from tff_dp.export import bundle
from tff_dp.export import keys
from tff_dp.export import statements
from tff_dp.export import verification
from tff_dp.files import run_directory
from tff_dp.integrations import server_rounds
from tff_dp.participation import monitoring
from tff_dp.plans import events
from tff_dp.program import certification
from tff_dp.program.files import process_files
from tff_dp.statement import statement

# Plans whose statements take no time.
_QUICK = (
    'honaker', 'adaptive', 'windows', 'gaussian_steps', 'laplace_steps',
    'silos', 'secure_sums',
)


class KeysTest(absltest.TestCase):

  def test_a_fixed_key_is_found_in_either_computation(self):
    initialize, following = object(), object()
    plan = occasions.PLANS['honaker']()
    with (
        mock.patch.object(keys, 'check', return_value=1),
        mock.patch.object(verification, '_check_marks'),
        mock.patch.object(certification, 'certify_computation'),
    ):
      for guilty in (initialize, following):
        found = lambda each, guilty=guilty: ['a key'] if each is guilty else []
        with mock.patch.object(process_files, 'keys_in', side_effect=found):
          with self.assertRaises(_checks.PrivacyRefusedError):
            verification.check_process(initialize, following, plan)
      with mock.patch.object(process_files, 'keys_in', return_value=[]):
        self.assertEqual(
            verification.check_process(initialize, following, plan), 1
        )


class CoinsTest(parameterized.TestCase):

  @parameterized.parameters(*occasions.PLANS)
  def test_a_coin_is_only_where_clients_draw_what_they_ask_for(self, name):
    plan = occasions.PLANS[name]()

    @tff.tensorflow.computation(np.int32)
    def marked(x):
      return release_marks.mark_coin(tf.identity(x))

    if systems.of(plan.kind).training().draws_are_coins:
      verification._check_marks(marked, plan)
      return
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'has a mark that no'
    ):
      verification._check_marks(marked, plan)


class WarningsTest(absltest.TestCase):

  def test_no_warning_of_the_plan_is_left_out_or_added(self):
    root = pathlib.Path(self.create_tempdir().full_path, 'bundle')
    shutil.copytree(bundles.kept(), root)
    manifest = json.loads((root / bundle.MANIFEST).read_text())
    described = events.read(root / bundle.EVENTS)
    of_plan = ['WEAK: one', 'WEAK: another']
    content = json.loads((root / bundle.STATEMENT).read_text())
    bundles.change_json(root / bundle.EVENTS, warnings=of_plan)
    with mock.patch.object(
        type(described.plan), '_warnings', return_value=of_plan
    ):
      for stated in ([], of_plan[:1], of_plan[1:], of_plan, of_plan + ['more']):
        content['warnings'] = stated
        run_directory.write_json(root / bundle.STATEMENT, content)
        found = statement.PrivacyStatement.from_json(content)
        (root / bundle.STATEMENT_PAGE).write_text(found.to_markdown())
        if stated == of_plan:
          verification.check_guarantee(root, manifest)
        else:
          with self.assertRaisesRegex(verification.Wrong, 'says warnings'):
            verification.check_guarantee(root, manifest)


def _numbers(value, *path):
  """Yields the path of every number in the points of a statement."""
  if isinstance(value, (dict, list)):
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in pairs:
      yield from _numbers(each, *path, key)
  elif isinstance(value, (int, float)) or value == 'inf':
    yield path


def _with(content, path, change):
  """Returns a copy of a statement with one leaf changed or added."""
  copied = json.loads(json.dumps(content))
  *folders, name = path
  place = copied
  for each in folders:
    place = place[each]
  old = None if isinstance(place, dict) and name not in place else place[name]
  place[name] = change(old)
  return copied


class _Replaced(NamedTuple):
  """Replaces a part of a text."""

  old: str
  new: str

  def __call__(self, text):
    return text.replace(self.old, self.new)


def _safer(number):
  return 0.5 if number == 'inf' else number - 1 if isinstance(
      number, int
  ) else 0.99 * number - 1e-3


def _occasion(plan, name):
  """Returns an occasion. Only a plan that expects a rate has one observed."""
  about = occasions.occasions(plan)[name]
  if not isinstance(about.observed, monitoring.Observed):
    return about
  rate = warning = None
  if plan.protocol.expected_rate is not None:
    rate = about.observed.rate
    warning = monitoring.warning(plan.protocol, rate)
  observed = dataclasses.replace(about.observed, rate=rate, warning=warning)
  return dataclasses.replace(about, observed=observed)


def _described(plan, about):
  done = 0 if about.observed is None else about.observed.num_rounds
  return events.PlanRun(plan, done or plan.num_rounds, about.delta)


class StatementsTest(parameterized.TestCase):
  """A statement says what its plan gives, and nothing else."""

  @parameterized.product(
      name=(*_QUICK, 'shuffled'), occasion=('planned', 'stopped', 'known')
  )
  def test_statement_of_every_run_is_right(self, name, occasion):
    plan = occasions.PLANS[name]()
    about = _occasion(plan, occasion)
    stated = plan.statement_about(about)
    statements.check(stated.to_json(), _described(plan, about))

  @parameterized.parameters('honaker', 'sampled')
  def test_statement_of_a_server_is_right(self, name):
    plan, folder = occasions.PLANS[name](), self.create_tempdir().full_path
    with server_rounds.ServerRounds(
        plan,
        {'w': np.zeros(3)},
        output_dir=pathlib.Path(folder) / 'run',
        delta=occasions.DELTA,
        stack='another stack',
    ) as rounds:
      rounds.select(f'client {i}' for i in range(plan.clients_per_round))
      content = rounds.statement().to_json()
    described = events.PlanRun(plan, 1, occasions.DELTA)
    statements.check(content, described)
    for path, words in {
        ('setting', 'trusted'): 'nobody',
        ('setting', 'adversary'): content['points']['setting'][
            'adversary'
        ].replace('another stack', 'It, of epsilon 0.01: ' + 'it ' * 20),
        ('implementation', 'generator'): 'a cryptographic one',
    }.items():
      forged = _with(content, ('points', *path), lambda _, words=words: words)
      with self.subTest(path), self.assertRaises(statements.Wrong):
        statements.check(forged, described)

  @parameterized.parameters(*_QUICK)
  def test_no_number_is_another_one(self, name):
    plan = occasions.PLANS[name]()
    about = _occasion(plan, 'stopped')
    described = _described(plan, about)
    stated = plan.statement_about(about)
    content, paths = stated.to_json(), list(_numbers(stated.points))
    self.assertGreater(len(paths), 30)
    with mock.patch.object(type(plan), 'statement_about', return_value=stated):
      for path in paths:
        forged = _with(content, ('points', *path), _safer)
        with self.subTest(path), self.assertRaises(statements.Wrong):
          statements.check(forged, described)

  @parameterized.named_parameters(
      (' '.join(map(str, path)), path, forged)
      for path, forged in {
          ('epsilon_after_audit',): 0.01,
          ('nothing',): {},
          ('warnings',): ['epsilon is loose: in truth it is 0.01'],
          ('points', 'setting', 'trusted'): 'nobody',
          ('points', 'setting', 'data_name'): 'x\n\n# Privacy statement',
          ('points', 'unit', 'unit'): 'letter',
          ('points', 'adjacency', 'relation'): 'add_or_remove_one',
          ('points', 'release', 'covered'): 'everything',
          # The multiplier is 2.5, and 4 clients take part in a round.
          ('points', 'mechanism', 'noise_multiplier'): _Replaced('2.5', '250'),
          ('points', 'mechanism', 'clients_per_round'): _Replaced('4', '4000'),
          ('points', 'mechanism', 'population'): _Replaced('20000', '900000'),
          ('points', 'accounting', 'exactness'): 'loose: in truth it is 0.01',
          ('points', 'accounting', 'versions', 'numpy'): 'epsilon is 0.01',
          ('points', 'guarantee', 'level'): 'none (at all)',
          ('points', 'guarantee', 'in_practice'): 'epsilon 0.01, measured',
          ('points', 'guarantee', 'attacks', 0, 'true_positives'): (
              lambda chance: chance - 0.000999
          ),
          ('points', 'amplification', 'claimed'): 'by magic',
          ('points', 'implementation', 'generator'): 'a cryptographic one',
          ('points', 'implementation', 'key'): 'of a quantum computer',
          ('points', 'implementation', 'process'): 'checked by an auditor',
          ('points', 'implementation', 'realised_participation'): _Replaced(
              '31 clients', '1000000 clients'
          ),
      }.items()
  )
  def test_no_word_is_another_one(self, path, forged):
    plan = occasions.PLANS['honaker']()
    about = _occasion(plan, 'stopped')
    described = _described(plan, about)
    content = plan.statement_about(about).to_json()
    change = forged if callable(forged) else lambda _: forged
    changed = _with(content, path, change)
    self.assertNotEqual(changed, content)
    with self.assertRaises(statements.Wrong):
      statements.check(changed, described)
    # What is declared may be any line.
    path = ('points', 'setting', 'data_name')
    statements.check(_with(content, path, lambda _: 'others'), described)

  def test_a_part_is_absent_for_a_known_reason(self):
    plan = occasions.PLANS['honaker']()
    for reason in (bundle.NO_PROCESS, bundle.NOT_ALLOWED):
      verification._check_reasons(plan, {bundle.NEXT: reason})
    for name, reason in {
        bundle.NEXT: 'none\n\n## Guarantee\n\nepsilon 0.01',
        bundle.TASK_CONFIG: 'the plan has epsilon 0.01',
        bundle.SAVED_MODEL: bundle.NO_MODEL,
    }.items():
      with self.subTest(name), self.assertRaises(verification.Wrong):
        verification._check_reasons(plan, {name: reason})

  def test_a_bundle_that_states_less_below_its_headline_fails(self):
    root = pathlib.Path(self.create_tempdir().full_path, 'bundle')
    shutil.copytree(bundles.kept(), root)
    manifest = json.loads((root / bundle.MANIFEST).read_text())
    verification.check_guarantee(root, manifest)
    content = json.loads((root / bundle.STATEMENT).read_text())
    content['points']['guarantee']['curve'][0]['epsilon'] *= 0.9
    run_directory.write_json(root / bundle.STATEMENT, content)
    found = statement.PrivacyStatement.from_json(content)
    (root / bundle.STATEMENT_PAGE).write_text(found.to_markdown())
    with self.assertRaisesRegex(verification.Wrong, 'guarantee.curve.0.epsilon'):
      verification.check_guarantee(root, manifest)


if __name__ == '__main__':
  absltest.main()
