# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of preprocessing: nothing of a record may reach another's features."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tasks.common import digits_data
from tasks.silos import heart
from tasks.silos import insurance
from tasks.silos import mnist_odd_even
from tasks.silos import obesity
from tasks.silos import silo_preprocessing
from tests.tasks.silos import silo_tables


class FeaturesTest(parameterized.TestCase):

  def test_scaled_is_declared(self):
    np.testing.assert_allclose(
        silo_preprocessing.scaled([0, 25, 50, 1e9, -7], 0, 50),
        [-1, 0, 1, 1, -1],
    )
    with self.assertRaisesRegex(ValueError, 'low'):
      silo_preprocessing.scaled([1.0], 2, 2)

  def test_norms_are_at_most_one_and_columns_are_as_said(self):
    features = silo_preprocessing.Features()
    features.number([10.0, 1e30], 0, 10)
    features.category([2, 0], 3)
    features.flag([True, False])
    rows = features.rows()
    self.assertEqual(rows.dtype, np.float32)
    np.testing.assert_allclose(
        rows, np.array([[1, 0, 0, 1, 1, 1], [1, 1, 0, 0, -1, 1]]) / 2
    )
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [1, 1], rtol=1e-6)

  def test_missing_numbers_are_in_the_middle_and_flagged(self):
    features = silo_preprocessing.Features()
    features.masked([0.0, 10.0], np.array([True, False]), 0, 10)
    np.testing.assert_allclose(
        features.rows() * np.sqrt(3), [[0, 1, 1], [1, -1, 1]], rtol=1e-6
    )

  def test_a_category_that_was_not_declared_is_named(self):
    table = silo_tables.insurance_table(3)
    with self.assertRaisesRegex(
        digits_data.DataFileError,
        "column smoker of insurance.csv has '(yes|no)': expected one of maybe",
    ):
      silo_preprocessing.one_of(table, 'smoker', ('maybe',))

  @parameterized.named_parameters(
      ('heart', 'heart'), ('insurance', 'insurance'), ('obesity', 'obesity')
  )
  def test_one_record_changes_no_features_but_its_own(self, task):
    # What a statistic of the data would do: an outlier moves everybody.
    if task == 'heart':
      line = '{},{},Male,Cleveland,asymptomatic,120,229,FALSE,normal,129,TRUE'
      line += ',2.6,flat,2,normal,{}'
      make = lambda age: heart.hospitals(silo_tables.heart_table('\n'.join(
          line.format(index, age if index == 1 else 40 + index, index % 2)
          for index in range(1, 9)
      )))['Cleveland']
      before, after, changed = make(41), make(90), 0
    elif task == 'obesity':
      table = silo_tables.obesity_table([4] * 7)
      make = lambda table: obesity.silos(table)['Normal_Weight']
      before = make(table)
      table['Weight'][4] = '179'
      after, changed = make(table), 0
    else:
      table = silo_tables.insurance_table(12)
      make = lambda table: insurance.silos(table, 'region')['northeast']
      before = make(table)
      table['age'][4] = '64'
      after, changed = make(table), 1
    same = np.arange(len(before)) != changed
    np.testing.assert_array_equal(
        before.features[same], after.features[same]
    )
    self.assertFalse(
        np.array_equal(before.features[changed], after.features[changed])
    )


class PublicComponentsTest(absltest.TestCase):

  def test_equals_the_singular_value_decomposition_of_public_records(self):
    rng = np.random.default_rng(0)
    public = rng.standard_normal([40, 6]) * [5, 3, 1, 0.1, 0.1, 0.1] + 2
    components = silo_preprocessing.PublicComponents(public, 3)
    _, _, vectors = np.linalg.svd(public - public.mean(axis=0))
    other = rng.standard_normal([7, 6])
    expected = (other - public.mean(axis=0)) @ vectors[:3].T
    kept = (public - public.mean(axis=0)) @ vectors[:3].T
    spread = np.sqrt(np.mean(np.sum(kept**2, axis=1)))
    rows = components.rows(other)
    np.testing.assert_allclose(
        np.abs(rows[:, :3]), np.abs(expected) / spread / np.sqrt(2), rtol=1e-5
    )
    np.testing.assert_allclose(rows[:, 3], np.sqrt(0.5), rtol=1e-6)
    # Row by row: silos' records do not influence each other.
    np.testing.assert_array_equal(rows[2:3], components.rows(other[2:3]))
    mean_square = np.mean(np.sum(components.rows(public) ** 2, axis=1))
    self.assertAlmostEqual(mean_square, 1.0, places=5)

  def test_more_components_than_inputs_are_refused(self):
    with self.assertRaisesRegex(ValueError, 'num_components=7'):
      silo_preprocessing.PublicComponents(np.zeros([40, 6]), 7)


