# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Bundles of strangers: nothing of theirs runs, nothing of ours is lost.

Digests are repaired everywhere, so that they find nothing.
"""

import functools
import json
import os
import pathlib
import shutil
import stat
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from google.protobuf import descriptor
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.attacks import bundles
from tests.attacks import hostile_bundles
from tests.cli import command
from tff_dp import _checks
from tff_dp import export
from tff_dp.cli import main
from tff_dp.export import allowed_operations
from tff_dp.export import bundle
from tff_dp.export import computations
from tff_dp.export import isolation
from tff_dp.export import measuring
from tff_dp.export import operations
from tff_dp.export import verification
from tff_dp.program.files import process_files

_LARGE = 2**26
_INT64 = tf.int64.as_datatype_enum
_SECRET = 'what nobody may have'


class _Test(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.create_tempdir().full_path)
    self.root = self.folder / 'bundle'
    shutil.copytree(bundles.kept(), self.root)
    self.diary = self.folder / 'diary'
    self.diary.write_text(_SECRET)
    self.stolen = self.folder / 'stolen'

  def _contents(self) -> dict[str, object]:
    """Returns all names here, with what is in files, or when it was changed."""

    def content(path):
      found = path.lstat()
      if stat.S_ISREG(found.st_mode) and found.st_size < _LARGE:
        return path.read_bytes()
      return found.st_mode, found.st_mtime_ns

    return {str(path): content(path) for path in self.folder.rglob('*')}

  def _failed(self, root=None) -> dict[str, str]:
    return {
        each.check: each.detail
        for each in verification.failed(
            export.verify_bundle(root or self.root)
        )
    }


class GraphsTest(_Test):
  """Item 1: graphs that copy files out and plant code."""

  @parameterized.parameters(
      bundle.INITIALIZE,
      bundle.NEXT,
      'map_reduce/work.pb',
      'distribute_aggregate/server_result.pb',
      'saved_model/saved_model.pb',
      'functional_model/saved_model.pb',
  )
  def test_a_thief_is_found_and_not_run(self, name):
    bundles.hook(self.root / name, bundles.thief(self.diary, self.stolen))
    bundles.repair(self.root)
    before = self._contents()
    failed = self._failed()
    self.assertEqual(list(failed), ['graphs'])
    self.assertRegex(failed['graphs'], 'operation (ReadFile|WriteFile)')
    self.assertEqual(self._contents(), before)

  def test_the_command_runs_it_neither_with_nor_without_run(self):
    bundles.hook(
        self.root / bundle.NEXT, bundles.thief(self.diary, self.stolen)
    )
    bundles.repair(self.root)
    before = self._contents()
    for words in ([], ['--run']):
      with bundles.in_this_process():
        code, out, err = command.run(
            main.main, 'export', '--verify', self.root, *words
        )
      self.assertEqual(code, 5, err)
      self.assertRegex(out, 'FAILED +graphs')
      self.assertNotIn('round', out)
    self.assertEqual(self._contents(), before)

  def test_a_kept_process_that_was_edited_is_not_run(self):
    run = self.folder / 'run'
    bundles.hook(
        self.root / bundle.INITIALIZE, bundles.thief(self.diary, self.stolen)
    )
    bundles.keep_process(self.root, run)
    before = self._contents()
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'ReadFile|WriteF'):
      export.export_bundle(run, output=self.folder / 'out')
    self.assertEqual(self._contents(), before)

  def test_a_kept_process_with_a_weak_key_is_not_exported(self):
    hostile_bundles.ALL['key: of ten bits'](self.root)
    run = self.folder / 'run'
    bundles.keep_process(self.root, run)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'noise key'):
      export.export_bundle(run, output=self.folder / 'out')
    self.assertFalse((self.folder / 'out').exists())

  def test_what_is_allowed_is_known_and_harmless(self):
    self.assertNoCommonElements(
        hostile_bundles.OPERATIONS, allowed_operations.NAMES
    )
    known = [n for n in allowed_operations.NAMES if hasattr(tf.raw_ops, n)]
    # Some are of other versions.
    self.assertGreater(len(known), 0.95 * len(allowed_operations.NAMES))
    for name in allowed_operations.NAMES:
      self.assertNotRegex(
          name, 'File|Save|Restore|PyFunc|Summary|Print|Remote|Record|Send'
          '|Recv|Socket|Queue|Snapshot|Debug'
      )

  # The other stack verifies them in any case, see `export/bundle_test.py`.
  @pytest.mark.slow
  def test_every_kept_bundle_is_allowed(self):
    for name in sorted(path.name for path in bundles.kept('').iterdir()):
      with self.subTest(name):
        self.assertEmpty(self._failed(bundles.kept(name)))


def _remembered_by_content(module, name):
  """Makes a pure function of a proto keep its results."""
  function, kept = getattr(module, name), {}

  def first_time_only(proto):
    content = proto.SerializeToString()
    if content not in kept:
      kept[content] = function(proto)
    return kept[content]

  return mock.patch.object(module, name, first_time_only)


class HostileTest(_Test):
  """Item 10: what breaks, fills or fools whoever reads it."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    # Most cases change none or one of the computations in a bundle.
    for module, name in (
        (operations, 'check_computation'),
        (tff.framework, 'deserialize_computation'),
    ):
      cls.enterClassContext(_remembered_by_content(module, name))
    # Of these, and of the plan.
    for name in ('check_process', 'check_no_key'):
      once = functools.cache(getattr(verification, name))
      cls.enterClassContext(mock.patch.object(verification, name, once))
    forms = computations._MAKE  # pylint: disable=protected-access
    once = {kind: functools.cache(make) for kind, make in forms.items()}
    cls.enterClassContext(mock.patch.dict(forms, once))

  def test_a_bundle_that_nobody_changed_passes(self):
    # So that what is remembered here fails no other one either.
    self.assertEmpty(self._failed())

  @parameterized.named_parameters(
      (name, name) for name in hostile_bundles.ALL
  )
  def test_one_line_and_nothing_lost(self, name):
    hostile_bundles.ALL[name](self.root)
    if name not in hostile_bundles.OF_MANIFEST:
      try:
        bundles.repair(self.root)
      except (OSError, ValueError):
        pass  # Of a link, there is no digest.
    before = self._contents()
    try:
      failed = verification.failed(export.verify_bundle(self.root))
      self.assertNotEmpty(failed)
      lines = [each.detail for each in failed]
    except _checks.ArgumentError as error:
      lines = [str(error)]
    for line in lines:
      self.assertTrue(line.isprintable(), line)
      self.assertLess(len(line), 1500)
      self.assertNotIn('Traceback', line)
    self.assertEqual(self._contents(), before)

  def test_a_constant_of_an_unknown_type(self):
    def change(graph_def):
      functions = graph_def.library.function
      for nodes in (graph_def.node, *(each.node_def for each in functions)):
        for node in nodes:
          if node.op == 'Const':
            node.attr['value'].tensor.dtype = 74

    path = self.folder / bundle.INITIALIZE
    shutil.copy(bundles.kept('draw_and_discard') / bundle.INITIALIZE, path)
    bundles.change_graphs(path, change)
    with self.assertRaisesRegex(
        operations.NotAllowedError, 'has no value of a known type'
    ):
      operations.check_computation(process_files.read_proto(path))

  def test_a_type_holds_no_code(self):
    # So `process_files.parts` may leave types out.
    path = bundles.kept() / bundle.NEXT
    waiting = [process_files.read_proto(path).DESCRIPTOR.fields_by_name['type']
               .message_type]
    found = {}
    while waiting:
      kind = waiting.pop()
      if kind.full_name not in found:
        found[kind.full_name] = kind
        waiting.extend(f.message_type for f in kind.fields if f.message_type)
    self.assertGreater(len(found), 5)
    self.assertNoCommonElements(
        found,
        [process_files.ANY, 'tensorflow_federated.v0.Computation'],
    )
    self.assertNotIn(
        descriptor.FieldDescriptor.TYPE_BYTES,
        [field.type for kind in found.values() for field in kind.fields],
    )

  def test_there_are_many(self):
    self.assertGreater(len(hostile_bundles.ALL), 250)

  @parameterized.parameters(
      'manifest: a name of escapes',
      'folder: a name of escapes',
      'weights: a name of escapes',
      'TFF: another operator',
      'events: another mechanism',
  )
  def test_no_escape_reaches_the_terminal(self, name):
    hostile_bundles.ALL[name](self.root)
    if name not in hostile_bundles.OF_MANIFEST:
      bundles.repair(self.root)
    with bundles.in_this_process():
      code, out, err = command.run(main.main, 'export', '--verify', self.root)
    self.assertIn(code, (2, 5))
    for text in (out, err):
      self.assertTrue(text.replace('\n', '').isprintable(), text)
    self.assertLessEqual(err.count('\n'), 3)
    self.assertNotRegex(out, r'(?m)^ok +files$')


