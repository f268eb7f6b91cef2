# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of loops of one's own: five that are right, and many wrong ones."""

import asyncio
import collections
import contextlib
import json
import os
import pathlib
import shutil
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tff_dp
import tensorflow as tf  # pylint: disable=g-bad-import-order
import tensorflow_federated as tff

from tests.learning import small_model
from tests.program import kills
from tests.program import processes
from tests.program import protocol_run
from tests.program import toy
from tests.systems.draw_and_discard import instance_run
from tests.systems.silos import secure_sum_run
from tests.systems.silos import silo_run
from tff_dp import _checks
from tff_dp import _failures
from tff_dp import execution
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp import program
from tff_dp.files import run_directory
from tff_dp.files import write_ahead
from tff_dp.program import loop as loop_lib
from tff_dp.program import random_operations
from tff_dp.program.display import documents
from tff_dp.program.files import checkpoints

_DELTA = 1e-5
_ROUNDS = 6


def setUpModule():
  execution.set_default_context()


def _plan(**changes) -> tff_dp.DpFtrlPlan:
  schedule = participation.MinSeparation(_ROUNDS, min_index_gap=2)
  arguments = dict(participation=schedule, noise_multiplier=8.0)
  return small_model.build_plan(
      mechanisms.HonakerTree(_ROUNDS), **(arguments | changes)
  )


def _data(client_ids) -> list[tf.data.Dataset]:
  return [processes.Clients().create_tf_dataset_for_client(i) for i in client_ids]


