# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of what we say about the machine."""

import contextlib
import dataclasses
import importlib.metadata
import inspect
import os
import pathlib
import stat
import subprocess
import sys
import typing

from absl.testing import absltest
from absl.testing import parameterized
from dp_accounting import pld
import numpy as np
import pytest
from scipy import stats

from tff_dp import _columns
from tff_dp import _compat
from tff_dp import _compat_losses
from tff_dp import _compat_tensorflow
from tff_dp.cli import doctor_probe

_ROOT = pathlib.Path(__file__).parents[1]
_NO_LEVEL = 'import os; os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None);'
_COLUMNS = (_columns.REFERENCE, _columns.CURRENT, _columns.COLAB)


@contextlib.contextmanager
def _installed(column, **changes):
  """Puts us into a column with its tested versions, except for `changes`."""
  versions = {'tensorflow-federated': _columns.TFF}
  versions |= {name: checked[0] for name, checked in column.packages.items()}
  versions |= {name: '1.0' for name in column.present}
  for name, version in changes.items():
    versions[name.replace('_', '-')] = version
  here = dataclasses.replace(column, pythons=(sys.version_info[:2],))
  with absltest.mock.patch.multiple(
      _compat,
      COLUMN=here,
      RECIPE=here.recipe,
      installed_version=versions.get,
  ):
    yield


def _run_python(code: str, **environment) -> subprocess.CompletedProcess:
  return subprocess.run(
      [sys.executable, '-c', code],
      capture_output=True,
      text=True,
      cwd=_ROOT,
      env={**os.environ, **environment},
      check=False,
  )


def _reading_dicts():
  """Lets protocols read `__dict__`, as typing_extensions does from 4.6 on."""
  kind = type(typing.Protocol)
  check = kind.__instancecheck__

  def strict(cls, instance):
    inspect.getattr_static(instance, 'any', None)
    return check(cls, instance)

  return absltest.mock.patch.object(kind, '__instancecheck__', strict)


