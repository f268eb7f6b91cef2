# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Entry point of `tff-dp` and of `python -m tff_dp`."""

import argparse
from collections.abc import Sequence
import importlib
import sys

from tff_dp.cli import errors

# Each is a module of this package with `add_parser(subparsers)`, which sets
# `run`, a function of the parsed arguments that returns the exit code. Only the
# module that is asked for is loaded: `doctor` must answer where the others
# cannot even be imported.
_COMMANDS = {
    'account': 'epsilon of a run, from its parameters or its events.json',
    'advise': 'which systems fit a setting, and what each would cost',
    'calibrate': 'the noise, or the rounds, that a privacy budget allows',
    'compare': 'the error of every mechanism at equal privacy',
    'doctor': 'check this machine, and say how to fix it',
}
_EXAMPLES = """examples:
  tff-dp account dp-ftrl --mechanism honaker --rounds 1600 \\
      --max-participations 1 --noise-multiplier 1.13 --delta 1e-6
  tff-dp account shuffled-check-in --population 60000 --check-in-rate 0.1 \\
      --local-epsilon 2 --rounds 6800 --delta 1.6666e-5
  tff-dp calibrate dp-ftrl --mechanism honaker --rounds 1600 \\
      --max-participations 1 --epsilon 8 --delta 1e-6
  tff-dp compare --rounds 2048 --min-index-gap 342 --max-participations 6
  tff-dp advise --population 60000 --reports-per-round 100 --rounds 1000 \\
      --parameters 10000 --epsilon 8 --delta 1e-6 --trust server
  tff-dp doctor

`tff-dp COMMAND --help` explains a command. Tasks: `python -m tasks --help`,
in a checkout.
""" + errors.DEBUG_HELP


def main(argv: Sequence[str] | None = None) -> int:
  """Runs one command and returns its exit code."""
  return errors.run(
      _command, sys.argv[1:] if argv is None else argv, stopped='interrupted'
  )


def _command(words: list[str]) -> int:
  arguments = _build_parser(words).parse_args(words)
  return arguments.run(arguments)


def _build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
  """Returns a parser that knows all commands, and the flags of the first."""
  parser = errors.Parser(
      prog='tff-dp',
      description='Differentially private federated learning: its accounting.',
      epilog=_EXAMPLES,
  )
  commands = parser.add_subparsers(
      dest='command', required=True, metavar='COMMAND'
  )
  wanted = next((word for word in words if not word.startswith('-')), None)
  for name, summary in _COMMANDS.items():
    if name == wanted:
      importlib.import_module(f'tff_dp.cli.{name}').add_parser(commands)
    else:
      commands.add_parser(name, help=summary)
  return parser


if __name__ == '__main__':
  sys.exit(main())
