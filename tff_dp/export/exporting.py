# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""`export_bundle` writes a bundle from the directory of a run.

A run keeps its model, plan, events, statement and process. It does not keep a
process that may contain a noise key or that is Python code. The caller may pass
a process, built anew as for the run. It must then fit the plan and the type
that the run has recorded.

Everything in a bundle comes from `release/` of the run, where no link is
followed, and nothing here opens a checkpoint. So a bundle cannot hold the state
of the aggregator, with its noise key and its memory of noise.

A run may release its next round meanwhile. So the weights are copied first and
the statement afterwards, which must count all rounds that the write-ahead
record says were released before. Without that record, as for a copy of
`release/` alone, the statement is as new as the run has written it.
"""

import contextlib
import json
import os
import pathlib
import shutil
import warnings
from typing import Any

import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.execution import contexts
from tff_dp.export import bundle
from tff_dp.export import computations
from tff_dp.export import model_card
from tff_dp.export import models
from tff_dp.export import operations
from tff_dp.export import saved_models
from tff_dp.export import task_config
from tff_dp.export import verification
from tff_dp.files import run_directory
from tff_dp.files import write_ahead
from tff_dp.plans import events as events_lib
from tff_dp.program import certification
from tff_dp.program.files import process_files

_SAYING = (bundle.STATEMENT, bundle.STATEMENT_PAGE, bundle.EVENTS)
_WAY_OUT = (
    'if the run goes on, export again later; otherwise open it again with the'
    ' same arguments and this version: it then writes its statement'
)


def export_bundle(
    run: str | os.PathLike,
    *,
    output: str | os.PathLike,
    process: tff.learning.templates.LearningProcess | None = None,
    model: tff.learning.models.FunctionalModel | None = None,
    odp_population: str | None = None,
) -> dict[str, Any]:
  """Writes the bundle of a finished run, and returns its manifest.

  Args:
    run: The `output_dir` of `program.train`.
    output: Directory for the bundle. It must be absent or empty.
    process: Process, built as for the run. It holds neither the state nor the
      noise key of the run. If it may do more than compute, such as write a file
      (see `operations`), the bundle has no process, and the manifest says why.
      Default: the process that the run has kept.
    model: Model of the run. The last weights of the run become the model's
      initial weights. The bundle needs it for the functional model, and for
      predictions with the SavedModel.
    odp_population: Name of the population for On-Device Personalization. `None`
      for no task configuration.

  Raises:
    ArgumentError: If `run`, `output` or `odp_population` is not as described,
      if process or model do not belong to the run, or if the model may do more
      than compute.
    PrivacyRefusedError: If the statement is not that of the plan, or counts
      fewer rounds than were released. Also if the process has a fixed key, or
      adds other noise than the plan says, if the process that the run has kept
      may do more than compute, or if On-Device Personalization cannot express
      the plan.
  """
  release = pathlib.Path(run) / 'release'
  _check_run(run, release)
  output = pathlib.Path(output)
  if output.exists() and (not output.is_dir() or any(output.iterdir())):
    raise _checks.ArgumentError(
        'output', os.fspath(output), 'a new or empty directory'
    )
  # A later refusal then leaves no half-written bundle behind.
  temporary = output.with_name(output.name + '.tff_dp_tmp')
  if temporary.exists():
    shutil.rmtree(temporary)
  temporary.mkdir(parents=True)
  try:
    released = _copy(release, temporary)
    manifest = _write(
        temporary, release, released, process, model, odp_population
    )
    if output.exists():
      output.rmdir()
    os.replace(temporary, output)
  except BaseException:
    shutil.rmtree(temporary, ignore_errors=True)
    raise
  return manifest


def _copy(release: pathlib.Path, root: pathlib.Path) -> int:
  """Copies the weights, and then the statement and the events.

  Returns:
    The last round that was released when the weights had been copied, as far as
    is known.
  """
  bundle.copy_file(release / bundle.WEIGHTS, root / bundle.WEIGHTS)
  released = 0
  # Whoever has only `release/`, or may not read `secret/`, has no record.
  with contextlib.suppress(
      FileNotFoundError, NotADirectoryError, PermissionError
  ):
    released = write_ahead.released_through(
        release.parent / 'secret' / 'write_ahead.jsonl'
    )
  for name in _SAYING:
    bundle.copy_file(release / name, root / name)
  return released


def _check_statement(root: pathlib.Path, facts, released: int) -> None:
  """Raises unless a verifier accepts the statement, and it is new enough.

  Args:
    root: Directory of the bundle.
    facts: See `bundle.write_manifest`.
    released: Rounds that the statement must count.
  """
  found = verification.found(
      'guarantee', lambda: verification.check_guarantee(root, facts)
  )
  if found.status == verification.FAILED:
    raise _checks.PrivacyRefusedError(
        f'the statement of the run is refused: {found.detail}',
        why='--verify would refuse it; somebody may have changed it, another'
        ' version of tff_dp may have written it, or the run is writing it now',
        way_out=_WAY_OUT,
    )
  points = bundle.read_json(root / bundle.STATEMENT)['points']
  counted = points['mechanism']['rounds_done']
  if counted < released:
    raise _checks.PrivacyRefusedError(
        f'the statement of the run counts {counted} rounds, but {released} were'
        ' released',
        why='the model may be of a later round than its statement, which would'
        ' promise too much',
        way_out=_WAY_OUT,
    )


def _write(root, release, released, process, model, odp_population):
  """Writes all other files of a bundle, and returns the manifest."""
  described = events_lib.read(root / bundle.EVENTS)
  plan, absent = described.plan, {}
  facts = {
      'plan_fingerprint': plan.fingerprint,
      'rounds': described.num_rounds,
      'absent': absent,
  }
  run_directory.write_json(root / bundle.PLAN, plan.describe())
  _check_statement(root, facts, released)
  weights = models.read_weights(root / bundle.WEIGHTS)
  if model is not None:
    models.check(model, weights)
  config = None
  if odp_population is not None:
    config = task_config.render(described, population=odp_population)
  if process is None:
    process = _kept_process(release / process_files.FOLDER)
  else:
    _check_process(process, plan, release)
  if process is None:
    absent |= dict.fromkeys(bundle.OF_PROCESS, bundle.NO_PROCESS)
  else:
    with contexts.ensure_installed():
      absent |= _write_process(root, process, plan)
  models.write_saved_model(root / bundle.SAVED_MODEL, weights, model)
  _check_model(root / bundle.SAVED_MODEL)
  if model is None:
    absent[bundle.FUNCTIONAL_MODEL] = bundle.NO_MODEL
  else:
    models.write_functional_model(
        root / bundle.FUNCTIONAL_MODEL, weights, model
    )
    _check_model(root / bundle.FUNCTIONAL_MODEL)
  if config is None:
    absent[bundle.TASK_CONFIG] = (
        task_config.why_not(plan) or bundle.NO_POPULATION
    )
  else:
    (root / bundle.TASK_CONFIG).write_text(config, encoding='utf-8')
  card = model_card.render(
      bundle.read_json(root / bundle.STATEMENT),
      weights=weights,
      rounds=described.num_rounds,
      absent=absent,
      odp=None if config is None else task_config.accounting(described),
  )
  (root / bundle.CARD).write_text(card, encoding='utf-8')
  bundle.write_manifest(root, facts)
  return bundle.read_manifest(root)


def _check_run(run, release: pathlib.Path) -> None:
  """Raises unless the directory has the files of a run, none of them a link."""
  copied = [*_SAYING, bundle.WEIGHTS]
  process = [f'{process_files.FOLDER}/{name}' for name in bundle.OF_PROCESS[:2]]
  for name in ('', *copied, 'config.json', process_files.FOLDER, *process):
    if (release / name).is_symlink():
      raise _checks.ArgumentError(
          'run',
          os.fspath(run),
          f'a directory without links, but {release / name} is one',
          why='a link may lead to a file that must not leave the machine, such'
          ' as a noise key',
          way_out='replace the link by the file that the run wrote',
      )
  missing = [name for name in copied if not (release / name).is_file()]
  if missing:
    raise _checks.ArgumentError(
        'run',
        os.fspath(run),
        'the output_dir of a run that has ended, with its release directory;'
        f' there is no release/{missing[0]}',
    )


def _check_process(process, plan, release: pathlib.Path) -> None:
  """Raises unless the process follows the plan and has the run's type."""
  certification.certify(process, plan)
  config = release / 'config.json'
  with contextlib.suppress(OSError):
    identity = json.loads(config.read_text(encoding='utf-8'))
    ran = identity.get('program', {}).get('process_type')
    here = certification.type_fingerprint(process)
    if ran not in (None, here):
      raise _checks.ArgumentError(
          'process',
          here,
          f'the process of the run, whose type has the fingerprint {ran}: the'
          ' same model, plan and options',
      )


