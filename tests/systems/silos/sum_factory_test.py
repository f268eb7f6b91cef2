# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Integer vector sums: type, flows, and the law of the noise as released."""

import collections
import functools
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats
import tensorflow as tf
import tensorflow_federated as tff

from tests.aggregators import flows
from tff_dp import _checks
from tff_dp import execution
from tff_dp import streams
from tff_dp.systems.silos import integer_noise
from tff_dp.systems.silos import integer_plans
from tff_dp.systems.silos import sum_factory

_RECORDS = 3
_CLIP = 2.0
_SHAPE = dict(grid=16, records_per_silo=_RECORDS, min_silos=1)
_PLANS = dict(
    binomial=integer_plans.BinomialPlan(trials=4, **_SHAPE),
    skellam=integer_plans.SkellamPlan(variance=2.5, **_SHAPE),
    gaussian=integer_plans.DiscreteGaussianPlan(stddev=1.25, **_SHAPE),
)
_FALSE_ALARM = 1e-7
# One for all tests, which then share processes.
_SIZE = 4000


def setUpModule():
  execution.set_default_context()


_TYPE = tff.TensorType(np.float32, [_RECORDS, _SIZE])


@functools.cache
def _process(name, min_silos=1):
  plan = _PLANS[name]
  if min_silos != 1:
    plan = integer_plans.SkellamPlan(
        variance=2.5, **(_SHAPE | dict(min_silos=min_silos))
    )
  factory = sum_factory.IntegerVectorSumFactory(
      plan, l2_norm_clip=_CLIP, max_silos=4
  )
  return factory.create(_TYPE)


def _mean(name, values, **changes):
  process = _process(name, **changes)
  return process.next(process.initialize(), list(np.float32(values))).result


def _units(mean, num_silos):
  """Returns the integer noise of the opened sum of zeros."""
  count = num_silos * _RECORDS
  # A zero is halfway up a grid of 16 steps, so that nothing is rounded.
  units = np.asarray(mean, np.float64) * count / (2 * _CLIP / 16)
  np.testing.assert_allclose(units, np.round(units), atol=1e-2)
  return np.round(units).astype(int)


def _law(name, num_silos):
  """Returns (values, probabilities) of the centred noise of so many silos."""
  if name == 'skellam':
    law = integer_noise.skellam(2.5 * num_silos)
    return law.lower + np.arange(len(law.probs)), law.probs
  if name == 'binomial':
    trials = 4 * _RECORDS * num_silos
    values = np.arange(trials + 1)
    return values - trials // 2, stats.binom.pmf(values, trials, 0.5)
  reach = np.arange(-40, 41)
  single = np.exp(-(reach**2.0) / (2 * 1.25**2))
  single /= single.sum()
  total = np.ones(1)
  for _ in range(num_silos):
    total = np.convolve(total, single)
  return np.arange(len(total)) - len(total) // 2, total


