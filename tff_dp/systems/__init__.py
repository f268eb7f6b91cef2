# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The registry of systems. Each system has one folder here.

To understand a system, open its folder. To add one, see CONTRIBUTING.md.
The command line, the training program, certification, advice, statements and
exports ask this registry, and name no system.
"""

import functools
import importlib
from importlib import metadata

from tff_dp import _checks
from tff_dp.systems import system as system_lib

# For systems from outside. The rest is for the shared rooms.
__all__ = ('register', 'unregister')
# In the order of lists for people.
FOLDERS = (
    'dp_ftrl',
    'sampling',
    'allocation',
    'check_ins',
    'draw_and_discard',
    'silos',
)
# Entry points of this group, in any installed package, name a `System` each.
_GROUP = 'tff_dp.systems'
_registered: dict[str, system_lib.System] = {}


@functools.cache
def own() -> dict[str, system_lib.System]:
  """Returns the systems of the library, by kind."""
  found = {}
  for folder in FOLDERS:
    for each in importlib.import_module(f'{__name__}.{folder}').SYSTEMS:
      found[each.kind] = each
  return found


@functools.cache
def _installed() -> dict[str, system_lib.System]:
  """Returns the systems of other installed packages, by kind."""
  found = {}
  for point in metadata.entry_points(group=_GROUP):
    system = point.load()
    _check_free(system, (*own().values(), *found.values()))
    found[system.kind] = system
  return found


def _check_free(system: system_lib.System, others) -> None:
  """Raises `ArgumentError` if another system uses a name of this system."""
  for other in others:
    if (
        other.kind == system.kind
        or set(other.commands) & set(system.commands)
        or set(other.offers) & set(system.offers)
        or set(other.tools) & set(system.tools)
    ):
      raise _checks.ArgumentError(
          'system',
          system.kind,
          f'kind, commands, offers and tools with names that {other.kind} does'
          ' not use',
      )


def register(system: system_lib.System) -> None:
  """Adds a system from outside the library, for this Python process.

  A package that is installed needs no call: an entry point of the group
  `tff_dp.systems` adds its system in every Python process.

  Raises:
    ArgumentError: If another system has the same kind, or a command, offer or
      tool of the same name.
  """
  _check_free(system, all_systems())
  _registered[system.kind] = system


def unregister(kind: str) -> None:
  """Removes a system that `register` added.

  Raises:
    KeyError: If `register` has added no system of this kind.
  """
  del _registered[kind]


def all_systems() -> tuple[system_lib.System, ...]:
  """Returns all systems."""
  return (
      *own().values(), *_installed().values(), *_registered.values()
  )


def of(kind: str) -> system_lib.System:
  """Returns the system with this kind.

  Raises:
    ArgumentError: If there is no such system.
  """
  found = {each.kind: each for each in all_systems()}
  _checks.one_of(tuple(found), kind=kind)
  return found[kind]


def commands() -> dict[str, system_lib.Command]:
  """Returns the commands of all systems, by kind of run on the command line."""
  return {
      name: command
      for each in all_systems()
      for name, command in each.commands.items()
  }


def tools() -> dict[str, system_lib.Tool]:
  """Returns the commands that only one system has, by name."""
  return {
      name: tool
      for each in all_systems()
      for name, tool in each.tools.items()
  }


def offers() -> dict[str, system_lib.Offered]:
  """Returns the systems and variants that `advise` compares, by name."""
  return {
      name: offered
      for each in all_systems()
      for name, offered in each.offers.items()
  }
