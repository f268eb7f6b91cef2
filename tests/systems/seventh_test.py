# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A seventh system, added without touching the library.

A trusted server adds independent noise, and everybody takes part in each round.
CONTRIBUTING.md explains the parts of this file.
"""

import dataclasses
import functools
from importlib import metadata
import json
import math
import os
import pathlib
from unittest import mock

from absl.testing import absltest
import dp_accounting
import pytest
import tensorflow_federated as tff

from tests.attacks import bundles
from tests.cli import command
from tests.learning import small_model
from tests.program import kills
from tests.program import processes
from tff_dp import _checks
from tff_dp import execution
from tff_dp import export
from tff_dp import program
from tff_dp import systems
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events
from tff_dp.advice import offers
from tff_dp.aggregators import correlated_noise
from tff_dp.cli import main
from tff_dp.cli import results
from tff_dp.ledger import participation_ledger
from tff_dp.mechanisms import choice
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.participation import sampling
from tff_dp.plans import base
from tff_dp.program import cohorts
from tff_dp.program import results as program_results
from tff_dp.statement import builder
from tff_dp.systems import system

pytestmark = pytest.mark.once

_RELATION = run_events.NeighboringRelation.ZERO_OUT
_SENTENCES = """
setting.model: central differential privacy
setting.adversary: anybody who sees every model of the run
unit.contribution_bound: L2 norm at most {plan.l2_norm_clip:g} in a round
unit.participation: everybody in every round
unit.max_participations: {plan.num_rounds}
release.covered: the model after every round
mechanism.name: independent Gaussian noise
mechanism.parameters: noise multiplier {plan.noise_multiplier:g}
accounting.method: composition of Gaussian mechanisms
accounting.theorem: Balle and Wang, arXiv:1805.06530, theorem 8
accounting.exactness: exact
implementation.dropouts: all clients count as having taken part
not_claimed.limits: nothing is claimed against the server
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EverybodyPlan(base.Plan):
  num_clients: int
  num_rounds: int
  noise_multiplier: float = 1.0
  l2_norm_clip: float = 1.0

  kind = 'everybody'
  neighboring_relation = _RELATION
  basis = 'no amplification'
  trust = 'the server'

  @property
  def clients_per_round(self):
    return self.num_clients

  @property
  def mechanism(self):
    return mechanism_lib.Independent(self.num_rounds)

  @property
  def participation(self):
    return sampling.UniformSampling(self.num_rounds)

  def calibrated(self, *, epsilon, delta):
    sigma = gaussian.sigma_for(epsilon=epsilon, delta=delta)
    noise = sigma * math.sqrt(self.num_rounds) * (1 + 1e-9)
    return dataclasses.replace(self, noise_multiplier=noise)

  def epsilon(self, *, delta, num_rounds=None, neighboring_relation=_RELATION):
    sigma = run_events.effective_sigma(
        noise_multiplier=self.noise_multiplier,
        squared_sensitivity=num_rounds or self.num_rounds,
        neighboring_relation=neighboring_relation,
    )
    found = gaussian.exact_epsilon(sigma=sigma, delta=delta)
    return self._of_draws(found, delta)

  def event(self, *, num_rounds=None):
    return dp_accounting.SelfComposedDpEvent(
        dp_accounting.GaussianDpEvent(self.noise_multiplier),
        num_rounds or self.num_rounds,
    )

  def spent(self, num_rounds):
    return {'participations': num_rounds}

  def way_out(self, *, epsilon, delta):
    return 'More noise costs less.'

  def aggregator(self):
    return correlated_noise.CorrelatedNoiseFactory(
        self.mechanism, noise_multiplier=self.noise_multiplier, plan=self,
        l2_norm_clip=self.l2_norm_clip, clients_per_round=self.num_clients,
    )

  def participation_ledger(self, run_id):
    pattern = self.participation.pattern
    return participation_ledger.ParticipationLedger(pattern, run_id=run_id)

  def _facts(self):
    return dataclasses.asdict(self)

  @classmethod
  def _from_facts(cls, facts):
    return cls(**facts)

  def _points(self, about):
    return builder.sentences(_SENTENCES, plan=self)