class _LoopTestCase(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    folder = self.enterContext(tempfile.TemporaryDirectory())
    self.root = pathlib.Path(folder) / 'run'
    # Its charts take longer than all rounds here.
    self.enterContext(mock.patch.object(documents, 'write'))

  def _loop(self, process=None, clients=None, **arguments) -> program.Loop:
    if process is None:
      process = processes.of_plan(_plan())
    made = program.Loop(
        process,
        processes.Clients() if clients is None else clients,
        output_dir=self.root,
        **(dict(delta=_DELTA) | arguments),
    )
    self.addCleanup(made.close)
    return made

  def _assert_states(self, statement, *, rounds: int) -> None:
    """Fails unless a statement is about a process that was checked."""
    text = statement.to_markdown()
    self.assertNotIn('NOT VERIFIED', text)
    self.assertIn(f'{rounds} of {_ROUNDS} planned rounds are done', text)
    on_disk = (self.root / 'release' / 'privacy_statement.md').read_text()
    self.assertEqual(text, on_disk)


class RightLoopsTest(_LoopTestCase):

  def test_poisson_cohorts_with_adaptive_clipping(self):
    plan = small_model.build_plan(
        mechanisms.Tree(_ROUNDS, restart_every=2),
        participation=participation.OncePerTree(_ROUNDS),
        adaptive_clipping=mechanisms.AdaptiveClipping(),
        noise_multiplier=8.0,
    )
    loop = self._loop(processes.of_plan(plan))
    rng, sizes = np.random.default_rng(4), []
    while loop.rounds_left:
      cohort = [each for each in loop.eligible() if rng.random() < 0.25]
      output = loop.next(cohort)
      sizes.append(len(cohort))
      found = output.metrics['aggregator']['not_covered']['num_clients']
      self.assertEqual(int(found), len(cohort))
    self.assertContainsSubset({0, 1}, sizes)
    self.assertEqual(loop.epsilon, plan.epsilon(delta=_DELTA))
    self._assert_states(loop.statement(), rounds=_ROUNDS)

  def test_random_choice_made_legal_by_one_line(self):
    loop = self._loop(epsilon_budget=50.0)
    rng = np.random.default_rng(1)
    for _ in range(_ROUNDS):
      loop.next(rng.choice(loop.eligible(), 2, replace=False))
    statement = loop.statement()
    self._assert_states(statement, rounds=_ROUNDS)
    self.assertEqual(statement.epsilon, _plan().epsilon(delta=_DELTA))
    self.assertIn(
        'hands to its caller', statement.points['release']['not_covered']
    )
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'beyond the plan of 6 rounds'
    ):
      loop.eligible()

  def test_run_training_process_with_a_state_manager_killed_and_restored(self):
    seen, killed = collections.defaultdict(list), []

    class Manager(tff.program.ReleaseManager):

      async def release(self, value, key=None):
        seen[key].append(value['finalizer']['update_non_finite'])
        if key == 3 and not killed:
          killed.append(key)
          raise kills.Killed

    def run():
      loop = self._loop()
      first = loop.rounds_done
      rng = np.random.default_rng(first)
      return loop, tff.simulation.run_training_process(
          loop.process,
          lambda _: rng.choice(loop.eligible(), 2, replace=False),
          total_rounds=_ROUNDS,
          program_state_manager=loop.state_manager,
          rounds_per_saving_program_state=2,
          metrics_managers=[Manager()],
      )

    asyncio.set_event_loop(asyncio.new_event_loop())
    with self.assertRaises(kills.Killed):
      run()
    loop, state = run()
    self.assertIs(state, loop.state)
    # Round 3 was released before the kill, so it does not run again.
    self.assertEqual({key: len(found) for key, found in seen.items()},
                     dict.fromkeys(range(1, _ROUNDS + 1), 1))
    self._assert_states(loop.statement(), rounds=_ROUNDS)
    self.assertEqual(loop.epsilon, _plan().epsilon(delta=_DELTA))

  def test_fed_prox_with_batch_normalisation(self):
    def model_fn():
      return tff.learning.models.from_keras_model(
          tf.keras.Sequential([
              tf.keras.layers.BatchNormalization(input_shape=(2,)),
              tf.keras.layers.Dense(1),
          ]),
          loss=tf.keras.losses.MeanSquaredError(),
          input_spec=(
              tf.TensorSpec([None, 2], tf.float32),
              tf.TensorSpec([None, 1], tf.float32),
          ),
      )

    clients = processes.Clients()
    clients.create_tf_dataset_for_client = lambda client_id: small_model.client(
        int(client_id)
    ).map(lambda x, y: (x, y[:, tf.newaxis]))
    process = tff.learning.algorithms.build_unweighted_fed_prox(
        model_fn,
        proximal_strength=0.1,
        client_optimizer_fn=processes.SGD,
        model_aggregator=_plan().aggregator(),
    )
    before = process.get_model_weights(process.initialize())
    loop = self._loop(process, clients)
    for _ in range(_ROUNDS):
      loop.next()  # The schedule of the plan chooses.
    after = loop.model_weights
    self.assertFalse(np.array_equal(before.trainable[0], after.trainable[0]))
    # Moving averages of clients do not leave them.
    for old, new in zip(before.non_trainable, after.non_trainable, strict=True):
      np.testing.assert_array_equal(old, new)
    self._assert_states(loop.statement(), rounds=_ROUNDS)

  def test_a_notebook_whose_cells_run_twice(self):
    def second_cell(loop):
      for _ in range(3):
        loop.next()

    loop = self._loop()
    second_cell(loop)
    # The first cell builds another process of the same plan.
    again = self._loop(processes.of_aggregator(_plan().aggregator()))
    second_cell(again)
    self.assertEqual(again.rounds_done, _ROUNDS)
    self._assert_states(again.statement(), rounds=_ROUNDS)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'opened again'):
      loop.next()
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'another output_dir'
    ):
      second_cell(again)

  def test_it_says_what_a_user_has_to_know(self):
    loop = self._loop(epsilon_budget=50.0)
    text = str(loop)
    self.assertStartsWith(text, 'epsilon 0')
    for expected in (
        'budget 50; 0 of 6 rounds, 6 left',
        'zero_out adjacency',
        'loop.eligible()',
        'indices differ by at least 2',
        'times as long as its noise',
    ):
      self.assertIn(expected, text)
    self.assertEqual(loop._repr_markdown_().count('\n- '), text.count('\n'))
    self.assertEqual(loop.eligible(), processes.Clients.client_ids)
    cohort = loop.eligible()[:2]
    loop.next(cohort)
    self.assertEqual(loop.eligible(), processes.Clients.client_ids[2:])
    self.assertEqual(loop.eligible(['5', '0']), ['5'])
    spent = _plan().epsilon(delta=_DELTA, num_rounds=1)
    self.assertEqual(loop.epsilon, spent)
    self.assertIn(f'{spent:.3f}'[:4], repr(loop))
    loop.write_model()
    self.assertTrue((self.root / 'release' / 'model.npz').exists())

  def test_weak_delta_is_said(self):
    with contextlib.closing(self._loop(delta=0.05)) as loop:
      self.assertEmpty(loop.statement().warnings)
    shutil.rmtree(self.root)
    (weak,) = self._loop(delta=0.0999, clients=_Many()).statement().warnings
    self.assertStartsWith(weak, 'WEAK: delta 0.0999 is not below')

  def test_ids_for_a_process_that_reads_data_by_id(self):
    datasets = tff.simulation.datasets.TestClientData(
        {f'c{i}': _numbers(i) for i in range(6)}
    )
    plan = _plan()
    process = tff.simulation.compose_dataset_computation_with_learning_process(
        datasets.preprocess(lambda d: d.map(_pair).batch(2)).dataset_computation,
        processes.of_plan(plan),
    )
    loop = self._loop(process, datasets, plan=plan)
    output = loop.next(['c1', 'c2'])
    self.assertEqual(
        int(output.metrics['aggregator']['not_covered']['num_clients']), 2
    )

  def test_run_without_privacy(self):
    plan = tff_dp.NonPrivatePlan(
        participation.UniformSampling(_ROUNDS), clients_per_round=2
    )
    loop = self._loop(processes.without_noise(), plan=plan)
    loop.next(['1', '2'])
    self.assertStartsWith(str(loop), 'NO PRIVACY; 1 of 6 rounds')
    self.assertStartsWith(loop.statement().warnings[0], 'NO PRIVACY')


