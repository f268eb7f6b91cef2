# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The required environment, and private symbols of TensorFlow Federated (TFF).

Two things are only here: the message for a user when something in `_columns` is
missing, and the private symbols of TFF. Nothing heavy is imported at the top,
so a broken installation can still be diagnosed. `_compat_tensorflow` and
`_compat_losses` have the private symbols of TensorFlow and dp_accounting.
"""

import atexit
from collections.abc import Callable
import dataclasses
import enum
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import sys
import threading
import weakref

from tff_dp import _columns
from tff_dp import _compat_tensorflow
from tff_dp import _quiet
from tff_dp import _shim

PLATFORM = ('Linux', 'x86_64')
TFF = _columns.TFF
# The tested stack that is nearest to this Python.
COLUMN = _columns.here()
RECIPE = COLUMN.recipe
is_debug = _quiet.is_debug
# The parts of `tff_dp` that need TFF. The rest runs without it.
NEEDS_TFF = ('aggregators', 'learning', 'execution', 'program')

_MISSING = 'not installed'
# Private modules of TFF on which the in-process context is built. Checked
# against TFF 0.87.0. None of them imports jax or tensorflow-privacy itself.
_PRIVATE_TFF = {
    'array': 'core.impl.compiler.array',
    'computation_serialization': (
        'core.impl.computation.computation_serialization'
    ),
    'default_context': 'core.impl.context_stack.set_default_context',
    'no_context': 'core.impl.context_stack.runtime_error_context',
    'type_conversions': 'core.impl.types.type_conversions',
    'type_serialization': 'core.impl.types.type_serialization',
}
_ROOT_CAUSES = ('python', 'platform')


class BrokenEnvironmentError(ImportError):
  """TFF cannot run here. The message says what to do."""


class Status(enum.Enum):
  """Result of comparing a finding with the tested environment."""

  OK = 'ok'
  UNTESTED = 'untested'
  BROKEN = 'broken'


@dataclasses.dataclass(frozen=True)
class Finding:
  """One line about the environment.

  Attributes:
    name: Item that was checked, for example 'jaxlib'.
    found: Version or state that was found.
    expected: Version or state that was tested.
    status: Result of the comparison.
    advice: Sentence with an explanation or a remedy. Empty if `found` is
      enough.
  """

  name: str
  found: str
  expected: str
  status: Status
  advice: str = ''

  def to_json(self) -> dict[str, str]:
    return {**dataclasses.asdict(self), 'status': self.status.value}


def prepare_imports() -> None:
  """Makes the import of TFF quiet and, in columns B and C, possible.

  For the columns see `_columns`.

  Call it before TensorFlow is loaded, because TensorFlow reads its log level
  and chooses its Keras only once.
  """
  _quiet.quiet_start_up()
  if COLUMN.needs_shim:
    # TensorFlow 2.21 reads its log level only after it has written.
    _shim.install(_quiet.without_noise)
    _shim.use_legacy_keras()
  # Before somebody chooses a context.
  _shim.after_import('tensorflow_federated', _see_context_of_import)


def installed_version(distribution: str) -> str | None:
  """Returns the version of an installed distribution, else None."""
  try:
    return importlib.metadata.version(distribution)
  except importlib.metadata.PackageNotFoundError:
    return None


def worker_binary() -> pathlib.Path | None:
  """Returns the path of TFF's C++ runtime, or None if TFF has no folder.

  TFF has no folder if it is not installed, or was not loaded from files. The
  file at the returned path may be missing.

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


def private_tff(name: str):
  """Returns one of the private TFF modules that we use, and loads TFF."""
  return importlib.import_module(
      f'tensorflow_federated.python.{_PRIVATE_TFF[name]}'
  )


def _minor(version: str) -> tuple[int, ...]:
  """Returns (major, minor), or () for a version we cannot read."""
  try:
    return tuple(int(part) for part in version.split('.')[:2])
  except ValueError:
    return ()


