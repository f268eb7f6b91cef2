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
"""What we need from the machine, and every private symbol that we touch.

Three things live here and nowhere else: the versions this release was checked
against, the sentence a user reads when they are missing, and the private
symbols of TensorFlow Federated (TFF). Nothing heavy is imported at the top, so
that a broken installation can still be diagnosed.
"""

import dataclasses
import enum
import importlib
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import sys
import warnings

# What this release was developed and tested on; `requirements.lock` pins it.
PYTHON = (3, 11)
PLATFORM = ('Linux', 'x86_64')
TFF = '0.87.0'
TENSORFLOW = '2.14.1'
# TFF 0.87 asks for jaxlib 0.4.14, which the package index no longer has. It
# imports and runs with this pair.
JAX = '0.4.13'
# Distribution -> checked version, for what has no rule of its own below.
_OTHERS = {
    'tensorflow-privacy': '0.9.0',
    'dp-accounting': '0.4.3',
    'numpy': '1.25.2',
}
# The parts of `tff_dp` that need TFF. The rest runs without it.
NEEDS_TFF = ('aggregators', 'learning', 'execution', 'program')

RECIPE = (
    'in a checkout of tff_dp, run `make environment`: it puts Python 3.11 and'
    ' every package at its tested version into .venv; then use .venv/bin/python'
)
_DEBUG_VARIABLE = 'TFF_DP_DEBUG'
_MISSING = 'not installed'
_ROOT_CAUSES = ('python', 'platform')


class BrokenEnvironmentError(ImportError):
  """TFF cannot run here; the message says what to do."""


class Status(enum.Enum):
  """How a finding compares with what was tested."""

  OK = 'ok'
  UNTESTED = 'untested'
  BROKEN = 'broken'


@dataclasses.dataclass(frozen=True)
class Finding:
  """One line about the environment.

  Attributes:
    name: What was looked at, for example 'jaxlib'.
    found: What is there.
    expected: What was tested.
    status: How the two compare.
    advice: What to know or do; may be empty if `found` says it all.
  """

  name: str
  found: str
  expected: str
  status: Status
  advice: str = ''

  def to_json(self) -> dict[str, str]:
    return {**dataclasses.asdict(self), 'status': self.status.value}


def is_debug() -> bool:
  """Returns whether TFF_DP_DEBUG asks for start-up noise and tracebacks."""
  return os.environ.get(_DEBUG_VARIABLE, '0').lower() not in ('', '0', 'false')


def quiet_start_up() -> None:
  """Silences what TensorFlow and TFF print when they are imported.

  TensorFlow's C++ messages of all levels below FATAL are off for the whole
  process (its errors still arrive as exceptions): three of those at start-up
  are logged as errors and are harmless. A TF_CPP_MIN_LOG_LEVEL that the user
  has set wins, and TFF_DP_DEBUG=1 leaves everything as it is.
  """
  if is_debug():
    return
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  # From googleapis-common-protos 1.61 below TFF; setuptools < 81 is pinned.
  warnings.filterwarnings('ignore', message='pkg_resources is deprecated')
  warnings.filterwarnings(
      'ignore', message='Deprecated call to `pkg_resources.declare_namespace'
  )


def installed_version(distribution: str) -> str | None:
  """Returns the version of an installed distribution, else None."""
  try:
    return importlib.metadata.version(distribution)
  except importlib.metadata.PackageNotFoundError:
    return None


def worker_binary() -> pathlib.Path | None:
  """Returns the path of TFF's C++ runtime, or None if TFF is not installed.

  Checked against TFF 0.87.0, which ships it as `data/worker_binary` and offers
  no public way to find it. Does not import TFF.
  """
  try:
    spec = importlib.util.find_spec('tensorflow_federated')
  except ValueError:  # Loaded, but not from files.
    spec = None
  if spec is None or not spec.submodule_search_locations:
    return None
  package = pathlib.Path(next(iter(spec.submodule_search_locations)))
  return package / 'data' / 'worker_binary'


def _minor(version: str) -> tuple[int, ...]:
  """Returns (major, minor), or () for a version we cannot read."""
  try:
    return tuple(int(part) for part in version.split('.')[:2])
  except ValueError:
    return ()


def _check_python() -> Finding:
  expected = '.'.join(map(str, PYTHON))
  status, advice = Status.OK, ''
  if sys.version_info[:2] != PYTHON:
    status = Status.BROKEN
    advice = (
        f'TensorFlow Federated {TFF} is tested on Python {expected} only, and'
        ' on a newer Python pip silently installs an ancient TFF'
    )
  return Finding(
      'python', platform.python_version(), expected, status, advice
  )


def _check_platform() -> Finding:
  found = (platform.system(), platform.machine())
  status, advice = Status.OK, ''
  if found != PLATFORM:
    status = Status.BROKEN
    advice = (
        'TFF is built for Linux on x86_64 only; use WSL2 on Windows and a'
        ' linux/amd64 container on macOS'
    )
  return Finding(
      'platform', ' '.join(found), ' '.join(PLATFORM), status, advice
  )


