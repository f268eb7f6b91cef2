# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for mechanisms by name and for reading descriptions."""

import dataclasses
import json

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import catalogue
from tff_dp.systems.dp_ftrl import plan as plan_lib

_PATTERN = patterns.MinSeparationPattern(
    40, min_index_gap=10, max_participations=3
)


class BuildTest(parameterized.TestCase):

  @parameterized.parameters(*catalogue.BY_NAME)
  def test_every_name(self, name):
    made = mechanisms.build(name, _PATTERN)
    self.assertIsInstance(made, catalogue.BY_NAME[name])
    self.assertEqual(made.name, name)
    self.assertEqual(made.num_rounds, 40)
    schedule = participation.MinSeparation(
        40, min_index_gap=10, max_participations=3
    )
    self.assertEqual(mechanisms.build(name, schedule), made)

  def test_defaults(self):
    self.assertEqual(mechanisms.build('banded', _PATTERN).num_bands, 10)
    self.assertEqual(
        mechanisms.build('banded-inverse', _PATTERN).num_bands, 16
    )
    self.assertEqual(mechanisms.build('blt', _PATTERN).num_buffers, 3)
    once = patterns.MinSeparationPattern(40, max_participations=1)
    self.assertEqual(mechanisms.build('banded', once).num_bands, 40)
    self.assertEqual(
        catalogue.default_bands(
            'banded', patterns.MinSeparationPattern(4000, max_participations=1)
        ),
        512,
    )

  def test_options_arrive(self):
    self.assertEqual(
        mechanisms.build('banded', _PATTERN, num_bands=4).num_bands, 4
    )
    self.assertEqual(
        mechanisms.build('blt', _PATTERN, num_buffers=2).num_buffers, 2
    )
    tree = mechanisms.build(
        'tree', _PATTERN, restart_every=7, complete_trees=True
    )
    self.assertEqual((tree.restart_every, tree.complete_trees), (7, True))
    for name in ('banded', 'blt', 'toeplitz', 'banded-inverse'):
      made = mechanisms.build(name, _PATTERN, restart_every=8)
      self.assertEqual(made.restart_every, 8)
    for name in ('banded', 'blt', 'toeplitz', 'banded-inverse'):
      variances = [
          mechanisms.build(name, _PATTERN, error=error).prefix_variances()
          for error in ('max', 'mean')
      ]
      self.assertFalse(np.array_equal(*variances))

  @parameterized.parameters(
      ('independent', dict(restart_every=5)),
      ('independent', dict(num_bands=5)),
      ('honaker', dict(num_buffers=2)),
      ('banded', dict(num_buffers=2)),
      ('banded', dict(complete_trees=True)),
      ('blt', dict(num_bands=2)),
      ('toeplitz', dict(num_bands=2)),
      ('blt', dict(num_buffers=9)),
      ('blt', dict(error='median')),
      ('banded', dict(num_bands=11)),
      ('banded', dict(num_bands=0)),
      ('oak', dict(name=1)),
  )
  def test_refuses(self, name, options):
    (option,) = options
    options.pop('name', None)
    with self.assertRaisesRegex(ValueError, f'{option}='):
      mechanisms.build(name, _PATTERN, **options)

  def test_participation_of_another_type(self):
    with self.assertRaisesRegex(TypeError, 'participation='):
      mechanisms.build('blt', 40)


class DescriptionTest(parameterized.TestCase):

  def _described(self, mechanism):
    described = plan_lib.DpFtrlPlan(
        mechanism=mechanism,
        participation=participation.MinSeparation(
            mechanism.num_rounds, min_index_gap=10, max_participations=3
        ),
        l2_norm_clip=1.0,
        clients_per_round=10,
        noise_multiplier=1.0,
    ).describe()['mechanism']
    return json.loads(json.dumps(described))

  @parameterized.parameters(*catalogue.BY_NAME)
  def test_round_trip(self, name):
    made = mechanisms.build(name, _PATTERN)
    self.assertEqual(catalogue.from_description(self._described(made)), made)
    if 'restart_every' in catalogue.USED_OPTIONS[name]:
      made = mechanisms.build(name, _PATTERN, restart_every=8)
      self.assertEqual(
          catalogue.from_description(self._described(made)), made
      )

  @parameterized.named_parameters(
      ('unknown_name', dict(name='oak')),
      ('no_name', dict(name=None)),
      ('unknown_field', dict(colour='red')),
      ('outside_of_the_domain', dict(weights=[0.9, 0.9, 0.1])),
      ('decay', dict(decays=[1.5, 0.5, 0.5])),
      ('too_few', dict(decays=[0.5])),
      ('too_many', dict(weights=[0.1] * 9, decays=[0.1] * 9)),
      ('not_float32', dict(weights=[0.1, 0.2, 0.3])),
      ('not_a_number', dict(weights=['a', 0.2, 0.3])),
      ('nan', dict(weights=[float('nan'), 0.25, 0.25])),
      ('completed', dict(complete_trees=True)),
      ('rounds', dict(num_rounds=0)),
  )
  def test_tampered(self, changed):
    described = self._described(mechanisms.build('blt', _PATTERN)) | changed
    with self.assertRaises((ValueError, TypeError)):
      catalogue.from_description(described)

  def test_missing_field(self):
    described = self._described(mechanisms.build('blt', _PATTERN))
    del described['decays']
    with self.assertRaisesRegex(ValueError, 'mechanism='):
      catalogue.from_description(described)

  def test_short_form(self):
    summary = catalogue.summary(mechanisms.build('blt', _PATTERN))
    self.assertEqual(summary['num_buffers'], 3)
    self.assertLen(summary['weights'], 3)
    for name in ('banded', 'banded-inverse'):
      self.assertEqual(
          catalogue.summary(mechanisms.build(name, _PATTERN, num_bands=4)),
          {'num_bands': 4},
      )
    self.assertEqual(catalogue.summary(mechanisms.build('tree', _PATTERN)), {})

  def test_fields_are_plain(self):
    # What a description is made of has a JSON form.
    for name in catalogue.BY_NAME:
      json.dumps(dataclasses.asdict(mechanisms.build(name, _PATTERN)))


if __name__ == '__main__':
  absltest.main()
