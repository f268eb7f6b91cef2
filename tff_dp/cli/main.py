# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Entry point of `tff-dp` and of `python -m tff_dp`."""

import argparse
from collections.abc import Sequence
import functools
import importlib
import sys

from tff_dp.cli import errors

# Module of this package and a function there, which adds flags to a parser and
# sets `run`, a function of the parsed arguments that returns the exit code. Only
# the module that is asked for is loaded: `doctor` must answer where the others
# cannot even be imported.
_COMMANDS = {
    'account': (
        'runs.add_account',
        'epsilon of a run, from its parameters or its events.json',
    ),
    'advise': (
        'advise.add_arguments',
        'which systems fit a setting, and what each would cost',
    ),
    'calibrate': (
        'runs.add_calibrate',
        'the noise, or the rounds, that a privacy budget allows',
    ),
    'compare': (
        'compare.add_arguments',
        'the error of every mechanism at equal privacy',
    ),
    'doctor': (
        'doctor.add_arguments',
        'check this machine, and say how to fix it',
    ),
    'export': (
        'export.add_arguments',
        'a finished run as a bundle for a production stack, or its check',
    ),
    'statement': (
        'runs.add_statement',
        'the privacy statement of a plan, in twelve points',
    ),
}
_EXAMPLES = """examples:
  tff-dp account dp-ftrl --mechanism honaker --rounds 1600 \\
      --max-participations 1 --noise-multiplier 1.13 --delta 1e-6
  tff-dp account shuffled-check-in --population 60000 --check-in-rate 0.1 \\
      --local-epsilon 2 --rounds 6800 --delta 1.6666e-5
  tff-dp calibrate dp-ftrl --mechanism honaker --rounds 1600 \\
      --max-participations 1 --epsilon 8 --delta 1e-6
  tff-dp statement isrl --records 1238 --rounds 35 --batch-size 100 \\
      --noise-multiplier 4.2
  tff-dp compare --rounds 2048 --min-index-gap 342 --max-participations 6
  tff-dp advise --population 60000 --reports-per-round 100 --rounds 1000 \\
      --parameters 10000 --epsilon 8 --delta 1e-6 --trust server
  tff-dp export runs/mine --output bundle
  tff-dp export --verify bundle
  tff-dp doctor

`tff-dp COMMAND --help` explains a command. Tasks: `python -m tasks --help`,
in a checkout.
""" + errors.DEBUG_HELP


def main(argv: Sequence[str] | None = None) -> int:
  """Runs one command and returns its exit code."""
  return errors.run(
      _command, sys.argv[1:] if argv is None else argv, stopped='interrupted'
  )


def parse(words: Sequence[str]) -> argparse.Namespace:
  """Returns the flags of a command, with what is to `run` it."""
  parser = errors.Parser(
      prog='tff-dp',
      description='Differentially private federated learning: its accounting.',
      epilog=_EXAMPLES,
  )
  commands = parser.add_subparsers(
      dest='command', required=True, metavar='COMMAND'
  )
  for name, (where, summary) in _COMMANDS.items():
    fill = functools.partial(_fill, where)
    commands.add_parser(name, help=summary, fill=fill)
  return parser.parse_args(words)


def _command(words: list[str]) -> int:
  arguments = parse(words)
  return arguments.run(arguments)


def _fill(where: str, parser: argparse.ArgumentParser) -> None:
  module, function = where.split('.')
  getattr(importlib.import_module(f'tff_dp.cli.{module}'), function)(parser)


if __name__ == '__main__':
  sys.exit(main())
