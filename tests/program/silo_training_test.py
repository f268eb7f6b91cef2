# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of `program.train` with silos, some of which are absent."""

import csv
import dataclasses
import json
import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow_federated as tff

from tests.learning import small_model
from tests.learning.silos import toy
from tests.program import kills
from tests.program import silo_run
import tff_dp
from tff_dp import _checks
from tff_dp import _failures
from tff_dp import execution
from tff_dp.accounting.silos import silo_sampling
from tff_dp.aggregators import release_marks
from tff_dp.cli import event_files
from tff_dp.learning import silos
from tff_dp.ledger import silo_accountant
from tff_dp.program import certification
from tff_dp.program import data_flow
from tff_dp.program import event_loop
from tff_dp.program import run as run_lib
from tff_dp.program.files import checkpoints

_NUM_ROUNDS = silo_run.NUM_ROUNDS


def setUpModule():
  execution.set_default_context()


def _model():
  return toy.build_model(silo_run.SIZE, curvature=np.ones(silo_run.SIZE))


# Small ones, beside Poisson sampling in `silo_run`.
_BUILDERS = {
    'fixed': lambda: silos.build_accelerated_mb_sgd_erm(
        _model(),
        num_rounds=3,
        sampling=silo_sampling.FixedSize(4),
        gamma=4.0,
        **silo_run.arguments(),
    ),
    'one_pass': lambda: silos.build_one_pass_accelerated_mb_sgd(
        _model(),
        num_rounds=4,
        stages=[silos.Stage(2, 3.0), silos.Stage(2, 4.0)],
        **silo_run.arguments(),
    ),
    'localized': lambda: silos.build_localized_mb_sgd(
        _model(),
        lipschitz=1.0,
        regularization=1.0,
        rounds_per_phase=[2, 2],
        smoothness=1.0,
        silos=silo_run.BUDGETS,
    ),
    'local': lambda: silos.build_isrl_local_sgd(
        _model(),
        num_rounds=3,
        num_local_steps=2,
        learning_rate=0.1,
        **silo_run.arguments(),
    ),
}


def _ledger(root, process) -> silo_accountant.IsrlAccountant:
  """Returns the ledger in the latest checkpoint of a run."""
  with event_loop.PrivateEventLoop() as loop:
    store = checkpoints.CheckpointStore(root / 'secret' / 'checkpoints', loop)
    checkpoint = store.load(store.latest_round(), like=process.initialize())
  return silo_accountant.IsrlAccountant.from_json(
      json.loads(checkpoint.ledger)['ledger']
  )


def _rows(path: pathlib.Path) -> list[dict[str, str]]:
  return list(csv.DictReader(path.read_text().splitlines()))