def _check_python() -> list[Finding]:
  """Returns two findings: the nearest column, and the version of Python."""
  expected = COLUMN.python_versions
  status, advice = Status.OK, ''
  if sys.version_info[:2] not in COLUMN.pythons:
    status = Status.BROKEN
    advice = (
        f'TensorFlow Federated {TFF} is tested on Python'
        f' {_columns.REFERENCE.python_versions},'
        f' {_columns.CURRENT.python_versions} only, and'
        ' on a newer Python pip silently installs an ancient TFF'
    )
  return [
      Finding('column', COLUMN.title, COLUMN.title, Status.OK),
      Finding('python', platform.python_version(), expected, status, advice),
  ]


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
  (expected,) = COLUMN.packages['jax']
  status, advice = Status.OK, ''
  missing = [name for name, version in versions.items() if version is None]
  if missing:
    status = Status.BROKEN
    advice = (
        'TFF imports jax and jaxlib, the tested pair is'
        f' {expected} and {expected} (the jaxlib 0.4.14 that TFF asks for is no'
        ' longer published)'
    )
  elif versions['jax'] != versions['jaxlib']:
    status = Status.BROKEN
    advice = (
        'jax and jaxlib must match; the tested pair is'
        f' {expected} and {expected}'
    )
  elif versions['jax'] != expected:
    status = Status.UNTESTED
    advice = f'only the pair {expected} and {expected} was tested'
  return [
      Finding(name, version or _MISSING, expected, status, advice)
      for name, version in versions.items()
  ]


def _check_packages() -> list[Finding]:
  findings = []
  for name, versions in COLUMN.packages.items():
    if name == 'jax':
      findings += _check_jax_pair()
    elif name != 'jaxlib':
      findings.append(_check_version(name, versions))
  findings += [
      Finding(name, _MISSING, 'any version', Status.BROKEN)
      for name in COLUMN.present
      if installed_version(name) is None
  ]
  return findings


def _check_version(distribution: str, versions: tuple[str, ...]) -> Finding:
  found, expected = installed_version(distribution), ' or '.join(versions)
  if found is None:
    return Finding(distribution, _MISSING, expected, Status.BROKEN)
  if _minor(found) not in map(_minor, versions):
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
  """Returns the findings about this environment, without importing a package.

  It reads which packages are installed. `require_tff` and `tff-dp doctor` find
  out whether they also load. A package that may have any version has a finding
  only if it is missing.
  """
  return [
      *_check_python(),
      _check_platform(),
      _check_tff(),
      *_check_packages(),
      *([_check_worker_binary()] if COLUMN.has_worker else []),
  ]


