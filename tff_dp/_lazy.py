# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Public names of a package that are imported when they are first used."""

from collections.abc import Callable, Iterable, Mapping
import importlib
import sys
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
    on_tff: Names that need TensorFlow Federated. If it is missing, their use
      ends in one sentence that says how to install it.
  """
  on_tff = frozenset(on_tff)

  def getattr_(name: str) -> Any:
    if name not in homes:
      raise AttributeError(f'module {package!r} has no attribute {name!r}')
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


def moved(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
  """Returns a `__getattr__` that says where names of earlier versions are now.

  Args:
    package: Full name of the package that had them.
    homes: Name -> its full new name.
  """

  def getattr_(name: str) -> Any:
    where = f'; it is now {homes[name]}' if name in homes else ''
    raise AttributeError(f'module {package!r} has no attribute {name!r}{where}')

  return getattr_
