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
"""Tests of the environment check."""

import argparse
import contextlib
import io
import json
import pathlib
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _compat
from tff_dp.cli import doctor

_ROOT = pathlib.Path(__file__).parents[2]


def _run(*arguments: str) -> tuple[int, str]:
  parser = argparse.ArgumentParser()
  doctor.add_parser(parser.add_subparsers())
  args = parser.parse_args(['doctor', *arguments])
  output = io.StringIO()
  with contextlib.redirect_stdout(output):
    status = args.run(args)
  return status, output.getvalue()


def _child(code: str):
  return absltest.mock.patch.object(doctor, '_PROBE', code)


class DoctorTest(parameterized.TestCase):

  def test_this_machine_is_fine(self):
    status, output = _run('--format', 'json')
    report = json.loads(output)
    self.assertEqual((status, report['status']), (0, 'ok'), output)
    found = {f['name']: f['found'] for f in report['findings']}
    self.assertEqual(found['tensorflow-federated'], _compat.TFF)
    self.assertEqual(found['start of the worker'], 'starts')
    self.assertIn('CPU:0', found['devices'])
    self.assertGreaterEqual(int(report['machine']['cores']), 1)

  @parameterized.named_parameters(
      ('exception', 'raise RuntimeError("boom")', 'boom'),
      ('crash', 'import os; os.kill(os.getpid(), 11)', 'SIGSEGV'),
      ('old_processor', 'import os; os.kill(os.getpid(), 4)', 'instructions'),
      ('silence', 'pass', 'status 0'),
  )
  def test_child_that_fails_still_gives_an_answer(self, code, cause):
    with _child(code):
      status, output = _run()
    self.assertEqual(status, 3)
    self.assertIn('import of TFF          fails', output)
    self.assertRegex(output, f'why: .*{cause}')
    self.assertRegex(output, r'\ntry: .*make environment')

  def test_child_that_hangs_is_given_up(self):
    with _child('import time; time.sleep(60)'):
      with absltest.mock.patch.object(doctor, '_PROBE_SECONDS', 0.5):
        status, output = _run('--format', 'json')
    self.assertEqual(status, 3)
    self.assertIn('no answer within 0.5 s', output)

  def test_worker_that_does_not_start_is_told_apart_from_tff(self):
    answer = {'import_seconds': 1.0, 'devices': ['CPU:0'], 'error': 'no memory'}
    with absltest.mock.patch.object(doctor, '_ask_child', lambda: answer):
      status, output = _run()
    self.assertEqual(status, 3)
    self.assertIn('why: the TFF worker does not start (no memory)', output)

  def test_noise_around_the_answer_is_ignored(self):
    answer = json.dumps({'import_seconds': 1.0, 'devices': ['CPU:0']})
    with _child(f"print('noise'); print('{doctor._MARK}' + '''{answer}''')"):
      status, output = _run()
    self.assertEqual(status, 0, output)

  def test_missing_package_names_itself_and_the_recipe(self):
    real = _compat.installed_version
    with absltest.mock.patch.object(
        _compat,
        'installed_version',
        lambda name: None if name == 'jaxlib' else real(name),
    ):
      with _child('raise ImportError("no jaxlib")'):
        status, output = _run()
    self.assertEqual(status, 3)
    self.assertRegex(output, r'jaxlib +not installed +BROKEN: expected 0.4.13')
    self.assertRegex(output, r'why: not installed: jaxlib; .*pair is 0.4.13')

  def test_untested_version_works_with_a_note(self):
    real = _compat.installed_version
    answer = {'import_seconds': 1.0, 'devices': ['CPU:0']}
    with absltest.mock.patch.object(
        _compat,
        'installed_version',
        lambda name: '1.26.0' if name == 'numpy' else real(name),
    ):
      with absltest.mock.patch.object(doctor, '_ask_child', lambda: answer):
        status, output = _run()
    self.assertEqual(status, 0)
    self.assertIn('works, but is untested: only numpy 1.25.2', output)

  def test_parent_does_not_load_tensorflow(self):
    code = (
        'import sys; from tff_dp.cli import doctor;'
        'doctor._machine(); doctor._compat.check_environment();'
        'print([m for m in sys.modules if m.startswith("tensorflow")])'
    )
    result = subprocess.run(
        [sys.executable, '-c', code],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        check=True,
    )
    self.assertEqual(result.stdout.strip(), '[]')


if __name__ == '__main__':
  absltest.main()
