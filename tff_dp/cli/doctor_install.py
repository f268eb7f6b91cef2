# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""`tff-dp doctor --install`: the lines that install tff_dp into a Python.

It imports nothing that has to be installed, so it also works in a fresh
checkout: `python -m tff_dp doctor --install`.
"""

import pathlib
import shlex
import sys

from tff_dp import _columns
from tff_dp import _compat
from tff_dp.cli import errors

# The Python that runs the command.
THIS = 'this'
_COLAB = 'colab'
_TARGETS = {
    '.'.join(map(str, python)): column
    for column in (_columns.REFERENCE, _columns.CURRENT)
    for python in column.pythons
} | {_COLAB: _columns.COLAB}
CHOICES = (THIS, *_TARGETS)
# Where a checkout has its locks, and an installed package has none.
_FOLDER = pathlib.Path(__file__).parents[2]


def show(target: str) -> int:
  """Prints the lines for one of `CHOICES`, and returns the exit status."""
  if target == THIS:
    why_not = [
        finding.advice
        for finding in _compat.check_environment()
        if finding.name in ('python', 'platform') and finding.advice
    ]
    if why_not:
      errors.show(
          'tff_dp cannot be installed into this Python',
          why='; '.join(why_not),
          way_out=f'--install {" or ".join(_TARGETS)} prints the lines for'
          ' another one',
      )
      return errors.ENVIRONMENT
  print('\n'.join(_lines(target)))
  return errors.DONE


def _lines(target: str) -> list[str]:
  """Returns comments and commands for one of `CHOICES`."""
  running = _running()
  is_elsewhere = target not in (THIS, running)
  target = running if target == THIS else target
  column, is_colab = _TARGETS[target], target == _COLAB
  lock = _FOLDER / column.own_lock
  if lock.is_file():
    number = lock.read_text().count('==')
    kept = "nothing of Colab's changes" if is_colab else 'others are replaced'
    lines = [
        f'# {number} packages in the versions of {lock} ({kept}), then tff_dp:'
    ]
  else:
    lines = [
        f'# {column.own_lock} is in the top folder of a checkout of tff_dp.'
        ' pip does not install it.'
    ]
  if is_colab:
    lines.append('# On Colab, in a cell, in the folder of the checkout:')
  elif not lock.is_file():
    lines.append('# In that folder:')
  magic = '%' if is_colab else ''
  if (
      lock.is_file()
      and pathlib.Path.cwd() != _FOLDER
      and not (is_colab and is_elsewhere)
  ):
    lines.append(f'{magic}cd {shlex.quote(str(_FOLDER))}')
  pip = f'python{target} -m pip'
  if is_colab:
    pip = '%pip'
  elif not is_elsewhere and sys.executable:
    pip = f'{shlex.quote(sys.executable)} -m pip'
  return [*lines, *(f'{pip} {words}' for words in column.pip_words)]


def _running() -> str:
  """Returns the target for the Python that runs this, such as '3.11'.

  On Colab it is 'colab'. Elsewhere it is the version of Python, even if that is
  not one of `CHOICES`.
  """
  is_colab = _compat.installed_version('google-colab') is not None
  python = sys.version_info[:2]
  if is_colab and python in _columns.COLAB.pythons:
    return _COLAB
  return '.'.join(map(str, python))
