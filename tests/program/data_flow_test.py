# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of where clients' data are found to go."""

import collections

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp.aggregators import release_marks
from tff_dp.program import data_flow

_RELEASE = release_marks.Release.of({'noise': 1}, divisor=10)
_LOCAL = release_marks.Release.of({'noise': 1})
_SHARE = release_marks.Release.of({'noise': 1}, in_sum=True)
_CLIENTS = tff.FederatedType(np.float32, tff.CLIENTS)
_SERVER = tff.FederatedType(np.float32, tff.SERVER)
_NUMBER = tff.TensorType(np.float32)


def _traces(parameters, body) -> dict:
  """Returns leaf -> names of what brought data into it, for named results."""

  @tff.federated_computation(tff.to_type(parameters))
  def computation(arguments):
    given = [arguments[index] for index in range(len(parameters))]
    return collections.OrderedDict(body(*given))

  return {
      '/'.join(map(str, path)): {
          (trace.aggregation or 'own').split(' ')[0] for trace in traces
      }
      for path, traces in data_flow.follow(computation).leaves.items()
  }


@tff.tensorflow.computation(_NUMBER)
def _double(x):
  return 2 * x


@tff.tensorflow.computation(_NUMBER, _NUMBER)
def _add(x, y):
  return x + y


@tff.tensorflow.computation
def _one():
  return 1.0


@tff.tensorflow.computation(_NUMBER)
def _rounded(x):
  return tf.cast(x, tf.int32)


@tff.tensorflow.computation(tff.SequenceType(_NUMBER))
def _sum_of_sequence(values):
  return values.reduce(0.0, lambda x, y: x + y)


@tff.tensorflow.computation(_NUMBER, _NUMBER)
@tf.function(autograph=False)
def _release(noise, total):
  """Marks a part of what it returns."""
  noised = _RELEASE.mark(noise + total)
  return noised, 3 * noised, noise, total, noised + total, tf.constant(1.0)


def _through_a_variable(x):
  variable = tf.Variable(0.0)
  with tf.control_dependencies([variable.assign(x)]):
    return variable.read_value()


def _through_a_table(x):
  table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)
  place = tf.constant([0], tf.int64)
  with tf.control_dependencies([table.insert(place, [x])]):
    return table.lookup(place)[0]


def _through_a_queue(x):
  queue = tf.queue.FIFOQueue(1, [tf.float32], [[]])
  with tf.control_dependencies([queue.enqueue(x)]):
    return queue.dequeue()


def _through_python(x):
  kept = []
  put = tf.numpy_function(kept.append, [x], [])
  with tf.control_dependencies([put]):
    return tf.ensure_shape(tf.numpy_function(kept.pop, [], tf.float32), [])


