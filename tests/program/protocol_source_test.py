# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of check-ins as a TFF data source."""

import asyncio
import collections
import hashlib
import json
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import allocation
from tff_dp import check_ins
from tff_dp.mechanisms import randomizers
from tff_dp.participation import samplers
from tff_dp.program import cohorts as cohorts_lib
from tff_dp.program import protocol_source

_PROTOCOLS = (
    check_ins.FixedWindowCheckIn(8, 0.5),
    check_ins.SlidingWindowCheckIn(8, 3),
    check_ins.AveragedCheckIn(8, 5),
    allocation.RandomAllocation(8, 2, 0.5),
    check_ins.ShuffledCheckIn(8, 0.3, 5, dropout_rate=0.2),
)


class _Clients:
  """Client i has i examples, all of them i."""

  def __init__(self, num_clients=12):
    self.client_ids = [f'client {i}' for i in range(num_clients)]

  def create_tf_dataset_for_client(self, client_id: str) -> tf.data.Dataset:
    number = int(client_id.removeprefix('client '))
    values = np.full([number], number, np.float32)
    return tf.data.Dataset.from_tensor_slices(values).batch(4)


def _source(protocol=_PROTOCOLS[0], num_clients=12, **options):
  return protocol_source.ProtocolSource(
      protocol, _Clients(num_clients), **options
  )


def _secret(step):
  return step.number, step.cohort.clients.tolist(), step.cohort[1:]


