# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""TFF's own runtime as the oracle: what a case is, and when two runs agree.

A case is a function without arguments that builds its computations, invokes
them and returns everything that comes out, as a dict of arrays by name. It
knows nothing of contexts. `Contexts` runs it on one of the `PATHS`; the path
'tff' is TFF's own runtime, which only the reference stack has. `save_recorded`
keeps what that gave in `recorded/`, so that the other stacks are compared with
it, too. `judge` says whether an outcome is what it has to be.
"""

from collections.abc import Callable
import contextlib
import dataclasses
import json
import pathlib
from unittest import mock

import numpy as np
import scipy.stats
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution import conformance
from tff_dp import _shim
from tff_dp import execution
from tff_dp.execution import contexts
from tff_dp.execution import errors as errors_lib

# Against TFF, in parts of a tensor's largest magnitude: kernels of two builds.
TFF_TOLERANCE = 1e-5
# Among our own paths.
VECTORIZED_TOLERANCE = 1e-6
RECORDED = pathlib.Path(__file__).parent / 'recorded'
# How far a path of ours may be from 'single', the plainest of them. The order
# of sums is another with two workers, so those are compared with TFF only.
_OWN_TOLERANCES = {
    'loop': 0.0,
    'vectorized': VECTORIZED_TOLERANCE,
}
# Of a two-sample Kolmogorov-Smirnov test, where results are random.
_FALSE_ALARM = 1e-6
_MESSAGE_CHARACTERS = 300
# TFF's runtime cannot return what no client has, and runs a rewrite of graphs
# that makes some of them invalid.
_TFF_REFUSALS = (
    'Attempting to deserialize federated value with no data',
    'Failed to create graph in session',
)
# The second for what a stack lacks without which TFF can be imported.
_REFUSALS = (
    errors_lib.UnsupportedComputationError,
    _shim.UnavailableFeatureError,
)


@dataclasses.dataclass(frozen=True)
class Case:
  """One piece of work whose results must not depend on the context.

  Attributes:
    name: Unique within its kind.
    kind: 'tutorial', 'builder', 'generated' or 'poisoned'.
    run: Builds and invokes computations under the current context and returns
      arrays by name.
    is_random: Whether two runs agree in distribution only. Each array is then a
      sample of independent draws.
    loose: The largest difference from TFF in parts of a tensor's largest
      magnitude, where `TFF_TOLERANCE` is too strict for a stated reason.
    reason: That reason; empty for the usual tolerance.
    is_in_order: Whether the result depends on the order of clients, so that
      several workers must not share them.
  """

  name: str
  kind: str
  run: Callable[[], dict[str, np.ndarray]]
  is_random: bool = False
  loose: float = TFF_TOLERANCE
  reason: str = ''
  is_in_order: bool = False

  @property
  def own_paths(self) -> tuple[str, ...]:
    """The paths that must give what TFF gives."""
    if self.is_in_order:
      return tuple(path for path in OWN_PATHS if path != 'two_workers')
    return OWN_PATHS

  def __post_init__(self):
    if self.loose != TFF_TOLERANCE and not self.reason:
      raise ValueError(f'{self.name}: loose is {self.loose} without a reason')


def adds(cases: list[Case], kind: str) -> Callable:
  """Returns a decorator factory that appends functions to a list, as cases.

  What it makes takes a name, which is otherwise the function's, and properties
  of the case.
  """

  def case(name: str = '', **properties):
    def register(run: Callable[[], dict[str, np.ndarray]]):
      cases.append(Case(name or run.__name__, kind, run, **properties))
      return run

    return register

  return case


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What a case gave on a path.

  Attributes:
    values: Arrays by name; None if it ended in an error.
    error: That error in one line, or ''.
    is_refused: Whether the context, or our stack, says that it cannot do this.
  """

  values: dict[str, np.ndarray] | None = None
  error: str = ''
  is_refused: bool = False


def _create_tff_context() -> contexts.NativeContext:
  """Returns TFF's runtime; plain sums take the place of secure ones.

  TFF's own context for tests replaces them in the same way, but nothing ends
  the worker that it starts.
  """
  to_native = tff.backends.native.desugar_and_transform_to_native

  def compiled(computation):
    return to_native(
        tff.backends.test.replace_secure_intrinsics_with_bodies(computation)
    )

  with mock.patch.object(
      tff.backends.native, 'desugar_and_transform_to_native', compiled
  ):
    return execution.create_native_context()