def _with_little_noise(root: pathlib.Path) -> int:
  """Takes the noise away, by the constant that the unit draws go with."""
  changed = 0

  def change(graph_def):
    nonlocal changed
    for _, node in operations.all_nodes(graph_def):
      if node.op != 'Const':
        continue
      value = tf.make_ndarray(node.attr['value'].tensor)
      if value.dtype == np.float32 and value.shape == () and value > 1e9:
        small = tf.make_tensor_proto(np.float32(1e-3))
        node.attr['value'].tensor.CopyFrom(small)
        changed += 1

  for path in bundles.computations(root):
    bundles.change_graphs(path, change)
  bundles.repair(root)
  return changed


def _with_short_key(root: pathlib.Path) -> int:
  """Lets a round use six bits of its key, and sets all others."""
  changed = 0

  def change(graph_def):
    nonlocal changed
    for function in graph_def.library.function:
      # Where the key of a purpose is made, it must not be zeros.
      keys = {
          node.input[0]
          for node in function.node_def
          if node.op == 'NotEqual' and node.attr['T'].type == _INT64
      }
      for number, key in enumerate(sorted(keys)):
        for node in function.node_def:
          node.input[:] = [
              f'short_{number}:z:0' if tensor == key else tensor
              for tensor in node.input
          ]
        function.node_def.extend([
            bundles.const(f'mask_{number}', np.array([~63, ~0])),
            bundles.node(
                f'short_{number}',
                'BitwiseOr',
                key,
                f'mask_{number}:output:0',
                T=tf.int64,
            ),
        ])
        changed += 1

  bundles.change_graphs(root / bundle.NEXT, change)
  bundles.repair(root)
  return changed


