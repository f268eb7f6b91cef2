# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The required environment, and private symbols of TFF, TensorFlow and others.

Two things are only here: the message for a user when something in `_columns` is
missing, and the private symbols of TensorFlow Federated (TFF), TensorFlow and
dp_accounting. Nothing heavy is imported at the top, so a broken installation
can still be diagnosed.
"""

import atexit
from collections.abc import Callable, Iterator
import dataclasses
import enum
import functools
import importlib
import importlib.metadata
import importlib.util
import math
import os
import pathlib
import platform
import sys
import threading
import weakref

from tff_dp import _columns
from tff_dp import _quiet
from tff_dp import _shim

PLATFORM = ('Linux', 'x86_64')
TFF = _columns.TFF
# The tested stack that is nearest to this Python.
COLUMN = _columns.here()
RECIPE = COLUMN.recipe
is_debug = _quiet.is_debug
# The parts of `tff_dp` that need TFF. The rest runs without it.
NEEDS_TFF = ('aggregators', 'learning', 'execution', 'program')

_MISSING = 'not installed'
# Private modules of TFF on which the in-process context is built. Checked
# against TFF 0.87.0. None of them imports jax or tensorflow-privacy itself.
_PRIVATE_TFF = {
    'array': 'core.impl.compiler.array',
    'computation_serialization': (
        'core.impl.computation.computation_serialization'
    ),
    'default_context': 'core.impl.context_stack.set_default_context',
    'no_context': 'core.impl.context_stack.runtime_error_context',
    'type_conversions': 'core.impl.types.type_conversions',
    'type_serialization': 'core.impl.types.type_serialization',
}
# Private modules of TensorFlow: for calling a function that can be cancelled,
# for facts about its operations, and for the types that it can save. Checked
# against 2.14.1 and 2.21.0.
_PRIVATE_TENSORFLOW = {
    'cancellation': 'eager.cancellation',
    'context': 'eager.context',
    'data_structures': 'trackable.data_structures',
    'execute': 'eager.execute',
    'op_def_registry': 'framework.op_def_registry',
    'pfor': 'ops.parallel_for.pfor',
    'trace': 'types.trace',
}
# Words in the names of datasets whose elements come in a random order.
_NO_ORDER = ('Shuffle', 'Random')
_ROOT_CAUSES = ('python', 'platform')


class BrokenEnvironmentError(ImportError):
  """TFF cannot run here. The message says what to do."""


class Status(enum.Enum):
  """Result of comparing a finding with the tested environment."""

  OK = 'ok'
  UNTESTED = 'untested'
  BROKEN = 'broken'


@dataclasses.dataclass(frozen=True)
class Finding:
  """One line about the environment.

  Attributes:
    name: Item that was checked, for example 'jaxlib'.
    found: Version or state that was found.
    expected: Version or state that was tested.
    status: Result of the comparison.
    advice: Sentence with an explanation or a remedy. Empty if `found` is
      enough.
  """

  name: str
  found: str
  expected: str
  status: Status
  advice: str = ''

  def to_json(self) -> dict[str, str]:
    return {**dataclasses.asdict(self), 'status': self.status.value}


def prepare_imports() -> None:
  """Makes the import of TFF quiet and, in columns B and C, possible.

  For the columns see `_columns`.

  Call it before TensorFlow is loaded, because TensorFlow reads its log level
  and chooses its Keras only once.
  """
  _quiet.quiet_start_up()
  if COLUMN.needs_shim:
    # TensorFlow 2.21 reads its log level only after it has written.
    _shim.install(_quiet.without_noise)
    _shim.use_legacy_keras()
  # Before somebody chooses a context.
  _shim.after_import('tensorflow_federated', _see_context_of_import)


def installed_version(distribution: str) -> str | None:
  """Returns the version of an installed distribution, else None."""
  try:
    return importlib.metadata.version(distribution)
  except importlib.metadata.PackageNotFoundError:
    return None


def worker_binary() -> pathlib.Path | None:
  """Returns the path of TFF's C++ runtime, or None if TFF has no folder.

  TFF has no folder if it is not installed, or was not loaded from files. The
  file at the returned path may be missing.

  Checked against TFF 0.87.0, which ships it as `data/worker_binary` and offers
  no public way to find it. Does not import TFF.
  """
  try:
    spec = importlib.util.find_spec('tensorflow_federated')
  except ValueError:  # Loaded, but not from files.
    spec = None
  if spec is None or not spec.submodule_search_locations:
    return None
  package = pathlib.Path(next(iter(spec.submodule_search_locations)))
  return package / 'data' / 'worker_binary'


def private_tff(name: str):
  """Returns one of the private TFF modules that we use, and loads TFF."""
  return importlib.import_module(
      f'tensorflow_federated.python.{_PRIVATE_TFF[name]}'
  )


def private_tensorflow(name: str):
  """Returns one of the private TensorFlow modules that we use, and loads it."""
  return importlib.import_module(
      f'tensorflow.python.{_PRIVATE_TENSORFLOW[name]}'
  )


def body_of_loop(loop):
  """Returns the graph of the body of a `While` operation.

  Checked against TensorFlow 2.14.1 and 2.21.0, which have no public way to get
  it.
  """
  name = loop.get_attr('body').name
  return loop.graph._get_function(name).graph  # pylint: disable=protected-access


def replace_input(operation, index: int, tensor) -> None:
  """Makes an operation of an unfinished graph take another tensor.

  Checked against TensorFlow 2.14.1 and 2.21.0, which have no public way to do
  it.
  """
  operation._update_input(index, tensor)  # pylint: disable=protected-access


@functools.cache
def broadcast_by_known_ranks() -> None:
  """Makes `tf.vectorized_map` broadcast by ranks that the graph knows.

  TensorFlow 2.14 computes the ranks of the inputs of each sum and product anew
  when the graph runs, and reshapes the inputs by them. That is a dozen
  operations, even where all ranks are known and equal. TensorFlow 2.21 does as
  this function does.
  """
  module = private_tensorflow('pfor')
  if hasattr(module, '_expand_dims'):  # As TensorFlow 2.21 has it.
    return
  inputs = module._PforInput  # pylint: disable=protected-access
  by_shapes = inputs.expanddim_inputs_for_broadcast

  @functools.wraps(by_shapes)
  def expanded(self):
    # pylint: disable=protected-access
    ranks = [
        one.t.shape.rank and one.t.shape.rank - one.is_stacked
        for one in self._inputs
    ]
    if None in ranks:
      by_shapes(self)
      return
    for index, (one, rank) in enumerate(zip(self._inputs, ranks)):
      if one.is_stacked and rank < max(ranks):
        place = (slice(None), *[None] * (max(ranks) - rank), ...)
        self._inputs[index] = module.wrap(one.t[place], True)
    # pylint: enable=protected-access

  inputs.expanddim_inputs_for_broadcast = expanded


def parts_of_dataset(dataset) -> tuple[list, list]:
  """Returns the input datasets and the functions of a dataset's last step.

  Checked against TensorFlow 2.14.1 and 2.21.0, which have no public way to get
  them.

  Args:
    dataset: A `tf.data.Dataset`.
  """
  # pylint: disable=protected-access
  functions = [wrapper.function for wrapper in dataset._functions()]
  return dataset._inputs(), functions
  # pylint: enable=protected-access


def steps_of_dataset(dataset) -> tuple[list, list[tuple]] | None:
  """Returns (columns, steps) of a dataset made from tensor slices, or None.

  The columns are the eager tensors that the dataset cuts its rows from. The
  steps follow in order, each a name and its values: ('repeat', count), ('take',
  count), ('skip', count), ('shuffle', buffer size, seed, second seed, whether
  each reading has another order), ('batch', size, whether it drops a shorter
  last one), ('map', function), ('cache',), ('prefetch',), ('options',). A
  negative count means all, or for ever.

  The result is None for any other dataset. Checked against TensorFlow 2.14.1
  and 2.21.0, which have no public way to get them.

  Args:
    dataset: A `tf.data.Dataset`.
  """
  # pylint: disable=protected-access
  steps = []
  while (name := type(dataset).__name__) != '_TensorSliceDataset':
    if name in ('_OptionsDataset', '_PrefetchDataset'):
      step = (name[1:].removesuffix('Dataset').lower(),)
    elif name in ('_RepeatDataset', '_TakeDataset', '_SkipDataset'):
      step = (name[1:].removesuffix('Dataset').lower(), int(dataset._count))
    elif name == '_ShuffleDataset':
      numbers = dataset._buffer_size, dataset._seed, dataset._seed2
      step = 'shuffle', *map(int, numbers), bool(
          dataset._reshuffle_each_iteration
      )
    elif name in ('_BatchDataset', '_ParallelBatchDataset'):
      step = 'batch', int(dataset._batch_size), bool(dataset._drop_remainder)
    elif name in ('_MapDataset', '_ParallelMapDataset'):
      step = 'map', dataset._map_func.function
    elif name == 'CacheDataset' and not dataset._filename.numpy():
      step = ('cache',)
    else:
      return None
    steps.append(step)
    (dataset,) = dataset._inputs()
  return list(dataset._tensors), steps[::-1]
  # pylint: enable=protected-access


def shuffled_dataset(dataset, buffer_size, seed, seed2, reshuffles: bool):
  """Returns `dataset.shuffle` with both seeds of a step of `steps_of_dataset`.

  Only one of the seeds is an argument of the public `shuffle`.

  Args:
    dataset: A `tf.data.Dataset` of tensors.
    buffer_size: First number of the step, a scalar tensor.
    seed: Second number, a scalar tensor.
    seed2: Third number, a scalar tensor.
    reshuffles: Whether each reading has another order.
  """
  import tensorflow as tf  # pylint: disable=g-import-not-at-top

  spec = dataset.element_spec
  variant = tf.raw_ops.ShuffleDatasetV3(
      input_dataset=tf.data.experimental.to_variant(dataset),
      buffer_size=buffer_size,
      seed=seed,
      seed2=seed2,
      seed_generator=tf.raw_ops.DummySeedGenerator(),
      reshuffle_each_iteration=reshuffles,
      output_types=[spec.dtype],
      output_shapes=[spec.shape],
  )
  return tf.data.experimental.from_variant(variant, spec)


def has_repeat(dataset) -> bool:
  """Returns whether a step of a dataset repeats others.

  `repeat(1)` repeats nothing. Functions of the steps are not searched. Checked
  against TensorFlow 2.14.1 and 2.21.0.

  Args:
    dataset: A `tf.data.Dataset`.
  """
  if type(dataset).__name__ == '_RepeatDataset':
    # pylint: disable-next=protected-access
    if int(dataset._count) != 1:
      return True
  inputs, _ = parts_of_dataset(dataset)
  return any(map(has_repeat, inputs))


def unordered_datasets(dataset) -> Iterator[str]:
  """Yields the names of operations that may change the order of a dataset.

  These are shuffles, random choices, Python code, and operations that need not
  keep the order: those with `deterministic=False`, as an argument or as an
  option. The search covers the steps of the dataset, and the graphs of the
  functions that the steps call, such as the function of a `map`. Two kinds of
  steps are always named, because they cannot be searched:

  * a parallel `interleave`. TensorFlow 2.14.1 and 2.21.0 do not keep its
    argument `deterministic`.
  * a step whose function uses a dataset from outside of the function.

  Checked against these two versions.

  Args:
    dataset: A `tf.data.Dataset`.
  """
  # The options of the datasets that it is made of are in it, too.
  if dataset.options().deterministic is False:
    yield 'Options.deterministic=False'
  yield from _unordered_steps(dataset)


def _unordered_steps(dataset) -> Iterator[str]:
  name = type(dataset).__name__
  unknown = 'false' if 'ParallelInterleave' in name else ''
  if (
      any(word in name for word in _NO_ORDER)
      # pylint: disable-next=protected-access
      or getattr(dataset, '_deterministic', unknown) == 'false'
  ):
    yield name
  inputs, functions = parts_of_dataset(dataset)
  for function in functions:
    if any(tensor.dtype.name == 'variant' for tensor in function.captured_inputs):
      yield f'{name} with a dataset from outside of its function'
    graph_def = function.graph.as_graph_def()
    nodes = [*graph_def.node]
    for inner in graph_def.library.function:
      nodes.extend(inner.node_def)
    for node in nodes:
      if 'PyFunc' in node.op:
        yield f'{name} with Python code'
      elif 'Dataset' in node.op and (
          any(word in node.op for word in _NO_ORDER)
          or node.attr['deterministic'].s == b'false'
          or _gives_up_order(node.attr['serialized_options'].s)
      ):
        yield node.op
  for part in inputs:
    yield from _unordered_steps(part)


def _gives_up_order(serialized: bytes) -> bool:
  protos = importlib.import_module(
      'tensorflow.core.framework.dataset_options_pb2'
  )
  options = protos.Options.FromString(serialized)
  return options.HasField('deterministic') and not options.deterministic


def loss_distribution(accountant):
  """Returns the privacy-loss distribution of all that was composed.

  Checked against dp_accounting 0.4.3 and 0.6.0, which have no public way to get
  it.

  Args:
    accountant: A `PLDAccountant` of dp_accounting.
  """
  return accountant._pld  # pylint: disable=protected-access


def invert_losses_at_once() -> None:
  """Makes dp_accounting invert the losses of Gaussian noise all at once.

  Its own code inverts them one grid point after the other, which takes most of
  the time of an epsilon. The distributions stay the same, up to rounding.
  Checked against dp_accounting 0.4.3 and 0.6.0.
  """
  pld = importlib.import_module('dp_accounting.pld.privacy_loss_mechanism')
  kind = pld.GaussianPrivacyLoss
  if 'get_delta_for_epsilon' in vars(kind):
    return
  one_by_one = kind.get_delta_for_epsilon

  def get_delta_for_epsilon(self, epsilon):
    both = pld.AdjacencyType.ADD, pld.AdjacencyType.REMOVE
    if self.adjacency_type not in both or not getattr(epsilon, 'shape', ()):
      return one_by_one(self, epsilon)
    is_plain, x = _inverted(self, epsilon, self.adjacency_type is both[0])
    np = importlib.import_module('numpy')
    deltas = np.empty(len(epsilon))
    deltas[is_plain] = self.mu_upper_cdf(x) - np.exp(
        epsilon[is_plain] + self.mu_lower_log_cdf(x)
    )
    deltas[~is_plain] = one_by_one(self, epsilon[~is_plain])
    return np.clip(deltas, 0, 1)

  kind.get_delta_for_epsilon = get_delta_for_epsilon


def _inverted(loss, losses, is_add: bool) -> tuple:
  """Returns (which losses are inverted, the largest x with each of these).

  It leaves out what dp_accounting treats on its own: the loss 0, losses near
  the end of the range, and those beyond.

  Args:
    loss: A `GaussianPrivacyLoss` of dp_accounting.
    losses: Float64 array of losses.
    is_add: Whether the loss is for adding a contribution, not for removing one.
  """
  np = importlib.import_module('numpy')
  sign = -1.0 if is_add else 1.0
  share = loss.sampling_prob
  is_plain, without = np.full(losses.shape, True), losses
  if share < 1:
    # The loss l without sampling solves exp(sign l) = exp(first) - exp(second)
    # = 1 + (exp(sign loss) - 1) / share.
    second = np.log(1 / share - 1)
    is_plain = (
        (losses != 0)
        & (np.log(1 / share) + sign * losses > second)
        & ~np.isclose(losses, sign * np.log1p(-share), rtol=1e-6, atol=0)
    )
    first = np.log(1 / share) + sign * losses[is_plain]
    without = sign * (first + np.log1p(-np.exp(second - first)))
  middle = -sign * 0.5 * loss.sensitivity
  found = middle - without * loss.standard_deviation**2 / loss.sensitivity
  return is_plain, found


def bound_convolutions_at_once() -> None:
  """Makes dp_accounting take one exponential for all of Chernoff's bounds.

  Its own code takes 40 exponentials of each loss before it composes a mechanism
  with itself. The bounds stay the same, up to rounding. Checked against
  dp_accounting 0.4.3 and 0.6.0.
  """
  common = importlib.import_module('dp_accounting.pld.common')
  one_by_one = common.compute_self_convolve_bounds
  if one_by_one.__module__ == __name__:
    return

  def compute_self_convolve_bounds(
      input_list, num_times, tail_mass_truncation=0, orders=None
  ):
    if orders is not None or not tail_mass_truncation:
      return one_by_one(input_list, num_times, tail_mass_truncation, orders)
    np = importlib.import_module('numpy')
    probs, size = np.asarray(input_list), len(input_list)
    low, high = 0, (size - 1) * num_times
    rest = np.log(2 / tail_mass_truncation)
    growth = np.exp(np.arange(size) / size)
    powers = np.ones(size)
    for order in range(1, 21):  # The orders of dp_accounting, times the size.
      powers *= growth
      above, below = (
          (num_times * np.log(probs @ each) + rest) * size / order
          for each in (powers, 1 / powers)
      )
      if np.isfinite(above):
        high = min(high, math.ceil(above))
      if np.isfinite(below):
        low = max(low, math.floor(-below))
    return low, high

  common.compute_self_convolve_bounds = compute_self_convolve_bounds


def loss_directions(distribution) -> tuple:
  """Returns the PMFs of a privacy-loss distribution: (remove, add).

  The result is (remove,) alone if both directions have the same PMF. Checked
  against dp_accounting 0.4.3 and 0.6.0, which have no public way to get them.

  Args:
    distribution: A `PrivacyLossDistribution` of dp_accounting.
  """
  # pylint: disable=protected-access
  if distribution._symmetric:
    return (distribution._pmf_remove,)
  return (distribution._pmf_remove, distribution._pmf_add)
  # pylint: enable=protected-access


def loss_masses(distribution) -> tuple:
  """Returns (lower, probs, infinite mass) of the losses, for each direction.

  `probs[i]` is the probability of a loss of `(lower + i)` grid intervals, and
  the infinite mass is the probability of an infinite loss. For the
  directions see `loss_directions`.

  Args:
    distribution: A `PrivacyLossDistribution` of dp_accounting.
  """
  # pylint: disable=protected-access
  dense = [pmf.to_dense_pmf() for pmf in loss_directions(distribution)]
  return tuple(
      (pmf._lower_loss, pmf._probs, pmf._infinity_mass) for pmf in dense
  )
  # pylint: enable=protected-access


def losses_of(pmf) -> tuple:
  """Returns (interval, points, probs, infinite mass) of a `PLDPmf`.

  Points and probs are arrays: `probs[i]` is the probability of a loss of
  `points[i]` grid intervals. The points increase. Checked against dp_accounting
  0.4.3 and 0.6.0.
  """
  np = importlib.import_module('numpy')
  # pylint: disable=protected-access
  if hasattr(pmf, '_loss_probs'):  # Its dense form may have very many points.
    pairs = sorted(pmf._loss_probs.items())
    points = np.array([point for point, _ in pairs], np.int64)
    probs = np.array([prob for _, prob in pairs], np.float64)
  else:
    probs = pmf._probs
    points = pmf._lower_loss + np.arange(len(probs))
  return pmf._discretization, points, probs, pmf._infinity_mass
  # pylint: enable=protected-access


def _minor(version: str) -> tuple[int, ...]:
  """Returns (major, minor), or () for a version we cannot read."""
  try:
    return tuple(int(part) for part in version.split('.')[:2])
  except ValueError:
    return ()


def _check_python() -> list[Finding]:
  """Returns two findings: the nearest column, and the version of Python."""
  expected = COLUMN.python_versions
  status, advice = Status.OK, ''
  if sys.version_info[:2] not in COLUMN.pythons:
    status = Status.BROKEN
    advice = (
        f'TensorFlow Federated {TFF} is tested on Python'
        f' {_columns.REFERENCE.python_versions},'
        f' {_columns.CURRENT.python_versions} only, and'
        ' on a newer Python pip silently installs an ancient TFF'
    )
  return [
      Finding('column', COLUMN.title, COLUMN.title, Status.OK),
      Finding('python', platform.python_version(), expected, status, advice),
  ]


def _check_platform() -> Finding:
  found = (platform.system(), platform.machine())
  status, advice = Status.OK, ''
  if found != PLATFORM:
    status = Status.BROKEN
    advice = (
        'TFF is built for Linux on x86_64 only; use WSL2 on Windows and a'
        ' linux/amd64 container on macOS'
    )
  return Finding(
      'platform', ' '.join(found), ' '.join(PLATFORM), status, advice
  )


def _check_tff() -> Finding:
  found = installed_version('tensorflow-federated')
  name = 'tensorflow-federated'
  if found is None:
    return Finding(name, _MISSING, TFF, Status.BROKEN)
  if _minor(found) < _minor(TFF):
    return Finding(
        name,
        found,
        TFF,
        Status.BROKEN,
        f'TFF {found} is too old; pip goes back to it when {TFF} does not fit'
        ' this Python',
    )
  if found != TFF:
    return Finding(
        name, found, TFF, Status.UNTESTED, f'only TFF {TFF} was tested'
    )
  return Finding(name, found, TFF, Status.OK)


def _check_jax_pair() -> list[Finding]:
  versions = {name: installed_version(name) for name in ('jax', 'jaxlib')}
  (expected,) = COLUMN.packages['jax']
  status, advice = Status.OK, ''
  missing = [name for name, version in versions.items() if version is None]
  if missing:
    status = Status.BROKEN
    advice = (
        'TFF imports jax and jaxlib, the tested pair is'
        f' {expected} and {expected} (the jaxlib 0.4.14 that TFF asks for is no'
        ' longer published)'
    )
  elif versions['jax'] != versions['jaxlib']:
    status = Status.BROKEN
    advice = (
        'jax and jaxlib must match; the tested pair is'
        f' {expected} and {expected}'
    )
  elif versions['jax'] != expected:
    status = Status.UNTESTED
    advice = f'only the pair {expected} and {expected} was tested'
  return [
      Finding(name, version or _MISSING, expected, status, advice)
      for name, version in versions.items()
  ]


def _check_packages() -> list[Finding]:
  findings = []
  for name, versions in COLUMN.packages.items():
    if name == 'jax':
      findings += _check_jax_pair()
    elif name != 'jaxlib':
      findings.append(_check_version(name, versions))
  findings += [
      Finding(name, _MISSING, 'any version', Status.BROKEN)
      for name in COLUMN.present
      if installed_version(name) is None
  ]
  return findings


def _check_version(distribution: str, versions: tuple[str, ...]) -> Finding:
  found, expected = installed_version(distribution), ' or '.join(versions)
  if found is None:
    return Finding(distribution, _MISSING, expected, Status.BROKEN)
  if _minor(found) not in map(_minor, versions):
    return Finding(
        distribution,
        found,
        expected,
        Status.UNTESTED,
        f'only {distribution} {expected} was tested',
    )
  return Finding(distribution, found, expected, Status.OK)


def _check_worker_binary() -> Finding:
  path, expected = worker_binary(), 'an executable file'
  if path is None:
    return Finding('worker_binary', 'no TFF', expected, Status.BROKEN)
  if not path.is_file():
    return Finding(
        'worker_binary',
        'missing',
        expected,
        Status.BROKEN,
        f'this TFF has no {path}, so its installation is incomplete',
    )
  if not os.access(path, os.X_OK):
    return Finding(
        'worker_binary',
        'not executable',
        expected,
        Status.BROKEN,
        f'run `chmod +x {path}`; if that fails, its file system forbids'
        ' programs',
    )
  return Finding('worker_binary', 'executable', expected, Status.OK)


def check_environment() -> list[Finding]:
  """Returns the findings about this environment, without importing a package.

  It reads which packages are installed. `require_tff` and `tff-dp doctor` find
  out whether they also load. A package that may have any version has a finding
  only if it is missing.
  """
  return [
      *_check_python(),
      _check_platform(),
      _check_tff(),
      *_check_packages(),
      *([_check_worker_binary()] if COLUMN.has_worker else []),
  ]


def causes(findings: list[Finding]) -> str:
  """Returns text that names each broken item once, '' if none is broken.

  If Python or the platform is wrong, the text names nothing else.
  """
  broken = [finding for finding in findings if finding.status is Status.BROKEN]
  # With a wrong Python or platform the rest can only be broken, too.
  roots = [finding for finding in broken if finding.name in _ROOT_CAUSES]
  missing = [finding.name for finding in broken if finding.found == _MISSING]
  # The two halves of the jax pair give the same advice.
  advice = dict.fromkeys(finding.advice for finding in roots or broken)
  listed = f'not installed: {", ".join(missing)}'
  return '; '.join(
      filter(None, [listed if missing and not roots else '', *advice])
  )


def explain(findings: list[Finding]) -> str:
  """Returns what is broken and the recipe, in a sentence or two."""
  broken = causes(findings)
  if not broken:
    return f'To get the tested set: {RECIPE}.'
  return f'Cause: {broken}. To fix it: {RECIPE}.'


def require_tff():
  """Returns the `tensorflow_federated` module, imported quietly.

  Packages that need TFF call this first. A user with a wrong Python, no TFF or
  a broken jax pair then reads one sentence instead of a foreign traceback. A
  TFF that imports is never refused because of its metadata, except if it is
  older than the tested one.

  Raises:
    BrokenEnvironmentError: If TFF cannot be imported, is half loaded or too
      old, or if `tf.keras` is Keras 3.
  """
  prepare_imports()
  _refuse_half_loaded_tff()
  try:
    with _quiet.without_noise():
      tff = importlib.import_module('tensorflow_federated')
  except Exception as error:  # pylint: disable=broad-except
    # A broken jax or numpy raises anything from ImportError to AttributeError.
    raise BrokenEnvironmentError(
        'tff_dp cannot load TensorFlow Federated'
        f' ({type(error).__name__}: {error}). {explain(check_environment())}'
    ) from error
  version = getattr(tff, '__version__', '0')
  if _minor(version) < _minor(TFF):
    raise BrokenEnvironmentError(
        f'tff_dp needs TensorFlow Federated {TFF}, found {version}. '
        + explain(check_environment())
    )
  if COLUMN.needs_shim:
    _require_legacy_keras()
    _explain_keras3()
  _let_wrapped_dicts_be_saved()
  _read_types_once()
  _forget_worker_at_exit()
  _context_of_import()
  _explain_missing_context()
  return tff


def _refuse_half_loaded_tff() -> None:
  """Raises if an earlier import of TFF failed and left parts of it loaded."""
  if 'tensorflow_federated' not in sys.modules and any(
      name.startswith('tensorflow_federated.') for name in sys.modules
  ):
    raise BrokenEnvironmentError(
        'tensorflow_federated was imported before tff_dp, and that failed. In a'
        ' new process (in a notebook: Runtime > Restart session), import tff_dp'
        ' first.'
    )


def _require_legacy_keras() -> None:
  keras = importlib.import_module('tensorflow').keras
  if keras.Model.__module__.startswith('keras.'):
    raise BrokenEnvironmentError(
        'tf.keras is Keras 3 here, but TFF needs Keras 2. In a new process (in a'
        ' notebook: Runtime > Restart session) import tff_dp before anything'
        ' that uses tf.keras, or set TF_USE_LEGACY_KERAS=1 before Python starts.'
    )


def is_keras3_model(value: object) -> bool:
  """Returns whether a value is a model of Keras 3, without importing Keras."""
  return any(
      each.__name__ == 'Model' and each.__module__.startswith('keras.src.models')
      for each in type(value).__mro__
  ) and hasattr(value, 'stateless_call')


@functools.cache
def _explain_keras3() -> None:
  """Lets TFF's errors about a Keras 3 model refer to our function for it.

  TFF's own errors say only that another type is expected. Checked with TFF
  0.87.0.
  """
  models = importlib.import_module('tensorflow_federated').learning.models
  for name in ('from_keras_model', 'functional_model_from_keras'):
    setattr(models, name, _refusing_keras3(name, getattr(models, name)))


def _refusing_keras3(name: str, function: Callable):
  @functools.wraps(function)
  def refusing(keras_model, *arguments, **named):
    if is_keras3_model(keras_model):
      raise TypeError(
          f'tff.learning.models.{name} takes models of Keras 2 (here tf.keras),'
          f' but {keras_model.name} is a model of Keras 3: use'
          ' tff_dp.learning.functional_model_from_keras3'
      )
    return function(keras_model, *arguments, **named)

  return refusing


@functools.cache
def _let_wrapped_dicts_be_saved() -> None:
  """Lets TensorFlow 2.14 save states if a new typing_extensions is installed.

  Saving a module asks whether its dicts, which TensorFlow wraps, are instances
  of a protocol. Up to version 4.5, which TFF pins, typing_extensions answers
  that with `hasattr`. From 4.6 on, which Jupyter brings, it reads `__dict__`
  first, and the wrapper raises a TypeError there. So from 4.6 on, this function
  brings back the answer by `hasattr`. Checked with typing_extensions 4.5.0 and
  4.16.0.
  On Python 3.11 no other protocol that TensorFlow 2.14 checks comes from
  typing_extensions.
  """
  protocol = private_tensorflow('trace').SupportsTracingProtocol
  # pylint: disable-next=protected-access
  wrapped = private_tensorflow('data_structures')._DictWrapper({})
  try:
    isinstance(wrapped, protocol)
    return
  except TypeError:
    pass

  class Lenient(type(protocol)):

    def __instancecheck__(cls, instance):
      try:
        return super().__instancecheck__(instance)
      except TypeError:
        return hasattr(instance, '__tf_tracing_type__')

  protocol.__class__ = Lenient


@functools.cache
def _read_types_once() -> None:
  """Makes TFF keep the last 4,096 types that it has read from computations.

  A computation has the type of each of its building blocks, and a type has the
  types of its parts. TFF reads all of them anew whenever it turns a computation
  into building blocks. It makes the same objects of them, because a type cannot
  change, and equal types are one object.
  """
  module = private_tff('type_serialization')
  read = module.deserialize_type

  @functools.lru_cache(maxsize=4096)
  def read_once(serialized: bytes):
    return read(module.pb.Type.FromString(serialized))

  @functools.wraps(read)
  def deserialize_type(type_proto):
    return read_once(type_proto.SerializeToString(deterministic=True))

  module.deserialize_type = deserialize_type


@functools.cache
def _forget_worker_at_exit() -> None:
  """Drops TFF's default context while its `__del__` can still run.

  Otherwise `__del__` may run after `subprocess` is torn down, and print a
  traceback when Python ends. In Python 3.13 it always does.
  """
  atexit.register(private_tff('default_context').set_no_default_context)


def _see_context_of_import() -> None:
  """Remembers the context that TFF installs, unless TFF is half loaded."""
  if hasattr(sys.modules['tensorflow_federated'], 'framework'):
    _context_of_import()


@functools.cache
def _context_of_import() -> weakref.ReferenceType:
  """Returns a weak reference to the context that TFF had when we first saw it.

  TFF gives the thread that imports it a context on its own worker, and all
  other threads one that refuses to compute.
  """
  stack = importlib.import_module(
      'tensorflow_federated'
  ).framework.get_context_stack()
  return weakref.ref(stack.current)


def is_context_chosen() -> bool:
  """Returns whether somebody has set a context for this thread."""
  stack = importlib.import_module(
      'tensorflow_federated'
  ).framework.get_context_stack()
  return stack.current is not _context_of_import()() and not isinstance(
      stack.current, private_tff('no_context').RuntimeErrorContext
  )


@functools.cache
def watch_default_context(replaced: Callable[[object, object], None]) -> None:
  """Calls `replaced(previous, new)` when a thread's default context changes.

  TFF's own functions change the default context silently.

  Args:
    replaced: Function that is called in that thread, after the change.
  """
  stack = importlib.import_module(
      'tensorflow_federated'
  ).framework.get_context_stack()
  kind = type(stack)
  set_default_context = kind.set_default_context

  @functools.wraps(set_default_context)
  def watched(self, context):
    previous = self._stack[0]
    set_default_context(self, context)
    replaced(previous, context)

  kind.set_default_context = watched


@functools.cache
def _explain_missing_context() -> None:
  """Makes the error of a thread without a context say what to do.

  TFF 0.87's own message says that this cannot happen, and names a function that
  does not exist.
  """

  def explain(_):
    raise RuntimeError(
        'there is no context to compute in: TFF keeps contexts per thread, and'
        f' the thread {threading.current_thread().name!r} has none. Call'
        ' tff_dp.execution.set_default_context() in it, before its first'
        ' computation.'
    )

  refusing = private_tff('no_context').RuntimeErrorContext
  refusing._raise_runtime_error = explain  # pylint: disable=protected-access
