# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Real runs of draw and discard: what is charged, refused and written."""

import collections
import contextlib
import csv
import dataclasses
import functools
import io
import json
import math
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tff_dp

from tests.learning import small_model
from tests.program import kills
from tests.systems.draw_and_discard import instance_run
from tff_dp import _checks
from tff_dp import execution
from tff_dp import learning
from tff_dp.aggregators import release_marks
from tff_dp.cli import main
from tff_dp.files import write_ahead
from tff_dp.ledger import participation_ledger as ledger_lib
from tff_dp.participation import sampling
from tff_dp.program import certification
from tff_dp.program import cohorts as cohorts_lib
from tff_dp.program import data_flow
from tff_dp.program import run as run_lib
from tff_dp.program.files import checkpoints
from tff_dp.systems.draw_and_discard import client as client_lib
from tff_dp.systems.draw_and_discard import training as training_lib

_DELTA = 1e-5
_LAPLACE = dict(clip='box', mechanism='laplace', epsilon=0.3, delta=None)
_SILENT = dict(mechanism=None, epsilon=None, delta=None)


def setUpModule():
  execution.set_default_context()


def _build(**changes):
  return instance_run.build_process(instance_run.build_plan(**changes))


_usual = instance_run._process  # pylint: disable=protected-access


@functools.cache
def _silent():
  return _build(step=_SILENT)