class Flags:
  FLAGS = {'num_rounds': 'rounds', 'num_clients': 'population'}

  @staticmethod
  def add_arguments(parser, kind, command_name):
    parser.add('--population', int, required=True)
    parser.add('--rounds', int, required=True)
    parser.add('--delta', float, required=True)
    which = 'epsilon' if command_name == 'calibrate' else 'noise-multiplier'
    parser.add(f'--{which}', float, required=True)

  @staticmethod
  def run_of(arguments):
    plan = EverybodyPlan(
        num_clients=arguments.population, num_rounds=arguments.rounds,
        noise_multiplier=getattr(arguments, 'noise_multiplier', 1.0),
    )
    return results.PlanRun(plan, None, arguments.delta)

  @classmethod
  def calibrated(cls, arguments):
    run = cls.run_of(arguments)
    budget = dict(epsilon=arguments.epsilon, delta=arguments.delta)
    plan = run.plan.calibrated(**budget)
    answer = f'--noise-multiplier={plan.noise_multiplier}'
    return run._replace(plan=plan), {'answer': answer, 'solved_for': 'noise'}


class Training(system.Training):

  def cohorts(self, plan, clients, *, schedule_seed):
    return cohorts.ScheduledCohorts(plan, clients, seed=schedule_seed)


def offer(setting):
  plan = EverybodyPlan(num_clients=setting.population, num_rounds=setting.rounds)
  plan = plan.calibrated(epsilon=setting.epsilon, delta=setting.delta)
  epsilon = plan.epsilon(delta=setting.delta)
  return offers.offer(
      setting, plan.noise_multiplier / setting.population, system='everybody',
      variant='gaussian', trust=plan.trust, noise={}, epsilon=epsilon,
      neighboring_relation=_RELATION.value, epsilon_no_amplification=epsilon,
      participation='everybody', assumptions=(), process='', command=(),
      python='',
  )


def rows(*, num_rounds, max_participations, epsilon, delta, error):
  plan = EverybodyPlan(num_clients=max_participations, num_rounds=num_rounds)
  plan = plan.calibrated(epsilon=epsilon, delta=delta)
  row = choice.measured('everybody', plan.mechanism, plan.participation.pattern)
  rmse, largest = plan.mechanism.prefix_errors(plan.noise_multiplier)
  return [dataclasses.replace(row, rmse=rmse, max_error=largest)]


SYSTEM = system.System(
    kind='everybody',
    page='CONTRIBUTING.md',
    plan=system.At(__name__, 'EverybodyPlan'),
    training=Training,
    commands={'everybody': system.Command('everybody, always', lambda: Flags)},
    offers={
        'everybody': system.Offered('server', 'everybody', lambda: offer)
    },
    rows=lambda: rows,
)

# The seventh system ends here. What follows is what it gets.

_FLAGS = ('--population', 3, '--rounds', 5, '--delta', 1e-5)
_PLAN = EverybodyPlan(num_clients=3, num_rounds=5, noise_multiplier=4.0)


def _tff_dp(*words) -> str:
  code, out, err = command.run(main.main, *words)
  if code:
    raise AssertionError(out + err)
  return out


@functools.cache
def _process():
  return processes.of_aggregator(_PLAN.aggregator())


def setUpModule():
  execution.set_default_context()