class SystemsTest(_LoopTestCase):
  """Every system runs in a loop, and resumes where another loop was left."""

  @parameterized.named_parameters(
      ('fixed_window', lambda: _of_protocol(protocol_run.FIXED_WINDOW), False),
      ('shuffled', lambda: _of_protocol(protocol_run.SHUFFLED), False),
      ('cyclic', lambda: _of_protocol(protocol_run.CYCLIC), False),
      ('silos', lambda: (silo_run.build_process(), silo_run.Clients()), False),
      (
          'secure_sums',
          lambda: (
              secure_sum_run.build_process(),
              silo_run.Clients(secure_sum_run.RECORDS),
          ),
          False,
      ),
      (
          'draw_and_discard',
          lambda: (
              instance_run.build_process(instance_run.build_plan()),
              instance_run.Clients(),
          ),
          True,
      ),
  )
  # One of each way to choose a cohort.
  @pytest.mark.slow(but=['shuffled', 'cyclic', 'silos', 'draw_and_discard'])
  def test_system(self, build, is_chosen):
    process, clients = build()
    loop = self._loop(process, clients)
    if is_chosen:
      loop.next(loop.eligible()[:1])
    else:
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, r'cannot be chosen[^^]*loop\.next\(\)'
      ):
        loop.next(clients.client_ids[:1])
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'cannot be chosen'
      ):
        loop.eligible()
      loop.next()
    self.assertIn('who takes part: ', str(loop))
    # The first loop is left as it is, as when a notebook's cell runs again.
    again = self._loop(process, clients)
    again.next()
    self.assertEqual(again.rounds_done, 2)
    statement = again.statement()
    self.assertNotIn('NOT VERIFIED', statement.to_markdown())
    self.assertEqual(statement.points['mechanism']['rounds_done'], 2)
    self.assertEqual(
        statement.epsilon, again.plan.epsilon_after(2, delta=_DELTA)
    )


def _of_protocol(kind: str):
  process = protocol_run.build_process(protocol_run.build_plan(kind))
  return process, protocol_run.Clients()


