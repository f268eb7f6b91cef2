# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A bundle says what a run has done, and nothing else passes for one."""

import atexit
import copy
import dataclasses
import functools
import json
import pathlib
import re
import shutil
import tarfile
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tff_dp  # noqa: F401
import tensorflow as tf  # pylint: disable=g-bad-import-order

from tests.attacks import bundles
from tests.cli import command
from tests.export import small_bundle
from tests.learning import small_model
from tests.program import processes
from tests.statement import occasions
from tff_dp import _checks
from tff_dp import execution
from tff_dp import export
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.accounting import rounding
from tff_dp.cli import main
from tff_dp.export import bundle
from tff_dp.export import computations
from tff_dp.export import measuring
from tff_dp.export import model_card
from tff_dp.export import task_config
from tff_dp.export import verification
from tff_dp.files import run_directory
from tff_dp.plans import events
from tff_dp.program.files import checkpoints
from tff_dp.program.files import process_files
from tff_dp.statement import builder

# For the command line, which calls them.
build_model = small_model.build
build_process = small_bundle.build_process


def setUpModule():
  execution.set_default_context()


# Two that no bundle may have, built once.
@functools.cache
def _with_fixed_key():
  return build_process(insecure_seed=3)


@functools.cache
def _without_noise():
  return processes.fed_avg()


@functools.cache
def _archives() -> list[pathlib.Path]:
  """Returns folders with the bundles of each other stack."""
  own = small_bundle.archive(tf.__version__)
  folders = []
  for path in small_bundle.KEPT.iterdir():
    if path != own:
      folder = tempfile.TemporaryDirectory()
      atexit.register(folder.cleanup)
      with tarfile.open(path) as packed:
        packed.extractall(folder.name, filter='data')
      folders.append(pathlib.Path(folder.name))
  assert folders
  return folders


def _of_another_stack(kind: str) -> list[pathlib.Path]:
  """Returns the bundles of a kind of run that other stacks have written."""
  return [folder / kind for folder in _archives()]


class BundleTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls._folder = tempfile.TemporaryDirectory()
    cls.root = pathlib.Path(cls._folder.name)
    cls.process = build_process()
    cls.result = small_bundle.train(cls.root / 'run', cls.process)
    cls.output = cls.root / 'bundle'
    cls.manifest = small_bundle.write(
        cls.root / 'run', output=cls.output, process=cls.process
    )

  @classmethod
  def tearDownClass(cls):
    cls._folder.cleanup()
    super().tearDownClass()

  def _copy(self) -> pathlib.Path:
    target = pathlib.Path(self.create_tempdir().full_path) / 'bundle'
    shutil.copytree(self.output, target)
    return target

  def _forged(self, name: str, content: bytes) -> dict[str, str]:
    """Returns what fails if a file is replaced, and the manifest with it."""
    root = self._copy()
    (root / name).write_bytes(content)
    facts = {
        key: self.manifest[key]
        for key in ('plan_fingerprint', 'rounds', 'absent')
    }
    bundle.write_manifest(root, facts)
    return self._failed(root)

  def _failed(self, root) -> dict[str, str]:
    return {
        each.check: each.detail
        for each in export.verify_bundle(root)
        if each.status == verification.FAILED
    }

  def test_everything_is_there_and_verifies(self):
    self.assertEmpty(self.manifest['absent'])
    found = export.verify_bundle(self.output)
    not_checked = {
        each.check for each in found if each.status != verification.OK
    }
    self.assertEqual(not_checked, {'noise'})
    details = {each.check: each.detail for each in found}
    self.assertIn('--run', details['noise'])
    self.assertIn(str(self.result.epsilon), details['guarantee'])
    found = measuring.run_bundle(self.output, seconds=0)
    self.assertEqual({each.status for each in found}, {verification.OK})
    details = {each.check: each.detail for each in found}
    for form in ('map-reduce form', 'distribute-aggregate form'):
      self.assertEqual(details[f'{form}, run'], 'the same bits as the process')
    self.assertRegex(
        details['noise'],
        '^5 coordinates of rounds 1 to 3 .*of the planned standard deviation',
    )
    self.assertIn('new keys gave', details['key'])

  @parameterized.parameters(*(kind for kind, _ in small_bundle.runs()))
  def test_bundle_of_another_stack_verifies(self, kind):
    for root in _of_another_stack(kind):
      manifest = bundle.read_manifest(root)
      self.assertNotEqual(manifest['versions']['tensorflow'], tf.__version__)
      self.assertEmpty(self._failed(root))
      self.assertNotIn(bundle.NEXT, manifest['absent'])

  @parameterized.parameters(*(kind for kind, _ in small_bundle.runs()))
  # Noise of clients. The noise of the server runs above.
  @pytest.mark.slow(but=['1'])
  def test_bundle_of_another_stack_runs(self, kind):
    # The forms of the first kind run above, those of the others here.
    forms = () if kind == 'dp_ftrl' else computations.FORMS
    for root in _of_another_stack(kind):
      with mock.patch.object(computations, 'FORMS', forms):
        found = measuring.run_bundle(root, seconds=0)
      self.assertEmpty(verification.failed(found))

  @pytest.mark.once
  def test_a_changed_byte_is_found_in_every_file(self):
    root = self._copy()
    files = [path for path in root.rglob('*') if path.is_file()]
    self.assertLen(files, 1 + len(self.manifest['files']))
    for path in files:
      content = path.read_bytes()
      place = len(content) // 2
      changed = bytearray(content)
      changed[place] ^= 1
      path.write_bytes(changed)
      if path.name == bundle.MANIFEST:
        # Another digest, other JSON, or none.
        try:
          self.assertNotEqual(bundle.read_manifest(root), self.manifest)
        except _checks.ArgumentError:
          pass
      else:
        self.assertIn('has changed', self._failed(root)['files'])
      path.write_bytes(content)
    (root / 'more').write_bytes(b'')
    self.assertIn('more is not in the manifest', self._failed(root)['files'])
    (root / 'more').unlink()
    (root / bundle.NEXT).unlink()
    self.assertIn('next.pb is missing', self._failed(root)['files'])

  def test_no_key_and_nothing_else_of_the_aggregator_is_in_a_file(self):
    store = checkpoints.CheckpointStore(
        self.root / 'run' / 'secret' / 'checkpoints'
    )
    state = store.load(2, like=self.process.initialize()).process_state
    secrets = {
        name: leaf.tobytes()
        for name, leaf in computations.leaves(state.aggregator).items()
        if leaf.nbytes >= 16 and np.any(leaf)
    }
    self.assertContainsSubset(['key'], [n.split('/')[-1] for n in secrets])
    for path in self.output.rglob('*'):
      if path.is_file():
        content = path.read_bytes()
        for name, secret in secrets.items():
          self.assertNotIn(secret, content, f'{name} in {path.name}')
        self.assertNotIn(str(self.root).encode(), content)

  @pytest.mark.once
  def test_a_file_of_another_run_does_not_pass(self):
    def changed(name, **facts):
      content = json.loads((self.output / name).read_text())
      return json.dumps(content | facts).encode()

    plan = small_bundle.build_plan().describe() | {'noise_multiplier': 5.0}
    for name, content, where in (
        (bundle.EVENTS, changed(bundle.EVENTS, plan=plan), 'guarantee'),
        (bundle.PLAN, changed(bundle.PLAN, noise_multiplier=5.0), 'guarantee'),
        (bundle.STATEMENT, changed(bundle.STATEMENT, epsilon=0.1), 'guarantee'),
        ('aggregator.npz', b'', 'files'),
    ):
      self.assertEqual(list(self._forged(name, content)), [where], name)

  @pytest.mark.once
  def test_a_fixed_key_and_a_sum_without_noise_do_not_pass(self):
    path = pathlib.Path(self.create_tempfile().full_path)
    process_files.write(path, _with_fixed_key().initialize)
    failed = self._forged(bundle.INITIALIZE, path.read_bytes())
    self.assertIn('fixed noise key', failed['process'])
    process_files.write(path, _without_noise().next)
    failed = self._forged(bundle.NEXT, path.read_bytes())
    self.assertIn('adds no noise', failed['process'])

  @pytest.mark.once
  def test_what_is_refused_leaves_nothing_behind(self):
    target = self.root / 'refused'
    run = self.root / 'run'
    of_another_plan = copy.copy(self.process)
    of_another_plan.plan = small_bundle.build_plan(noise_multiplier=5.0)
    for message, error, changes in (
        ('fixed noise key', _checks.PrivacyRefusedError,
         dict(process=_with_fixed_key())),
        ('built from the plan', _checks.PrivacyRefusedError,
         dict(process=of_another_plan)),
        ('process=', _checks.ArgumentError,
         dict(process=build_process(momentum=0.9))),
        ('model=', _checks.ArgumentError, dict(model=object())),
        ('run=', _checks.ArgumentError, dict(run=self.root)),
        ('output=', _checks.ArgumentError, dict(output=run)),
    ):
      arguments = dict(run=run, output=target) | changes
      with self.assertRaisesRegex(error, message):
        export.export_bundle(arguments.pop('run'), **arguments)
    self.assertEqual({p.name for p in self.root.iterdir()}, {'run', 'bundle'})

  @pytest.mark.once
  def test_the_process_that_a_run_keeps(self):
    # `test_command_line` exports and verifies it.
    folder = pathlib.Path(self.create_tempdir().full_path)
    run, kept = folder / 'run', folder / 'run' / 'release' / 'process'
    shutil.copytree(self.root / 'run', run)
    # It is what the run says, or is refused.
    process_files.write(kept / process_files.NEXT, _without_noise().next)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'adds no noise'):
      export.export_bundle(run, output=folder / 'other')
    # One with a key in it is not kept.
    shutil.rmtree(kept)
    process_files.keep(kept, _with_fixed_key())
    self.assertFalse(kept.exists())
    manifest = export.export_bundle(run, output=folder / 'other')
    self.assertContainsSubset(bundle.OF_PROCESS, manifest['absent'])

  def _copied_run(self) -> pathlib.Path:
    """Returns a copy of the run, without its process, which takes time."""
    run = pathlib.Path(self.create_tempdir().full_path) / 'run'
    shutil.copytree(self.root / 'run', run)
    shutil.rmtree(run / 'release' / 'process')
    return run

  def _write_statement(self, run, *, rounds, epsilon=None):
    """Writes statement and events after some rounds, perhaps a false epsilon.
    """
    plan, release = small_bundle.build_plan(), run / 'release'
    stated = plan.statement(
        delta=small_bundle.DELTA, observed=builder.RoundsDone(rounds)
    )
    if epsilon is not None:
      headline = stated.headline | {'epsilon': epsilon}
      stated = dataclasses.replace(stated, headline=headline)
    run_directory.write_statement(release, stated)
    run_directory.write_json(
        release / bundle.EVENTS,
        plan.events_json(delta=small_bundle.DELTA, num_rounds=rounds),
    )

  def _release(self, run, rounds):
    """Does what a run does to its record when it releases a round."""
    with open(run / 'secret' / 'write_ahead.jsonl', 'a') as file:
      file.write(json.dumps({'released': rounds}) + '\n')

  @pytest.mark.once
  def test_a_statement_that_claims_too_much_is_not_exported(self):
    edited, behind, torn = (self._copied_run() for _ in range(3))
    self._write_statement(edited, rounds=2, epsilon=0.1)
    self._release(behind, 3)
    with open(torn / 'secret' / 'write_ahead.jsonl', 'a') as file:
      file.write('{"round": 3}}\n')
    for run, message in (
        (edited, 'refused: the statement says epsilon=0.1'),
        (behind, 'counts 2 rounds, but 3 were released'),
        (torn, 'record .* is damaged'),
    ):
      target = run.parent / 'out'
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, message):
        export.export_bundle(run, output=target)
      self.assertEqual([path.name for path in run.parent.iterdir()], ['run'])
    # `release/` alone, as another machine has it.
    shutil.rmtree(behind / 'secret')
    self.assertEqual(export.export_bundle(behind, output=target)['rounds'], 2)

  @pytest.mark.once
  def test_the_statement_is_read_after_the_weights(self):
    run = self._copied_run()
    copied, copy_file = [], bundle.copy_file

    def release_after_the_first(source, to):
      copy_file(source, to)
      copied.append(source.name)
      if len(copied) == 1:
        self._release(run, 3)
        self._write_statement(run, rounds=3)

    with mock.patch.object(bundle, 'copy_file', release_after_the_first):
      manifest = export.export_bundle(run, output=run.parent / 'out')
    self.assertEqual(copied[0], bundle.WEIGHTS)
    self.assertEqual(manifest['rounds'], 3)

  @pytest.mark.once
  def test_no_link_is_followed(self):
    for name in (bundle.STATEMENT_PAGE, bundle.WEIGHTS, 'process/next.pb', ''):
      run = self._copied_run()
      path, away = run / 'release' / name, run / 'away'
      path.parent.mkdir(exist_ok=True)
      if path.exists():
        path.rename(away)
      path.symlink_to(away)
      with self.assertRaisesRegex(
          _checks.ArgumentError, 'run=.* without links.*is one'
      ):
        export.export_bundle(run, output=run.parent / 'out')
      if name:
        # One that appears after the check.
        with self.assertRaises(OSError):
          bundle.copy_file(path, run.parent / 'out')

  @pytest.mark.once
  def test_command_line(self):
    target = pathlib.Path(self.create_tempdir().full_path) / 'small'
    run = self.root / 'run'
    code, out, _ = command.run(main.main, 'export', run, '--output', target)
    self.assertEqual(code, 0)
    self.assertIn('no functional model was given', out)
    self.assertNoCommonElements(
        bundle.OF_PROCESS, bundle.read_manifest(target)['absent']
    )
    # `attacks/bundle_test.py` starts the child process.
    with bundles.in_this_process():
      code, out, _ = command.run(main.main, 'export', '--verify', target)
    self.assertEqual(code, 0)
    self.assertRegex(out, 'absent +functional model')
    self.assertRegex(out, 'not checked +noise')
    (target / bundle.CARD).write_text('# Mine')
    with bundles.in_this_process():
      code, _, err = command.run(main.main, 'export', '--verify', target)
    self.assertEqual(code, 5)
    self.assertIn('MODEL_CARD.md has changed', err)
    for words, message in (
        ([], 'RUN is missing'),
        ([self.root, '--output', target], 'RUN '),
        ([run, '--output', target, '--run'], '--verify DIR beside it'),
        ([run], '--output is missing'),
        (['--verify', run], bundle.MANIFEST),
        (['--verify', self.root / 'none'], bundle.MANIFEST),
        ([self.root / 'none', '--output', target], 'is no directory'),
        (['--verify', target, '--process', 'a:b'], 'no value with --verify'),
        ([run, '--output', target, '--process', 'nonsense'], 'MODULE:FUNCTION'),
        ([run, '--output', target, '--process', 'no_such_module:f'], 'module'),
        ([run, '--output', target, '--model', f'{__name__}:no'], 'function'),
        (
            [run, '--output', target, '--model', f'{__name__}:build_model'],
            'a new or empty directory',
        ),
    ):
      code, _, err = command.run(main.main, 'export', *words)
      self.assertEqual(code, 2, err)
      self.assertIn(message, err)


