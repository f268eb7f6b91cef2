# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Keyed, counter-based streams of standard normals as TensorFlow operations.

One run has one secret root key of 128 bits. Every draw belongs to a key that is
derived from the root key through named steps (purpose, tree, node), and a key
is used for one draw only. There is no generator state, so a resumed run
continues the same stream. A round that is repeated on the same data repeats its
noise.

Philox, the generator underneath, is not cryptographic, and the normals are
floating-point numbers: see "Implementation" in every privacy statement.
"""

import functools
import hashlib
import math
from collections.abc import Callable

import tensorflow as tf

from tff_dp import _checks
from tff_dp import _failures
from tff_dp import draws
from tff_dp.mechanisms import mechanism as mechanism_lib

# The generator of every draw, named because its default depends on the device.
ALGORITHM = 'philox'
_ALGORITHM_NUMBER = tf.random.Algorithm.PHILOX.value
# Changing how keys are derived, or the draws from them, changes every stream.
# Change the tag with it.
_VERSION_TAG = b'tff_dp streams 2'
_KERNEL_ENTROPY = '/proc/sys/kernel/random/uuid'
# Positions of hexadecimal digits of a version-4 UUID that are random and 4 bits
# wide.
_RANDOM_DIGITS = (0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 15, 16, 17, 20)
_UUID_PATTERN = '[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}'
_LEVEL_SHIFT = 56
# Number of vectors that `tf.add_n` adds up in one pass over memory.
_FUSED = 8
# Label of the child key that draws the tails. No caller folds this into the key
# of a draw, because a key is used for one draw only.
_TAIL = -(2**63) + 1
# Number of normals that are searched together, and the fewest numbers for a
# search.
_ROW = 64
_MIN_SEARCHED = 4096
_WORD_MASK = 2**draws.WORD_BITS - 1


def random_root_key() -> tf.Tensor:
  """Returns a fresh secret key, int64 of shape [2], each time it is *run*.

  The 128 bits come from the kernel's generator, 64 from each of two random
  UUIDs. They are read inside the graph, because a serialized `initialize` must
  not contain its key. TensorFlow's own non-deterministic operations have seeds
  of only 32 bits. (`tf.io.read_file` is not used, because TensorFlow would
  replace it by a constant.)
  """
  lines = (
      tf.data.TextLineDataset([_KERNEL_ENTROPY, _KERNEL_ENTROPY])
      .batch(2, drop_remainder=True)
      .get_single_element()
  )
  well_formed = tf.reduce_all(tf.strings.regex_full_match(lines, _UUID_PATTERN))
  with tf.control_dependencies([
      tf.debugging.Assert(
          tf.logical_and(well_formed, tf.not_equal(lines[0], lines[1])),
          [_KERNEL_ENTROPY, 'did not give two different random UUIDs'],
      )
  ]):
    characters = tf.cast(
        tf.io.decode_raw(lines, tf.uint8, fixed_length=36), tf.int64
    )
  digits = tf.gather(characters, _RANDOM_DIGITS, axis=1)
  digits = tf.where(digits >= ord('a'), digits - ord('a') + 10, digits - ord('0'))
  shifts = tf.constant([list(range(0, 64, 4))], tf.int64)
  # The digits do not overlap, so the sum is their bitwise union.
  return tf.reduce_sum(tf.bitwise.left_shift(digits, shifts), axis=1)


def insecure_root_key(seed: int) -> tf.Tensor:
  """Returns the root key that belongs to a seed, for tests only.

  Anybody who knows the seed can subtract the noise, so a seed voids the
  guarantee. Keys of similar seeds share nothing, because the key is a hash of
  the seed.
  """
  _checks.integer_at_least(0, insecure_seed=seed)
  return _key_constant(b'insecure seed', str(seed).encode())


def fold_in(key: tf.Tensor, data) -> tf.Tensor:
  """Returns the child key of `key` for an integer `data`, int64 of shape [2].

  All 128 bits of a child key are output of the generator.
  (`tf.random.experimental.stateless_fold_in` keeps 64 bits of the parent and
  stores `data` in the other 64.) Different `data` give different generator
  inputs.
  """
  if not tf.is_tensor(data):
    words = tf.constant([0, data], tf.int64)
  else:
    words = tf.stack([tf.constant(0, tf.int64), tf.cast(data, tf.int64)])
  return bits([2], tf.bitwise.bitwise_xor(key, words))


def domain_key(root_key: tf.Tensor, domain: str) -> tf.Tensor:
  """Returns the key of one purpose, such as 'value' or 'quantile'.

  Computing it fails if the root key is all zeros. Runs do not make such a key,
  so somebody has filled the state by hand.
  """
  words = hashlib.sha256(_VERSION_TAG + b'|domain|' + domain.encode()).digest()
  is_made = tf.debugging.Assert(
      tf.reduce_any(tf.not_equal(root_key, 0)),
      [
          _failures.assertion(
              'the secret key of the noise is all zeros, which anybody can guess'
          )
      ],
  )
  # In eager mode there is no operation to wait for.
  with tf.control_dependencies([] if is_made is None else [is_made]):
    key = tf.identity(root_key)
  for start in (0, 8):
    key = fold_in(
        key, int.from_bytes(words[start : start + 8], 'little', signed=True)
    )
  return key


def bits(shape, key: tf.Tensor, dtype=tf.int64) -> tf.Tensor:
  """Returns integers that are uniform over all values of their type."""
  return tf.raw_ops.StatelessRandomUniformFullIntV2(
      shape=shape, dtype=dtype, **_generator(key)
  )


def raw_normals(shape, key: tf.Tensor, dtype=tf.float32) -> tf.Tensor:
  """Returns TensorFlow's own normals. Do not use them for noise.

  Their absolute value never exceeds 5.68.

  They are for starting points, whose distribution no guarantee rests on. For
  the arguments see `normals`.
  """
  return tf.raw_ops.StatelessRandomNormalV2(
      shape=shape, dtype=dtype, **_generator(key)
  )


def directions(num: int, key: tf.Tensor) -> tf.Tensor:
  """Returns nearly normal numbers, float32 [num]. Do not use them for noise.

  They are for directions, whose distribution no guarantee rests on. They take
  half as many random words as `raw_normals`. A word of 32 bits gives two
  numbers: r cos t in the first half of the result, r sin t in the second.

  The low 16 bits of the word give the radius r, by Box and Muller's formula for
  one of the uniform numbers (i + 1/2) / 65,536. For each r, the angle t is one
  of 65,536 that are equally spaced. Up to float rounding, means and
  correlations are therefore zero. The variance is 5.3e-6 below that of a
  normal, the fourth moment 7.0e-5 of it, and the largest r is 4.86. For a long
  vector of such numbers, scaled to length 1, the mean absolute value of any
  projection is within 2e-6 of that of a uniform direction, relatively.

  Args:
    num: How many numbers, at least 1.
    key: Key, int64 of shape [2]. It must not be used for anything else.
  """
  # A change of these lines needs another version of the sphere's keys.
  words = bits([(num + 1) // 2], key, tf.int32)
  angles = (math.pi / 2**31) * tf.cast(words, tf.float32)
  indices = tf.cast(tf.bitwise.bitwise_and(words, 2**16 - 1), tf.float32)
  radii = tf.sqrt(-2.0 * tf.math.log((indices + 0.5) * 2.0**-16))
  both = tf.concat([radii * tf.cos(angles), radii * tf.sin(angles)], axis=0)
  return both[:num]


def normals(shape, key: tf.Tensor, dtype=tf.float32) -> tf.Tensor:
  """Returns standard normals. The module `draws` says how large they can be.

  They are TensorFlow's own, with new tails. TensorFlow makes two normals at a
  time, from an angle and a radius. The radius comes from a uniform number,
  whose digits are too coarse for a large one. Such a pair keeps its angle and
  gets a new radius.

  Args:
    shape: Shape of the result, known when the graph is built.
    key: Secret key, int64 of shape [2]. It must not be used for anything else.
    dtype: Type of the result, `tf.float32` or `tf.float64`.
  """
  shape = tuple(tf.TensorShape(shape).as_list())
  return _normals_function(shape, dtype)(key)


@functools.lru_cache(maxsize=1024)
def _normals_function(shape: tuple[int, ...], dtype: tf.DType):
  """Returns `normals` for one shape and dtype, traced once for all graphs."""

  @tf.function(
      input_signature=[tf.TensorSpec([2], tf.int64)], autograph=False
  )
  def drawn(key):
    num, limit = math.prod(shape), draws.squared_radius_limit(dtype.size)
    if num < _MIN_SEARCHED:
      # Few operations: here each of them costs more than the numbers.
      pairs = raw_normals([(num + 1) // 2, 2], key, dtype)
      squared = tf.reduce_sum(tf.square(pairs), 1)
      found = tf.cond(
          tf.reduce_any(squared > limit),
          lambda: _with_tails(pairs, limit, key),
          lambda: pairs,
      )
    else:
      num_rows = -(-num // _ROW)
      rows = tf.reshape(
          raw_normals([num_rows * _ROW], key, dtype), [-1, _ROW]
      )
      # One normal of a far pair is beyond this value, so few rows have to be
      # checked.
      largest = tf.maximum(tf.reduce_max(rows, 1), -tf.reduce_min(rows, 1))
      places = tf.where(largest > 0.999 * math.sqrt(limit / 2))
      pairs = tf.reshape(tf.gather_nd(rows, places), [-1, 2])
      found = tf.tensor_scatter_nd_update(
          rows,
          places,
          tf.reshape(_with_tails(pairs, limit, key), [-1, _ROW]),
      )
    if num != found.shape.num_elements():
      found = tf.reshape(found, [-1])[:num]
    return tf.reshape(found, shape)

  return drawn


def _with_tails(pairs: tf.Tensor, limit: float, key: tf.Tensor) -> tf.Tensor:
  """Returns the pairs of normals, [n, 2], with new radii for far ones.

  A pair is far if its squared radius is above `limit`. `key` is the key that
  drew the pairs.
  """
  squared = tf.reduce_sum(tf.square(pairs), 1)
  far = tf.where(squared > limit)
  exponential = -tf.math.log(_small_uniforms(
      tf.shape(far)[:1], fold_in(key, _TAIL)
  ))
  factors = tf.sqrt(
      tf.cast(draws.FAR_SQUARED_RADIUS + 2 * exponential, pairs.dtype)
      / tf.gather_nd(squared, far)
  )
  return tf.tensor_scatter_nd_update(
      pairs, far, tf.gather_nd(pairs, far) * factors[:, tf.newaxis]
  )


def _small_uniforms(shape, key: tf.Tensor) -> tf.Tensor:
  """Returns uniform numbers in (0, 1], float64, with full relative precision.
  """
  words = tf.cast(
      tf.bitwise.bitwise_and(
          bits(tf.concat([shape, [draws.TAIL_WORDS]], 0), key), _WORD_MASK
      ),
      tf.float64,
  )
  scales = tf.constant(draws.WORD_SCALES, tf.float64)
  return tf.reduce_sum(words * scales, -1) + 0.5 * scales[-1]


def uniforms(shape, key: tf.Tensor, dtype=tf.float32) -> tf.Tensor:
  """Returns numbers that are uniform in [0, 1). Arguments as for `normals`."""
  return tf.raw_ops.StatelessRandomUniformV2(
      shape=shape, dtype=dtype, **_generator(key)
  )


def integers(shape, key: tf.Tensor, *, below, dtype=tf.int64) -> tf.Tensor:
  """Returns integers in [0, below) that are nearly uniform.

  The probability of an integer differs from 1 / below by a relative error of at
  most below / 2^64. For int32 the relative error is at most below / 2^32.
  """
  return tf.raw_ops.StatelessRandomUniformIntV2(
      shape=shape,
      minval=tf.constant(0, dtype),
      maxval=tf.cast(below, dtype),
      **_generator(key),
  )


def _generator(key: tf.Tensor) -> dict[str, object]:
  """Returns the generator's inputs for a key.

  The numbers are the same as from `tf.random.stateless_*`. Those functions use
  20 operations where this uses one, so graphs with many draws are traced in a
  fraction of the time.
  """
  key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=key)
  return dict(key=key, counter=counter, alg=_ALGORITHM_NUMBER)


def laplace(shape, key: tf.Tensor) -> tf.Tensor:
  """Returns Laplace draws of scale 1, float64. `draws` gives their limit.

  A draw is made from 64 bits. One bit gives the sign. The other 63 bits are a
  uniform number in (0, 1), and the size of the draw is minus its logarithm. If
  this number is small, more bits are drawn to make it finer.
  """
  drawn = bits(shape, key)
  flat = tf.reshape(tf.bitwise.bitwise_and(drawn, _WORD_MASK), [-1])
  places = tf.where(
      flat < int(draws.FAR_LAPLACE_SHARE * 2.0**draws.WORD_BITS)
  )
  words = tf.cast(flat, tf.float64)
  far = tf.gather_nd(words, places) + _small_uniforms(
      tf.shape(places)[:1], fold_in(key, _TAIL)
  )
  words = tf.tensor_scatter_nd_update(words + 0.5, places, far)
  exponential = -tf.math.log(
      tf.reshape(words, tf.shape(drawn)) * 2.0**-draws.WORD_BITS
  )
  return tf.where(drawn < 0, -exponential, exponential)


def digest(vector: tf.Tensor) -> tf.Tensor:
  """Returns 64 bits that are equal for equal vectors, scalar int64.

  Two different vectors have the same bits with probability about 2^-64. But the
  hash is not cryptographic, so somebody may find such a pair by search. The
  bits depend on the vector alone, without a key, so they must not be released.
  Use them only to derive other keys from a secret key.
  """
  fingerprint = tf.raw_ops.Fingerprint(
      data=vector[tf.newaxis], method='farmhash64'
  )
  return tf.bitcast(fingerprint, tf.int64)[0]


def node_normals(
    tree_key: tf.Tensor,
    num_params: int,
    digest_of_round: Callable[..., tf.Tensor] | None = None,
) -> Callable[..., tf.Tensor]:
  """Returns `draw(level, index)`, the standard normals of one tree's nodes.

  Args:
    tree_key: Key of one tree: a domain key with the tree's id folded in.
    num_params: Length of each draw.
    digest_of_round: Function from a round of the tree, counted from 1, to a
      scalar int64, on which the draws of the round depend. `None` for draws
      that protect no data.

  Returns:
    A `mechanisms.mechanism.Draw` of float32 vectors, shape [num_params].
  """

  def draw(level, index) -> tf.Tensor:
    node = tf.cast(index, tf.int64) + level * 2**_LEVEL_SHIFT
    key = fold_in(tree_key, node)
    if digest_of_round is not None:
      key = fold_in(
          key, digest_of_round(mechanism_lib.round_of_draw(level, index))
      )
    return normals([num_params], key)

  return draw


def operations(
    tree_key: tf.Tensor,
    num_params: int,
    digest_of_round: Callable[..., tf.Tensor] | None = None,
) -> mechanism_lib.Operations:
  """Returns the TensorFlow operations for one tree's noise.

  Args:
    tree_key: Key of one tree, as for `node_normals`.
    num_params: Length of each draw.
    digest_of_round: Digest function as for `node_normals`.
  """
  return mechanism_lib.Operations(
      draw=node_normals(tree_key, num_params, digest_of_round),
      cond=tf.cond,
      combine=_combine,
      take=_take,
  )


def _combine(coefficients, vectors) -> tf.Tensor:
  """Returns the sum of c_i v_i, in the order given.

  It uses only elementwise products and sums. Each of them is rounded on its
  own, for any split of the work among threads, so a rebuilt state is equal bit
  for bit. A matrix product can be a little faster, but it rounds differently
  from one library to the next, and GPUs may round its factors to TF32.
  """
  terms = list(zip(coefficients, vectors, strict=True))

  def products(start, stop):
    # Parameters of mechanisms are float64 that float32 holds exactly.
    return [tf.cast(c, tf.float32) * v for c, v in terms[start:stop]]

  total = tf.add_n(products(0, _FUSED))
  for start in range(_FUSED, len(terms), _FUSED - 1):
    # One group after the other, so that never more than a few products are in
    # memory.
    with tf.control_dependencies([total]):
      total = tf.add_n([total, *products(start, start + _FUSED - 1)])
  return total


def _take(table, index) -> list[tf.Tensor]:
  """Returns the numbers in one row of a constant table, as scalars."""
  return tf.unstack(tf.constant(table, tf.float32)[index])


def _key_constant(*parts: bytes) -> tf.Tensor:
  digest = hashlib.sha256(b'|'.join((_VERSION_TAG, *parts))).digest()
  words = [
      int.from_bytes(digest[start : start + 8], 'little', signed=True)
      for start in (0, 8)
  ]
  return tf.constant(words, tf.int64)
