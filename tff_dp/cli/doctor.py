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
"""`tff-dp doctor`: can this machine train, and if not, what to do.

What is installed is read from metadata. Whether it also loads and runs is tried
in a child process, so that a crash, a hang or a broken package still leaves
this one able to answer.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time

from tff_dp import _compat
from tff_dp import _version
from tff_dp.cli import errors

_PROBE_SECONDS = 180
# The child may print anything; its answer is the line that starts like this.
_MARK = 'tff_dp doctor: '
_PROBE = 'from tff_dp.cli import doctor; doctor.probe()'
_EXAMPLE = 'example:\n  tff-dp doctor --format json\n'


def add_parser(subparsers) -> None:
  """Adds the command to `argparse` subparsers."""
  parser = subparsers.add_parser(
      'doctor',
      help='check this machine, and say how to fix it',
      description=(
          'Shows which versions are installed, whether TensorFlow Federated'
          ' loads and its worker starts, and the recipe if they do not. Ends'
          f' with status {errors.ENVIRONMENT} if training cannot work here.'
      ),
      epilog=_EXAMPLE,
      formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument(
      '--format',
      choices=('text', 'json'),
      default='text',
      help='text for people, json for programs (default: text)',
  )
  parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
  """Prints the report and returns the exit status."""
  findings = _compat.check_environment()
  if args.format == 'text':
    # Loading TFF takes seconds: first say what is known without.
    print(f'tff_dp {_version.__version__}\n', flush=True)
    _print_findings(findings)
  found_on_machine = _machine()
  attempts = _attempts()
  findings += attempts
  status = _worst(findings)
  if args.format == 'json':
    print(
        json.dumps(
            {
                'tff_dp': _version.__version__,
                'status': status.value,
                'findings': [finding.to_json() for finding in findings],
                'machine': found_on_machine,
                'recipe': _compat.RECIPE,
            },
            indent=2,
        )
    )
  else:
    _print_findings(attempts)
    for name, value in found_on_machine.items():
      print(f'{name:<22} {value}')
    print('\n' + _verdict(status, findings))
  return errors.ENVIRONMENT if status is _compat.Status.BROKEN else errors.DONE


def probe() -> None:
  """Loads TFF, starts its worker, and prints what happened; for the child."""
  answer = {}
  start = time.monotonic()
  try:
    _compat.require_tff()
    # pylint: disable=g-import-not-at-top
    import tensorflow as tf

    from tff_dp.execution import native

    answer['import_seconds'] = round(time.monotonic() - start, 1)
    answer['devices'] = [
        device.name.removeprefix('/physical_device:')
        for device in tf.config.list_physical_devices()
    ]
    worker = native.NativeWorker()
    try:
      worker.wait_until_ready()
    finally:
      worker.close()
  except Exception as error:  # pylint: disable=broad-except
    cause = error.__cause__ or error
    answer['error'] = f'{type(cause).__name__}: {cause}'
  print(_MARK + json.dumps(answer), flush=True)


def _attempts() -> list[_compat.Finding]:
  """Returns what loading TFF and starting its worker in a child gave."""
  answer = _ask_child()
  expected = 'loads'
  if 'import_seconds' in answer:
    loading = _compat.Finding(
        'import of TFF',
        f'{answer["import_seconds"]} s',
        expected,
        _compat.Status.OK,
    )
  else:
    return [
        _compat.Finding(
            'import of TFF',
            'fails',
            expected,
            _compat.Status.BROKEN,
            f'TFF does not load ({answer["error"]})',
        )
    ]
  if 'error' in answer:
    worker = _compat.Finding(
        'start of the worker',
        'fails',
        'starts',
        _compat.Status.BROKEN,
        f'the TFF worker does not start ({answer["error"]})',
    )
  else:
    worker = _compat.Finding(
        'start of the worker', 'starts', 'starts', _compat.Status.OK
    )
  devices = _compat.Finding(
      'devices', ', '.join(answer['devices']), '', _compat.Status.OK
  )
  return [loading, worker, devices]


def _ask_child() -> dict[str, object]:
  """Returns the answer of `probe`, or {'error': why there is none}."""
  try:
    child = subprocess.run(
        [sys.executable, '-c', _PROBE],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors='replace',
        timeout=_PROBE_SECONDS,
        check=False,
    )
  except subprocess.TimeoutExpired:
    return {'error': f'no answer within {_PROBE_SECONDS} s'}
  for line in child.stdout.splitlines():
    if line.startswith(_MARK):
      return json.loads(line.removeprefix(_MARK))
  if child.returncode < 0:
    how = f'killed by {signal.Signals(-child.returncode).name}'
    if -child.returncode == signal.SIGILL:
      how += ', the processor lacks instructions that TensorFlow needs'
    return {'error': how}
  last_lines = child.stderr.strip().splitlines()[-1:]
  return {'error': ' '.join([f'status {child.returncode}', *last_lines])}


def _machine() -> dict[str, str]:
  """Returns what the machine offers; unknown values are left out."""
  found = {'cores': str(len(os.sched_getaffinity(0)))}
  try:
    with open('/proc/meminfo') as file:
      kilobytes = {
          line.partition(':')[0]: int(line.split()[1]) for line in file
      }
    total = kilobytes['MemTotal'] / 2**20
    available = kilobytes['MemAvailable'] / 2**20
    found['memory'] = f'{total:.1f} GiB, {available:.1f} GiB available'
  except (OSError, KeyError, ValueError, IndexError):
    pass
  return found


def _worst(findings: list[_compat.Finding]) -> _compat.Status:
  statuses = {finding.status for finding in findings}
  for status in (_compat.Status.BROKEN, _compat.Status.UNTESTED):
    if status in statuses:
      return status
  return _compat.Status.OK


def _print_findings(findings: list[_compat.Finding]) -> None:
  for finding in findings:
    line = f'{finding.name:<22} {finding.found:<16}'
    if finding.status is not _compat.Status.OK:
      line += f' {finding.status.value.upper()}: expected {finding.expected}'
    print(line.rstrip(), flush=True)


def _verdict(
    status: _compat.Status, findings: list[_compat.Finding]
) -> str:
  if status is _compat.Status.OK:
    return 'ok: everything that training needs is here'
  if status is _compat.Status.BROKEN:
    return (
        'broken: training cannot work here\n'
        f'why: {_compat.causes(findings)}\n'
        f'try: {_compat.RECIPE}'
    )
  advice = dict.fromkeys(f.advice for f in findings if f.advice)
  return f'works, but is untested: {"; ".join(advice)}'
