# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a silo brings to its process besides records: its own constants.

Silos are anonymous and stateless in a TFF computation, so the constants travel
with the records, in the silo's own data, and never in a broadcast: a server
cannot lower a silo's noise, raise its clip norm or change its batch.

A run has one phase, or several that use disjoint records (localisation).
Constants of phases are vectors, one number for each.
"""

import collections
from collections.abc import Mapping
import dataclasses
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import _compat
from tff_dp import _failures
from tff_dp.accounting.silos import silo_calibration
from tff_dp.accounting.silos import silo_events
from tff_dp.accounting.silos import silo_sampling

EXAMPLES = 'examples'
TERMS = 'terms'


@dataclasses.dataclass(frozen=True)
class Phase:
  """Rounds of a silo that draw from one range of its records.

  Attributes:
    sampling: How a round chooses records.
    first_record: Where the range begins; positions are 0-based.
    num_records: Length of the range.
    num_rounds: Rounds of the phase; steps, for local SGD.
    noise_stddev: sigma, per coordinate of the silo's mean gradient, before
      `SiloTerms.scale`.
    accounted_stddev: The sigma that is accounted: smaller where metrics are
      released beside the gradient, see `metrics`; `None` for `noise_stddev`.
  """

  sampling: silo_sampling.Sampling
  first_record: int
  num_records: int
  num_rounds: int
  noise_stddev: float
  accounted_stddev: Optional[float] = None

  def __post_init__(self):
    _checks.integer_at_least(0, first_record=self.first_record)
    _checks.integer_at_least(1, num_records=self.num_records)
    _checks.integer_at_least(1, num_rounds=self.num_rounds)
    _checks.non_negative(noise_stddev=self.noise_stddev)
    self.sampling.check(
        num_records=self.num_records, num_rounds=self.num_rounds
    )

  @property
  def batch_size(self) -> float:
    """K of its sampling, by which sums over a batch are divided."""
    return self.sampling.batch_size

  def event(
      self, round_in_phase: int, l2_norm_clip: float, scale: float
  ) -> silo_events.SiloEvent:
    """Returns what one round costs the silo.

    Args:
      round_in_phase: 0-based.
      l2_norm_clip: C.
      scale: Of the message.
    """
    first = self.first_record
    if isinstance(self.sampling, silo_sampling.DisjointBlocks):
      first += round_in_phase * self.sampling.batch
    return silo_events.SiloEvent(
        sampling=self.sampling,
        num_records=self.num_records,
        l2_norm_clip=l2_norm_clip,
        sigma=self.sigma,
        scale=scale,
        first_record=first,
    )

  @property
  def sigma(self) -> float:
    """The noise that is accounted."""
    if self.accounted_stddev is None:
      return self.noise_stddev
    return self.accounted_stddev


@dataclasses.dataclass(frozen=True)
class SiloTerms:
  """The constants of one silo. Public: they follow from sizes and budgets.

  Attributes:
    num_records: Training records n_i.
    l2_norm_clip: C, to which the silo clips the gradient of every record.
    phases: In order.
    scale: Factor on the whole message, noise included: N p_i for an objective
      sum p_i F_i.
    metric_stddevs: Noise on the silo's mean of each private metric, by phase.
  """

  num_records: int
  l2_norm_clip: float
  phases: tuple[Phase, ...]
  scale: float = 1.0
  metric_stddevs: tuple[tuple[float, ...], ...] = ()

  def __post_init__(self):
    _checks.integer_at_least(1, num_records=self.num_records)
    _checks.clip_norm(l2_norm_clip=self.l2_norm_clip)
    _checks.positive(scale=self.scale)
    end = 0
    for phase in self.phases:
      if phase.first_record < end:
        raise _checks.ArgumentError(
            'first_record', phase.first_record, f'at least {end}: phases use'
            ' disjoint records'
        )
      end = phase.first_record + phase.num_records
    if not 0 < end <= self.num_records:
      raise _checks.ArgumentError(
          'phases', end, f'phases within the {self.num_records} records'
      )

  @property
  def num_rounds(self) -> int:
    """Rounds of all phases."""
    return sum(phase.num_rounds for phase in self.phases)

  def event(self, round_index: int) -> silo_events.SiloEvent:
    """Returns what one round of the run costs the silo.

    Args:
      round_index: 0-based.
    """
    _checks.integer_between(0, self.num_rounds - 1, round_index=round_index)
    phase_of, round_in_phase = phase_table(self.phases)
    phase = self.phases[phase_of[round_index]]
    return phase.event(
        int(round_in_phase[round_index]), self.l2_norm_clip, self.scale
    )

  def events(self) -> dict[silo_events.SiloEvent, int]:
    """Returns how often each event occurs in the whole run."""
    counts = collections.Counter()
    for phase in self.phases:
      of_round = lambda r, phase=phase: phase.event(
          r, self.l2_norm_clip, self.scale
      )
      if of_round(0).is_block:
        counts.update(of_round(r) for r in range(phase.num_rounds))
      else:
        counts[of_round(0)] += phase.num_rounds
    return dict(counts)

  def epsilon(self, delta: float, *, conservative: bool = False) -> float:
    """Returns what the whole run costs a record. Upper bound.

    Phases use disjoint records, so it is the maximum over them.

    Args:
      delta: In (0, 1).
      conservative: As in `silo_sampling`.
    """
    return max(
        silo_calibration.account_noise(
            phase.sampling,
            num_records=phase.num_records,
            num_rounds=phase.num_rounds,
            l2_norm_clip=self.l2_norm_clip,
            sigma=phase.sigma,
            delta=delta,
            conservative=conservative,
        )
        for phase in self.phases
    )

  def as_element(self) -> collections.OrderedDict:
    """Returns the constants as the arrays that `element_type` describes."""

    def column(name, dtype):
      return np.array([getattr(phase, name) for phase in self.phases], dtype)

    return collections.OrderedDict(
        num_records=np.int64(self.num_records),
        l2_norm_clip=np.float64(self.l2_norm_clip),
        scale=np.float64(self.scale),
        first_record=column('first_record', np.int64),
        phase_records=column('num_records', np.int64),
        phase_rounds=column('num_rounds', np.int64),
        batch=column('batch_size', np.float64),
        noise_stddev=column('noise_stddev', np.float64),
        metric_stddevs=np.array(
            self.metric_stddevs or [()] * len(self.phases), np.float64
        ),
    )


def element_type(
    num_phases: int, num_metrics: int, *, has_debug_key: bool
) -> tff.Type:
  """Returns the type of `SiloTerms.as_element`."""
  vector = tff.TensorType(np.float64, [num_phases])
  integers = tff.TensorType(np.int64, [num_phases])
  fields = collections.OrderedDict(
      num_records=tff.TensorType(np.int64),
      l2_norm_clip=tff.TensorType(np.float64),
      scale=tff.TensorType(np.float64),
      first_record=integers,
      phase_records=integers,
      phase_rounds=integers,
      batch=vector,
      noise_stddev=vector,
      metric_stddevs=tff.TensorType(np.float64, [num_phases, num_metrics]),
  )
  if has_debug_key:
    fields['debug_key'] = tff.TensorType(np.int64, [2])
  return tff.to_type(fields)


def data_type(
    input_spec, num_phases: int, num_metrics: int, *, has_debug_key: bool
) -> tff.Type:
  """Returns the type of a silo's data: records, and one element of terms."""
  return tff.to_type(
      collections.OrderedDict({
          EXAMPLES: tff.SequenceType(tff.types.tensorflow_to_type(input_spec)),
          TERMS: tff.SequenceType(
              element_type(
                  num_phases, num_metrics, has_debug_key=has_debug_key
              )
          ),
      })
  )


