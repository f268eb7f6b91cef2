# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which process has which of TFF's forms, and whether they say the same."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tff_dp
import tensorflow as tf  # pylint: disable=g-bad-import-order
import tensorflow_federated as tff

from tests.learning import small_model
from tests.program import processes
from tests.program import protocol_run
from tests.systems.check_ins import runs as check_in_runs
from tests.systems.draw_and_discard import instance_run
from tests.systems.silos import secure_sum_run
from tests.systems.silos import silo_run
from tests.systems.silos import toy
from tff_dp import dp_ftrl
from tff_dp import execution
from tff_dp import learning
from tff_dp import mechanisms
from tff_dp import silos
from tff_dp.export import computations
from tff_dp.program.files import process_files

_BITS = 'the same bits'
_ONLY_SUMS = 'only sums'
_SELECT = 'federated_select'


def setUpModule():
  execution.set_default_context()


def _dp_ftrl(mechanism, **changes):
  return small_model.build_process(
      small_model.build_plan(mechanism), insecure_seed=None, **changes
  )


def _check_ins(made):
  return check_in_runs.build(made(randomizer=check_in_runs.LOUD))


def _least_squares():
  return dp_ftrl.build_least_squares(
      small_model.build_plan(mechanisms.HonakerTree(4)),
      num_features=3,
      feature_norm_bound=1.0,
      server_learning_rate=0.5,
  )


def _local_sgd():
  return silos.build_isrl_local_sgd(
      toy.build_model(silo_run.SIZE),
      num_rounds=3,
      num_local_steps=2,
      learning_rate=0.1,
      **silo_run.arguments(),
  )


def _localized():
  return silos.build_localized_mb_sgd(
      toy.build_model(silo_run.SIZE),
      silos=silo_run.BUDGETS,
      lipschitz=1.0,
      regularization=0.1,
      rounds_per_phase=[3, 2],
      smoothness=1.0,
  )


class FormsTest(parameterized.TestCase):
  """The table of docs/export.md."""

  @parameterized.named_parameters(
      (
          'blt_in_a_box_averaged',
          lambda: _dp_ftrl(
              mechanisms.Blt(4, (0.25,), (0.5,)),
              constraint=learning.Box(-1.0, 1.0),
              averaging=learning.UniformAverage(),
          ),
          _BITS,
          _BITS,
      ),
      (
          'fed_avg',
          lambda: processes.fed_avg(
              processes.build_adaptive_plan().aggregator()
          ),
          _BITS,
          _BITS,
      ),
      (
          'cyclic_allocation',
          lambda: protocol_run.build_process(
              protocol_run.build_plan(protocol_run.CYCLIC)
          ),
          _BITS,
          _BITS,
      ),
      ('check_ins', lambda: _check_ins(check_in_runs.fixed), _BITS, _BITS),
      ('shuffled', lambda: _check_ins(check_in_runs.shuffled), _BITS, _BITS),
      (
          'shuffled_sphere',
          lambda: protocol_run.build_process(
              protocol_run.build_plan(protocol_run.SHUFFLED)
          ),
          _BITS,
          _ONLY_SUMS,
      ),
      ('silos', silo_run.build_process, _BITS, _BITS),
      ('silos_localized', _localized, _BITS, _BITS),
      ('silos_local_sgd', _local_sgd, _BITS, _BITS),
      ('secure_sums', secure_sum_run.build_process, _BITS, _BITS),
      ('least_squares', _least_squares, _BITS, _BITS),
      ('draw_and_discard', instance_run._process, _SELECT, _SELECT),
  )
  # One of every place where noise is added, and one of every outcome. Noise of
  # the server is in `bundle_test.py`.
  @pytest.mark.slow(but=['shuffled_sphere', 'secure_sums', 'draw_and_discard'])
  # On another stack, `bundle_test.py` runs both forms.
  @pytest.mark.once(but=['draw_and_discard'])
  def test_table(self, build, *expected):
    process = build()
    forms = {}
    for kind, outcome in zip(computations.FORMS, expected):
      if outcome == _BITS:
        forms[kind] = computations.compile_form(kind, process.next)
      else:
        with self.assertRaisesRegex(computations.NoFormError, outcome):
          computations.compile_form(kind, process.next)
    if not forms:
      return
    # What is looked at has keys, so that nothing is fresh.
    state = process.initialize()
    data = computations.made_data(
        process.next, getattr(process, 'plan', processes.build_plan())
    )
    result = computations.leaves(process.next(state, data))
    self.assertTrue(computations.has_no_nan(result))
    for kind, form in forms.items():
      recomposed = computations.leaves(
          computations.recompose(kind, form)(state, data)
      )
      self.assertEmpty(computations.differences(result, recomposed), kind)


class ComparisonTest(absltest.TestCase):

  def test_a_bit_that_differs_is_named(self):
    first = computations.leaves({'a': [np.float32(1.0)], 'b': np.int64(2)})
    self.assertEqual(list(first), ['a/0', 'b'])
    second = dict(first) | {'a/0': np.nextafter(first['a/0'], 2)}
    self.assertEqual(computations.differences(first, second), ['a/0'])
    # The same bytes are not the same type.
    second = dict(first) | {'b': np.float64(0).view(np.int64) * 0}
    self.assertEqual(computations.differences(first, second), ['b'])

  def test_keys_are_found_in_graphs_and_nothing_else_is(self):
    words = tff_dp.streams.insecure_root_key(3).numpy()

    @tff.tensorflow.computation
    @tf.function(autograph=False)
    def with_key():
      return tf.constant(words)

    @tff.tensorflow.computation
    def without_key():
      return tf.constant([3, 4], tf.int64), tf.constant(words[0])

    self.assertLen(process_files.keys_in(with_key), 1)
    self.assertEmpty(process_files.keys_in(without_key))


if __name__ == '__main__':
  absltest.main()
