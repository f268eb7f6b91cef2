# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the rows of the MNIST task, and of what they are said to guarantee."""

import functools
import json
import math
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

from tasks.mnist import calibration
from tasks.mnist import mnist_guarantees
from tasks.mnist import mnist_rows
from tasks.mnist import mnist_sizes
from tasks.reproduce.published import check_ins as published
from tff_dp import _checks
from tff_dp.accounting.curves import gaussian
from tff_dp.mechanisms import randomizers

_SIZES = mnist_sizes.Sizes(60_000, 10_000_000)
# Few clients and updates, so that calibrating takes no time.
_SMALL = mnist_sizes.Sizes(600, 20_000, scale=0.005)


@functools.cache
def _small(name: str) -> mnist_rows.Row:
  return mnist_rows.build(name, _SMALL)


@functools.cache
def _guarantee(name: str) -> mnist_guarantees.Guarantee:
  row = _small(name)
  return mnist_guarantees.of(row, delta=row.delta)


class RowsTest(parameterized.TestCase):

  def test_rates_fall_to_0_after_the_last_update(self):
    server = mnist_rows.Server(2.0, decays=True)
    self.assertEqual(server.rates(4), [2.0, 1.5, 1.0, 0.5])
    self.assertEqual(mnist_rows.Server(2.0).rates(4), 2.0)

  @parameterized.parameters(*mnist_rows.NAMES)
  def test_rounds_are_those_of_the_plan(self, name):
    row = _small(name)
    self.assertEqual(row.name, name)
    self.assertEqual(row.delta, 1 / row.num_clients)
    if row.plan is not None:
      self.assertIs(row.plan.protocol, row.protocol)
      if row.plan.is_local:
        self.assertIs(row.plan.randomizer, row.noise)
      else:
        self.assertEqual(row.plan.noise_multiplier, row.noise.noise_multiplier)
        self.assertEqual(row.plan.l2_norm_clip, row.noise.l2_norm_clip)
    slots = row.num_updates * row.slots_per_update
    # A sliding window may have some steps left.
    self.assertLessEqual(slots, row.num_rounds)
    self.assertGreaterEqual(
        slots + row.slots_per_update,
        row.num_rounds - getattr(row.protocol, 'window', 1) + 1,
    )
    json.dumps(row.describe())

  def test_sizes_of_the_papers(self):
    row = mnist_rows.build('ldp_sgd', _SIZES)
    self.assertEqual(
        row.noise, randomizers.Sphere(local_epsilon=2.0, l2_norm_clip=0.1)
    )
    self.assertEqual(row.num_updates, 6800)
    self.assertEqual(row.protocol.check_in_rate, 0.1)
    self.assertEqual(row.num_clients, 60_000)
    row = mnist_rows.build('federated_dp_sgd', _SIZES)
    self.assertEqual(row.num_clients, 10_000_000)
    self.assertEqual(row.protocol.check_in_rate, 1e-4)
    self.assertEqual(row.num_updates, 2000)
    self.assertEqual(row.noise.l2_norm_clip, 0.05)
    row = mnist_rows.build('federated_dp_sgd_e0_2', _SIZES)
    self.assertEqual((row.num_clients, row.num_updates), (60_000, 5540))

  @parameterized.product(epsilon=(2.0, 8.0), num_clients=(60_000, 10_000_000))
  def test_federated_noise_has_sensitivity_of_two_clips(
      self, epsilon, num_clients
  ):
    multiplier = mnist_rows.federated_noise_multiplier(epsilon, num_clients)
    delta = num_clients**-1.5
    # Two vectors of norm C are up to 2 C apart.
    found = gaussian.exact_delta(sigma=multiplier / 2, epsilon=epsilon)
    self.assertBetween(found, 0.999 * delta, delta)
    self.assertAlmostEqual(
        mnist_rows.federated_local_epsilon(multiplier, num_clients),
        epsilon,
        places=5,
    )

  @parameterized.parameters(
      'fixed_window',
      'sliding_window',
      'averaged',
      'allocation',
      'uniform',
      'banded',
      'cyclic',
  )
  def test_calibrated_rows_cost_what_was_asked_for(self, name):
    found = _guarantee(name)
    self.assertBetween(found.epsilon, 0.99 * _SMALL.epsilon, _SMALL.epsilon)

  def test_same_number_of_reports_in_the_local_comparison(self):
    fixed = _small('fixed_window')
    uniform = _small('uniform_local')
    slots = fixed.protocol.num_slots
    # Of a fixed window a share is dummies.
    share = 1 - (1 - 1 / slots) ** fixed.num_clients
    self.assertAlmostEqual(
        uniform.reports_per_update / (share * fixed.reports_per_update),
        1,
        delta=0.01,
    )

  def test_cyclic_is_between_allocation_and_banded(self):
    banded, cyclic = (_small(name).plan for name in ('banded', 'cyclic'))
    self.assertEqual(banded.protocol.slots_per_window, 1)
    self.assertBetween(cyclic.protocol.slots_per_window, 2, 59)
    # Beside one draw for each client and pass, nothing is promised to banded.
    self.assertAlmostEqual(
        banded.epsilon(delta=1e-4),
        banded.epsilon_no_amplification(delta=1e-4),
        places=6,
    )

  def test_scale_shortens_every_row(self):
    for name in mnist_rows.NAMES:
      short = _small(name)
      self.assertLess(short.num_updates, 70, name)

  def test_calibrations_are_kept(self):
    path = pathlib.Path(self.create_tempdir()) / 'folder' / 'found.json'
    kept = calibration.Calibrations(path)
    row = mnist_rows.build('allocation', _SMALL, kept)
    again = calibration.Calibrations(path)
    # What is there is not searched for.
    (key,) = json.loads(path.read_text())
    found = again.find(key, lambda: self.fail('searched for again'))
    self.assertEqual(found, row.noise.noise_multiplier)
    same = mnist_rows.build('allocation', _SMALL, again)
    self.assertEqual(same.describe(), row.describe())

  @parameterized.named_parameters(
      ('clients', dict(num_clients=1), 'num_clients=1 '),
      ('bootstrap', dict(bootstrap_clients=10), 'bootstrap_clients=10 '),
      ('scale', dict(scale=0.0), 'scale=0.0'),
      ('scale_nan', dict(scale=math.nan), 'scale=nan'),
      ('rate', dict(check_in_rate=1.5), 'check_in_rate=1.5'),
      ('local', dict(local_epsilon=-1.0), 'local_epsilon=-1.0'),
      ('clip', dict(l2_norm_clip=0.0), 'l2_norm_clip=0.0'),
      ('epsilon', dict(epsilon=0.0), 'epsilon=0.0'),
      ('delta', dict(delta=1.0), 'delta=1.0'),
      ('learning', dict(learning_rate=0.0), 'server_learning_rate=0.0'),
      ('momentum', dict(momentum=1.0), 'momentum=1.0'),
  )
  def test_bad_values_are_named(self, arguments, message):
    values = {'num_clients': 600, 'bootstrap_clients': 20_000, **arguments}
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      mnist_sizes.Sizes(**values)