class CheckEnvironmentTest(parameterized.TestCase):

  @parameterized.parameters(*_COLUMNS)
  def test_lock_pins_what_is_called_tested(self, column):
    lock = '\n' + (_ROOT / column.lock).read_text()
    self.assertIn(f'\ntensorflow-federated=={_columns.TFF} ', lock)
    for name, versions in column.packages.items():
      self.assertIn(f'\n{name}=={versions[0]} ', lock)
    for name in column.present:
      self.assertIn(f'\n{name}==', lock)

  @parameterized.parameters(
      (_columns.CURRENT, ('jax', 'jaxlib')),
      (_columns.COLAB, ()),  # Colab has a jax that TFF cannot use.
  )
  def test_newer_locks_have_nothing_that_the_shim_stands_in_for(
      self, column, more
  ):
    lock = (_ROOT / column.lock).read_text()
    names = ('tensorflow-estimator', 'tensorflow-model-optimization', *more)
    for name in names:
      self.assertNotIn(f'\n{name}==', lock)

  @parameterized.parameters(
      ((3, 11, 7), '2.14.1', 'A (reference)'),
      ((3, 11, 7), '2.20.0', 'A (reference)'),
      ((3, 12, 1), '2.20.0', 'B (current)'),
      ((3, 13, 0), '2.21.0', 'B (current)'),
      ((3, 13, 0), '2.20.0', 'C (colab)'),
      ((3, 13, 0), '2.20.1', 'C (colab)'),
      ((3, 13, 0), None, 'B (current)'),
      # The nearest; it is refused, see below.
      ((3, 14, 0), '2.20.0', 'B (current)'),
  )
  def test_python_and_tensorflow_decide_the_column(
      self, python, tensorflow, title
  ):
    found = {'return_value': tensorflow}
    if tensorflow is None:
      found = {'side_effect': importlib.metadata.PackageNotFoundError}
    with absltest.mock.patch.object(
        _columns.sys, 'version_info', python
    ), absltest.mock.patch.object(
        _columns.importlib.metadata, 'version', **found
    ):
      self.assertEqual(_columns.here().title, title)

  @parameterized.parameters(*_COLUMNS)
  def test_findings_name_the_column(self, column):
    with _installed(column):
      findings = {f.name: f for f in _compat.check_environment()}
    self.assertEqual(findings['column'].found, column.title)
    self.assertEqual('worker_binary' in findings, column.has_worker)
    self.assertEqual('jax' in findings, column is _columns.REFERENCE)
    self.assertEqual({f.status for f in findings.values()}, {_compat.Status.OK})

  def test_this_environment_is_the_tested_one(self):
    self.assertEqual(
        {finding.status for finding in _compat.check_environment()},
        {_compat.Status.OK},
    )

  @parameterized.product(
      column=_COLUMNS,
      case=(
          ({'tensorflow_federated': None}, 'not installed: tensorflow-f'),
          ({'tensorflow_federated': '0.1.0'}, 'TFF 0.1.0 is too old'),
          ({'numpy': None}, 'not installed: numpy'),
      ),
  )
  def test_broken_sets_get_a_sentence(self, column, case):
    self._check_sentence(column, *case)

  @parameterized.parameters(
      ({'jaxlib': None}, 'not installed: jaxlib; .*is 0.4.13'),
      ({'jaxlib': '0.4.30'}, 'jax and jaxlib must match'),
  )
  def test_broken_reference_sets(self, changes, sentence):
    self._check_sentence(_columns.REFERENCE, changes, sentence)

  @parameterized.parameters(
      ({'tf_keras': None}, 'not installed: tf-keras'),
      ({'dm_tree': None, 'attrs': None}, 'not installed: attrs, dm-tree'),
  )
  def test_broken_current_sets(self, changes, sentence):
    self._check_sentence(_columns.CURRENT, changes, sentence)

  def _check_sentence(self, column, changes, sentence):
    with _installed(column, **changes):
      findings = _compat.check_environment()
      explanation = _compat.explain(findings)
    self.assertIn(_compat.Status.BROKEN, {f.status for f in findings})
    self.assertRegex(explanation, sentence)
    self.assertIn(column.recipe, explanation)

  @parameterized.parameters(
      (_columns.REFERENCE, {'tensorflow_federated': '0.88.0'}),
      (_columns.REFERENCE, {'tensorflow': '2.15.0'}),
      (_columns.REFERENCE, {'jax': '0.4.20', 'jaxlib': '0.4.20'}),
      (_columns.REFERENCE, {'numpy': '1.26.0'}),
      (_columns.REFERENCE, {'dp_accounting': '0.6.0'}),
      (_columns.CURRENT, {'tensorflow': '2.20.0'}),
      (_columns.CURRENT, {'dp_accounting': '0.5.0'}),
      (_columns.COLAB, {'numpy': '2.5.5'}),
  )
  def test_other_versions_are_untested_not_broken(self, column, changes):
    with _installed(column, **changes):
      statuses = {f.status for f in _compat.check_environment()}
    self.assertEqual(
        statuses, {_compat.Status.OK, _compat.Status.UNTESTED}
    )

  def test_second_checked_version_is_as_good(self):
    with _installed(_columns.CURRENT, dp_accounting='0.4.3'):
      statuses = {f.status for f in _compat.check_environment()}
    self.assertEqual(statuses, {_compat.Status.OK})

  @parameterized.parameters(*_COLUMNS)
  def test_wrong_python_is_the_cause_of_all_else(self, column):
    with _installed(column, tensorflow_federated=None, jaxlib=None):
      _compat.COLUMN = dataclasses.replace(column, pythons=((3, 10),))
      causes = _compat.causes(_compat.check_environment())
    self.assertRegex(
        causes, '^TensorFlow Federated .* Python 3.11, 3.12 or 3.13 only'
    )
    self.assertNotIn('jaxlib', causes)

  def test_other_platform_names_the_way_out(self):
    with absltest.mock.patch.object(
        _compat.platform, 'system', lambda: 'Darwin'
    ):
      causes = _compat.causes(_compat.check_environment())
    self.assertIn('container on macOS', causes)

  def test_worker_binary_missing_or_not_executable(self):
    path = pathlib.Path(self.create_tempfile().full_path)
    path.chmod(stat.S_IRUSR)
    for file, cause in (
        (path, 'chmod'),
        (path.parent / 'none', 'incomplete'),
    ):
      with (
          _installed(_columns.REFERENCE),
          absltest.mock.patch.object(_compat, 'worker_binary', lambda: file),
      ):
        self.assertIn(cause, _compat.causes(_compat.check_environment()))

  def test_worker_binary_is_found_without_importing_tff(self):
    result = _run_python(
        'import sys; from tff_dp import _compat;'
        'print(_compat.worker_binary().is_file(),'
        ' "tensorflow_federated.python" in sys.modules)'
    )
    self.assertEqual(result.stdout.split(), ['True', 'False'], result.stderr)