class SplitTest(absltest.TestCase):

  def test_sizes_depend_on_no_seed_and_no_record_is_in_two_places(self):
    silos = {
        name: silo_preprocessing.Records(
            np.arange(first, first + size, dtype=np.float32)[:, np.newaxis],
            np.zeros(size, np.float32),
        )
        for name, first, size in (('a', 0, 46), ('b', 100, 11))
    }
    one, two = (silo_preprocessing.split(silos, seed=seed) for seed in (1, 2))
    self.assertEqual(one.num_records, {'a': 36, 'b': 8})
    self.assertEqual(one.num_records, two.num_records)
    for part in one, two:
      parts = [part.train['a'], part.train['b'], part.test]
      found = np.concatenate([records.features[:, 0] for records in parts])
      self.assertCountEqual(found, [*range(46), *range(100, 111)])
    self.assertFalse(
        np.array_equal(one.train['a'].features, two.train['a'].features)
    )
    again = silo_preprocessing.split(silos, seed=1)
    np.testing.assert_array_equal(one.test.features, again.test.features)


class SilosTest(absltest.TestCase):

  def test_heart_moves_the_misfiled_row_and_drops_incomplete_ones(self):
    silos = heart.hospitals(silo_tables.heart_table(
        '303,38,Male,Cleveland,non-anginal,138,175,FALSE,normal,173,FALSE,0,'
        'upsloping,,normal,0\n'
        '304,28,Male,Cleveland,atypical angina,130,132,FALSE,lv hypertrophy,'
        '185,FALSE,0,,,,0\n'
        '306,29,Male,Hungary,atypical angina,140,,FALSE,normal,170,FALSE,0,,,,'
        '0\n'
        '600,62,Male,Switzerland,asymptomatic,120,0,TRUE,normal,93,TRUE,0,,,,'
        '3\n'
    ))
    sizes = {name: len(records) for name, records in silos.items()}
    self.assertEqual(
        sizes,
        {'Cleveland': 1, 'Hungary': 1, 'Switzerland': 1, 'VA Long Beach': 0},
    )
    self.assertEqual(list(silos['Switzerland'].labels), [1.0])
    self.assertEqual(list(silos['Hungary'].labels), [-1.0])

  def test_insurance_by_charges_is_sorted_and_of_equal_size(self):
    table = silo_tables.insurance_table(52)
    silos = list(insurance.silos(table, 'charges_5').values())
    self.assertEqual([len(part) for part in silos], [11, 11, 10, 10, 10])
    for low, high in zip(silos, silos[1:]):
      self.assertLessEqual(low.labels.max(), high.labels.min())
    self.assertLessEqual(silos[-1].labels.max(), 1.0)

  def test_insurance_by_region(self):
    silos = insurance.silos(silo_tables.insurance_table(12), 'region')
    self.assertEqual(
        {name: len(part) for name, part in silos.items()},
        dict.fromkeys(('northeast', 'northwest', 'southeast', 'southwest'), 3),
    )
    with self.assertRaisesRegex(ValueError, "layout='age'"):
      insurance.silos(silo_tables.insurance_table(12), 'age')

  def test_obesity_silos_have_one_class_and_equal_size(self):
    silos = obesity.silos(silo_tables.obesity_table([5, 9, 6, 5, 7, 8, 5]))
    for index, records in enumerate(silos.values()):
      self.assertEqual(list(records.labels), [index] * 5)
      self.assertEqual(records.labels.dtype, np.int32)
    self.assertLess(np.linalg.norm(records.features, axis=1).max(), 1 + 1e-6)

  def test_a_label_outside_of_the_classes_is_refused(self):
    table = silo_tables.obesity_table([2] * 7)
    table['NObeyesdad'][3] = 'Obesity_Type_IV'
    with self.assertRaisesRegex(digits_data.DataFileError, 'Obesity_Type_IV'):
      obesity.silos(table)

  def test_mnist_silos_are_disjoint_pairs_of_an_even_and_an_odd_digit(self):
    labels = np.repeat(np.arange(10), 23)
    silos = mnist_odd_even.dealt(labels, 4, seed=3)
    self.assertLen(silos, 25)
    for name, positions in silos.items():
      digits = [int(word) for word in name.split() if word.isdigit()]
      self.assertEqual((digits[0] % 2, digits[1] % 2), (0, 1))
      np.testing.assert_array_equal(
          np.sort(labels[positions]), np.repeat(np.sort(digits), 4)
      )
    positions = np.concatenate(list(silos.values()))
    self.assertLen(np.unique(positions), len(positions))
    self.assertEqual(mnist_odd_even.images_per_digit(labels), 4)
    self.assertEqual(
        mnist_odd_even.images_per_digit(np.repeat(np.arange(10), 5421)), 774
    )


if __name__ == '__main__':
  absltest.main()
