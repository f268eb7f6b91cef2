# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A silo's constants and key, which it provides together with its records.

Silos are anonymous and stateless in a TFF computation. So the constants travel
with the records, in the silo's own data, and never in a broadcast. A server
cannot lower a silo's noise, raise its clip norm or change its batch.

Constants of phases are vectors with one number per phase. `metric_stddevs` has
one row per phase.

The key is the secret from which coins and noise of the silo follow. If the key
is all zeros, the silo asks the kernel of its machine for a new one in every
call.
"""

import collections
from collections.abc import Mapping
import hashlib
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import _compat_tensorflow
from tff_dp import _failures
from tff_dp.systems.silos import silo_sampling
from tff_dp.systems.silos import silo_terms

EXAMPLES = 'examples'
TERMS = 'terms'
KEY = 'key'
_NO_KEY = (0, 0)
# Steps of datasets that keep the tensors which they get, and their order.
_FIXED_STEPS = ('batch', 'cache', 'options', 'prefetch', 'skip', 'take')
# Constants of phases -> (attribute of a `Phase`, type).
_OF_PHASES = {
    'first_record': ('first_record', np.int64),
    'phase_records': ('num_records', np.int64),
    'batch': ('batch_size', np.float64),
    'noise_stddev': ('noise_stddev', np.float64),
}


def as_element(
    terms: silo_terms.SiloTerms, key: np.ndarray
) -> collections.OrderedDict:
  """Returns constants and key as the arrays that `element_type` describes."""
  return collections.OrderedDict(
      num_records=np.int64(terms.num_records),
      l2_norm_clip=np.float64(terms.l2_norm_clip),
      scale=np.float64(terms.scale),
      **{
          name: np.array([getattr(phase, of) for phase in terms.phases], dtype)
          for name, (of, dtype) in _OF_PHASES.items()
      },
      metric_stddevs=np.array(
          terms.metric_stddevs or [()] * len(terms.phases), np.float64
      ),
      key=np.asarray(key, np.int64),
  )


def element_type(num_phases: int, num_metrics: int) -> tff.Type:
  """Returns the type of `as_element`."""
  return tff.to_type(collections.OrderedDict(
      num_records=np.int64,
      l2_norm_clip=np.float64,
      scale=np.float64,
      **{
          name: (dtype, [num_phases])
          for name, (_, dtype) in _OF_PHASES.items()
      },
      metric_stddevs=(np.float64, [num_phases, num_metrics]),
      key=(np.int64, [2]),
  ))


def data_type(input_spec, num_phases: int, num_metrics: int) -> tff.Type:
  """Returns the type of a silo's data: records, and one element of terms.

  Args:
    input_spec: Spec of a batch of records.
    num_phases: Number of phases of the run.
    num_metrics: Number of private metrics.
  """
  return tff.to_type(
      collections.OrderedDict({
          EXAMPLES: tff.SequenceType(tff.types.tensorflow_to_type(input_spec)),
          TERMS: tff.SequenceType(element_type(num_phases, num_metrics)),
      })
  )


def silo_data(
    terms: silo_terms.SiloTerms,
    examples: Any,
    key: Optional[np.ndarray] = None,
) -> collections.OrderedDict:
  """Returns the data of a silo for every round.

  Args:
    terms: Constants of the silo.
    examples: Batched records, or a list of batches, in an order that never
      changes. The position of a record determines its block.
    key: Secret key of the silo, int64 of shape [2], the same in every round, so
      that a repeated round repeats its message. `None` for a new one in every
      call.

  Raises:
    ArgumentError: If `examples` is a dataset with `repeat`. Or if the records
      are used in blocks or phases, and `examples` is a dataset whose order may
      change, such as one with a random operation in the function of a `map`.
  """
  _check_no_repeats(examples)
  if needs_order(terms):
    _check_order(examples, is_read_once=False)
  element = as_element(terms, _NO_KEY if key is None else key)
  return collections.OrderedDict({EXAMPLES: examples, TERMS: [element]})


def needs_order(terms: silo_terms.SiloTerms) -> bool:
  """Returns whether the position of a record determines its privacy loss."""
  return len(terms.phases) > 1 or isinstance(
      terms.phases[0].sampling, silo_sampling.DisjointBlocks
  )


def read_once(examples: Any) -> Any:
  """Returns records that are the same, in the same order, whenever read.

  A dataset of tensors in memory whose steps only cut and batch them is returned
  as it is. From any other dataset, all batches are read, so a random operation
  in a `map` draws once. The arrays of a list are copied, because their owner
  may change them.

  Args:
    examples: Batched records, or a list of batches.

  Raises:
    ArgumentError: If `examples` is a dataset with `repeat`, or with a step that
      may give up the order, such as `shuffle`.
  """
  _check_no_repeats(examples)
  _check_order(examples, is_read_once=True)
  if not isinstance(examples, tf.data.Dataset):
    return [tf.nest.map_structure(_copied, batch) for batch in examples]
  found = _compat_tensorflow.steps_of_dataset(examples)
  if found is not None and all(step[0] in _FIXED_STEPS for step in found[1]):
    return examples
  return list(examples)


def _copied(part: Any) -> Any:
  return part.copy() if isinstance(part, np.ndarray) else part


def digest_of_records(examples: Any) -> tuple[str, int | None]:
  """Returns a hash of all records in their order, which is secret, and a count.

  The count is `None` if the parts of the batches differ in it.

  Args:
    examples: Batched records. The sizes of the batches do not matter.
  """
  columns = collections.defaultdict(hashlib.sha256)
  counts = collections.Counter()
  for batch in examples:
    parts = tf.nest.flatten(batch, expand_composites=True)
    for number, part in enumerate(parts):
      column = np.asarray(part)
      counts[number] += column.shape[0] if column.ndim else 1
      if column.dtype.hasobject:
        column = np.array([
            hashlib.sha256(tf.compat.as_bytes(text)).digest()
            for text in column.ravel()
        ])
      columns[number].update(column.tobytes())
  digests = b''.join(column.digest() for column in columns.values())
  found = set(counts.values()) or {0}
  num_records = found.pop() if len(found) == 1 else None
  return hashlib.sha256(digests).hexdigest(), num_records


def _check_no_repeats(examples: Any) -> None:
  """Raises `ArgumentError` for a dataset that brings its records again.

  Sampling and accounting count each element as a record of its own. Only
  `repeat` is found: `concatenate` and `interleave` may join other records.

  Args:
    examples: A dataset, or a list.
  """
  is_dataset = isinstance(examples, tf.data.Dataset)
  if is_dataset and _compat_tensorflow.has_repeat(examples):
    raise _checks.ArgumentError(
        'examples',
        'a dataset with repeat()',
        'each record once, since each counts as a record of its own: leave out'
        ' repeat(); more rounds or another sampling give more passes',
    )


def _check_order(examples: Any, *, is_read_once: bool) -> None:
  """Raises `ArgumentError` for a dataset whose order may change between rounds.

  Blocks are positions. If the order changes, one record may be in several
  blocks, but the accounting counts one.

  Args:
    examples: A dataset, or a list, which has an order.
    is_read_once: Whether all rounds use the records of one reading. Then random
      operations in functions are allowed. Else they cannot be told from a
      shuffle.
  """
  if not isinstance(examples, tf.data.Dataset):
    return
  unordered = set(_compat_tensorflow.unordered_datasets(examples))
  if not is_read_once:
    unordered |= set(_compat_tensorflow.stateful_operations(examples))
  if unordered:
    raise _checks.ArgumentError(
        'examples',
        ', '.join(sorted(unordered)),
        'records in an order that never changes, since every round takes the'
        ' next block of them: leave out shuffle(), which may give another order'
        ' in every round, deterministic=False, and Python code such as'
        ' from_generator(), whose order nobody can see; leave out random'
        ' operations in functions of map() and other steps, which may move'
        ' records, too; shuffle and augment once, before the records are'
        ' stored, and pass arrays or a list of batches',
    )


def read(elements, *, l2_norm_clip: float) -> Mapping[str, tf.Tensor]:
  """Returns the one element of a silo's terms, after a check of the clip norm.

  Args:
    elements: Sequence of terms, inside of the silo's graph.
    l2_norm_clip: Clip norm of the process. If it exceeds the clip norm in the
      terms, running the graph fails.
  """
  # Running it fails unless there is exactly one element.
  terms = elements.get_single_element()
  allowed = tf.debugging.assert_less_equal(
      tf.constant(l2_norm_clip, tf.float64),
      terms['l2_norm_clip'],
      message=_failures.assertion(
          'the clip norm of the process is above the one that this silo'
          ' calibrated its noise for'
      ),
  )
  with tf.control_dependencies([allowed]):
    return tf.nest.map_structure(tf.identity, terms)


def of_phase(terms: Mapping[str, tf.Tensor], phase: tf.Tensor):
  """Returns the terms of one phase.

  A constant with one entry per phase is replaced by the entry of this phase.

  Args:
    terms: Terms of the silo, see `read`.
    phase: Index of the phase, from 0.
  """
  names = (*_OF_PHASES, 'metric_stddevs')
  return dict(terms) | {name: terms[name][phase] for name in names}
