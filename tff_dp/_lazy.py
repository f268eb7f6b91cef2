# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Public names of a package that are imported when they are first used."""

from collections.abc import Callable, Iterable, Mapping
import importlib
import importlib.abc
import importlib.machinery
import json
import pathlib
import sys
import types
from typing import Any


def names(
    package: str,
    homes: Mapping[str, str],
    *,
    on_tff: Iterable[str] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]], tuple[str, ...]]:
  """Returns `__getattr__`, `__dir__` and `__all__` of a package.

  Args:
    package: Full name of the package.
    homes: Public name -> full name of the module that defines it.
    on_tff: Names that need TensorFlow Federated (TFF). If TFF is missing, using
      such a name raises an error that says how to install TFF.
  """
  on_tff = frozenset(on_tff)

  def getattr_(name: str) -> Any:
    if name not in homes:
      raise unknown(package, name)
    if name in on_tff:
      # pylint: disable-next=g-import-not-at-top
      from tff_dp import _compat

      _compat.require_tff()
    value = getattr(importlib.import_module(homes[name]), name)
    setattr(sys.modules[package], name, value)
    return value

  def dir_() -> list[str]:
    return sorted({*vars(sys.modules[package]), *homes})

  return getattr_, dir_, tuple(homes)


def moved(package: str) -> Callable[[str], Any]:
  """Returns a `__getattr__` whose error says where an earlier name is now.

  Args:
    package: Full name of the package that had the earlier names.
  """

  def getattr_(name: str) -> Any:
    raise unknown(package, name)

  return getattr_


def moved_names() -> dict[str, dict[str, str]]:
  """Returns package -> {another name: the full name here}.

  Other names are those of earlier versions, of other libraries, and names that
  stand in another package.
  Packages and full names lack the leading `tff_dp.`. The names of `tff_dp`
  itself stand under 'tff_dp'.
  """
  path = pathlib.Path(__file__).with_name('moved_names.json')
  return json.loads(path.read_text(encoding='utf-8'))


def unknown(package: str, name: str) -> Exception:
  """Returns the error about a name that a package does not have."""
  text = f'module {package!r} has no attribute {name!r}'
  where = moved_names().get(package.removeprefix('tff_dp.'), {}).get(name)
  if where is None:
    return AttributeError(text)
  # `from package import name` would replace an AttributeError by its own.
  return ImportError(f'{text}; that is tff_dp.{where}')


class Aliases(importlib.abc.MetaPathFinder, importlib.abc.Loader):
  """Imports `tff_dp.SYSTEM.module` as `tff_dp.systems.SYSTEM.module`.

  Without it, Python would load a second copy of the module under the first
  name, and its classes would not be the ones that the library uses.
  """

  def __init__(self, folders: Iterable[str]):
    self._prefixes = tuple(f'tff_dp.{folder}.' for folder in folders)
    self._specs = {}

  def find_spec(self, fullname, path=None, target=None):
    """Returns the spec of an alias, `None` for other modules."""
    del path, target
    if not fullname.startswith(self._prefixes):
      return None
    return importlib.machinery.ModuleSpec(fullname, self)

  def create_module(self, spec: importlib.machinery.ModuleSpec):
    """Returns the module of the library."""
    name = spec.name.replace('tff_dp.', 'tff_dp.systems.', 1)
    module = importlib.import_module(name)
    self._specs[spec.name] = module.__spec__
    return module

  def exec_module(self, module: types.ModuleType) -> None:
    """Gives the module its own spec back. `create_module` has executed it."""
    module.__spec__ = self._specs.pop(module.__spec__.name)
