# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the Flower adapter uses of Flower, for tests where there is no Flower.

Only what a strategy sees: records, messages, and the order in which Flower's
own loop calls a strategy. With Flower installed (`make test-flower`) the tests
run on Flower itself, which shows whether this is like it.
"""

from collections.abc import Iterator
import contextlib
import importlib
import importlib.util
import io
import sys
import types

import numpy as np

from tff_dp import integrations
from tff_dp.systems import dp_ftrl
from tff_dp.systems import sampling

_SHARED = 'tff_dp.integrations.flower_strategy'
_ADAPTERS = (
    'tff_dp.systems.dp_ftrl.flower',
    'tff_dp.systems.sampling.flower',
)


class _Array:
  """An array that is sent, as `np.save` writes it."""

  def __init__(self, value):
    content = io.BytesIO()
    np.save(content, value, allow_pickle=False)
    self.data = content.getvalue()

  def numpy(self):
    return np.load(io.BytesIO(self.data), allow_pickle=False)


class _ArrayRecord(dict):
  """Name -> `_Array`."""


class _ConfigRecord(dict):
  """Name -> number or text."""


class _MetricRecord(dict):
  """Name -> number."""


class _RecordDict(dict):
  """Name -> record."""

  @property
  def array_records(self):
    return {k: v for k, v in self.items() if isinstance(v, _ArrayRecord)}


class _Message:
  """What goes to a node; a reply without content raises for it."""

  def __init__(self, content, *, message_type, dst_node_id):
    self.content = content
    self.metadata = types.SimpleNamespace(
        message_type=message_type, dst_node_id=dst_node_id
    )


class _Result:

  def __init__(self):
    self.arrays = _ArrayRecord()
    self.train_metrics_clientapp = {}
    self.evaluate_metrics_clientapp = {}
    self.evaluate_metrics_serverapp = {}


class _Strategy:
  """The loop: ask, aggregate, evaluate, round after round from 1."""

  def start(
      self, grid, initial_arrays, num_rounds, timeout, train_config,
      evaluate_config, evaluate_fn,
  ):
    self.summary()
    train_config = _ConfigRecord() if train_config is None else train_config
    result, arrays = _Result(), initial_arrays

    def evaluate(server_round):
      if evaluate_fn is not None:
        metrics = evaluate_fn(server_round, arrays)
        result.evaluate_metrics_serverapp[server_round] = metrics

    evaluate(0)
    for server_round in range(1, num_rounds + 1):
      messages = self.configure_train(server_round, arrays, train_config, grid)
      replies = grid.send_and_receive(messages=messages, timeout=timeout)
      found, metrics = self.aggregate_train(server_round, replies)
      if found is not None:
        result.arrays = arrays = found
      result.train_metrics_clientapp[server_round] = metrics
      messages = self.configure_evaluate(
          server_round, arrays, evaluate_config, grid
      )
      replies = grid.send_and_receive(messages=messages, timeout=timeout)
      metrics = self.aggregate_evaluate(server_round, replies)
      if metrics is not None:
        result.evaluate_metrics_clientapp[server_round] = metrics
      evaluate(server_round)
    return result


def adapter() -> types.SimpleNamespace:
  """Returns the names of all adapters, on a stand-in if there is no Flower."""
  if importlib.util.find_spec('flwr') is not None:
    # Flower 1.41 makes no message outside of a task.
    task = importlib.import_module('flwr.supercore.task_identity').TaskIdentity
    task.task_id = task.run_id = task.node_id = 1
    return _adapters()
  with _in_place_of_flower():
    return _adapters()


def _adapters() -> types.SimpleNamespace:
  names = {}
  for each in (_SHARED, *_ADAPTERS):
    names |= vars(importlib.import_module(each))
  return types.SimpleNamespace(**names | {'__name__': _SHARED})


@contextlib.contextmanager
def _in_place_of_flower() -> Iterator[None]:
  """Lets imports of Flower find the stand-in, and forgets both at the end."""
  contents = {
      'flwr': {},
      'flwr.app': {
          'Array': _Array,
          'ArrayRecord': _ArrayRecord,
          'ConfigRecord': _ConfigRecord,
          'Message': _Message,
          'MessageType': types.SimpleNamespace(TRAIN='train'),
          'MetricRecord': _MetricRecord,
          'RecordDict': _RecordDict,
      },
      'flwr.serverapp': {'Grid': object},
      'flwr.serverapp.strategy': {'Result': _Result, 'Strategy': _Strategy},
  }
  for name, attributes in contents.items():
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(attributes)
  try:
    yield
  finally:
    for name in (*contents, _SHARED, *_ADAPTERS):
      sys.modules.pop(name, None)
    vars(integrations).pop('flower_strategy', None)
    for each in (dp_ftrl, sampling):
      vars(each).pop('flower', None)
