# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the environment check."""

import contextlib
import io
import json
import pathlib
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _checks
from tff_dp import _compat
from tff_dp.cli import doctor
from tff_dp.cli import doctor_probe
from tff_dp.cli import main

_ROOT = pathlib.Path(__file__).parents[2]
_CARDS = {
    'devices': [
        {'name': 'CPU:0', 'type': 'CPU'},
        {'name': 'GPU:0', 'type': 'GPU'},
        {'name': 'GPU:1', 'type': 'GPU'},
    ],
    'clients': ['GPU:0', 'GPU:1'],
    'server': 'GPU:0',
    'advice': '',
}
_FINE = {
    'import of TFF': {'result': '1.0 s'},
    'devices': {
        'result': {
            'devices': [{'name': 'CPU:0', 'type': 'CPU'}],
            'clients': ['CPU:0'],
            'server': 'CPU:0',
            'advice': '',
        }
    },
    'in-process context': {'result': 'computes'},
    'checkpoint': {'result': 'saves'},
    'start of the worker': {'result': 'starts'},
}


def _run(*arguments: str) -> tuple[int, str]:
  args = main.parse(['doctor', *arguments])
  output = io.StringIO()
  with contextlib.redirect_stdout(output):
    status = args.run(args)
  return status, output.getvalue()


def _child(code: str):
  return absltest.mock.patch.object(doctor, '_PROBE', code)


def _answers(changed=None, *, until: str | None = None):
  """Replaces the child by answers: all fine, up to `until`, but for some."""
  names = list(_FINE)
  names = names[: names.index(until) + 1] if until else names
  answers = {name: _FINE[name] for name in names} | (changed or {})
  return absltest.mock.patch.object(doctor, '_ask_child', lambda **_: answers)


def _printed(*names: str) -> str:
  """Returns code that prints the good answers of these attempts."""
  lines = [
      doctor_probe.MARK + json.dumps({'name': name, **_FINE[name]})
      for name in names
  ]
  return f'print({chr(10).join(lines)!r}, flush=True)'