class SourceTest(parameterized.TestCase):

  def test_type(self):
    examples = tff.SequenceType(tff.TensorType(np.float32, [None]))
    source = _source()
    self.assertEqual(
        source.federated_type,
        tff.FederatedType(
            collections.OrderedDict(
                examples=examples,
                key=tff.SequenceType(tff.TensorType(np.int64, [None, 2])),
            ),
            tff.CLIENTS,
        ),
    )
    self.assertEqual(source.iterator().federated_type, source.federated_type)
    plain = _source(with_keys=False)
    self.assertEqual(
        plain.federated_type, tff.FederatedType(examples, tff.CLIENTS)
    )
    self.assertIsInstance(source, tff.program.FederatedDataSource)

  @parameterized.parameters(1, 0, 5)
  def test_a_number_of_clients_is_refused(self, k):
    iterator = _source().iterator()
    with self.assertRaisesRegex(_checks.ArgumentError, f'k={k} .*None'):
      iterator.select(k)
    self.assertEqual(iterator.position, 0)

  def test_data_are_those_of_the_clients_that_came(self):
    for protocol in _PROTOCOLS:
      source = _source(protocol, insecure_seed=4)
      selected = source.iterator()
      stepped = _source(protocol, insecure_seed=4).iterator()
      for _ in range(8):
        data, step = selected.select(), stepped.advance()
        positions = step.cohort.clients.tolist()
        self.assertLen(data, len(positions))
        for value, position in zip(data, positions, strict=True):
          examples = [x for batch in value['examples'] for x in batch.numpy()]
          number = 0 if position == samplers.DUMMY else position
          self.assertEqual(examples, [number] * number)
          (key,) = value['key']
          self.assertEqual((key.dtype, key.shape), (np.int64, (1, 2)))

  def test_empty_slots_get_dummies_with_keys_of_their_own(self):
    protocol = check_ins.FixedWindowCheckIn(8, 0.0)
    keys = []
    iterator = _source(protocol).iterator()
    for _ in range(8):
      (value,) = iterator.select()
      self.assertEmpty(list(value['examples']))
      self.assertEqual(
          value['examples'].element_spec, tf.TensorSpec([None], tf.float32)
      )
      keys.append(tuple(value['key'][0][0]))
    self.assertLen(set(keys), 8)

  def test_a_client_keeps_its_noise_key(self):
    protocol = check_ins.ShuffledCheckIn(30, 0.5, 5)
    source = _source(protocol)
    iterator = source.iterator()
    keys = collections.defaultdict(set)
    for _ in range(30):
      step = iterator.advance()
      for id_, value in zip(iterator.ids_of(step), iterator.data_of(step)):
        keys[id_].add(tuple(value['key'][0][0]))
    self.assertLen(keys, 12)
    self.assertEqual({len(found) for found in keys.values()}, {1})
    self.assertLen(set.union(*keys.values()), 12)

  def test_without_keys(self):
    iterator = _source(
        allocation.RandomAllocation(3), with_keys=False
    ).iterator()
    count = 0
    for _ in range(3):
      for dataset in iterator.select():
        self.assertEqual(dataset.element_spec, tf.TensorSpec([None]))
        count += 1
    self.assertEqual(count, 12)

  def test_warm_up_of_a_sliding_window_is_empty(self):
    iterator = _source(check_ins.SlidingWindowCheckIn(8, 3)).iterator()
    self.assertEqual(
        [len(iterator.select()) for _ in range(8)], [0, 0, 1, 1, 1, 1, 1, 1]
    )

  def test_iterators_have_coins_of_their_own(self):
    def passes(source):
      found = []
      for _ in range(3):
        iterator = source.iterator()
        found.append([_secret(iterator.advance()) for _ in range(16)])
      return found

    protocol = check_ins.AveragedCheckIn(8, 5)
    first = passes(_source(protocol, num_passes=2, insecure_seed=1))
    self.assertEqual(
        first, passes(_source(protocol, num_passes=2, insecure_seed=1))
    )
    others = [
        *first,
        *passes(_source(protocol, num_passes=2, insecure_seed=2)),
        *passes(_source(protocol, num_passes=2)),
        *passes(_source(protocol, num_passes=2)),
    ]
    self.assertLen({str(each) for each in others}, 12)
    # And so have the passes of one iterator.
    for each in first:
      cohorts_of = [clients for _, clients, _ in each]
      self.assertNotEqual(cohorts_of[:8], cohorts_of[8:])
      for half in (cohorts_of[:8], cohorts_of[8:]):
        self.assertCountEqual(sum(half, []), range(12))

  def test_end_of_the_protocol(self):
    iterator = _source(num_passes=2).iterator()
    for _ in range(16):
      iterator.select()
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'step 17 is beyond the 16'
    ):
      iterator.select()

  @parameterized.parameters(
      (dict(num_passes=0), 'num_passes=0'),
      (dict(sampler='quick'), "sampler='quick'"),
      (dict(dropout_rate=1.0), 'dropout_rate=1.0'),
      (dict(lost_winner='wait'), "lost_winner='wait'"),
      (dict(insecure_seed=-1), 'insecure_seed=-1'),
      (dict(protocol=5), 'protocol=5'),
      (
          dict(protocol=check_ins.AveragedCheckIn(8, 13)),
          'min_num_clients=13 .*12, the number of clients',
      ),
  )
  def test_bad_argument_is_named(self, bad, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      _source(**bad)

  @parameterized.parameters(
      (['a'] * 40, "client_ids='a' .* listed 40 times"),
      (['a', 'b', b'b'], "client_ids='b' .* listed 2 times"),
  )
  def test_a_client_that_is_listed_again_is_refused(self, client_ids, message):
    clients = _Clients()
    clients.client_ids = client_ids
    # A crowd of one client is none.
    protocol = check_ins.ShuffledCheckIn(8, 0.3, min_num_clients=3)
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      protocol_source.ProtocolSource(protocol, clients)
    clients.client_ids = ['1', 1]
    with self.assertRaisesRegex(TypeError, 'str or bytes, found int'):
      protocol_source.ProtocolSource(protocol, clients)

  @parameterized.parameters(0.0, 0.19)
  def test_credited_dropout_has_to_take_place(self, dropout_rate):
    protocol = check_ins.ShuffledCheckIn(
        8, 0.3, 5, dropout_rate=0.2, assume_independent_dropout=True
    )
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'dropout_rate=.* at least 0.2'
    ):
      _source(protocol, dropout_rate=dropout_rate)
    self.assertEqual(_source(protocol).dropout_rate, 0.2)
    self.assertEqual(_source(protocol, dropout_rate=0.3).dropout_rate, 0.3)

  def test_dropout_is_that_of_the_protocol_unless_given(self):
    protocol = check_ins.ShuffledCheckIn(8, 0.3, 5, dropout_rate=0.2)
    self.assertEqual(_source(protocol).dropout_rate, 0.2)
    self.assertEqual(_source(protocol, dropout_rate=0.5).dropout_rate, 0.5)
    self.assertEqual(_source().dropout_rate, 0.0)


