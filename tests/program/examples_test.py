# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests that examples of the wrong type are an error before round 1."""

import collections
import pathlib
import tempfile
import types

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import small_model
from tff_dp import _checks
from tff_dp import mechanisms
from tff_dp import program
from tff_dp.learning import keyed_data
from tff_dp.learning import local_training
from tff_dp.program import cohorts
from tff_dp.program import examples

_BATCH = collections.OrderedDict(
    x=tf.TensorSpec([None, 2], tf.float32), y=tf.TensorSpec([None], tf.int32)
)


def _process(*, with_keys: bool = False, spec=_BATCH):
  """Returns an object with the type of a process and nothing else."""
  member = tff.SequenceType(tff.types.tensorflow_to_type(spec))
  if with_keys:
    member = tff.to_type(
        collections.OrderedDict(examples=member, key=keyed_data.KEYS_TYPE)
    )
  parameter = [None, tff.FederatedType(member, tff.CLIENTS)]
  signature = types.SimpleNamespace(parameter=parameter)
  return types.SimpleNamespace(
      next=types.SimpleNamespace(type_signature=signature)
  )


def _clients(*, batched: bool = True, **changes):
  """Returns one client with three examples."""
  parts = collections.OrderedDict(
      x=np.zeros([3, 2], np.float32), y=np.zeros([3], np.int32)
  )
  parts.update(changes)
  data = tff.simulation.datasets.TestClientData({'a': parts})
  return data.preprocess(lambda each: each.batch(2)) if batched else data