class SentReportsTest(_LoopTestCase):
  """Draw and discard: nobody is trusted, so a report counts once it is sent.
  """

  def setUp(self):
    super().setUp()
    self.process = instance_run.build_process(instance_run.build_plan())

  def _made(self) -> program.Loop:
    return self._loop(self.process, instance_run.Clients())

  @parameterized.parameters(
      # Killed while the loop saves the round, and before it trains.
      ((checkpoints.CheckpointStore, 'save'),),
      ((write_ahead.WriteAheadRecord, 'begin'),),
  )
  def test_round_that_was_killed_keeps_its_cohort(self, target):
    owner, name = target
    loop = self._made()
    cohort = ['client 0', 'client 1']
    stand_in = kills.at_call(
        getattr(owner, name), 1, is_after=name == 'begin'
    )
    with mock.patch.object(owner, name, stand_in):
      with self.assertRaises(kills.Killed):
        loop.next(cohort)
    # Not closed: another process would find the files like this.
    loop_lib._loops.clear()
    loop._stack.close()
    again = self._made()
    self.assertEqual(again.required_cohort, cohort)
    for other in (['client 2', 'client 3'], ['client 1', 'client 0'], None):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, r'sent their reports[^^]*required_cohort'
      ):
        again.next(other)
    again.next(again.required_cohort)
    self.assertIsNone(again.required_cohort)
    again.next(['client 2', 'client 3'])
    self.assertEqual(again.rounds_done, 2)

  def test_reports_that_are_sent_again_are_the_same(self):
    loop, states = self._made(), []
    save = checkpoints.CheckpointStore.save

    def look(store, checkpoint):
      states.append(checkpoints.pack(checkpoint.process_state))
      if len(states) == 1:
        raise kills.Killed
      save(store, checkpoint)

    with mock.patch.object(checkpoints.CheckpointStore, 'save', look):
      with self.assertRaises(kills.Killed):
        loop.next(['client 0', 'client 1'])
      again = self._made()
      again.next(again.required_cohort)
    self.assertLen(states, 2)
    self.assertEqual(*states)

  def test_interrupted_round_needs_the_same_process(self):
    plan = instance_run.build_plan()
    other = instance_run.build_process(plan, loss_scale=2.0)
    with mock.patch.object(
        checkpoints.CheckpointStore,
        'save',
        kills.at_call(checkpoints.CheckpointStore.save, 2, is_after=False),
    ):
      loop = self._made()
      with self.assertRaises(kills.Killed):
        loop.next(['client 0', 'client 1'])
    stored = self.root / 'secret' / 'process.json'
    found = stored.read_bytes()
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'round 1 .* another computation'
    ):
      self._loop(other, instance_run.Clients())
    self.assertEqual(stored.read_bytes(), found)
    # The same code makes the same computation.
    self.process = instance_run.build_process(plan)
    again = self._made()
    again.next(again.required_cohort)
    # From here on, another process sends no second report.
    again = self._loop(other, instance_run.Clients())
    with mock.patch.object(
        checkpoints.CheckpointStore,
        'save',
        kills.at_call(checkpoints.CheckpointStore.save, 1, is_after=False),
    ):
      with self.assertRaises(kills.Killed):
        again.next(['client 2', 'client 3'])
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'round 2 '):
      self._made()
    self.assertEqual(
        self._loop(other, instance_run.Clients()).required_cohort,
        ['client 2', 'client 3'],
    )

  def _draws_anew(self) -> None:
    self.enterContext(
        mock.patch.object(
            random_operations, 'names', return_value=['RandomUniform']
        )
    )

  @parameterized.parameters(True, False)
  def test_clients_that_draw_anew_send_no_second_report(self, is_killed):
    self._draws_anew()
    loop, cohort = self._made(), ['client 0', 'client 1']
    loop.next(cohort)
    if is_killed:
      save = checkpoints.CheckpointStore.save
      with mock.patch.object(
          checkpoints.CheckpointStore,
          'save',
          kills.at_call(save, 1, is_after=False),
      ), self.assertRaises(kills.Killed):
        loop.next(cohort)
      loop = self._made()
    else:
      broken = small_model.client(1).map(
          lambda x, y: (tf.debugging.check_numerics(x / 0.0, 'broken'), y)
      )
      with mock.patch.object(
          instance_run.Clients,
          'create_tf_dataset_for_client',
          return_value=broken,
      ), self.assertRaises(_failures.ClientComputationError):
        loop.next(cohort)
    for cohort in (loop.required_cohort, ['client 2', 'client 3']):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'round 2 .*RandomUniform[^^]*dropout'
      ):
        loop.next(cohort)
    self.assertEqual(loop.rounds_done, 1)

  def _train_until_killed_in_round_5(self) -> None:
    begin = write_ahead.WriteAheadRecord.begin
    with mock.patch.object(
        write_ahead.WriteAheadRecord,
        'begin',
        kills.at_call(begin, 5, is_after=True),
    ), self.assertRaises(kills.Killed):
      instance_run.run(self.root)

  def test_data_of_clients_that_come_in_another_order(self):
    def shuffled(name):
      return small_model.client(int(name[-1])).shuffle(4, seed=1)

    clients = mock.patch.object(
        instance_run.Clients,
        'create_tf_dataset_for_client',
        side_effect=shuffled,
    )
    with clients:
      self._train_until_killed_in_round_5()
    for _ in range(2):
      with clients, self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'round 5 .*Shuffle'
      ):
        instance_run.run(self.root)
    # Data without the shuffle are other data, too.
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'Shuffle'):
      instance_run.run(self.root)

  def test_train_of_clients_that_draw_anew(self):
    self._draws_anew()
    self._train_until_killed_in_round_5()
    for _ in range(2):
      # Round 4 is saved, though only every third round had to be.
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'round 5 [^^]*total_rounds=4'
      ):
        instance_run.run(self.root)
    result = instance_run.run(self.root, total_rounds=4)
    self.assertEqual(result.rounds_done, 4)
    stated = result.statement.points['mechanism']
    self.assertEqual(stated['rounds_done'], 5)

  def test_clients_that_draw_anew_had_no_data_yet(self):
    self._draws_anew()
    loop, cohort = self._made(), ['client 0', 'client 1']
    with mock.patch.object(
        instance_run.Clients,
        'create_tf_dataset_for_client',
        side_effect=OSError(5, 'Input/output error'),
    ):
      with self.assertRaises(OSError):
        loop.next(cohort)
    loop.next(cohort)
    self.assertEqual(loop.rounds_done, 1)

  def test_process_that_the_run_has_not_stored_is_refused(self):
    loop = self._made()
    begin = kills.at_call(
        write_ahead.WriteAheadRecord.begin, 1, is_after=True
    )
    with mock.patch.object(write_ahead.WriteAheadRecord, 'begin', begin):
      with self.assertRaises(kills.Killed):
        loop.next(['client 0', 'client 1'])
    (self.root / 'secret' / 'process.json').unlink()
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'not known'):
      self._made()


