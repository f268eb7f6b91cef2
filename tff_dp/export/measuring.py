# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""`run_bundle` runs a bundle's graphs and measures the noise that they add.

Call it only in a process that has nothing to lose, as `isolation` does, and
only for a bundle that passed `verify_bundle`.
"""

from collections.abc import Callable
import pathlib
import time
from typing import Any, NamedTuple

import numpy as np
import tensorflow_federated as tff

from tff_dp import systems
from tff_dp.execution import contexts
from tff_dp.export import bundle
from tff_dp.export import computations
from tff_dp.export import models
from tff_dp.export import noise
from tff_dp.export import taps
from tff_dp.export import verification
from tff_dp.plans import base
from tff_dp.plans import events as events_lib
from tff_dp.program import certification
from tff_dp.program.files import process_files
from tff_dp.systems import system

Finding = verification.Finding
Struct = tff.structure.Struct
# Number of new states to measure, if time allows, and the least number.
_MOST_STATES, _FEWEST_STATES = 400, 32
# Rounds from each state. Rounds after the first have no clients.
_MOST_ROUNDS = 3
# Number of coordinates to test, spread over all of them.
_MOST_PARAMS = 4096
_KEY = 'key'


def run_bundle(root: pathlib.Path, *, seconds: float) -> list[Finding]:
  """Returns the findings of running the graphs of a bundle.

  Args:
    root: Directory of a bundle that passed `verify_bundle`.
    seconds: Time for the measurement of the noise. At least 32 states are
      measured, however long they take.
  """
  absent = bundle.read_manifest(root)['absent']
  plan = events_lib.read(root / bundle.EVENTS).plan
  findings = []
  with contexts.ensure_installed():
    if bundle.NEXT not in absent:
      findings += _run_process(root, plan, absent, seconds)
  if bundle.SAVED_MODEL not in absent:
    findings.append(
        verification.found('SavedModel, run', lambda: _run_saved_model(root))
    )
  if bundle.FUNCTIONAL_MODEL not in absent:
    findings.append(
        verification.found(
            'functional model, run', lambda: _run_functional_model(root)
        )
    )
  return findings


def _run_process(root, plan, absent, seconds) -> list[Finding]:
  """Returns the findings about the process, its forms and its noise.

  The process and its forms run on the same synthetic data.
  """
  initialize = process_files.read(root / bundle.INITIALIZE)
  next_computation = process_files.read(root / bundle.NEXT)
  known = {}

  def run() -> str:
    known['state'] = computations.check_start(initialize)
    known['data'] = computations.made_data(next_computation, plan)
    results = [
        computations.leaves(next_computation(known['state'], known['data']))
        for _ in range(2)
    ]
    if not computations.has_no_nan(results[0]):
      raise verification.Wrong('a round on made data gives NaN')
    known['result'] = results[0]
    # If clients draw noise, results differ by fresh noise.
    known['fresh'] = set(computations.differences(*results))
    return f'a round on made data, {len(results[0])} results'

  findings = [verification.found('round', run)]
  if findings[0].status != verification.OK:
    return findings
  for kind in computations.FORMS:
    if kind not in absent:
      findings.append(
          verification.found(
              f'{verification.form_name(kind)}, run',
              lambda kind=kind: _run_form(root, kind, next_computation, known),
          )
      )
  return findings + _measure(initialize, next_computation, plan, seconds)


def _run_form(root, kind: str, next_computation, known: dict[str, Any]) -> str:
  form = computations.read_form(root / kind, kind, next_computation)
  result = computations.leaves(
      computations.recompose(kind, form)(known['state'], known['data'])
  )
  differing = set(computations.differences(known['result'], result))
  if differing - known['fresh']:
    raise verification.Wrong(
        'on the same state and data this form gives other results than the'
        ' process: ' + ', '.join(sorted(differing)[:3])
    )
  if not known['fresh']:
    return 'the same bits as the process'
  return (
      'runs; the same bits as the process but for what has fresh noise'
      f' ({len(known["fresh"])} of {len(result)} results)'
  )


def _run_saved_model(root: pathlib.Path) -> str:
  weights = models.read_weights(root / bundle.WEIGHTS)
  found = models.run_saved_model(root / bundle.SAVED_MODEL)
  expected = {models.flat_name(name): value for name, value in weights.items()}
  if set(found) != set(expected):
    raise verification.Wrong('it returns other weights than model.npz')
  for name, value in expected.items():
    verification.check_equal(name, found[name], value)
  return f'it returns {len(weights)} tensors, equal to model.npz'


def _run_functional_model(root: pathlib.Path) -> str:
  weights = models.in_order(models.read_weights(root / bundle.WEIGHTS))
  found = models.run_functional_model(root / bundle.FUNCTIONAL_MODEL)
  if len(found) != len(weights):
    raise verification.Wrong('it returns other weights than model.npz')
  for (name, value), tensor in zip(weights.items(), found):
    verification.check_equal(name, tensor, value)
  return f'it returns {len(weights)} tensors, equal to model.npz'


class _Drawn(NamedTuple):
  """Values that were marked as noised, from many states.

  Attributes:
    marked: Arrays of shape [num_states, ...], one for each marked value of the
      first round, in the order of running.
    later: Vectors of the following rounds without clients, shape [num_states,
      num_rounds - 1, num_params]. `None` if there are none.
  """

  marked: list[np.ndarray]
  later: np.ndarray | None


def _measure(initialize, next_computation, plan, seconds) -> list[Finding]:
  """Returns the findings about the keys and the noise.

  It runs rounds from many states, each with new keys. All rounds have the same
  data, except for the clients' keys.
  """
  if not systems.of(plan.kind).training().is_private:
    return [
        Finding(check, verification.NOT_CHECKED, 'the plan adds none')
        for check in ('key', 'noise')
    ]
  known = {}

  def key() -> str:
    known['drawn'] = _draw(initialize, next_computation, plan, seconds)
    return _check_keys(known['drawn'].marked, plan)

  findings = [verification.found('key', key)]
  if 'drawn' not in known:
    return findings
  if not _keyed(known['drawn'].marked, plan):
    why = 'what is released is too short to tell keys apart'
    findings = [Finding('key', verification.NOT_CHECKED, why)]
  law = _law_of(plan)
  if isinstance(law, str):
    return findings + [Finding('noise', verification.NOT_CHECKED, law)]
  return findings + [
      verification.found('noise', lambda: law(known['drawn'], next_computation))
  ]


def _draw(initialize, next_computation, plan, seconds: float) -> _Drawn:
  rounds = taps.Rounds(next_computation)
  first = initialize()
  marked, later = [], []
  num_rounds = _num_rounds(plan)
  start = time.monotonic()
  for number in range(_MOST_STATES):
    passed = time.monotonic() - start
    if number >= _FEWEST_STATES and passed > seconds * number / (number + 1):
      break
    state = rounds.state(_with_keys_of(first, initialize()))
    data = computations.made_data(next_computation, plan, keys_seed=number)
    state, found = rounds.run(state, data)
    marked.append([_of_few_params(each) for each in found])
    of_state = []
    for _ in range(num_rounds - 1):
      # Without clients, the release is noise alone.
      state, found = rounds.run(state, [])
      of_state.append(_of_few_params(_vector(found)))
    later.append(of_state)
  if not marked[0]:
    raise verification.Wrong('nothing in a round is marked as noised')
  if any(
      [each.shape for each in found] != [each.shape for each in marked[0]]
      for found in marked
  ):
    raise verification.Wrong(
        'the values that round 1 marks as noised differ in number or shape'
        ' from one initial state to another'
    )
  return _Drawn(
      [np.stack(each) for each in zip(*marked)],
      np.array(later) if num_rounds > 1 else None,
  )


def _with_keys_of(state: Any, other: Any, name: str = '') -> Any:
  """Returns a state with the keys of another state."""
  state, other = map(computations.as_struct, (state, other))
  if not isinstance(state, Struct):
    return other if name == _KEY else state
  return Struct([
      (name, _with_keys_of(part, other[index], name or ''))
      for index, (name, part) in enumerate(tff.structure.iter_elements(state))
  ])


def _of_few_params(value: np.ndarray) -> np.ndarray:
  if value.ndim != 1 or value.size <= _MOST_PARAMS:
    return value
  return value[np.linspace(0, value.size - 1, _MOST_PARAMS, dtype=int)]


def _vector(marked: list[np.ndarray]) -> np.ndarray:
  """Returns the one noised vector of a round whose server adds the noise."""
  vectors = [
      each for each in marked if each.dtype == np.float32 and each.ndim == 1
  ]
  if len(vectors) != 1:
    raise verification.Wrong(
        f'a round marks {len(vectors)} vectors as noised, expected one'
    )
  return vectors[0]


def _noise_of(plan) -> system.Noise:
  return systems.of(plan.kind).training().noise(plan)


def _is_central(plan) -> bool:
  return _noise_of(plan).server_clip_norm is not None


def _is_adaptive(plan) -> bool:
  return getattr(plan, 'adaptive_clipping', None) is not None


def _num_rounds(plan) -> int:
  """Returns the number of rounds to run from each state."""
  if not _is_central(plan) or _is_adaptive(plan):
    return 1
  mechanism = plan.mechanism
  return min(_MOST_ROUNDS, mechanism.num_rounds, mechanism.rounds_per_tree)


def _check_keys(marked: list[np.ndarray], plan) -> str:
  """Returns words about the keys. Raises if two give the same noise."""
  num = len(marked[0])
  for each in _keyed(marked, plan):
    different = len({row.tobytes() for row in each})
    if different < num:
      raise verification.Wrong(
          f'{num} new keys gave only {different} different releases: the'
          ' process does not use all bits of its key'
      )
  return (
      f'{num} new keys gave {num} different releases on the same data: more'
      f' than {noise.bits_seen(num)} bits of the key are used, and not how many'
      f' more (missed with probability {noise.FALSE_ALARM:g})'
  )


def _keyed(marked: list[np.ndarray], plan) -> list[np.ndarray]:
  """Returns the marked values that must differ for different keys."""
  return [each for each in marked if _is_keyed(each, plan)]


def _is_keyed(each: np.ndarray, plan) -> bool:
  """Returns whether different keys give different values almost surely."""
  if each.dtype == np.float32:
    return each[0].size >= 3
  if each.dtype != np.int64:
    return False
  if _is_central(plan):
    return True  # The digest.
  return _noise_of(plan).keys_give_integers


def _law_of(plan: base.Plan) -> Callable[[_Drawn, Any], str] | str:
  """Returns a function that compares drawn noise with the plan.

  If the noise cannot be compared, the result is a text that says why.
  """
  if _is_central(plan):
    if not plan.noise_multiplier:
      return 'the plan adds none'
    return lambda drawn, computation: _check_central(drawn, computation, plan)
  expected = _noise_of(plan)
  if expected.not_measured:
    return expected.not_measured
  return lambda drawn, _: _check_local(drawn, expected)


def _check_central(drawn: _Drawn, next_computation, plan) -> str:
  """Compares the server's noise with the plan, over coordinates and rounds."""
  certificate = certification.certify_computation(next_computation, plan)
  vectors, words, scalars = [], [], []
  for each in drawn.marked:
    if each.dtype == np.float32 and each.ndim == 2:
      vectors.append(each)
    elif each.dtype == np.int64 and each.ndim == 1:
      words.append(each)
    elif each.dtype == np.float32 and each.ndim == 1:
      scalars.append(each)
    else:
      raise verification.Wrong(
          f'a value of type {each.dtype} and shape {each.shape[1:]} is marked'
          ' as noised, but only float32 vectors, float32 scalars and the int64'
          ' digest may be marked'
      )
  found = len(vectors), len(words), len(scalars)
  expected = 1, 1, int(_is_adaptive(plan))
  if found != expected:
    raise verification.Wrong(
        f'a round marks {found} values as noised (vectors, digests, shares of'
        f' clients), expected {expected}'
    )
  odd = noise.constant_bits(words[0])
  if odd:
    raise verification.Wrong(f'{odd} of 64 bits of the digest are not random')
  multiplier = plan.noise_multiplier
  l2_norm_clip = _noise_of(plan).server_clip_norm
  if _is_adaptive(plan):
    multiplier = plan.noise_multiplier_by_domain['value']
  stddev = multiplier * l2_norm_clip / certificate.release.divisor
  of_rounds = vectors[0][:, np.newaxis]
  if drawn.later is not None:
    of_rounds = np.concatenate([of_rounds, drawn.later], axis=1)
  num_rounds = of_rounds.shape[1]
  spread = noise.compare(
      of_rounds / stddev, noise.covariance(plan.mechanism, num_rounds)
  )
  return _described(spread, of_rounds.shape)