class TrainTest(kills.RunsTestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.root = cls.parent / 'run'
    cls.committed = []
    commit = ledger_lib.ParticipationLedger.commit

    def watched(ledger, client_ids, round_index):
      commit(ledger, client_ids, round_index)
      cls.committed.append(list(client_ids))

    with mock.patch.object(ledger_lib.ParticipationLedger, 'commit', watched):
      cls.result = instance_run.run(cls.root)
    cls.plan = instance_run.build_plan()

  def test_runs_to_the_end_at_the_cap(self):
    self.assertEqual(self.result.rounds_done, instance_run.NUM_ROUNDS)
    counts = collections.Counter(sum(self.committed, []))
    self.assertEqual(set(counts.values()), {self.plan.max_participations})
    self.assertEqual(self.result.epsilon, self.plan.epsilon(delta=_DELTA))
    self.assertEqual(self.result.statement.epsilon, self.result.epsilon)

  def test_released_model_is_the_mean_of_the_instances(self):
    like = _usual().initialize()
    store = checkpoints.CheckpointStore(self.root / 'secret' / 'checkpoints')
    state = store.load(instance_run.NUM_ROUNDS, like=like).process_state
    with np.load(self.root / 'release' / 'model.npz') as model:
      released = np.concatenate([np.ravel(model[name]) for name in model])
    np.testing.assert_allclose(
        released, np.mean(state.instances, axis=0), rtol=1e-5
    )
    np.testing.assert_array_equal(
        released, small_model.flat(self.result.model_weights)
    )

  def test_metrics_are_public_or_of_noised_reports(self):
    text = (self.root / 'release' / 'metrics.csv').read_text()
    rows = list(csv.DictReader(io.StringIO(text)))
    self.assertEqual(
        [float(row['epsilon']) for row in rows],
        [
            self.plan.epsilon(delta=_DELTA, num_rounds=t)
            for t in range(1, instance_run.NUM_ROUNDS + 1)
        ],
    )
    self.assertEqual(float(rows[0]['aggregator/num_stored']), 2)
    self.assertGreater(float(rows[0]['aggregator/spread']), 0)
    self.assertNotEmpty(rows[-1]['test_sum'])

  def test_statement_and_events(self):
    release = self.root / 'release'
    statement = json.loads((release / 'privacy_statement.json').read_text())
    self.assertEqual(statement['kind'], 'draw_and_discard')
    self.assertIn(
        '8 clients took part, none more than 3',
        statement['points']['implementation']['realised_participation'],
    )
    with mock.patch('builtins.print') as printed:
      code = main.main([
          'account', '--events', str(release / 'events.json'),
          '--format', 'json',
      ])
    self.assertEqual(code, 0)
    recomputed = json.loads(printed.call_args.args[0])
    self.assertEqual(recomputed['epsilon'], self.result.epsilon)
    self.assertEqual(recomputed['plan'], self.plan.describe())

  def test_budget_stops_before_the_participation_that_does_not_fit(self):
    budget = self.plan.epsilon(delta=_DELTA, participations=2)
    result = instance_run.run(self.parent / 'budget', epsilon_budget=budget)
    self.assertEqual((result.rounds_done, result.stop_reason), (2, 'budget'))
    self.assertEqual(result.epsilon, budget)
    self.assertIn('smaller max_participations', result.message)

  def test_step_without_noise_by_name(self):
    stderr = self.enterContext(contextlib.redirect_stderr(io.StringIO()))
    root = self.parent / 'no mechanism'
    result = instance_run.run(
        root, _silent(), total_rounds=2, progress='plain'
    )
    self.assertStartsWith(stderr.getvalue(), 'NO PRIVACY')
    self.assertEqual(result.epsilon, math.inf)
    self.assertStartsWith(result.statement.warnings[0], 'NO PRIVACY')
    events = json.loads((root / 'release' / 'events.json').read_text())
    self.assertStartsWith(events['warnings'][0], 'NO PRIVACY')
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'epsilon inf'):
      instance_run.run(self.parent / 'b', _silent(), epsilon_budget=9.0)

  @pytest.mark.slow
  def test_without_privacy_by_name(self):
    plan = tff_dp.NonPrivatePlan(
        sampling.UniformSampling(2), clients_per_round=2
    )
    process = instance_run.build_process(
        instance_run.build_plan(step=_SILENT), client_keys=False
    )
    result = instance_run.run(self.parent / 'silent', process, plan=plan)
    self.assertEqual(result.rounds_done, 2)
    self.assertStartsWith(result.statement.warnings[0], 'NO PRIVACY')

  def test_population_that_would_have_to_come_too_often(self):
    class Fewer(instance_run.Clients):
      client_ids = instance_run.Clients.client_ids[:-1]

    with self.assertRaisesRegex(
        _checks.ArgumentError, 'max_participations=3.*at least 4'
    ):
      instance_run.run(self.parent / 'fewer', clients=Fewer())
    self.assertFalse((self.parent / 'fewer').exists())

  def test_charged_round_is_not_charged_again_after_a_kill(self):
    root = self.parent / 'killed'
    # Of round 5: it is on the disk as spent, and in no checkpoint.
    begin = kills.at_call(
        write_ahead.WriteAheadRecord.begin, 5, is_after=True
    )
    with mock.patch.object(write_ahead.WriteAheadRecord, 'begin', begin):
      with self.assertRaises(kills.Killed):
        instance_run.run(root)
    # A second charge of anybody would leave nobody for the last round.
    result = instance_run.run(root)
    self.assertEqual(result.rounds_done, instance_run.NUM_ROUNDS)
    self.assertEqual(result.epsilon, self.result.epsilon)
    lines = (root / 'secret' / 'write_ahead.jsonl').read_text().splitlines()
    begun = [entry for entry in map(json.loads, lines) if 'round' in entry]
    self.assertEqual(
        [entry['round'] for entry in begun],
        list(range(1, instance_run.NUM_ROUNDS + 1)),
    )
    self.assertEqual(begun[-1]['epsilon'], result.epsilon)

  def test_repeated_round_has_the_same_reports(self):
    root, reports = self.parent / 'repeated', []
    process = _usual()
    run_round = run_lib.Run.run_round

    def watched(run, selection):
      output, seconds = run_round(run, selection)
      instances = np.array(output.state.instances)
      reports.append((int(output.state.round), instances))
      return output, seconds

    self.enterContext(mock.patch.object(run_lib.Run, 'run_round', watched))
    save = kills.at_call(checkpoints.CheckpointStore.save, 3, is_after=False)
    with mock.patch.object(checkpoints.CheckpointStore, 'save', save):
      with self.assertRaises(kills.Killed):
        instance_run.run(root, process)
    instance_run.run(root, process)
    by_round = collections.defaultdict(list)
    for round_index, instances in reports:
      by_round[round_index].append(instances)
    self.assertLen(by_round[4], 2)
    for repeated in by_round.values():
      for instances in repeated:
        np.testing.assert_array_equal(instances, repeated[0])


  def test_interrupted_round_needs_the_same_process(self):
    root = self.parent / 'another'
    plan = instance_run.build_plan()
    other = instance_run.build_process(plan, loss_scale=2.0)
    save = kills.at_call(checkpoints.CheckpointStore.save, 2, is_after=False)
    with mock.patch.object(checkpoints.CheckpointStore, 'save', save):
      with self.assertRaises(kills.Killed):
        instance_run.run(root, _usual())
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'round 3 .* another computation'
    ):
      instance_run.run(root, other)
    # The same code makes the same computation.
    same = instance_run.build_process(plan)
    instance_run.run(root, same, total_rounds=3)
    result = instance_run.run(root, other, total_rounds=4)
    self.assertEqual(result.rounds_done, 4)