# Path -> (how to make its context, whether clients work at once; if so, even
# few do, and else not even many).
PATHS = {
    'tff': (_create_tff_context, False),
    'loop': (
        lambda: execution.create_sync_in_process_context(
            max_concurrent_clients=1
        ),
        False,
    ),
    'single': (
        lambda: execution.create_sync_in_process_context(
            max_concurrent_clients=1, max_clients_per_call=1
        ),
        False,
    ),
    'vectorized': (
        lambda: execution.create_sync_in_process_context(
            max_concurrent_clients=1
        ),
        True,
    ),
    'two_workers': (
        lambda: execution.create_sync_in_process_context(
            max_concurrent_clients=2
        ),
        True,
    ),
}
OWN_PATHS = tuple(path for path in PATHS if path != 'tff')


class Contexts:
  """The contexts of the paths, each made when it is first wanted."""

  def __init__(self):
    self._contexts = {}

  def values_on(self, path: str, case: Case) -> dict[str, np.ndarray]:
    """Returns what a case gives on a path."""
    make, few_at_once = PATHS[path]
    if path not in self._contexts:
      self._contexts[path] = make()
    with contextlib.ExitStack() as stack:
      stack.enter_context(
          tff.framework.get_context_stack().install(self._contexts[path])
      )
      stack.enter_context(
          conformance.at_once() if few_at_once else conformance.in_loops()
      )
      # Or a case that sets it would change the shuffles of those after it.
      stack.callback(tf.random.set_seed, None)
      return {name: _array(value) for name, value in case.run().items()}

  def outcome_on(self, path: str, case: Case) -> Outcome:
    """Returns what a case gives on a path, be it an error."""
    try:
      return Outcome(self.values_on(path, case))
    except Exception as error:  # pylint: disable=broad-except
      # Of gRPC's errors, the text is about the call.
      details = getattr(error, 'details', None)
      said = details() if callable(details) else str(error)
      lines = [line.strip() for line in said.strip().splitlines()]
      # AutoGraph says first where it was.
      line = -1 if lines[:1] == ['in user code:'] else 0
      text = lines[line] if lines else ''
      return Outcome(
          error=f'{type(error).__name__}: {text}'[:_MESSAGE_CHARACTERS],
          is_refused=isinstance(error, _REFUSALS)
          or any(words in text for words in _TFF_REFUSALS),
      )

  def clients_by_path(self) -> dict[str, dict[str, int]]:
    """Returns how our contexts let clients work so far, by path."""
    return {
        path: context.num_clients_by_path
        for path, context in self._contexts.items()
        if path != 'tff'
    }

  def renew(self, path: str) -> None:
    """Makes the next case on a path get a fresh context."""
    self._contexts.pop(path).close()

  def close(self) -> None:
    for context in self._contexts.values():
      context.close()
    self._contexts.clear()

  def __enter__(self) -> 'Contexts':
    return self

  def __exit__(self, *exception_info) -> None:
    self.close()


def flat(value, name: str = '') -> dict[str, np.ndarray]:
  """Returns the arrays in a result of TFF by their paths, datasets included."""
  if isinstance(value, tff.learning.models.ModelWeights):
    value = {
        'trainable': list(value.trainable),
        'non_trainable': list(value.non_trainable),
    }
  if hasattr(value, '__attrs_attrs__'):
    value = {a.name: getattr(value, a.name) for a in value.__attrs_attrs__}
  if isinstance(value, tff.structure.Struct):
    value = tff.structure.to_odict_or_tuple(value)
  if hasattr(value, '_asdict'):
    value = value._asdict()
  if isinstance(value, tf.data.Dataset):
    value = list(value)
  if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
    raise TypeError(f'{name}: give its parts, not a {type(value).__name__}')
  if isinstance(value, dict):
    items = value.items()
  elif isinstance(value, (list, tuple)):
    items = enumerate(value)
  else:
    return {name or 'value': _array(value)}
  found = {}
  for key, part in items:
    found.update(flat(part, f'{name}/{key}' if name else str(key)))
  return found


def differences(
    expected: dict[str, np.ndarray],
    actual: dict[str, np.ndarray],
    *,
    tolerance: float,
) -> list[str]:
  """Returns in words where `actual` is not `expected`; nothing if they agree.

  Args:
    expected: The values of the oracle.
    actual: The values to judge.
    tolerance: The largest difference of floats, in parts of the largest
      magnitude of their tensor; 0 asks for the same bits. All else must be
      equal.
  """
  found = _differences_in_form(expected, actual)
  if found:
    return found
  for name, want in expected.items():
    got = actual[name]
    if not _agree(want, got, tolerance):
      found.append(_words(name, want, got))
  return found


