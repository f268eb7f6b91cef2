# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags of the fields of a task's settings."""

import argparse
from collections.abc import Callable
from typing import Any


def adder(parser: argparse.ArgumentParser, default: Any) -> Callable[..., None]:
  """Returns `add(name, what, *, example=None, **options)`.

  `add` adds the flag of the field `name`. The flag has the default and the type
  of the field, and takes one or more values if the field is a tuple. The help
  is `what`, followed by the default unless that is `None`.

  `example` gives the type if the default is `None`. Then `what` must say what
  happens without the flag. `options` go to `ArgumentParser.add_argument` and
  override everything else.

  Args:
    parser: Parser that gets the flags.
    default: Settings with all defaults.
  """

  def add(name: str, what: str, *, example: Any = None, **options) -> None:
    value = getattr(default, name)
    if value is not None:
      what += f' (default: {shown(value)})'
    example = value if example is None else example
    if isinstance(example, tuple):
      options = {'nargs': '+', 'type': type(example[0])} | options
    elif example is not None:
      options = {'type': type(example)} | options
    flag = '--' + name.replace('_', '-')
    parser.add_argument(flag, default=value, help=what, **options)

  return add


def counted(number: int, noun: str) -> str:
  """Returns '1 seed' or '3 seeds'."""
  return f'{number} {noun}{"s" * (number != 1)}'


def shown(value: Any) -> str:
  """Returns a default as text for a help."""
  if isinstance(value, tuple):
    return ' '.join(map(shown, value))
  return f'{value:.4g}' if isinstance(value, float) else str(value)
