# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the shuffle step: exact sums, sorted reports, no order left."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import execution
from tff_dp.aggregators import shuffle

_STEP = shuffle.grid_step(1.0)


def setUpModule():
  execution.set_default_context()


def _computation(aggregate, member_type):
  @tff.federated_computation(tff.FederatedType(member_type, tff.CLIENTS))
  def run(values):
    return aggregate(values)

  return run


def _sum(num_params: int, step: float = _STEP):
  return _computation(
      shuffle.build_sum(num_params, step=step),
      tff.TensorType(np.float32, [num_params]),
  )


class SumTest(parameterized.TestCase):

  def test_type_is_one_vector_and_a_number(self):
    tff.test.assert_types_equivalent(
        _sum(3).type_signature.result,
        tff.FederatedType(
            tff.to_type(
                dict(total=(np.int64, [3]), num_reports=np.int32)
            ),
            tff.SERVER,
        ),
    )

  def test_sum_is_exact_where_float_sums_are_not(self):
    values = [
        np.array(row, np.float32)
        for row in ([16.0, 1e-7], [2.0**-24, 1.0], [-16.0, -1.0])
    ]
    self.assertNotEqual(np.float32(16.0) + np.float32(2.0**-24) - 16, 2.0**-24)
    output = _sum(2)(values)
    self.assertEqual(output['num_reports'], 3)
    np.testing.assert_array_equal(
        output['total'] * _STEP,
        [2.0**-24, np.trunc(np.float32(1e-7) / _STEP) * _STEP],
    )

  def test_rounds_towards_zero_so_that_no_norm_grows(self):
    units = [-2.0, -1.6, -1.0, -0.4, -0.0, 0.4, 0.6, 1.0, 1.6, 2.0]
    output = _sum(10)([np.array(units, np.float32) * np.float32(_STEP)])
    np.testing.assert_array_equal(output['total'], np.trunc(units))

  def test_nobody(self):
    output = _sum(2)([])
    np.testing.assert_array_equal(output['total'], [0, 0])
    self.assertEqual(output['num_reports'], 0)

  def test_every_order_and_number_of_workers_gives_the_same_bits(self):
    rng = np.random.default_rng(0)
    values = [
        (rng.standard_normal(50) * 10.0 ** rng.integers(-6, 2)).astype(
            np.float32
        )
        for _ in range(40)
    ]
    results = []
    for num_workers in (1, 2, 3):
      with execution.create_sync_in_process_context(
          max_concurrent_clients=num_workers
      ):
        for order in (values, values[::-1], rng.permutation(values)):
          results.append(_sum(50)(list(order))['total'])
    for result in results[1:]:
      np.testing.assert_array_equal(result, results[0])
    # Plain float32 sums do depend on it.
    self.assertTrue(np.any(sum(values) != sum(values[::-1])))

  @parameterized.parameters(1e-24, 0.003, 0.75, 1.0, 1.99, 3e6, 1e24)
  def test_grid_is_finer_than_float32_and_far_from_overflow(self, scale):
    step = shuffle.grid_step(scale)
    self.assertEqual(np.log2(step) % 1, 0)
    self.assertLess(step, np.spacing(np.float32(scale)) / 64)
    self.assertLess(2.0**26 * 2.0**4 * scale / step, 2.0**63)
    self.assertTrue(np.isfinite(np.float32(1.0 / step)))
    self.assertGreater(np.float32(step), 0.0)

  @parameterized.parameters(1e-30, 1e30, float('inf'), float('nan'))
  def test_scales_beyond_float32_are_refused(self, scale):
    with self.assertRaisesRegex(_checks.ArgumentError, 'report_scale='):
      shuffle.grid_step(scale)


class CollectionTest(absltest.TestCase):

  def _collect(self, rows):
    run = _computation(
        shuffle.build_collection(3), tff.TensorType(np.int64, [3])
    )
    return run([np.array(row, np.int64) for row in rows])

  def test_type_is_a_matrix(self):
    run = _computation(
        shuffle.build_collection(3), tff.TensorType(np.int64, [3])
    )
    tff.test.assert_types_equivalent(
        run.type_signature.result,
        tff.FederatedType(tff.TensorType(np.int64, [None, 3]), tff.SERVER),
    )

  def test_order_is_that_of_the_values(self):
    rows = [
        [2, -5, 1], [2, -5, -1], [-(2**63), 0, 0], [2**63 - 1, 0, 0],
        [2, -6, 9], [2, -5, 1], [0, 2**62, 0], [0, -(2**62), 0],
    ]
    expected = np.array(sorted(rows), np.int64)
    np.testing.assert_array_equal(self._collect(rows), expected)
    np.testing.assert_array_equal(self._collect(rows[::-1]), expected)

  def test_workers_do_not_matter(self):
    rows = np.random.default_rng(0).integers(-3, 3, [25, 3])
    for num_workers in (1, 3):
      with execution.create_sync_in_process_context(
          max_concurrent_clients=num_workers
      ):
        np.testing.assert_array_equal(
            self._collect(rows), sorted(rows.tolist())
        )

  def test_nobody(self):
    self.assertEqual(self._collect([]).shape, (0, 3))


class CountsTest(absltest.TestCase):

  def test_counts(self):
    run = _computation(shuffle.build_counts(4), tff.TensorType(np.int64))
    np.testing.assert_array_equal(
        run(list(np.array([3, 0, 3, 1], np.int64))), [1, 1, 0, 2]
    )
    np.testing.assert_array_equal(run([]), [0, 0, 0, 0])


if __name__ == '__main__':
  absltest.main()
