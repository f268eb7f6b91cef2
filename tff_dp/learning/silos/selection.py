# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which records of a silo a round uses, decided inside of the silo.

The coins come from the silo's secret key of the round: amplification by
sampling holds only as long as nobody else knows them. Disjoint blocks need no
coins: their privacy rests on no record being used twice.
"""

import tensorflow as tf

from tff_dp import streams
from tff_dp.accounting.silos import silo_sampling


def mask(sampling_type: type, terms, round_in_phase, key) -> tf.Tensor:
  """Returns which of the silo's records take part, bool of shape [num_records].

  Args:
    sampling_type: `PoissonSampling`, `FixedSize` or `DisjointBlocks`.
    terms: Of the phase, see `terms.of_phase`.
    round_in_phase: 0-based.
    key: Secret, int64 of shape [2]; must serve for nothing else.
  """
  num_records = terms['phase_records']
  in_phase = {
      silo_sampling.PoissonSampling: _poisson,
      silo_sampling.FixedSize: _fixed_size,
      silo_sampling.DisjointBlocks: _block,
  }[sampling_type](num_records, terms['batch'], round_in_phase, key)
  rest = terms['num_records'] - terms['first_record'] - num_records
  return tf.pad(in_phase, [[terms['first_record'], rest]])


def _poisson(num_records, batch, round_in_phase, key):
  """Every record on its own with probability K / n, exact to 2^-52."""
  del round_in_phase
  uniform = streams.uniforms([num_records], key, tf.float64)
  return uniform < batch / tf.cast(num_records, tf.float64)


def _fixed_size(num_records, batch, round_in_phase, key):
  """K distinct records, every set of them equally likely."""
  del round_in_phase
  ranks = streams.bits([num_records], key)
  chosen = tf.argsort(ranks)[: tf.cast(batch, tf.int32)]
  return tf.scatter_nd(
      chosen[:, tf.newaxis],
      tf.ones_like(chosen, tf.bool),
      tf.stack([tf.cast(num_records, tf.int32)]),
  )


def _block(num_records, batch, round_in_phase, key):
  """Positions r K .. (r + 1) K - 1."""
  del key
  positions = tf.range(num_records)
  return tf.equal(positions // tf.cast(batch, tf.int64), round_in_phase)
