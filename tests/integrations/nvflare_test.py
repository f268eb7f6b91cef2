# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""NVFlare's simulator with two sites ends with the NumPy loop's weights.

Needs NVFlare, which has an environment of its own: `make test-nvflare`.
"""

import json
import os
import pathlib
import subprocess
import sys
from unittest import mock

from absl.testing import absltest
import numpy as np
import pytest

from tests.integrations import plain_loop
from tff_dp.integrations import updates

pytest.importorskip('nvflare', reason='NVFlare is not here: make test-nvflare')
# pylint: disable=g-import-not-at-top, g-importing-member
from nvflare.apis.client import Client
from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.job_config.api import FedJob
from tests.integrations import nvflare_app

_ROOT = pathlib.Path(__file__).parents[2]
_SECONDS = 240


class NvflareTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir().full_path)
    self._run = self._folder / 'run'

  def _controller(self, **changes):
    return nvflare_app.KilledOnce(
        plain_loop.PLAN,
        self._folder / 'model.npz',
        **dict(
            output_dir=self._run, delta=1e-5, insecure_seed=plain_loop.SEED
        ) | changes,
    )

  def _simulate(self, workspace: str) -> str:
    """Returns the log of the simulator."""
    command = [
        sys.executable, '-m', 'nvflare.private.fed.app.simulator.simulator',
        self._folder / 'job', '-w', self._folder / workspace, '-n', '2', '-t', '2',
    ]
    policy = self._folder / workspace / 'local' / 'resources.json'
    policy.parent.mkdir(parents=True)
    # NVFlare builds no class that its site does not name.
    policy.write_text(json.dumps({
        'format_version': 2,
        'class_allow_list': ['tests.integrations.nvflare_app'],
    }))
    log = self._folder / f'{workspace}.log'
    with open(log, 'wb') as file:
      subprocess.run(
          command, stdout=file, stderr=file, stdin=subprocess.DEVNULL,
          cwd=self._folder, timeout=_SECONDS, check=False,
          env=os.environ | {
              'PYTHONPATH': str(_ROOT),
              'TFF_DP_TEST_FOLDER': str(self._folder),
          },
      )
    return log.read_text()

  def _complaints(self) -> list[dict]:
    lines = (self._run / 'secret' / 'clients.jsonl').read_text().splitlines()
    return [json.loads(line) for line in lines]

  def test_killed_run_ends_with_the_weights_of_a_plain_loop(self):
    np.savez(self._folder / 'model.npz', **plain_loop.initial_model())
    job = FedJob('job', min_clients=2)
    job.set_app_packages(['tff_dp', 'tests'])
    job.to_server(self._controller())
    job.to_clients(nvflare_app.Site())
    job.export_job(str(self._folder))
    log = self._simulate('first')
    self.assertTrue((self._folder / 'killed').exists(), log[-5000:])
    self.assertLen(self._complaints(), 1)
    log = self._simulate('second')
    with np.load(self._run / 'release' / 'model.npz') as arrays:
      found = updates.flat(arrays)
    honest = nvflare_app.HONEST_CHANGE
    expected = plain_loop.weights(
        lambda t: [honest] if t < 3 else [honest, nvflare_app.FAR]
    )
    np.testing.assert_array_equal(found, expected, log[-5000:])
    self.assertEqual(
        self._complaints(),
        [
            {'round': i, 'client_id': nvflare_app.LIAR, 'problem': problem}
            for i, problem in enumerate(nvflare_app.PROBLEMS, start=1)
        ],
    )
    statement = (self._run / 'release' / 'privacy_statement.md').read_text()
    self.assertIn('NVFlare hands it the updates', statement)
    self.assertNotIn('tensorflow', sys.modules)

  def _served(self, here=('site-1', 'site-2'), replying=('site-1',), **changes):
    """Returns a controller that has run, and whom it has asked."""
    np.savez(self._folder / 'model.npz', **plain_loop.initial_model())
    controller, asked = self._controller(**changes), []
    controller.engine = mock.Mock()
    controller.engine.get_clients.return_value = [
        Client(name, None) for name in here
    ]
    controller.abort_signal = Signal()
    controller.fl_ctx = FLContext()

    def send(*, data, targets, **_):
      asked.append(targets)
      if not replying:
        controller.abort_signal.trigger('stopped')
      return [
          FLModel(params=data.params, meta={'client_name': name})
          for name in replying
      ]

    controller.send_model_and_wait = send
    (self._folder / 'killed').touch()
    with mock.patch.dict(os.environ, TFF_DP_TEST_FOLDER=str(self._folder)):
      controller.run()
    return controller, asked

  def test_stops_before_the_round_that_would_exceed_the_budget(self):
    budget = plain_loop.PLAN.epsilon(delta=1e-5, num_rounds=2)
    controller, asked = self._served(epsilon_budget=budget)
    self.assertEqual(asked, [['site-1', 'site-2']] * 2)
    self.assertLessEqual(controller.rounds.epsilon, budget)
    # Nor by another job on the same run.
    self.assertEmpty(self._served(epsilon_budget=budget)[1])

  def test_round_that_is_stopped_is_finished_by_the_next_job(self):
    stopped, asked = self._served(replying=())
    self.assertLen(asked, 1)
    self.assertEqual(stopped.rounds.rounds_done, 0)
    # Its clients did not come back: nobody else is asked in their place.
    resumed, asked = self._served(
        here=('site-3', 'site-4'), timeout=1, num_rounds=1
    )
    self.assertEmpty(asked)
    self.assertEqual(resumed.rounds.rounds_done, 1)
    self.assertEqual(
        [(each['client_id'], each['problem']) for each in self._complaints()],
        [('site-1', 'no reply'), ('site-2', 'no reply')],
    )

  def test_round_beyond_the_plan_is_refused(self):
    with self.assertRaisesRegex(ValueError, 'num_rounds=4'):
      self._controller(num_rounds=4)


if __name__ == '__main__':
  absltest.main()