class GuaranteesTest(parameterized.TestCase):

  @parameterized.parameters(*mnist_rows.NAMES)
  def test_round_trip_and_order(self, name):
    found = _guarantee(name)
    self.assertEqual(found.delta, _small(name).delta)
    self.assertLessEqual(found.epsilon, found.epsilon_no_amplification)
    content = json.loads(json.dumps(found.to_json(), allow_nan=False))
    self.assertEqual(mnist_guarantees.Guarantee.from_json(content), found)
    self.assertEqual(math.isinf(found.epsilon), name == 'non_private')

  def test_another_delta_has_another_epsilon(self):
    found = mnist_guarantees.of(_small('fixed_window'), delta=1e-6)
    self.assertEqual(found.delta, 1e-6)
    self.assertGreater(found.epsilon, _guarantee('fixed_window').epsilon)

  def test_unsound_formulas_are_never_certified(self):
    row = _small('ldp_sgd')
    with self.assertNoLogs('py.warnings'):
      found = mnist_guarantees.of(row, delta=row.delta)
    unsound = [value for value in found.published if not value.holds]
    self.assertLen(unsound, 4)
    for value in unsound:
      self.assertIn('UNCERTIFIED', str(value))
      self.assertNotEqual(value.value, found.epsilon)
      self.assertNotIn(value.formula, dict(found.candidates))
    content = found.to_json()
    self.assertEqual(
        [value['certified'] for value in content['published']], [False] * 4
    )

  def test_published_values_are_those_of_the_module(self):
    row, found = _small('ldp_sgd'), _guarantee('ldp_sgd')
    with self.assertWarns(published.PublishedFormulaWarning):
      expected = published.published_sci_approach_2(
          local_epsilon=2.0,
          num_clients=600,
          check_in_rate=0.1,
          num_rounds=row.num_updates,
          delta=row.delta,
      )
    (value,) = [p for p in found.published if p.formula == expected.formula]
    self.assertEqual(value.value, expected.insecure_float())

  def test_closed_forms_that_hold_say_so(self):
    (value,) = _guarantee('fixed_window').published
    self.assertTrue(value.holds)
    self.assertIn('theorem 3.2', value.formula)
    self.assertIn('(holds)', str(value))

  def test_relations_are_stated(self):
    relations = {
        name: _guarantee(name).neighboring_relation
        for name in ('ldp_sgd', 'fixed_window', 'allocation', 'uniform')
    }
    self.assertEqual(
        relations,
        {
            'ldp_sgd': 'replace_one',
            'fixed_window': 'replace_one',
            'allocation': 'zero_out',
            'uniform': 'zero_out',
        },
    )


if __name__ == '__main__':
  absltest.main()