def _kept_process(
    folder: pathlib.Path,
) -> process_files.KeptProcess | None:
  """Returns the process that a run has kept, `None` if it has none.

  Others may have changed its files since. So the process is read, and never
  run.

  Raises:
    PrivacyRefusedError: If the process would do more than compute.
  """
  kept = process_files.read_kept(folder)
  if kept is not None:
    why_not = _why_not_in_a_bundle(kept)
    if why_not:
      raise _checks.PrivacyRefusedError(
          f'the process that the run has kept is refused: {why_not}',
          why='somebody may have changed it since; it was not run',
          way_out='build it anew, with --process MODULE:FUNCTION or process=',
      )
  return kept


def _why_not_in_a_bundle(process) -> str:
  """Returns the operation that a verifier would refuse, '' if there is none."""
  for name in ('initialize', 'next'):
    proto = tff.framework.serialize_computation(getattr(process, name))
    try:
      operations.check_computation(proto)
    except operations.NotAllowedError as error:
      return f'{name}: {error}'
  return ''


def _check_model(folder: pathlib.Path) -> None:
  """Raises if a verifier would refuse the graph of a model."""
  try:
    saved_models.check(folder)
  except operations.NotAllowedError as error:
    raise _checks.ArgumentError(
        'model',
        folder.name,
        f'a model whose operations --verify allows ({error}); without a model,'
        ' the bundle still has the weights',
    ) from error


def _write_process(root, process, plan) -> dict[str, str]:
  """Writes the process and its forms. Returns absent part -> reason."""
  why_not = _why_not_in_a_bundle(process)
  if why_not:
    warnings.warn(f'the bundle has no process: {why_not}', stacklevel=2)
    return dict.fromkeys(bundle.OF_PROCESS, bundle.NOT_ALLOWED)
  verification.check_process(process.initialize, process.next, plan)
  process_files.write(root / bundle.INITIALIZE, process.initialize)
  process_files.write(root / bundle.NEXT, process.next)
  absent = {}
  for kind in computations.FORMS:
    try:
      form = computations.compile_form(kind, process.next)
    except computations.NoFormError as error:
      absent[kind] = str(error)
    else:
      computations.write_form(root / kind, kind, form)
  return absent
