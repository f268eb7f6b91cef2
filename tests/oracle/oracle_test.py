# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Our contexts give what TFF's runtime gives, and the comparison sees more."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.oracle import __main__ as command
from tests.oracle import oracle
from tests.oracle import poisoned
from tff_dp import _compat

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_ONE = np.float32(1.0)
_NUM_DRAWS = 2000


def _strings(*items) -> np.ndarray:
  array = np.empty(len(items), object)
  array[:] = items
  return array


class RuntimeTest(parameterized.TestCase):
  """A part of all cases; `make test-oracle` runs every one.

  Beside TFF's runtime where there is one, else with what it gave, as recorded.
  In a process of its own, since it needs other kernels.
  """

  def test_values_are_those_of_tff(self):
    # Kind -> (part of its cases, how many these are at least).
    if _compat.COLUMN.has_worker:
      parts = {
          'tutorial': ('3/31', 1),
          'generated': ('2/60', 4),
          'poisoned': ('8/101', 2),
      }
    else:
      parts = {'builder': ('49/86', 1), 'generated': ('2/60', 4)}
    with tempfile.TemporaryDirectory() as folder:
      report_path = pathlib.Path(folder, 'report.json')
      output_path = pathlib.Path(folder, 'output')
      with output_path.open('w') as output:
        status = subprocess.run(
            [
                sys.executable,
                '-m',
                'tests.oracle',
                '--kinds',
                *parts,
                '--part',
                *(part for part, _ in parts.values()),
                '--generated=0',
                f'--json={report_path}',
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=_ROOT,
            env={**os.environ, 'TF_ENABLE_ONEDNN_OPTS': '0'},
            check=False,
        ).returncode
      text = output_path.read_text(errors='replace')
      self.assertEqual(status, 0, text)
      reports = json.loads(report_path.read_text())
    self.assertEqual([report['kind'] for report in reports], list(parts))
    for report, (_, at_least) in zip(reports, parts.values(), strict=True):
      with self.subTest(report['kind']):
        self._check(report, at_least, text)

  def _check(self, report, at_least: int, text: str):
    self.assertGreaterEqual(report['num_cases'], at_least, text)
    self.assertGreaterEqual(
        report['num_compared'], report['num_cases'] * 3, text
    )
    # Only what is generated may end in an error: an example of TFF's does not.
    if report['kind'] != 'generated':
      self.assertEmpty(report['both_raise'], text)
    # Each path is what its name says.
    for path, way in (
        ('single', 'one_by_one'),
        ('loop', 'in_chunks'),
        ('vectorized', 'at_once'),
        ('two_workers', 'at_once'),
    ):
      self.assertGreater(report['clients'][path][way], 0, text)
    self.assertEqual(report['clients']['single']['in_chunks'], 0, text)
    self.assertEqual(report['clients']['single']['at_once'], 0, text)
    self.assertEqual(report['clients']['loop']['at_once'], 0, text)


class DifferencesTest(parameterized.TestCase):
  """The comparison itself: what it must not let pass."""

  @parameterized.named_parameters(
      ('last_digit', np.int64(2**62), np.int64(2**62 + 1)),
      ('one_of_many', np.arange(9), np.r_[np.arange(8), 9]),
      ('bool', np.array([True, False]), np.array([True, True])),
      ('nan_expected', np.float32(np.nan), _ONE),
      ('nan_found', _ONE, np.float32(np.nan)),
      ('nan_elsewhere', np.array([np.nan, 1.0]), np.array([1.0, np.nan])),
      ('infinite', _ONE, np.float32(np.inf)),
      ('sign_of_infinity', np.float32(np.inf), np.float32(-np.inf)),
      ('nan_for_infinity', np.float32(np.inf), np.float32(np.nan)),
      ('shape', np.zeros([2, 3]), np.zeros([3, 2])),
      ('rank', np.zeros([1]), np.zeros([])),
      ('nothing', np.zeros([2]), np.zeros([0])),
      ('dtype', np.int32(1), np.int64(1)),
      ('precision', np.float32(1), np.float64(1)),
      ('kind', np.float32(1), np.int32(1)),
      ('far', np.float32(1.0), np.float32(1.0002)),
      ('far_beside_large', np.array([1e3, 1.0]), np.array([1e3, 1.2])),
      ('far_from_zero', np.zeros([2]), np.array([0.0, 1e-30])),
      ('imaginary', np.complex64(1 + 1j), np.complex64(1 + 1.01j)),
      ('string', _strings(b'a', b'b'), _strings(b'a', b'c')),
      ('bytes_for_text', _strings(b'a'), _strings('a')),
      ('nul_at_the_end', _strings(b'a\0'), _strings(b'a')),
  )
  def test_sees(self, expected, actual):
    found = oracle.differences(
        {'x': np.asarray(expected)}, {'x': np.asarray(actual)}, tolerance=1e-4
    )
    self.assertLen(found, 1)
    self.assertStartsWith(found[0], 'x')

  @parameterized.named_parameters(
      ('missing', {'a': _ONE}),
      ('extra', {'a': _ONE, 'b': _ONE, 'c': _ONE}),
      ('other_order', {'b': _ONE, 'a': _ONE}),
      ('none', {}),
  )
  def test_sees_names(self, actual):
    found = oracle.differences({'a': _ONE, 'b': _ONE}, actual, tolerance=1.0)
    self.assertLen(found, 1)
    self.assertIn("not ['a', 'b']", found[0])

  def test_sees_the_last_bit_without_tolerance(self):
    for expected, actual in (
        (_ONE, np.nextafter(_ONE, np.float32(2))),
        (np.float32(0.0), np.float32(-0.0)),
    ):
      expected, actual = {'x': np.asarray(expected)}, {'x': np.asarray(actual)}
      self.assertLen(oracle.differences(expected, actual, tolerance=0.0), 1)
      self.assertEmpty(oracle.differences(expected, actual, tolerance=1e-6))

  @parameterized.named_parameters(
      ('near', np.float32(1.0), np.float32(1.00005)),
      ('near_for_its_tensor', np.array([1e3, 1.0]), np.array([1e3, 1.05])),
      ('nan', np.array([np.nan, 1.0]), np.array([np.nan, 1.0])),
      ('infinite', np.float32(-np.inf), np.float32(-np.inf)),
      ('empty', np.zeros([0, 3]), np.zeros([0, 3])),
      ('largest_half', np.float16(60000), np.float16(60000)),
      ('strings', _strings(b'a', 'b'), _strings(b'a', 'b')),
  )
  def test_lets_pass(self, expected, actual):
    self.assertEmpty(
        oracle.differences(
            {'x': np.asarray(expected)},
            {'x': np.asarray(actual)},
            tolerance=1e-4,
        )
    )

  def test_names_the_worst_place(self):
    (found,) = oracle.differences(
        {'w': np.array([[0.0, 4.0], [1.0, 2.0]], np.float32)},
        {'w': np.array([[0.5, 4.0], [1.0, 3.0]], np.float32)},
        tolerance=1e-4,
    )
    self.assertEqual(
        found,
        'w[1, 1] is 3.0, not 2.0 (off by 2.5e-01 of the largest magnitude);'
        ' 2 of 4 values differ',
    )


class DistributionTest(parameterized.TestCase):

  @parameterized.named_parameters(
      # Power: 200 pairs of samples, and the test saw all.
      ('scale', lambda draws: 1.5 * draws),
      ('mean', lambda draws: draws + 1.0),
      ('all_equal', lambda draws: np.full_like(draws, draws[0])),
      ('drawn_twice', lambda draws: np.r_[draws[:1000], draws[:1000]]),
      ('nan', lambda draws: np.full_like(draws, np.nan)),
      ('fewer', lambda draws: draws[1:]),
      ('dtype', lambda draws: draws.astype(np.float32)),
  )
  def test_sees(self, change):
    rng = np.random.default_rng(1)
    expected = {'x': rng.normal(size=_NUM_DRAWS)}
    actual = {'x': change(rng.normal(size=_NUM_DRAWS))}
    found = oracle.differences_in_distribution(expected, actual)
    self.assertNotEmpty(found)

  def test_sees_the_very_same_draws(self):
    draws = {'x': np.random.default_rng(1).normal(size=_NUM_DRAWS)}
    (found,) = oracle.differences_in_distribution(draws, dict(draws))
    self.assertIn('very same draws', found)

  def test_lets_other_draws_pass(self):
    rng = np.random.default_rng(1)
    expected, actual = (
        {
            'x': rng.normal(size=_NUM_DRAWS),
            'n': rng.integers(5, size=_NUM_DRAWS),
        }
        for _ in range(2)
    )
    self.assertEmpty(oracle.differences_in_distribution(expected, actual))


class JudgeTest(parameterized.TestCase):

  def _judge(self, path, **outcomes):
    case = oracle.Case('case', 'tutorial', dict)
    return oracle.judge(
        case,
        path,
        {
            name: oracle.Outcome({'x': np.float32(value)})
            if isinstance(value, float)
            else value
            for name, value in outcomes.items()
        },
    )

  def test_compares_with_tff_loosely(self):
    self.assertEmpty(self._judge('single', tff=1.0, single=1.000005))
    self.assertLen(self._judge('single', tff=1.0, single=1.00005), 1)
    self.assertLen(self._judge('two_workers', tff=1.0, two_workers=1.00005), 1)

  @parameterized.parameters(
      ('loop', 1.000005, 1),
      ('loop', 1.0 + 1.2e-7, 1),
      ('vectorized', 1.0 + 1.2e-7, 0),
      ('vectorized', 1.000005, 1),
      ('two_workers', 1.000005, 0),
  )
  def test_compares_paths_of_ours(self, path, value, num_differences):
    found = self._judge(path, tff=1.0, single=1.0, **{path: value})
    self.assertLen(found, num_differences)

  def test_errors_agree_with_errors_only(self):
    error = oracle.Outcome(error='ValueError: no')
    other = oracle.Outcome(error='TypeError: never')
    self.assertEmpty(self._judge('single', tff=error, single=other))
    (found,) = self._judge('single', tff=error, single=1.0)
    self.assertIn('does not raise ValueError: no', found)
    (found,) = self._judge('single', tff=1.0, single=error)
    self.assertIn('raises ValueError: no', found)
    # 'single' raises as TFF does, so this is one difference from each.
    self.assertLen(self._judge('loop', tff=error, single=error, loop=1.0), 2)

  def test_a_refusal_is_no_difference(self):
    refusal = oracle.Outcome(error='Unsupported', is_refused=True)
    self.assertEmpty(self._judge('loop', tff=1.0, single=1.0, loop=refusal))
    self.assertEmpty(self._judge('loop', tff=1.0, single=refusal, loop=1.0))

  def test_random_values_are_samples(self):
    case = oracle.Case('case', 'tutorial', dict, is_random=True)
    rng = np.random.default_rng(1)
    outcomes = {
        path: oracle.Outcome({'x': rng.normal(size=_NUM_DRAWS)})
        for path in ('tff', 'single', 'loop')
    }
    self.assertEmpty(oracle.judge(case, 'loop', outcomes))
    outcomes['loop'] = outcomes['single']
    self.assertLen(oracle.judge(case, 'loop', outcomes), 1)

  def test_order_leaves_out_two_workers(self):
    case = oracle.Case('case', 'generated', dict, is_in_order=True)
    self.assertEqual(case.own_paths, ('loop', 'single', 'vectorized'))

  def test_refuses_a_loose_case_without_a_reason(self):
    with self.assertRaisesRegex(ValueError, 'case: loose is 0.1'):
      oracle.Case('case', 'tutorial', dict, loose=0.1)


class RecordedTest(absltest.TestCase):

  def test_comes_back_as_it_was(self):
    outcomes = {
        'values': oracle.Outcome({
            'float': np.float32([1.5, np.nan, -np.inf]),
            'int': np.int64(2**62 + 1),
            'empty': np.zeros([0, 3], np.float16),
            'complex': np.complex64([[1 + 2j]]),
            'half': np.asarray(tf.constant([1.25], tf.bfloat16)),
            'bool': np.array([True, False]),
            'strings': _strings(b'\xff\0', 'é', ''),
            'text': oracle.flat('one')['value'],
        }),
        'error': oracle.Outcome(error='ValueError: no'),
        'nothing': oracle.Outcome({}),
    }
    folder = pathlib.Path(self.create_tempdir().full_path)
    with mock.patch.object(oracle, 'RECORDED', folder):
      self.assertEqual(oracle.load_recorded('tutorial'), {})
      oracle.save_recorded('tutorial', outcomes)
      found = oracle.load_recorded('tutorial')
    self.assertEqual(list(found), list(outcomes))
    self.assertEqual(found['error'], outcomes['error'])
    for name in ('values', 'nothing'):
      self.assertEmpty(
          oracle.differences(
              outcomes[name].values, found[name].values, tolerance=0.0
          )
      )

  def test_is_small(self):
    for path in oracle.RECORDED.glob('*.npz'):
      self.assertLess(path.stat().st_size, 300_000, path.name)


class PoisonedTest(absltest.TestCase):

  def test_sees_who_listens_to_a_neighbour(self):
    @tff.tensorflow.computation(tff.TensorType(np.float32, [3]))
    def work(x):
      return tf.reduce_sum(x)

    def listening(function, values, numbers):
      del function, numbers
      # What the defect of `tf.vectorized_map` makes of a segment -1.
      heard = np.float32(not np.all(np.abs(values[1]) < 2))
      return [np.ones(poisoned.NUM_CLIENTS, np.float32) + heard]

    values = [np.ones(3, np.float32)] * poisoned.NUM_CLIENTS
    found = poisoned.differences(poisoned.of_work(work), values, run=listening)
    self.assertLen(found, 6)


class FlatTest(absltest.TestCase):

  def test_names_every_array(self):
    weights = tff.learning.models.ModelWeights(
        trainable=[np.ones([2])], non_trainable=[]
    )
    found = oracle.flat({
        'weights': weights,
        'struct': tff.structure.Struct([('a', 1), ('b', (2.0, b'c'))]),
        'dataset': tf.data.Dataset.range(2),
        'nothing': (),
    })
    self.assertEqual(
        list(found),
        [
            'weights/trainable/0',
            'struct/a',
            'struct/b/0',
            'struct/b/1',
            'dataset/0',
            'dataset/1',
        ],
    )
    self.assertEqual(found['struct/b/1'].tolist(), b'c')

  def test_refuses_what_has_no_array(self):
    with self.assertRaisesRegex(TypeError, 'x: give its parts'):
      oracle.flat({'x': tf.ragged.constant([[1], []])})


class CommandTest(absltest.TestCase):
  """The command on cases that are made to differ."""

  def _run(self, cases, *arguments):
    folder = pathlib.Path(self.create_tempdir().full_path)
    report_path = folder / 'report.json'
    with mock.patch.object(oracle, 'RECORDED', folder / 'recorded'):
      with mock.patch.object(command, '_load', lambda *_: cases):
        if not _compat.COLUMN.has_worker:
          oracle.save_recorded(
              'tutorial', {'case': oracle.Outcome({'x': np.float32(1.0)})}
          )
        else:
          command.main(['--kinds', 'tutorial', '--record'])
        status = command.main(
            ['--kinds', 'tutorial', '--json', str(report_path), *arguments]
        )
    (report,) = json.loads(report_path.read_text())
    return status, report

  def _case(self, of_own_context):
    def run():
      context = tff.framework.get_context_stack().current
      is_own = hasattr(context, 'num_clients_by_path')
      return {'x': np.float32(of_own_context() if is_own else 1.0)}

    return oracle.Case('case', 'tutorial', run)

  def test_agreement_ends_well(self):
    status, report = self._run([self._case(lambda: 1.0)])
    self.assertEqual((status, report['num_compared']), (0, 4))

  def test_a_difference_does_not(self):
    status, report = self._run([self._case(lambda: 2.0)], '--paths', 'loop')
    self.assertEqual(status, 1)
    self.assertEqual(
        report['differences'],
        [[
            'case',
            'loop',
            'against TFF: x is 2.0, not 1.0 (off by 1.0e+00 of the largest'
            ' magnitude)',
        ]],
    )

  def test_an_error_does_not(self):
    def fail():
      raise ValueError('no')

    status, report = self._run([self._case(fail)], '--paths', 'single')
    self.assertEqual(status, 1)
    (difference,) = report['differences']
    self.assertIn('raises ValueError: no', difference[2])

  def test_a_case_that_nobody_recorded_does_not(self):
    other = oracle.Case('other', 'tutorial', lambda: {'x': _ONE})
    with mock.patch.object(command, '_record', lambda *_: True):
      status, report = self._run([other])
    self.assertEqual(status, 1)
    self.assertEqual(
        report['differences'], [['other', 'recorded', 'nothing; see --record']]
    )

  @pytest.mark.reference_only(reason="needs TFF's worker")
  def test_does_not_record_what_differs_from_itself(self):
    rng = np.random.default_rng(1)
    case = oracle.Case('case', 'tutorial', lambda: {'x': rng.normal(size=3)})
    folder = pathlib.Path(self.create_tempdir().full_path)
    with mock.patch.object(oracle, 'RECORDED', folder):
      with mock.patch.object(command, '_load', lambda *_: [case]):
        status = command.main(['--kinds', 'tutorial', '--record'])
      self.assertEqual(oracle.load_recorded('tutorial'), {})
    self.assertEqual(status, 1)


if __name__ == '__main__':
  absltest.main()