class TrainTest(kills.RunsTestCase):

  def setUp(self):
    super().setUp()
    self.root = pathlib.Path(
        self.enterContext(tempfile.TemporaryDirectory())
    ) / 'run'

  def test_absent_silos_pay_nothing_and_delay_nobody(self):
    process = silo_run.build_process()
    plan = silo_run.absent_plan(process)
    result = silo_run.run(self.root)
    self.assertEqual(result.rounds_done, _NUM_ROUNDS)
    ledger = _ledger(self.root, process)
    for name, rounds in silo_run.ABSENT.items():
      self.assertEqual(ledger.num_rounds(name), _NUM_ROUNDS - len(rounds))
      self.assertAlmostEqual(
          ledger.epsilon(name), plan.epsilon(silo=name), places=12
      )
      # Less than it would pay for all rounds, which is what it allows.
      self.assertLess(plan.epsilon(silo=name), 1.99)
    self.assertEqual(result.epsilon, plan.epsilon(delta=silo_run.DELTA))
    self.assertEqual(result.statement.epsilon, result.epsilon)
    self.assertEqual(
        [row['silos'] for row in result.metrics], [3, 2, 3, 3, 2, 0, 2, 3]
    )
    # What is noised or public is released, and there is nothing else.
    self.assertContainsSubset(
        {'client_work/private/loss', 'aggregator/num_silos', 'epsilon'},
        result.metrics[0],
    )
    secret = _rows(self.root / 'secret' / 'metrics.not_covered.csv')
    self.assertEqual(
        set(secret[0]),
        {'round', 'round_seconds.not_covered', 'rss_mb.not_covered'},
    )
    said = result.statement.points['implementation']['realised_participation']
    self.assertEqual(said, 'of 8 rounds: north in 5, south in 7, west in 6')
    run = event_files.read(self.root / 'release' / 'events.json')
    self.assertEqual(run.plan, plan)
    self.assertEqual(
        run.plan.epsilon(delta=run.delta, num_rounds=run.num_rounds),
        result.epsilon,
    )

  @parameterized.parameters(*_BUILDERS)
  def test_every_builder_runs_and_charges_what_the_plan_says(self, name):
    process = _BUILDERS[name]()
    plan = process.plan.with_availability(
        lambda r, silo: r != 2 and (silo, r) != ('west', 3)
    )
    result = silo_run.run(self.root, process, plan=plan)
    self.assertEqual(result.rounds_done, plan.num_rounds)
    ledger = _ledger(self.root, process)
    for silo in plan.silos:
      self.assertEqual(ledger.num_rounds(silo), plan.messages(silo).size)
      self.assertEqual(ledger.dp_event(silo), plan.event(silo=silo))

  def test_stops_before_the_budget_of_a_silo_is_exceeded(self):
    # The noise is for 8 rounds, which are too many for the south now.
    sigma = {
        name: terms.phases[0].sigma
        for name, terms in silo_run.build_process().plan.terms.items()
    }
    south = dataclasses.replace(silo_run.BUDGETS['south'], epsilon=1.7)
    process = silos.build_noisy_mb_sgd(
        _model(),
        num_rounds=_NUM_ROUNDS,
        sampling=silo_sampling.PoissonSampling(5),
        noise_stddev=sigma,
        learning_rate=0.5,
        l2_norm_clip=1.0,
        silos=silo_run.BUDGETS | {'south': south},
    )
    result = silo_run.run(self.root, process, plan=process.plan)
    self.assertEqual(result.stop_reason, run_lib.BUDGET)
    self.assertRegex(result.message, 'would take silo south to epsilon')
    self.assertBetween(result.rounds_done, 4, 6)
    ledger = _ledger(self.root, process)
    self.assertLessEqual(ledger.epsilon('south'), 1.7)
    self.assertEqual(ledger.num_rounds('south'), result.rounds_done)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'silo south'):
      process.plan.charge(ledger, ['south'], trained=result.rounds_done)

  def test_round_that_was_charged_before_a_kill_is_not_charged_twice(self):
    process = silo_run.build_process()
    sent = []
    run_next = process.next
    certificate = certification.certify(
        process, silo_run.absent_plan(process)
    )

    def note(state, data):
      output = run_next(state, data)
      weights = toy.flat(output.state.global_model_weights)
      sent.append((int(state.client_work['round']), weights))
      if len(sent) == 5:
        raise kills.Killed
      return output

    with mock.patch.object(
        tff.learning.templates.LearningProcess,
        'next',
        mock.Mock(side_effect=note, type_signature=run_next.type_signature),
    ), mock.patch.object(
        certification, 'certify', lambda process, plan: certificate
    ):
      with self.assertRaises(kills.Killed):
        silo_run.run(self.root)
      before = (self.root / 'secret' / 'write_ahead.jsonl').read_text()
      self.assertLen([l for l in before.splitlines() if 'cohort' in l], 5)
      silo_run.run(self.root)
    # Rounds 4 and 5 were repeated, and sent the very same.
    self.assertEqual([r for r, _ in sent[:7]], [0, 1, 2, 3, 4, 3, 4])
    for first, again in ((3, 5), (4, 6)):
      np.testing.assert_array_equal(sent[first][1], sent[again][1])
    ledger = _ledger(self.root, process)
    for name, rounds in silo_run.ABSENT.items():
      self.assertEqual(ledger.num_rounds(name), _NUM_ROUNDS - len(rounds))

  def test_silo_that_fails_is_named_and_the_round_repeated_once_mended(self):
    process = silo_run.build_process()

    class Torn(silo_run.Clients):

      def create_tf_dataset_for_client(self, name):
        data = super().create_tf_dataset_for_client(name)
        # One batch less than its noise was calibrated for.
        return data.skip(1) if name == 'south' else data

    plan = process.plan.with_availability(
        lambda r, name: name != 'south' or r > 3
    )
    with self.assertRaisesRegex(
        _failures.ClientComputationError, "'south' failed: a silo has another"
    ):
      silo_run.run(self.root, plan=plan, clients=Torn())
    result = silo_run.run(self.root, plan=plan)
    self.assertEqual(result.rounds_done, _NUM_ROUNDS)
    ledger = _ledger(self.root, process)
    self.assertEqual(
        [ledger.num_rounds(name) for name in plan.silos], [8, 5, 8]
    )

  def test_other_absences_are_another_run(self):
    silo_run.run(self.root, total_rounds=1)
    with self.assertRaisesRegex(_checks.ArgumentError, 'absences'):
      silo_run.run(self.root, plan=silo_run.build_process().plan)


