# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What every test needs before it starts."""

import atexit
import gc
import os
import pathlib
import re
import shutil
import signal
import tempfile

from absl import flags
import pytest

# Before any test imports TFF: on a current stack it could not be imported.
from tff_dp import _compat

_MEMORY = '/dev/shm'
_MEMORY_BYTES = 4 * 2**30


def _keep_temporary_files_in_memory() -> None:
  """Spares runs their wait for the disk: each of them syncs a file 60 times.

  Not if the user chose a place, or if there is no room, or no program may run.
  Other processes of the tests inherit the choice, and the first one cleans up.
  """
  if 'TMPDIR' in os.environ or not os.access(_MEMORY, os.W_OK):
    return
  place = os.statvfs(_MEMORY)
  has_room = place.f_bavail * place.f_frsize >= _MEMORY_BYTES
  if has_room and not place.f_flag & os.ST_NOEXEC:
    folder = tempfile.mkdtemp(prefix='tff_dp_tests_', dir=_MEMORY)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ['TMPDIR'] = tempfile.tempdir = folder


_keep_temporary_files_in_memory()

# Before NumPy is loaded. On busy cores, threads of BLAS wait for each other much
# longer than they compute.
os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')

# pytest, not absl, parses the command line; without this, absltest's
# `create_tempdir` refuses to work.
flags.FLAGS.mark_as_parsed()

# What a shell starts with `&` ignores it, and so would all its children: tests
# of interrupts would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
  signal.signal(signal.SIGINT, signal.default_int_handler)

_NEEDS_WORKER = "needs TFF's worker: column A (Python 3.11) only"
# Files that are about the worker, or compare with it, from beginning to end.
_REFERENCE_ONLY = {
    'execution/contexts_test.py': _NEEDS_WORKER,
    'execution/native_test.py': _NEEDS_WORKER,
}
# What is about the versions of a stack: `--short` runs all of it.
_STACK = (
    'compat_test.py',
    'draws_test.py',
    'execution/datasets_test.py',
    'execution/in_process_test.py',
    'execution/memory_test.py',
    'execution/placement_test.py',
    'execution/vectorized_test.py',
    'export/',
    'learning/keras3',
    'oracle/',
    'shim_test.py',
    'streams_test.py',
)
# What `--fast` runs: folders and files that do not load TFF, and then a few that
# do, one of every kind. `pytest --durations=20` finds what has become slow.
_FAST = (
    'accounting/',
    'axes_test.py',
    'build_test.py',
    'cli/',
    'defaults_test.py',
    'docs_links_test.py',
    'files/',
    'layers_test.py',
    'lint_test.py',
    'ledger/',
    'mechanisms/',
    'participation/',
    'plans/',
    'shim_test.py',
    'statement/',
    'systems/allocation/cyclic_flags_test.py',
    'systems/allocation/lognormal_sums_test.py',
    'systems/check_ins/flags_test.py',
    'systems/check_ins/protocols_test.py',
    'systems/check_ins/random_check_ins_test.py',
    'systems/check_ins/shuffling_test.py',
    'systems/dp_ftrl/compare_test.py',
    'systems/dp_ftrl/flags_test.py',
    'systems/dp_ftrl/non_private_test.py',
    'systems/dp_ftrl/plan_test.py',
    'systems/draw_and_discard/accounting_test.py',
    'systems/draw_and_discard/client_steps_test.py',
    'systems/draw_and_discard/flags_test.py',
    'systems/draw_and_discard/plan_test.py',
    'systems/draw_and_discard/spam_filters_test.py',
    'systems/draw_and_discard/strategies_test.py',
    'systems/registry_test.py',
    'systems/sampling/plan_test.py',
    'systems/sampling/sampler_test.py',
    'systems/silos/flags_test.py',
    'systems/silos/integer_plans_test.py',
    'systems/silos/integer_sums_test.py',
    'systems/silos/minibatch_schedules_test.py',
    'systems/silos/record_events_test.py',
    'systems/silos/secure_sum_plan_test.py',
    'systems/silos/silo_budget_test.py',
    'systems/silos/silo_events_test.py',
    'systems/silos/silo_sampling_test.py',
    'learning/plug_in_test.py',
    'program/training_test.py',
    'streams_test.py',
)
# Of these folders: laws, brute force and searches of more than five seconds, most
# of whose results `cli/goldens_test.py` compares as well.
_NOT_FAST = (
    'accounting/accountants_test.py',
    'accounting/curves/replace_one_test.py',
    'accounting/protocols/',
    'accounting/sensitivity/toeplitz_sensitivity_test.py',
    'systems/silos/silo_calibration_test.py',
    'cli/advise_test.py',
    'cli/doctor_test.py',
    'cli/runs_test.py',
    'mechanisms/matrix/blt_search_test.py',
    'mechanisms/matrix/toeplitz_optimization_test.py',
    'participation/samplers_test.py',
    'plans/protocol_plan_test.py',
)