class ResumeTest(parameterized.TestCase):

  @parameterized.product(
      protocol=_PROTOCOLS,
      sampler=samplers.KINDS,
  )
  def test_resumed_equals_uninterrupted(self, protocol, sampler):
    options = dict(
        num_passes=2,
        sampler=sampler,
        dropout_rate=0.2,
        lost_winner='redraw',
    )
    source = _source(protocol, **options)
    iterator = source.iterator()
    saved, expected = [iterator.to_bytes()], []
    for _ in range(16):
      step = iterator.advance()
      expected.append((_secret(step), str(iterator.data_of(step))))
      saved.append(iterator.to_bytes())
    for position in (0, 1, 7, 8, 11, 16):
      # As in another process: a new source, and nothing but the bytes.
      other = _source(protocol, **options)
      resumed = other.restored(saved[position])
      self.assertEqual(resumed.position, position)
      for place in range(position, 16):
        step = resumed.advance()
        self.assertEqual(
            (_secret(step), str(resumed.data_of(step))), expected[place]
        )
      self.assertEqual(resumed.to_bytes(), saved[-1])

  def test_keys_too(self):
    source = _source()
    iterator = source.iterator()
    saved = iterator.to_bytes()
    first = [value['key'][0].tolist() for value in iterator.select()]
    again = [
        value['key'][0].tolist() for value in source.restored(saved).select()
    ]
    self.assertEqual(first, again)

  def test_tff_saves_and_loads_it(self):
    source = _source()
    iterator = source.iterator()
    iterator.select()
    with tempfile.TemporaryDirectory() as root:
      manager = tff.program.FileProgramStateManager(root)

      async def save_and_load():
        await manager.save({'iterator': iterator}, 1)
        return await manager.load(1, {'iterator': iterator})

      loaded = asyncio.run(save_and_load())['iterator']
    self.assertIsInstance(loaded, protocol_source.ProtocolIterator)
    self.assertEqual(loaded.position, 1)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'not attached to clients'
    ):
      loaded.select()
    self.assertEqual(
        _secret(loaded.attached(source).advance()), _secret(iterator.advance())
    )

  @parameterized.parameters(
      (dict(protocol=check_ins.FixedWindowCheckIn(8, 0.4)), 'protocol'),
      (dict(num_clients=13), 'num_clients'),
      (dict(num_passes=2), 'num_passes'),
      (dict(sampler='literal'), 'sampler'),
      (dict(dropout_rate=0.1), 'dropout_rate'),
      (dict(lost_winner='redraw'), 'lost_winner'),
      (dict(insecure_seed=1), 'is_key_insecure'),
  )
  def test_another_source_is_refused(self, changes, name):
    saved = _source().iterator().to_bytes()
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, rf'another source \({name}\)'
    ):
      _source(**changes).restored(saved)

  def test_damage_is_refused(self):
    saved = _source().iterator().to_bytes()
    for damaged in (saved[:-1], saved[:40] + b'x' + saved[41:], b''):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'damaged'):
        _source().restored(damaged)

  def test_another_version_is_refused(self):
    body = json.loads(_source().iterator().to_bytes()[32:])
    body = json.dumps(body | {'version': 2}, sort_keys=True).encode()
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'another version'):
      _source().restored(hashlib.sha256(body).digest() + body)

  @parameterized.product(protocol=_PROTOCOLS, sampler=samplers.KINDS)
  def test_other_draws_from_the_same_key(self, protocol, sampler):
    source = _source(protocol, sampler=sampler)
    saved = source.iterator().to_bytes()
    permutation = np.random.Generator.permutation

    def reversed_permutation(rng, *args):
      return permutation(rng, *args)[::-1]

    fake = mock.Mock(wraps=np.random.Generator(np.random.PCG64(0)))
    fake.permutation = lambda n: reversed_permutation(
        np.random.Generator(np.random.PCG64(0)), n
    )
    with mock.patch.object(samplers.coins, 'generator', return_value=fake):
      is_repeated = sampler == 'literal'
      if is_repeated or isinstance(protocol, check_ins.ShuffledCheckIn):
        self.assertEqual(source.restored(saved).position, 0)
      else:
        with self.assertRaisesRegex(
            _checks.PrivacyRefusedError, 'report twice in a pass'
        ):
          source.restored(saved)


