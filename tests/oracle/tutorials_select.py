# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""TFF's tutorials on federated select, see `tutorials`."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution.conformance import at_clients
from tests.execution.conformance import at_server
from tests.oracle import oracle

CASES: list[oracle.Case] = []
_case = oracle.adds(CASES, 'tutorial')


# Federated select.


@_case()
def select_strings():
  keys_per_client = 2
  strings_type = tff.TensorType(np.str_, [None])
  get_size = tff.tensorflow.computation(lambda strings: tf.size(strings))
  select_fn = tff.tensorflow.computation(lambda rows, key: tf.gather(rows, key))

  @tff.tensorflow.computation(np.str_)
  def keys_for_client(text):
    parts = tf.strings.split([text], sep=',')[0]
    return tf.strings.to_number([parts[0], parts[1]], tf.int32)

  @tff.tensorflow.computation(tff.SequenceType(np.str_))
  def concatenate(values):
    def add(total, item):
      return tf.cond(
          tf.math.equal(total, ''),
          lambda: item,
          lambda: tf.strings.join([total, item], ','),
      )

    return values.reduce('', add)

  @tff.federated_computation(at_server(strings_type), at_clients(np.str_))
  def broadcast_by_keys(strings, texts):
    keys = tff.federated_map(keys_for_client, texts)
    assert keys.type_signature.member.shape == (keys_per_client,)
    max_key = tff.federated_map(get_size, strings)
    selected = tff.federated_select(keys, max_key, strings, select_fn)
    return tff.federated_map(concatenate, selected)

  return oracle.flat({
      'three': broadcast_by_keys(['a', 'b', 'c'], ['0,1', '1,2', '2,0']),
      'one': broadcast_by_keys(['a', 'b', 'c'], ['2,2']),
      'many': broadcast_by_keys(
          [f'word {number}' for number in range(9)],
          [f'{number % 9},{number % 4}' for number in range(30)],
      ),
  })


@_case(is_random=True)
def select_by_chance():
  num_strings = 50
  numbers_type = tff.TensorType(np.str_, [None])
  get_size = tff.tensorflow.computation(lambda strings: tf.size(strings))
  select_fn = tff.tensorflow.computation(lambda rows, key: tf.gather(rows, key))

  @tff.tensorflow.computation(np.int32)
  def random_key(max_key):
    return tf.random.uniform([1], minval=0, maxval=max_key, dtype=tf.int32)

  @tff.tensorflow.computation(tff.SequenceType(np.str_))
  def last(values):
    return values.reduce('', lambda _, value: value)

  @tff.federated_computation(at_server(numbers_type), at_clients(np.int32))
  def broadcast_one(strings, clients):
    del clients  # Says how many there are.
    max_key = tff.federated_map(get_size, strings)
    max_key_at_clients = tff.federated_broadcast(max_key)
    keys = tff.federated_map(random_key, max_key_at_clients)
    selected = tff.federated_select(keys, max_key, strings, select_fn)
    return tff.federated_map(last, selected)

  strings = [str(number) for number in range(num_strings)]
  drawn = [broadcast_one(strings, [0] * 150) for _ in range(2)]
  return {'drawn': np.array([[int(x) for x in row] for row in drawn])}


_WORDS = 'apple orange pear kiwi carrot peas leek trout tuna cod'.split()
_TAGS = ['FRUIT', 'VEGETABLE', 'FISH']
_NUM_WORDS = len(_WORDS) + 1  # One for all others.
_NUM_TAGS = len(_TAGS) + 1
_MAX_WORDS = 6

# In the order of the alphabet, or TFF could not send them in a dataset.
_Posts = collections.namedtuple('_Posts', ['bags', 'tags'])