class IntegerSumTest(parameterized.TestCase):

  @parameterized.parameters(*_PLANS)
  def test_type_signature(self, name):
    tff.test.assert_types_equivalent(
        _process(name).next.type_signature,
        tff.FunctionType(
            collections.OrderedDict(
                state=tff.FederatedType((), tff.SERVER),
                value=tff.FederatedType(_TYPE, tff.CLIENTS),
            ),
            tff.templates.MeasuredProcessOutput(
                tff.FederatedType((), tff.SERVER),
                tff.FederatedType((np.float32, [_SIZE]), tff.SERVER),
                tff.FederatedType(
                    collections.OrderedDict(num_silos=np.int32), tff.SERVER
                ),
            ),
        ),
    )

  @parameterized.parameters(*_PLANS)
  def test_only_a_secure_sum_and_a_count_leave_a_silo(self, name):
    sent = flows.to_server(_process(name).next)
    self.assertCountEqual(
        [(uri, str(type_spec)) for uri, type_spec in sent],
        [
            ('federated_secure_sum_bitwidth', f'int64[{_SIZE}]'),
            (tff.framework.FEDERATED_SUM.uri, 'int32'),
        ],
    )
    self.assertEmpty(
        flows.random_operations(
            _process(name).next, tff.framework.FEDERATED_APPLY.uri
        )
    )

  @parameterized.product(name=tuple(_PLANS), num_silos=(1, 3))
  def test_law_of_what_is_opened(self, name, num_silos):
    noise = _units(
        _mean(name, np.zeros([num_silos, _RECORDS, _SIZE])), num_silos
    )
    values, probs = _law(name, num_silos)
    # Cells of at least 1 % each, in order.
    cells = np.minimum(
        (np.cumsum(probs) - probs / 2) // 0.04, 24
    ).astype(int)
    cells = np.unique(cells, return_inverse=True)[1]
    expected = np.bincount(cells, probs) * _SIZE
    observed = np.bincount(
        cells[noise - values[0]], minlength=len(expected)
    )
    expected *= _SIZE / expected.sum()
    self.assertGreater(
        stats.chisquare(observed, expected).pvalue, _FALSE_ALARM
    )
    # And as its variance says, which chi-square cells are blind to far out.
    variance = num_silos * _PLANS[name].share_variance
    # Kurtosis is at most 3.4 here, so squares have a variance below 2.5.
    self.assertAlmostEqual(
        np.mean(noise**2.0) / variance, 1.0, delta=5.5 * math.sqrt(
            2.5 / _SIZE
        )
    )

  def test_draws_of_silos_coordinates_and_calls_are_independent(self):
    rows = np.zeros([1, _RECORDS, _SIZE])
    first, second = (_units(_mean('skellam', rows), 1) for _ in range(2))
    bound = 5.5 / math.sqrt(_SIZE)
    self.assertLess(abs(np.corrcoef(first, second)[0, 1]), bound)
    self.assertLess(abs(np.corrcoef(first[:-1], first[1:])[0, 1]), bound)
    # Alike in two silos would double the standard deviation of their sum.
    both = _units(_mean('skellam', np.zeros([2, _RECORDS, _SIZE])), 2)
    self.assertLess(np.mean(both**2.0), 5.0 * (1 + 6 * math.sqrt(3 / _SIZE)))

  def test_coins_and_noise_have_keys_of_their_own(self):
    # From one key both would be made of the same bits, which no sample shows.
    plan, size, key = _PLANS['skellam'], 50, [5, 6]
    process = sum_factory.IntegerVectorSumFactory(
        plan, l2_norm_clip=_CLIP, max_silos=1
    ).create(
        tff.to_type(
            collections.OrderedDict(
                rows=(np.float32, [_RECORDS, size]), key=(np.int64, [2])
            )
        )
    )
    found = []
    for value in (0.07, 0.08):
      # Not on the grid: they are rounded.
      rows = np.full([_RECORDS, size], value, np.float32)
      brought = collections.OrderedDict(rows=rows, key=np.array(key, np.int64))
      mean = process.next(process.initialize(), [brought]).result
      of_records = streams.fold_in(
          tf.constant(key, tf.int64), streams.digest(tf.reshape(rows, [-1]))
      )
      noise = sum_factory.draw(
          plan.share_table(),
          streams.domain_key(of_records, 'integer noise'),
          size=size,
      )
      rounded = sum_factory.encoded_sum(
          rows,
          streams.domain_key(of_records, 'integer rounding'),
          l2_norm_clip=_CLIP,
          grid=16,
      )
      units = (np.float64(mean) + _CLIP) * _RECORDS / (2 * _CLIP / 16)
      np.testing.assert_allclose(
          units,
          (rounded + noise).numpy() - plan.share_table().mean,
          atol=1e-4,
      )
      found.append(noise.numpy())
    self.assertTrue(np.any(found[0] != found[1]))

  def test_global_seed_does_not_repeat_the_noise(self):
    self.addCleanup(tf.random.set_seed, None)
    rows = np.zeros([1, _RECORDS, _SIZE])
    found = []
    for _ in range(2):
      tf.random.set_seed(11)
      found.append(_units(_mean('gaussian', rows), 1))
    self.assertTrue(np.any(found[0] != found[1]))

  def test_unbiased_clipped_and_finite(self):
    rows = np.zeros([2, _RECORDS, _SIZE])
    rows[0, 0, 0] = 1e9  # Counts as 2.
    rows[0, 1] = np.nan  # Counts as zero.
    rows[1, 2, 1] = np.inf  # So does this.
    rows[1, 1, 2] = -1.0
    mean = _mean('skellam', rows).astype(np.float64)
    mean[0] -= 2.0 / 6
    mean[2] += 1.0 / 6
    factory_variance = _PLANS['skellam'].noise_variance(_CLIP, num_silos=2)
    self.assertLess(
        np.abs(mean).max(), 8 * math.sqrt(factory_variance)
    )
    self.assertLess(
        abs(mean.mean()), 5.5 * math.sqrt(factory_variance / _SIZE)
    )

  def test_fewer_silos_than_promised_are_refused(self):
    rows = np.zeros([2, _RECORDS, _SIZE])
    with self.assertRaisesRegex(Exception, 'fewer than 3 silos'):
      _mean('skellam', rows, min_silos=3)

  def test_draw_reads_the_table_from_end_to_end(self):
    # With weights 1/4, 0, 3/4 only two values occur.
    quarter = 1 << (integer_noise.BITS - 2)
    table = integer_noise.Table(
        lower=-7,
        cumulative=np.array([quarter, quarter, 4 * quarter]),
        mean=0.0,
    )
    drawn = sum_factory.draw(table, tf.constant([3, 4], tf.int64), size=_SIZE)
    counts = collections.Counter(drawn.numpy().tolist())
    self.assertEqual(set(counts), {-7, -5})
    self.assertGreater(
        stats.binomtest(counts[-7], _SIZE, 0.25).pvalue, _FALSE_ALARM
    )

  @parameterized.parameters(
      (dict(plan=None), 'plan=None'),
      (dict(l2_norm_clip=0.0), 'l2_norm_clip=0.0'),
      (dict(max_silos=0), 'max_silos=0'),
      (dict(max_silos=2**60), f'max_silos={2**60} .* fewer silos.*at most 62'),
  )
  def test_bad_arguments_are_named(self, changes, message):
    arguments = dict(
        plan=_PLANS['skellam'], l2_norm_clip=1.0, max_silos=3
    ) | changes
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      sum_factory.IntegerVectorSumFactory(
          arguments.pop('plan'), **arguments
      )

  def test_values_that_are_not_records_are_refused(self):
    factory = sum_factory.IntegerVectorSumFactory(
        _PLANS['skellam'], l2_norm_clip=1.0, max_silos=3
    )
    with self.assertRaisesRegex(_checks.ArgumentError, 'value_type='):
      factory.create(tff.TensorType(np.float32, [_RECORDS + 1, 5]))


if __name__ == '__main__':
  absltest.main()