def differences_in_distribution(
    expected: dict[str, np.ndarray], actual: dict[str, np.ndarray]
) -> list[str]:
  """Like `differences` for random results: each array is a sample.

  The false alarm rate is 1e-6 for each array.

  Args:
    expected: Samples of the oracle.
    actual: The samples to judge.
  """
  found = _differences_in_form(expected, actual)
  if found:
    return found
  for name, want in expected.items():
    want, got = np.ravel(want), np.ravel(actual[name])
    pvalue = scipy.stats.ks_2samp(want, got).pvalue
    # NaN, which a sample with NaN gives, is no agreement either.
    if not pvalue >= _FALSE_ALARM:
      found.append(
          f'{name} has another distribution (p = {pvalue:.1g}): {_short(got)},'
          f' not {_short(want)}'
      )
    if np.array_equal(want, got):
      found.append(f'{name} has the very same draws: {_short(got)}')
    elif _share_distinct(want) > 0.98 and _share_distinct(got) < 0.96:
      # A few float32 coincide by chance.
      found.append(
          f'{name} has {len(np.unique(got))} different draws of {len(got)}, not'
          f' {len(np.unique(want))}'
      )
  return found


def _share_distinct(draws: np.ndarray) -> float:
  return len(np.unique(draws)) / max(len(draws), 1)


def judge(case: Case, path: str, outcomes: dict[str, Outcome]) -> list[str]:
  """Returns in words where a path's outcome is not what it has to be.

  Two errors agree, whatever they say. What a context refuses to run is not
  wrong; the report lists it.

  Args:
    case: Tells how outcomes are compared.
    path: One of `OWN_PATHS`.
    outcomes: By path, that of 'tff' among them. If 'single' is there, too, the
      paths that must agree with it are compared with it.
  """
  actual = outcomes[path]
  if actual.is_refused:
    return []
  found = []
  if not outcomes['tff'].is_refused:
    found += [
        f'against TFF: {words}'
        for words in _differ(
            case, outcomes['tff'], actual, tolerance=case.loose
        )
    ]
  own = outcomes.get('single')
  if path in _OWN_TOLERANCES and own is not None and not own.is_refused:
    tolerance = _OWN_TOLERANCES[path]
    found += [
        f"against 'single': {words}"
        for words in _differ(case, own, actual, tolerance=tolerance)
    ]
  return found


def _differ(case, expected: Outcome, actual: Outcome, tolerance) -> list[str]:
  """Returns in words where two outcomes differ."""
  if expected.values is None or actual.values is None:
    if expected.values is actual.values:
      return []
    if actual.values is None:
      return [f'it raises {actual.error}']
    return [f'it gives values and does not raise {expected.error}']
  if case.is_random:
    return differences_in_distribution(expected.values, actual.values)
  return differences(expected.values, actual.values, tolerance=tolerance)


def save_recorded(kind: str, outcomes: dict[str, Outcome]) -> pathlib.Path:
  """Writes what TFF gave, by case; returns the file.

  One array holds the bytes of all values and the other, in JSON, what they
  mean: an archive entry for each value would be larger than most values are.

  Args:
    kind: The kind of the cases.
    outcomes: TFF's outcomes by the names of the cases.
  """
  index, data = [], []
  for case_name, outcome in outcomes.items():
    values = None
    if outcome.values is not None:
      values = []
      for name, array in outcome.values.items():
        entry = {'name': name, 'shape': array.shape}
        if array.dtype.kind == 'O':
          entry['strings'] = [_to_json(item) for item in array.ravel()]
        else:
          entry['dtype'] = array.dtype.name
          data.append(array.tobytes())
        values.append(entry)
    index.append({'case': case_name, 'error': outcome.error, 'values': values})
  RECORDED.mkdir(exist_ok=True)
  path = RECORDED / f'{kind}.npz'
  np.savez_compressed(
      path,
      index=np.frombuffer(json.dumps(index).encode(), np.uint8),
      data=np.frombuffer(b''.join(data), np.uint8),
  )
  return path