class RequireTffTest(parameterized.TestCase):

  @parameterized.parameters(
      'tensorflow_federated', 'tensorflow'  # TFF itself, and what it needs.
  )
  def test_package_that_does_not_load_gives_one_sentence(self, name):
    # None in sys.modules makes the import system say "not found".
    result = _run_python(
        f'import sys; sys.modules["{name}"] = None; import tff_dp\n'
        'try:\n  tff_dp.execution\n'
        'except ImportError as error:\n  print(error)'
    )
    self.assertLen(result.stdout.strip().splitlines(), 1, result.stderr)
    self.assertIn(name, result.stdout)
    self.assertIn(_compat.RECIPE, result.stdout)

  def test_half_loaded_tff_says_what_to_do(self):
    result = _run_python(
        'import sys; sys.modules["tensorflow_federated.python"] = None\n'
        'from tff_dp import _compat\n'
        'try:\n  _compat.require_tff()\n'
        'except ImportError as error:\n  print(error)'
    )
    self.assertIn('import tff_dp first', result.stdout)

  def test_state_is_saved_next_to_a_new_typing_extensions(self):
    _compat.require_tff()
    import tensorflow as tf  # pylint: disable=g-import-not-at-top

    class Traced:

      def __tf_tracing_type__(self, context):
        pass

    module = tf.Module()
    module.held = {'x': 1.0}
    trace = _compat_tensorflow.private_tensorflow('trace')
    kind = trace.SupportsTracingProtocol
    self.addCleanup(setattr, kind, '__class__', kind.__class__)
    save = doctor_probe.attempts()[doctor_probe.SAVING]
    with _reading_dicts():
      if _compat.COLUMN is _columns.REFERENCE:
        # So `tff-dp doctor` sees what Jupyter breaks.
        with self.assertRaisesRegex(TypeError, '_DictWrapper'):
          save()
      # Otherwise done once in a process.
      _compat_tensorflow.let_wrapped_dicts_be_saved.cache_clear()
      _compat.require_tff()
      found = [isinstance(each, kind) for each in (Traced(), {}, module.held)]
      self.assertEqual(save(), 'saves')
    self.assertEqual(found, [True, False, False])

  def test_types_of_computations_are_read_once(self):
    tff = _compat.require_tff()
    serialization = _compat.private_tff('type_serialization')
    read = serialization.deserialize_type
    member = [('a', np.int32), (None, tff.SequenceType(np.str_))]
    expected = tff.FunctionType(
        tff.FederatedType(tff.StructType(member), tff.CLIENTS),
        tff.FederatedType(tff.TensorType(np.float32, [None]), tff.SERVER),
    )
    serialized = serialization.serialize_type(expected)
    self.assertIs(read(serialized), expected)
    self.assertIs(read.__wrapped__(serialized), expected)
    with absltest.mock.patch.object(
        serialization.dtype_utils, 'from_proto', side_effect=AssertionError
    ):
      self.assertIs(read(serialized), expected)

  def test_vectorized_sums_broadcast_by_known_ranks(self):
    _compat.require_tff()
    import tensorflow as tf

    _compat_tensorflow.broadcast_by_known_ranks()

    def add(x, y):
      return tf.vectorized_map(lambda own: own[0] + own[1], (x, y))

    numbers = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    for x, y, is_reshaped in (
        (numbers, -numbers, False),
        (numbers, numbers[:, 0], True),
        (numbers[:, 0, 0], numbers, True),
    ):
      function = tf.function(add, autograph=False)
      expected = [left + right for left, right in zip(x, y)]
      np.testing.assert_array_equal(function(x, y), expected)
      graph = function.get_concrete_function(x, y).graph
      types = {operation.type for operation in graph.get_operations()}
      self.assertTrue(types.isdisjoint(['Rank', 'Tile']), types)
      self.assertEqual(
          not types.isdisjoint(['ExpandDims', 'Reshape', 'StridedSlice']),
          is_reshaped,
      )
    # Ranks that the graph does not know.
    function = tf.function(
        add, autograph=False, input_signature=2 * [tf.TensorSpec(None)]
    )
    np.testing.assert_array_equal(
        function(numbers, numbers[:, 0]),
        [left + right for left, right in zip(numbers, numbers[:, 0])],
    )

  def test_stderr_keeps_all_but_the_noise(self):
    result = _run_python(
        'import os, sys; from tff_dp import _quiet\n'
        'with _quiet.without_noise():\n'
        '  os.write(2, b"I0000 00:00:17.5   1 port.cc:1] hello\\n")\n'
        '  print("mine", file=sys.stderr)\n'
        '  os.write(2, b"E0000 00:00:17.5   1 port.cc:1] bad\\n")\n'
        'print("after", file=sys.stderr)'
    )
    self.assertEqual(
        result.stderr, 'mine\nE0000 00:00:17.5   1 port.cc:1] bad\nafter\n'
    )

  def test_debug_brings_the_noise_back_and_keras_3_is_refused(self):
    code = _NO_LEVEL + 'import tff_dp, tensorflow\n'
    if _compat.COLUMN.needs_shim:  # TensorFlow 2.14 has one Keras.
      code += (
          'try:\n  tff_dp._compat.require_tff()\n'
          'except ImportError as error:\n  print(error)'
      )
    result = _run_python(code, TFF_DP_DEBUG='1', TF_USE_LEGACY_KERAS='0')
    self.assertEqual(result.returncode, 0)
    self.assertNotEqual(result.stderr, '')
    self.assertEqual(
        'tf.keras is Keras 3 here' in result.stdout, _compat.COLUMN.needs_shim
    )

  def test_old_tff_is_refused(self):
    result = _run_python(
        'import sys, types; old = types.ModuleType("tensorflow_federated");'
        'old.__version__ = "0.1.0";'
        'sys.modules["tensorflow_federated"] = old\n'
        'from tff_dp import _compat\n'
        'try:\n  _compat.require_tff()\n'
        'except ImportError as error:\n  print(error)'
    )
    self.assertIn('needs TensorFlow Federated 0.87.0, found 0.1.0',
                  result.stdout)

  def test_lines_about_checkpoints_are_off(self):
    code = (
        'import logging, tff_dp\n'
        'logging.basicConfig(level="INFO", format="%(message)s")\n'
        'logger = logging.getLogger("tensorflow")\n'
        'logger.info("Assets written to: %s", "here")\n'
        'logger.info("else")'
    )
    self.assertEqual(_run_python(code, TFF_DP_DEBUG='0').stderr, 'else\n')
    self.assertEqual(
        _run_python(code, TFF_DP_DEBUG='1').stderr,
        'Assets written to: here\nelse\n',
    )

  def test_import_is_quiet_and_a_chosen_context_is_seen(self):
    # A reader's script may load TFF itself, before any module of ours does.
    result = _run_python(
        _NO_LEVEL + 'import tff_dp\nimport tensorflow_federated as tff\n'
        'stack = tff.framework.get_context_stack()\n'
        'first = stack.current\n'
        'kind = type("Mine", (tff.framework.SyncContext,),'
        ' {"invoke": lambda self, comp, arg: None})\n'
        'stack.set_default_context(kind())\n'
        'from tff_dp.execution import contexts\n'
        'print(contexts.is_chosen())\n'
        'stack.set_default_context(first)\n'
        'del first\n'  # Otherwise it outlives Python.
        'print(contexts.is_chosen())\n',
        TFF_DP_DEBUG='0',
    )
    self.assertEqual((result.stdout, result.stderr), ('True\nFalse\n', ''))

  # The other one imports TFF itself.
  @pytest.mark.slow
  def test_our_own_import_of_it_is_quiet(self):
    result = _run_python(
        _NO_LEVEL + 'from tff_dp.execution import contexts;'
        'print(contexts.is_chosen())',
        TFF_DP_DEBUG='0',
    )
    self.assertEqual((result.stdout, result.stderr), ('False\n', ''))

  def test_level_chosen_by_the_user_wins(self):
    result = _run_python(
        'import os, tff_dp; print(os.environ["TF_CPP_MIN_LOG_LEVEL"])',
        TF_CPP_MIN_LOG_LEVEL='1',
    )
    self.assertEqual(result.stdout.strip(), '1')