def _posts_dataset(posts, batch_size: int) -> tf.data.Dataset:
  """Returns batches of bags of words, with tags."""

  def to_table(words):
    return tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(
            words, tf.range(len(words), dtype=tf.int64)
        ),
        num_oov_buckets=1,
    )

  word_table, tag_table = to_table(_WORDS), to_table(_TAGS)

  def to_ids(post):
    text = tf.strings.join([post['tokens'], post['title']], separator=' ')
    tags, _ = tf.unique(
        tag_table.lookup(tf.strings.split(post['tags'], sep='|'))
    )
    tokens, _ = tf.unique(word_table.lookup(tf.strings.split(text)))
    bag = tf.SparseTensor(
        tf.reshape(tokens, [tf.size(tokens), 1]),
        tf.ones(tf.size(tokens), tf.float32),
        dense_shape=(_NUM_WORDS,),
    )
    return _Posts(
        tf.sparse.reorder(bag),
        tf.reduce_max(tf.one_hot(tags, _NUM_TAGS), axis=0),
    )

  dataset = tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(
          tokens=tf.constant([text for text, _ in posts]),
          tags=tf.constant([tags for _, tags in posts]),
          title=['' for _ in posts],
      )
  )
  # Dense, since TFF 0.87 has no type for sparse elements any more.
  return (
      dataset.map(to_ids, num_parallel_calls=tf.data.AUTOTUNE)
      .batch(batch_size)
      .map(lambda batch: _Posts(tf.sparse.to_dense(batch.bags), batch.tags))
  )


def _with_sparse_tokens(dataset) -> tf.data.Dataset:
  return dataset.map(
      lambda batch: _Posts(tf.sparse.from_dense(batch.bags), batch.tags)
  )


def _logistic_model(num_words: int, num_tags: int) -> tf.keras.Model:
  return tf.keras.models.Sequential([
      tf.keras.layers.InputLayer(input_shape=(num_words,), sparse=True),
      tf.keras.layers.Dense(
          num_tags,
          activation='sigmoid',
          kernel_initializer=tf.keras.initializers.zeros,
          use_bias=False,
      ),
  ])


@tf.function
def _count_tokens(counts, batch):
  tokens = tf.sparse.reduce_sum(batch.bags, axis=0, output_is_sparse=True)
  return tf.sparse.add(counts, tf.cast(tokens, tf.int32))


@tf.function
def _frequent_tokens(dataset):
  """Returns a client's most frequent tokens, padded, and their number."""
  counts = dataset.reduce(
      tf.SparseTensor(
          indices=tf.zeros((0, 1), tf.int64),
          values=tf.zeros((0,), tf.int32),
          dense_shape=(_NUM_WORDS,),
      ),
      _count_tokens,
  )
  order = tf.argsort(counts.values, direction='DESCENDING', stable=True)
  tokens = tf.gather(tf.reshape(counts.indices, [-1]), order)
  number = tf.minimum(_MAX_WORDS, tf.size(tokens))
  padded = tf.pad(tokens[:number], [[0, _MAX_WORDS - number]])
  return tf.cast(tf.reshape(padded, [_MAX_WORDS]), tf.int32), number


@tf.function
def _with_local_ids(dataset, keys):
  """Returns the dataset with the places of its tokens among the keys."""
  places = tf.lookup.StaticHashTable(
      tf.lookup.KeyValueTensorInitializer(
          keys=tf.cast(keys, tf.int64),
          values=tf.range(tf.shape(keys)[0], dtype=tf.int64),
      ),
      default_value=-1,
  )

  def to_local(bags):
    indices = tf.transpose(bags.indices)
    tokens = tf.map_fn(places.lookup, indices[1])
    is_there = tokens >= 0
    tokens, rows = tokens[is_there], indices[0][is_there]
    return tf.sparse.reorder(
        tf.SparseTensor(
            tf.transpose(tf.concat([[rows], [tokens]], axis=0)),
            tf.ones(tf.size(tokens), tf.float32),
            dense_shape=[bags.dense_shape[0], _MAX_WORDS],
        )
    )

  return dataset.map(lambda batch: _Posts(to_local(batch.bags), batch.tags))


@tf.function
def _slices_as_tensor(slices):
  """Returns the elements of a dataset as the rows of a tensor."""
  rest = iter(slices.batch(_MAX_WORDS, drop_remainder=False))
  tensor = next(rest)
  more = rest.get_next_as_optional()
  tf.Assert(tf.logical_not(more.has_value()), [''])
  return tensor


