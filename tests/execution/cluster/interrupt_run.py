# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains on a cluster of its own until somebody interrupts it."""

import sys


def main() -> None:
  # Not above: Dask's workers load this module when they start. And tff_dp before
  # what imports TFF, which the current stack needs.
  from tff_dp.execution import cluster  # pylint: disable=g-import-not-at-top
  from tests.execution.cluster import lists  # pylint: disable=g-import-not-at-top

  try:
    with cluster.create_cluster_context(
        sys.argv[1],
        num_shards=2,
        load_clients='tests.execution.cluster.lists:load_when_allowed',
    ):
      lists.train(lists.build_process(), ['client_0', 'client_1'])
  except KeyboardInterrupt:
    print('interrupted', flush=True)


if __name__ == '__main__':
  main()