def _check_tff() -> Finding:
  found = installed_version('tensorflow-federated')
  name = 'tensorflow-federated'
  if found is None:
    return Finding(name, _MISSING, TFF, Status.BROKEN)
  if _minor(found) < _minor(TFF):
    return Finding(
        name,
        found,
        TFF,
        Status.BROKEN,
        f'TFF {found} is too old; pip goes back to it when {TFF} does not fit'
        ' this Python',
    )
  if found != TFF:
    return Finding(
        name, found, TFF, Status.UNTESTED, f'only TFF {TFF} was tested'
    )
  return Finding(name, found, TFF, Status.OK)


def _check_jax_pair() -> list[Finding]:
  versions = {name: installed_version(name) for name in ('jax', 'jaxlib')}
  status, advice = Status.OK, ''
  missing = [name for name, version in versions.items() if version is None]
  if missing:
    status = Status.BROKEN
    advice = (
        f'TFF imports jax and jaxlib, the tested pair is {JAX} and {JAX} (the'
        ' jaxlib 0.4.14 that TFF asks for is no longer published)'
    )
  elif versions['jax'] != versions['jaxlib']:
    status = Status.BROKEN
    advice = f'jax and jaxlib must match; the tested pair is {JAX} and {JAX}'
  elif versions['jax'] != JAX:
    status = Status.UNTESTED
    advice = f'only the pair {JAX} and {JAX} was tested'
  return [
      Finding(name, version or _MISSING, JAX, status, advice)
      for name, version in versions.items()
  ]


def _check_version(distribution: str, expected: str) -> Finding:
  found = installed_version(distribution)
  if found is None:
    return Finding(distribution, _MISSING, expected, Status.BROKEN)
  if _minor(found) != _minor(expected):
    return Finding(
        distribution,
        found,
        expected,
        Status.UNTESTED,
        f'only {distribution} {expected} was tested',
    )
  return Finding(distribution, found, expected, Status.OK)


def _check_worker_binary() -> Finding:
  path, expected = worker_binary(), 'an executable file'
  if path is None:
    return Finding('worker_binary', 'no TFF', expected, Status.BROKEN)
  if not path.is_file():
    return Finding(
        'worker_binary',
        'missing',
        expected,
        Status.BROKEN,
        f'this TFF has no {path}, so its installation is incomplete',
    )
  if not os.access(path, os.X_OK):
    return Finding(
        'worker_binary',
        'not executable',
        expected,
        Status.BROKEN,
        f'run `chmod +x {path}`; if that fails, its file system forbids'
        ' programs',
    )
  return Finding('worker_binary', 'executable', expected, Status.OK)


def check_environment() -> list[Finding]:
  """Returns one finding per requirement, without importing any of them.

  It reads what is installed; whether it also loads is for `require_tff` and
  `tff-dp doctor` to find out.
  """
  return [
      _check_python(),
      _check_platform(),
      _check_tff(),
      _check_version('tensorflow', TENSORFLOW),
      *_check_jax_pair(),
      *(_check_version(name, version) for name, version in _OTHERS.items()),
      _check_worker_binary(),
  ]


def causes(findings: list[Finding]) -> str:
  """Returns what is broken, each thing once, or '' if nothing is."""
  broken = [finding for finding in findings if finding.status is Status.BROKEN]
  # With a wrong Python or platform the rest can only be broken, too.
  roots = [finding for finding in broken if finding.name in _ROOT_CAUSES]
  missing = [finding.name for finding in broken if finding.found == _MISSING]
  # The two halves of the jax pair give the same advice.
  advice = dict.fromkeys(finding.advice for finding in roots or broken)
  listed = f'not installed: {", ".join(missing)}'
  return '; '.join(
      filter(None, [listed if missing and not roots else '', *advice])
  )


def explain(findings: list[Finding]) -> str:
  """Returns what is broken and the recipe, in a sentence or two."""
  broken = causes(findings)
  if not broken:
    return f'To get the tested set: {RECIPE}.'
  return f'Cause: {broken}. To fix it: {RECIPE}.'


def require_tff():
  """Returns the `tensorflow_federated` module, imported quietly.

  Packages that need TFF call this first, so that a user with a wrong Python, no
  TFF or a broken jax pair reads one sentence instead of somebody else's
  traceback. What imports is never refused for what its metadata says, with the
  exception of a TFF older than the tested one.

  Raises:
    BrokenEnvironmentError: TFF cannot be imported, or is too old.
  """
  quiet_start_up()
  try:
    tff = importlib.import_module('tensorflow_federated')
  except Exception as error:  # pylint: disable=broad-except
    # A broken jax or numpy raises anything from ImportError to AttributeError.
    raise BrokenEnvironmentError(
        'tff_dp cannot load TensorFlow Federated'
        f' ({type(error).__name__}: {error}). {explain(check_environment())}'
    ) from error
  version = getattr(tff, '__version__', '0')
  if _minor(version) < _minor(TFF):
    raise BrokenEnvironmentError(
        f'tff_dp needs TensorFlow Federated {TFF}, found {version}. '
        + explain(check_environment())
    )
  return tff