class DoctorTest(parameterized.TestCase):

  def test_this_machine_is_fine(self):
    status, output = _run('--format', 'json')
    report = json.loads(output)
    self.assertEqual((status, report['status']), (0, 'ok'), output)
    found = {f['name']: f['found'] for f in report['findings']}
    self.assertEqual(found['tensorflow-federated'], _compat.TFF)
    self.assertEqual(found['in-process context'], 'computes')
    self.assertEqual(found['checkpoint'], 'saves')
    self.assertEqual(
        found.get('start of the worker', 'no native context here'),
        'starts' if _compat.COLUMN.has_worker else 'no native context here',
    )
    self.assertIn('CPU:0', found['devices'])
    self.assertIn(
        {'name': 'CPU:0', 'type': 'CPU'}, report['devices']['devices']
    )
    for name in report['devices']['clients']:
      self.assertIn(name, found['clients train on'])
    self.assertEqual(found['the server works on'], report['devices']['server'])
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

  def test_child_that_hangs_has_its_first_answers_counted(self):
    code = _printed('import of TFF') + '; import time; time.sleep(60)'
    with _child(code):
      with absltest.mock.patch.object(doctor, '_PROBE_SECONDS', 3):
        status, output = _run()
    self.assertEqual(status, 3)
    self.assertIn('import of TFF          1.0 s\n', output)
    self.assertRegex(output, r'why: TensorFlow cannot list .*\(no answer with')

  def test_workers_of_a_cluster(self):
    workers = [
        {'worker': 'tcp://a', 'device': 'CPU:0', 'differs': ''},
        {
            'worker': 'tcp://b',
            'device': 'GPU:0',
            'differs': 'tensorflow 2.9 at the worker, 2.14 at the driver',
        },
    ]
    for found, status, line in (
        (workers[:1], 0, 'worker tcp://a         CPU:0\n'),
        (workers, 3, 'why: tcp://b cannot take part: tensorflow 2.9 at the'),
    ):
      with _answers({doctor_probe.CLUSTER: {'result': found}}):
        code, output = _run('--context', 'dask')
      self.assertEqual(code, status, output)
      self.assertIn(line, output)
    with self.assertRaisesRegex(_checks.ArgumentError, 'without --context'):
      _run('--cluster-address', 'tcp://host:8786')

  def test_cluster_that_does_not_answer(self):
    found = doctor_probe.attempts(engine='no engine')
    with self.assertRaisesRegex(_checks.ArgumentError, 'engine='):
      found[doctor_probe.CLUSTER]()
    with _answers({doctor_probe.CLUSTER: {'error': 'OSError: timed out'}}):
      code, output = _run('--context', 'ray')
    self.assertEqual(code, 3)
    self.assertIn('do not answer (OSError: timed out)', output)
    self.assertIn('try: start scheduler and workers', output)

  def test_crash_is_counted_against_the_attempt_that_ran(self):
    code = _printed('import of TFF', 'devices')
    with _child(code + '; import os; os.kill(os.getpid(), 11)'):
      status, output = _run('--format', 'json')
    report = json.loads(output)
    self.assertEqual((status, report['status']), (3, 'broken'))
    self.assertEqual(report['devices'], _FINE['devices']['result'])
    last = report['findings'][-1]
    self.assertEqual(last['name'], 'in-process context')
    self.assertIn('does not compute (killed by SIGSEGV)', last['advice'])

  def test_tensorflow_that_loads_and_cannot_list_devices(self):
    with _answers({'devices': {'error': 'boom'}}, until='devices'):
      status, output = _run()
      json_status, report = _run('--format', 'json')
    self.assertEqual((status, json_status), (3, 3))
    self.assertIn('why: TensorFlow cannot list its devices (boom)', output)
    self.assertIsNone(json.loads(report)['devices'])

  def test_context_that_does_not_compute_is_told_apart_from_tff(self):
    answer = {'in-process context': {'error': 'no memory'}}
    with _answers(answer, until='in-process context'):
      status, output = _run()
    self.assertEqual(status, 3)
    self.assertIn(
        'why: the in-process context does not compute (no memory)', output
    )

  def test_worker_that_does_not_start_costs_the_native_context_only(self):
    # The default context has no worker, so training works.
    with _answers({'start of the worker': {'error': 'no memory'}}):
      status, output = _run()
    self.assertEqual(status, 0)
    self.assertIn('start of the worker    fails', output)
    self.assertRegex(
        output,
        r'works, but .*worker does not start \(no memory\), so the native'
        ' context cannot be used; the in-process one',
    )

  def test_machine_that_cannot_save_a_checkpoint_is_broken(self):
    with _answers({'checkpoint': {'error': 'boom'}}, until='checkpoint'):
      status, output = _run()
    self.assertEqual(status, 3)
    self.assertIn('checkpoint             fails', output)
    self.assertIn('why: a checkpoint cannot be saved and loaded (boom)', output)

  def test_devices_that_will_be_used(self):
    with _answers({'devices': {'result': _CARDS}}):
      status, output = _run()
      _, report = _run('--format', 'json')
    self.assertEqual(status, 0)
    self.assertIn('devices                CPU:0, GPU:0, GPU:1\n', output)
    self.assertIn('clients train on       GPU:0, GPU:1\n', output)
    self.assertIn('the server works on    GPU:0\n', output)
    self.assertEqual(json.loads(report)['devices'], _CARDS)

  def test_idle_gpu_is_a_note(self):
    result = _FINE['devices']['result'] | {'advice': 'buy the cuda extra'}
    with _answers({'devices': {'result': result}}):
      status, output = _run()
    self.assertEqual(status, 0)
    self.assertIn('training needs is here\nnote: buy the cuda extra\n', output)

  def test_noise_around_the_answers_is_ignored(self):
    code = f"print('noise'); {_printed(*_FINE)}; print('noise')"
    with _child(code):
      status, output = _run()
    self.assertEqual(status, 0, output)

  def test_missing_package_names_itself_and_the_recipe(self):
    if 'jaxlib' not in _compat.COLUMN.packages:
      self.skipTest('this column needs no jaxlib')
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
    with absltest.mock.patch.object(
        _compat,
        'installed_version',
        lambda name: '1.26.0' if name == 'numpy' else real(name),
    ):
      with _answers():
        status, output = _run()
    self.assertEqual(status, 0)
    tested = _compat.COLUMN.packages['numpy'][0]
    self.assertIn(f'works, but is untested: only numpy {tested}', output)

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