def _check_local(drawn: _Drawn, expected: system.Noise) -> str:
  """Compares the noise of each client's report with the plan."""
  said = ''
  for each in drawn.marked:
    if each.dtype != np.float32 or each.ndim != 2:
      raise verification.Wrong(
          f'a value of type {each.dtype} and shape {each.shape[1:]} is marked'
          ' as noised, but a report is a float32 vector'
      )
    if expected.laplace is None:
      scaled = each[:, np.newaxis] / expected.stddev
      spread = noise.compare(scaled, np.ones([1, 1]))
    else:
      spread = noise.compare_laplace(each, expected.laplace)
    said = _described(spread, (len(each), 1, each.shape[1]))
  return said


def _described(spread: noise.Spread, shape: tuple[int, int, int]) -> str:
  num_states, num_rounds, num_params = shape
  rounds = 'round 1' if num_rounds == 1 else f'rounds 1 to {num_rounds}'
  where = (
      f'{num_params} coordinates of {rounds} from {num_states} new keys, on'
      ' made data'
  )
  if spread.wrong:
    raise verification.Wrong(f'{spread.wrong} ({where})')
  return (
      f'{where}: {spread.stddev:.4g} of the planned standard deviation, single'
      f' coordinates {spread.least_stddev:.3g} to {spread.largest_stddev:.3g}'
      f' (false alarm {noise.FALSE_ALARM:g}; seen with probability 0.999:'
      f' {spread.seen})'
  )