def pytest_addoption(parser):
  parser.addoption(
      '--fast',
      action='store_true',
      help='run what a developer runs before a commit, in minutes',
  )
  parser.addoption(
      '--short',
      action='store_true',
      help='run what a second stack needs: one test of each file, and all'
      ' about its versions; nothing that once is enough for',
  )
  parser.addoption(
      '--slow',
      action='store_true',
      help='run everything: also what is marked as slow, because a faster test'
      ' beside it checks the same at another size, or for another system',
  )


def pytest_configure(config):
  config.addinivalue_line(
      'markers',
      'slow(cases, but): only `--slow` runs it, because a faster test checks the'
      ' same at another size, or for another system. Of a test with parameters:'
      ' these cases of it, or all but those',
  )
  config.addinivalue_line(
      'markers',
      'once(cases, but): one stack is enough for this law of noise, arithmetic'
      ' or order of files, the same on every stack: `--short` leaves it out, or'
      ' these cases of it, or all but those',
  )


def pytest_ignore_collect(collection_path, config):
  """Leaves out what `--fast` does, before TFF is loaded for it."""
  if not config.getoption('--fast') or collection_path.is_dir():
    return None
  name = collection_path.relative_to(pathlib.Path(__file__).parent).as_posix()
  if name.startswith(_FAST) and not name.startswith(_NOT_FAST):
    return None
  return True


def _is_marked(item, name: str) -> bool:
  """Returns whether a test, or this case of it, is marked as slow or once."""
  marker = item.get_closest_marker(name)
  if marker is None:
    return False

  def is_one_of(cases):
    # absl names the cases of `test_x` by number, `test_x0`, or `test_x_name`.
    return any(
        re.search(rf'(_|\D(?=\d)){re.escape(case)}$', item.name)
        for case in cases
    )

  if 'cases' in marker.kwargs:
    return is_one_of(marker.kwargs['cases'])
  return not is_one_of(marker.kwargs.get('but', ()))


def pytest_collection_modifyitems(config, items):
  """Leaves out what flags leave out, and what is tied to another column."""
  folder = pathlib.Path(__file__).parent
  names = {i: i.path.relative_to(folder).as_posix() for i in items}
  if not config.getoption('--slow'):
    slow = [item for item in items if _is_marked(item, 'slow')]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if not _is_marked(item, 'slow')]
  if config.getoption('--short'):
    needed = [
        item
        for item in items
        if not _is_marked(item, 'once')
        and not item.get_closest_marker('reference_only')
    ]
    last_of_file = {names[item]: item for item in needed}
    kept = {
        item
        for item in needed
        if names[item].startswith(_STACK) or last_of_file[names[item]] is item
    }
    left_out = [item for item in items if item not in kept]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item in kept]
  if _compat.COLUMN.has_worker:
    return
  for item in items:
    marker = item.get_closest_marker('reference_only')
    if marker is not None:
      item.add_marker(pytest.mark.skip(reason=marker.kwargs['reason']))
    elif names[item] in _REFERENCE_ONLY:
      item.add_marker(pytest.mark.skip(reason=_REFERENCE_ONLY[names[item]]))


def pytest_collection_finish():
  """Spares the collector what was imported: half a million objects that stay."""
  gc.collect()
  gc.freeze()
  gc.set_threshold(20_000, 20, 20)
