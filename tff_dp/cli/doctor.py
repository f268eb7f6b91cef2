# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""`tff-dp doctor`: whether this machine can train, and how to mend it.

The command reads the installed versions from metadata. A child process tries to
load and run the packages. So this process can still answer after a crash, a
hang or a broken package.
"""

import argparse
import collections
import json
import os
import pathlib
import signal
import subprocess
import sys

from tff_dp import _checks
from tff_dp import _compat
from tff_dp import _version
from tff_dp.cli import doctor_install
from tff_dp.cli import doctor_probe
from tff_dp.cli import errors

_PROBE_SECONDS = 180
# -P: do not import from the working directory, which others may have filled.
# This package, which may be there, comes last.
_PROBE_FLAGS = ('-P',)
_PROBE = (
    'import json, sys; sys.path.append(sys.argv[1]);'
    ' from tff_dp.cli import doctor_probe;'
    ' doctor_probe.main(**json.loads(sys.argv[2]))'
)
_PACKAGES = str(pathlib.Path(__file__).parents[2])
_EXPOSED = (
    "TFF's worker, which the native context needs, listens on all interfaces"
    ' and asks nobody who they are'
)
_FAILURES = {
    doctor_probe.LOADING: 'TFF does not load ({})',
    doctor_probe.DEVICES: 'TensorFlow cannot list its devices ({})',
    doctor_probe.IN_PROCESS: 'the in-process context does not compute ({})',
    doctor_probe.SAVING: (
        'a checkpoint cannot be saved and loaded ({}), so a training ends'
        ' before its first round'
    ),
    doctor_probe.WORKER: (
        'the TFF worker does not start ({}), so the native context cannot be'
        ' used; the in-process one, which is the default, needs no worker'
    ),
    doctor_probe.CLUSTER: 'the workers of the cluster do not answer ({})',
}
# Prefix of the line of a cluster's worker.
_WORKER_LINE = 'worker '
_EXAMPLES = """examples:
  tff-dp doctor --format json
  tff-dp doctor --skip-worker
  tff-dp doctor --install
  tff-dp doctor --install 3.12
  tff-dp doctor --context dask --cluster-address tcp://host:8786
"""


def add_arguments(parser: errors.Parser) -> None:
  """Adds the flags of the command."""
  parser.description = (
      'Shows which versions are installed, whether TensorFlow Federated loads'
      ' and computes, on which devices, and the recipe if it does not. Ends'
      f' with status {errors.ENVIRONMENT} if training cannot work here. It'
      ' starts a worker for a moment, unless --skip-worker is given:'
      f' {_EXPOSED}.'
  )
  parser.epilog = _EXAMPLES
  parser.add_argument(
      '--format',
      choices=('text', 'json'),
      default='text',
      help='text for people, json for programs (default: text)',
  )
  parser.add_argument(
      '--context',
      choices=('dask', 'ray'),
      help='also compare the versions of every worker of a cluster',
  )
  parser.add_argument(
      '--cluster-address',
      metavar='ADDRESS',
      help="of Dask's scheduler (tcp://host:8786) or Ray's head (host:6379);"
      ' without it, two workers start on this machine',
  )
  parser.add_argument(
      '--skip-worker',
      action='store_true',
      help='start no TFF worker, and so open no port',
  )
  parser.add_argument(
      '--install',
      nargs='?',
      const=doctor_install.THIS,
      choices=doctor_install.CHOICES,
      help='try nothing, and only print the lines that install tff_dp into the'
      ' Python that runs this, or into another one',
  )
  parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
  """Prints the report and returns the exit status."""
  if args.cluster_address is not None and args.context is None:
    raise _checks.ArgumentError(
        'cluster_address', args.cluster_address, 'no value without --context'
    )
  if args.install is not None:
    if args.context or args.skip_worker or args.format != 'text':
      raise _checks.ArgumentError(
          'install', args.install, 'no other flag beside --install'
      )
    return doctor_install.show(args.install)
  findings = _compat.check_environment()
  if args.format == 'text':
    # Loading TFF takes seconds, so print all that is known without it first.
    print(f'tff_dp {_version.__version__}\n', flush=True)
    _print_findings(findings)
  found_on_machine = _machine()
  answers = _ask_child(
      engine=args.context,
      address=args.cluster_address,
      skip_worker=args.skip_worker,
  )
  attempts = _attempts(answers)
  findings += attempts
  status = _worst(findings)
  if args.format == 'json':
    print(
        json.dumps(
            {
                'tff_dp': _version.__version__,
                'status': status.value,
                'findings': [finding.to_json() for finding in findings],
                'devices': answers.get(doctor_probe.DEVICES, {}).get('result'),
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


def _attempts(answers: dict[str, dict]) -> list[_compat.Finding]:
  """Returns the findings that the child's answers give."""
  findings = []
  for name, answer in answers.items():
    if 'error' in answer:
      is_needed = name != doctor_probe.WORKER
      findings.append(
          _compat.Finding(
              name,
              'fails',
              'works',
              _compat.Status.BROKEN if is_needed else _compat.Status.UNTESTED,
              _FAILURES[name].format(answer['error']),
          )
      )
    elif name == doctor_probe.DEVICES:
      findings.extend(_device_findings(answer['result']))
    elif name == doctor_probe.CLUSTER:
      findings.extend(_worker_findings(answer['result']))
    else:
      result = answer['result']
      advice = ''
      if name == doctor_probe.WORKER:
        advice = f'{_EXPOSED}; --skip-worker starts none'
      findings.append(
          _compat.Finding(name, result, 'works', _compat.Status.OK, advice)
      )
  return findings


