# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clients of a task whose data the workers of a cluster load themselves.

A worker gets one line of JSON for each client: the module that makes the
clients, its settings, and the id of the client. So the data files must be at
the same path on every worker.
"""

import functools
import importlib
import json
from typing import Any

LOADER = f'{__name__}:load'


class ClientsAtWorkers:
  """Takes the place of `clients`, with references instead of data."""

  def __init__(self, clients, module: str, settings: dict[str, Any]):
    """Initializes the object.

    Args:
      clients: Result of `module.clients(**settings)`.
      module: Name of a module of a task.
      settings: Settings in plain JSON types.
    """
    self.client_ids = list(clients.client_ids)
    self._source = module, json.dumps(settings, sort_keys=True)

  def create_tf_dataset_for_client(self, client_id: str) -> str:
    """Returns the text from which `load` makes the data."""
    return json.dumps([*self._source, client_id])


def at_workers(clients, module: str, **settings):
  """Returns `clients`, or on a cluster a `ClientsAtWorkers`.

  Args:
    clients: Result of `module.clients(**settings)`.
    module: Name of a module of a task.
    **settings: Settings in plain JSON types.
  """
  import tensorflow_federated as tff  # pylint: disable=g-import-not-at-top
  from tff_dp.execution.cluster import context as cluster_lib  # pylint: disable=g-import-not-at-top

  context = tff.framework.get_context_stack().current
  if isinstance(context, cluster_lib.ClusterContext):
    return ClientsAtWorkers(clients, module, settings)
  return clients


def load(text: str):
  """Returns the data of a client. Workers call this function."""
  module, settings, client_id = json.loads(text)
  return _clients(module, settings).create_tf_dataset_for_client(client_id)


@functools.lru_cache(maxsize=4)
def _clients(module: str, settings: str):
  return importlib.import_module(module).clients(**json.loads(settings))