class RefusalTest(parameterized.TestCase):

  def _refused(self, process, plan, reason, **kwargs):
    root = pathlib.Path(
        self.enterContext(tempfile.TemporaryDirectory())
    ) / 'run'
    with self.assertRaisesRegex(
        (_checks.PrivacyRefusedError, _checks.ArgumentError), reason
    ):
      silo_run.run(root, process, plan=plan, **kwargs)
    self.assertFalse(root.exists())

  def test_another_plan(self):
    process = silo_run.build_process()
    other = dataclasses.replace(process.plan, terms={
        name: dataclasses.replace(terms, scale=2.0)
        for name, terms in process.plan.terms.items()
    })
    self._refused(process, other, 'was built from the plan')
    self._refused(
        process, tff_dp.NonPrivatePlan(
            tff_dp.participation.MinSeparation(2, min_index_gap=1), 2
        ), 'silos cannot be trained under a NonPriv',
    )

  def test_process_without_a_plan_or_with_that_of_another_process(self):
    plan = silo_run.build_process().plan
    fed_avg = tff.learning.algorithms.build_unweighted_fed_avg(
        small_model.build(), tff.learning.optimizers.build_sgdm(0.1)
    )
    self._refused(fed_avg, plan, 'not built from a plan of silos\n(.*\n)*.*sil')
    fed_avg.plan = plan
    self._refused(fed_avg, plan, 'adds no noise of a plan(.*\n)*.*silos.build_')

  def test_process_whose_graph_is_of_another_plan(self):
    # The same number of rounds, but a batch of one record a step.
    process = silos.build_isrl_local_sgd(
        _model(),
        num_rounds=_NUM_ROUNDS,
        num_local_steps=1,
        learning_rate=0.5,
        **silo_run.arguments(),
    )
    plan = silo_run.build_process().plan
    process.plan = plan
    self._refused(process, plan, 'adds other noise')

  def test_state_of_another_process(self):
    process = silo_run.build_process()
    certificate = certification.certify(process, process.plan)
    state = process.initialize()
    certificate.check(state, None, rounds_done=0)
    for name in ('round', 'release_id'):
      changed = dict(state.client_work)
      changed[name] = changed[name] + 1
      other = tff.learning.templates.LearningAlgorithmState(
          state.global_model_weights,
          state.distributor,
          changed,
          state.aggregator,
          state.finalizer,
      )
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'after round 0'):
        certificate.check(other, None, rounds_done=0)

  def test_metrics_without_noise(self):
    process = silos.build_noisy_mb_sgd(
        _model(),
        num_rounds=2,
        sampling=silo_sampling.PoissonSampling(5),
        learning_rate=0.5,
        allow_unprotected_metrics=True,
        **silo_run.arguments(),
    )
    self._refused(process, process.plan, 'clients report .*without noise')

  def test_messages_whose_noise_is_not_marked(self):
    with mock.patch.object(
        release_marks.Release, 'mark', lambda self, noised: noised
    ):
      process = _BUILDERS['fixed']()
    self._refused(process, process.plan, 'adds no noise of a plan.*model_weigh')

  def test_who_is_there_is_all_that_is_known_without_noise(self):
    process = silo_run.build_process()
    for is_public in (True, False):
      flow = data_flow.follow(process.next, presence_is_public=is_public)
      traced = [path for path, traces in flow.leaves.items() if traces]
      self.assertEqual(not traced, is_public)

  @parameterized.parameters(
      (['north', 'south', 'west', 'east'], r"client_ids=\['east'\]"),
      (['north', 'south'], r"client_ids=\['west'\]"),
  )
  def test_names_of_silos(self, names, reason):
    clients = silo_run.Clients()
    clients.client_ids = names
    self._refused(
        silo_run.build_process(), silo_run.build_process().plan, reason,
        clients=clients,
    )

  def test_seed_of_a_schedule(self):
    process = silo_run.build_process()
    self._refused(process, process.plan, 'schedule_seed=1', schedule_seed=1)


if __name__ == '__main__':
  absltest.main()