class WrongLoopsTest(_LoopTestCase):
  """Each of these loops claimed, or could claim, what it did not do."""

  def test_new_ledger_beside_a_restored_state(self):
    ledger = _plan().participation_ledger('my run')
    with self.assertRaises(_checks.PrivacyRefusedError) as caught:
      ledger.commit(['1', '2'], 4)
    self.assertIn('ledger.restored(data)', caught.exception.way_out)
    self.assertNotIn('empty', caught.exception.way_out)

  def test_empty_commits_are_stated_as_not_verified(self):
    ledger = _plan().participation_ledger('my run')
    for round_index in (1, 2, 3):
      ledger.commit([], round_index)
    ledger.commit(['1', '2'], 4)
    self._assert_not_verified(ledger.observed())

  def test_process_whose_parts_are_python_functions(self):
    process = processes.of_plan(_plan())
    for name in ('initialize', 'next'):
      with mock.patch.object(
          type(process), name, lambda *_: None
      ), self.assertRaisesRegex(
          _checks.ArgumentError, f'process.{name}[^^]*a TFF computation'
      ):
        self._loop(process)

  def test_process_that_starts_from_a_saved_state(self):
    process = processes.of_plan(_plan())
    saved = process.initialize()

    @tff.tensorflow.computation
    def start():
      return tf.nest.map_structure(tf.constant, saved)

    @tff.federated_computation
    def initialize():
      return tff.federated_eval(start, tff.SERVER)

    @tff.tensorflow.computation(process.initialize.type_signature.result.member)
    def warm(state):
      weights = state.global_model_weights
      ones = tf.nest.map_structure(tf.ones_like, weights.trainable)
      weights = weights._replace(trainable=ones)
      return state._replace(global_model_weights=weights)

    @tff.federated_computation
    def initialize_warm():
      return tff.federated_map(warm, process.initialize())

    def of(initialize):
      return tff.learning.templates.LearningProcess(
          initialize,
          process.next,
          process.get_model_weights,
          process.set_model_weights,
      )

    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'the same noise key again'
    ):
      self._loop(of(initialize))
    shutil.rmtree(self.root, ignore_errors=True)
    loop = self._loop(of(initialize_warm))
    for value in loop.model_weights.trainable:
      np.testing.assert_array_equal(value, np.ones_like(value))
    loop.next(['1', '2'])

  def test_process_without_noise(self):
    for plan in (None, _plan()):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'adds no noise'):
        self._loop(processes.without_noise(), plan=plan)
    ledger = _plan().participation_ledger('my run')
    for round_index in range(1, _ROUNDS + 1):
      ledger.commit([f'{round_index}'], round_index)
    self._assert_not_verified(ledger.observed())

  def _assert_not_verified(self, observed) -> None:
    statement = _plan().statement(delta=_DELTA, observed=observed)
    self.assertStartsWith(statement.warnings[0], 'NOT VERIFIED')
    text = statement.to_markdown()
    self.assertStartsWith(text, '# Privacy statement\n\n**NOT VERIFIED')
    self.assertIn('if a process follows this plan', text)
    self.assertNotIn('are kept in secret/', text)

  def test_data_instead_of_ids(self):
    loop = self._loop()
    with self.assertRaisesRegex(TypeError, 'client id must be str or bytes'):
      loop.next(_data(['1', '2']))
    with self.assertRaisesRegex(_checks.ArgumentError, 'a list of client ids'):
      loop.next('12')
    with self.assertRaisesRegex(TypeError, r'try str\(client_id\)'):
      loop.next([1, 2])
    with self.assertRaisesRegex(_checks.ArgumentError, "cohort=.'nobody'"):
      loop.next(['1', 'nobody'])
    self.assertEqual(loop.rounds_done, 0)

  def test_process_of_another_plan(self):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'other noise'):
      self._loop(plan=_plan(noise_multiplier=64.0))

  def test_process_in_the_directory_of_another(self):
    self._loop().close()
    other = processes.of_plan(_plan(noise_multiplier=9.0))
    with self.assertRaisesRegex(_checks.ArgumentError, 'noise_multiplier 8.0'):
      self._loop(other)

  def test_plan_that_is_calibrated_after_the_process_was_built(self):
    calibrated = _plan().calibrated(epsilon=1.0, delta=_DELTA)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'other noise'):
      self._loop(plan=calibrated)

  def test_one_state_that_runs_twice(self):
    loop = self._loop()
    first = loop.process.initialize()
    second = loop.process.next(first, ['1', '2']).state
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'not the one after round 1'
    ):
      loop.process.next(first, ['3', '4'])
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'not the one after round 1'
    ):
      loop.process.next('a state', ['3', '4'])
    # Equal bytes are the same state, as when TFF's manager has loaded it.
    copied = tf.nest.map_structure(np.array, second)
    loop.process.next(copied, ['3', '4'])
    self.assertEqual(loop.rounds_done, 2)

  def test_cohort_that_was_not_committed(self):
    process = processes.of_plan(_plan())
    loop = self._loop(process)
    loop.next(['1', '2'])
    beside = process.next(loop.state, _data(['3', '4'])).state
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'not the one after round 1'
    ):
      loop.process.next(beside, ['5', '6'])
    self.assertIn(
        'other rounds of the process',
        loop.statement().points['implementation']['process'],
    )

  def test_state_of_an_earlier_version(self):
    loop = self._loop()
    early = loop.next(['1', '2']).state
    loop.next(['3', '4'])
    again = self._loop(processes.of_plan(_plan()))
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'not the one after round 2'
    ):
      again.process.next(early, ['5', '6'])
    manager = again.state_manager
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'version 1'):
      asyncio.run(manager.save(early, 1))
    with self.assertRaises(tff.program.ProgramStateNotFoundError):
      asyncio.run(manager.load(1, early))
    state, version = asyncio.run(manager.load_latest(early))
    self.assertEqual(version, 2)
    again.process.next(state, ['5', '6'])

  def test_client_twice_too_soon_or_too_often(self):
    loop = self._loop()
    loop.next(['1', '2'])
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'only 1 different ones'
    ):
      loop.next(['3', '3'])
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'loop.eligible'):
      loop.next(['1', '3'])
    loop.next(['3'])
    self.assertEqual(loop.rounds_done, 2)

  def test_rollback_of_the_secret_files(self):
    loop = self._loop()
    loop.next(['1', '2'])
    shutil.copytree(self.root / 'secret', self.root.parent / 'copy')
    loop.next(['3', '4'])
    loop.close()
    shutil.rmtree(self.root / 'secret')
    shutil.copytree(self.root.parent / 'copy', self.root / 'secret')
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'has released rounds through 2'
    ):
      self._loop()

  def test_round_beyond_the_budget(self):
    budget = _plan().epsilon(delta=_DELTA, num_rounds=2)
    loop = self._loop(epsilon_budget=budget)
    while loop.rounds_left:
      loop.next()
    done = loop.rounds_done
    self.assertBetween(done, 2, _ROUNDS - 1)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'would spend'):
      loop.next()
    self.assertEqual(loop.rounds_done, done)
    self.assertLessEqual(loop.statement().epsilon, budget)

  def test_two_loops_in_a_directory(self):
    first = self._loop()
    second = self._loop(processes.of_plan(_plan()))
    second.next(['1', '2'])
    for call in (first.next, first.statement, first.eligible):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'this loop cannot go on'
      ):
        call()

  def test_loop_in_the_directory_of_train(self):
    process = processes.of_plan(_plan())
    with mock.patch.object(program.run.documents, 'write'):
      program.train(
          process,
          processes.Clients(),
          output_dir=self.root,
          delta=_DELTA,
          total_rounds=1,
          progress='quiet',
      )
    with self.assertRaisesRegex(_checks.ArgumentError, 'program.loop'):
      self._loop(process)

  def test_removal_of_the_states(self):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'output_dir'):
      asyncio.run(self._loop().state_manager.remove_all())


