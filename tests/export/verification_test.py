# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Verification looks for keys in every graph, coins where none are, warnings."""

import json
import pathlib
import shutil
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
from tff_dp.export import verification
from tff_dp.files import run_directory
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

  def test_no_warning_of_the_plan_is_left_out(self):
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
        if set(stated) >= set(of_plan):
          verification._check_guarantee(root, manifest)
        else:
          with self.assertRaisesRegex(verification.Wrong, 'leaves out'):
            verification._check_guarantee(root, manifest)


def _numbers(value, *path):
  """Yields the path of every number in the points of a statement."""
  if isinstance(value, (dict, list)):
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in pairs:
      yield from _numbers(each, *path, key)
  elif isinstance(value, (int, float)) or value == 'inf':
    yield path


def _with(points, path, change):
  """Returns a copy of points with one leaf changed."""
  copied = json.loads(json.dumps(points))
  *folders, name = path
  place = copied
  for each in folders:
    place = place[each]
  place[name] = change(place[name])
  return copied


def _safer(number):
  return 0.5 if number == 'inf' else number - 1 if isinstance(
      number, int
  ) else 0.99 * number - 1e-3


class PointsTest(parameterized.TestCase):
  """What the statement says below its headline is what the plan gives."""

  def _described(self, plan, about):
    done = 0 if about.observed is None else about.observed.num_rounds
    return events.PlanRun(plan, done or plan.num_rounds, about.delta)

  @parameterized.product(name=_QUICK, occasion=('planned', 'stopped', 'known'))
  def test_points_of_every_run_are_right(self, name, occasion):
    plan = occasions.PLANS[name]()
    about = occasions.occasions(plan)[occasion]
    verification._check_points(
        self._described(plan, about), plan.statement_about(about).points
    )

  @parameterized.parameters(*_QUICK)
  def test_no_number_is_another_one(self, name):
    plan = occasions.PLANS[name]()
    about = occasions.occasions(plan)['stopped']
    described = self._described(plan, about)
    stated = plan.statement_about(about)
    points, paths = stated.points, list(_numbers(stated.points))
    self.assertGreater(len(paths), 30)
    with mock.patch.object(type(plan), 'statement_about', return_value=stated):
      for path in paths:
        with self.subTest(path), self.assertRaises(verification.Wrong):
          verification._check_points(described, _with(points, path, _safer))
      forged = {
          ('guarantee', 'level'): 'none (at all)',
          ('adjacency', 'relation'): 'add_or_remove_one',
          ('unit', 'unit'): 'letter',
          ('amplification', 'claimed'): 'by magic',
      }
      for path, words in forged.items():
        with self.subTest(path), self.assertRaises(verification.Wrong):
          verification._check_points(
              described, _with(points, path, lambda _, words=words: words)
          )
      more = json.loads(json.dumps(points))
      more['guarantee']['epsilon_for_you'] = 0.1
      with self.assertRaises(verification.Wrong):
        verification._check_points(described, more)

  def test_a_bundle_that_states_less_below_its_headline_fails(self):
    root = pathlib.Path(self.create_tempdir().full_path, 'bundle')
    shutil.copytree(bundles.kept(), root)
    manifest = json.loads((root / bundle.MANIFEST).read_text())
    verification._check_guarantee(root, manifest)
    content = json.loads((root / bundle.STATEMENT).read_text())
    content['points']['guarantee']['curve'][0]['epsilon'] *= 0.9
    run_directory.write_json(root / bundle.STATEMENT, content)
    found = statement.PrivacyStatement.from_json(content)
    (root / bundle.STATEMENT_PAGE).write_text(found.to_markdown())
    with self.assertRaisesRegex(verification.Wrong, 'guarantee.curve.0.epsilon'):
      verification._check_guarantee(root, manifest)


if __name__ == '__main__':
  absltest.main()