class CohortsTest(absltest.TestCase):

  def _cohorts(self, plan=None):
    found = cohorts_lib.build(
        plan or instance_run.build_plan(),
        instance_run.Clients(),
        schedule_seed=0,
    )
    self.assertIsInstance(found, training_lib.InstanceCohorts)
    found.begin('run')
    return found

  def _keys(self, selection):
    return [
        np.asarray(list(data[client_lib.KEY])[0][0]).tolist()
        for data in selection.read()
    ]

  def test_client_beyond_the_cap_is_refused(self):
    found = self._cohorts()
    # Whatever chooses, the ledger has the last word.
    with mock.patch.object(
        sampling.UniformSampling,
        'select',
        lambda *_, **kwargs: kwargs['client_ids'][:2],
    ):
      for round_index in (1, 2, 3):
        found.select(round_index)
      before = found.to_bytes()
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'round 4: 2 of 2 selected clients'
      ):
        found.select(4)
    self.assertEqual(found.to_bytes(), before)

  def test_keys_are_of_the_client_and_of_the_run(self):
    first, second = self._cohorts(), self._cohorts()
    selections = [first.select(t) for t in range(1, 13)]
    by_client = collections.defaultdict(set)
    for selection in selections:
      for client, key in zip(selection.ids, self._keys(selection)):
        by_client[client].add(tuple(key))
    self.assertEqual({len(keys) for keys in by_client.values()}, {1})
    self.assertLen(set().union(*by_client.values()), len(by_client))
    other = second.select(1)
    self.assertEqual(other.ids, selections[0].ids)
    self.assertNotEqual(self._keys(other), self._keys(selections[0]))

  def test_restored_goes_on_with_the_same_keys_and_counts(self):
    found = self._cohorts()
    for round_index in (1, 2):
      found.select(round_index)
    data = found.to_bytes()
    expected = [found.select(t) for t in (3, 4)]
    again = self._cohorts()
    again.restore(data)
    for selection, round_index in zip(expected, (3, 4)):
      repeated = again.select(round_index)
      self.assertEqual(repeated.ids, selection.ids)
      self.assertEqual(self._keys(repeated), self._keys(selection))
    self.assertEqual(again.to_bytes(), found.to_bytes())

  def test_damaged_bytes_are_refused(self):
    # Of the ledger; the root key before it has the checkpoint's checksum.
    data = self._cohorts().to_bytes()
    for place in (40, len(data) - 1):
      damaged = bytearray(data)
      damaged[place] ^= 1
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'damaged'):
        self._cohorts().restore(bytes(damaged))