def silo_data(
    terms: SiloTerms, examples: Any, debug_key: Optional[np.ndarray] = None
) -> collections.OrderedDict:
  """Returns what a silo brings to every round.

  Args:
    terms: Its constants.
    examples: Its batched records, or a list of batches, in an order that never
      changes: positions in it say which records belong to which block.
    debug_key: For tests only.
  """
  # Where positions say what a record pays for.
  if len(terms.phases) > 1 or isinstance(
      terms.phases[0].sampling, silo_sampling.DisjointBlocks
  ):
    _check_order(examples)
  element = terms.as_element()
  if debug_key is not None:
    element['debug_key'] = np.asarray(debug_key, np.int64)
  return collections.OrderedDict({EXAMPLES: examples, TERMS: [element]})


def _check_order(examples: Any) -> None:
  """Raises for a dataset that may come in another order in every round.

  Blocks are positions. In another order, one record is in several of them, and
  pays for one.

  Args:
    examples: A dataset, also one inside of which others are made, or a list.
  """
  if not isinstance(examples, tf.data.Dataset):
    return
  unordered = sorted(set(_compat.unordered_datasets(examples)))
  if unordered:
    raise _checks.ArgumentError(
        'examples',
        ', '.join(unordered),
        'records in an order that never changes, since every round takes the'
        ' next block of them: leave out shuffle(), which may give another order'
        ' in every round, and deterministic=False; shuffle once, before the'
        ' records are stored',
    )


def read(elements, *, l2_norm_clip: float) -> Mapping[str, tf.Tensor]:
  """Returns the one element of a silo's terms; running it checks the clip norm.

  Args:
    elements: The sequence, inside of the silo's graph.
    l2_norm_clip: The process's; a silo with noise for a smaller one refuses.
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
  """Returns the terms with every vector replaced by its number of one phase."""
  names = (
      'first_record',
      'phase_records',
      'phase_rounds',
      'batch',
      'noise_stddev',
      'metric_stddevs',
  )
  return dict(terms) | {name: terms[name][phase] for name in names}


def phase_table(phases: tuple[Phase, ...]) -> tuple[np.ndarray, np.ndarray]:
  """Returns (phase, round within it) of every round of a run, both 0-based."""
  lengths = [phase.num_rounds for phase in phases]
  return (
      np.repeat(np.arange(len(lengths)), lengths),
      np.concatenate([np.arange(length) for length in lengths]),
  )