def load_recorded(kind: str) -> dict[str, Outcome]:
  """Returns what TFF gave when it was recorded, by case; {} if nothing was."""
  path = RECORDED / f'{kind}.npz'
  if not path.exists():
    return {}
  with np.load(path) as archive:
    index = json.loads(archive['index'].tobytes())
    data = archive['data'].tobytes()
  outcomes, start = {}, 0
  for entry in index:
    values = None
    if entry['values'] is not None:
      values = {}
      for value in entry['values']:
        shape = tuple(value['shape'])
        if 'strings' in value:
          array = np.empty(len(value['strings']), object)
          array[:] = [_from_json(item) for item in value['strings']]
        else:
          dtype = tf.as_dtype(value['dtype']).as_numpy_dtype
          size = int(np.prod(shape)) * np.dtype(dtype).itemsize
          array = np.frombuffer(data[start : start + size], dtype)
          start += size
        values[value['name']] = array.reshape(shape)
    outcomes[entry['case']] = Outcome(values, entry['error'])
  return outcomes


def _to_json(text: bytes | str) -> list[str]:
  if isinstance(text, bytes):
    return ['bytes', text.decode('latin-1')]
  return ['str', text]


def _from_json(item: list[str]) -> bytes | str:
  kind, text = item
  return text.encode('latin-1') if kind == 'bytes' else text


def _array(value) -> np.ndarray:
  """Returns an array; strings become objects, which keep a NUL at the end."""
  if isinstance(value, (bytes, str)):
    array = np.empty((), object)
    array[()] = value
    return array
  array = np.asarray(value)
  return array.astype(object) if array.dtype.kind in 'SU' else array


def _differences_in_form(expected, actual) -> list[str]:
  if list(expected) != list(actual):
    return [f'there are {list(actual)}, not {list(expected)}']
  found = []
  for name, want in expected.items():
    got = actual[name]
    if (got.shape, got.dtype) != (want.shape, want.dtype):
      found.append(
          f'{name} is {got.dtype}{list(got.shape)}, not'
          f' {want.dtype}{list(want.shape)}'
      )
  return found


def _is_float(array: np.ndarray) -> bool:
  # numpy files bfloat16, which is not its own, under "V".
  return array.dtype.kind in 'fcV'


def _wide(array: np.ndarray) -> np.ndarray:
  return array.astype(complex if array.dtype.kind == 'c' else float)


def _agree(want: np.ndarray, got: np.ndarray, tolerance: float) -> bool:
  if want.dtype.kind == 'O':
    # Python says that b'a' is not 'a'.
    return got.tolist() == want.tolist()
  if not _is_float(want) or not tolerance:
    return got.tobytes() == want.tobytes()
  want, got = _wide(want), _wide(got)
  finite = np.isfinite(want)
  if not np.array_equal(finite, np.isfinite(got)):
    return False
  if not np.array_equal(want[~finite], got[~finite], equal_nan=True):
    return False
  if not finite.any():
    return True
  difference = np.abs(got[finite] - want[finite])
  return difference.max() <= tolerance * np.abs(want[finite]).max()


def _words(name: str, want: np.ndarray, got: np.ndarray) -> str:
  """Returns where two arrays of one form differ most, and by how much."""
  if want.dtype.kind == 'O':
    pairs = zip(want.ravel().tolist(), got.ravel().tolist())
    is_other = np.array([one != other for one, other in pairs], bool)
    off = is_other.astype(float)
  elif _is_float(want):
    wide_want, wide_got = _wide(want).ravel(), _wide(got).ravel()
    is_other = ~(
        (wide_want == wide_got) | (np.isnan(wide_want) & np.isnan(wide_got))
    )
    with np.errstate(invalid='ignore'):
      off = np.abs(wide_got - wide_want)
    # Where one is not finite, they are as far apart as can be.
    off = np.where(is_other & ~np.isfinite(off), np.inf, np.nan_to_num(off))
  else:
    is_other = (want != got).ravel()
    off = np.abs(want.astype(float) - got.astype(float)).ravel()
  worst = int(np.argmax(off))
  place, many = '', ''
  if want.size > 1:
    index = np.unravel_index(worst, want.shape)
    place = str([int(number) for number in index])
    many = f'; {is_other.sum()} of {want.size} values differ'
  text = f'{name}{place} is {_item(got, worst)}, not {_item(want, worst)}'
  if _is_float(want):
    finite = np.abs(wide_want[np.isfinite(wide_want)])
    if finite.size and finite.max() and np.isfinite(off[worst]):
      share = off[worst] / finite.max()
      text += f' (off by {share:.1e} of the largest magnitude)'
  return text + many


def _item(array: np.ndarray, index: int) -> str:
  # Of float32, all digits and no more.
  item = array.ravel()[index]
  return repr(item) if array.dtype.kind == 'O' else str(item)


def _short(array: np.ndarray) -> str:
  text = np.array2string(array, threshold=8, precision=7, edgeitems=2)
  return ' '.join(text.split())