class CertificationTest(parameterized.TestCase):

  def _check_refused(self, process, plan, what):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, what) as raised:
      certification.certify(process, plan)
    return raised.exception

  @parameterized.parameters(
      {},
      dict(strategy='same'),
      dict(strategy='average_same'),
      dict(strategy='accept_1_over_k'),
      dict(strategy='server_batch', num_instances=1, server_batch=4),
      dict(step=_LAPLACE),
  )
  @pytest.mark.slow(but=['0', '5'])
  def test_processes_of_the_builder(self, **changes):
    process = _build(**changes) if changes else _usual()
    certificate = certification.certify(process, process.plan)
    self.assertEmpty(certificate.not_covered)
    certificate.check(process.initialize(), None, rounds_done=0)

  def test_state_and_metrics_of_a_round(self):
    process = _usual()
    certificate = certification.certify(process, process.plan)
    data = learning.client_data(small_model.client(1), np.int64([1, 2]))
    output = process.next(process.initialize(), [data, data])
    certificate.check(output.state, output.metrics, rounds_done=1)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'after round 2'):
      certificate.check(output.state, output.metrics, rounds_done=2)

  def test_a_plan_with_noise_does_not_take_a_process_without(self):
    process, noised = _silent(), instance_run.build_plan()
    self._check_refused(process, noised, 'built from the plan')
    # What counts is the mark in the reports, not what the process says.
    with mock.patch.object(process, 'plan', noised):
      self._check_refused(process, noised, 'other noise')

  @parameterized.parameters(
      dict(step=dict(epsilon=1.9)),
      dict(step=dict(clip_norm=0.9)),
      dict(max_participations=4),
      dict(num_instances=5),
  )
  def test_another_plan(self, **changes):
    process, other = _usual(), instance_run.build_plan(**changes)
    refusal = self._check_refused(process, other, 'built from the plan')
    self.assertIn('calibrate first', refusal.way_out)
    # An attribute is nothing to go by.
    with mock.patch.object(process, 'plan', other):
      self._check_refused(process, other, 'adds other noise')

  def test_state_of_another_plan(self):
    process, other = _usual(), _silent()
    certificate = certification.certify(process, process.plan)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'release_id'):
      certificate.check(other.initialize(), None, rounds_done=0)

  def test_process_of_something_else(self):
    plan = instance_run.build_plan()
    process = tff.learning.algorithms.build_unweighted_fed_avg(
        small_model.build(), tff.learning.optimizers.build_sgdm(0.1)
    )
    refusal = self._check_refused(process, plan, 'not built from a plan')
    self.assertIn('build_draw_and_discard', refusal.way_out)
    process.plan = plan
    self._check_refused(process, plan, 'adds no noise')

  def test_reports_that_a_repeated_round_would_not_repeat(self):
    plan = instance_run.build_plan()
    process = instance_run.build_process(plan, client_keys=False)
    refusal = self._check_refused(process, plan, 'no key of their own')
    self.assertIn('client_keys=True', refusal.way_out)

  def test_metrics_without_noise(self):
    plan = instance_run.build_plan()
    process = instance_run.build_process(plan, allow_unprotected_metrics=True)
    self._check_refused(process, plan, 'report .*loss.* without noise')
    # Nothing checks the process where its plan alone states the guarantee.
    stated = process.plan.statement(delta=1e-6)
    self.assertIn('to all that the adversary sees', stated.warnings[-1])
    self.assertIn(
        'metrics without noise does not follow this plan',
        stated.points['release']['not_covered'],
    )

  def test_draw_that_follows_from_the_data(self):
    with mock.patch.object(release_marks, 'mark_coin', tf.identity):
      process = _build()
      self._check_refused(process, process.plan, 'depends? on')
    asked = data_flow.follow(process.next).asked
    self.assertNotEmpty(asked)
    # Where the draw is in no state, the server still sees what was asked for.
    process = _usual()
    flow = dataclasses.replace(data_flow.follow(process.next), asked=asked)
    with mock.patch.object(data_flow, 'follow', lambda _, **options: flow):
      self._check_refused(process, process.plan, 'depend on its data')

  def test_report_that_bypasses_the_noise(self):
    mark = release_marks.Release.mark
    with mock.patch.object(
        release_marks.Release,
        'mark',
        lambda release, noised: mark(release, noised) + noised,
    ):
      process = _build()
    self._check_refused(process, process.plan, 'state.*depends? on')


if __name__ == '__main__':
  absltest.main()