def _device_findings(found: dict) -> list[_compat.Finding]:
  """Returns findings about the result of `execution.devices.describe`."""
  names = [device['name'] for device in found['devices']]
  lines = {
      doctor_probe.DEVICES: ', '.join(names),
      'clients train on': _with_workers(found['clients']),
      'the server works on': found['server'],
  }
  return [
      _compat.Finding(
          name,
          value,
          '',
          _compat.Status.OK,
          found['advice'] if name == doctor_probe.DEVICES else '',
      )
      for name, value in lines.items()
  ]


def _with_workers(names: list[str]) -> str:
  """Returns 'GPU:0, CPU:0 (2 workers)': each device once, with its workers."""
  return ', '.join(
      name if number == 1 else f'{name} ({number} workers)'
      for name, number in collections.Counter(names).items()
  )


def _worker_findings(found: list[dict[str, str]]) -> list[_compat.Finding]:
  """Returns a finding for every worker of a cluster."""
  return [
      _compat.Finding(
          _WORKER_LINE + each['worker'],
          each['device'],
          'the versions of this machine',
          _compat.Status.BROKEN if each['differs'] else _compat.Status.OK,
          f'{each["worker"]} cannot take part: {each["differs"]}'
          if each['differs']
          else '',
      )
      for each in found
  ]


def _ask_child(**asked: object) -> dict[str, dict]:
  """Returns name of an attempt -> {'result': ...} or {'error': why}.

  The first attempt that failed is the last entry.

  Args:
    **asked: The arguments of `doctor_probe.main`.
  """
  words = [*_PROBE_FLAGS, '-c', _PROBE, _PACKAGES, json.dumps(asked)]
  try:
    child = subprocess.run(
        [sys.executable, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_PROBE_SECONDS,
        check=False,
    )
    output, end = child.stdout, _explain_end(child)
  except subprocess.TimeoutExpired as error:
    output, end = error.stdout, f'no answer within {_PROBE_SECONDS} s'
  answers = {}
  for line in (output or b'').decode(errors='replace').splitlines():
    if line.startswith(doctor_probe.MARK):
      answer = json.loads(line.removeprefix(doctor_probe.MARK))
      answers[answer.pop('name')] = answer
  if not any('error' in answer for answer in answers.values()):
    for name in doctor_probe.attempts(**asked):
      if name not in answers:  # This attempt crashed or hung.
        answers[name] = {'error': end}
        break
  return answers


def _explain_end(child: subprocess.CompletedProcess) -> str:
  """Returns the reason why a child ended before its last answer."""
  if child.returncode < 0:
    how = f'killed by {signal.Signals(-child.returncode).name}'
    if -child.returncode == signal.SIGILL:
      how += ', the processor lacks instructions that TensorFlow needs'
    return how
  stderr = child.stderr.decode(errors='replace')
  last_lines = stderr.strip().splitlines()[-1:]
  return ' '.join([f'status {child.returncode}', *last_lines])


def _machine() -> dict[str, str]:
  """Returns facts about the machine, without unknown values."""
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


def _recipe(findings: list[_compat.Finding]) -> str:
  """Returns instructions that mend the broken parts."""
  broken = [f.name for f in findings if f.status is _compat.Status.BROKEN]
  of_cluster = (doctor_probe.CLUSTER, _WORKER_LINE)
  if all(name.startswith(of_cluster) for name in broken):
    return (
        'start scheduler and workers with the Python and the packages of this'
        ' machine; docs/execution.md says how'
    )
  return _compat.RECIPE


def _verdict(
    status: _compat.Status, findings: list[_compat.Finding]
) -> str:
  advice = dict.fromkeys(f.advice for f in findings if f.advice)
  if status is _compat.Status.OK:
    notes = [f'\nnote: {note}' for note in advice]
    return 'ok: everything that training needs is here' + ''.join(notes)
  if status is _compat.Status.BROKEN:
    return (
        'broken: training cannot work here\n'
        f'why: {_compat.causes(findings)}\n'
        f'try: {_recipe(findings)}'
    )
  return f'works, but is untested: {"; ".join(advice)}'