class SeventhTest(kills.RunsTestCase):

  def setUp(self):
    super().setUp()
    systems.register(SYSTEM)
    self.addCleanup(systems.unregister, 'everybody')
    self.folder = pathlib.Path(self.create_tempdir().full_path)

  def test_commands(self):
    words = ('everybody', *_FLAGS, '--noise-multiplier', 4)
    found = json.loads(_tff_dp('account', *words, '--format', 'json'))
    self.assertAlmostEqual(found['epsilon'], _PLAN.epsilon(delta=1e-5))
    self.assertIn('everybody in every round', _tff_dp('statement', *words))
    self.assertIn('everybody, always', _tff_dp('account', '--help'))
    words = ('calibrate', 'everybody', *_FLAGS, '--epsilon', 2)
    found = json.loads(_tff_dp(*words, '--format', 'json'))
    self.assertBetween(found['epsilon'], 1.99, 2.0)

  def test_advice(self):
    # The offers of the other systems take longer.
    offered = {'everybody': systems.offers()['everybody']}
    with mock.patch.object(systems, 'offers', return_value=offered):
      out = _tff_dp(
          'advise', '--population', 1000, '--reports-per-round', 10, '--rounds',
          10, '--parameters', 10, '--epsilon', 1, '--trust', 'server',
      )
    self.assertRegex(out, r'\n\d+ +everybody +gaussian')

  def test_comparison(self):
    out = _tff_dp(
        'compare', '--rounds', 5, '--min-index-gap', 1, '--mechanisms',
        'independent', '--epsilon', 2, '--delta', 1e-5,
    )
    # The same noise as that of DP-FTRL without a matrix.
    self.assertRegex(out, r'(?s) independent ( .*)\n  everybody   \1\n')

  def test_an_installed_package_needs_no_call(self):
    systems.unregister('everybody')
    self.addCleanup(systems.register, SYSTEM)
    self.addCleanup(systems._installed.cache_clear)
    systems._installed.cache_clear()
    point = metadata.EntryPoint(
        'everybody', f'{__name__}:SYSTEM', 'tff_dp.systems'
    )
    with mock.patch.object(metadata, 'entry_points', return_value=[point]):
      self.assertIs(systems.of('everybody'), SYSTEM)
      with self.assertRaisesRegex(_checks.ArgumentError, 'names that'):
        systems.register(SYSTEM)
      systems._installed.cache_clear()
      taken = dataclasses.replace(SYSTEM, kind='silos')
      with mock.patch.object(metadata.EntryPoint, 'load', return_value=taken):
        with self.assertRaisesRegex(_checks.ArgumentError, "system='silos'"):
          systems.all_systems()

  def _train(self, **changes):
    names = ['a', 'b', 'c']
    clients = tff.simulation.datasets.ClientData.from_clients_and_tf_fn(
        names, lambda name: small_model.client(0)
    )
    options = dict(delta=1e-5, progress='quiet', output_dir=self.folder)
    return program.train(_process(), clients, **options | changes)

  def test_other_noise_is_refused(self):
    other = dataclasses.replace(_PLAN, noise_multiplier=0.5)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'other noise'):
      self._train(plan=other)

  def test_its_own_rule_is_asked(self):
    refusal = _checks.PrivacyRefusedError('a rule', why='of', way_out='its own')
    with mock.patch.object(Training, 'check', side_effect=refusal):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'a rule'):
        self._train()

  def test_training(self):
    budget = _PLAN.epsilon(delta=1e-5, num_rounds=4)
    found = self._train(epsilon_budget=budget, total_rounds=2)
    self.assertEqual(found.rounds_done, 2)
    found = self._train(epsilon_budget=budget)
    self.assertEqual(found.rounds_done, 4)
    self.assertEqual(found.stop_reason, program_results.BUDGET)
    self.assertAlmostEqual(found.epsilon, budget)
    events = self.folder / 'release' / 'events.json'
    self.assertIn('everybody', _tff_dp('statement', '--events', events))
    exported = self.folder / 'bundle'
    export.export_bundle(self.folder, output=exported)
    # The command knows it where its package is installed, and only there.
    code, out, err = self._verified_where_installed(exported)
    self.assertEqual(code, 0, out + err)
    systems.unregister('everybody')
    self.addCleanup(systems.register, SYSTEM)
    with bundles.in_this_process():
      code, out, _ = command.run(main.main, 'export', '--verify', exported)
    self.assertEqual(code, 5)
    self.assertRegex(
        out, r"FAILED +guarantee +[^\n]*kind='everybody' is not allowed"
    )

  def _verified_where_installed(self, bundle: pathlib.Path):
    """Returns what `export --verify` says, whose child finds the system."""
    place = self.folder / 'site'
    info = place / 'everybody-1.dist-info'
    info.mkdir(parents=True)
    info.joinpath('METADATA').write_text('Name: everybody\nVersion: 1\n')
    info.joinpath('entry_points.txt').write_text(
        '[tff_dp.systems]\neverybody = tests.systems.seventh_test:SYSTEM\n'
    )
    with mock.patch.dict(os.environ, PYTHONPATH=str(place)):
      return command.run(main.main, 'export', '--verify', bundle)


if __name__ == '__main__':
  absltest.main()
