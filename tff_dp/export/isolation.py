# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks and runs foreign bundles in an isolated child process.

The child runs this file by its path, so that it imports nothing before it has
given up the network. With `-P`, it imports nothing from the working directory.
While it checks and runs a bundle, it can write no byte into any file. Bounds on
memory and processor time end a child that would not end by itself.
"""

import contextlib
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
from typing import NamedTuple

STATIC, RUN = 'static', 'run'
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_STATIC_SECONDS, _RUN_SECONDS = 900, 3600
# Part of that time for the measurement of the noise.
_MEASURE_SECONDS = 240
_LEAST_MEMORY = 4 * 2**30
_KEPT_VARIABLES = ('LD_LIBRARY_PATH', 'TFF_DP_DEBUG')


class Outcome(NamedTuple):
  """The outcome of a child process.

  Attributes:
    findings: [check, status, detail] of each finding, as the child printed it.
    error: Reason why there are no findings, '' if there are some.
    is_not_a_bundle: Whether `error` says that there is no bundle.
  """

  findings: list[list[str]]
  error: str = ''
  is_not_a_bundle: bool = False


def check(root: pathlib.Path) -> Outcome:
  """Returns the outcome of the static check in a child process."""
  with tempfile.TemporaryDirectory(prefix='tff_dp_check_') as home:
    return _call(STATIC, root, home=home, said=None)


def run(root: pathlib.Path, say) -> Outcome:
  """Returns the outcome of running a bundle in a child process.

  Args:
    root: Directory of the bundle. A copy of it is checked again and run.
    say: Function that is called with one line, before anything runs.

  Raises:
    ArgumentError: If `root` is not a bundle that can be copied.
  """
  # Not where this file is run. pylint: disable=g-import-not-at-top
  from tff_dp import _checks
  from tff_dp.export import bundle

  with tempfile.TemporaryDirectory(prefix='tff_dp_run_') as folder:
    home, copy = pathlib.Path(folder, 'home'), pathlib.Path(folder, 'bundle')
    home.mkdir()
    # Whoever may write to the bundle could change it after it was checked.
    bundle.copy(root, copy)

    def said(network: str) -> None:
      say(
          f'runs the graphs of a copy of {_checks.printable(str(root))}, once they have passed the'
          f' static check again, in a process of its own: {network}, an empty'
          f' home ({home}), no byte written to any file, at most'
          f' {_RUN_SECONDS // 60} minutes of processor time'
      )

    return _call(RUN, copy, home=str(home), said=said)


def _call(mode: str, root: pathlib.Path, *, home: str, said):
  """Returns the outcome of a child that checks or runs a bundle."""
  child = subprocess.Popen(
      [
          sys.executable,
          '-P',
          __file__,
          mode,
          os.path.abspath(root),
          str(_MEASURE_SECONDS),
      ],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=subprocess.DEVNULL,
      env=_environment(home),
      cwd=home,
      start_new_session=True,
  )
  try:
    network = child.stdout.readline().decode()
    if said is not None and network:
      said(network.strip())
    out, _ = child.communicate(b'go\n')
  except BaseException:
    child.kill()
    child.wait()
    raise
  if child.returncode < 0:
    name = signal.Signals(-child.returncode).name
    return Outcome([], f'it ended the process that read it, by {name}')
  try:
    return Outcome(*json.loads(out))
  except (ValueError, TypeError):
    return Outcome([], f'the process that read it ended with {child.returncode}')


def _environment(home: str) -> dict[str, str]:
  """Returns the environment of a child, with few of the user's variables."""
  import site  # pylint: disable=g-import-not-at-top

  given = os.environ.get('PYTHONPATH', '').split(os.pathsep)
  places = [
      str(pathlib.Path(__file__).resolve().parents[2]),
      *(place for place in given if os.path.isabs(place)),
  ]
  if site.ENABLE_USER_SITE:
    places.append(site.getusersitepackages())
  kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
  return kept | {
      'PATH': os.defpath,
      'HOME': home,
      'TMPDIR': home,
      'LANG': 'C.UTF-8',
      'PYTHONPATH': os.pathsep.join(places),
      'PYTHONDONTWRITEBYTECODE': '1',
      'CUDA_VISIBLE_DEVICES': '',
      'TF_CPP_MIN_LOG_LEVEL': '3',
  }


def _leave_network() -> str:
  """Leaves the network. Returns words that say whether that was possible."""
  import ctypes  # pylint: disable=g-import-not-at-top

  try:
    unshare = ctypes.CDLL(None, use_errno=True).unshare
  except (AttributeError, OSError):
    return 'WITH the network of this machine, which it cannot be kept from'
  # Without privileges, a new network needs a new user namespace.
  for flags in (_CLONE_NEWNET, _CLONE_NEWUSER | _CLONE_NEWNET):
    if unshare(flags) == 0:
      return 'no network'
  return 'WITH the network of this machine, which it cannot be kept from'


def _limit(mode: str) -> None:
  """Bounds processor time, memory and core dumps of this process."""
  physical = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
  for kind, most in (
      (resource.RLIMIT_CPU, _RUN_SECONDS if mode == RUN else _STATIC_SECONDS),
      (resource.RLIMIT_DATA, max(_LEAST_MEMORY, physical * 3 // 4)),
      (resource.RLIMIT_CORE, 0),
  ):
    _, given = resource.getrlimit(kind)
    if given != resource.RLIM_INFINITY:
      most = min(most, given)
    resource.setrlimit(kind, (most, most))


@contextlib.contextmanager
def _writing_nothing():
  """Makes every write to a file fail. A graph cannot undo that."""
  # A signal would end the process.
  signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
  usual, most = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
  try:
    yield
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (usual, most))


def _outcome(mode: str, root: pathlib.Path, measure_seconds: float) -> Outcome:
  """Returns the outcome of a check or a run in this process."""
  # Not before the limits. pylint: disable=g-import-not-at-top
  from tff_dp import _checks
  from tff_dp import _compat

  _compat.require_tff()
  from tff_dp.export import measuring
  from tff_dp.export import verification

  try:
    with _writing_nothing():
      findings = verification.verify_bundle(root)
      if mode == RUN and not verification.failed(findings):
        findings = [
            each
            for each in findings
            if each.status != verification.NOT_CHECKED
        ] + measuring.run_bundle(root, seconds=measure_seconds)
    found = [[each.check, each.status, each.detail] for each in findings]
    return Outcome(found)
  except _checks.ArgumentError as error:
    return Outcome([], error.allowed, True)
  except Exception as error:  # pylint: disable=broad-exception-caught
    said = ' '.join(str(error).split())[:300]
    return Outcome([], f'{type(error).__name__}: {said}')


def _main(mode: str, root: str, measure_seconds: str) -> None:
  print(_leave_network(), flush=True)
  _limit(mode)
  if sys.stdin.readline() != 'go\n':
    return
  # Output of TensorFlow must not mix with the answer.
  answer = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)
  outcome = _outcome(mode, pathlib.Path(root), float(measure_seconds))
  answer.write(json.dumps(outcome))
  answer.flush()
  # TensorFlow threads may wait for ever.
  os._exit(0)


if __name__ == '__main__':
  _main(*sys.argv[1:])
