# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The operations of local randomizers, as pure TensorFlow functions.

`build(randomizer, num_params)` returns the client's side (clip, then randomize)
and the server's side (an unbiased estimate of the clipped update from a
report). All randomness follows from a key, and a key is used for one report.

The key of a report follows from the client's secret key, from the randomizer,
from the round and from the clipped update itself. So a round that is repeated
on the same data repeats its report bit for bit, which reveals nothing new. If
the data or the model differ, all of the noise differs, too. With equal noise,
the difference of two reports would be the difference of two updates without any
noise, and an untrusted server could request it.
"""

import abc
from typing import Optional

import tensorflow as tf

from tff_dp import _checks
from tff_dp import streams
from tff_dp.aggregators import clipping
from tff_dp.aggregators import release_marks
from tff_dp.mechanisms import randomizers

# The purpose of the keys, to which the randomizer's description is added.
_DOMAIN = 'local noise'
# Independent parts of one report.
_DIRECTION, _ROUNDING, _COIN, _NOISE = range(4)
_LEAST_INT64 = -(2**63)


class ClientRandomizer(abc.ABC):
  """The operations of one randomizer on vectors of one length.

  Attributes:
    randomizer: Public description of the randomizer.
    num_params: Length d of the vectors.
  """

  # Part of the purpose of the keys. It changes if the same keys would give
  # other reports, because two different reports must not share a coin.
  _version = ''

  def __init__(self, randomizer: randomizers.LocalRandomizer, num_params: int):
    _checks.integer_at_least(1, num_params=num_params)
    self.randomizer = randomizer
    self.num_params = num_params
    self._domain = f'{_DOMAIN}|{randomizer!r}|{num_params}{self._version}'

  @property
  @abc.abstractmethod
  def report_spec(self) -> tf.TensorSpec:
    """The spec of one report."""

  @property
  def report_scale(self) -> Optional[float]:
    """Size of the numbers in a report: clip norm plus noise scale.

    `None` if reports cannot be added up. A report is then a few integers, which
    the server turns into a vector.
    """
    return None

  @abc.abstractmethod
  def clip(self, update: tf.Tensor) -> tf.Tensor:
    """Returns the clipped update, or zeros if its norm is not finite."""

  @abc.abstractmethod
  def draw_report(self, clipped: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """Returns the report. `key` must not be used for anything else."""

  @abc.abstractmethod
  def estimate(self, report: tf.Tensor) -> tf.Tensor:
    """Returns the unbiased estimate of the clipped update, float32 [d]."""

  def randomize(self, update: tf.Tensor, client_key: tf.Tensor, round_index=0):
    """Returns the report of one client. Nothing else may leave the client.

    Args:
      update: Unbounded update, float32 of shape [num_params], may hold NaNs.
      client_key: Secret key of the client, int64 of shape [2].
      round_index: Number of the round, an integer. It gives each round of a
        client a key of its own.
    """
    clipped = self.clip(tf.ensure_shape(update, [self.num_params]))
    key = streams.fold_in(
        streams.domain_key(client_key, self._domain), round_index
    )
    key = streams.fold_in(key, streams.digest(clipped))
    return release_of(self.randomizer).mark(self.draw_report(clipped, key))


class _Additive(ClientRandomizer):
  """Randomizers whose report is the clipped vector plus noise."""

  @property
  def report_spec(self):
    return tf.TensorSpec([self.num_params], tf.float32)

  def estimate(self, report):
    return report


class _Gaussian(_Additive):
  """The report is the clipped update plus `stddev` times standard normals."""

  @property
  def report_scale(self):
    return self.randomizer.stddev + self.randomizer.l2_norm_clip

  def clip(self, update):
    return clipping.clip(update, self.randomizer.l2_norm_clip)[0]

  def draw_report(self, clipped, key):
    noise = streams.normals([self.num_params], streams.fold_in(key, _NOISE))
    return clipped + self.randomizer.stddev * noise


class _Laplace(_Additive):
  """The report is the clipped update plus Laplace draws of scale `scale`."""

  @property
  def report_scale(self):
    return self.randomizer.scale + self.randomizer.l1_norm_clip

  def clip(self, update):
    return _clip_l1(update, self.randomizer.l1_norm_clip)

  def draw_report(self, clipped, key):
    noise = streams.laplace(
        [self.num_params], streams.fold_in(key, _NOISE)
    )
    return clipped + tf.cast(self.randomizer.scale * noise, tf.float32)


class _Sphere(ClientRandomizer):
  """The report is the seed of a random direction and a sign, as three int64.

  `streams.directions` expands the seed, at the client and at the server. Its
  numbers are not exactly normal, so the mean of the estimate is off by at
  most about 2e-6 of the clipped update. No guarantee rests on them.
  """

  _version = '|directions 2'

  @property
  def report_spec(self):
    return tf.TensorSpec([3], tf.int64)

  def clip(self, update):
    return clipping.clip(update, self.randomizer.l2_norm_clip)[0]

  def draw_report(self, clipped, key):
    seed = streams.fold_in(key, _DIRECTION)
    direction = self._direction(seed)
    norm = tf.norm(clipped)
    # Only the sign of <z, v> counts, so the lengths of z and v do not matter.
    # Zero counts as a positive product. The fair coin of the rounding of x = 0
    # makes that right.
    product = tf.reduce_sum(clipped * direction)
    keeps_direction = (
        streams.uniforms([], streams.fold_in(key, _ROUNDING))
        < 0.5 + 0.5 * norm / self.randomizer.l2_norm_clip
    )
    # The guarantee rests on this line alone: for any values computed above, a
    # separate coin flips the sign.
    is_flipped = _is_below(
        streams.bits([], streams.fold_in(key, _COIN)),
        self.randomizer.flip_threshold,
    )
    is_positive = tf.not_equal(
        tf.equal(product >= 0.0, keeps_direction), is_flipped
    )
    sign = tf.where(
        is_positive, tf.constant(1, tf.int64), tf.constant(-1, tf.int64)
    )
    return tf.concat([seed, [sign]], axis=0)

  def estimate(self, report):
    direction = self._direction(report[:2])
    length = tf.cast(report[2], tf.float32) * self.randomizer.scale(
        self.num_params
    )
    return direction * tf.math.divide_no_nan(length, tf.norm(direction))

  def _direction(self, seed):
    return streams.directions(self.num_params, seed)


_BY_TYPE = {
    randomizers.Gaussian: _Gaussian,
    randomizers.Laplace: _Laplace,
    randomizers.Sphere: _Sphere,
}


def build(
    randomizer: randomizers.LocalRandomizer, num_params: int
) -> ClientRandomizer:
  """Returns the operations of a randomizer of vectors.

  Args:
    randomizer: Gaussian, Laplace or Sphere.
    num_params: Length of the vectors.
  """
  check_vector_randomizer(randomizer)
  return _BY_TYPE[type(randomizer)](randomizer, num_params)


def release_of(
    randomizer: randomizers.LocalRandomizer,
) -> release_marks.Release:
  """Returns the `Release` with which reports are marked as noised."""
  return release_marks.Release.of(randomizer.describe())


def check_vector_randomizer(randomizer) -> None:
  """Raises unless `randomizer` is a randomizer of vectors."""
  if type(randomizer) not in _BY_TYPE:
    names = ', '.join(sorted(cls.__name__ for cls in _BY_TYPE))
    raise _checks.ArgumentError(
        'randomizer',
        randomizer,
        f'a local randomizer of vectors, one of {names}; RandomizedResponse is'
        ' for categories, see RandomizedResponseHistogramFactory',
    )


def randomize_category(
    randomizer: randomizers.RandomizedResponse,
    category: tf.Tensor,
    client_key: tf.Tensor,
) -> tf.Tensor:
  """Returns the reported category, scalar int64 in [0, num_categories).

  A category outside of the range is replaced by a uniformly drawn one.

  Args:
    randomizer: Randomized response, with number of categories and local
      epsilon.
    category: True category, a scalar integer.
    client_key: Secret key, int64 of shape [2]. It may be used again only for
      the same category.
  """
  num_categories = randomizer.num_categories
  category = tf.cast(category, tf.int64)
  key = streams.fold_in(
      streams.domain_key(client_key, f'{_DOMAIN}|{randomizer!r}'), category
  )
  stand_in, other = (
      tf.math.floormod(
          streams.bits([], streams.fold_in(key, part)),
          tf.constant(modulus, tf.int64),
      )
      for part, modulus in (
          (_ROUNDING, num_categories), (_NOISE, num_categories - 1)
      )
  )
  is_valid = tf.logical_and(category >= 0, category < num_categories)
  category = tf.where(is_valid, category, stand_in)
  is_changed = _is_below(
      streams.bits([], streams.fold_in(key, _COIN)),
      randomizer.change_threshold,
  )
  other += tf.cast(other >= category, tf.int64)
  return release_of(randomizer).mark(tf.where(is_changed, other, category))


def _is_below(bits: tf.Tensor, threshold: int) -> tf.Tensor:
  """Returns a coin from 64 random bits: true for `threshold` of 2^64 values.
  """
  return bits < tf.constant(_LEAST_INT64 + threshold, tf.int64)


def _clip_l1(update: tf.Tensor, l1_norm_clip: float) -> tf.Tensor:
  """Returns the update, scaled so that its exact L1 norm is within the bound.

  An update with a NaN, an infinity or a norm beyond float32 becomes zero.
  """
  bound = l1_norm_clip * (1.0 - clipping.NORM_MARGIN)
  norm = tf.reduce_sum(tf.abs(update))
  scaled = tf.cond(
      norm > bound, lambda: update * (bound / norm), lambda: update
  )
  return tf.cond(
      tf.math.is_finite(norm), lambda: scaled, lambda: tf.zeros_like(update)
  )
