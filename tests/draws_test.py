# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every draw has the law that `draws` states, far tails included."""

import contextlib
import fractions
import math
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import scipy.stats
import tensorflow as tf

from tff_dp import draws
from tff_dp import mechanisms
from tff_dp import streams
from tff_dp.integrations import noise
from tff_dp.participation import coins

_FALSE_ALARM = 1e-6
# Both forms of `streams.normals`: without and with a search, and a rest.
_SIZES = (4093, 4096 + 63)
# 15 words of 63 bits, all zero, and half of a last place.
_LOG_LEAST_UNIFORM = -(15 * 63 + 1) * math.log(2)
# See `PinnedTest`.
_PINNED_NODE = (
    0.6888737082481,
    -0.08304113894701,
    0.2542734146118,
    0.2422961741686,
    -1.311615467072,
)
_PINNED_LARGE = (0.752427524275, 1.403398142201, 1.844866637788)
_PINNED_LAPLACE = (0.4560550900734, 0.4361680493008, 1.160238705703)
_PINNED_FIRST = (-2.073562681584, -0.5072224086385)
_PINNED_SECOND = (1.117227327889, 0.1875572876023)
_PINNED_FAR = (
    5.054535195792,
    5.14017110628,
    -5.590895960842,
    -5.06951559356,
    -5.105008077067,
    -5.215612445097,
    5.140371849793,
    5.289986896467,
    6.01307387066,
    -5.379495170677,
    5.005068134187,
    -5.04699092245,
)


@contextlib.contextmanager
def _far_from(share: float):
  """Makes a pair of normals a far one with this probability."""
  streams._normals_function.cache_clear()
  with mock.patch.multiple(
      draws, FAR_SHARE=share, FAR_SQUARED_RADIUS=-2 * math.log(share)
  ):
    try:
      yield
    finally:
      streams._normals_function.cache_clear()


def _fits(sample, law) -> bool:
  return scipy.stats.kstest(np.ravel(sample), law.cdf).pvalue > _FALSE_ALARM


def _many(draw, num: int, *args) -> np.ndarray:
  """Returns `num` results of `draw(key, ...)`, of different keys."""

  @tf.function(autograph=False)
  def several():
    root = streams.insecure_root_key(7)
    return tf.map_fn(
        lambda index: draw(streams.fold_in(root, index), *args),
        tf.range(num, dtype=tf.int64),
        fn_output_signature=args[-1],
    )

  return several().numpy()


