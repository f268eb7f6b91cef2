# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""`verify_bundle` verifies the claims of a bundle without running it.

It reads only the files of the bundle, and writes nothing. First it checks
digests, then the operations of the graphs, then the guarantee. If one of these
is wrong, it stops there. `measuring` runs the graphs that were checked here.
"""

from collections.abc import Callable, Iterator, Mapping
import dataclasses
import json
import os
import pathlib
from typing import Any

import numpy as np

from tff_dp import _checks
from tff_dp import systems
from tff_dp.accounting import rounding
from tff_dp.aggregators import release_marks
from tff_dp.export import bundle
from tff_dp.export import computations
from tff_dp.export import keys
from tff_dp.export import model_card
from tff_dp.export import models
from tff_dp.export import operations
from tff_dp.export import saved_models
from tff_dp.export import statements
from tff_dp.export import task_config
from tff_dp.plans import events as events_lib
from tff_dp.program import certification
from tff_dp.program.files import process_files
from tff_dp.statement import statement as statement_lib

OK, FAILED, ABSENT, NOT_CHECKED = 'ok', 'FAILED', 'absent', 'not checked'
_MODELS = (bundle.SAVED_MODEL, bundle.FUNCTIONAL_MODEL)
_LONGEST, _MOST_NAMED = 300, 5


@dataclasses.dataclass(frozen=True)
class Finding:
  """The result of one check.

  Attributes:
    check: Name of the checked part or property.
    status: 'ok', 'FAILED', 'absent' or 'not checked'.
    detail: The result, or the reason why the part is absent or not checked. It
      is one line, without control codes for a terminal.
  """

  check: str
  status: str
  detail: str

  def __post_init__(self):
    object.__setattr__(self, 'detail', _checks.printable(self.detail))


Wrong = statements.Wrong


def verify_bundle(directory: str | os.PathLike) -> list[Finding]:
  """Returns a finding for each check.

  If no finding has the status 'FAILED', the claims of the bundle hold for the
  parts that were checked, but perhaps not for parts with the status 'not
  checked'. Digests reveal every changed byte. But whoever changes a file can
  change the manifest too. So compare the digest of the manifest, in the first
  finding, with the digest that the exporter told you.

  It runs no graph of the bundle, opens nothing but regular files in it, follows
  no link out of it, and writes nothing.

  Args:
    directory: Directory that `export_bundle` wrote.

  Raises:
    ArgumentError: If `directory` is not a bundle that this version knows.
  """
  root = pathlib.Path(directory)
  manifest = bundle.read_manifest(root)
  findings = [found('files', lambda: _check_files(root, manifest))]
  if findings[-1].status == OK:
    findings.append(found('graphs', lambda: _check_graphs(root, manifest)))
  if findings[-1].status == OK:
    findings.append(found('guarantee', lambda: check_guarantee(root, manifest)))
  if findings[-1].status == FAILED:
    return findings
  described = events_lib.read(root / bundle.EVENTS)
  absent = manifest['absent']

  def add(check: str, name: str, look: Callable[[], str]):
    if name in absent:
      findings.append(Finding(check, ABSENT, absent[name]))
    else:
      findings.append(found(check, look))

  add('weights', bundle.WEIGHTS, lambda: _check_weights(root))
  add('model card', bundle.CARD, lambda: _check_card(root, described, absent))
  add('process', bundle.NEXT, lambda: _check_process(root, described.plan))
  if bundle.NEXT not in absent:
    findings.append(
        Finding('noise', NOT_CHECKED, 'static form: --run measures it')
    )
  for kind in computations.FORMS:
    add(form_name(kind), kind, lambda kind=kind: _check_form(root, kind))
  add(
      'SavedModel',
      bundle.SAVED_MODEL,
      lambda: _check_variables(
          root, bundle.SAVED_MODEL, models.variable_in_saved_model
      ),
  )
  add(
      'functional model',
      bundle.FUNCTIONAL_MODEL,
      lambda: _check_variables(
          root, bundle.FUNCTIONAL_MODEL, models.variable_in_functional_model
      ),
  )
  add(
      'task configuration',
      bundle.TASK_CONFIG,
      lambda: _check_task_config(root, described),
  )
  return findings


def failed(findings: list[Finding]) -> list[Finding]:
  """Returns the findings with the status 'FAILED'."""
  return [each for each in findings if each.status == FAILED]


def form_name(kind: str) -> str:
  """Returns the name of a form in findings."""
  return kind.replace('_', '-') + ' form'


def found(check: str, look: Callable[[], str]) -> Finding:
  """Returns the finding of a check.

  Args:
    check: Name of the checked part or property.
    look: Function that returns the detail of the finding. If it raises an
      error, the finding has the status 'FAILED'.
  """
  try:
    return Finding(check, OK, look())
  except Wrong as error:
    return Finding(check, FAILED, str(error))
  except _checks.PrivacyRefusedError as error:
    return Finding(check, FAILED, f'{error.what}: {error.why}')
  except Exception as error:  # pylint: disable=broad-exception-caught
    # A broken file may make a reader raise any error.
    said = ' '.join(str(error).split())[:_LONGEST]
    return Finding(check, FAILED, f'{type(error).__name__}: {said}')


def _check_files(root: pathlib.Path, manifest) -> str:
  changed = bundle.changes(root, manifest)
  if changed:
    more = len(changed) - _MOST_NAMED
    raise Wrong(
        '; '.join(changed[:_MOST_NAMED]) + f' and {more} more' * (more > 0)
    )
  unknown = sorted(set(manifest['files']) - _FILES)
  if unknown:
    raise Wrong(f'{unknown[0]} is no file of a bundle, and may hold anything')
  for name in bundle.PARTS:
    if (name in manifest['absent']) == bundle.has(manifest, name):
      raise Wrong(
          f'{name} must be either there or listed as absent in the manifest'
      )
  for name in bundle.ALWAYS:
    if name in manifest['absent']:
      raise Wrong(f'{name} is absent, but every bundle has it')
  # The forms cannot be checked without the process.
  of_process = [
      name for name in bundle.OF_PROCESS if name not in manifest['absent']
  ]
  if of_process and not {bundle.INITIALIZE, bundle.NEXT} <= set(of_process):
    raise Wrong(
        f'{of_process[0]} is there, but other files of the process are not'
    )
  return (
      f'{len(manifest["files"])} files as in the manifest, whose sha256 is'
      f' {bundle.digest(root / bundle.MANIFEST)}'
  )


# All files of a bundle in their places, except the manifest.
_FILES = frozenset([
    *(set(bundle.PARTS) - {*computations.FORMS, *_MODELS}),
    *(
        f'{kind}/{name}'
        for kind in computations.FORMS
        for name in computations.files(kind)
    ),
    *(f'{folder}/{name}' for folder in _MODELS for name in saved_models.FILES),
])


def _check_graphs(root: pathlib.Path, manifest) -> str:
  """Checks the operations of every graph, without running or importing it."""
  num = 0
  for name in _computations(manifest):
    try:
      operations.check_computation(process_files.read_proto(root / name))
    except operations.NotAllowedError as error:
      raise Wrong(f'{name}: {error}') from error
    num += 1
  for name in _MODELS:
    if bundle.has(manifest, name):
      try:
        saved_models.check(root / name)
      except operations.NotAllowedError as error:
        raise Wrong(f'{name}: {error}') from error
      num += 1
  return (
      f'{num} files with graphs, whose operations compute, and read nothing but'
      ' random bits of the kernel'
  )


def _computations(manifest) -> Iterator[str]:
  for name in sorted(manifest['files']):
    if name.endswith('.pb') and name.partition('/')[0] not in _MODELS:
      yield name


def check_guarantee(root: pathlib.Path, manifest) -> str:
  """Makes the statement anew from the events, and compares the two.

  Args:
    root: Directory with the statement, its page, the events and the plan.
    manifest: `plan_fingerprint` and `rounds` of the bundle.
  """
  described = events_lib.read(root / bundle.EVENTS)
  plan = described.plan
  events_lib.check_same('plan', bundle.read_json(root / bundle.PLAN), _plain(plan.describe()))
  for name, stated, planned in (
      ('plan_fingerprint', manifest['plan_fingerprint'], plan.fingerprint),
      ('rounds', manifest['rounds'], described.num_rounds),
  ):
    events_lib.check_same(name, stated, planned)
  stated = bundle.read_json(root / bundle.STATEMENT)
  statement = statement_lib.PrivacyStatement.from_json(stated)
  statements.check(stated, described)
  page = bundle.read_text(root / bundle.STATEMENT_PAGE)
  if page != statement.to_markdown():
    raise Wrong(f'{bundle.STATEMENT_PAGE} is not {bundle.STATEMENT} as a page')
  return (
      f'epsilon {stated["epsilon"]} at delta'
      f' {rounding.short(stated["delta"])}, recomputed from the events'
  )


def _check_card(root: pathlib.Path, described, absent) -> str:
  _check_reasons(described.plan, absent)
  has_config = bundle.TASK_CONFIG not in absent
  expected = model_card.render(
      bundle.read_json(root / bundle.STATEMENT),
      weights=models.read_weights(root / bundle.WEIGHTS),
      rounds=described.num_rounds,
      absent=absent,
      odp=task_config.accounting(described) if has_config else None,
  )
  if bundle.read_text(root / bundle.CARD) != expected:
    raise Wrong('it does not say what the other files say')
  return 'says what the other files say'


def _check_reasons(plan, absent: Mapping[str, str]) -> None:
  """Raises `Wrong` if a part is absent for a reason that no export gives."""
  of_process = (bundle.NO_PROCESS, bundle.NOT_ALLOWED)
  known = {
      **dict.fromkeys(bundle.OF_PROCESS, of_process),
      **dict.fromkeys(computations.FORMS, of_process + computations.NO_FORM),
      bundle.FUNCTIONAL_MODEL: (bundle.NO_MODEL,),
      bundle.TASK_CONFIG: (task_config.why_not(plan) or bundle.NO_POPULATION,),
  }
  for name, reason in absent.items():
    if reason not in known.get(name, ()):
      raise Wrong(
          f'the manifest says that {name} is absent because'
          f' {_checks.shown(reason)}, and no export gives this reason'
      )


def _check_process(root: pathlib.Path, plan) -> str:
  initialize = process_files.read(root / bundle.INITIALIZE)
  num_keys = check_process(
      initialize, process_files.read(root / bundle.NEXT), plan
  )
  made = {
      0: 'a new state has no noise key',
      1: 'the noise key of a new state is made of random bits of the kernel',
  }.get(num_keys, f'the {num_keys} noise keys of a new state are made of random'
        ' bits of the kernel')
  leaves = (
      'what leaves a round goes through what is marked as noised by this plan'
  )
  if not systems.of(plan.kind).training().is_private:
    leaves = 'the plan claims nothing, so nobody followed what leaves a round'
  return f'{leaves}; {made}; no constant looks like a key'


def check_process(initialize, next_computation, plan) -> int:
  """Returns the number of noise keys in a new state, without running a graph.

  It follows clients' data to the values that are marked as noised by the plan,
  and each key back to its source.

  Args:
    initialize: The `initialize` of a process whose operations were checked.
    next_computation: The `next` of the same process.
    plan: Plan whose epsilon is stated.

  Raises:
    PrivacyRefusedError: If data leave without a mark of this plan, if a mark is
      not one that our builders make, or if somebody may know a key.
  """
  for each in (initialize, next_computation):
    check_no_key(each)
  num_keys = keys.check(initialize)
  _check_marks(next_computation, plan)
  certification.certify_computation(next_computation, plan)
  return num_keys


def _check_marks(next_computation, plan) -> None:
  """Raises if a mark is not one that our builders make.

  Only marks on `Identity` nodes are measured. A value that is marked as a coin
  is trusted to depend on no data.
  """
  draws_coins = systems.of(plan.kind).training().draws_are_coins
  for node in operations.nodes_of(next_computation):
    is_coin = release_marks.is_coin(node.name)
    if not is_coin and release_marks.Release.parse(node.name) is None:
      continue
    if node.op != 'Identity' or (is_coin and not draws_coins):
      raise _checks.PrivacyRefusedError(
          f'the graph node {node.name} (operation {node.op}) has a mark that no'
          ' builder of this kind of plan puts there',
          why='a mark is trusted: it says that a value has noise, or depends on'
          ' no data',
          way_out='build the process with the builders of this version',
      )


def check_no_key(computation) -> None:
  """Raises if a constant in a computation looks like a noise key."""
  fixed = process_files.keys_in(computation)
  if fixed:
    raise computations.fixed_key(fixed)


def _check_form(root: pathlib.Path, kind: str) -> str:
  form = computations.read_form(
      root / kind, kind, process_files.read(root / bundle.NEXT)
  )
  for part in computations.parts(kind, form):
    check_no_key(part)
  return 'is of the type of the process, without a constant that looks like a key'


def _check_weights(root: pathlib.Path) -> str:
  weights = models.read_weights(root / bundle.WEIGHTS)
  others = set(weights) - set(models.in_order(weights))
  if others:
    raise Wrong(f'{sorted(others)[0]} is no weight of a model')
  return f'{len(weights)} tensors'


def _check_variables(
    root: pathlib.Path, part: str, variable_of: Callable[[str], str]
) -> str:
  """Compares the variables of a SavedModel with the weights of the run."""
  weights = models.read_weights(root / bundle.WEIGHTS)
  names = {variable_of(name): name for name in weights}
  specs = {
      variable: (weights[name].dtype, weights[name].shape)
      for variable, name in names.items()
  }
  stored = models.stored(root / part, specs)
  for variable, name in names.items():
    check_equal(name, stored[variable], weights[name])
  return f'its {len(weights)} variables are equal to model.npz'


def check_equal(name: str, found: np.ndarray, expected: np.ndarray) -> None:
  if found.dtype != expected.dtype or found.tobytes() != expected.tobytes():
    raise Wrong(f'{name} differs from model.npz')


def _check_task_config(root: pathlib.Path, described) -> str:
  text = bundle.read_text(root / bundle.TASK_CONFIG)
  expected = task_config.render(
      described, population=task_config.population_of(text)
  )
  if text != expected:
    raise Wrong('the configuration differs from the one that the plan gives')
  return task_config.accounting(described)


def _plain(content: Any) -> Any:
  """Returns the content as read back from JSON."""
  return json.loads(json.dumps(content))
