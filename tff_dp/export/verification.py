# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""`verify_bundle`: what a bundle says, found out anew.

To be called in a fresh process, perhaps with other versions of TensorFlow, so
that nothing but the files speaks for the bundle. Digests come first: where they
are wrong, nothing else is looked at.
"""

from collections.abc import Callable
import dataclasses
import json
import os
import pathlib
from typing import Any

import numpy as np

from tff_dp import _checks
from tff_dp.execution import contexts
from tff_dp.export import bundle
from tff_dp.export import computations
from tff_dp.export import model_card
from tff_dp.export import models
from tff_dp.export import task_config
from tff_dp.plans import events as events_lib
from tff_dp.program import certification
from tff_dp.program.files import process_files
from tff_dp.statement import statement as statement_lib

# Of epsilon, whose search ends elsewhere with other versions of NumPy.
_TOLERANCE = 1e-6
OK, FAILED, ABSENT = 'ok', 'FAILED', 'absent'


@dataclasses.dataclass(frozen=True)
class Finding:
  """What one check found.

  Attributes:
    check: What was looked at.
    status: 'ok', 'FAILED' or 'absent'.
    detail: What was found, or why it is absent.
  """

  check: str
  status: str
  detail: str


class _Wrong(Exception):
  """A bundle that is not what it says; the message says where."""


def verify_bundle(directory: str | os.PathLike) -> list[Finding]:
  """Returns what was found, a finding for each check.

  The bundle is good if none of them has the status 'FAILED'. Digests tell of
  every changed byte, but whoever changes a file can change the manifest too:
  compare the digest of the manifest, which the first finding has, with that
  which the exporter told you.

  Args:
    directory: Of `export_bundle`.

  Raises:
    ArgumentError: If it is no bundle that this version knows.
  """
  root = pathlib.Path(directory)
  manifest = bundle.read_manifest(root)
  findings = [_found('files', lambda: _check_files(root, manifest))]
  if findings[0].status == FAILED:
    return findings
  findings.append(_found('guarantee', lambda: _check_guarantee(root, manifest)))
  if findings[-1].status == FAILED:
    return findings
  described = events_lib.read(root / bundle.EVENTS)
  absent = manifest['absent']

  def add(check: str, name: str, look: Callable[[], str]):
    if name in absent:
      findings.append(Finding(check, ABSENT, absent[name]))
    else:
      findings.append(_found(check, look))

  findings.append(_found('weights', lambda: _check_weights(root)))
  add('model card', bundle.CARD, lambda: _check_card(root, described, absent))
  with contexts.ensure_installed():
    if bundle.NEXT in absent:
      findings.append(Finding('process', ABSENT, absent[bundle.NEXT]))
    else:
      findings += _check_process(root, described.plan, absent)
  add('SavedModel', bundle.SAVED_MODEL, lambda: _check_saved_model(root))
  add(
      'functional model',
      bundle.FUNCTIONAL_MODEL,
      lambda: _check_functional_model(root),
  )
  add(
      'task configuration',
      bundle.TASK_CONFIG,
      lambda: _check_task_config(root, described),
  )
  return findings


def _found(check: str, look: Callable[[], str]) -> Finding:
  """Returns the finding of a check that raises where something is wrong."""
  try:
    return Finding(check, OK, look())
  except _Wrong as error:
    return Finding(check, FAILED, str(error))
  except _checks.PrivacyRefusedError as error:
    return Finding(check, FAILED, f'{error.what}: {error.why}')
  except Exception as error:  # pylint: disable=broad-exception-caught
    # Whatever a broken file makes a reader do.
    said = ' '.join(str(error).split())[:300]
    return Finding(check, FAILED, f'{type(error).__name__}: {said}')


def _check_files(root: pathlib.Path, manifest) -> str:
  changed = bundle.changes(root, manifest)
  if changed:
    raise _Wrong('; '.join(changed))
  unknown = [
      name for name in manifest['files'] if not bundle.is_of_bundle(name)
  ]
  if unknown:
    raise _Wrong(f'no bundle has {unknown[0]}: it may hold anything')
  lacking = [
      name
      for name in bundle.PARTS
      if (name in manifest['absent']) == bundle.has(manifest, name)
  ]
  if lacking:
    raise _Wrong(f'{lacking[0]} is neither there nor said to be absent')
  return (
      f'{len(manifest["files"])} files as in the manifest, whose sha256 is'
      f' {bundle.digest(root / bundle.MANIFEST)}'
  )


def _check_guarantee(root: pathlib.Path, manifest) -> str:
  """Recomputes epsilon from the events, and compares what states it."""
  described = events_lib.read(root / bundle.EVENTS)
  plan = described.plan
  events_lib.check_same('plan', _json(root / bundle.PLAN), _plain(plan.describe()))
  for name, stated, planned in (
      ('plan_fingerprint', manifest['plan_fingerprint'], plan.fingerprint),
      ('rounds', manifest['rounds'], described.num_rounds),
  ):
    events_lib.check_same(name, stated, planned)
  stated = _json(root / bundle.STATEMENT)
  statement = statement_lib.PrivacyStatement.from_json(stated)
  page = (root / bundle.STATEMENT_PAGE).read_text(encoding='utf-8')
  if page != statement.to_markdown():
    raise _Wrong(f'{bundle.STATEMENT_PAGE} is not {bundle.STATEMENT} as a page')
  anew = _plain(
      plan.headline(delta=described.delta, num_rounds=described.num_rounds)
  )
  warnings = anew.pop('warnings')
  if not set(warnings) <= set(stated['warnings']):
    raise _Wrong('the statement leaves out a warning of the plan')
  if stated['epsilon'] == 'inf':
    # Of a run with a known key, which its plan does not know of.
    anew |= {'epsilon': 'inf', 'epsilon_no_amplification': 'inf'}
  for name, value in anew.items():
    events_lib.check_same(name, stated[name], value, tolerance=_TOLERANCE)
  return (
      f'epsilon {stated["epsilon"]} at delta {stated["delta"]:g}, recomputed'
      ' from the events'
  )


def _check_card(root: pathlib.Path, described, absent) -> str:
  has_config = bundle.TASK_CONFIG not in absent
  expected = model_card.render(
      _json(root / bundle.STATEMENT),
      weights=models.read_weights(root / bundle.WEIGHTS),
      rounds=described.num_rounds,
      absent=absent,
      odp=task_config.accounting(described) if has_config else None,
  )
  if (root / bundle.CARD).read_text(encoding='utf-8') != expected:
    raise _Wrong('not what the other files say')
  return 'says what the other files say'


def _check_process(root: pathlib.Path, plan, absent) -> list[Finding]:
  """Runs the process, and its forms, on the same made data."""
  known = {}

  def load() -> str:
    known['initialize'] = process_files.read(root / bundle.INITIALIZE)
    known['next'] = process_files.read(root / bundle.NEXT)
    fixed = process_files.keys_in(known['next'])
    if fixed:
      raise computations.fixed_key(fixed)
    known['state'] = computations.check_initialize(known['initialize'])
    certification.certify_computation(known['next'], plan)
    return 'the noise is that of the plan, and no key is in it'

  def run() -> str:
    known['data'] = computations.made_data(known['next'], plan)
    results = [
        computations.leaves(known['next'](known['state'], known['data']))
        for _ in range(2)
    ]
    if not computations.is_finite(results[0]):
      raise _Wrong('a round on made data gives NaN')
    known['result'] = results[0]
    # Fresh noise, where clients draw it.
    known['fresh'] = set(computations.differences(*results))
    return f'a round on made data, {len(results[0])} results'

  findings = [_found('process', load)]
  if findings[0].status == OK:
    findings.append(_found('round', run))
  for kind in computations.FORMS:
    name = kind.replace('_', '-') + ' form'
    if kind in absent:
      findings.append(Finding(name, ABSENT, absent[kind]))
    elif 'result' in known:
      findings.append(
          _found(name, lambda kind=kind: _check_form(root, kind, known))
      )
  return findings


def _check_form(root: pathlib.Path, kind: str, known: dict[str, Any]) -> str:
  form = computations.read_form(root / kind, kind, known['next'])
  for part in computations.parts(kind, form):
    fixed = process_files.keys_in(part)
    if fixed:
      raise computations.fixed_key(fixed)
  result = computations.leaves(
      computations.recompose(kind, form)(known['state'], known['data'])
  )
  differing = set(computations.differences(known['result'], result))
  if differing - known['fresh']:
    raise _Wrong(
        'the same round ends otherwise: ' + ', '.join(sorted(differing)[:3])
    )
  if not known['fresh']:
    return 'the same bits as the process'
  return (
      'runs; the same bits as the process but for what has fresh noise'
      f' ({len(known["fresh"])} of {len(result)} results)'
  )


def _check_weights(root: pathlib.Path) -> str:
  weights = models.read_weights(root / bundle.WEIGHTS)
  others = set(weights) - set(models.in_order(weights))
  if others:
    raise _Wrong(f'{sorted(others)[0]} is no weight of a model')
  return f'{len(weights)} tensors'


def _check_saved_model(root: pathlib.Path) -> str:
  weights = models.read_weights(root / bundle.WEIGHTS)
  loaded = models.read_saved_model(root / bundle.SAVED_MODEL)
  expected = {name.replace('/', '_'): value for name, value in weights.items()}
  stored = models.stored_shapes(root / bundle.SAVED_MODEL)
  shapes = sorted(list(value.shape) for value in expected.values())
  if set(loaded) != set(expected) or stored != shapes:
    raise _Wrong('other weights than model.npz')
  for name, value in expected.items():
    _check_equal(name, loaded[name], value)
  return f'{len(weights)} tensors, equal to model.npz'


def _check_functional_model(root: pathlib.Path) -> str:
  weights = models.read_weights(root / bundle.WEIGHTS)
  loaded = models.read_functional_model(root / bundle.FUNCTIONAL_MODEL)
  ordered = models.in_order(weights)
  stored = models.stored_shapes(root / bundle.FUNCTIONAL_MODEL)
  shapes = sorted(list(value.shape) for value in ordered.values())
  if len(loaded) != len(ordered) or stored != shapes:
    raise _Wrong('other weights than model.npz')
  for (name, value), found in zip(ordered.items(), loaded):
    _check_equal(name, found, value)
  return f'{len(ordered)} tensors, equal to model.npz'


def _check_equal(name: str, found: np.ndarray, expected: np.ndarray) -> None:
  if found.dtype != expected.dtype or found.tobytes() != expected.tobytes():
    raise _Wrong(f'{name} is not that of model.npz')


def _check_task_config(root: pathlib.Path, described) -> str:
  text = (root / bundle.TASK_CONFIG).read_text(encoding='utf-8')
  expected = task_config.render(
      described, population=task_config.population_of(text)
  )
  if text != expected:
    raise _Wrong('not that of the plan')
  return task_config.accounting(described)


def _json(path: pathlib.Path) -> Any:
  return json.loads(path.read_text(encoding='utf-8'))


def _plain(content: Any) -> Any:
  """Returns what a reader of the JSON has."""
  return json.loads(json.dumps(content))