class CohortsTest(parameterized.TestCase):

  def _plan(self, protocol=_PROTOCOLS[0], **options):
    return check_ins.CheckInPlan(
        protocol, randomizers.Sphere(1.0, 0.5), **options
    )

  def _rows(self, plan, source=None):
    found = cohorts_lib.build(plan, source or _Clients(), schedule_seed=0)
    found.begin('run')
    return found, [found.select(t) for t in range(1, plan.num_rounds + 1)]

  @parameterized.parameters(*_PROTOCOLS[:2])
  def test_nothing_is_said_of_a_secret_occupancy(self, protocol):
    found, rows = self._rows(self._plan(protocol))
    for row in rows:
      self.assertEqual((row.released, row.not_covered), ({}, {}))
    self.assertFalse(found.keeps_client_metrics)
    observed = found.observed(8)
    self.assertEqual((observed.num_reports, observed.rate), (None, None))
    self.assertIsNone(found.warning())

  @parameterized.parameters(*_PROTOCOLS[:2])
  def test_rounds_that_a_killed_process_had_begun_are_observed(self, protocol):
    found = cohorts_lib.build(self._plan(protocol), _Clients(), schedule_seed=0)
    found.begin('run')
    # Before any of them is repeated, and then among them.
    self.assertEqual(found.observed(5).num_rounds, 5)
    found.select(1)
    observed = found.observed(5)
    self.assertEqual((observed.num_rounds, observed.rounds_counted), (5, 1))

  def test_public_counts_and_rate(self):
    protocol = check_ins.ShuffledCheckIn(40, 0.3, 5)
    found, rows = self._rows(self._plan(protocol))
    total = 0
    for t, row in enumerate(rows, 1):
      self.assertEqual(row.released['reports'], len(row.ids))
      total += len(row.ids)
      self.assertAlmostEqual(row.released['check_in_rate'], total / (12 * t))
      self.assertBetween(
          row.released['check_in_rate'],
          row.released['check_in_rate_low'],
          row.released['check_in_rate_high'],
      )
    self.assertEqual(found.observed(40).num_reports, total)
    self.assertIsNone(found.warning())
    found, rows = self._rows(self._plan(check_ins.AveragedCheckIn(8, 5)))
    self.assertEqual([list(row.released) for row in rows], [['reports']] * 8)

  def test_rate_that_is_not_as_assumed(self):
    plan = self._plan(check_ins.ShuffledCheckIn(60, 0.3, 5))
    source = protocol_source.ProtocolSource.for_plan(
        plan, _Clients(), dropout_rate=0.6
    )
    found, _ = self._rows(plan, source)
    self.assertIn('ASSUMPTION IN DOUBT', found.warning())
    self.assertEqual(found.observed(60).warning, found.warning())

  @parameterized.parameters(
      (dict(protocol=check_ins.FixedWindowCheckIn(8, 0.6)), 'protocol'),
      (dict(num_passes=2), 'num_passes'),
      (dict(with_keys=False), 'with_keys'),
  )
  def test_source_that_is_not_of_the_plan(self, changes, name):
    with self.assertRaisesRegex(_checks.ArgumentError, f'clients.{name}='):
      cohorts_lib.build(self._plan(), _source(**changes), schedule_seed=0)

  def test_seed_of_a_schedule_is_refused(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'schedule_seed=3'):
      cohorts_lib.build(self._plan(), _Clients(), schedule_seed=3)

  def test_rounds_go_in_order(self):
    found = cohorts_lib.build(self._plan(), _Clients(), schedule_seed=0)
    found.begin('run')
    found.select(1)
    with self.assertRaisesRegex(_checks.ArgumentError, 'round_index=1'):
      found.select(1)


if __name__ == '__main__':
  absltest.main()
