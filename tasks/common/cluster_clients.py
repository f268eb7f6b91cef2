# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clients of a task whose data the workers of a cluster load themselves.

What travels for a client is a line of JSON: which module makes the clients,
from which settings, and the client's id. So the data files must be at the same path
on every worker.
"""

import functools
import importlib
import json
from typing import Any

LOADER = f'{__name__}:load'


class ClientsAtWorkers:
  """Stands for `clients` where a plan wants ids and a round wants data."""

  def __init__(self, clients, module: str, settings: dict[str, Any]):
    """Makes it.

    Args:
      clients: What `module.clients(**settings)` returns.
      module: Name of a module of a task.
      settings: Plain JSON.
    """
    self.client_ids = list(clients.client_ids)
    self._source = module, json.dumps(settings, sort_keys=True)

  def create_tf_dataset_for_client(self, client_id: str) -> str:
    """Returns what `load` makes the data of."""
    return json.dumps([*self._source, client_id])


def at_workers(clients, module: str, **settings):
  """Returns `clients`, or on a cluster what stands for them.

  Args:
    clients: What `module.clients(**settings)` returns.
    module: Name of a module of a task.
    **settings: Plain JSON.
  """
  import tensorflow_federated as tff  # pylint: disable=g-import-not-at-top
  from tff_dp.execution.cluster import context as cluster_lib  # pylint: disable=g-import-not-at-top

  context = tff.framework.get_context_stack().current
  if isinstance(context, cluster_lib.ClusterContext):
    return ClientsAtWorkers(clients, module, settings)
  return clients


def load(text: str):
  """Returns the data of a client; workers call it."""
  module, settings, client_id = json.loads(text)
  return _clients(module, settings).create_tf_dataset_for_client(client_id)


@functools.lru_cache(maxsize=4)
def _clients(module: str, settings: str):
  return importlib.import_module(module).clients(**json.loads(settings))