class IntrinsicsTest(parameterized.TestCase):

  def test_data_of_the_clients_and_what_the_server_knows(self):
    found = _traces(
        [_CLIENTS, _SERVER],
        lambda own, known: dict(own=own, known=known),
    )
    self.assertEqual(found, {'own': {'own'}, 'known': set()})

  @parameterized.parameters(
      (tff.federated_sum,),
      (tff.federated_mean,),
      (tff.federated_min,),
      (tff.federated_max,),
      (lambda x: tff.federated_secure_sum_bitwidth(
          tff.federated_map(_rounded, x), 8),),
      (lambda x: tff.federated_mean(x, x),),
  )
  def test_aggregations(self, aggregate):
    found = _traces(
        [_CLIENTS, _SERVER],
        lambda own, known: dict(total=aggregate(own), known=known),
    )
    self.assertLen(found['total'], 1)
    self.assertStartsWith(found['total'].pop(), 'federated_')
    self.assertEmpty(found['known'])

  @parameterized.product(
      is_coin=(False, True),
      select=(tff.federated_select, tff.federated_secure_select),
  )
  def test_what_clients_ask_for(self, is_coin, select):
    key_type = tff.TensorType(np.int32, [1])

    @tff.tensorflow.computation(key_type)
    @tf.function(autograph=False)
    def draw(key):
      drawn = key // 2
      return release_marks.mark_coin(drawn) if is_coin else drawn

    @tff.tensorflow.computation
    def last():
      return 3

    @tff.tensorflow.computation(_NUMBER, np.int32)
    def take(value, index):
      return value + tf.cast(index, tf.float32)

    @tff.federated_computation(
        tff.FederatedType(key_type, tff.CLIENTS), _SERVER
    )
    def computation(keys, known):
      slices = select(
          tff.federated_map(draw, keys),
          tff.federated_eval(last, tff.SERVER),
          known,
          take,
      )
      return tff.federated_map(_sum_of_sequence, slices)

    flow = data_flow.follow(computation)
    self.assertLen(flow.asked, 0 if is_coin else 1)
    self.assertEmpty(flow.sent)
    # What a client is given is its own all the same.
    self.assertEqual([len(traces) for traces in flow.leaves.values()], [1])

  def test_aggregate_with_functions(self):
    @tff.tensorflow.computation
    def zero():
      return 0.0

    found = _traces(
        [_CLIENTS],
        lambda own: dict(
            total=tff.federated_aggregate(own, zero(), _add, _add, _double)
        ),
    )
    self.assertEqual(found, {'total': {'federated_aggregate'}})

  def test_structures_are_kept_apart(self):
    def body(own, known):
      total = tff.federated_sum(own)
      both = tff.federated_zip(
          collections.OrderedDict(total=total, known=known)
      )
      return dict(
          total=tff.federated_map(_double, both.total),
          known=tff.federated_map(_double, both.known),
          together=tff.federated_map(_add, (both.total, both.known)),
      )

    self.assertEqual(
        _traces([_CLIENTS, _SERVER], body),
        {
            'total': {'federated_sum'},
            'known': set(),
            'together': {'federated_sum'},
        },
    )

  def test_what_clients_are_sent(self):
    @tff.federated_computation(_CLIENTS, _SERVER)
    def computation(own, known):
      sent = tff.federated_broadcast((tff.federated_sum(own), known))
      return tff.federated_max(sent[0])

    flow = data_flow.follow(computation)
    (trace,) = flow.sent
    self.assertEqual(trace.aggregation, 'federated_sum of {float32}@CLIENTS')
    self.assertIn(trace, flow.leaves[()])

  def test_clients_are_sent_what_the_server_knows(self):
    @tff.federated_computation(_CLIENTS, _SERVER)
    def computation(own, known):
      sent = tff.federated_broadcast(known)
      return tff.federated_sum(tff.federated_map(_add, (own, sent)))

    self.assertEmpty(data_flow.follow(computation).sent)

  def test_counts_of_clients_depend_on_them(self):
    found = _traces(
        [_CLIENTS],
        lambda own: dict(
            count=tff.federated_sum(tff.federated_value(1.0, tff.CLIENTS)),
            evaluated=tff.federated_sum(tff.federated_eval(_one, tff.CLIENTS)),
            at_server=tff.federated_eval(_one, tff.SERVER),
        ),
    )
    self.assertEqual(
        found,
        {
            'count': {'federated_sum'},
            'evaluated': {'federated_sum'},
            'at_server': set(),
        },
    )

  def test_selection_by_secret_keys(self):
    @tff.tensorflow.computation(_NUMBER, np.int32)
    def pick(x, key):
      return x + tf.cast(key, tf.float32)

    @tff.tensorflow.computation
    def max_key():
      return 3

    def body(keys, known):
      slices = tff.federated_select(
          keys, tff.federated_eval(max_key, tff.SERVER), known, pick
      )
      return dict(
          total=tff.federated_sum(tff.federated_map(_sum_of_sequence, slices))
      )

    keys_type = tff.FederatedType(
        tff.TensorType(np.int32, [2]), tff.CLIENTS
    )
    self.assertEqual(
        _traces([keys_type, _SERVER], body), {'total': {'federated_sum'}}
    )