class InvertLossesTest(parameterized.TestCase):

  @parameterized.product(
      share=(1e-6, 0.0025, 0.3, 0.999, 1.0),
      noise=(0.3, 1.0, 50.0),
      adjacency=('ADD', 'REMOVE'),
  )
  def test_no_delta_changes(self, share, noise, adjacency):
    _compat_losses.invert_losses_at_once()
    loss = pld.privacy_loss_mechanism.GaussianPrivacyLoss(
        noise,
        sampling_prob=share,
        adjacency_type=pld.privacy_loss_mechanism.AdjacencyType[adjacency],
    )
    bounds = loss.connect_dots_bounds()
    losses = np.concatenate([
        np.linspace(bounds.epsilon_lower, bounds.epsilon_upper, 100),
        np.linspace(-5, 5, 41),
        # Where it has a rule of its own.
        [0.0] + [sign * np.log1p(-share) for sign in (1, -1) if share < 1],
    ])
    # A scalar is inverted by dp_accounting alone.
    one_by_one = [loss.get_delta_for_epsilon(float(each)) for each in losses]
    at_once = loss.get_delta_for_epsilon(losses)
    np.testing.assert_allclose(at_once, one_by_one, rtol=0, atol=1e-15)
    self.assertGreater(np.ptp(at_once), 1e-9)


class BoundConvolutionsTest(parameterized.TestCase):

  @parameterized.product(
      size=(2, 300, 20_000), num_times=(2, 1000), tail=(1e-15, 0.1)
  )
  def test_no_bound_changes(self, size, num_times, tail):
    _compat_losses.bound_convolutions_at_once()
    probs = stats.norm.pdf(np.linspace(-9, 3, size))
    probs /= probs.sum()
    at_once = pld.common.compute_self_convolve_bounds(probs, num_times, tail)
    # With orders of its own, dp_accounting is alone.
    signs = np.concatenate([np.arange(-20, 0), np.arange(1, 21)])
    alone = pld.common.compute_self_convolve_bounds(
        probs, num_times, tail, signs / size
    )
    self.assertEqual(at_once, alone)
    self.assertEqual(
        pld.common.compute_self_convolve_bounds(probs, num_times),
        (0, (size - 1) * num_times),
    )


if __name__ == '__main__':
  absltest.main()
