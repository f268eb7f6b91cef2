# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Binomial vector sums: type, range, unbiasedness and noise, through TFF."""

import collections
import functools
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats
import tensorflow_federated as tff

from tests.aggregators import flows
from tff_dp import _checks
from tff_dp import execution
from tff_dp.accounting.integers import vector_sum
from tff_dp.aggregators import binomial_sum

_RECORDS = 3
_SPEC = dict(grid=16, trials=40, num_records=_RECORDS, probability=0.25)
_ARGUMENTS = dict(l2_norm_clip=2.0, max_silos=4, records_per_silo=_RECORDS)
_FALSE_ALARM = 1e-7


def setUpModule():
  execution.set_default_context()


def _factory(**changes):
  arguments = _SPEC | _ARGUMENTS | changes
  spec = vector_sum.BinomialSum(**{name: arguments.pop(name) for name in _SPEC})
  return binomial_sum.BinomialVectorSumFactory(spec, **arguments)


def _type(num_params):
  return tff.TensorType(np.float32, [_RECORDS, num_params])


@functools.cache
def _process(num_params, **changes):
  return _factory(**changes).create(_type(num_params))


def _mean(values, **changes):
  process = _process(np.shape(values)[-1], **changes)
  return process.next(process.initialize(), list(np.float32(values))).result


class BinomialSumTest(parameterized.TestCase):

  def test_type_signature(self):
    tff.test.assert_types_equivalent(
        _process(5).next.type_signature,
        tff.FunctionType(
            collections.OrderedDict(
                state=tff.FederatedType((), tff.SERVER),
                value=tff.FederatedType(_type(5), tff.CLIENTS),
            ),
            tff.templates.MeasuredProcessOutput(
                tff.FederatedType((), tff.SERVER),
                tff.FederatedType((np.float32, [5]), tff.SERVER),
                tff.FederatedType(
                    collections.OrderedDict(num_silos=np.int32), tff.SERVER
                ),
            ),
        ),
    )

  def test_only_a_secure_sum_of_integers_and_a_count_leave_a_silo(self):
    sent = flows.to_server(_process(5).next)
    self.assertCountEqual(
        [(uri, str(type_spec)) for uri, type_spec in sent],
        [
            ('federated_secure_sum_bitwidth', 'int64[5]'),
            (tff.framework.FEDERATED_SUM.uri, 'int32'),
        ],
    )
    self.assertEmpty(
        flows.random_operations(
            _process(5).next, tff.framework.FEDERATED_APPLY.uri
        )
    )

  @parameterized.parameters(1, 2, 4)
  def test_unbiased_with_the_variance_that_is_predicted(self, num_silos):
    # On the grid, so that nothing is rounded: only the noise is left.
    num_params = 3000
    rows = np.zeros([num_silos, _RECORDS, num_params])
    rows[:, 0, 0] = 1.0
    noise = _mean(rows).astype(np.float64)
    noise[0] -= 1.0 / _RECORDS
    variance = _factory().variance(num_silos)
    count = num_silos * _RECORDS
    self.assertAlmostEqual(variance, 0.25**2 * 40 * 0.25 * 0.75 / count)
    squares = np.sum(noise**2) / variance
    # The kurtosis of the binomial is below that of a normal by 1/variance.
    self.assertBetween(
        squares, *stats.chi2.interval(1 - _FALSE_ALARM, num_params)
    )
    self.assertLess(
        abs(np.mean(noise)), 5.5 * math.sqrt(variance / num_params)
    )
    # What is opened is an integer in the units of the grid.
    units = (noise / 0.25 + 40 * 0.25) * count
    np.testing.assert_allclose(units, np.round(units), atol=1e-2)
    low, high = np.min(np.round(units)), np.max(np.round(units))
    self.assertBetween(low, 0, count * 40)
    self.assertBetween(high, 0, count * 40)

  def test_law_of_the_noise_is_binomial(self):
    num_params = 6000
    noise = _mean(np.zeros([1, _RECORDS, num_params])) / 0.25 + 40 * 0.25
    counts = np.round(noise * _RECORDS).astype(int)
    law = stats.binom(_RECORDS * 40, 0.25)
    edges = law.ppf(np.linspace(0, 1, 13)[1:-1])
    observed = np.bincount(
        np.searchsorted(edges, counts, side='left'), minlength=12
    )
    cdf = np.concatenate([[0.0], law.cdf(edges), [1.0]])
    expected = num_params * np.diff(cdf)
    self.assertGreater(
        stats.chisquare(observed, expected).pvalue, _FALSE_ALARM
    )

  def test_rounding_is_unbiased_and_records_are_clipped(self):
    num_params, value = 4000, 0.03
    rows = np.full([1, _RECORDS, num_params], value)
    rows[0, 1] = np.nan  # Counts as zero.
    # The norm of a row is 1.9, within the bound of 2; the step is 0.25.
    mean = _mean(rows, trials=1, probability=1e-12, grid=16)
    share = value / 0.25
    stddev = 0.25 * math.sqrt(2 * share * (1 - share)) / _RECORDS
    self.assertAlmostEqual(
        np.mean(mean), value * 2 / 3, delta=5.5 * stddev / num_params**0.5
    )
    one = np.zeros([1, _RECORDS, 2])
    one[0, :, 0] = 1e6
    np.testing.assert_allclose(
        _mean(one, trials=1, probability=1e-12, grid=2**16), [[2.0, 0.0]][0], atol=1e-3
    )

  def test_draws_are_new_every_time(self):
    rows = np.zeros([2, _RECORDS, 500])
    first, second = _mean(rows), _mean(rows)
    self.assertLess(abs(np.corrcoef(first, second)[0, 1]), 0.25)

  def test_fewer_silos_than_promised_are_refused(self):
    rows = np.zeros([2, _RECORDS, 2])
    with self.assertRaisesRegex(Exception, 'fewer than 3 silos'):
      _mean(rows, num_records=3 * _RECORDS)

  @parameterized.parameters(
      (dict(l2_norm_clip=0.0), 'l2_norm_clip=0.0'),
      (dict(grid=0), 'grid=0'),
      (dict(probability=0.6), 'probability=0.6'),
      (dict(num_records=4 * _RECORDS + 1), 'max_silos=4'),
      (dict(records_per_silo=0), 'records_per_silo=0'),
      (dict(trials=2**60), r'max_silos \* records_per_silo \* \(grid \+ trials'),
  )
  def test_bad_arguments_are_named(self, changes, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      _factory(**changes)

  def test_values_that_are_not_records_are_refused(self):
    for type_spec in (
        tff.TensorType(np.float32, [5]),
        tff.TensorType(np.float32, [_RECORDS + 1, 5]),
        tff.TensorType(np.int32, [_RECORDS, 5]),
    ):
      with self.assertRaisesRegex(_checks.ArgumentError, 'value_type='):
        _factory().create(type_spec)


if __name__ == '__main__':
  absltest.main()