class NormalsTest(parameterized.TestCase):

  @parameterized.product(size=_SIZES, dtype=(tf.float32, tf.float64))
  def test_far_pairs_and_no_others_get_a_new_radius(self, size, dtype):
    # About one pair of a draw, so that many draws have none.
    self.enterContext(_far_from(2.0**-11))
    limit = draws.squared_radius_limit(dtype.size)
    num_far = 0
    for seed in range(20):
      key = streams.insecure_root_key(seed)
      raw = streams.raw_normals([size + size % 2], key, dtype).numpy()
      found = streams.normals([size], key, dtype).numpy()
      self.assertLen(found, size)
      whole = size - size % 2
      raw, found = (x[:whole].reshape(-1, 2) for x in (raw, found))
      squared = np.sum(raw.astype(float) ** 2, 1)
      is_far = squared > limit
      num_far += is_far.sum()
      np.testing.assert_array_equal(found[~is_far], raw[~is_far])
      np.testing.assert_allclose(
          np.arctan2(*found[is_far].T), np.arctan2(*raw[is_far].T), rtol=1e-6
      )
      new = np.sum(found[is_far].astype(float) ** 2, 1)
      self.assertTrue(np.all(new > draws.FAR_SQUARED_RADIUS * (1 - 1e-6)))
      # All radii come from a grid, or from TensorFlow's cut.
      self.assertTrue(np.all(np.abs(new / squared[is_far] - 1) > 1e-9))
    law = scipy.stats.binom(20 * (size // 2), draws.FAR_SHARE)
    self.assertBetween(num_far, law.ppf(1e-6), law.isf(1e-6))

  @parameterized.product(size=_SIZES, dtype=(tf.float32, tf.float64))
  def test_new_radii_have_the_exact_law(self, size, dtype):
    # One pair in four is a far one, so that a wrong tail is a wrong law.
    with _far_from(0.25):
      found = _many(
          lambda key, dtype: streams.normals([size], key, dtype), 100, dtype
      )
    found = found[:, : size - size % 2].reshape(-1, 2).astype(float)
    squared = np.sum(found**2, 1)
    self.assertTrue(_fits(squared, scipy.stats.chi2(2)))
    self.assertTrue(_fits(found, scipy.stats.norm()))
    angles = np.arctan2(*found[squared > -2 * math.log(0.25)].T)
    self.assertTrue(_fits(angles, scipy.stats.uniform(-np.pi, 2 * np.pi)))
    self.assertLess(
        abs(np.corrcoef(found.T)[0, 1]), 5 / math.sqrt(len(found))
    )

  def test_the_search_misses_no_far_pair(self):
    # Pairs that are far, but hardly by one of their numbers.
    limit = draws.squared_radius_limit(4)
    edge = np.float32(math.sqrt(limit / 2) * (1 + 1e-6))
    raw = np.zeros([8192], np.float32)
    raw[[0, 1, 4000, 4001, 8190, 8191]] = [edge, -edge] * 3
    raw[[100, 101]] = edge * np.float32(1 - 1e-5)
    with mock.patch.object(streams, 'raw_normals', lambda *_: tf.constant(raw)):
      found = streams.normals([8192], streams.insecure_root_key(1)).numpy()
    self.assertEqual(
        np.flatnonzero(found != raw).tolist(), [0, 1, 4000, 4001, 8190, 8191]
    )

  @parameterized.parameters(4, 8)
  def test_limit_lies_between_two_values_of_the_uniform(self, num_bytes):
    dtype = {4: np.float32, 8: np.float64}[num_bytes]
    limit = draws.squared_radius_limit(num_bytes)
    step = 2.0 ** -{4: 23, 8: 52}[num_bytes]
    last_far, first_near = draws.FAR_SHARE - step, draws.FAR_SHARE
    far, near = -2 * math.log(last_far), -2 * math.log(first_near)
    # Rounding moves a squared radius by few units in the last place.
    margin = 16 * float(np.finfo(dtype).eps) * limit
    self.assertGreater(far - limit, margin)
    self.assertGreater(limit - near, margin)

  def test_tensorflow_s_own_end_where_the_page_says(self):
    # The reason of all this. A newer TensorFlow may mend it.
    found = streams.raw_normals([2**24], streams.insecure_root_key(2)).numpy()
    radii = np.hypot(*found.reshape(-1, 2).T)
    self.assertLess(radii.max(), 5.679)


class SmallUniformsTest(absltest.TestCase):

  def test_every_word_counts(self):
    for zero_words in (0, 1, 7, 14, 15):
      words = np.full([1, draws.TAIL_WORDS], 2**62, np.int64)
      words[:, :zero_words] = 0
      with mock.patch.object(streams, 'bits', lambda *_: tf.constant(words)):
        found = streams._small_uniforms([1], streams.insecure_root_key(0))
      number = sum(int(word) << 63 * (14 - n) for n, word in enumerate(words[0]))
      expected = float(fractions.Fraction(2 * number + 1, 2 ** (63 * 15 + 1)))
      np.testing.assert_allclose(found, [expected], rtol=1e-15)

  def test_they_are_uniform(self):
    found = streams._small_uniforms([100_000], streams.insecure_root_key(0))
    self.assertTrue(_fits(found, scipy.stats.uniform()))
    self.assertLess(found.numpy().min(), 1e-3)


class LaplaceTest(absltest.TestCase):

  def test_small_words_go_on(self):
    with mock.patch.object(draws, 'FAR_LAPLACE_SHARE', 0.5):
      found = _many(
          lambda key, dtype: streams.laplace([1000], key), 200, tf.float64
      )
    self.assertTrue(_fits(found, scipy.stats.laplace()))

  def test_the_last_word_goes_on_in_new_ones(self):
    drawn = np.array([1 << 60, 3, 3 - 2**63], np.int64)
    key, bits = streams.insecure_root_key(0), streams.bits
    with mock.patch.object(
        streams,
        'bits',
        lambda shape, own: tf.constant(drawn)
        if own is key
        else bits(shape, own),
    ):
      found = streams.laplace([3], key).numpy()
    np.testing.assert_allclose(found[0], math.log(8))
    self.assertBetween(found[1], 60 * math.log(2), 63 * math.log(2))
    self.assertBetween(-found[2], 60 * math.log(2), 63 * math.log(2))
    self.assertNotEqual(found[1], -found[2])


class NumpyTest(absltest.TestCase):

  def test_numbers_beyond_five_are_drawn_anew(self):
    with mock.patch.multiple(
        draws,
        NUMPY_FAR=1.0,
        NUMPY_FAR_EXPONENT=-scipy.stats.norm.logsf(1.0),
    ):
      found = noise._normals(b'\1' * coins.KEY_BYTES, 1_000_000)
    self.assertTrue(_fits(found, scipy.stats.norm()))
    own = np.random.Generator(np.random.Philox(key=int.from_bytes(b'\1' * 16)))
    own = own.standard_normal(1_000_000)
    is_far = np.abs(own) > 1
    np.testing.assert_array_equal(found[~is_far], own[~is_far])
    np.testing.assert_array_equal(np.sign(found), np.sign(own))
    self.assertFalse(np.any(found[is_far] == own[is_far]))


class DirectionsTest(parameterized.TestCase):

  def _of_words(self, words) -> tuple[np.ndarray, np.ndarray]:
    """Returns the two numbers of each word, float64."""
    with mock.patch.object(
        streams, 'bits', lambda *_: tf.constant(words, tf.int32)
    ):
      found = streams.directions(2 * len(words), streams.insecure_root_key(0))
    cosines, sines = np.split(found.numpy().astype(np.float64), 2)
    return cosines, sines

  def test_each_word_gives_its_radius_and_angle(self):
    high = np.random.default_rng(1).integers(-(2**15), 2**15, 2**16)
    low = np.arange(2**16)
    cosines, sines = self._of_words(2**16 * high + low)
    radii = np.sqrt(-2 * np.log((low + 0.5) / 2**16))
    angles = 2 * np.pi * (high / 2**16 + low / 2**32)
    np.testing.assert_allclose(cosines, radii * np.cos(angles), atol=4e-6)
    np.testing.assert_allclose(sines, radii * np.sin(angles), atol=4e-6)

  def test_moments_are_those_of_the_docstring(self):
    # Angles of 0, so that the first half is the radii.
    radii, zeros = self._of_words(np.arange(2**16))
    np.testing.assert_allclose(zeros, 0, atol=4e-4)
    # Averages of cos^2, cos^4 and |cos| are 1/2, 3/8 and 2/pi.
    variance = np.mean(radii**2) / 2
    self.assertAlmostEqual(variance - 1, -5.3e-6, delta=1e-7)
    fourth = 3 / 8 * np.mean(radii**4)
    self.assertAlmostEqual(fourth / 3 - 1, -7.0e-5, delta=1e-6)
    self.assertAlmostEqual(radii.max(), 4.86, delta=0.01)
    self.assertGreater(radii.min(), 0)
    share = 2 / np.pi * np.mean(radii) / math.sqrt(variance)
    self.assertAlmostEqual(share / math.sqrt(2 / np.pi), 1, delta=2e-6)

  def test_angles_of_one_radius_have_no_mean_and_no_correlation(self):
    for low in (0, 12_345, 2**16 - 1):
      cosines, sines = self._of_words(2**16 * np.arange(-(2**15), 2**15) + low)
      squared = np.mean(cosines**2)
      for number in (
          np.mean(cosines),
          np.mean(sines),
          np.mean(cosines * sines),
          np.mean(sines**2) - squared,
          np.mean(cosines**4) - 1.5 * squared**2,
      ):
        self.assertAlmostEqual(number / max(1, squared**2), 0, delta=1e-7)

  def test_they_look_like_independent_normals(self):
    found = streams.directions(2**20, streams.insecure_root_key(5)).numpy()
    found = found.astype(np.float64)
    cosines, sines = np.split(found, 2)
    for part in (found, cosines, sines):
      self.assertTrue(_fits(part, scipy.stats.norm()))
    squared = cosines**2 + sines**2
    self.assertTrue(_fits(squared, scipy.stats.chi2(2)))
    self.assertTrue(
        _fits(
            np.arctan2(sines, cosines),
            scipy.stats.uniform(-np.pi, 2 * np.pi),
        )
    )
    # Also of squares, which depend on the radii. A word and its neighbours, and
    # words that one step of the generator gives.
    for numbers in (found, found**2, np.abs(found)):
      halves = np.split(numbers, 2)
      for one, other in (
          halves,
          (halves[0][:-1], halves[0][1:]),
          (halves[0][:-1], halves[1][1:]),
          (halves[0][:-4], halves[0][4:]),
      ):
        correlation = np.corrcoef(one, other)[0, 1]
        self.assertLess(abs(correlation), 5 / math.sqrt(len(one)))

  @parameterized.parameters(1, 2, 3, 8, 501)
  def test_a_key_gives_the_same_numbers_everywhere(self, num):
    key = streams.insecure_root_key(6)
    found = streams.directions(num, key)
    self.assertEqual(found.dtype, tf.float32)
    self.assertEqual(found.shape, [num])
    graph = tf.function(streams.directions, autograph=False)
    np.testing.assert_allclose(graph(num, key), found, atol=2e-6)

  def test_keys_give_independent_numbers(self):
    found = _many(lambda key, _: streams.directions(20_001, key), 8, tf.float32)
    correlations = np.corrcoef(found) - np.eye(8)
    self.assertLess(np.abs(correlations).max(), 7 / math.sqrt(20_001))


class PinnedTest(absltest.TestCase):
  """Who changes what a key draws changes the version tag of its streams, too.

  Otherwise a resumed run would go on with other noise, unnoticed.
  """

  def test_streams(self):
    self.assertEqual(streams._VERSION_TAG, b'tff_dp streams 2')
    key = streams.domain_key(streams.insecure_root_key(3), 'value')
    node = streams.node_normals(streams.fold_in(key, 1), 5)(2, 3)
    np.testing.assert_allclose(node, _PINNED_NODE, atol=2e-6)
    large = streams.normals([_SIZES[1]], key, tf.float64)
    np.testing.assert_allclose(large[-3:], _PINNED_LARGE, atol=1e-12)
    laplace = streams.laplace([3], key)
    np.testing.assert_allclose(laplace, _PINNED_LAPLACE, atol=1e-12)

  def test_adapters(self):
    self.assertEqual(noise._VERSION_TAG, 'tff_dp numpy streams 2')
    mechanism = mechanisms.HonakerTree(4)
    state = noise.initialize(mechanism, 2, key=b'\1' * coins.KEY_BYTES)
    drawn, state = noise.next_noise(mechanism, state, np.ones(2))
    np.testing.assert_allclose(drawn, _PINNED_FIRST, atol=1e-12)
    drawn, _ = noise.next_noise(mechanism, state, np.zeros(2))
    np.testing.assert_allclose(drawn, _PINNED_SECOND, atol=1e-12)

  def test_far_normals_of_the_adapters(self):
    drawn = noise._normals(b'\1' * coins.KEY_BYTES, 10_000_000)
    far = drawn[np.abs(drawn) > 5]
    np.testing.assert_allclose(far, _PINNED_FAR, atol=1e-9)


class MissingDeltaTest(parameterized.TestCase):

  @parameterized.named_parameters(
      # A pair is far with probability 2^-19, and both its numbers end.
      ('normals', -19 * math.log(2) - math.log(2)),
      ('numpy', math.log(2) + scipy.stats.norm.logsf(5.0)),
      ('laplace', -63 * math.log(2)),
  )
  def test_bounds_every_draw(self, log_share):
    # The probability of what comes below the least uniform of the words.
    log_mass = _LOG_LEAST_UNIFORM + log_share
    for epsilon in (0.0, 8.0, 200.0):
      log_found = math.log(draws.missing_delta(epsilon))
      log_factor = np.logaddexp(0, epsilon)
      self.assertGreaterEqual(
          log_found, log_mass + log_factor + 80 * math.log(2)
      )
      self.assertLess(log_found, -400)

  def test_grows_with_epsilon_to_one(self):
    found = [draws.missing_delta(epsilon) for epsilon in (0, 1, 500, 1e4)]
    self.assertEqual(sorted(found), found)
    self.assertEqual(found[-1], 1.0)
    self.assertEqual(draws.missing_delta(math.inf), 1.0)

  def test_counted(self):
    self.assertEqual(draws.counted(8.0, 1e-12), 8.0)
    self.assertEqual(draws.counted(8.0, 1e-200), 8.0)
    self.assertEqual(draws.counted(0.0, 1e-270), math.inf)
    self.assertEqual(draws.counted(1000.0, 0.5), math.inf)
    self.assertEqual(draws.counted(math.inf, 0.5), math.inf)
    # What is missing may not be seen in delta, not even in its last bit.
    for epsilon in (0.0, 8.0, 100.0):
      missing = draws.missing_delta(epsilon)
      self.assertEqual(draws.counted(epsilon, missing * 2.0**55), epsilon)
      for delta in (missing * 2.0**52, 4 * missing, missing):
        self.assertGreater(delta + missing, delta)
        self.assertEqual(draws.counted(epsilon, delta), math.inf)

  def test_true_delta_of_tensorflow_s_own(self):
    # What these tails are for: where normals end at 5.68, an output that a
    # neighbour cannot give has a probability of 17 times delta 1e-6.
    end = math.sqrt(-2 * math.log(1e-7))
    self.assertGreater(scipy.stats.norm.sf(end - 1 / 0.653), 1.6e-5)


if __name__ == '__main__':
  absltest.main()
