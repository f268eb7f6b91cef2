# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""All systems by `program.train`: a run goes on over a cluster, to the bit."""

import importlib.util
import pathlib
import shutil
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow_federated as tff
import tree

from tests.execution.cluster import lists
from tests.export import small_bundle
from tff_dp import execution
from tff_dp.execution import cluster
from tff_dp.execution.cluster import dask_engine
from tff_dp.execution.cluster import engine
from tff_dp.program.display import progress


class SystemsTest(parameterized.TestCase):

  @parameterized.named_parameters(
      (name, run) for name, run in small_bundle.runs()
  )
  @pytest.mark.slow(
      cases=[
          'cyclic',
          'draw_and_discard',
          'fixed-window',
          'sampling',
          'secure_sums',
          'silos',
      ]
  )
  def test_same_bits_as_in_process(self, run):
    self._check(run, engine.LocalEngine())

  @parameterized.parameters('dp_ftrl', 'silos', 'draw_and_discard')
  def test_same_bits_on_dask(self, name):
    if not importlib.util.find_spec('distributed'):
      self.skipTest('Dask is not here: make test-cluster')
    self._check(dict(small_bundle.runs())[name], dask_engine.DaskEngine())

  def _check(self, run, engine):
    contexts = tff.framework.get_context_stack()
    folder = pathlib.Path(self.create_tempdir().full_path)
    with execution.create_sync_in_process_context(max_concurrent_clients=2):
      run(folder / 'run', total_rounds=1)
      # Keys and coins of the rest are in its checkpoint.
      shutil.copytree(folder / 'run', folder / 'other')
      expected = run(folder / 'run', total_rounds=2)
    context = cluster.create_cluster_context(engine, num_shards=2)
    self.addCleanup(context.close)
    with contexts.install(lists.ListsContext(context)), mock.patch.object(
        progress.Progress, 'round_done'
    ) as round_done:
      found = run(folder / 'other', total_rounds=2)
    self.assertEqual(round_done.call_args.kwargs['num_workers'], 2)
    # Where clients flip coins, a round may be without any.
    if found.metrics[-1].get('reports', 1):
      self.assertGreater(context.shards.num_bytes_received, 0)
    self.assertEqual(found.rounds_done, 2)
    self.assertEqual(found.epsilon, expected.epsilon)
    for one, other in zip(
        tree.flatten(found.model_weights),
        tree.flatten(expected.model_weights),
        strict=True,
    ):
      np.testing.assert_array_equal(one, other)


if __name__ == '__main__':
  absltest.main()
