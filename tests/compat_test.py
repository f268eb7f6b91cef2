# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Tests of what we say about the machine."""

import os
import pathlib
import stat
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _compat

_ROOT = pathlib.Path(__file__).parents[1]
_TESTED = {
    'tensorflow-federated': _compat.TFF,
    'tensorflow': _compat.TENSORFLOW,
    'jax': _compat.JAX,
    'jaxlib': _compat.JAX,
    'tensorflow-privacy': '0.9.0',
    'dp-accounting': '0.4.3',
    'numpy': '1.25.2',
}


def _installed(**changes):
  """Replaces the installed versions by the tested ones with `changes`."""
  versions = {**_TESTED}
  for name, version in changes.items():
    versions[name.replace('_', '-')] = version
  return absltest.mock.patch.object(
      _compat, 'installed_version', versions.get
  )


def _run_python(code: str, **environment) -> subprocess.CompletedProcess:
  return subprocess.run(
      [sys.executable, '-c', code],
      capture_output=True,
      text=True,
      cwd=_ROOT,
      env={**os.environ, **environment},
      check=False,
  )


class CheckEnvironmentTest(parameterized.TestCase):

  def test_lock_pins_what_is_called_tested(self):
    lock = (_ROOT / 'requirements.lock').read_text()
    for name, version in _TESTED.items():
      self.assertIn(f'\n{name}=={version} ', lock)

  def test_this_environment_is_the_tested_one(self):
    self.assertEqual(
        {finding.status for finding in _compat.check_environment()},
        {_compat.Status.OK},
    )

  @parameterized.named_parameters(
      ('no_tff', {'tensorflow_federated': None}, 'not installed: tensorflow-f'),
      ('old_tff', {'tensorflow_federated': '0.1.0'}, 'TFF 0.1.0 is too old'),
      ('no_jaxlib', {'jaxlib': None}, 'not installed: jaxlib; .*is 0.4.13'),
      ('pair', {'jaxlib': '0.4.30'}, 'jax and jaxlib must match'),
      ('no_numpy', {'numpy': None}, 'not installed: numpy'),
  )
  def test_broken_sets_get_a_sentence(self, changes, sentence):
    with _installed(**changes):
      findings = _compat.check_environment()
    self.assertIn(_compat.Status.BROKEN, {f.status for f in findings})
    self.assertRegex(_compat.explain(findings), sentence)
    self.assertIn('make environment', _compat.explain(findings))

  @parameterized.parameters(
      {'tensorflow_federated': '0.88.0'},
      {'tensorflow': '2.15.0'},
      {'jax': '0.4.20', 'jaxlib': '0.4.20'},
      {'numpy': '1.26.0'},
  )
  def test_other_versions_are_untested_not_broken(self, **changes):
    with _installed(**changes):
      statuses = {f.status for f in _compat.check_environment()}
    self.assertEqual(
        statuses, {_compat.Status.OK, _compat.Status.UNTESTED}
    )

  def test_wrong_python_is_the_cause_of_all_else(self):
    with absltest.mock.patch.object(_compat, 'PYTHON', (3, 10)):
      with _installed(tensorflow_federated=None, jaxlib=None):
        causes = _compat.causes(_compat.check_environment())
    self.assertRegex(causes, '^TensorFlow Federated .* Python 3.10 only')
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
      with absltest.mock.patch.object(_compat, 'worker_binary', lambda: file):
        self.assertIn(cause, _compat.causes(_compat.check_environment()))

  def test_worker_binary_is_found_without_importing_tff(self):
    result = _run_python(
        'import sys; from tff_dp import _compat;'
        'print(_compat.worker_binary().is_file(),'
        ' "tensorflow_federated.python" in sys.modules)'
    )
    self.assertEqual(result.stdout.split(), ['True', 'False'], result.stderr)


class RequireTffTest(parameterized.TestCase):

  @parameterized.parameters('tensorflow_federated', 'jaxlib')
  def test_package_that_does_not_load_gives_one_sentence(self, name):
    # None in sys.modules makes the import system say "not found".
    result = _run_python(
        f'import sys; sys.modules["{name}"] = None; import tff_dp\n'
        'try:\n  tff_dp.execution\n'
        'except ImportError as error:\n  print(error)'
    )
    self.assertLen(result.stdout.strip().splitlines(), 1, result.stderr)
    self.assertIn(name, result.stdout)
    self.assertIn('make environment', result.stdout)

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

  def test_import_is_quiet_and_debug_brings_the_noise_back(self):
    code = (
        'import os; os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None);'
        'import tff_dp.execution'
    )
    quiet = _run_python(code, TFF_DP_DEBUG='0')
    self.assertEqual((quiet.stdout, quiet.stderr), ('', ''))
    noisy = _run_python(code, TFF_DP_DEBUG='1')
    self.assertNotEqual(noisy.stderr, '')

  def test_level_chosen_by_the_user_wins(self):
    result = _run_python(
        'import os, tff_dp; print(os.environ["TF_CPP_MIN_LOG_LEVEL"])',
        TF_CPP_MIN_LOG_LEVEL='1',
    )
    self.assertEqual(result.stdout.strip(), '1')


if __name__ == '__main__':
  absltest.main()
