# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Makes TFF 0.87 importable on a stack that is newer than it (columns B, C).

TensorFlow Federated (TFF) and tensorflow-privacy import packages that current
Pythons or TensorFlows lack, for features that this project never uses.
`install` puts a finder in front of Python's own. While one of the two packages
is being imported, and only then, the finder serves placeholders for the names
in `ENTRIES` that cannot be imported. When that import ends, the placeholders
leave `sys.modules`. For all other code, `import jax` fails as before, and code
that looks for `sys.modules['jax']`, as matplotlib does, finds nothing.

A placeholder tolerates everything that a module does to it during its import:
attribute access, subclassing, decorators and calls. Afterwards an attribute
access, a decorator and a call raise `UnavailableFeatureError`, which names the
feature and the column that supports it.
"""

import abc
import contextlib
import dataclasses
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import operator
import os
import sys
import threading
import types

# Placeholders are only visible while these are being imported.
OWNERS = ('tensorflow_federated', 'tensorflow_privacy')
# All of TFF's JAX code, and the only importer of its xla_backend.
_JAX = 'tensorflow_federated.python.core.environments.jax_frontend'
_SUPPORT = (
    'is supported with Python 3.11 and TensorFlow 2.14 only (column A,'
    ' reference), not on this stack'
)


class UnavailableFeatureError(NotImplementedError):
  """A feature was used whose package is missing. The message names the feature.
  """


@dataclasses.dataclass(frozen=True)
class Entry:
  """A module that TFF imports and that may be replaced, with its submodules.

  Attributes:
    name: Dotted name of the module.
    feature: Feature that does not work without it. It begins the error message.
    checked: Versions that the entry was checked against.
    needs: A module, or `module:attribute`, that the real module needs. If it is
      missing, the placeholder is served. The attribute may have dots.
  """

  name: str
  feature: str
  checked: str
  needs: str = ''


_ESTIMATORS = 'estimators of tensorflow-privacy'
ENTRIES = (
    Entry(
        'jax',
        'tff.jax, computations written in JAX,',
        'TFF 0.87.0 without jax',
    ),
    Entry(
        _JAX,
        'tff.jax, computations written in JAX,',
        'TFF 0.87.0 without jax, with jax 0.7.2 and with jax 0.12.0',
        # Gone from current jax, so a jax that can be imported is not enough.
        needs='jax.lib:xla_client.XlaComputation',
    ),
    Entry(
        'tensorflow_estimator',
        f'tensorflow_estimator, for the {_ESTIMATORS},',
        'tensorflow-privacy 0.9.0 without tensorflow-estimator',
    ),
    Entry(
        'tensorflow_privacy.v1',
        'tensorflow_privacy.v1, optimizers and estimators for TensorFlow 1,',
        'tensorflow-privacy 0.9.0 without tensorflow-estimator',
        needs='tensorflow_estimator',
    ),
    Entry(
        'tensorflow_privacy.privacy.estimators',
        f'tensorflow_privacy.privacy.estimators, the {_ESTIMATORS},',
        'tensorflow-privacy 0.9.0 without tensorflow-estimator',
        needs='tensorflow_estimator',
    ),
    Entry(
        'tensorflow_model_optimization',
        'compression with tensor_encoding (tff.aggregators.EncodedSumFactory,'
        ' tff.learning.compression_aggregator, IBLT chunkers)',
        'TFF 0.87.0 without tensorflow-model-optimization',
    ),
)


def _entry_of(name: str) -> Entry | None:
  for entry in ENTRIES:
    if name == entry.name or name.startswith(f'{entry.name}.'):
      return entry
  return None


def _refuse(entry: Entry, what: str):
  raise UnavailableFeatureError(f'{entry.feature} {_SUPPORT}: {what} was used')


def _is_special(name: str) -> bool:
  # Attributes that Python itself reads from any object, such as __path__ and
  # __wrapped__.
  return name.startswith('__') and name.endswith('__')


class _PlaceholderType(abc.ABCMeta):
  """The metaclass of placeholders.

  It is an `ABCMeta`, so that a class can derive from placeholders and ABCs.
  """

  _entry = None
  _finder = None

  def __getattr__(cls, name: str):
    if _is_special(name):
      raise AttributeError(name)
    what = f'{cls.__module__}.{cls.__qualname__}.{name}'
    return cls._finder.attribute(cls._entry, cls.__module__, what)

  def __call__(cls, *args, **kwargs):
    if not cls._finder.is_importing:
      _refuse(cls._entry, f'{cls.__module__}.{cls.__qualname__}')
    # As a decorator on one of TFF's own classes or functions, it changes
    # nothing.
    return args[0] if len(args) == 1 and callable(args[0]) else cls


class _PlaceholderModule(types.ModuleType):
  """A module whose attributes are placeholders while TFF is being imported."""

  def __init__(self, name: str, entry: Entry, finder: '_Finder'):
    super().__init__(name, f'Placeholder. {entry.feature} {_SUPPORT}.')
    self.__path__ = ()  # A package, so that modules below it can be imported.
    self.__dict__['_entry'] = entry
    self.__dict__['_finder'] = finder

  def __getattr__(self, name: str):
    if _is_special(name):
      raise AttributeError(name)
    what = f'{self.__name__}.{name}'
    return self._finder.attribute(self._entry, self.__name__, what)


class _PlaceholderLoader(importlib.abc.Loader):
  """Loads the real module of an entry or, if that fails, a placeholder."""

  def __init__(self, finder: '_Finder', entry: Entry, real):
    self._finder = finder
    self._entry = entry
    self._real = real  # The real module's loader, None if there is none.

  def create_module(self, spec):
    if self._real is not None:
      return self._real.create_module(spec)
    return _PlaceholderModule(spec.name, self._entry, self._finder)

  def exec_module(self, module):
    name = module.__spec__.name
    if self._real is not None:
      try:
        self._check_need()
        _execute(self._real, module)
        return
      except Exception:  # pylint: disable=broad-except
        # A package that does not fit the rest may raise anything. The import
        # system takes the module from sys.modules when this returns.
        placeholder = _PlaceholderModule(name, self._entry, self._finder)
        placeholder.__spec__ = importlib.machinery.ModuleSpec(
            name, self, is_package=True
        )
        sys.modules[name] = placeholder
    self._finder.served.append(name)

  def _check_need(self):
    module_name, _, attribute = self._entry.needs.partition(':')
    if not module_name:
      return
    needed = importlib.import_module(module_name)
    if isinstance(needed, _PlaceholderModule):
      raise ImportError(f'{module_name} is not there')
    if attribute:
      operator.attrgetter(attribute)(needed)


class _LoaderInside(importlib.abc.Loader):
  """Loads a module inside of a context manager, for any importer."""

  def __init__(self, around, real):
    self._around = around
    self._real = real

  def create_module(self, spec):
    return self._real.create_module(spec)

  def exec_module(self, module):
    with self._around():
      _execute(self._real, module)


def _execute(loader, module) -> None:
  """Runs a module by its own loader, and leaves that loader in the module.

  Code that reads resources of the package needs the loader later.
  """
  module.__loader__ = module.__spec__.loader = loader
  loader.exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
  """Serves placeholders while one of `OWNERS` is being imported.

  Attributes:
    served: Names that placeholders were served for, in order.
  """

  def __init__(self, around_tensorflow):
    self.served = []
    self._around = {
        **dict.fromkeys(OWNERS, self._importing),
        'tensorflow': around_tensorflow,
    }
    self._classes = {}
    self._depth = 0
    self._lock = threading.Lock()

  @property
  def is_importing(self) -> bool:
    return self._depth > 0

  @contextlib.contextmanager
  def _importing(self):
    """Serves placeholders in its block. The outermost block removes them."""
    with self._lock:
      self._depth += 1
    try:
      yield
    finally:
      with self._lock:
        self._depth -= 1
        is_last = not self._depth
      if is_last:
        for name in self.served:
          if isinstance(sys.modules.get(name), _PlaceholderModule):
            del sys.modules[name]

  def find_spec(self, fullname, path=None, target=None):
    if fullname in self._around:
      spec = self._real_spec(fullname, path, target)
      if spec is not None and spec.loader is not None:
        spec.loader = _LoaderInside(self._around[fullname], spec.loader)
      return spec
    entry = _entry_of(fullname) if self.is_importing else None
    if entry is None:
      return None
    real = None
    parent = sys.modules.get(fullname.rpartition('.')[0])
    if not isinstance(parent, _PlaceholderModule):
      if fullname != entry.name:
        return None  # Below a real one, nothing is replaced.
      real = self._real_spec(fullname, path, target)
    loader = _PlaceholderLoader(self, entry, real and real.loader)
    if real is None or real.loader is None:
      return importlib.machinery.ModuleSpec(fullname, loader, is_package=True)
    real.loader = loader
    return real

  def _real_spec(self, fullname, path, target):
    for finder in sys.meta_path:
      if finder is not self and hasattr(finder, 'find_spec'):
        spec = finder.find_spec(fullname, path, target)
        if spec is not None:
          return spec
    return None

  def attribute(self, entry: Entry, module: str, what: str):
    """Returns a placeholder class, or refuses if no import is going on."""
    if not self.is_importing:
      _refuse(entry, what)
    if what not in self._classes:
      self._classes[what] = _PlaceholderType(
          what.removeprefix(f'{module}.'),
          (),
          {'__module__': module, '_entry': entry, '_finder': self},
      )
    return self._classes[what]


def install(around_tensorflow=contextlib.nullcontext) -> None:
  """Puts the finder in front of Python's own. A second call changes nothing.

  Args:
    around_tensorflow: Function that returns a context manager. TensorFlow's own
      import runs inside it.
  """
  if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
    sys.meta_path.insert(0, _Finder(around_tensorflow))


class _Watcher(importlib.abc.MetaPathFinder):
  """Calls a function once a module has been imported, whoever imports it."""

  def __init__(self, name: str, then):
    self.name = name
    self._then = then
    self._is_looking = False

  def find_spec(self, fullname, path=None, target=None):
    if fullname != self.name or self._is_looking:
      return None
    self._is_looking = True
    try:
      spec = importlib.util.find_spec(fullname)
    finally:
      self._is_looking = False
    if spec is not None and spec.loader is not None:
      spec.loader = _LoaderInside(self._around, spec.loader)
    return spec

  @contextlib.contextmanager
  def _around(self):
    yield
    self._then()


def after_import(name: str, then) -> None:
  """Calls `then()` right after a module is imported, or now if it already is.

  Args:
    name: Name of the module. A second call with the same name, before the
      import, changes nothing.
    then: Function without arguments.
  """
  if name in sys.modules:
    then()
  elif not any(
      isinstance(finder, _Watcher) and finder.name == name
      for finder in sys.meta_path
  ):
    sys.meta_path.insert(0, _Watcher(name, then))


def served() -> tuple[str, ...]:
  """Returns the names that placeholders were served for so far."""
  return tuple(
      name
      for finder in sys.meta_path
      if isinstance(finder, _Finder)
      for name in finder.served
  )


def use_legacy_keras() -> None:
  """Makes `tf.keras` Keras 2, as TFF needs it. Call it before TensorFlow.

  Checked with TensorFlow 2.21.0 and tf_keras 2.21.0. A value that the user has
  set wins.
  """
  os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')
