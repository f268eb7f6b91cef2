# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the registry of systems."""

import dataclasses
import importlib
import inspect
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _checks
from tff_dp import check_ins
from tff_dp import mechanisms
from tff_dp import plans
from tff_dp import systems
from tff_dp.advice import offers
from tff_dp.mechanisms import randomizers
from tff_dp.plans import base
from tff_dp.statement import statement
from tff_dp.systems import system

_ROOT = pathlib.Path(__file__).parents[2]
# Of TFF's builders, and of newcomers -> of ours.
_OTHER_NAMES = (
    ('client_optimizer_fn', 'client_optimizer'),
    ('client_learning_rate', 'client_optimizer'),
    ('server_optimizer_fn', 'server_optimizer'),
    ('lr', 'server_learning_rate'),
    ('learning_rate', 'server_learning_rate'),
    ('server_learning_rate', 'learning_rate'),
    ('model_fn', 'model'),
    ('model', 'model_fn'),
    ('max_grad_norm', 'l2_norm_clip'),
)
_ALL = [(each.kind, each) for each in systems.all_systems()]


def _other(**changes) -> system.System:
  """Returns a system whose names nobody has."""
  draw_and_discard = systems.of('draw_and_discard')
  nothing = dict(kind='other', commands={}, offers={}, tools={})
  return dataclasses.replace(draw_and_discard, **nothing | changes)


class SystemsTest(parameterized.TestCase):

  @parameterized.named_parameters(*_ALL)
  def test_plan(self, each):
    self.assertTrue(issubclass(each.plan(), base.Plan))
    self.assertEqual(each.plan().kind, each.kind)
    self.assertIs(getattr(plans, each.plan().__name__), each.plan())

  @parameterized.named_parameters(*_ALL)
  def test_page(self, each):
    self.assertTrue((_ROOT / each.page).is_file())

  @parameterized.named_parameters(*_ALL)
  def test_points_are_of_the_statement(self, each):
    required = statement.required_names(each.kind)
    self.assertContainsSubset(each.points, required)
    for section, names in each.points.items():
      self.assertContainsSubset(names.split(), required[section])

  @parameterized.named_parameters(*_ALL)
  def test_flags(self, each):
    for flags in (command.flags() for command in each.commands.values()):
      for name in ('add_arguments', 'run_of', 'calibrated'):
        self.assertTrue(callable(getattr(flags, name)))
      self.assertIsInstance(flags.FLAGS, dict)

  @parameterized.named_parameters(*_ALL)
  def test_builders_lead_from_other_names_to_theirs(self, each):
    # Two systems may share a folder.
    folder = each.plan().__module__.split('.')[2]
    package = importlib.import_module(f'tff_dp.{folder}')
    builders = [n for n in package.__all__ if n.startswith('build_')]
    self.assertNotEmpty(builders)
    for name in builders:
      build = getattr(package, name)
      with self.assertRaisesRegex(TypeError, rf'\ntry: {name}\(\w+=\.\.\., '):
        build(unknown=1)
      parameters = inspect.signature(build).parameters
      required = {
          each.name: None
          for each in parameters.values()
          if each.default is each.empty and each.kind is not each.VAR_KEYWORD
      }
      for other, own in _OTHER_NAMES:
        if own in parameters:
          given = {k: v for k, v in required.items() if k not in (own, other)}
          with self.assertRaisesRegex(TypeError, rf'\ntry: {own}(,|$)'):
            build(**{other: 1} | given)

  def test_options_of_a_builder_lead_from_other_names_to_theirs(self):
    plan = check_ins.CheckInPlan(
        check_ins.ShuffledCheckIn(5, 0.3, 12), randomizers.Gaussian(1.0, 0.5)
    )
    for other, own in _OTHER_NAMES[:2] + _OTHER_NAMES[3:4]:
      with self.assertRaisesRegex(
          TypeError, rf'^the builder got .*\ntry: {own}(,|$)'
      ):
        check_ins.build_shuffled_check_in_sgd(None, plan, **{other: 1})

  @parameterized.named_parameters(*_ALL)
  def test_training(self, each):
    self.assertIsInstance(each.training(), system.Training)

  @parameterized.named_parameters(*_ALL)
  def test_offers(self, each):
    for offered in each.offers.values():
      self.assertTrue(callable(offered.build()))
      self.assertIn(offered.needs, offers.TRUST)
      self.assertIn(offered.unit, ('client', 'record'))


class MovedTest(absltest.TestCase):

  def test_old_names_say_where_they_are(self):
    with self.assertRaisesRegex(
        ImportError, 'that is tff_dp.draw_and_discard.ClientStep'
    ):
      mechanisms.ClientStep  # pylint: disable=pointless-statement
    with self.assertRaisesRegex(AttributeError, "no attribute 'Nothing'$"):
      mechanisms.Nothing  # pylint: disable=pointless-statement


class RegisterTest(parameterized.TestCase):

  def test_it_is_found_until_it_is_removed(self):
    systems.register(_other())
    # pylint: disable-next=protected-access
    self.addCleanup(systems._registered.clear)
    self.assertEqual(systems.of('other').kind, 'other')
    self.assertEqual(systems.all_systems()[-1].kind, 'other')
    systems.unregister('other')
    with self.assertRaisesRegex(_checks.ArgumentError, "kind='other'.*dp_ftrl"):
      systems.of('other')

  @parameterized.named_parameters(
      ('kind', dict(kind='silos')),
      ('command', dict(commands=systems.of('silos').commands)),
      ('offer', dict(offers=systems.of('silos').offers)),
      ('tool', dict(tools=systems.of('dp_ftrl').tools)),
  )
  def test_taken_names_are_refused(self, changes):
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'names that (silos|dp_ftrl) '
    ):
      systems.register(_other(**changes))
    self.assertLen(systems.all_systems(), len(_ALL))


if __name__ == '__main__':
  absltest.main()