class MarksTest(parameterized.TestCase):

  def _released(self, release):
    return _traces(
        [_CLIENTS, _SERVER],
        lambda own, known: dict(
            value=tff.federated_map(release, (known, tff.federated_sum(own)))
        ),
    )

  def test_only_what_is_marked_is_free_of_data(self):
    found = self._released(_release)
    self.assertEqual(
        [found[f'value/{index}'] for index in range(6)],
        [
            set(),  # Marked,
            set(),  # and what follows from it.
            set(),  # The noise alone.
            {'federated_sum'},  # The sum as it came in,
            {'federated_sum'},  # also if added to what is marked.
            set(),
        ],
    )

  def test_calls_of_marked_graphs_are_counted(self):
    @tff.federated_computation(_CLIENTS, _SERVER)
    def twice(own, known):
      total = tff.federated_sum(own)
      first = tff.federated_map(_release, (known, total))
      second = tff.federated_map(_release, (first[0], total))
      return first[0], second[0]

    self.assertEqual(
        data_flow.follow(twice).releases, (_RELEASE, _RELEASE)
    )

  def test_noise_of_the_server_hides_nothing_at_clients(self):
    found = _traces(
        [_CLIENTS],
        lambda own: dict(
            total=tff.federated_sum(
                tff.federated_map(_release, (own, own))[0]
            )
        ),
    )
    self.assertEqual(found, {'total': {'federated_sum'}})

  def test_noise_of_clients(self):
    @tff.tensorflow.computation(_NUMBER)
    @tf.function(autograph=False)
    def randomize(x):
      return _LOCAL.mark(x + 1.0), x

    found = _traces(
        [_CLIENTS, _SERVER],
        lambda own, known: dict(
            reports=tff.federated_sum(tff.federated_map(randomize, own)),
            # It hides a client's own data, not a sum of the others'.
            total=tff.federated_map(randomize, tff.federated_max(own)),
            known=known,
        ),
    )
    self.assertEqual(
        found,
        {
            'reports/0': set(),
            'reports/1': {'federated_sum'},
            'total/0': {'federated_max'},
            'total/1': {'federated_max'},
            'known': set(),
        },
    )

  @parameterized.parameters(
      _through_a_variable,
      _through_a_table,
      _through_a_queue,
      _through_python,
  )
  def test_graph_that_passes_values_without_an_edge_hides_nothing(
      self, through
  ):
    @tff.tensorflow.computation(_NUMBER, _NUMBER)
    def release(noise, total):
      return _RELEASE.mark(noise), through(total)

    self.assertEqual(
        self._released(release),
        {'value/0': {'federated_sum'}, 'value/1': {'federated_sum'}},
    )

  @parameterized.parameters(
      _through_a_table, _through_a_queue, _through_python
  )
  def test_nor_does_one_that_does_so_in_a_function(self, through):
    @tf.function(autograph=False)
    def inner(noise, total):
      return _RELEASE.mark(noise), through(total)

    @tff.tensorflow.computation(_NUMBER, _NUMBER)
    def release(noise, total):
      return inner(noise, total)

    self.assertEqual(
        self._released(release),
        {'value/0': {'federated_sum'}, 'value/1': {'federated_sum'}},
    )

  def test_shares_of_noise_hide_nothing_but_in_a_secure_sum(self):
    @tff.tensorflow.computation(np.int32)
    @tf.function(autograph=False)
    def masked(x):
      return _SHARE.mark(x + 1)

    integers = tff.FederatedType(np.int32, tff.CLIENTS)

    @tff.tensorflow.computation(np.int32)
    @tf.function(autograph=False)
    def as_at_server(x):
      return _RELEASE.mark(x)

    def sums(own):
      shares = tff.federated_map(masked, own)
      return dict(
          secure=tff.federated_secure_sum_bitwidth(shares, 8),
          plain=tff.federated_sum(shares),
          largest=tff.federated_max(shares),
          # The noise of the server hides sums.
          again=tff.federated_sum(tff.federated_map(as_at_server, shares)),
      )

    self.assertEqual(
        _traces([integers], sums),
        {
            'secure': set(),
            'plain': {'federated_sum'},
            'largest': {'federated_max'},
            'again': {'federated_sum'},
        },
    )

  def test_coin_of_a_client_hides_nothing_of_the_others(self):
    @tff.tensorflow.computation(_NUMBER)
    @tf.function(autograph=False)
    def coin(x):
      return release_marks.mark_coin(x)

    def body(own):
      total = tff.federated_max(own)
      told = tff.federated_map(coin, tff.federated_broadcast(total))
      return dict(
          own=tff.federated_map(coin, own),
          at_server=tff.federated_map(coin, total),
          told=told,
          told_again=tff.federated_sum(told),
      )

    self.assertEqual(
        _traces([_CLIENTS], body),
        {
            'own': set(),
            'at_server': {'federated_max'},
            'told': {'federated_max'},
            'told_again': {'federated_max'},
        },
    )

  def test_mark_in_a_branch_counts_for_nothing(self):
    @tff.tensorflow.computation(_NUMBER, _NUMBER)
    @tf.function(autograph=False)
    def release(noise, total):
      return tf.cond(
          noise > 0, lambda: _RELEASE.mark(noise + total), lambda: total
      )

    self.assertEqual(self._released(release), {'value': {'federated_sum'}})

  def test_functions_that_call_functions(self):
    @tf.function(autograph=False)
    def inner(noise, total):
      return total, _RELEASE.mark(noise + total)

    @tff.tensorflow.computation(_NUMBER, _NUMBER)
    @tf.function(autograph=False)
    def release(noise, total):
      raw, noised = inner(noise, total)
      return noised, raw

    self.assertEqual(
        self._released(release),
        {'value/0': set(), 'value/1': {'federated_sum'}},
    )


class ReleaseTest(parameterized.TestCase):

  @parameterized.parameters(_RELEASE, _LOCAL)
  def test_is_read_back_from_the_name_of_its_mark(self, release):
    with tf.Graph().as_default():
      names = [release.mark(tf.constant(1.0)).op.name for _ in range(2)]
      with tf.name_scope('scope'):
        names.append(release.mark(tf.constant(1.0)).op.name)
    self.assertLen(set(names), 3)
    for name in names:
      self.assertEqual(release_marks.Release.parse(name), release)

  def test_other_names(self):
    for name in ('add', f'{release_marks.PREFIX}12', 'tff_dp_release'):
      self.assertIsNone(release_marks.Release.parse(name))

  def test_number_is_an_int64_of_the_fingerprint(self):
    for fingerprint, number in (('0' * 15 + 'a', 10), ('f' * 16, -1)):
      self.assertEqual(release_marks.Release(fingerprint).number, number)

  def test_fingerprint_depends_on_every_fact(self):
    self.assertNotEqual(
        _LOCAL.fingerprint, release_marks.Release.of({'noise': 2}).fingerprint
    )
    self.assertEqual(_LOCAL.fingerprint, _RELEASE.fingerprint)


if __name__ == '__main__':
  absltest.main()
