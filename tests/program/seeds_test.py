# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Seed 0 is a seed: the key follows from it, and everything says so.

`if seed:` would take it for no seed.
"""

import functools
import math
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow_federated as tff
import tree

import tff_dp
from tests.learning import small_model
from tests.program import protocol_run
from tests.systems.draw_and_discard import instance_run
from tests.systems.silos import secure_sum_run
from tests.systems.silos import silo_run
from tests.systems.silos import toy as silo_toy
from tff_dp import _checks
from tff_dp import execution
from tff_dp import mechanisms
from tff_dp import program
from tff_dp import silos
from tff_dp.participation import coins
from tff_dp.participation import sampling
from tff_dp.program import cohorts as cohorts_lib
from tff_dp.program import protocol_source
from tff_dp.program import run as run_lib
from tff_dp.program.display import documents
from tff_dp.systems.silos import silo_sampling

_ROUNDS = 4


def setUpModule():
  execution.set_default_context()


def _plan(**changes) -> tff_dp.DpFtrlPlan:
  return small_model.build_plan(mechanisms.Tree(_ROUNDS, restart_every=2),
                                **changes)


# Tracing takes longer than the tests.
@functools.cache
def _ftrl(seed):
  return tff_dp.dp_ftrl.build_dp_ftrl(
      small_model.build(),
      _plan(),
      client_optimizer=tff.learning.optimizers.build_sgdm(0.1),
      server_learning_rate=0.1,
      insecure_seed=seed,
  )


@functools.cache
def _adaptive(seed):
  plan = _plan(adaptive_clipping=mechanisms.AdaptiveClipping())
  return _created(plan.aggregator(insecure_seed=seed))


def _created(aggregator):
  return aggregator.create(
      tff.TensorType(np.float32, [small_model.NUM_PARAMS])
  )


def _cyclic_plan():
  return protocol_run.build_plan(protocol_run.CYCLIC)


@functools.cache
def _central(seed):
  return _created(
      _cyclic_plan().aggregator(clients_per_round=5, insecure_seed=seed)
  )


@functools.cache
def _allocation(seed):
  return tff_dp.allocation.build_allocation_sgd(
      small_model.build(), _cyclic_plan(), clients_per_slot=5,
      server_learning_rate=0.1, insecure_seed=seed,
  )


# Name -> function from a seed to an object whose initial state has the key. All
# but the first keep what they have built.
_SERVERS = {
    'aggregator': lambda seed: _created(_plan().aggregator(insecure_seed=seed)),
    'adaptive': _adaptive,
    'central': _central,
    'dp_ftrl': _ftrl,
    'allocation': _allocation,
}


def _keys(state) -> list[np.ndarray]:
  return [
      np.asarray(leaf)
      for path, leaf in tree.flatten_with_path(state)
      if path[-1] == 'key'
  ]


class ServerKeysTest(parameterized.TestCase):

  @parameterized.parameters(*_SERVERS)
  def test_key_of_the_noise(self, name):
    made = _SERVERS[name]
    zero, again, drawn = (made(seed).initialize() for seed in (0, 0, None))
    self.assertNotEmpty(_keys(zero))
    for key, same, fresh in zip(
        *map(_keys, (zero, again, drawn)), strict=True
    ):
      np.testing.assert_array_equal(key, same)
      self.assertFalse(np.array_equal(key, fresh))
    self.assertEqual(
        [run_lib.is_key_insecure(each) for each in (zero, drawn)],
        [True, False],
    )

  def test_fresh_keys_differ(self):
    process = _SERVERS['aggregator'](None)
    keys = [_keys(process.initialize())[0].tobytes() for _ in range(3)]
    self.assertLen(set(keys), 3)

  def test_coins_of_the_server(self):
    plan = instance_run.build_plan()

    build = functools.cache(
        lambda seed: instance_run.build_process(plan, server_seed=seed)
    )

    def drawn(seed):
      process = build(seed)
      return np.concatenate(
          [np.ravel(leaf) for leaf in tree.flatten(process.initialize())]
      )

    np.testing.assert_array_equal(drawn(0), drawn(0))
    self.assertFalse(np.array_equal(drawn(None), drawn(None)))

  @parameterized.parameters(-1, True, 0.0, '0')
  def test_what_is_no_seed(self, seed):
    for make in (
        lambda: _plan().aggregator(insecure_seed=seed),
        lambda: _silo_process(seed),
        lambda: _source(seed),
        lambda: coins.insecure_root_key(seed),
    ):
      with self.assertRaisesRegex(_checks.ArgumentError, 'insecure_seed='):
        make()


@functools.cache
def _silo_process(seed):
  return silos.build_noisy_mb_sgd(
      silo_toy.build_model(silo_run.SIZE, curvature=np.ones(silo_run.SIZE)),
      num_rounds=_ROUNDS,
      sampling=silo_sampling.PoissonSampling(5),
      noise_stddev=0.5,
      learning_rate=0.5,
      insecure_seed=seed,
      **silo_run.arguments(),
  )


class SilosTest(absltest.TestCase):

  def test_key_of_a_silo(self):
    data = {
        seed: [
            np.asarray(_silo_process(seed).client_data(name, [])['terms'][0]['key'])
            for name in ('north', 'south')
        ]
        for seed in (0, None)
    }
    north, south = data[0]
    self.assertTrue(north.any() and south.any())
    self.assertFalse(np.array_equal(north, south))
    # All zeros: the silo asks its own machine.
    self.assertFalse(data[None][0].any())

  def test_no_guarantee(self):
    for seed, is_void in ((0, True), (None, False)):
      plan = _silo_process(seed).plan
      self.assertEqual(bool(plan.voids), is_void)
      self.assertEqual(math.isinf(plan.epsilon(delta=1e-4)), is_void)

  def test_secure_sums_have_none(self):
    with self.assertRaisesRegex(TypeError, 'insecure_seed'):
      secure_sum_run.build_process(insecure_seed=0)


def _source(seed, plan=None) -> protocol_source.ProtocolSource:
  plan = plan or protocol_run.build_plan(protocol_run.SHUFFLED)
  return protocol_source.ProtocolSource.for_plan(
      plan, protocol_run.Clients(), insecure_seed=seed
  )


class CheckInsTest(parameterized.TestCase):

  def _cohorts(self, iterator):
    return [iterator.ids_of(iterator.advance()) for _ in range(8)]

  def test_coins_of_the_clients(self):
    zero = self._cohorts(_source(0).iterator())
    self.assertEqual(zero, self._cohorts(_source(0).iterator()))
    for other in (1, None):
      self.assertNotEqual(zero, self._cohorts(_source(other).iterator()))
    # Each iterator of a source has coins of its own.
    source = _source(0)
    source.iterator()
    self.assertNotEqual(zero, self._cohorts(source.iterator()))

  def test_it_is_said(self):
    plan = protocol_run.build_plan(protocol_run.SHUFFLED)
    for seed, is_known in ((0, True), (1, True), (None, False)):
      source = _source(seed)
      self.assertEqual(source.describe()['is_key_insecure'], is_known)
      found = cohorts_lib.build(plan, source, schedule_seed=0)
      self.assertEqual(found.is_key_insecure, is_known)

  def test_schedule_has_no_seed(self):
    plan = protocol_run.build_plan(protocol_run.SHUFFLED)
    for clients in (protocol_run.Clients(), _source(None)):
      with self.assertRaisesRegex(_checks.ArgumentError, 'schedule_seed=1'):
        cohorts_lib.build(plan, clients, schedule_seed=1)


class ScheduleTest(parameterized.TestCase):

  @parameterized.parameters(
      sampling.MinSeparation(6, min_index_gap=2),
      sampling.UniformSampling(6, max_participations=3),
      sampling.UniformSampling(6),
      sampling.ShuffledEpochs(6, 3),
  )
  def test_seed_of_a_schedule(self, schedule):
    plan = tff_dp.DpFtrlPlan(
        mechanisms.HonakerTree(6), schedule, l2_norm_clip=1.0,
        clients_per_round=3, noise_multiplier=2.0,
    )

    class Clients(protocol_run.Clients):
      client_ids = [f'client {i}' for i in range(200)]

    def drawn(seed):
      found = cohorts_lib.build(plan, Clients(), schedule_seed=seed)
      self.assertEqual(
          found.identity(), {'schedule_seed': seed, 'num_clients': 200}
      )
      found.begin('run')
      return [found.select(each).ids for each in range(1, 7)]

    self.assertEqual(drawn(0), drawn(0))
    self.assertNotEqual(drawn(0), drawn(1))
    # Rounds differ, but for passes in the same order.
    self.assertNotEqual(drawn(0)[0], drawn(0)[1])


class LoopTest(absltest.TestCase):

  def test_process_with_seed_0_has_no_guarantee(self):
    # Its charts take longer than the loop.
    self.enterContext(mock.patch.object(documents, 'write'))
    for seed in (0, None):
      loop = program.Loop(
          _ftrl(seed),
          small_model_clients(),
          output_dir=self.create_tempdir().full_path + '/run',
          delta=1e-5,
      )
      self.addCleanup(loop.close)
      statement = loop.statement()
      self.assertEqual(math.isinf(statement.epsilon), seed == 0)
      self.assertEqual(
          statement.points['implementation']['key'].endswith('void'), seed == 0
      )
      self.assertEqual(str(loop).startswith('NO PRIVACY'), seed == 0)


def small_model_clients():
  class Clients:
    client_ids = [f'{i}' for i in range(12)]

    def create_tf_dataset_for_client(self, client_id):
      return small_model.client(int(client_id))

  return Clients()


if __name__ == '__main__':
  absltest.main()