@pytest.mark.once
class NoiseTest(_Test):
  """Item 2: a process whose noise or key is not that of the plan."""

  def test_a_good_bundle_passes(self):
    # It has no forms, so there is little to run; `export/bundle_test.py` runs
    # one that has everything, and measures its noise.
    root = bundles.kept('draw_and_discard')
    # As few states as there may be, which 240 seconds would never be.
    with mock.patch.object(isolation, '_MEASURE_SECONDS', 0):
      code, out, err = command.run(
          main.main, 'export', '--verify', root, '--run'
      )
    self.assertEqual(code, 0, out)
    self.assertRegex(out, r'ok +round +a round on made data')
    self.assertRegex(out, r'ok +key ')
    # What is not measured is said.
    self.assertRegex(out, r'not checked +noise +a client draws noise and its')
    self.assertEqual(out.count('not checked'), 1)
    # One line beforehand.
    self.assertLen(err.splitlines(), 1)
    self.assertRegex(err, '^runs the graphs of a copy of .*own: .*an empty home')

  def test_little_noise_and_a_short_key(self):
    self.assertGreater(_with_little_noise(self.root), 0)
    self.assertGreater(_with_short_key(self.root), 0)
    # Whoever only reads the bundle does not see it.
    with bundles.in_this_process():
      code, out, _ = command.run(main.main, 'export', '--verify', self.root)
    self.assertEqual(code, 0, out)
    self.assertRegex(out, 'not checked +noise +static form: --run measures it')
    self.assertNotIn('noise is that of the plan', out)
    with mock.patch.object(computations, 'FORMS', ()):
      found = verification.failed(measuring.run_bundle(self.root, seconds=0))
    wrong = {each.check: each.detail for each in found}
    self.assertRegex(wrong['noise'], '^its standard deviation')
    self.assertRegex(
        wrong['key'], 'different releases: the process does not use'
    )


class IsolationTest(_Test):
  """The process in which graphs of strangers run."""

  def test_it_has_nothing_of_the_user(self):
    with mock.patch.dict(
        os.environ, {'TOKEN': _SECRET, 'HOME': str(self.folder)}
    ):
      # pylint: disable-next=protected-access
      environment = isolation._environment('/empty')
    self.assertNotIn(_SECRET, json.dumps(environment))
    self.assertEqual(environment['HOME'], '/empty')
    self.assertEqual(environment['CUDA_VISIBLE_DEVICES'], '')

  def test_no_byte_is_written(self):
    target = self.folder / 'written'
    # pylint: disable-next=protected-access
    with isolation._writing_nothing():
      with self.assertRaises(tf.errors.OpError):
        tf.io.write_file(str(target), 'x')
    self.assertFalse(target.exists() and target.read_bytes())
    tf.io.write_file(str(target), 'x')
    self.assertEqual(target.read_text(), 'x')

  def test_one_that_is_killed_is_said(self):
    with mock.patch.object(
        isolation, '_STATIC_SECONDS', 0
    ), mock.patch.object(
        isolation.subprocess, 'Popen', _killed
    ):
      outcome = isolation.check(self.root)
    self.assertEmpty(outcome.findings)
    self.assertIn('by SIGKILL', outcome.error)

  def test_what_is_copied_is_regular(self):
    (self.root / bundle.CARD).unlink()
    (self.root / bundle.CARD).symlink_to(self.diary)
    with self.assertRaisesRegex(_checks.ArgumentError, 'a link'):
      bundle.copy(self.root, self.folder / 'copy')
    self.assertFalse((self.folder / 'copy').exists())


def _killed(words, **options):
  """Returns a process that is killed at once, in the place of ours."""
  del words
  return _Popen(['/bin/sh', '-c', 'echo no network; kill -9 $$'], **options)


_Popen = isolation.subprocess.Popen


if __name__ == '__main__':
  absltest.main()