class ExamplesTest(parameterized.TestCase):

  @parameterized.parameters(False, True)
  def test_examples_of_the_spec_pass(self, with_keys):
    examples.check(_process(with_keys=with_keys), _clients())

  def test_a_list_of_batches_is_not_read(self):
    clients = types.SimpleNamespace(
        client_ids=['a'], create_tf_dataset_for_client=lambda _: ['anything']
    )
    examples.check(_process(), clients)

  @parameterized.product(
      (
          dict(
              changes={'batched': False},
              why='the datasets have no batches',
              way_out='dataset.batch(20)',
          ),
          dict(
              changes={'x': np.zeros([3, 2])},
              why='dtype of x is float64[?,2], not float32[?,2]',
              way_out='tf.cast',
          ),
          dict(
              changes={'x': np.zeros([3, 5], np.float32)},
              why='shape of x is float32[?,5], not float32[?,2]',
              way_out='tf.reshape',
          ),
          dict(
              changes={'z': np.zeros([3], np.int32)},
              why='the model reads x, y, the datasets have x, y, z',
              way_out='dataset.map',
          ),
      ),
      with_keys=(False, True),
  )
  def test_other_examples_are_refused_in_three_lines(
      self, changes, why, way_out, with_keys
  ):
    with self.assertRaises(_checks.ArgumentError) as raised:
      examples.check(_process(with_keys=with_keys), _clients(**changes))
    lines = str(raised.exception).split('\n')
    self.assertLen(lines, 3)
    self.assertStartsWith(lines[0], "clients='<x=")
    self.assertIn(why, lines[1])
    self.assertIn(way_out, lines[2])

  def test_clients_may_have_an_attribute_of_that_name(self):
    for batched in (True, False):
      data = _clients(batched=batched)
      clients = types.SimpleNamespace(
          clients=['a'],
          client_ids=data.client_ids,
          create_tf_dataset_for_client=data.create_tf_dataset_for_client,
      )
      if batched:
        examples.check(_process(), clients)
        continue
      with self.assertRaisesRegex(ValueError, 'no batches'):
        examples.check(_process(), clients)

  def test_source_is_seen_through_if_it_has_clients(self):
    class Source(cohorts.Source):
      federated_type = capabilities = iterator = cohorts = None

    source = Source()
    examples.check(_process(), source)
    source.clients = _clients(batched=False)
    with self.assertRaisesRegex(ValueError, 'no batches'):
      examples.check(_process(), source)

  @parameterized.parameters(
      (
          lambda x, y: {'0': x, '1': y},
          tuple(_BATCH.values()),
          'the structure of',
      ),
      (
          lambda x, y: {'x': tf.data.Dataset.from_tensors(x), 'y': y},
          _BATCH,
          'the structure of',
      ),
      (lambda x, y: {'x': tf.sparse.from_dense(x), 'y': y}, _BATCH, 'to_dense'),
      (
          lambda x, y: {'x': tf.RaggedTensor.from_tensor(x), 'y': y},
          _BATCH,
          'to_tensor',
      ),
      (lambda x, y: {'x': x, 'y': None}, _BATCH, 'is None'),
  )
  def test_other_kinds_of_parts_are_refused_in_three_lines(
      self, build, spec, way_out
  ):
    dataset = (
        _clients()
        .create_tf_dataset_for_client('a')
        .map(lambda each: build(each['x'], each['y']))
    )
    clients = types.SimpleNamespace(
        client_ids=['a'], create_tf_dataset_for_client=lambda _: dataset
    )
    with self.assertRaises(_checks.ArgumentError) as raised:
      examples.check(_process(spec=spec), clients)
    lines = str(raised.exception).split('\n')
    self.assertLen(lines, 3)
    self.assertStartsWith(lines[0], 'clients=')
    self.assertIn(way_out, lines[2])

  def test_train_and_loop_write_nothing_for_unbatched_examples(self):
    plan = small_model.build_plan(mechanisms.Independent(num_rounds=2))
    process = small_model.build_process(plan)
    rows = small_model.client(0).unbatch()
    clients = tff.simulation.datasets.ClientData.from_clients_and_tf_fn(
        ['a', 'b'], lambda _: rows
    )
    root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    for start in (program.train, program.Loop):
      with self.assertRaisesRegex(ValueError, 'clients=.*\nwhy: .*batches'):
        start(process, clients, output_dir=root / 'run', delta=1e-5)
    self.assertEmpty(list(root.iterdir()))

  @parameterized.parameters(
      [(tf.TensorSpec([2], tf.float32), tf.TensorSpec([], tf.float32))],
      [(tf.TensorSpec([2], tf.float32), tf.TensorSpec([1], tf.float32))],
  )
  def test_a_model_for_single_examples_is_refused_before_it_is_traced(
      self, spec
  ):
    model = small_model.build()
    functional = tff.learning.models.FunctionalModel(
        initial_weights=model.initial_weights,
        predict_on_batch_fn=model.predict_on_batch,
        loss_fn=model.loss,
        input_spec=spec,
    )
    single = types.SimpleNamespace(input_spec=spec)
    for model_fn in (functional, lambda: single):
      with self.assertRaisesRegex(ValueError, 'input_spec=.*\nwhy: .*batches'):
        local_training.build_client_work(
            model_fn, tff.learning.optimizers.build_sgdm(0.1)
        )

  @parameterized.parameters(
      [(
          tf.TensorSpec([None, 3], tf.float32),
          tf.TensorSpec([None], tf.int32),
          tf.TensorSpec([], tf.float32),
      )],
      [(
          tf.TensorSpec([None, 3], tf.float32),
          tf.TensorSpec([7], tf.int32),
          tf.TensorSpec([5], tf.int32),
      )],
      [(tf.TensorSpec([7, 3], tf.float32), tf.TensorSpec([7], tf.int32))],
      [(tf.TensorSpec(None, tf.float32), tf.TensorSpec([], tf.int32))],
  )
  def test_one_part_with_a_batch_dimension_is_enough(self, spec):
    local_training._check_is_batched(spec)

  def test_a_model_for_other_shapes_is_refused_in_three_lines(self):
    def model_fn():
      layer = tf.keras.layers.Dense(10, input_shape=(3,))
      return tff.learning.models.from_keras_model(
          tf.keras.Sequential([layer]),
          loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
          input_spec=_BATCH,
      )

    with self.assertRaises(_checks.ArgumentError) as raised:
      local_training.build_client_work(
          model_fn, tff.learning.optimizers.build_sgdm(0.1)
      )
    value, why, way_out = str(raised.exception).split('\n')
    self.assertStartsWith(value, "input_spec='<x=float32[?,2],y=int32[?]>'")
    self.assertIn('expected shape=(None, 3), found shape=(None, 2)', why)
    self.assertStartsWith(way_out, 'try: input_spec = ')
    self.assertIsNone(raised.exception.__cause__)


if __name__ == '__main__':
  absltest.main()