def causes(findings: list[Finding]) -> str:
  """Returns text that names each broken item once, '' if none is broken.

  If Python or the platform is wrong, the text names nothing else.
  """
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

  Packages that need TFF call this first. A user with a wrong Python, no TFF or
  a broken jax pair then reads one sentence instead of a foreign traceback. A
  TFF that imports is never refused because of its metadata, except if it is
  older than the tested one.

  Raises:
    BrokenEnvironmentError: If TFF cannot be imported, is half loaded or too
      old, or if `tf.keras` is Keras 3.
  """
  prepare_imports()
  _refuse_half_loaded_tff()
  try:
    with _quiet.without_noise():
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
  if COLUMN.needs_shim:
    _require_legacy_keras()
    _explain_keras3()
  _compat_tensorflow.let_wrapped_dicts_be_saved()
  _read_types_once()
  _forget_worker_at_exit()
  _context_of_import()
  _explain_missing_context()
  return tff


def _refuse_half_loaded_tff() -> None:
  """Raises if an earlier import of TFF failed and left parts of it loaded."""
  if 'tensorflow_federated' not in sys.modules and any(
      name.startswith('tensorflow_federated.') for name in sys.modules
  ):
    raise BrokenEnvironmentError(
        'tensorflow_federated was imported before tff_dp, and that failed. In a'
        ' new process (in a notebook: Runtime > Restart session), import tff_dp'
        ' first.'
    )


def _require_legacy_keras() -> None:
  keras = importlib.import_module('tensorflow').keras
  if keras.Model.__module__.startswith('keras.'):
    raise BrokenEnvironmentError(
        'tf.keras is Keras 3 here, but TFF needs Keras 2. In a new process (in a'
        ' notebook: Runtime > Restart session) import tff_dp before anything'
        ' that uses tf.keras, or set TF_USE_LEGACY_KERAS=1 before Python starts.'
    )


def is_keras3_model(value: object) -> bool:
  """Returns whether a value is a model of Keras 3, without importing Keras."""
  return any(
      each.__name__ == 'Model' and each.__module__.startswith('keras.src.models')
      for each in type(value).__mro__
  ) and hasattr(value, 'stateless_call')


@functools.cache
def _explain_keras3() -> None:
  """Lets TFF's errors about a Keras 3 model refer to our function for it.

  TFF's own errors say only that another type is expected. Checked with TFF
  0.87.0.
  """
  models = importlib.import_module('tensorflow_federated').learning.models
  for name in ('from_keras_model', 'functional_model_from_keras'):
    setattr(models, name, _refusing_keras3(name, getattr(models, name)))


def _refusing_keras3(name: str, function: Callable):
  @functools.wraps(function)
  def refusing(keras_model, *arguments, **named):
    if is_keras3_model(keras_model):
      raise TypeError(
          f'tff.learning.models.{name} takes models of Keras 2 (here tf.keras),'
          f' but {keras_model.name} is a model of Keras 3: use'
          ' tff_dp.learning.functional_model_from_keras3'
      )
    return function(keras_model, *arguments, **named)

  return refusing


@functools.cache
def _read_types_once() -> None:
  """Makes TFF keep the last 4,096 types that it has read from computations.

  A computation has the type of each of its building blocks, and a type has the
  types of its parts. TFF reads all of them anew whenever it turns a computation
  into building blocks. It makes the same objects of them, because a type cannot
  change, and equal types are one object.
  """
  module = private_tff('type_serialization')
  read = module.deserialize_type

  @functools.lru_cache(maxsize=4096)
  def read_once(serialized: bytes):
    return read(module.pb.Type.FromString(serialized))

  @functools.wraps(read)
  def deserialize_type(type_proto):
    return read_once(type_proto.SerializeToString(deterministic=True))

  module.deserialize_type = deserialize_type


@functools.cache
def _forget_worker_at_exit() -> None:
  """Drops TFF's default context while its `__del__` can still run.

  Otherwise `__del__` may run after `subprocess` is torn down, and print a
  traceback when Python ends. In Python 3.13 it always does.
  """
  atexit.register(private_tff('default_context').set_no_default_context)


def _see_context_of_import() -> None:
  """Remembers the context that TFF installs, unless TFF is half loaded."""
  if hasattr(sys.modules['tensorflow_federated'], 'framework'):
    _context_of_import()


@functools.cache
def _context_of_import() -> weakref.ReferenceType:
  """Returns a weak reference to the context that TFF had when we first saw it.

  TFF gives the thread that imports it a context on its own worker, and all
  other threads one that refuses to compute.
  """
  stack = importlib.import_module(
      'tensorflow_federated'
  ).framework.get_context_stack()
  return weakref.ref(stack.current)


def is_context_chosen() -> bool:
  """Returns whether somebody has set a context for this thread."""
  stack = importlib.import_module(
      'tensorflow_federated'
  ).framework.get_context_stack()
  return stack.current is not _context_of_import()() and not isinstance(
      stack.current, private_tff('no_context').RuntimeErrorContext
  )


@functools.cache
def watch_default_context(replaced: Callable[[object, object], None]) -> None:
  """Calls `replaced(previous, new)` when a thread's default context changes.

  TFF's own functions change the default context silently.

  Args:
    replaced: Function that is called in that thread, after the change.
  """
  stack = importlib.import_module(
      'tensorflow_federated'
  ).framework.get_context_stack()
  kind = type(stack)
  set_default_context = kind.set_default_context

  @functools.wraps(set_default_context)
  def watched(self, context):
    previous = self._stack[0]
    set_default_context(self, context)
    replaced(previous, context)

  kind.set_default_context = watched


@functools.cache
def _explain_missing_context() -> None:
  """Makes the error of a thread without a context say what to do.

  TFF 0.87's own message says that this cannot happen, and names a function that
  does not exist.
  """

  def explain(_):
    raise RuntimeError(
        'there is no context to compute in: TFF keeps contexts per thread, and'
        f' the thread {threading.current_thread().name!r} has none. Call'
        ' tff_dp.execution.set_default_context() in it, before its first'
        ' computation.'
    )

  refusing = private_tff('no_context').RuntimeErrorContext
  refusing._raise_runtime_error = explain  # pylint: disable=protected-access