@tf.function
def _train_on_slices(model, optimizer, slices, dataset, keys, number):
  """Returns a client's keys without padding, and the changes of their rows."""
  initial = _slices_as_tensor(slices)
  model.trainable_variables[0].assign(initial)
  keys = keys[:number]
  loss_fn = tf.keras.losses.BinaryCrossentropy()
  for features, labels in _with_local_ids(dataset, keys):
    with tf.GradientTape() as tape:
      loss = loss_fn(labels, model(features))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
  delta = model.trainable_weights[0] - initial
  return keys, tf.slice(delta, begin=[0, 0], size=[number, -1])


@_case()
def select_sparse_rows():
  clients = [
      _posts_dataset(
          [
              ('apple orange apple orange', 'FRUIT'),
              ('carrot trout', 'VEGETABLE|FISH'),
              ('orange apple', 'FRUIT'),
              ('orange', 'ORANGE|CITRUS'),
          ],
          2,
      ),
      _posts_dataset(
          [
              ('pear cod', 'FRUIT|FISH'),
              ('leek peas', 'VEGETABLE'),
              ('kiwi pear', 'FRUIT'),
              ('sturgeon', 'FISH'),
              ('sturgeon bass', 'FISH'),
          ],
          3,
      ),
      # More words than a client may select.
      _posts_dataset(
          [
              (' '.join([*_WORDS, 'other']), '|'.join(_TAGS)),
              ('cod other', 'FISH|OTHER'),
          ],
          2,
      ),
  ]
  model_type = tff.TensorType(np.float32, [_NUM_WORDS, _NUM_TAGS])
  data_type = tff.SequenceType(
      tff.types.tensorflow_to_type(clients[0].element_spec)
  )

  select_fn = tff.tensorflow.computation(lambda rows, key: tf.gather(rows, key))

  @tff.tensorflow.computation(data_type)
  def keys_for_client(dataset):
    return _frequent_tokens(_with_sparse_tokens(dataset))

  @tff.tensorflow.computation
  def client_train(slices, dataset, keys, number):
    return _train_on_slices(
        _logistic_model(_MAX_WORDS, _NUM_TAGS),
        tf.keras.optimizers.SGD(learning_rate=0.1),
        slices,
        _with_sparse_tokens(dataset),
        keys,
        number,
    )

  @tff.tensorflow.computation
  def server_update(model, total, num_clients):
    return model + total / num_clients

  def sum_of_slices(indices, slices):
    shape = (_NUM_WORDS, _NUM_TAGS)
    zero = tff.tensorflow.computation(lambda: tf.zeros(shape, tf.float32))()

    @tf.function
    def accumulate(total, client):
      rows, values = client
      return total + tf.convert_to_tensor(
          tf.IndexedSlices(values, rows, shape)
      )

    return tff.federated_aggregate(
        (indices, slices),
        zero=zero,
        accumulate=tff.tensorflow.computation(accumulate),
        merge=tff.tensorflow.computation(lambda one, other: one + other),
        report=tff.tensorflow.computation(lambda total: total),
    )

  @tff.federated_computation(at_server(model_type), at_clients(data_type))
  def update(model, data):
    max_key = tff.federated_value(_NUM_WORDS, tff.SERVER)
    keys, numbers = tff.federated_map(keys_for_client, data)
    slices = tff.federated_select(keys, max_key, model, select_fn)
    rows, deltas = tff.federated_map(
        client_train, (slices, data, keys, numbers)
    )
    num_clients = tff.federated_sum(tff.federated_value(1.0, tff.CLIENTS))
    return tff.federated_map(
        server_update, (model, sum_of_slices(rows, deltas), num_clients)
    )

  values = {'keys': [keys_for_client(dataset) for dataset in clients]}
  model = np.zeros([_NUM_WORDS, _NUM_TAGS], np.float32)
  for number, chosen in enumerate([[0, 1, 2], [1], [2, 0], [2, 1, 0]]):
    model = update(model, [clients[client] for client in chosen])
    values[f'round_{number}'] = model
  return oracle.flat(values)