class _Many(processes.Clients):
  client_ids = [f'{i}' for i in range(11)]


def _numbers(seed: int) -> collections.OrderedDict:
  rng = np.random.default_rng(seed)
  return collections.OrderedDict(
      x=rng.standard_normal([4, 2]).astype(np.float32),
      y=rng.standard_normal([4]).astype(np.float32),
  )


def _pair(example):
  return example['x'], example['y']


class KilledLoopsTest(parameterized.TestCase):
  """Loops that are killed at any write, and resumed with other cohorts."""

  def setUp(self):
    super().setUp()
    folder = self.enterContext(tempfile.TemporaryDirectory())
    self.root = pathlib.Path(folder) / 'run'
    # Its charts take longer than all else.
    self.report = self.enterContext(mock.patch.object(documents, 'write'))

  @parameterized.product(
      target=(
          (run_directory, 'write_atomically'),
          (write_ahead.WriteAheadRecord, 'begin'),
          (write_ahead.WriteAheadRecord, 'release'),
          (toy.Next, '__call__'),
      ),
      number=(1, 2, 3, 5, 8),
      is_after=(False, True),
  )
  def test_no_round_is_returned_twice(self, target, number, is_after):
    returned, clients = [], {}

    def run(seed: int) -> None:
      rng = np.random.default_rng(seed)
      with toy.loop(self.root, toy.Process()) as loop:
        while loop.rounds_left:
          cohort = rng.choice(loop.eligible(), 3, replace=False).tolist()
          state = loop.next(cohort).state
          returned.append(int(state.round_index))
          clients[returned[-1]] = cohort

    owner, name = target
    stand_in = kills.at_call(getattr(owner, name), number, is_after=is_after)
    with mock.patch.object(owner, name, stand_in):
      with contextlib.suppress(kills.Killed):
        run(1)
    before = len(returned)
    # Not closed: another process would find the files like this.
    loop_lib._loops.clear()
    run(2)
    self.assertLen(set(returned), len(returned))
    self.assertEqual(returned, sorted(returned))
    # A round that was saved and not returned is lost to the caller: one at
    # most, and its clients count.
    self.assertLessEqual(toy.build_plan().num_rounds - len(returned), 1)
    self.assertEqual(returned[-1], toy.build_plan().num_rounds)
    self.assertLess(before, len(returned))
    for round_index in returned[1:]:
      if round_index - 1 in clients:
        self.assertNoCommonElements(
            clients[round_index], clients[round_index - 1]
        )
    record = self.root / 'secret' / 'write_ahead.jsonl'
    lines = record.read_text().splitlines()
    released = [json.loads(line).get('released') for line in lines]
    released = [each for each in released if each is not None]
    self.assertEqual(released[-1], toy.build_plan().num_rounds)
    self.assertEqual(released, sorted(set(released)))

  def test_failed_round_runs_again_with_other_clients(self):
    process = toy.Process()

    def fail(round_index):
      raise OSError(5, f'the data of round {round_index} cannot be read')

    with toy.loop(self.root, process) as loop:
      loop.next(['client 1', 'client 2', 'client 3'])
      process.next.on_round = fail
      with self.assertRaisesRegex(OSError, 'round 2'):
        loop.next(['client 4', 'client 5', 'client 6'])
      process.next.on_round = lambda _: None
      self.assertEqual(loop.rounds_done, 1)
      loop.next(['client 4', 'client 7', 'client 8'])
      self.assertEqual(loop.rounds_done, 2)
      self.assertNotIn('client 4', loop.eligible())
      self.assertIn('client 5', loop.eligible())
      statement = loop.statement()
    self.assertEqual(statement.points['mechanism']['rounds_done'], 2)
    self.assertIn(
        '6 clients in 2 rounds',
        statement.points['implementation']['realised_participation'],
    )

  def test_round_whose_client_failed_runs_again_with_the_same_clients(self):
    process = toy.Process()
    cohort = ['client 4', 'client 5', 'client 6']

    errors = [
        TypeError('another type than the first client'),
        _failures.ClientComputationError(
            client_index=0, num_clients=3, operation='loss', kind='', details=''
        ),
    ]

    def fail(_):
      raise errors.pop()

    def refused(loop):
      # A cohort without the client that failed would tell of its data.
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'work failed in round 2'
      ):
        loop.next(['client 5', 'client 6', 'client 7'])

    with toy.loop(self.root, process) as loop:
      loop.next(['client 1', 'client 2', 'client 3'])
      process.next.on_round = fail
      for expected in (_failures.ClientComputationError, TypeError):
        with self.assertRaises(expected):
          loop.next(cohort)
      process.next.on_round = lambda _: None
      refused(loop)
    with toy.loop(self.root, toy.Process()) as loop:
      refused(loop)
      self.assertEqual(loop.required_cohort, cohort)
      loop.next(loop.required_cohort)
      self.assertIsNone(loop.required_cohort)
      loop.next(['client 7', 'client 8', 'client 9'])
      self.assertEqual(loop.rounds_done, 3)

  def test_broken_data_keep_the_cohort(self):
    process = toy.Process()
    # As PIL and gzip raise it: without an errno.
    process.next.on_round = mock.Mock(side_effect=OSError('no image'))
    with toy.loop(self.root, process) as loop:
      with self.assertRaisesRegex(OSError, 'no image'):
        loop.next(['client 1', 'client 2'])
      self.assertEqual(loop.required_cohort, ['client 1', 'client 2'])
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'work failed'):
        loop.next(['client 2', 'client 3'])

  def test_interrupted_round_is_spent_and_runs_again_with_other_clients(self):
    process = toy.Process()

    def interrupt(_):
      raise KeyboardInterrupt

    # A client may come in rounds 1 and 3, so round 3 costs more.
    ledger = toy.build_plan().ledger(epsilon=None, delta=_DELTA)
    with toy.loop(self.root, process) as loop:
      loop.next(['client 1', 'client 2', 'client 3'])
      loop.next(['client 4', 'client 5', 'client 6'])
      self.assertEqual(loop.epsilon, ledger.epsilon_after(2))
      process.next.on_round = interrupt
      with self.assertRaises(KeyboardInterrupt):
        loop.next(['client 1', 'client 2', 'client 7'])
      process.next.on_round = lambda _: None
      self.assertEqual(loop.rounds_done, 2)
      self.assertGreater(loop.epsilon, ledger.epsilon_after(2))
      # As a statement at this time says.
      self.assertEqual(loop.epsilon, ledger.epsilon_after(3))
      self.assertEqual(loop.statement().epsilon, ledger.epsilon_after(3))
      self.assertContainsSubset(['client 1', 'client 7'], loop.eligible())
      loop.next(['client 1', 'client 8', 'client 9'])
      self.assertEqual(loop.rounds_done, 3)
      self.assertEqual(loop.epsilon, ledger.epsilon_after(3))

  def test_what_a_loop_leaves_counts_a_round_that_failed(self):
    process = toy.Process()
    with toy.loop(self.root, process) as loop:
      loop.next(['client 1', 'client 2', 'client 3'])
      loop.next(['client 4', 'client 5', 'client 6'])
      process.next.on_round = mock.Mock(side_effect=OSError(5, 'unreachable'))
      with self.assertRaises(OSError):
        loop.next(['client 1', 'client 2', 'client 7'])
      spent = loop.epsilon
    path = self.root / 'release' / 'privacy_statement.json'
    stated = json.loads(path.read_text())
    self.assertEqual(stated['epsilon'], spent)
    self.assertEqual(stated['points']['mechanism']['rounds_done'], 3)
    self.report.assert_called_once()

  def test_error_of_a_report_still_unlocks_the_directory(self):
    loop = toy.loop(self.root, toy.Process())
    loop.next(loop.eligible()[:3])
    with mock.patch.object(
        documents, 'write', side_effect=OSError(28, 'full')
    ), self.assertRaisesRegex(OSError, 'full'):
      loop.close()
    with toy.loop(self.root, toy.Process()) as again:
      self.assertEqual(again.rounds_done, 1)

  def test_what_native_code_prints_goes_to_the_log(self):
    process = toy.Process()
    process.next.on_round = lambda _: os.write(2, b'label 7 of a client\n')
    with toy.loop(self.root, process) as loop:
      loop.next(loop.eligible()[:3])
      loop.next(loop.eligible()[:3])
    said = (self.root / 'secret' / 'run.log').read_bytes()
    self.assertEqual(said.count(b'label 7 of a client'), 2)

  def test_full_disk_closes_the_loop(self):
    loop = toy.loop(self.root, toy.Process())
    loop.next(loop.eligible()[:3])
    with mock.patch.object(
        run_directory, 'write_atomically', side_effect=OSError(28, 'full')
    ):
      with self.assertRaisesRegex(OSError, 'full'):
        loop.next(loop.eligible()[:3])
    # Else its model would be rescued, and the round run with other clients.
    for rescue in (
        lambda: loop.model_weights,
        lambda: loop.state,
        loop.write_model,
    ):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'round 2 is not saved'
      ):
        rescue()
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'files could not be written'
    ):
      loop.next(loop.eligible()[:3])
    with toy.loop(self.root, toy.Process()) as again:
      self.assertEqual(again.rounds_done, 1)
      again.next(again.eligible()[:3])
      self.assertEqual(again.rounds_done, 2)


if __name__ == '__main__':
  absltest.main()
