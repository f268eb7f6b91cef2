# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The NVFlare controller on a stand-in, for tests where there is no NVFlare.

`nvflare_test.py` runs it in NVFlare's simulator (`make test-nvflare`).
"""

import importlib
import importlib.util
import json
import pathlib
import sys
import types
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from tests.integrations import plain_loop
from tff_dp import _checks
from tff_dp import integrations
from tff_dp.integrations import server_rounds
from tff_dp.integrations import updates
from tff_dp.systems import dp_ftrl
from tff_dp.systems import sampling
from tff_dp.systems.sampling import server_cohorts

_ADAPTERS = (
    'tff_dp.systems.dp_ftrl.nvflare',
    'tff_dp.systems.sampling.nvflare',
)
_SHARED = 'tff_dp.integrations.nvflare_controller'
_FULL, _DIFF = 'FULL', 'DIFF'
# What two sites add to every weight. The second is over the clip norm.
_CHANGES = {'site-1': 0.25, 'site-2': 10.0}


class _Model:
  """A message: weights, or their differences."""

  def __init__(self, params, params_type=_FULL, site=None, **facts):
    self.params, self.params_type, self.facts = params, params_type, facts
    self.meta = {'client_name': site}


class _Controller:
  """What a controller has of NVFlare."""

  def __init__(self, *, persistor_id, ignore_result_error):
    assert ignore_result_error
    self.persistor = persistor_id
    self.logged, self.stored = [], []

  def info(self, text):
    self.logged.append(text)

  def save_model(self, model):
    self.stored.append(model.params)


def _adapters() -> list[types.ModuleType]:
  """Returns the adapters, made on the stand-in. Nobody else finds them."""
  parts = dict.fromkeys(('nvflare', 'nvflare.app_common'), {}) | {
      'nvflare.app_common.abstract': {},
      'nvflare.app_common.abstract.fl_model': {
          'FLModel': _Model,
          'ParamsType': types.SimpleNamespace(FULL=_FULL, DIFF=_DIFF),
      },
      'nvflare.app_common.workflows': {},
      'nvflare.app_common.workflows.model_controller': {
          'ModelController': _Controller
      },
  }
  for name, content in parts.items():
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(content)
  try:
    return [importlib.import_module(each) for each in _ADAPTERS]
  finally:
    for name in (*parts, _SHARED, *_ADAPTERS):
      sys.modules.pop(name, None)
    vars(integrations).pop('nvflare_controller', None)
    for each in (dp_ftrl, sampling):
      vars(each).pop('nvflare', None)


if importlib.util.find_spec('nvflare') is not None:
  pytest.skip('NVFlare is here: nvflare_test.py', allow_module_level=True)
nvflare, sampling_nvflare = _adapters()


class ControllerTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir().full_path)
    np.savez(self._folder / 'model.npz', **plain_loop.initial_model())

  def _served(
      self,
      reply=None,
      here=(*_CHANGES, 'site-3'),
      stop='',
      make=nvflare.DpFtrlController,
      plan=plain_loop.PLAN,
      **changes,
  ):
    """Returns a controller that has run, and whom it has asked what.

    Args:
      reply: Function from site and weights to its reply.
      here: Names of the sites that are connected.
      stop: When somebody stops the job: 'before' or 'after' a round is sent.
      make: Class of the controller.
      plan: Plan of the run.
      **changes: Arguments of the controller.
    """
    controller = make(
        plan,
        self._folder / 'model.npz',
        **dict(
            output_dir=self._folder / 'run',
            delta=1e-5,
            insecure_seed=plain_loop.SEED,
            timeout=1,
        ) | changes,
    )
    sites = [types.SimpleNamespace(name=name) for name in here]
    controller.engine = types.SimpleNamespace(get_clients=lambda: sites)
    controller.abort_signal = types.SimpleNamespace(triggered=stop == 'before')
    asked = []

    def honest(site, weights):
      return _Model(plain_loop.changed(weights, _CHANGES[site]), site=site)

    def send_model_and_wait(*, task_name, data, targets, timeout):
      asked.append((task_name, data.facts['current_round'], targets, timeout))
      controller.abort_signal.triggered = stop == 'after'
      return [(reply or honest)(site, data.params) for site in targets]

    controller.send_model_and_wait = send_model_and_wait
    # As NVFlare does: the job's configuration, and back.
    controller._plan = json.loads(json.dumps(controller._plan))  # pylint: disable=protected-access
    controller.run()
    return controller, asked

  def _weights(self, run='run'):
    with np.load(self._folder / run / 'release' / 'model.npz') as arrays:
      return updates.flat(arrays)

  def test_ends_with_the_weights_of_a_plain_loop_and_tells_no_more(self):
    controller, asked = self._served(
        here=_CHANGES, persistor_id='stored', task_name='fit'
    )
    np.testing.assert_array_equal(
        self._weights(), plain_loop.weights(lambda _: _CHANGES.values())
    )
    self.assertEqual(
        [(task, r, sorted(sites), seconds) for task, r, sites, seconds in asked],
        [('fit', r, ['site-1', 'site-2'], 1) for r in range(3)],
    )
    # Whoever reads the log or the persistor learns what is released.
    self.assertEqual(
        controller.logged[:-1],
        [
            f'round {r}: epsilon '
            f'{plain_loop.PLAN.epsilon(delta=1e-5, num_rounds=r)}'
            for r in (1, 2, 3)
        ],
    )
    np.testing.assert_array_equal(
        updates.flat(controller.stored[-1]), self._weights()
    )

  def test_difference_is_added_to_the_model_of_the_run(self):
    def reply(site, weights):
      changed = plain_loop.changed(weights, _CHANGES[site])
      difference = {
          name: changed[name] - np.asarray(weights[name], np.float64)
          for name in weights
      }
      return _Model(difference, _DIFF, site=site)

    self._served(reply, here=_CHANGES)
    np.testing.assert_array_equal(
        self._weights(), plain_loop.weights(lambda _: _CHANGES.values())
    )

  @parameterized.product(
      params=(
          None,
          {'w': np.ones(6)},
          {'w': np.ones([2, 3], complex), 'b': np.ones(2)},
          {'w': np.full([2, 3], np.nan), 'b': np.ones(2)},
      ),
      params_type=(_FULL, _DIFF),
  )
  def test_garbage_of_a_site_counts_as_zero(self, params, params_type):
    def reply(site, weights):
      if site == 'site-2':
        return _Model(params, params_type, site=site)
      return _Model(plain_loop.changed(weights, 0.25), site=site)

    self._served(reply, here=_CHANGES)
    np.testing.assert_array_equal(
        self._weights(), plain_loop.weights(lambda _: [0.25])
    )

  @parameterized.parameters('before', 'after')
  def test_stopped_round_is_not_released_but_repeated(self, stop):
    stopped, asked = self._served(here=_CHANGES, stop=stop)
    self.assertLen(asked, int(stop == 'after'))
    self.assertEqual(stopped.rounds.rounds_done, 0)
    np.testing.assert_array_equal(
        self._weights(), updates.flat(plain_loop.initial_model())
    )
    self._served(here=_CHANGES)
    np.testing.assert_array_equal(
        self._weights(), plain_loop.weights(lambda _: _CHANGES.values())
    )

  def test_sampling_asks_whom_the_coins_drew_and_nobody_in_an_empty_round(self):
    plan = sampling.SamplingPlan(
        population=3, clients_per_round=1, num_rounds=8, noise_multiplier=1.5
    )
    _, asked = self._served(
        lambda site, weights: _Model(weights, site=site),
        make=sampling_nvflare.SamplingController,
        plan=plan,
    )
    coins = server_cohorts.CoinCohorts(
        plan, schedule_seed=0, insecure_seed=plain_loop.SEED
    )
    here = sorted((*_CHANGES, 'site-3'))
    expected = [(r, coins.select(r + 1, here)) for r in range(plan.num_rounds)]
    self.assertIn([], [cohort for _, cohort in expected])
    # NVFlare would ask everybody if it were given nobody.
    self.assertEqual(
        [(r, sites) for _, r, sites, _ in asked],
        [(r, cohort) for r, cohort in expected if cohort],
    )

  def test_stops_after_the_round_that_was_asked_for_and_resumes(self):
    plan = plain_loop.PLAN
    for done, new in ((2, [0, 1]), (2, []), (3, [2])):
      controller, asked = self._served(here=_CHANGES, num_rounds=done)
      self.assertEqual([r for _, r, *_ in asked], new)
      self.assertEqual(controller.rounds.rounds_done, done)
      self.assertEqual(
          controller.rounds.epsilon, plan.epsilon(delta=1e-5, num_rounds=done)
      )
    np.testing.assert_array_equal(
        self._weights(), plain_loop.weights(lambda _: _CHANGES.values())
    )

  def test_asks_nobody_beyond_the_budget(self):
    budget = plain_loop.PLAN.epsilon(delta=1e-5, num_rounds=2)
    for new in ([0, 1], []):
      controller, asked = self._served(here=_CHANGES, epsilon_budget=budget)
      self.assertEqual([r for _, r, *_ in asked], new)
      self.assertIn(
          'the epsilon budget ends before round 3', controller.logged
      )
      self.assertEqual(controller.rounds.epsilon, budget)

  @parameterized.parameters(
      dict(num_rounds=0),
      dict(num_rounds=4),
      dict(min_available_clients=0),
      dict(timeout=0),
  )
  def test_bad_arguments_are_named(self, **bad):
    ((name, value),) = bad.items()
    with self.assertRaisesRegex(_checks.ArgumentError, f'{name}={value} '):
      self._served(**bad)
    self.assertFalse((self._folder / 'run').exists())

  def test_every_argument_reaches_the_rounds(self):
    given = dict(
        delta=1e-6,
        epsilon_budget=99.0,
        server_learning_rate=0.5,
        schedule_seed=3,
        insecure_seed=7,
    )
    with mock.patch.object(
        server_rounds, 'ServerRounds', side_effect=KeyboardInterrupt
    ) as made, self.assertRaises(KeyboardInterrupt):
      self._served(declarations={'population': 500}, **given)
    (plan, model), options = made.call_args
    self.assertEqual(plan, plain_loop.PLAN)
    np.testing.assert_array_equal(
        updates.flat(model), updates.flat(plain_loop.initial_model())
    )
    self.assertEqual(options.pop('declarations').population, 500)
    self.assertEqual(
        options,
        given | {'stack': 'NVFlare', 'output_dir': str(self._folder / 'run')},
    )


if __name__ == '__main__':
  absltest.main()