class ModelCardTest(parameterized.TestCase):

  @parameterized.parameters('honaker', 'non_private')
  def test_guarantee_is_that_of_the_statement(self, name):
    plan = occasions.PLANS[name]()
    for occasion in ('stopped', 'known'):
      about = occasions.occasions(plan)[occasion]
      statement = plan.statement_about(about)
      card = model_card.render(
          statement.to_json(), weights={}, rounds=5, absent={}, odp=None
      )
      expected = 'NO PRIVACY'
      if (name, occasion) == ('honaker', 'stopped'):
        epsilon = rounding.rounded_up(statement.epsilon)
        self.assertLess(float(f'{statement.epsilon:.4g}'), float(epsilon))
        expected = (
            f'epsilon {epsilon} at delta {statement.delta:g} for one client,'
            ' zero_out adjacency'
        )
      self.assertIn(f'\n- Guarantee: {expected}.\n', card)


class TaskConfigTest(parameterized.TestCase):

  def _render(self, plan):
    return task_config.render(
        events.PlanRun(plan, 2, small_bundle.DELTA), population='my_app'
    )

  @parameterized.parameters(
      (mechanisms.Independent(4), {}, 'FIXED_GAUSSIAN', 2),
      (
          mechanisms.Independent(4),
          dict(
              adaptive_clipping=mechanisms.AdaptiveClipping(),
              clients_per_round=100,
          ),
          'ADAPTIVE_GAUSSIAN',
          2,
      ),
      # No more often than the plan allows.
      (
          mechanisms.HonakerTree(4),
          dict(
              participation=participation.MinSeparation(
                  4, min_index_gap=1, max_participations=1
              )
          ),
          'TREE_AGGREGATION',
          4,
      ),
  )
  def test_expressible(self, mechanism, changes, name, separation):
    plan = small_bundle.build_plan(mechanism, **changes)
    text = self._render(plan)
    for line in (
        f'type: {name}',
        f'minimum_separation: {separation}',
        f'num_max_training_rounds: {plan.num_rounds}',
        f'report_goal: {plan.clients_per_round}',
        'noise_multiplier: 4.0',
        'clip_norm: 0.5',
        'population_name: "my_app"',
    ):
      self.assertRegex(text, rf'(?m)^ *{line}$')
    self.assertEqual(text.count('{'), text.count('}'))
    self.assertIn('ODP accounts with', ' '.join(text.split()))
    epsilon, delta = (
        float(re.search(rf'{name}: (.*)', text)[1])
        for name in ('dp_target_epsilon', 'dp_delta')
    )
    self.assertEqual(delta, small_bundle.DELTA)
    self.assertGreaterEqual(epsilon, plan.epsilon(delta=delta))

  def test_delta_is_said_with_all_digits(self):
    run = events.PlanRun(small_bundle.build_plan(), 2, 1.23456e-7)
    self.assertIn('at delta 1.23456e-07.', task_config.accounting(run))

  @parameterized.parameters(
      (mechanisms.Blt(4, (0.25,), (0.5,)), {}, 'Blt'),
      (mechanisms.Banded.square_root(4, 2), {}, 'Banded'),
      (mechanisms.Tree(4), {}, 'Honaker'),
      (mechanisms.HonakerTree(4, restart_every=2), {}, 'restart'),
      (mechanisms.Independent(4), dict(noise_multiplier=0.0), 'no noise'),
      (mechanisms.Independent(4), dict(noise_multiplier=0.3), 'at most 10'),
      (
          mechanisms.Independent(4),
          dict(
              adaptive_clipping=mechanisms.AdaptiveClipping(learning_rate=0.1)
          ),
          'learning_rate=0.2',
      ),
      (
          mechanisms.Independent(4),
          dict(adaptive_clipping=mechanisms.AdaptiveClipping()),
          'clients / 20',
      ),
  )
  def test_refused_with_the_reason(self, mechanism, changes, reason):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, reason):
      self._render(small_bundle.build_plan(mechanism, **changes))

  def test_name_of_the_population(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'odp_population='):
      task_config.render(
          events.PlanRun(small_bundle.build_plan(), 2, small_bundle.DELTA),
          population='a" b',
      )


if __name__ == '__main__':
  absltest.main()
