# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""`export_bundle` writes a bundle from the directory of a run.

A run keeps its model, plan, events, statement and process. It does not keep a
process that may contain a noise key or that is Python code. The caller may pass
a process, built anew as for the run. It must then fit the plan and the type
that the run has recorded.

Only `release/` of the run is read, and nothing here opens a checkpoint. So a
bundle cannot hold the state of the aggregator, with its noise key and its
memory of noise.
"""

import contextlib
import json
import os
import pathlib
import shutil
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
from tff_dp.plans import events as events_lib
from tff_dp.program import certification
from tff_dp.program.files import process_files

_COPIED = (
    bundle.STATEMENT, bundle.STATEMENT_PAGE, bundle.EVENTS, bundle.WEIGHTS
)
_NO_PROCESS = 'the run has kept none, and none was given'
_NO_MODEL = 'no functional model was given'


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
    PrivacyRefusedError: If the process has a fixed key, or adds other noise
      than the plan of the run says. Also if the process that the run has kept
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
  described = events_lib.read(release / bundle.EVENTS)
  weights = models.read_weights(release / bundle.WEIGHTS)
  if model is not None:
    models.check(model, weights)
  config = None
  if odp_population is not None:
    config = task_config.render(described, population=odp_population)
  # A later refusal then leaves no half-written bundle behind.
  temporary = output.with_name(output.name + '.tff_dp_tmp')
  if temporary.exists():
    shutil.rmtree(temporary)
  temporary.mkdir(parents=True)
  try:
    manifest = _write(
        temporary, release, described, weights, process, model, config
    )
    if output.exists():
      output.rmdir()
    os.replace(temporary, output)
  except BaseException:
    shutil.rmtree(temporary, ignore_errors=True)
    raise
  return manifest


def _write(root, release, described, weights, process, model, config):
  """Writes all files into an empty directory, and returns the manifest."""
  plan, absent = described.plan, {}
  for name in _COPIED:
    shutil.copyfile(release / name, root / name)
  run_directory.write_json(root / bundle.PLAN, plan.describe())
  if process is None:
    process = _kept_process(release / process_files.FOLDER)
  else:
    _check_process(process, plan, release)
  if process is None:
    absent |= dict.fromkeys(bundle.OF_PROCESS, _NO_PROCESS)
  else:
    with contexts.ensure_installed():
      absent |= _write_process(root, process, plan)
  models.write_saved_model(root / bundle.SAVED_MODEL, weights, model)
  _check_model(root / bundle.SAVED_MODEL)
  if model is None:
    absent[bundle.FUNCTIONAL_MODEL] = _NO_MODEL
  else:
    models.write_functional_model(
        root / bundle.FUNCTIONAL_MODEL, weights, model
    )
    _check_model(root / bundle.FUNCTIONAL_MODEL)
  if config is None:
    absent[bundle.TASK_CONFIG] = (
        task_config.why_not(plan) or 'no population was named'
    )
  else:
    (root / bundle.TASK_CONFIG).write_text(config, encoding='utf-8')
  card = model_card.render(
      json.loads((root / bundle.STATEMENT).read_text(encoding='utf-8')),
      weights=weights,
      rounds=described.num_rounds,
      absent=absent,
      odp=None if config is None else task_config.accounting(described),
  )
  (root / bundle.CARD).write_text(card, encoding='utf-8')
  facts = {
      'plan_fingerprint': plan.fingerprint,
      'rounds': described.num_rounds,
      'absent': absent,
  }
  bundle.write_manifest(root, facts)
  return bundle.read_manifest(root)


def _check_run(run, release: pathlib.Path) -> None:
  """Raises unless the directory has the files of a finished run."""
  missing = [name for name in _COPIED if not (release / name).is_file()]
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
    return dict.fromkeys(bundle.OF_PROCESS, why_not)
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
