# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""`tff-dp export`: writes or verifies a bundle of a run for production."""

import argparse
import importlib
import json
import os
import pathlib
import sys
from typing import Any

from tff_dp import _checks
from tff_dp import _waiting
from tff_dp.cli import errors
from tff_dp.cli import results

_EXAMPLES = """examples:
  what the run keeps: weights, plan, events, statement, process and its forms
    tff-dp export runs/mine --output bundle
  with the functional model; my_task.py has a function without arguments that
  builds it as for the run
    tff-dp export runs/mine --output bundle --model my_task:build_model
  and a TaskConfig for On-Device Personalization, of a plan that it can express
    tff-dp export runs/mine --output bundle --odp-population my_app
  whoever receives it: what its files say, read and not run
    tff-dp export --verify bundle
  and what its graphs do, with the noise measured: this runs them
    tff-dp export --verify bundle --run

exit code of --verify: 0 if nothing that was checked is wrong, 5 if anything is,
2 if it is no bundle.
"""
_FAILED = 'FAILED'
# Of a bundle. `export.bundle` has it too, but loads TensorFlow.
_MANIFEST = 'manifest.json'


def add_arguments(parser: errors.Parser) -> None:
  """Adds the flags of `export`."""
  parser.description = (
      'Writes a finished run as a directory that proves itself, or checks\n'
      'one (--verify). The process is the one that the run has kept, or that\n'
      '--process builds anew; it is compared with the run, and refused if it\n'
      'has a fixed noise key or other noise. Checkpoints are never read: no\n'
      'noise key and no sum without noise can get into a bundle.'
  )
  parser.epilog = _EXAMPLES
  parser.add_argument(
      'source', nargs='?', metavar='RUN', help='output_dir of a run that has ended'
  )
  parser.add('--output', metavar='DIR', help='the bundle, a new directory')
  parser.add('--process', metavar='MODULE:FUNCTION', help='returns the learning'
             ' process, without insecure_seed (default: what the run has kept)')
  parser.add('--model', metavar='MODULE:FUNCTION', help='returns the functional'
             ' model')
  parser.add('--odp-population', metavar='NAME', help='also write a TaskConfig'
             ' for this population of On-Device Personalization')
  parser.add('--verify', metavar='DIR', help='check the bundle in this'
             ' directory: read its files, run nothing of it, write nothing')
  parser.add('--run', action='store_true', dest='run_graphs', help='with'
             ' --verify: then also run the graphs of a copy, in a process of'
             ' its own without network and home, and measure the noise')
  parser.add('--format', choices=('text', 'json'), default='text')
  parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
  """Exports a run, or verifies a bundle."""
  if arguments.verify is not None:
    for name in ('source', 'output', 'process', 'model', 'odp_population'):
      if getattr(arguments, name) is not None:
        raise _checks.ArgumentError(
            name, getattr(arguments, name), 'no value with --verify'
        )
    return _verify(arguments)
  if arguments.run_graphs:
    raise _checks.ArgumentError('run', True, '--verify DIR beside it')
  if arguments.source is None:
    return _wrong_run('is missing: expected the directory of a run')
  if arguments.output is None:
    raise _checks.ArgumentError('output', None, 'the directory of the bundle')
  if not os.path.isdir(arguments.source):
    return _wrong_run(
        f'{arguments.source} is no directory: expected the directory of a run'
    )
  return _export(arguments)


def _export(arguments: argparse.Namespace) -> int:
  try:
    with _waiting.saying('exporting the run'):
      process = _built('process', arguments.process)
      model = _built('model', arguments.model)
      from tff_dp import export  # pylint: disable=g-import-not-at-top

      manifest = export.export_bundle(
          arguments.source,
          output=arguments.output,
          process=process,
          model=model,
          odp_population=arguments.odp_population,
      )
  except _checks.ArgumentError as error:
    if error.argument != 'run':
      raise
    # The argument has no flag, and --run means something else.
    return _wrong_run(f'{error.value} is not allowed: expected {error.allowed}')
  if arguments.format == 'json':
    print(json.dumps(manifest, indent=2))
    return errors.DONE
  rows = [
      ['files', str(len(manifest['files']) + 1)],
      *([f'no {name}', reason] for name, reason in manifest['absent'].items()),
      ['written to', arguments.output],
      ['check it', f'tff-dp export --verify {arguments.output} --run'],
  ]
  print('\n'.join(results.aligned(rows)))
  return errors.DONE


def _wrong_run(problem: str) -> int:
  errors.show(
      f'RUN {problem}', way_out='tff-dp export RUN --output DIR, or --help'
  )
  return errors.USAGE


def _verify(arguments: argparse.Namespace) -> int:
  root = pathlib.Path(arguments.verify)
  if not os.path.lexists(root / _MANIFEST):
    raise _checks.ArgumentError(
        'verify',
        arguments.verify,
        f'a directory that tff-dp export wrote, with its {_MANIFEST}',
    )
  with _waiting.saying('verifying the bundle'):
    # pylint: disable-next=g-import-not-at-top
    from tff_dp.export import isolation

    if arguments.run_graphs:
      found = isolation.run(root, _waiting.note)
    else:
      found = isolation.check(root)
  if found.is_not_a_bundle:
    raise _checks.ArgumentError('verify', arguments.verify, found.error)
  names = ('check', 'status', 'detail')
  if arguments.format == 'json':
    rows = [dict(zip(names, each)) for each in found.findings]
    print(json.dumps(rows, indent=2))
  elif found.findings:
    rows = [[status, check, detail] for check, status, detail in found.findings]
    print('\n'.join(results.aligned(rows)))
  failed = [f'{check}, {detail}' for check, status, detail in found.findings
            if status == _FAILED]
  if found.error:
    failed.append(found.error)
  if not failed:
    return errors.DONE
  errors.show(
      f'the bundle {arguments.verify} is not what it claims: {failed[0]}',
      why='so its guarantee may not hold',
      way_out='fetch the bundle again, or export the run again',
  )
  return errors.REFUSED


def _built(name: str, where: str | None) -> Any:
  """Returns the result of the function that a flag names.

  Args:
    name: Name of the flag, without dashes.
    where: Value of the flag, `MODULE:FUNCTION`. `None` returns `None`.
  """
  if where is None:
    return None
  module, colon, function = where.partition(':')
  if not (module and colon and function):
    raise _checks.ArgumentError(
        name, where, 'MODULE:FUNCTION, such as my_task:build_process'
    )
  # As with `python -m`. An installed command has its own folder in the path.
  if os.getcwd() not in sys.path:
    sys.path.insert(0, os.getcwd())
  # This import must come before TFF.
  from tff_dp import _compat  # pylint: disable=g-import-not-at-top

  _compat.require_tff()
  try:
    loaded = importlib.import_module(module)
  except ModuleNotFoundError as error:
    if error.name != module.partition('.')[0] and error.name != module:
      raise
    raise _checks.ArgumentError(
        name, where, f'a module that Python finds from here; {error}'
    ) from error
  build = getattr(loaded, function, None)
  if not callable(build):
    raise _checks.ArgumentError(
        name, where, f'a function without arguments; {module} has no function'
        f' {function}'
    )
  return build()
