# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""How far one replaced record moves a message, and which records are in it.

The noise is off here, so that a message shows exactly what the noise hides.
"""

import functools

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import stats
import tensorflow as tf

from tests.learning import small_model
from tests.systems.silos import toy
from tff_dp import _checks
from tff_dp import execution
from tff_dp import silos
from tff_dp.systems.silos import minibatch_schedules
from tff_dp.systems.silos import silo_sampling
from tff_dp.systems.silos import silo_terms

pytestmark = pytest.mark.once

_CLIP = 1.0
_SIZE = 40
_FALSE_ALARM = 1e-7


def setUpModule():
  execution.set_default_context()


_WHOLE = 4
_SCHEMES = (
    silo_sampling.PoissonSampling(float(_WHOLE)),
    silo_sampling.FixedSize(_WHOLE),
    silo_sampling.DisjointBlocks(_WHOLE),
)


@functools.cache
def _whole_batch(scheme, curved):
  """Returns a process whose first round takes all records, without noise."""
  if scheme in _SCHEMES[:2] and not curved:
    return _with(scheme, _WHOLE)
  curvature = np.linspace(1.0, 3.0, _SIZE) if curved else None
  return toy.build_sgd(
      toy.build_model(_SIZE, curvature=curvature),
      silos={'only': toy.free(_WHOLE)},
      num_rounds=1,
      sampling=scheme,
      l2_norm_clip=_CLIP,
      noise_stddev=0.0,
  )


def _messages(process, *rows_of_silos, batch=3):
  """Returns the messages of one round, in any order."""
  return toy.Runner(process).round([
      ('only', toy.examples(rows, batch=batch)) for rows in rows_of_silos
  ])


def _message(process, rows, batch=3):
  """Returns the message of two silos with the same records."""
  first, second = _messages(process, rows, rows, batch=batch)
  np.testing.assert_array_equal(first, second)
  return first


def _worst_records():
  rng = np.random.default_rng(0)
  direction = rng.standard_normal(_SIZE)
  largest = np.full(_SIZE, 3e38)
  yield direction
  yield from (1e6 * direction, -1e6 * direction, 1e-6 * direction)
  yield from (largest, -largest, np.zeros(_SIZE))
  yield np.eye(_SIZE)[0] * 1e6
  for bad in (np.nan, np.inf, -np.inf):
    yield np.full(_SIZE, bad)
    # In one of the two tensors only.
    yield np.where(np.arange(_SIZE) == _SIZE - 1, bad, direction)
    yield np.where(np.arange(_SIZE) == 0, bad, direction)


class SensitivityTest(parameterized.TestCase):

  @parameterized.product(scheme=_SCHEMES, curved=(False, True))
  @pytest.mark.slow(but=['0', '2'])
  def test_replacing_one_record_moves_a_message_by_at_most_2c_over_k(
      self, scheme, curved
  ):
    process = _whole_batch(scheme, curved)
    rng = np.random.default_rng(1)
    largest = 0.0
    # Among others of which some are clipped, some not, and one is not finite.
    for others in (
        rng.standard_normal([_WHOLE - 1, _SIZE]),
        1e-3 * rng.standard_normal([_WHOLE - 1, _SIZE]),
        np.full([_WHOLE - 1, _SIZE], np.nan),
    ):
      seen = _messages(
          process,
          *(np.concatenate([others, [each]]) for each in _worst_records()),
      )
      self.assertTrue(np.all(np.isfinite(seen)))
      for i, one in enumerate(seen):
        moved = np.linalg.norm(
            np.stack(seen[i:]).astype(np.float64) - one, axis=1
        )
        largest = max(largest, *moved)
    bound = 2 * _CLIP / _WHOLE
    self.assertLessEqual(largest, bound * (1 + 1e-6))
    # Opposite records attain it: the factor 2 of replacement is needed.
    self.assertGreater(largest, bound * (1 - 1e-4))

  def test_clip_norm_is_on_all_tensors_together(self):
    # Each of the two tensors alone is within the clip norm.
    record = np.zeros(_SIZE)
    record[0] = record[-1] = 0.9 * _CLIP
    message = _message(
        _whole_batch(_SCHEMES[0], False), np.tile(record, [_WHOLE, 1])
    )
    self.assertAlmostEqual(np.linalg.norm(message), _CLIP, places=4)

  def test_small_gradients_are_left_alone(self):
    rows = 0.05 * np.random.default_rng(2).standard_normal([_WHOLE, _SIZE])
    for batch in (1, 2, 4):
      np.testing.assert_allclose(
          _message(_whole_batch(_SCHEMES[0], False), rows, batch=batch),
          np.mean(rows, axis=0),
          rtol=1e-5,
      )

  def test_gradients_are_those_of_single_records(self):
    # Against a gradient tape on every record, for a model with a matrix.
    model = small_model.build()
    process = toy.build_sgd(
        model,
        silos={'only': toy.free(5)},
        num_rounds=1,
        sampling=silo_sampling.DisjointBlocks(5),
        l2_norm_clip=0.7,
        noise_stddev=0.0,
    )
    data = small_model.client(3, num_examples=5)
    expected = np.zeros(small_model.NUM_PARAMS)
    for x, y in data.unbatch().batch(1):
      weights = [tf.constant(tensor) for tensor in small_model.INITIAL]
      with tf.GradientTape() as tape:
        tape.watch(weights)
        loss = model.loss(model.predict_on_batch((weights, ()), x), y)
      gradient = np.concatenate(
          [np.ravel(part) for part in tape.gradient(loss, weights)]
      )
      expected += gradient * min(1.0, 0.7 / np.linalg.norm(gradient)) / 5
    np.testing.assert_allclose(
        toy.Runner(process).round({'only': data})[0],
        expected,
        rtol=1e-4,
        atol=1e-6,
    )


def _tags(count, num_params=None):
  """Returns records that show in a message who they are."""
  return toy.examples(np.eye(count, num_params) * 100.0, batch=7)


def _used_in(process, count, batch, *, num_rounds):
  """Returns which records ten equal silos used, [rounds, silos, records]."""
  runner = toy.Runner(process)
  silos_of_round = [('only', _tags(count, _SIZE))] * 10
  messages = np.stack([runner.round(silos_of_round) for _ in range(num_rounds)])
  return _used(messages[..., :count], batch)


def _used(messages, batch_size) -> np.ndarray:
  """Returns which records are in messages, and checks the divisor."""
  used = messages > 0.5 / batch_size
  np.testing.assert_allclose(messages[used], 1.0 / batch_size, rtol=1e-4)
  np.testing.assert_array_equal(messages[~used], 0.0)
  return used


def _build(sampling, num_records=_SIZE, **changes):
  return toy.build_sgd(
      toy.build_model(_SIZE),
      **dict(silos={'only': toy.free(num_records)}, noise_stddev=0.0)
      | changes,
      num_rounds=14,
      sampling=sampling,
      l2_norm_clip=_CLIP,
  )


@functools.cache
def _of_kind(kind):
  return _build(kind(1))


def _with(sampling, num_records=_SIZE, **changes):
  """Returns a process of 14 rounds that has the graph of its kind."""
  plan = toy.plan_of(lambda: _build(sampling, num_records, **changes))
  return _of_kind(type(sampling)).with_plan(plan)


@functools.cache
def _in_stages():
  """Returns a process of four rounds over 14 records, in blocks of three."""
  return silos.build_one_pass_accelerated_mb_sgd(
      toy.build_model(14),
      silos={'only': toy.free(14)},
      num_rounds=4,
      l2_norm_clip=1.0,
      stages=[minibatch_schedules.Stage(1, 2.0), minibatch_schedules.Stage(3, 2.0)],
      noise_stddev=0.0,
      model_aggregator=toy.Tap(),
  )


class SelectionTest(parameterized.TestCase):

  def test_poisson_rounds_are_independent_and_divided_by_the_expectation(self):
    # Some batch is empty in all but 2 of 100,000 runs.
    count, batch = _SIZE, 2.5
    process = _with(silo_sampling.PoissonSampling(batch))
    used = _used_in(process, count, batch, num_rounds=14)
    rate = batch / count
    low, high = stats.binom.interval(1 - _FALSE_ALARM, used.size, rate)
    self.assertBetween(used.sum(), low, high)
    # Every record alone, every size, and pairs of rounds and of silos.
    per_record = stats.binom.interval(1 - _FALSE_ALARM / count, 140, rate)
    self.assertTrue(np.all(used.sum(axis=(0, 1)) >= per_record[0]))
    self.assertTrue(np.all(used.sum(axis=(0, 1)) <= per_record[1]))
    sizes = used.sum(axis=2)
    self.assertEqual(sizes.min(), 0)  # An empty batch came, and was finite.
    spread = np.sum((sizes - batch) ** 2) / (batch * (1 - rate))
    self.assertBetween(spread, *stats.chi2.interval(1 - _FALSE_ALARM, 140))
    for again in (used[1:] & used[:-1], used[:, 1:] & used[:, :-1]):
      self.assertBetween(
          again.sum(),
          *stats.binom.interval(1 - _FALSE_ALARM, again.size, rate**2),
      )

  def test_fixed_size_takes_distinct_records_equally_often(self):
    count, batch = 12, 5
    process = _with(silo_sampling.FixedSize(batch), count)
    used = _used_in(process, count, batch, num_rounds=10)
    used = used.reshape(-1, count)
    batches = len(used)
    np.testing.assert_array_equal(used.sum(axis=1), batch)
    low, high = stats.binom.interval(
        1 - _FALSE_ALARM / count, batches, batch / count
    )
    self.assertTrue(np.all(low <= used.sum(axis=0)))
    self.assertTrue(np.all(used.sum(axis=0) <= high))
    together = np.sum(used[:, 0] & used[:, 1])
    pair = batch * (batch - 1) / (count * (count - 1))
    self.assertBetween(
        together, *stats.binom.interval(1 - _FALSE_ALARM, batches, pair)
    )

  def test_empty_batches_send_noise_as_all_others(self):
    # More than a third of the batches are empty. The others add a norm of 1.
    process = _with(silo_sampling.PoissonSampling(1), noise_stddev=3.0)
    messages = toy.Runner(process).round([('only', _tags(_SIZE))] * 50)
    # A std that is off by 15 % fails, with 2,000 draws.
    squares = np.sum(messages.astype(np.float64) ** 2) / 3.0**2
    self.assertBetween(
        squares, *stats.chi2.interval(1 - _FALSE_ALARM, messages.size)
    )

  @parameterized.parameters(None, 2, 3)
  @pytest.mark.slow(but=['1'])
  def test_blocks_never_repeat_across_stages_and_new_models(self, set_after):
    rounds, count = 4, 14  # Two records are left over.
    process = _in_stages()
    runner = toy.Runner(process)
    for r in range(rounds):
      used = _used(runner.round({'only': _tags(count)})[0], 3)
      np.testing.assert_array_equal(np.flatnonzero(used), 3 * r + np.arange(3))
      if r + 1 == set_after:
        runner.state = process.set_model_weights(
            runner.state, process.get_model_weights(runner.state)
        )
    with self.assertRaisesRegex(Exception, 'num_rounds=4 rounds are done'):
      runner.round({'only': _tags(count)})

  def test_phases_use_disjoint_ranges_of_halving_length(self):
    count = 20
    process = silos.build_localized_mb_sgd(
        toy.build_model(count),
        silos={'only': toy.free(count)},
        lipschitz=1.0,
        regularization=0.01,
        rounds_per_phase=[2, 1, 2],
        smoothness=1.0,
        noise_stddev=0.0,
        model_aggregator=toy.Tap(),
    )
    runner = toy.Runner(process)
    for first, length in ((0, 10), (0, 10), (10, 5), (15, 2), (15, 2)):
      used = _used(runner.round({'only': _tags(count)})[0], length)
      np.testing.assert_array_equal(
          np.flatnonzero(used), first + np.arange(length)
      )

  def test_a_round_without_silos_changes_nothing_and_uses_no_block(self):
    runner = toy.Runner(_in_stages())
    for r in range(3):
      before = runner.state
      self.assertEmpty(runner.round({}))
      self.assertEqual(runner.state.client_work, before.client_work)
      tf.nest.map_structure(
          np.testing.assert_array_equal,
          runner.state.finalizer,
          before.finalizer,
      )
      np.testing.assert_array_equal(
          runner.sent_out, toy.flat(before.global_model_weights)
      )
      used = _used(runner.round({'only': _tags(14)})[0], 3)
      np.testing.assert_array_equal(np.flatnonzero(used), 3 * r + np.arange(3))


class RefusalTest(parameterized.TestCase):

  def test_other_number_of_records_is_refused_in_the_silo(self):
    process = _whole_batch(_SCHEMES[0], False)
    for count in (0, 3, 5):
      with self.assertRaisesRegex(Exception, 'another number of records'):
        _message(process, np.ones([count, _SIZE]))

  def test_two_sets_of_terms_or_none_are_refused_in_the_silo(self):
    process = _whole_batch(_SCHEMES[0], False)
    data = process.client_data('only', toy.examples(np.ones([4, _SIZE])))
    for terms in ([], data['terms'] * 2):
      with self.assertRaises(Exception):
        process.next(process.initialize(), [dict(data, terms=terms)])

  def test_a_silo_refuses_a_clip_norm_above_its_own(self):
    process = _whole_batch(_SCHEMES[0], False)
    lower = silo_terms.SiloTerms(
        num_records=_WHOLE,
        l2_norm_clip=_CLIP / 2,
        phases=process.plan.terms['only'].phases,
    )
    data = silos.silo_data(lower, toy.examples(np.ones([4, _SIZE])))
    data['terms'][0]['metric_stddevs'] = np.zeros([1, 0])
    with self.assertRaisesRegex(Exception, 'clip norm of the process is above'):
      process.next(process.initialize(), [data])

  @parameterized.named_parameters(
      ('poisson', silo_sampling.PoissonSampling(5.0), 1),
      ('fixed', silo_sampling.FixedSize(5), 1),
      ('block', silo_sampling.DisjointBlocks(2), 3),
  )
  def test_fewer_records_than_the_batch_needs(self, sampling, num_rounds):
    with self.assertRaisesRegex(
        _checks.ArgumentError, "of silo 'tiny'.*is not allowed"
    ):
      toy.build_sgd(
          toy.build_model(4),
          silos={'only': toy.free(100), 'tiny': toy.free(4)},
          num_rounds=num_rounds,
          sampling={'only': silo_sampling.FixedSize(1), 'tiny': sampling},
          noise_stddev=0.0,
      )


if __name__ == '__main__':
  absltest.main()
